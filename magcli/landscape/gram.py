"""Sums over the weights of T checkpoints, block by block: what the principal plane needs to know of them.

Contract: bounded memory (``block`` elements a checkpoint and thread), and results that do not depend on the number of
threads, because blocks are added in order. Differences to the last checkpoint are exact in float32 for bfloat16
values within 16 binades, so nothing is lost by subtracting first; a Gram of raw float32 weights would be useless
at any drift below 1 %.
"""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from magcli.errors import DataError
from magcli.landscape.checkpoints import Checkpoint, Stored, read_rows, read_tensor

Array = npt.NDArray[np.float64]
Result = TypeVar("Result")
PIECE = 1 << 18
"""Elements of the T x n block that is converted, subtracted and multiplied while it is in the cache."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Additive over blocks: the Gram (T, T) of differences to w*, |w_0|^2, and how many weights changed."""

    gram: Array
    start: float
    changed: int

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(self.gram + other.gram, self.start + other.start, self.changed + other.changed)


def read_sums(checkpoints: Sequence[Checkpoint], block: int, precision: torch.dtype) -> dict[str, Sums]:
    """The first read: sums of every tensor, of differences formed and multiplied in ``precision``."""
    count = len(checkpoints)
    sums = {name: Sums(np.zeros((count, count)), 0.0, 0) for name in checkpoints[-1]}

    def work(name: str, start: int, length: int, buffer: torch.Tensor) -> tuple[str, Sums]:
        return name, block_sums(read_rows([c[name] for c in checkpoints], start, length, buffer), precision)

    for name, part in over_blocks(work, checkpoints, block):
        sums[name] = sums[name] + part
    for name, part in sums.items():
        if not np.isfinite(part.gram).all():
            _refuse_not_finite([c[name] for c in checkpoints])
    return sums


def block_sums(rows: torch.Tensor, precision: torch.dtype = torch.float32) -> Sums:
    """Sums over ``rows`` (T, n), the same n weights in T checkpoints."""
    gram, start, changed = torch.zeros(len(rows), len(rows), dtype=torch.float64), 0.0, 0
    for first, moved in differences(rows, precision):
        start += float(torch.dot(first, first))
        changed += int(torch.count_nonzero(moved[0]))
        gram += moved @ moved.T
    return Sums(gram.numpy(), start, changed)


def total(sums: dict[str, Sums]) -> Sums:
    """The whole model's sums."""
    first, *rest = sums.values()
    return sum(rest, first)


def _refuse_not_finite(stack: Sequence[Stored]) -> None:
    for stored in stack:
        if not read_tensor(stored).isfinite().all():
            raise DataError(f"{stored.file}: tensor {stored.name} holds NaN or infinity; leave this checkpoint out")
    raise DataError(f"{stack[-1].file}: tensor {stack[-1].name} differs by more than float32 can square")


def differences(rows: torch.Tensor, precision: torch.dtype) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Cut ``rows`` (T, n) into cache-sized pieces; yield x_0 and all x_t - x_{T-1}, in reused memory."""
    width = max(PIECE // len(rows), 1024)
    scratch = torch.empty(len(rows), min(width, rows.shape[1]), dtype=precision)
    for start in range(0, rows.shape[1], width):
        piece = rows[:, start : start + width]
        moved = scratch[:, : piece.shape[1]].copy_(piece)
        first = moved[0].clone()
        yield first, moved.sub_(moved[-1].clone())


def over_blocks(
    work: Callable[[str, int, int, torch.Tensor], Result], checkpoints: Sequence[Checkpoint], block: int
) -> Iterator[Result]:
    """Call ``work(name, start, length, buffer)`` on every block from threads; results in order of the blocks."""
    local = threading.local()

    def task(job: tuple[str, int, int]) -> Result:
        if not hasattr(local, "buffer"):
            local.buffer = torch.empty(len(checkpoints), 4 * block, dtype=torch.uint8)
        return work(*job, local.buffer)

    workers = torch.get_num_threads()
    with _single_threaded_torch(), ThreadPoolExecutor(workers) as pool:
        yield from pool.map(task, _blocks(checkpoints[-1].values(), block))


def _blocks(tensors: Iterable[Stored], block: int) -> Iterator[tuple[str, int, int]]:
    for stored in tensors:
        for start in range(0, stored.size, block):
            yield stored.name, start, min(block, stored.size - start)


@contextlib.contextmanager
def _single_threaded_torch() -> Iterator[None]:
    """One thread an operation while blocks run side by side: small operations gain nothing from being split."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
