"""Weights on disk: where every tensor of a safetensors folder lies, and its values in blocks of bounded size.

The format is eight bytes with the length of a JSON header, the header (type, shape and byte range of each tensor), and
the tensors one after the other. Reads are positioned (``preadv``) into buffers: memory mapping is no faster and makes
the resident set look like the data set.
"""

import contextlib
import json
import os
import shutil
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

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

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def dtype(self) -> torch.dtype:
        """The type of its values; only float tensors have one here, see ``check_floats``."""
        return FLOATS[self.kind]


def check_floats(tensors: Iterable[Stored]) -> None:
    """Raise DataError, naming file and tensor, where one is quantised or not of floats."""
    for stored in tensors:
        if stored.kind not in FLOATS:
            usable = ", ".join(FLOATS)
            raise DataError(f"{stored.file}: tensor {stored.name} is {stored.kind}; only {usable} weights can be used")


def stored_tensors(folder: Path) -> dict[str, Stored]:
    """Every tensor of a model folder, sharded or not; the shards are those that the index names.

    Raises:
        EnvironmentFault: there are no safetensors weights.
        DataError: a file is missing, cut or not of this format, or a tensor is there twice.
    """
    return tensors_in(weight_files(folder))


def tensors_in(files: Iterable[Path]) -> dict[str, Stored]:
    """Every tensor of some files by its name.

    Raises:
        DataError: a file is missing, cut or not of this format, or a tensor is there twice.
    """
    found: dict[str, Stored] = {}
    for file in files:
        for stored in read_header(file):
            if stored.name in found:
                other = found[stored.name].file.name
                raise DataError(f"{file}: tensor {stored.name} is also in {other}; keep one copy")
            found[stored.name] = stored
    return found


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that make up a model.

    Raises:
        EnvironmentFault: there are none.
        DataError: the index is damaged.
    """
    if (folder / INDEX).is_file():
        named = read_object(folder / INDEX).get("weight_map")
        if not isinstance(named, dict):
            raise DataError(f"{folder / INDEX}: not an index of shards (no weight_map); save or copy the model again")
        return [folder / name for name in sorted(set(named.values()))]
    if not (folder / WHOLE).is_file():
        raise EnvironmentFault(f"model {folder}: the folder has no safetensors weights ({WHOLE} or {INDEX})")
    return [folder / WHOLE]


def read_object(file: Path) -> dict[str, Any]:
    """A JSON file of a model, such as its config.json.

    Raises:
        DataError: it is not JSON, or no object.
    """
    try:
        found = json.loads(file.read_bytes())
    except ValueError as error:
        raise DataError(f"{file}: not JSON ({error}); save or copy the model again") from None
    if not isinstance(found, dict):
        raise DataError(f"{file}: a JSON object is expected; save or copy the model again")
    return found


def read_header(file: Path) -> list[Stored]:
    """The tensors of one file, in the order of their bytes.

    Raises:
        DataError: the file is missing, cut, longer than its header says, or not of this format.
    """
    return _parsed(file)[0]


def metadata(file: Path) -> dict[str, str]:
    """The free texts in the header of ``file``, which is checked as ``read_header`` does."""
    return _parsed(file)[1]


def raw_header(file: Path) -> bytes:
    """The header's JSON as it stands in ``file``.

    Raises:
        DataError: the file is missing or cut inside its header.
    """
    try:
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            length = int.from_bytes(stream.read(8), "little")
            if size < 8 or length > size - 8:
                raise DataError(f"{file}: not a safetensors file, or cut inside its header; save or copy it again")
            return stream.read(length)
    except FileNotFoundError:
        raise DataError(f"{file}: no such file; the model is incomplete") from None


def _parsed(file: Path) -> tuple[list[Stored], dict[str, str]]:
    text = raw_header(file)
    start = 8 + len(text)
    try:
        header: dict[str, Any] = json.loads(text)
        told: dict[str, str] = header.pop("__metadata__", None) or {}
        tensors = [_stored(file, start, name, entry) for name, entry in header.items()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{file}: not a safetensors file ({type(error).__name__}: {error})") from None
    tensors.sort(key=lambda stored: (stored.begin, stored.end))
    _check_extent(file, start, tensors)
    return tensors, told


def _check_extent(file: Path, start: int, tensors: Iterable[Stored]) -> None:
    """Refuse gaps and overlaps between tensors, and a file whose size is not what its header says."""
    end, total = start, file.stat().st_size
    for stored in tensors:
        if stored.begin != end:
            raise DataError(f"{file}: tensor {stored.name} does not begin where the one before it ends")
        end = stored.end
    if total != end:
        what = "truncated" if total < end else "longer than its header says"
        raise DataError(f"{file}: {what}: {total:,} bytes, {end:,} expected; save or copy it again")


def _stored(file: Path, start: int, name: str, entry: Mapping[str, Any]) -> Stored:
    begin, end = entry["data_offsets"]
    stored = Stored(name, file, entry["dtype"], tuple(int(side) for side in entry["shape"]), start + begin, start + end)
    if stored.kind in FLOATS and end - begin != stored.size * stored.dtype.itemsize:
        raise DataError(f"{file}: tensor {name} of shape {list(stored.shape)} does not fill its {end - begin:,} bytes")
    return stored


def read_into(stored: Stored, start: int, buffer: memoryview) -> None:
    """Fill ``buffer`` with the tensor's bytes from its byte ``start`` on.

    Raises:
        DataError: the file was cut meanwhile.
    """
    with opened([stored]) as (descriptor,):
        fill(descriptor, stored, start, buffer)


@contextlib.contextmanager
def opened(stack: Sequence[Stored]) -> Iterator[list[int]]:
    """The tensors' files as open descriptors, for ``fill``."""
    with contextlib.ExitStack() as closing:
        descriptors = []
        for stored in stack:
            descriptors.append(os.open(stored.file, os.O_RDONLY))
            closing.callback(os.close, descriptors[-1])
        yield descriptors


def fill(descriptor: int, stored: Stored, start: int, buffer: memoryview) -> None:
    """``read_into`` from a file that is open."""
    position = stored.begin + start
    while buffer:
        got = os.preadv(descriptor, [buffer], position)
        if got == 0:
            raise DataError(f"{stored.file}: ends inside tensor {stored.name}; it was cut while being read")
        buffer, position = buffer[got:], position + got


def blocks(stored: Stored) -> Iterator[torch.Tensor]:
    """The values of a float tensor from its first to its last, flat, at most ``BLOCK`` at a time.

    Raises:
        DataError: the tensor is quantised or not of floats, or its file was cut meanwhile.
    """
    check_floats([stored])
    for part in raw_blocks(stored, BLOCK * stored.dtype.itemsize):
        yield torch.frombuffer(part, dtype=stored.dtype)


def raw_blocks(stored: Stored, size: int) -> Iterator[bytearray]:
    """The bytes of a tensor, at most ``size`` at a time.

    Raises:
        DataError: the file was cut meanwhile.
    """
    whole = stored.end - stored.begin
    for start in range(0, whole, size):
        part = bytearray(min(size, whole - start))
        read_into(stored, start, memoryview(part))
        yield part


class Entry(NamedTuple):
    """What a header says of a tensor; ``size`` in bytes."""

    name: str
    kind: str
    shape: tuple[int, ...]
    size: int


def packed_header(entries: Iterable[Entry], told: Mapping[str, str]) -> tuple[bytes, dict[str, int]]:
    """The beginning of a file with these tensors and free texts, and the byte of the file where each tensor begins."""
    header: dict[str, object] = {"__metadata__": dict(told)}
    places, end = {}, 0
    for name, kind, shape, size in entries:
        places[name], end = end, end + size
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [places[name], end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, {name: 8 + len(text) + place for name, place in places.items()}


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
    with target.open("wb") as out:
        out.write(packed_header([_entry(stored, kind) for stored in tensors], {"format": "pt"})[0])
        for stored in tensors:
            out.writelines(_cast(stored, FLOATS[kind]) if stored.kind in FLOATS else raw_blocks(stored, BLOCK))


def _entry(stored: Stored, kind: str) -> Entry:
    """A tensor as it is written: floats as ``kind``, others as they are."""
    if stored.kind in FLOATS:
        return Entry(stored.name, kind, stored.shape, stored.size * FLOATS[kind].itemsize)
    return Entry(stored.name, stored.kind, stored.shape, stored.end - stored.begin)


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
