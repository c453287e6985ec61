"""Checkpoints as folders of safetensors: where every tensor lies, and blocks of it in bounded memory.

Contract: a folder holds ``model.safetensors``, or shards named by ``model.safetensors.index.json``, or any set of
``*.safetensors``. Tensors are float32, bfloat16 or float16. A file whose size is not what its header says is
refused. Reads are positioned (``preadv``) into buffers that the caller reuses: memory mapping is no faster and makes
the resident set look like the data set.
"""

import hashlib
import json
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch

from magcli.errors import DataError

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor on disk: ``offset`` is its first byte in ``file``."""

    name: str
    file: Path
    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)


Checkpoint = Mapping[str, Stored]
"""The tensors of one folder by name, names in sorted order."""


def open_checkpoint(folder: Path) -> Checkpoint:
    """Find every tensor of a checkpoint without reading any; a tied ``lm_head.weight`` is left out.

    Raises DataError for a missing folder or shard, a damaged or truncated file, no tensor at all, a tensor stored
    twice, and tensors that are not float32, bfloat16 or float16 (quantised or integer).
    """
    found: dict[str, Stored] = {}
    for file in _shards(folder):
        for stored in read_header(file):
            if stored.name in found:
                raise DataError(
                    f"{file}: tensor {stored.name} is also in {found[stored.name].file.name}; keep one copy"
                )
            found[stored.name] = stored
    if _is_tied(folder):
        found.pop("lm_head.weight", None)
    if not found:
        raise DataError(f"{folder}: its safetensors files hold no tensors; save this checkpoint again")
    return dict(sorted(found.items()))


def check_same(checkpoints: Sequence[Checkpoint]) -> None:
    """Raise DataError, naming folder and tensor, unless all hold the same names and shapes as the last one."""
    last = checkpoints[-1]
    for other in checkpoints[:-1]:
        if missing := last.keys() - other.keys():
            raise DataError(f"{_folder(other)}: tensor {min(missing)} is missing, but {_folder(last)} has it")
        if extra := other.keys() - last.keys():
            raise DataError(f"{_folder(other)}: tensor {min(extra)} is not in {_folder(last)}")
        for name, stored in other.items():
            if stored.shape != last[name].shape:
                shapes = f"{list(stored.shape)}, but {list(last[name].shape)} in {last[name].file}"
                raise DataError(f"{stored.file}: tensor {name} has shape {shapes}")


def read_header(file: Path) -> list[Stored]:
    """Parse the safetensors header of ``file`` and check it against the file's size."""
    return _read_header(file)[0]


def metadata(file: Path) -> dict[str, str]:
    """The free texts in the header of ``file``, which is checked as ``read_header`` does."""
    return _read_header(file)[1]


def identity(checkpoint: Checkpoint) -> str:
    """A digest that changes with any file of a checkpoint, made without reading weights.

    Of each file: device, inode, size, time of last change, and the digest of its header.
    """
    digest = hashlib.sha256()
    for file in sorted({stored.file for stored in checkpoint.values()}):
        with file.open("rb") as stream:
            status = os.fstat(stream.fileno())
            told = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            digest.update(repr(told).encode() + stream.read(struct.unpack("<Q", stream.read(8))[0]))
    return digest.hexdigest()


def _read_header(file: Path) -> tuple[list[Stored], dict[str, str]]:
    try:
        with file.open("rb") as stream:
            total = os.fstat(stream.fileno()).st_size
            length = struct.unpack("<Q", stream.read(8))[0]
            if length > total - 8:
                raise DataError(f"{file}: truncated inside its header; save or copy this checkpoint again")
            header: dict[str, Any] = json.loads(stream.read(length))
            told: dict[str, str] = header.pop("__metadata__", None) or {}
            tensors = [_stored(file, 8 + length, name, entry) for name, entry in header.items()]
    except FileNotFoundError:
        raise DataError(f"{file}: no such file; the checkpoint is incomplete") from None
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{file}: not a safetensors file ({type(error).__name__}: {error})") from None
    end = max((t.offset + t.size * t.dtype.itemsize for t in tensors), default=8 + length)
    if total != end:
        what = "truncated" if total < end else "longer than its header says"
        raise DataError(f"{file}: {what}: {total} bytes, {end} expected; save or copy this checkpoint again")
    return tensors, told


def read_into(stored: Stored, start: int, buffer: memoryview) -> None:
    """Fill ``buffer`` with the tensor's bytes from element ``start`` on."""
    position = stored.offset + start * stored.dtype.itemsize
    descriptor = os.open(stored.file, os.O_RDONLY)
    try:
        while buffer:
            got = os.preadv(descriptor, [buffer], position)
            if got == 0:
                raise DataError(f"{stored.file}: ends inside tensor {stored.name}; it was cut while being read")
            buffer, position = buffer[got:], position + got
    finally:
        os.close(descriptor)


def read_tensor(stored: Stored) -> torch.Tensor:
    """The whole tensor as stored."""
    tensor = torch.empty(stored.shape, dtype=stored.dtype)
    read_into(stored, 0, _bytes(tensor.view(-1)))
    return tensor


def read_rows(stack: Sequence[Stored], start: int, count: int, buffer: torch.Tensor) -> torch.Tensor:
    """Elements ``start`` to ``start + count`` of the same tensor in T checkpoints, as (T, count).

    ``buffer`` is uint8 (T, at least 4 * count) and is overwritten; the result shares its memory and has the stored
    dtype. Where the checkpoints differ in dtype, the result is float32 (exact) in memory of its own.
    """
    rows = [_row(buffer[t], stored.dtype, count) for t, stored in enumerate(stack)]
    for stored, row in zip(stack, rows, strict=True):
        read_into(stored, start, _bytes(row))
    dtypes = {stored.dtype for stored in stack}
    if len(dtypes) > 1:
        return torch.stack([row.float() for row in rows])
    dtype = dtypes.pop()
    return buffer[:, : count * dtype.itemsize].view(dtype)


def _row(buffer: torch.Tensor, dtype: torch.dtype, count: int) -> torch.Tensor:
    return buffer[: count * dtype.itemsize].view(dtype)


def _bytes(flat: torch.Tensor) -> memoryview:
    return flat.view(torch.uint8).numpy().data


def _stored(file: Path, data: int, name: str, entry: Mapping[str, Any]) -> Stored:
    if entry["dtype"] not in DTYPES:
        raise DataError(f"{file}: tensor {name} is {entry['dtype']}; only {', '.join(DTYPES)} weights have a landscape")
    start, end = entry["data_offsets"]
    stored = Stored(name, file, data + start, DTYPES[entry["dtype"]], tuple(entry["shape"]))
    if start < 0 or end - start != stored.size * stored.dtype.itemsize:
        raise DataError(f"{file}: tensor {name} of shape {entry['shape']} does not fill its {end - start} bytes")
    return stored


def _shards(folder: Path) -> list[Path]:
    if (folder / INDEX).exists():
        weight_map = _read_object(folder / INDEX).get("weight_map")
        if not isinstance(weight_map, dict):
            raise DataError(f"{folder / INDEX}: not an index of shards (no weight_map)")
        return [folder / name for name in sorted(set(weight_map.values()))]
    if (folder / "model.safetensors").exists():
        return [folder / "model.safetensors"]
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise DataError(f"{folder}: no *.safetensors here; a checkpoint is a folder that save_pretrained wrote")
    return files


def _is_tied(folder: Path) -> bool:
    config = folder / "config.json"
    return config.exists() and _read_object(config).get("tie_word_embeddings") is True


def _read_object(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text())
    except ValueError as error:
        raise DataError(f"{file}: not JSON ({error}); save or copy this checkpoint again") from None
    if not isinstance(found, dict):
        raise DataError(f"{file}: a JSON object is expected; save or copy this checkpoint again")
    return found


def _folder(checkpoint: Checkpoint) -> Path:
    return next(iter(checkpoint.values())).file.parent
