"""A deadline for programs that come with a model, such as its chat template: they run in this process, unproved."""

import ctypes
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

LOOK = 0.25
"""Seconds between two looks at what is under way."""


class _Overdue(BaseException):
    """Raised from outside in a thread whose work is overdue. No ``Exception``, for the work may catch those."""


class _Work:
    """Work under way in the thread that makes this."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.clock = _cpu_clock(self.thread)
        self.seen: float | None = None
        """The thread's CPU seconds at the first look."""
        self.stopped = threading.Lock()
        """Free once the exception is on its way."""
        self.stopped.acquire()


class Deadline:
    """Ends work that takes more than ``seconds`` of its thread's CPU time, in any thread, at its next Python bytecode.

    A thread of its own looks at what is under way, so that work that ends in time costs almost nothing. Whoever takes
    the work out of ``_under_way`` decides: the thread that does it when it ends, or the watchdog when it is overdue.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._under_way: dict[_Work, bool] = {}
        self._watchdog = threading.Thread()

    def within(self, work: Callable[[], T]) -> T:
        """The result of ``work``.

        Raises:
            TimeoutError: it was not done in time.
        """
        if not self._watchdog.is_alive():  # it was never started, or not in this fork
            self._watchdog = threading.Thread(target=self._watch, name="magcli-deadline", daemon=True)
            self._watchdog.start()
        this = _Work()
        try:
            self._under_way[this] = True
            try:
                return work()
            finally:
                if not self._taken(this):
                    this.stopped.acquire()
                    _raise_in(this.thread, None)
                    raise _Overdue
        except _Overdue:
            raise TimeoutError(f"not done in {self.seconds:g} s of CPU time") from None

    def _watch(self) -> None:
        while True:
            time.sleep(LOOK)
            for work in list(self._under_way):
                with suppress(OSError):  # its thread has ended
                    if self._overdue(work) and self._taken(work):
                        _raise_in(work.thread, _Overdue)
                        work.stopped.release()

    def _taken(self, work: _Work) -> bool:
        """Whether this call took the work out, and no other."""
        return self._under_way.pop(work, False)

    def _overdue(self, work: _Work) -> bool:
        now = time.clock_gettime(work.clock)
        work.seen = now if work.seen is None else work.seen
        return now - work.seen > self.seconds


def _cpu_clock(thread: int) -> int:
    """The clock of a living thread's CPU time; where the system has none, that of wall time."""
    find = getattr(time, "pthread_getcpuclockid", None)
    return find(thread) if find else time.CLOCK_MONOTONIC


def _raise_in(thread: int, kind: type[BaseException] | None) -> None:
    """Raise an exception in a thread at its next bytecode, or none where it has not been raised yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), kind and ctypes.py_object(kind))
