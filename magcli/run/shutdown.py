"""A time limit for the shutdown after a signal, whatever the process is doing. Light to import.

Python runs signal handlers in the main thread, between two bytecodes: not while that thread is inside a backward pass,
a compiled loop or an import. But the interpreter's own handler in C writes each signal's number to a socket at once. A
thread that reads it ends the process if the orderly shutdown takes longer than ``GRACE_SECONDS``. Where a call into C
holds the GIL, so that no thread runs, a small watchdog process kills this one a little later.
"""

import atexit
import ctypes
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from types import FrameType
from typing import Any, NoReturn

from magcli.console import Console

GRACE_SECONDS = 0.7
"""Time for the orderly shutdown: tasks are cancelled, threads joined, child processes closed."""
KILL_SECONDS = 0.4
"""Additional time after which the watchdog process kills this one."""
SAVE_SECONDS = 20.0
"""Additional time for a training run that writes a checkpoint before SIGTERM ends it: schedulers that take a machine
back kill what is left after 30 s."""
WORTH_SECONDS = 0.2
"""Training that is in no checkpoint is saved first if it took longer than this, about what a small checkpoint takes."""
_LONGER, _USUAL = 0xF1, 0xF0
"""Sent between the numbers of signals, which are smaller: from now on SIGTERM allows ``SAVE_SECONDS``, or not."""

RESUMES = "the same command resumes from finished work"
"""What a signal means for a command that works through its input."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
Handler = Callable[[int, FrameType | None], Any] | int | None
_FLAGS = 8 + 128
"""Offset of the flags in Linux's ``struct sigaction``: after the handler and the mask."""
_SA_RESETHAND = 1 << 31


def handle_once(number: signal.Signals, handler: Handler) -> Handler:
    """Handle a signal by ``handler``, like ``signal.signal``, but on Linux once: the next one ends the process."""
    earlier = signal.signal(number, handler)
    if sys.platform == "linux":
        sigaction, action = _sigaction(), ctypes.create_string_buffer(256)
        # Python has no way to set the flag: read the action that it installed, and write it back with the flag.
        sigaction(int(number), None, action)
        ctypes.c_uint.from_buffer(action, _FLAGS).value |= _SA_RESETHAND
        sigaction(int(number), action, None)
    return earlier


@cache
def _sigaction() -> Callable[..., int]:
    return ctypes.CDLL(None).sigaction


class ShutdownGuard:
    """Ends this process after a signal: orderly, or else after ``GRACE_SECONDS``; one line on stderr reports it.

    Create it once, in the main thread, before other threads and exit functions.
    """

    def __init__(self, console: Console) -> None:
        global _guard
        self._console = console
        self._unreported = threading.Lock()
        self._code: int | None = None
        self.consequence = RESUMES
        """What the line on a signal says besides its name; that of the watchdog always has ``RESUMES``."""
        self._socket, theirs = socket.socketpair()
        # Before any thread starts, because a fork copies only the thread that forks.
        self._watchdog = os.fork()
        if self._watchdog == 0:
            _run_watchdog(theirs, console)
        theirs.close()
        # Python requires it of a wakeup descriptor: the handler in C must never wait.
        self._socket.setblocking(False)
        signal.set_wakeup_fd(self._socket.fileno(), warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=self._disarm)
        atexit.register(self._finish)
        threading.Thread(target=self._enforce, name="magcli-shutdown", daemon=True).start()
        _guard = self

    def exit(self, number: signal.Signals) -> NoReturn:
        """End the process after its exit functions, now that all work has ended.

        The interpreter is not finalized: threads in compiled code may crash it.
        """
        # As shells report a process that a signal ended.
        self._code = 128 + number
        # The thread may report the same signal at this moment: one of the two gets the lock.
        if self._unreported.acquire(blocking=False):
            self._console.error(_message(number, self.consequence), code=self._code)
        sys.exit(self._code)

    def allow_saving(self, allowed: bool) -> None:
        """Whether SIGTERM allows ``SAVE_SECONDS`` from now on; after a signal, False ends that time."""
        with suppress(OSError):  # the watchdog was killed
            self._socket.send(bytes([_LONGER if allowed else _USUAL]))

    def _disarm(self) -> None:
        """In a forked child, which handles its own signals."""
        global _guard
        _guard = None
        signal.set_wakeup_fd(-1)
        atexit.unregister(self._finish)

    def _finish(self) -> None:
        """The last exit function."""
        signal.set_wakeup_fd(-1)
        with suppress(OSError):  # the watchdog was killed
            # The watchdog reads the end of the stream, and ends.
            self._socket.shutdown(socket.SHUT_WR)
            os.waitpid(self._watchdog, 0)
        if self._code is not None:
            # ``_exit`` flushes nothing.
            for stream in filter(None, (sys.stdout, sys.stderr)):
                with suppress(OSError, ValueError):
                    stream.flush()
            os._exit(self._code)

    def _enforce(self) -> None:
        with suppress(EOFError):
            number = _wait_for_signal(self._socket, GRACE_SECONDS)
            if self._unreported.acquire(blocking=False):
                self._console.last_error(_message(number, self.consequence), code=128 + number)
            os._exit(128 + number)


_guard: ShutdownGuard | None = None
"""The guard of this process; None in one that magcli's command line did not start."""


def say_on_signal(consequence: str) -> None:
    """From now on the line on a signal says this instead of ``RESUMES``: a server has no work that could be resumed."""
    if _guard is not None:
        _guard.consequence = consequence


class SaveFirst:
    """Lets a training run write a checkpoint before SIGTERM ends it, if that saves enough work; a context.

    The run says when a step has ended and when a checkpoint is written, and looks at ``requested``. If it ``polls``,
    SIGTERM interrupts nothing, and the run looks after each step; else it is interrupted as by SIGINT, and looks then.
    """

    def __init__(self, *, polls: bool) -> None:
        self.requested = False
        """Whether SIGTERM came while there was work to save."""
        self.polls = polls
        self._unsaved = 0.0
        """Seconds of finished work that is in no checkpoint."""
        self._step = 0.0
        """Seconds of the last step, which the one that is running may take too."""
        self._is_running = False
        self._allowed = False

    def __enter__(self) -> "SaveFirst":
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """From now on SIGTERM asks this run."""
        global _saves_first
        _saves_first = self

    def close(self) -> None:
        """SIGTERM ends the process at once again."""
        global _saves_first
        _saves_first = None
        self._allow(False)

    @property
    def is_worth_it(self) -> bool:
        """Whether enough work would be lost, and the running step leaves time for a checkpoint."""
        # The running step may take half of the time; the checkpoint needs the rest.
        waits_long = self._is_running and self._step > SAVE_SECONDS / 2
        return self._unsaved > WORTH_SECONDS and not waits_long

    def started(self) -> None:
        """A step begins, in which no checkpoint can be written."""
        self._is_running = True
        self._allow(self.is_worth_it)

    def finished(self, seconds: float) -> None:
        """The step has ended, which took this long."""
        self._is_running = False
        self._unsaved += seconds
        self._step = seconds
        self._allow(self.is_worth_it)

    def saved(self) -> None:
        """All finished work is in a checkpoint."""
        self._unsaved = 0.0
        self._allow(False)

    def end(self) -> NoReturn:
        """End the command now, as SIGTERM does."""
        self._allow(False)
        raise KeyboardInterrupt

    def _allow(self, allowed: bool) -> None:
        if _guard is not None and allowed != self._allowed:
            _guard.allow_saving(allowed)
        self._allowed = allowed


_saves_first: SaveFirst | None = None
"""The training run of this process, while there is one."""


def sigterm_waits() -> bool:
    """Tell the training run that SIGTERM came; whether it ends by itself, after its step, without an interruption."""
    if _saves_first is None or not _saves_first.is_worth_it:
        return False
    _saves_first.requested = True
    return _saves_first.polls


def _run_watchdog(numbers: socket.socket, console: Console) -> NoReturn:
    """The watchdog process: echo the numbers of signals, kill the parent if it does not end, and end with it."""
    try:
        parent = os.getppid()
        # A session of its own, as Ctrl-C signals all processes of the terminal's foreground group.
        os.setsid()
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        # Only the socket and stderr stay open: whoever reads a pipe of the parent waits until all writers are closed.
        kept = os.dup2(numbers.fileno(), 3)
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1):
            os.dup2(nothing, standard)
        os.closerange(kept + 1, 1 << 16)
        number = _wait_for_signal(socket.socket(fileno=kept), GRACE_SECONDS + KILL_SECONDS, echo=True)
        console.last_error(_message(number, RESUMES), code=128 + number)
        # As the signal would have, so that a shell sees its usual end; SIGKILL where that does nothing.
        os.kill(parent, number)
        time.sleep(KILL_SECONDS / 2)
        os.kill(parent, signal.SIGKILL)
    finally:
        os._exit(0)


def _wait_for_signal(numbers: socket.socket, grace: float, *, echo: bool = False) -> signal.Signals:
    """The first of ``SIGNALS``, ``grace`` seconds after it came, or as soon as it came again.

    After SIGTERM, ``SAVE_SECONDS`` more if ``_LONGER`` came before it, until ``_USUAL`` comes.

    Raises:
        EOFError: the other end is closed.
    """
    first = 0
    end = float("inf")
    saves = False
    while True:
        left = max(0.0, end - time.monotonic()) if first else None
        ready, _, _ = select.select([numbers], [], [], left)
        if not ready:
            return signal.Signals(first)
        received = numbers.recv(1)
        if not received:
            raise EOFError
        # The thread of the guarded process reads the signals that the watchdog sends back.
        if echo:
            numbers.send(received)
        number = received[0]
        if number in SIGNALS and not first:
            first = number
            saving = SAVE_SECONDS if saves and number == signal.SIGTERM else 0.0
            end = time.monotonic() + saving + grace
        elif number in (_LONGER, _USUAL):
            saves = number == _LONGER
            if first and not saves:
                end = min(end, time.monotonic() + grace)
        elif number == first and not echo:
            return signal.Signals(first)


def _message(number: signal.Signals, consequence: str) -> str:
    return f"ended by {number.name}; {consequence}"
