"""Sums over the weights of T checkpoints, block by block: what the principal plane needs to know of them.

Contract: bounded memory (``PIECE`` values a thread), and results that do not depend on the number of threads, because
blocks are added in order. Differences to one of the checkpoints are exact in float32 for bfloat16 values within 16
binades, so nothing is lost by subtracting first; a Gram of raw float32 weights would be useless at any drift below 1 %.
"""

import functools
import operator
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import torch

from magcli.errors import DataError
from magcli.landscape.checkpoints import Checkpoint, pieces, read_tensor, room
from magcli.landscape.kernels import Bits, differing, gram, square
from magcli.landscape.principal import Array
from magcli.model.compute import one_thread
from magcli.model.tensors import Stored

Result = TypeVar("Result")
Part = TypeVar("Part", bound="Additive")
BLOCK = 1 << 20
"""Elements of a tensor that one thread reads in all checkpoints before it takes the next."""


class Additive(Protocol):
    """What is summed over blocks."""

    def __add__(self, other: Self) -> Self:
        """The sum over both."""


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
    checkpoints: Sequence[Checkpoint], block: int, precision: np.dtype[Any], *, known: int = 0
) -> dict[str, Sums]:
    """One read: the sums of every tensor, of differences formed and multiplied in ``precision``.

    The Gram's first ``known`` rows are left out, and the differences are then to the last of those checkpoints.

    Raises:
        DataError: a tensor holds NaN or infinity; the message names checkpoint and tensor.
    """
    count = len(checkpoints)
    sums = {name: Sums(np.zeros((count - known, count)), 0.0, 0) for name in checkpoints[-1]}

    def work(name: str, start: int, length: int, buffer: torch.Tensor) -> tuple[str, Sums]:
        read = pieces([c[name] for c in checkpoints], start, length, buffer)
        return name, added(piece_sums(rows, precision, known) for rows in read)

    for name, part in over_blocks(work, checkpoints, block):
        sums[name] = sums[name] + part
    for name, part in sums.items():
        check_finite(part.gram, [c[name] for c in checkpoints])
    return sums


def piece_sums(rows: torch.Tensor, precision: np.dtype[Any], known: int = 0) -> Sums:
    """Sums over ``rows`` (T, n), contiguous, the same n weights in T checkpoints."""
    bits = bits_of(rows)
    return Sums(gram(bits, precision, known), square(bits[0]), differing(bits[0], bits[-1]))


def bits_of(rows: torch.Tensor) -> Bits:
    """The values of ``rows`` (T, n) as the kernels take them: bfloat16 as it is, others as float32, which is exact."""
    if rows.dtype == torch.bfloat16:
        return rows.view(torch.int16).numpy().view(np.uint16)
    return rows.float().view(torch.int32).numpy().view(np.uint32)


def added(parts: Iterable[Part]) -> Part:
    """The sum of at least one part, such as the tensors of a model or the pieces of a tensor."""
    return functools.reduce(operator.add, parts)


def check_finite(found: Array, stack: Sequence[Stored]) -> None:
    """Raise DataError, naming the checkpoint, where sums over one tensor's ``stack`` of weights are not finite."""
    if np.isfinite(found).all():
        return
    for stored in stack:
        if not read_tensor(stored).isfinite().all():
            raise DataError(f"{stored.file}: tensor {stored.name} holds NaN or infinity; leave this checkpoint out")
    raise DataError(f"{stack[-1].file}: tensor {stack[-1].name} differs by more than float32 can square")


def over_blocks(
    work: Callable[[str, int, int, torch.Tensor], Result], checkpoints: Sequence[Checkpoint], block: int
) -> Iterator[Result]:
    """Call ``work(name, start, length, buffer)`` on every block from threads; results in order of the blocks."""
    local = threading.local()

    def task(job: tuple[str, int, int]) -> Result:
        if not hasattr(local, "buffer"):
            local.buffer = room(len(checkpoints))
        return work(*job, local.buffer)

    workers, waiting = torch.get_num_threads(), deque[Future[Result]]()
    with one_thread(), ThreadPoolExecutor(workers) as pool:
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
