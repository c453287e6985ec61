"""The line to vLLM's engine process: questions with a deadline, and an eye on whether it lives.

An engine that dies is noticed within a second, one that is stuck after the deadline. Either is told once, to all.
"""

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from signal import Signals
from typing import TypeVar

from magcli.errors import EnvironmentFault, MagError, first_line
from magcli.generate.vllm_start import VllmProcess

T = TypeVar("T")

WATCH_SECONDS = 0.25
"""How often to look whether the engine process is alive."""

HEARTBEAT_SECONDS = 10.0
"""How often to ask the engine for an answer, which it gives between two steps."""

SHUTDOWN_SECONDS = 2.0
"""What an engine gets to end by itself: it has nothing to save."""


class Link:
    """A running engine, in the event loop in which it is first used.

    Args:
        engine: what ``vllm_start.start`` gives; ended by ``close``.
        deadline: seconds that the engine may leave a question without an answer.
        tell: called once, with the error, when nothing more can be had from the engine.
    """

    def __init__(self, engine: VllmProcess, *, deadline: float, tell: Callable[[MagError], None]) -> None:
        self.llm, self._process, self._sockets = engine
        self._deadline, self._tell = deadline, tell
        self._watcher: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[object] | None = None
        self.failure: MagError | None = None

    async def open(self) -> None:
        """Begin to watch the engine; once it has answered, requests reach it without waiting for anything.

        Raises:
            MagError: the engine has been closed.
            EnvironmentFault: it died or gives no answer.
        """
        self.check()
        if self._opening is None:
            self._opening = asyncio.create_task(self.answer("what it can do", self.llm.get_supported_tasks()))
            self._watcher = asyncio.create_task(self._watch())
        await asyncio.shield(self._opening)

    def check(self) -> None:
        """Raise what ended the engine, if anything has."""
        if isinstance(self.failure, EnvironmentFault):
            raise EnvironmentFault(str(self.failure)) from self.failure
        if self.failure is not None:
            raise MagError(f"the engine has stopped: {self.failure}") from self.failure

    async def answer(self, awaited: str, question: Awaitable[T]) -> T:
        """What the engine answers, within the deadline; an engine that does not has stopped.

        Raises:
            MagError: the engine has been closed.
            EnvironmentFault: it died, gave no answer or an error.
        """
        task, ends = asyncio.ensure_future(question), time.monotonic() + self._deadline
        try:
            while not task.done() and self._lives() and (left := ends - time.monotonic()) > 0:
                await asyncio.wait([task], timeout=min(WATCH_SECONDS, left))
            if not task.done() or task.exception() is not None:
                reason = first_line(task.exception()) if task.done() else f"silence for {self._deadline:g} s"
                self.fail(self.death() if self.llm.errored else self.fault(f"was asked for {awaited}: {reason}"))
                self.check()
            return task.result()
        finally:
            task.cancel()

    def _lives(self) -> bool:
        if self.failure is None and self.llm.errored:
            self.fail(self.death())
        return self.failure is None

    async def _watch(self) -> None:
        heard = time.monotonic()
        while self._lives():
            await asyncio.sleep(WATCH_SECONDS)
            if time.monotonic() - heard > HEARTBEAT_SECONDS:
                with suppress(MagError):
                    await self.answer("a sign of life", self.llm.get_weight_version())
                heard = time.monotonic()

    def fail(self, error: MagError) -> None:
        """Nothing more can be had from the engine; the first such error counts."""
        if self.failure is None:
            self.failure = error
            self._tell(error)

    def fault(self, what: str) -> EnvironmentFault:
        """An error that names the process."""
        return EnvironmentFault(f"the vLLM engine process (pid {self._process.pid}) {what}")

    def death(self) -> EnvironmentFault:
        """The error that says how the process ended."""
        self._process.join(WATCH_SECONDS)
        code = self._process.exitcode
        how = "nobody knows how" if code is None else f"exit code {code}" if code >= 0 else Signals(-code).name
        return self.fault(f"died ({how}); is there memory enough? its last words, if any, stand above")

    async def close(self) -> None:
        """End the process, by force when it takes too long."""
        self.fail(MagError("the engine has been closed"))
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
        await asyncio.to_thread(self.llm.shutdown, SHUTDOWN_SECONDS)
        await asyncio.to_thread(self._process.join, SHUTDOWN_SECONDS)
        shutil.rmtree(self._sockets, ignore_errors=True)
