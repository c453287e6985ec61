"""Sums over the weights of T checkpoints, block by block: what the principal plane needs to know of them.

Contract: bounded memory (some ``PIECE`` values a thread), and results that do not depend on the number of
threads, because blocks are added in order. Differences to one of the checkpoints are exact in float32 for bfloat16
values within 16 binades, so nothing is lost by subtracting first; a Gram of raw float32 weights would be useless
at any drift below 1 %.
"""

import contextlib
import functools
import operator
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from magcli.errors import DataError
from magcli.landscape.checkpoints import Checkpoint, piece_width, pieces, read_tensor, step_width
from magcli.model.tensors import Stored

Array = npt.NDArray[np.float64]
Result = TypeVar("Result")
Part = TypeVar("Part", bound="Additive")
BLOCK = 1 << 20
"""Elements of a tensor that one thread reads in all checkpoints before it takes the next."""


class Room(NamedTuple):
    """Memory of one thread: what is read of T checkpoints, uint8 (T, 4m), and their differences (T, n).

    It is kept from block to block: of memory that is given back every page costs more than the sums over it.
    """

    read: torch.Tensor
    moved: torch.Tensor


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
    checkpoints: Sequence[Checkpoint], block: int, precision: torch.dtype, *, known: int = 0
) -> dict[str, Sums]:
    """One read: the sums of every tensor, of differences formed and multiplied in ``precision``.

    The Gram's first ``known`` rows are left out, and the differences are then to the last of those checkpoints.

    Raises:
        DataError: a tensor holds NaN or infinity; the message names checkpoint and tensor.
    """
    count, reference = len(checkpoints), known - 1
    sums = {name: Sums(np.zeros((count - known, count)), 0.0, 0) for name in checkpoints[-1]}

    def work(name: str, start: int, length: int, room: Room) -> tuple[str, Sums]:
        read = pieces([c[name] for c in checkpoints], start, length, room.read)
        return name, added(piece_sums(rows, differences(rows, room.moved, reference), known) for rows in read)

    for name, part in over_blocks(work, checkpoints, block, precision):
        sums[name] = sums[name] + part
    for name, part in sums.items():
        check_finite(part.gram, [c[name] for c in checkpoints])
    return sums


def piece_sums(rows: torch.Tensor, moved: torch.Tensor, known: int = 0) -> Sums:
    """Sums over ``rows`` (T, n), the same n weights in T checkpoints, and their differences ``moved`` (T, n)."""
    gram, first = (moved[known:] @ moved.T).double().numpy(), rows[0].to(moved.dtype)
    return Sums(gram, float(first @ first), differing(rows[0], rows[-1]))


def differing(one: torch.Tensor, other: torch.Tensor) -> int:
    """How many of two rows' values have other bits."""
    kind = torch.int16 if one.dtype.itemsize == 2 else torch.int32
    return int(np.count_nonzero(one.view(kind).numpy() != other.view(kind).numpy()))


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


def differences(rows: torch.Tensor, scratch: torch.Tensor, reference: int = -1) -> torch.Tensor:
    """x_t - x_reference of ``rows`` (T, n), formed in the memory and the precision of ``scratch`` (T, at least n)."""
    moved, base = scratch[:, : rows.shape[1]], rows[reference].to(scratch.dtype)
    return torch.sub(rows if rows.dtype == moved.dtype else moved.copy_(rows), base, out=moved)


def over_blocks(
    work: Callable[[str, int, int, Room], Result],
    checkpoints: Sequence[Checkpoint],
    block: int,
    precision: torch.dtype,
) -> Iterator[Result]:
    """Call ``work(name, start, length, room)`` on every block from threads; results in order of the blocks."""
    local = threading.local()

    def task(job: tuple[str, int, int]) -> Result:
        if not hasattr(local, "room"):
            local.room = _room(len(checkpoints), precision)
        return work(*job, local.room)

    workers, waiting = torch.get_num_threads(), deque[Future[Result]]()
    with _single_threaded_torch(), ThreadPoolExecutor(workers) as pool:
        for job in _blocks(checkpoints[-1].values(), block):
            waiting.append(pool.submit(task, job))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _room(count: int, precision: torch.dtype) -> Room:
    read = torch.empty(count, 4 * piece_width(count), dtype=torch.uint8)
    return Room(read, torch.empty(count, step_width(count), dtype=precision))


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
