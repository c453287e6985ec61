"""Work in units: computed concurrently, journaled when finished, returned in the order of the input.

Stages are synchronous; ``AsyncRunner`` runs their coroutines, with an orderly shutdown on SIGINT.
"""

import asyncio
import hashlib
import queue
import selectors
import signal
import socket
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Iterable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any, TypeVar

import pyarrow as pa

from magcli.data.source import Rows
from magcli.data.table import rechunk
from magcli.data.values import to_rows
from magcli.run.job import Job
from magcli.run.shutdown import handle_once
from magcli.run.tasks import end_all
from magcli.run.types import Result

T = TypeVar("T")
Compute = Callable[[pa.RecordBatch], Awaitable[Result]]
"""Computes one unit: some rows of the input -> rows of the output."""
Unit = tuple[str, pa.RecordBatch]
"""Some rows of the input, and their key."""

REPORT_EVERY = 5.0
"""Seconds after which the progress shows anew what goes on while no unit is finished."""


def resumable(
    rows: Rows,
    job: Job,
    compute: Compute,
    close: Callable[[], Awaitable[None]],
    *,
    size: int,
    window: int,
    unit: str,
    completions: Callable[[], int] | None = None,
) -> Rows:
    """Compute units of ``size`` rows, ``window`` at a time, except those in the job's journal.

    ``close`` is awaited at the end, also after an error. ``unit`` is what progress counts: problems, completions.
    Progress is shown also while no unit is finished; ``completions`` is the number of completions finished so far, of
    unfinished problems too.
    """
    with job.console.progress(job.total, unit, job.stage) as bar:

        def note() -> str:
            return f"{completions():,} completions finished" if completions else ""

        async def finish(key: str, part: pa.RecordBatch) -> Result:
            if job.journal is not None and key in job.journal:
                bar.advance(part.num_rows, reused=True)
                return with_rows(job.journal.get(key), part)
            result = await compute(part)
            if job.journal is not None and not result.retry:
                job.journal.put(key, result)
            bar.advance(part.num_rows, note=note())
            return result

        def report() -> None:
            bar.report(note())

        may_stall = job.total is None  # a pipe or a hub id
        results = in_order(keyed(rechunk(rows, size)), finish, window, may_stall=may_stall)
        for result in drain(reporting(results, REPORT_EVERY, report), close):
            for dropped in result.dropped:
                job.drops.add(dropped)
            job.tally.update(result.tally)
            yield result.rows


def with_rows(result: Result, part: pa.RecordBatch) -> Result:
    """A result of a journal, with the dropped rows, which are of the unit."""
    if not result.dropped:
        return result
    rows = to_rows(part)
    dropped = [dropped_row._replace(row=rows[dropped_row.position]) for dropped_row in result.dropped]
    return result._replace(dropped=dropped)


async def reporting(
    items: AsyncGenerator[T, None], seconds: float, report: Callable[[], None]
) -> AsyncGenerator[T, None]:
    """The items, with a report at intervals while the event loop waits for them."""
    ticking = asyncio.create_task(every(seconds, report))
    try:
        async for item in items:
            yield item
    finally:
        ticking.cancel()
        await items.aclose()


async def every(seconds: float, report: Callable[[], None]) -> None:
    """Call a function at intervals until the task is cancelled."""
    while True:
        await asyncio.sleep(seconds)
        report()


class WorkThread:
    """A thread beside the event loop for blocking work, one piece after the other.

    Work that allocates much, such as updates, should run in one thread: glibc keeps what a thread has freed in a heap
    of that thread, and PyTorch scratch memory, so that with a thread for each update a process would grow without end.

    It is a daemon thread: unlike an executor's, it does not keep a cancelled process alive.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="magcli-work", daemon=True).start()

    async def run(self, work: Callable[[], T]) -> T:
        """The result of ``work``, or its error."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            if done.cancelled():  # whoever waited has gone; the future takes no result
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]

        def work_and_settle() -> None:
            result: T | None = None
            error: BaseException | None = None
            try:
                result = work()
            except BaseException as raised:  # also an exit, which would end the thread while somebody waits
                error = raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle, result, error)

        self._work.put(work_and_settle)
        return await done

    def close(self) -> None:
        """End the thread after the work that it was given."""
        self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            del work  # with all that it refers to, while the thread waits


async def in_daemon_thread(work: Callable[[], T]) -> T:
    """Run blocking work in a ``WorkThread`` of its own."""
    thread = WorkThread()
    try:
        return await thread.run(work)
    finally:
        thread.close()


def keyed(parts: Rows) -> Iterator[Unit]:
    """Each unit with a key: a hash of its columns and values and, for equal units, a count."""
    seen: dict[str, int] = {}
    for part in parts:
        content = repr((part.schema.names, part.schema.types, to_rows(part)))
        name = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:24]
        # Equal units, such as repeated problems, have results of their own.
        seen[name] = seen.get(name, -1) + 1
        yield f"{name}-{seen[name]}", part


class ReadAhead:
    """Units that a thread reads, at most ``limit`` in advance, so that a slow input does not stop the event loop.

    The thread is a daemon: one that waits for a pipe does not keep the process from ending.
    """

    def __init__(self, units: Iterator[Unit], limit: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._arrived: deque[Unit | BaseException | None] = deque()
        self._arrival = asyncio.Event()
        self._room = threading.Semaphore(limit)
        threading.Thread(target=self._read, args=[units], name="magcli-read-ahead", daemon=True).start()

    @property
    def available(self) -> bool:
        """Whether ``take`` can be called."""
        return bool(self._arrived)

    def take(self) -> Unit | None:
        """The next unit, which is available; None at the end. Raises what reading it raised."""
        unit = self._arrived.popleft()
        self._room.release()
        if isinstance(unit, BaseException):
            raise unit
        return unit

    async def wait(self) -> None:
        """Wait until a unit is available."""
        while not self._arrived:
            self._arrival.clear()
            await self._arrival.wait()

    def _read(self, units: Iterator[Unit]) -> None:
        unit: Unit | None = None
        try:
            while True:
                self._room.acquire()
                unit = next(units, None)
                self._append(unit)
                if unit is None:
                    return
        except BaseException as error:  # raised again by ``take``
            self._append(error)

    def _append(self, unit: Unit | BaseException | None) -> None:
        self._arrived.append(unit)
        with suppress(RuntimeError):  # the event loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._arrival.set)


async def in_order(
    units: Iterator[Unit],
    finish: Callable[[str, pa.RecordBatch], Coroutine[Any, Any, T]],
    window: int,
    *,
    may_stall: bool = False,
) -> AsyncGenerator[T, None]:
    """Run ``finish`` on units, at most ``window`` at once; results are in the order of the units.

    At most four windows of results wait for an earlier one. Of simultaneous errors the first unit's is raised.
    ``may_stall``: the next unit may take long to come, as from a pipe; meanwhile the others go on.
    """
    ahead = ReadAhead(units, window) if may_stall else None
    waiting: deque[asyncio.Task[T]] = deque()  # in the order of the units, finished ones too
    running: set[asyncio.Task[T]] = set()
    more = True

    def has_room() -> bool:
        return more and len(running) < window and len(waiting) < 4 * window

    try:
        while True:
            # A finished task leaves the window, though its result may wait for that of an earlier unit.
            running = {task for task in running if not task.done()}
            while has_room():
                if ahead and not ahead.available:
                    break
                unit = ahead.take() if ahead else next(units, None)
                if unit is None:
                    more = False
                    break
                task = asyncio.create_task(finish(*unit))
                waiting.append(task)
                running.add(task)
            if waiting and waiting[0].done():
                yield waiting.popleft().result()
            elif ahead and has_room():  # the next unit has not come
                await _first_of(running, ahead.wait())
                _raise_first_error(waiting)
            # The window is full, or no unit is left.
            elif waiting:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                _raise_first_error(waiting)
            else:
                return
    finally:
        await end_all(waiting)


async def _first_of(running: Collection[asyncio.Task[T]], arrival: Coroutine[Any, Any, None]) -> None:
    """Wait until a task has ended, or for ``arrival``."""
    arriving = asyncio.create_task(arrival)
    try:
        await asyncio.wait([*running, arriving], return_when=asyncio.FIRST_COMPLETED)
    finally:
        arriving.cancel()


def _raise_first_error(tasks: Iterable[asyncio.Task[Any]]) -> None:
    for task in tasks:
        if task.done():
            task.result()


def drain(items: AsyncGenerator[T, None], close: Callable[[], Awaitable[None]]) -> Iterator[T]:
    """Iterate over an asynchronous stream synchronously; ``close`` is awaited in the same event loop at the end."""

    async def following() -> T | None:
        # The runner takes coroutines only; None is the end, as no item is None.
        return await anext(items, None)

    async def end() -> None:
        await items.aclose()
        await close()

    with AsyncRunner() as loop:
        try:
            while (item := loop.run(following())) is not None:
                yield item
        finally:
            loop.run(end())


def _check_descriptors() -> None:
    """Raise OSError if an event loop cannot have its descriptors: half a loop prints a traceback when it is deleted."""
    with selectors.DefaultSelector():
        for end in socket.socketpair():
            end.close()


class AsyncRunner:
    """Runs one coroutine after the other in one event loop, as ``asyncio.Runner`` does.

    SIGINT cancels the running coroutine; then ``run`` raises ``KeyboardInterrupt``. It is never raised inside a task,
    whose exception would be lost. A second SIGINT ends the process at once.
    """

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.task: asyncio.Task[Any] | None = None
        self.interrupted = False

    def __enter__(self) -> "AsyncRunner":
        _check_descriptors()
        self.runner.get_loop()  # fails here, before there is a coroutine to run, if no descriptor is left for it
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to completion.

        Raises:
            KeyboardInterrupt: SIGINT came meanwhile; the coroutine was cancelled.
        """
        self.interrupted = False
        # Only the main thread may set handlers of signals.
        in_main = threading.current_thread() is threading.main_thread()
        earlier = handle_once(signal.SIGINT, self._interrupt) if in_main else None
        try:
            result = self.runner.run(self._as_task(work))
        except asyncio.CancelledError:
            # Cancelled by the signal: that is reported below, after the handler is restored.
            if not self.interrupted:
                raise
        finally:
            if earlier is not None:
                signal.signal(signal.SIGINT, earlier)
        if self.interrupted:
            raise KeyboardInterrupt
        return result

    async def _as_task(self, work: Coroutine[Any, Any, T]) -> T:
        self.task = asyncio.current_task()
        return await work

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self.interrupted = True
        # A second signal ends the process; where the handler is used once, the kernel has reset it already.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        # The loop may be asleep in ``select``, which a callback from outside of it wakes.
        self.runner.get_loop().call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()
