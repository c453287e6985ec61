"""A CPU-time limit for untrusted code that runs in this process, such as a model's chat template."""

import ctypes
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

POLL_SECONDS = 0.25
"""How often the watchdog checks running work."""


class _Overdue(BaseException):
    """Raised asynchronously in a thread whose work is overdue; not an ``Exception``, which the work may catch."""


class _Work:
    """Work running in the thread that creates this object."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.clock = _cpu_clock(self.thread)
        self.started: float | None = None
        """The thread's CPU seconds at the first check."""
        self.stopped = threading.Lock()
        """Released once the exception has been raised."""
        self.stopped.acquire()


class Deadline:
    """Interrupts work that takes more than ``seconds`` of its thread's CPU time, at its next Python bytecode.

    A watchdog thread checks running work, so work that ends in time costs almost nothing. Whichever removes the work
    from ``_running`` first decides: its own thread when it ends, or the watchdog when it is overdue.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._running: dict[_Work, bool] = {}
        self._watchdog = threading.Thread()

    def run(self, work: Callable[[], T]) -> T:
        """The result of ``work``.

        Raises:
            TimeoutError: it did not finish in time.
        """
        if not self._watchdog.is_alive():  # never started, or not in this fork
            self._watchdog = threading.Thread(target=self._watch, name="magcli-deadline", daemon=True)
            self._watchdog.start()
        this = _Work()
        try:
            self._running[this] = True
            try:
                return work()
            finally:
                if not self._remove(this):
                    this.stopped.acquire()
                    _raise_in(this.thread, None)
                    raise _Overdue
        except _Overdue:
            raise TimeoutError(f"not finished in {self.seconds:g} s of CPU time") from None

    def _watch(self) -> None:
        while True:
            time.sleep(POLL_SECONDS)
            for work in list(self._running):
                with suppress(OSError):  # its thread has ended
                    if self._overdue(work) and self._remove(work):
                        _raise_in(work.thread, _Overdue)
                        work.stopped.release()

    def _remove(self, work: _Work) -> bool:
        """Whether this call, and no other, removed the work."""
        return self._running.pop(work, False)

    def _overdue(self, work: _Work) -> bool:
        now = time.clock_gettime(work.clock)
        work.started = now if work.started is None else work.started
        return now - work.started > self.seconds


def _cpu_clock(thread: int) -> int:
    """The CPU-time clock of a running thread, or the wall clock on systems without one."""
    find = getattr(time, "pthread_getcpuclockid", None)
    return find(thread) if find else time.CLOCK_MONOTONIC


def _raise_in(thread: int, kind: type[BaseException] | None) -> None:
    """Raise an exception in a thread at its next bytecode; None cancels one that has not been raised yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), kind and ctypes.py_object(kind))
