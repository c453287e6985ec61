"""A run that is watched: whether it goes on, and its page, which is built again when the run's files have changed."""

import hashlib
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from magcli.errors import DataError
from magcli.report import page
from magcli.report.discovery import LANDSCAPE_FILES
from magcli.report.page import Contents, Live
from magcli.report.server import Answer, Answers
from magcli.run.rundir import RunDir

BUILD_SECONDS = 2.0
"""The page is not built again before it is this old."""

State = Literal["waiting", "running", "finished", "stopped"]

TEXTS: dict[State, str] = {
    "waiting": "The run does not go on yet: start its command, or repeat it to resume.",
    "running": "The run goes on.",
    "finished": "The run has finished.",
    "stopped": "The run has ended before its last step; the same command resumes it.",
}


class Watched:
    """A run's state and page. ``contents`` reads the run, and raises ``DataError`` where it cannot be read."""

    def __init__(self, folder: Path, title: str, contents: Callable[[], Contents]) -> None:
        self._run = RunDir(folder)
        self._contents = contents
        self._latest = Contents(title)
        self.waits = True
        """Whether a run that does not go on may still begin."""
        self._page = ""
        self._version = ""
        self._built_at = float("-inf")
        self._building = threading.Lock()

    @property
    def state(self) -> State:
        """Whether the run goes on; once it did, nothing is waited for any more."""
        if self._run.goes_on:
            self.waits = False
            return "running"
        if self._run.finished:
            return "finished"
        return "waiting" if self.waits else "stopped"

    @property
    def answers(self) -> Answers:
        """What a server answers: the page, and the version of it, which tells an open page whether it is the newest."""
        return {
            "/": lambda: Answer("text/html", self.page()),
            "/version": lambda: Answer("application/json", json.dumps({"version": self.version()})),
        }

    def version(self) -> str:
        """Changes with the run's state, and with the files that the page is made from."""
        files = [self._run.note_path, self._run.metrics_path]
        for name in LANDSCAPE_FILES:
            files += sorted(self._run.path.glob(f"*/{name}"))
        # By times and sizes, without reading the files.
        stamps = [_stamp(path) for path in files]
        return hashlib.sha256(repr((self.state, stamps)).encode()).hexdigest()[:16]

    def page(self) -> str:
        """The page; one that is a moment old is not built again."""
        # Each request has a thread; one of them makes the page, and the others wait for it.
        with self._building:
            # Before the page is made: what changes meanwhile has another version, and makes the next page.
            version = self.version()
            if version != self._version and time.monotonic() - self._built_at >= BUILD_SECONDS:
                self._page = self._build(version)
                self._version = version
                self._built_at = time.monotonic()
            return self._page

    def _build(self, version: str) -> str:
        """The page of this version; of a run that cannot be read at the moment, what was read before."""
        state = self.state
        text = TEXTS[state]
        # A run that has not begun has no files to read.
        if state != "waiting" or self._run.note_path.is_file():
            try:
                self._latest = self._contents()
            except (DataError, OSError) as error:  # files of a run that is started again may vanish
                text = f"{text} Its files cannot be read now: {error}"
        return page.render(self._latest, Live(version, state, text, time.strftime("%H:%M:%S")))


def _stamp(path: Path) -> tuple[int, int]:
    """Changes when a file is written; zeros if there is none."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size
