"""An event loop for synchronous code with an orderly shutdown on SIGINT."""

import asyncio
import signal
import threading
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

from magcli.run.shutdown import handle_once

T = TypeVar("T")


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
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to completion.

        Raises:
            KeyboardInterrupt: SIGINT came meanwhile; the coroutine was cancelled.
        """
        self.interrupted = False
        in_main = threading.current_thread() is threading.main_thread()
        earlier = handle_once(signal.SIGINT, self._interrupt) if in_main else None
        try:
            result = self.runner.run(self._as_task(work))
        except asyncio.CancelledError:
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
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        self.runner.get_loop().call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()
