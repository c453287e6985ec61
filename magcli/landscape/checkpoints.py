"""Checkpoints as folders of safetensors, read side by side in bounded memory.

A folder holds ``model.safetensors``, or shards listed in ``model.safetensors.index.json``, or any set of
``*.safetensors``. Tensors are float32, bfloat16 or float16.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import torch

from magcli.errors import DataError
from magcli.model.weights.graft import has_own_head
from magcli.model.weights.sums import SUMS, check_weights
from magcli.model.weights.tensors import (
    INDEX,
    SINGLE,
    Stored,
    check_floats,
    fill,
    opened,
    raw_header,
    read_into,
    read_object,
    tensors_in,
    weight_files,
)

PIECE = 1 << 21
"""Elements read at a time from all checkpoints together: few system calls, and it fits the last-level cache."""
MIN_PIECE = 1 << 13
"""Minimum number of elements read at a time from one checkpoint."""
Checkpoint = Mapping[str, Stored]
"""The tensors of one folder by name, names in sorted order."""


def open_checkpoint(folder: Path) -> Checkpoint:
    """List the tensors of a checkpoint without reading them; a head that is tied to the embeddings is omitted.

    Raises:
        DataError: a missing folder or shard, a damaged or truncated file, no tensors, a duplicate tensor, or a dtype
            other than float32, bfloat16 and float16 (quantised or integer).
    """
    tensors = tensors_in(_files(folder))
    if _is_tied(folder) and not has_own_head(tensors):
        # It would count twice in every sum over the weights.
        tensors.pop("lm_head.weight", None)
    if not tensors:
        raise DataError(f"{folder}: the safetensors files contain no tensors; save this checkpoint again")
    check_floats(tensors.values())
    return dict(sorted(tensors.items()))


def check_same(checkpoints: Sequence[Checkpoint]) -> None:
    """Raise DataError, naming folder and tensor, unless all have the same tensor names and shapes as the last one."""
    last = checkpoints[-1]
    for other in checkpoints[:-1]:
        # The smallest name of each set, so that the message does not depend on the order of a set.
        missing = last.keys() - other.keys()
        if missing:
            raise DataError(f"{_folder(other)}: tensor {min(missing)} is missing, but present in {_folder(last)}")
        extra = other.keys() - last.keys()
        if extra:
            raise DataError(f"{_folder(other)}: tensor {min(extra)} is not in {_folder(last)}")
        for name, stored in other.items():
            expected = last[name]
            if stored.shape != expected.shape:
                shapes = f"{list(stored.shape)}, but {list(expected.shape)} in {expected.file}"
                raise DataError(f"{stored.file}: tensor {name} has shape {shapes}")


def verify(checkpoints: Iterable[Checkpoint]) -> None:
    """Check the files of checkpoints against the checksums beside them, before their weights are read.

    Raises:
        DataError: a file does not match; the message names it.
    """
    check_weights(map(_folder, checkpoints))


def have_sums(checkpoints: Iterable[Checkpoint]) -> bool:
    """Whether ``verify`` reads the files, as some have checksums beside them."""
    return any((_folder(checkpoint) / SUMS).is_file() for checkpoint in checkpoints)


def identity(checkpoint: Checkpoint) -> str:
    """A digest of a checkpoint's files without reading weights: device, inode, size, mtime and header of each."""
    digest = hashlib.sha256()
    for file in sorted({stored.file for stored in checkpoint.values()}):
        status = file.stat()
        parts = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        digest.update(repr(parts).encode() + raw_header(file))
    return digest.hexdigest()


def read_tensor(stored: Stored) -> torch.Tensor:
    """The whole tensor as stored."""
    tensor = torch.empty(stored.shape, dtype=stored.dtype)
    read_into(stored, 0, _bytes(tensor.view(-1)))
    return tensor


def piece_buffer(count: int) -> torch.Tensor:
    """A uint8 buffer for pieces of ``count`` checkpoints, to be reused: fresh pages cost more than reading."""
    elements = max(PIECE // count, MIN_PIECE)
    return torch.empty(4 * count * elements, dtype=torch.uint8)


def pieces(stack: Sequence[Stored], start: int, count: int, buffer: torch.Tensor) -> Iterator[torch.Tensor]:
    """Elements ``start`` to ``start + count`` of the same tensor in T checkpoints, in pieces (T, n) that fit the cache.

    A piece is contiguous, has the stored dtype and is a view of ``buffer``, which the next piece overwrites. If the
    checkpoints differ in dtype, it is a new float32 tensor (exact).
    """
    kinds = [stored.dtype for stored in stack]
    width = len(buffer) // (4 * len(stack))  # elements of the largest dtype, of 4 bytes, for each checkpoint
    widest = max(kind.itemsize for kind in kinds)  # in bytes
    memory = _bytes(buffer)
    end = start + count
    with opened(stack) as files:
        for first in range(start, end, width):
            length = min(width, end - first)
            row_bytes = length * widest  # a row of a smaller dtype fills only its beginning
            for row, (file, stored) in enumerate(zip(files, stack, strict=True)):
                itemsize = stored.dtype.itemsize
                begin = row * row_bytes
                target = memory[begin : begin + length * itemsize]
                fill(file, stored, first * itemsize, target)
            rows = buffer[: len(stack) * row_bytes].view(len(stack), -1)  # (T, bytes)
            yield _as_one(rows, kinds, length)


def _as_one(rows: torch.Tensor, kinds: Sequence[torch.dtype], length: int) -> torch.Tensor:
    """Rows of bytes as a tensor of one dtype."""
    if len(set(kinds)) == 1:
        return rows.view(kinds[0])
    values = []
    for row, kind in zip(rows, kinds, strict=True):
        used = row[: length * kind.itemsize]
        values.append(used.view(kind).float())
    return torch.stack(values)


def _bytes(flat: torch.Tensor) -> memoryview:
    return flat.view(torch.uint8).numpy().data


def _files(folder: Path) -> list[Path]:
    if (folder / INDEX).exists() or (folder / SINGLE).exists():
        return weight_files(folder)
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise DataError(f"{folder}: no *.safetensors here; a checkpoint is a folder written by save_pretrained")
    return files


def _is_tied(folder: Path) -> bool:
    config = folder / "config.json"
    return config.exists() and read_object(config).get("tie_word_embeddings") is True


def _folder(checkpoint: Checkpoint) -> Path:
    return next(iter(checkpoint.values())).file.parent
