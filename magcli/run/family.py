"""The processes that a user's function starts in a worker: all of them end with the worker. Linux only.

A worker has a mark in its environment, which every process that it starts inherits, whatever session or parent that
process chooses. A guard, a small process that the worker forks before it calls the user's code, waits for the worker's
end, however that comes, and kills what is left: the worker's process group, and all processes with its mark. What
escapes is only a process that leaves the group and also changes its environment.
"""

import os
import secrets
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MARK = "MAGCLI_WORKER"
"""The environment variable with the mark of a worker."""
_LINUX = sys.platform == "linux"


def new_mark() -> str:
    """A mark that no other worker has."""
    return f"{os.getpid()}-{secrets.token_hex(8)}"


def guard() -> None:
    """Fork the guard of this process, if it has a mark. Call it before any thread starts.

    Where no process can be started, there is none, and only the pool that started the worker ends the family.
    """
    mark = os.environ.get(MARK)
    worker = os.getpid()
    if not _LINUX or not mark:
        return
    # A fork later would have the locks of other threads as they are, and none of the threads that free them.
    try:
        is_guard = os.fork() == 0
    except OSError:
        return
    if is_guard:
        try:
            _guard(worker, mark)
        finally:
            os._exit(0)


def _guard(worker: int, mark: str) -> None:
    """Wait for the end of a worker, which this process was forked from, and kill its family."""
    os.setsid()
    with suppress(ProcessLookupError):
        process = os.dup2(os.pidfd_open(worker), 0)  # nothing else stays open, above all not the worker's socket
        os.closerange(1, 1 << 16)
        # Else the worker has ended already, and its number may be that of another process.
        if os.getppid() == worker:
            select.select([process], [], [])
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(worker, signal.SIGKILL)
    end(mark)


def end(mark: str) -> None:
    """Kill all processes with a mark but this one, until none is left that was not killed."""
    killed: set[int] = set()
    # Again until nothing is new, as a process may start others while the list is read.
    while members := set(_members(mark)) - killed:
        for pid in members:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= members


def _members(mark: str) -> Iterator[int]:
    """The other processes with a mark; those of other users cannot be read."""
    if not _LINUX:
        return
    entry = f"{MARK}={mark}".encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        with suppress(OSError):
            if entry in (folder / "environ").read_bytes().split(b"\0"):
                yield int(folder.name)
