"""A bound on the time from a signal to the end of the process, wherever the process is. Light to import.

Python runs signal handlers in the main thread, between two bytecodes: not while that thread is inside a backward pass,
a compiled loop or a library that loads. The interpreter's own handler in C writes each signal's number to a socket at
once, though. A thread that hears of it ends the process when the orderly end has not come within ``GRACE``. Where a
call into C keeps the interpreter's lock, so that no thread runs, a small process kills this one a little later.
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

GRACE = 0.7
"""Seconds for the orderly end: what is under way is cancelled, threads are joined, child processes closed."""
MORE = 0.4
"""Seconds that the thread has beyond them."""

ENDING = (signal.SIGINT, signal.SIGTERM)
Handler = Callable[[int, FrameType | None], Any] | int | None
_FLAGS = 8 + 128
"""Where in Linux's ``struct sigaction`` the flags stand: after the handler and the mask."""
_SA_RESETHAND = 1 << 31


def handle_once(number: signal.Signals, handler: Handler) -> Handler:
    """Handle a signal by ``handler``, as ``signal.signal`` does, but on Linux once: the kernel ends us by the next."""
    earlier = signal.signal(number, handler)
    if sys.platform == "linux":
        sigaction, action = _sigaction(), ctypes.create_string_buffer(256)
        sigaction(int(number), None, action)
        ctypes.c_uint.from_buffer(action, _FLAGS).value |= _SA_RESETHAND
        sigaction(int(number), action, None)
    return earlier


@cache
def _sigaction() -> Callable[..., int]:
    return ctypes.CDLL(None).sigaction


class Ending:
    """How a signal ends this process: in order, or else after ``GRACE``; a line on stderr tells of it once.

    Made once, in the main thread, before other threads and other exit functions.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._untold = threading.Lock()
        self._code: int | None = None
        self._socket, theirs = socket.socketpair()
        self._process = os.fork()
        if self._process == 0:
            _keep_watch(theirs, console)
        theirs.close()
        self._socket.setblocking(False)
        signal.set_wakeup_fd(self._socket.fileno(), warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=self._disown)
        atexit.register(self._leave)
        threading.Thread(target=self._watch, name="magcli-ending", daemon=True).start()

    def in_order(self, number: signal.Signals) -> NoReturn:
        """End the process, after its exit functions, now that everything in it has ended by itself.

        What comes after those is left out: threads in compiled code may crash an interpreter that is taken down.
        """
        self._code = 128 + number
        if self._untold.acquire(blocking=False):
            self._console.error(_told(number), code=self._code)
        sys.exit(self._code)

    def _disown(self) -> None:
        """In a fork, whose signals are its own."""
        signal.set_wakeup_fd(-1)
        atexit.unregister(self._leave)

    def _leave(self) -> None:
        """The last of the exit functions."""
        signal.set_wakeup_fd(-1)
        with suppress(OSError):  # the other process was killed
            self._socket.shutdown(socket.SHUT_WR)
            os.waitpid(self._process, 0)
        if self._code is not None:
            for stream in filter(None, (sys.stdout, sys.stderr)):
                with suppress(OSError, ValueError):
                    stream.flush()
            os._exit(self._code)

    def _watch(self) -> None:
        with suppress(EOFError):
            number = _awaited(self._socket, GRACE)
            if self._untold.acquire(blocking=False):
                self._console.last_error(_told(number), code=128 + number)
            os._exit(128 + number)


def _keep_watch(numbers: socket.socket, console: Console) -> NoReturn:
    """Hand the numbers of signals back, and kill the parent where that has not ended it; end with the parent."""
    try:
        parent = os.getppid()
        os.setsid()
        for ending in ENDING:
            signal.signal(ending, signal.SIG_IGN)
        kept = os.dup2(numbers.fileno(), 3)
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1):
            os.dup2(nothing, standard)
        os.closerange(kept + 1, 1 << 16)
        number = _awaited(socket.socket(fileno=kept), GRACE + MORE, back=True)
        console.last_error(_told(number), code=128 + number)
        os.kill(parent, number)
        time.sleep(MORE / 2)
        os.kill(parent, signal.SIGKILL)
    finally:
        os._exit(0)


def _awaited(numbers: socket.socket, patience: float, *, back: bool = False) -> signal.Signals:
    """The first signal that is to end the process, ``patience`` seconds after it came, or when it came again.

    Raises:
        EOFError: the other end is closed.
    """
    first, end = 0, float("inf")
    while select.select([numbers], [], [], None if not first else max(0.0, end - time.monotonic()))[0]:
        number = numbers.recv(1)
        if not number:
            raise EOFError
        if back:
            numbers.send(number)
        if number[0] in ENDING and not first:
            first, end = number[0], time.monotonic() + patience
        elif number[0] == first and not back:
            break
    return signal.Signals(first)


def _told(number: signal.Signals) -> str:
    return f"ended by {number.name}; the same command goes on from what is finished"
