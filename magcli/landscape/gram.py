"""Gram matrices of checkpoint differences, block by block: what the principal plane needs to know of the weights.

Memory is bounded (``PIECE`` values per thread), and results do not depend on the number of threads, because blocks are
added in order. Differences to one of the checkpoints are exact in float32 for bfloat16 values within 16 binades, so
subtracting first loses nothing; a Gram matrix of raw float32 weights would be useless at any drift below 1 %.

The Gram matrices can be cached in a file between runs: unchanged checkpoints are not read again, and a new checkpoint
adds only its own rows (T products per weight instead of T^2), for which every file is read once.
"""

import functools
import io
import operator
import threading
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import torch

from magcli.data.durable import atomic_file
from magcli.errors import DataError
from magcli.landscape.checkpoints import Checkpoint, identity, piece_buffer, pieces, read_tensor
from magcli.landscape.kernels import Array, Bits, count_changed, gram, square
from magcli.model.compute import one_thread
from magcli.model.tensors import Stored

Result = TypeVar("Result")
Part = TypeVar("Part", bound="Additive")
BLOCK = 1 << 20
"""Elements of a tensor that one thread reads from all checkpoints before it takes the next block."""


class Additive(Protocol):
    """A quantity that is summed over blocks."""

    def __add__(self, other: Self) -> Self:
        """The sum over both blocks."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Additive over blocks: the Gram matrix of differences to one checkpoint, |w_0|^2, number of changed weights.

    ``gram`` is (T, T), or only its last rows if the others are cached.
    """

    gram: Array
    start: float
    changed: int

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(self.gram + other.gram, self.start + other.start, self.changed + other.changed)


@dataclass(frozen=True, slots=True)
class CachedSums:
    """The sums of checkpoints with the identities ``keys``, of differences formed in ``precision``."""

    keys: tuple[str, ...]
    precision: np.dtype[Any]
    sums: dict[str, Sums]


def gram_sums(
    checkpoints: Sequence[Checkpoint], block: int, precision: np.dtype[Any], cache: Path | None
) -> dict[str, Sums]:
    """The sums of every tensor, of differences to the last checkpoint; read from and saved to the file ``cache``.

    Cached checkpoints are recognised by the identity of their files (device, inode, size, mtime, digest of the header).
    """
    keys = tuple(identity(checkpoint) for checkpoint in checkpoints)
    cached = load_cache(cache) if cache else None
    if cached is None or cached.keys != keys[: len(cached.keys)] or cached.precision.itemsize < precision.itemsize:
        sums = read_sums(checkpoints, block, precision)
    elif cached.keys == keys:
        return cached.sums
    else:
        precision = cached.precision
        new_rows = read_sums(checkpoints, block, precision, known=len(cached.keys))
        sums = {
            name: Sums(_extended(cached.sums[name].gram, new.gram), new.start, new.changed)
            for name, new in new_rows.items()
        }
    if cache:
        _save_cache(CachedSums(keys, precision, sums), cache)
    return sums


def read_sums(
    checkpoints: Sequence[Checkpoint], block: int, precision: np.dtype[Any], *, known: int = 0
) -> dict[str, Sums]:
    """The sums of every tensor in one pass over the files, differences formed and multiplied in ``precision``.

    The first ``known`` rows of the Gram matrix are skipped; differences are then to the last of those checkpoints.

    Raises:
        DataError: a tensor contains NaN or infinity.
    """
    count = len(checkpoints)
    sums = {name: Sums(np.zeros((count - known, count)), 0.0, 0) for name in checkpoints[-1]}

    def work(name: str, start: int, length: int, buffer: torch.Tensor) -> tuple[str, Sums]:
        read = pieces([c[name] for c in checkpoints], start, length, buffer)
        return name, total(piece_sums(rows, precision, known) for rows in read)

    for name, part in over_blocks(work, checkpoints, block):
        sums[name] = sums[name] + part
    for name, part in sums.items():
        check_finite(part.gram, [c[name] for c in checkpoints])
    return sums


def piece_sums(rows: torch.Tensor, precision: np.dtype[Any], known: int = 0) -> Sums:
    """The sums over ``rows`` (T, n), contiguous: the same n weights of T checkpoints."""
    bits = bits_of(rows)
    return Sums(gram(bits, precision, known), square(bits[0]), count_changed(bits[0], bits[-1]))


def bits_of(rows: torch.Tensor) -> Bits:
    """``rows`` (T, n) as the kernels take them: bfloat16 unchanged, others as float32, which is exact."""
    if rows.dtype == torch.bfloat16:
        return rows.view(torch.int16).numpy().view(np.uint16)
    return rows.float().view(torch.int32).numpy().view(np.uint32)


def total(parts: Iterable[Part]) -> Part:
    """The sum of at least one part."""
    return functools.reduce(operator.add, parts)


def check_finite(sums: Array, stack: Sequence[Stored]) -> None:
    """Raise DataError, naming the checkpoint, if sums over the weights of a tensor in ``stack`` are not finite."""
    if np.isfinite(sums).all():
        return
    for stored in stack:
        if not read_tensor(stored).isfinite().all():
            raise DataError(f"{stored.file}: tensor {stored.name} contains NaN or infinity; leave this checkpoint out")
    raise DataError(f"{stack[-1].file}: tensor {stack[-1].name} differs by more than float32 can square")


def over_blocks(
    work: Callable[[str, int, int, torch.Tensor], Result], checkpoints: Sequence[Checkpoint], block: int
) -> Iterator[Result]:
    """Call ``work(name, start, length, buffer)`` on every block in threads; yields results in order of the blocks."""
    local = threading.local()

    def task(job: tuple[str, int, int]) -> Result:
        if not hasattr(local, "buffer"):
            local.buffer = piece_buffer(len(checkpoints))
        return work(*job, local.buffer)

    blocks = (
        (t.name, start, min(block, t.size - start))
        for t in checkpoints[-1].values()
        for start in range(0, t.size, block)
    )
    workers, pending = torch.get_num_threads(), deque[Future[Result]]()
    with one_thread(), ThreadPoolExecutor(workers) as pool:
        for job in blocks:
            pending.append(pool.submit(task, job))
            if len(pending) > 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _extended(known: Array, new: Array) -> Array:
    """The Gram matrix (T, T) of differences to the new last checkpoint, from rows relative to an earlier one."""
    whole = np.block([[known, new[:, : len(known)].T], [new]])
    moved = whole - whole[:, -1:] - whole[-1:] + whole[-1, -1]
    moved[-1] = moved[:, -1] = 0
    return np.asarray((moved + moved.T) / 2)


def _save_cache(cached: CachedSums, file: Path) -> None:
    image, parts = io.BytesIO(), cached.sums.values()
    np.savez(
        image,
        keys=np.array(cached.keys),
        precision=np.array(str(cached.precision)),
        names=np.array(list(cached.sums)),
        grams=np.stack([part.gram for part in parts]),
        start=np.array([part.start for part in parts]),
        changed=np.array([part.changed for part in parts]),
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(file) as stream:
        stream.write(image.getvalue())


def load_cache(file: Path) -> CachedSums | None:
    """The sums in ``file``; None if it is missing or damaged, which only costs another read of the weights."""
    try:
        with np.load(io.BytesIO(file.read_bytes())) as found:
            each = zip(found["names"].tolist(), found["grams"], found["start"], found["changed"], strict=True)
            sums = {name: Sums(gram, float(start), int(changed)) for name, gram, start, changed in each}
            return CachedSums(tuple(found["keys"].tolist()), np.dtype(str(found["precision"])), sums)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None
