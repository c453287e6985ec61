"""Tasks of an event loop that end together, and work in a thread that ends with its process."""

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


async def end_all(tasks: Collection["asyncio.Future[Any]"]) -> None:
    """Cancel tasks, and wait for their ends; their errors do not matter any more."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def run_all(work: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """The results of work that runs at once; the first error ends all of it, and so does a cancellation."""
    tasks = [asyncio.create_task(part) for part in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        # ``gather`` itself leaves the others running after an error.
        await end_all(tasks)


def in_thread(work: Callable[[], T], name: str) -> Future[T]:
    """The result of work in a thread that nobody joins: it may wait for somebody who is gone."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
