"""A small process that ends what is left of a local Ray when the process that started it is gone.

Ray's own agents survive a SIGKILL of the driver. The reaper waits for the end of its standard input, which closes with
the driver however the driver ends, and then kills every process of the session and removes its folder. Imports only the
standard library.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

PATIENCE_SECONDS = 10.0
"""How long processes that are started while others are killed are looked for."""

POLL_SECONDS = 0.05


def session_processes(folder: str) -> set[int]:
    """The processes of a session: those that belong to its folder, and all their descendants."""
    children: dict[int, list[int]] = {}
    session: set[int] = set()
    for process in _processes():
        # A process may end while it is looked at.
        with contextlib.suppress(OSError):
            children.setdefault(_parent(process), []).append(process)
            if _belongs_to(process, folder):
                session.add(process)
    # Descendants belong to it even if they do not name the folder.
    unvisited = list(session)
    while unvisited:
        for child in children.get(unvisited.pop(), []):
            if child not in session:
                session.add(child)
                unvisited.append(child)
    # The reaper has the folder in its own command line.
    return session - {os.getpid()}


def end_session(folder: str) -> None:
    """Kill all processes of a session and remove its folder."""
    end = time.monotonic() + PATIENCE_SECONDS
    # Again until there are none: one that is just being started is not listed yet.
    while (processes := session_processes(folder)) and time.monotonic() < end:
        _kill(processes)
        time.sleep(POLL_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)


def _processes() -> Iterable[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _belongs_to(process: int, folder: str) -> bool:
    """Whether a process names the folder in its command line, or works in it.

    Ray's agents overwrite their command line, and those of a raylet that was killed are nobody's children.
    """
    here = Path(f"/proc/{process}")
    if folder in (here / "cmdline").read_bytes().decode(errors="replace"):
        return True
    return os.readlink(here / "cwd").startswith(f"{folder}/")


def _parent(process: int) -> int:
    """The parent's number, the second field after the name, which stands in parentheses and may contain some."""
    status = Path(f"/proc/{process}/stat").read_text(errors="replace")
    return int(status.rpartition(")")[2].split()[1])


def _kill(processes: Iterable[int]) -> None:
    for process in processes:
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)


def main() -> None:
    """Wait for the end of standard input, then end the session in the folder of the first argument."""
    # Whoever ends the driver by a signal may send it to this process, too.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Returns when the driver's end of the pipe is closed, however the driver ends.
    sys.stdin.buffer.read()
    end_session(sys.argv[1])


if __name__ == "__main__":
    main()
