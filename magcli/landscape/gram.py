"""Sums over the weights of T checkpoints, block by block: what the principal plane needs to know of them.

Contract: bounded memory (``block`` elements a checkpoint and thread), and results that do not depend on the number of
threads, because blocks are added in order. Differences to one of the checkpoints are exact in float32 for bfloat16
values within 16 binades, so nothing is lost by subtracting first; a Gram of raw float32 weights would be useless
at any drift below 1 %.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from magcli.errors import DataError
from magcli.landscape.checkpoints import Checkpoint, read_rows, read_tensor
from magcli.model.tensors import Stored

Array = npt.NDArray[np.float64]
Result = TypeVar("Result")
PIECE = 1 << 18
"""Elements of the T x n block that is converted, subtracted and multiplied while it is in the cache."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Additive over blocks: the Gram of differences to one checkpoint, |w_0|^2, and how many weights changed.

    ``gram`` is (T, T), or its last rows alone where the others are known.
    """

    gram: Array
    start: float
    changed: int

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(self.gram + other.gram, self.start + other.start, self.changed + other.changed)


def read_sums(
    checkpoints: Sequence[Checkpoint], block: int, precision: torch.dtype, *, known: int = 0
) -> dict[str, Sums]:
    """One read: the sums of every tensor, of differences formed and multiplied in ``precision``.

    The Gram's first ``known`` rows are left out, and the differences are then to the last of those checkpoints.

    Raises:
        DataError: a tensor holds NaN or infinity; the message names checkpoint and tensor.
    """
    count, reference = len(checkpoints), known - 1
    sums = {name: Sums(np.zeros((count - known, count)), 0.0, 0) for name in checkpoints[-1]}

    def work(name: str, start: int, length: int, buffer: torch.Tensor) -> tuple[str, Sums]:
        rows = read_rows([c[name] for c in checkpoints], start, length, buffer)
        return name, block_sums(rows, precision, known=known, reference=reference)

    for name, part in over_blocks(work, checkpoints, block):
        sums[name] = sums[name] + part
    for name, part in sums.items():
        check_finite(part.gram, [c[name] for c in checkpoints])
    return sums


def block_sums(
    rows: torch.Tensor, precision: torch.dtype = torch.float32, *, known: int = 0, reference: int = -1
) -> Sums:
    """Sums over ``rows`` (T, n), the same n weights in T checkpoints; see ``read_sums``."""
    gram, start, changed = torch.zeros(len(rows) - known, len(rows), dtype=torch.float64), 0.0, 0
    for piece, moved in differences(rows, precision, reference):
        first = piece[0].to(precision)
        start += float(torch.dot(first, first))
        changed += differing(piece[0], piece[-1])
        gram += moved[known:] @ moved.T
    return Sums(gram.numpy(), start, changed)


def differing(one: torch.Tensor, other: torch.Tensor) -> int:
    """How many of two rows' values have other bits."""
    kind = torch.int16 if one.dtype.itemsize == 2 else torch.int32
    return int(np.count_nonzero(one.view(kind).numpy() != other.view(kind).numpy()))


def total(sums: dict[str, Sums]) -> Sums:
    """The whole model's sums."""
    first, *rest = sums.values()
    return sum(rest, first)


def check_finite(found: Array, stack: Sequence[Stored]) -> None:
    """Raise DataError, naming the checkpoint, where sums over one tensor's ``stack`` of weights are not finite."""
    if np.isfinite(found).all():
        return
    for stored in stack:
        if not read_tensor(stored).isfinite().all():
            raise DataError(f"{stored.file}: tensor {stored.name} holds NaN or infinity; leave this checkpoint out")
    raise DataError(f"{stack[-1].file}: tensor {stack[-1].name} differs by more than float32 can square")


def differences(
    rows: torch.Tensor, precision: torch.dtype, reference: int = -1
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Cut ``rows`` (T, n) into cache-sized pieces; yield each as stored, and x_t - x_reference in reused memory."""
    width = max(PIECE // len(rows), 1024)
    scratch = torch.empty(len(rows), min(width, rows.shape[1]), dtype=precision)
    for start in range(0, rows.shape[1], width):
        piece = rows[:, start : start + width]
        moved = scratch[:, : piece.shape[1]].copy_(piece)
        yield piece, moved.sub_(moved[reference].clone())


def over_blocks(
    work: Callable[[str, int, int, torch.Tensor], Result], checkpoints: Sequence[Checkpoint], block: int
) -> Iterator[Result]:
    """Call ``work(name, start, length, buffer)`` on every block from threads; results in order of the blocks."""
    local = threading.local()

    def task(job: tuple[str, int, int]) -> Result:
        if not hasattr(local, "buffer"):
            local.buffer = torch.empty(len(checkpoints), 4 * block, dtype=torch.uint8)
        return work(*job, local.buffer)

    workers, waiting = torch.get_num_threads(), deque[Future[Result]]()
    with _single_threaded_torch(), ThreadPoolExecutor(workers) as pool:
        for job in _blocks(checkpoints[-1].values(), block):
            waiting.append(pool.submit(task, job))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


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
