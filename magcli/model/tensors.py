"""Weights on disk: where every tensor of a safetensors folder lies, and its values in blocks of bounded size.

The format is eight bytes with the length of a JSON header, the header (type, shape and byte range of each tensor), and
the tensors one after the other.
"""

import json
import shutil
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch

from magcli.errors import DataError, EnvironmentFault

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
FLOATS = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
BLOCK = 1 << 23
"""Values that are in memory at once."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor on disk: ``kind`` is the format's name of its type, ``begin`` and ``end`` are bytes of ``file``."""

    name: str
    file: Path
    kind: str
    shape: tuple[int, ...]
    begin: int
    end: int


def stored_tensors(folder: Path) -> dict[str, Stored]:
    """Every tensor of a model folder, sharded or not; the shards are those that the index names.

    Raises:
        EnvironmentFault: there are no safetensors weights.
        DataError: a file is missing, cut or not of this format, or a tensor is there twice.
    """
    found: dict[str, Stored] = {}
    for file in weight_files(folder):
        for stored in read_header(file):
            if stored.name in found:
                raise DataError(f"{file}: tensor {stored.name} is in {found[stored.name].file.name} too; keep one")
            found[stored.name] = stored
    return found


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that make up a model.

    Raises:
        EnvironmentFault: there are none.
        DataError: the index is damaged.
    """
    if (folder / INDEX).is_file():
        try:
            named = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values()
        except (ValueError, KeyError, AttributeError):
            raise DataError(f"{folder / INDEX} is damaged; copy the model again") from None
        return [folder / name for name in sorted(set(named))]
    if not (folder / WHOLE).is_file():
        raise EnvironmentFault(f"model {folder}: the folder has no safetensors weights ({WHOLE} or {INDEX})")
    return [folder / WHOLE]


def read_header(file: Path) -> list[Stored]:
    """The tensors of one file, in the order of their bytes.

    Raises:
        DataError: the file is missing, cut or not of this format.
    """
    try:
        size = file.stat().st_size
        start, header = _header(file, size)
        found = sorted((_stored(file, start, *item) for item in header.items()), key=lambda stored: stored.begin)
    except FileNotFoundError:
        raise DataError(f"{file} is missing; copy the model again") from None
    except (struct.error, ValueError, KeyError, TypeError, AttributeError):
        raise DataError(f"{file} is not a safetensors file; copy the model again") from None
    end = start
    for stored in found:
        if stored.begin != end:
            raise DataError(f"{file}: tensor {stored.name} does not begin where the one before it ends")
        end = stored.end
    if end != size:
        raise DataError(f"{file} is damaged: {size:,} bytes where its header tells of {end:,}; copy the model again")
    return found


def _header(file: Path, size: int) -> tuple[int, Mapping[str, Any]]:
    """Where the first tensor begins, and what the header says of each."""
    with file.open("rb") as stream:
        length = struct.unpack("<Q", stream.read(8))[0]
        if length > size - 8:
            raise DataError(f"{file} is cut inside its header; copy the model again")
        header: dict[str, Any] = json.loads(stream.read(length))
    header.pop("__metadata__", None)
    return 8 + length, header


def _stored(file: Path, start: int, name: str, entry: Mapping[str, Any]) -> Stored:
    begin, end = entry["data_offsets"]
    shape = tuple(int(length) for length in entry["shape"])
    if entry["dtype"] in FLOATS and end - begin != prod(shape) * FLOATS[entry["dtype"]].itemsize:
        raise DataError(f"{file}: tensor {name} has {end - begin:,} bytes, which is not what its shape needs")
    return Stored(name, file, entry["dtype"], shape, start + begin, start + end)


def blocks(stored: Stored) -> Iterator[torch.Tensor]:
    """The values of a float tensor from its first to its last, flat, at most ``BLOCK`` at a time.

    Raises:
        DataError: the tensor is quantised or not of floats, or its file was cut meanwhile.
    """
    if stored.kind not in FLOATS:
        raise DataError(f"{stored.file}: tensor {stored.name} is {stored.kind}; only {', '.join(FLOATS)} weights fit")
    dtype = FLOATS[stored.kind]
    for part in raw_blocks(stored, BLOCK * dtype.itemsize):
        yield torch.frombuffer(part, dtype=dtype)


def raw_blocks(stored: Stored, size: int) -> Iterator[bytearray]:
    """The bytes of a tensor, at most ``size`` at a time.

    Raises:
        DataError: the file was cut meanwhile.
    """
    with stored.file.open("rb") as stream:
        stream.seek(stored.begin)
        for left in range(stored.end - stored.begin, 0, -size):
            part = bytearray(min(size, left))
            if stream.readinto(part) != len(part):
                raise DataError(f"{stored.file} ends inside tensor {stored.name}; it was cut while being read")
            yield part


def copy_weights(source: Path, target: Path, kind: str | None) -> None:
    """Copy a model's weights into another folder: bit by bit, or all floats as ``kind`` (``BF16``, ``F32``).

    ``target`` has the settings already; the number format is written into its config.json and index.

    Raises:
        EnvironmentFault: there are no weights.
        DataError: a file is damaged, or a value is not finite in that number format.
    """
    for file in weight_files(source):
        if kind is None:
            shutil.copyfile(file, target / file.name)
        else:
            _rewrite(file, target / file.name, kind)
    if kind is not None:
        _change(target / "config.json", ("dtype",), str(FLOATS[kind]).removeprefix("torch."))
        if (target / INDEX).is_file():
            size = sum(stored.end - stored.begin for stored in stored_tensors(target).values())
            _change(target / INDEX, ("metadata", "total_size"), size)


def _rewrite(file: Path, target: Path, kind: str) -> None:
    """One file with its floats in another number format."""
    tensors = read_header(file)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for stored in tensors:
        kept = kind if stored.kind in FLOATS else stored.kind
        size = prod(stored.shape) * FLOATS[kind].itemsize if stored.kind in FLOATS else stored.end - stored.begin
        header[stored.name] = {"dtype": kept, "shape": stored.shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with target.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for stored in tensors:
            out.writelines(_cast(stored, FLOATS[kind]) if stored.kind in FLOATS else raw_blocks(stored, BLOCK))


def _cast(stored: Stored, dtype: torch.dtype) -> Iterator[memoryview]:
    for values in blocks(stored):
        cast = values.to(dtype)
        if not torch.isfinite(cast).all():
            raise DataError(f"{stored.file}: tensor {stored.name} has a value that is not finite in {dtype}")
        yield cast.view(torch.uint8).numpy().data


def _change(file: Path, keys: tuple[str, ...], value: Any) -> None:
    """Set one value in a JSON file."""
    told = json.loads(file.read_text(encoding="utf-8"))
    place = told
    for key in keys[:-1]:
        place = place.setdefault(key, {})
    place[keys[-1]] = value
    file.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
