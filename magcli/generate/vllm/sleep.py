"""vLLM gives the memory of the trainer's GPU back while the trainer works: its sleep mode, level 1, for CUDA only.

Asleep it keeps its weights in host memory and nothing of its cache. Running sequences are kept: vLLM preempts them when
it falls asleep, and computes their cache again, with the newest weights, from the tokens that they have.

It wakes in two steps, because the trainer's process may still hold memory: first the weights, which an update needs,
then the cache. With the second vLLM continues by itself. This has never run on a GPU: on a CPU vLLM does all of it but
free memory.
"""

from collections.abc import Awaitable
from typing import Any, Protocol

import torch

LEVEL = 1
"""Weights to host memory; level 2 would discard them, and a LoRA run never sends those of its base again."""


class Sleeper(Protocol):
    """What is used of vLLM's ``AsyncLLM``."""

    def sleep(self, level: int = 1, mode: Any = "abort") -> Awaitable[Any]: ...
    def wake_up(self, tags: list[str] | None = None) -> Awaitable[Any]: ...


async def fall_asleep(engine: Sleeper) -> None:
    """Stop between two steps, keep the running sequences, and free the memory."""
    await engine.sleep(level=LEVEL, mode="keep")


async def wake_for_weights(engine: Sleeper) -> None:
    """Bring the weights back, so that they can be replaced; sequences still stand still."""
    free_cached_memory()
    await engine.wake_up(tags=["weights"])


async def wake_to_sample(engine: Sleeper) -> None:
    """Bring the cache back and continue with the sequences."""
    free_cached_memory()
    await engine.wake_up(tags=["kv_cache"])


def free_cached_memory() -> None:
    """Give the memory that PyTorch keeps for later back to the GPU; the engine is another process."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
