"""`magcli report --watch`: the page of a run that goes on, served until the run has ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from magcli.errors import DataError
from magcli.report.server import PageServer
from magcli.report.watch import Watched
from magcli.run.rundir import RunDir, read_run
from magcli.run.shutdown import say_on_signal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from magcli.console import Console
    from magcli.report.page import Contents

POLL_SECONDS = 0.5
"""How often the run's state is looked at."""
BEGIN_SECONDS = 300.0
"""How long an unfinished run may take to go on: its command may have been given at the same time, and first reads the
model."""
OPEN_SECONDS = 70.0
"""A page that asked within this time is open; browsers let those in the background ask once a minute."""
LAST_SECONDS = 10.0
"""How long the last page is served to open pages, which ask every three seconds."""


def watch(folder: Path, title: str, contents: Callable[[], Contents], console: Console) -> None:
    """Serve the page of a run until the run has ended.

    Raises:
        DataError: the folder is there, and is not that of a run.
    """
    if folder.exists() and not RunDir(folder).note_path.is_file():
        raise DataError(f"report: {folder} is not the folder of a run: it has no run.json; --watch follows one run")
    watched = Watched(folder, title, contents)
    if watched.state == "finished":
        console.say(f"report: {folder} has finished, so there is nothing to follow", event="ended", state="finished")
        return
    with PageServer(watched.answers) as server:
        say_on_signal("the page is no longer served; the run is not affected")
        console.print(server.link, event="serving", url=server.link)
        console.say(f"report: open the link to follow {folder}; Ctrl-C ends this", event="following")
        _wait_for_begin(folder, watched, server, console)
        _wait_for_end(watched, server)
        console.result(f"report: {_ended(folder, watched)}", event="ended", state=watched.state)
        # So that open pages show the end of the run.
        if server.seconds_since_asked < OPEN_SECONDS:
            _wait(server, LAST_SECONDS)


def _wait_for_begin(folder: Path, watched: Watched, server: PageServer, console: Console) -> None:
    """Wait until the run goes on: for one that does not exist as long as it takes, else ``BEGIN_SECONDS``."""
    if watched.state == "waiting" and not folder.exists():
        console.say(f"report: {folder} does not exist yet; waiting for the run to start", event="waiting")
    elif watched.state == "waiting":
        limit = f"{BEGIN_SECONDS:.0f} s"
        console.say(f"report: {folder} is not running; waiting {limit} for its command to resume it", event="waiting")
    waited = 0.0
    while watched.state == "waiting" and waited < BEGIN_SECONDS:
        _wait(server, POLL_SECONDS)
        # A run that is not there yet may be waiting in a queue for hours.
        waited += POLL_SECONDS if folder.exists() else 0.0
    # From now on the page says that the run is not running.
    watched.waits = False


def _wait_for_end(watched: Watched, server: PageServer) -> None:
    while watched.state == "running":
        _wait(server, POLL_SECONDS)


def _wait(server: PageServer, seconds: float) -> None:
    time.sleep(seconds)
    # The thread that answers requests may have failed.
    server.raise_failure()


def _ended(folder: Path, watched: Watched) -> str:
    """How the run ended, and after how many steps."""
    try:
        trained = read_run(folder)
    except DataError:
        return f"{folder} is no longer there"
    unit = "updates" if trained.stage == "rl" else "steps"
    if watched.state == "finished":
        return f"{folder} has finished after {trained.steps:,} {unit}"
    return f"{folder} is not running; it has {trained.steps:,} {unit}, and the same command resumes it"
