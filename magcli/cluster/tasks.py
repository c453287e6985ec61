"""Tasks of an event loop that end together."""

import asyncio
from collections.abc import Collection, Coroutine, Iterable
from typing import Any


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
