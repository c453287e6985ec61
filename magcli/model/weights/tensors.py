"""Safetensors files: the location of every tensor in a model folder, and reading and writing in bounded memory.

The format is eight bytes with the length of a JSON header, the header (type, shape and byte range of each tensor), and
the tensors one after the other. Reads go into buffers with ``preadv``: memory mapping is no faster and inflates the
resident set. Everything that reads raises DataError, naming the file, if one is missing, truncated or damaged.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch

from magcli.data.inside import named_in
from magcli.errors import DataError, EnvironmentFault
from magcli.model.settings import with_dtype, with_values

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
FLOATS = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
BLOCK = 1 << 23
"""Maximum number of values in memory at once."""
LENGTH_BYTES = 8
"""Bytes of the length of the header, a little-endian integer, with which a file begins."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor on disk: ``kind`` is the format's name of its type, ``begin`` and ``end`` are byte offsets."""

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
        """The torch type of a float tensor; see ``check_floats``."""
        return FLOATS[self.kind]


def check_floats(tensors: Iterable[Stored]) -> None:
    """Raise DataError, naming file and tensor, if one is quantised or not a float tensor."""
    for stored in tensors:
        if stored.kind not in FLOATS:
            usable = ", ".join(FLOATS)
            raise DataError(f"{stored.file}: tensor {stored.name} is {stored.kind}; only {usable} weights can be used")


def stored_tensors(folder: Path) -> dict[str, Stored]:
    """Every tensor of a model folder, from a single file or the shards listed in the index."""
    return tensors_in(weight_files(folder))


def tensors_in(files: Iterable[Path]) -> dict[str, Stored]:
    """Every tensor of some files by its name; DataError if two have the same."""
    tensors: dict[str, Stored] = {}
    for file in files:
        for stored in read_header(file):
            if stored.name in tensors:
                other = tensors[stored.name].file.name
                raise DataError(f"{file}: tensor {stored.name} is also in {other}; remove one copy")
            tensors[stored.name] = stored
    return tensors


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that make up a model; EnvironmentFault if there are none."""
    single, index = folder / SINGLE, folder / INDEX
    if index.is_file():
        file_of = read_object(index).get("weight_map")
        if not isinstance(file_of, dict):
            raise DataError(f"{index}: not an index of shards (no weight_map); save or copy the model again")
        return sorted({named_in(folder, name, index) for name in file_of.values()})
    if not single.is_file():
        raise EnvironmentFault(f"model {folder}: the folder has no safetensors weights ({SINGLE} or {INDEX})")
    return [single]


def read_object(file: Path) -> dict[str, Any]:
    """A JSON file of a model, such as its config.json."""
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file}: not JSON ({error}); save or copy the model again") from None
    if not isinstance(content, dict):
        raise DataError(f"{file}: expected a JSON object; save or copy the model again")
    return content


def read_header(file: Path) -> list[Stored]:
    """The tensors of one file, in the order of their bytes."""
    return _parsed(file)[0]


def metadata(file: Path) -> dict[str, str]:
    """The metadata in the header of ``file``."""
    return _parsed(file)[1]


def raw_header(file: Path) -> bytes:
    """The raw JSON of the header of ``file``."""
    try:
        with file.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            length = int.from_bytes(stream.read(LENGTH_BYTES), "little")
            # Checked before reading: a wrong length may name terabytes.
            if size < LENGTH_BYTES or length > size - LENGTH_BYTES:
                raise DataError(
                    f"{file}: not a safetensors file, or truncated inside its header; save or copy it again"
                )
            return stream.read(length)
    except FileNotFoundError:
        raise DataError(f"{file}: no such file; the model is incomplete") from None


def _parsed(file: Path) -> tuple[list[Stored], dict[str, str]]:
    """The tensors of one file, in the order of their bytes, and its metadata."""
    text = raw_header(file)
    start = LENGTH_BYTES + len(text)  # of the first tensor
    try:
        header: dict[str, Any] = json.loads(text)
        texts: dict[str, str] = header.pop("__metadata__", None) or {}
        tensors = [_stored(file, start, name, entry) for name, entry in header.items()]
    # RecursionError: JSON that is nested too deep.
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{file}: not a safetensors file ({type(error).__name__}: {error})") from None
    # JSON has them in any order.
    tensors.sort(key=lambda stored: (stored.begin, stored.end))
    _check_extent(file, start, tensors)
    return tensors, texts


def _check_extent(file: Path, start: int, tensors: Iterable[Stored]) -> None:
    """Reject gaps and overlaps between tensors, and a file size that does not match the header."""
    end = start
    for stored in tensors:
        # Gaps and overlaps are forbidden by the format, and would hide data.
        if stored.begin != end:
            raise DataError(f"{file}: tensor {stored.name} does not start where the previous one ends")
        end = stored.end
    size = file.stat().st_size
    if size != end:
        what = "truncated" if size < end else "longer than its header says"
        raise DataError(f"{file}: {what}: {size:,} bytes, expected {end:,}; save or copy it again")


def _stored(file: Path, start: int, name: str, entry: Mapping[str, Any]) -> Stored:
    """A tensor by its entry in the header of a file, whose offsets count from the byte ``start``."""
    begin, end = entry["data_offsets"]
    shape = tuple(map(int, entry["shape"]))
    stored = Stored(name, file, entry["dtype"], shape, start + begin, start + end)
    # Other types are only copied: their sizes may be those of a quantisation.
    if stored.kind not in FLOATS:
        return stored
    num_bytes = end - begin
    if num_bytes != stored.size * stored.dtype.itemsize:
        raise DataError(f"{file}: tensor {name} of shape {list(shape)} does not match its {num_bytes:,} bytes")
    return stored


def read_into(stored: Stored, start: int, buffer: memoryview) -> None:
    """Fill ``buffer`` with the tensor's bytes from its byte ``start`` on."""
    with opened([stored]) as (descriptor,):
        fill(descriptor, stored, start, buffer)


@contextlib.contextmanager
def opened(stack: Sequence[Stored]) -> Iterator[list[int]]:
    """Open file descriptors of the tensors, for ``fill``."""
    with contextlib.ExitStack() as closing:
        descriptors = []
        for stored in stack:
            descriptors.append(os.open(stored.file, os.O_RDONLY))
            closing.callback(os.close, descriptors[-1])
        yield descriptors


def fill(descriptor: int, stored: Stored, start: int, buffer: memoryview) -> None:
    """``read_into`` from an open file."""
    position = stored.begin + start
    while buffer:
        # May fill only a part of the buffer.
        got = os.preadv(descriptor, [buffer], position)
        if got == 0:
            raise DataError(f"{stored.file}: ends inside tensor {stored.name}; it was truncated while being read")
        buffer, position = buffer[got:], position + got


def read_values(stored: Stored, target: torch.Tensor, first: int) -> None:
    """Fill a contiguous tensor, of any type and device, with the values of a float tensor from number ``first`` on."""
    check_floats([stored])
    itemsize = stored.dtype.itemsize
    # A view: the target is written in place.
    flat = target.view(-1)
    with opened([stored]) as (descriptor,):
        for start in range(0, len(flat), BLOCK):
            # A block at a time, converted on its way to the target.
            part = flat[start : start + BLOCK]
            buffer = bytearray(part.numel() * itemsize)
            fill(descriptor, stored, (first + start) * itemsize, memoryview(buffer))
            part.copy_(torch.frombuffer(buffer, dtype=stored.dtype))


def blocks(stored: Stored) -> Iterator[torch.Tensor]:
    """The values of a float tensor in order, flat, at most ``BLOCK`` at a time."""
    check_floats([stored])
    for part in raw_blocks(stored, BLOCK * stored.dtype.itemsize):
        yield torch.frombuffer(part, dtype=stored.dtype)


def raw_blocks(stored: Stored, size: int) -> Iterator[bytearray]:
    """The bytes of a tensor, at most ``size`` at a time."""
    total = stored.end - stored.begin
    for start in range(0, total, size):
        part = bytearray(min(size, total - start))
        read_into(stored, start, memoryview(part))
        yield part


class Entry(NamedTuple):
    """A tensor's entry in a header; ``size`` in bytes."""

    name: str
    kind: str
    shape: tuple[int, ...]
    size: int


def packed_header(entries: Iterable[Entry], metadata: Mapping[str, str]) -> tuple[bytes, dict[str, int]]:
    """The first bytes of a file with these tensors and metadata, and the offset of each tensor in the file."""
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    offsets: dict[str, int] = {}  # counted from the end of the header
    end = 0
    for name, kind, shape, size in entries:
        start = end
        end = start + size
        # Offsets count from the end of the header, whose length is not known yet.
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
        offsets[name] = start
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the tensors start at a multiple of 8 bytes
    packed = len(text).to_bytes(LENGTH_BYTES, "little") + text
    in_file = {name: len(packed) + offset for name, offset in offsets.items()}
    return packed, in_file


def write_file(file: Path, tensors: Sequence[tuple[Entry, Iterable[memoryview | bytearray]]]) -> None:
    """Write a file of weights: the entry of each tensor and its bytes, in parts that are made as they are written."""
    header, _ = packed_header([entry for entry, _ in tensors], {"format": "pt"})
    with file.open("wb") as out:
        out.write(header)
        for _, parts in tensors:
            out.writelines(parts)


def has_weights(folder: Path) -> bool:
    """Whether a model folder has weights: one file of them, or an index of several."""
    return (folder / SINGLE).is_file() or (folder / INDEX).is_file()


def copy_weights(source: Path, target: Path, kind: str | None) -> None:
    """Copy a model's weights into another folder: byte by byte, or with all floats converted to ``kind``.

    ``target`` has the other files already; its config.json is updated for ``kind`` (``BF16``, ``F32``), and so is the
    index.
    """
    files = weight_files(source)
    # Names and files stay, so the index does, too.
    copy_index(source, target)
    # The same bytes, without reading what they mean.
    if kind is None:
        for file in files:
            shutil.copyfile(file, target / file.name)
        return

    for file in files:
        _rewrite(file, target / file.name, kind)
    config = target / "config.json"
    dtype = str(FLOATS[kind]).removeprefix("torch.")
    config.write_bytes(with_dtype(config.read_bytes(), dtype))
    index = target / INDEX
    if index.is_file():
        content = index.read_bytes()
        tensors = tensors_in([target / file.name for file in files])
        # The index has the size of all tensors, which has changed with the type.
        size = sum(stored.end - stored.begin for stored in tensors.values())
        metadata = json.loads(content).get("metadata") or {}
        index.write_bytes(with_values(content, {"metadata": metadata | {"total_size": size}}))


def copy_index(source: Path, target: Path) -> None:
    """Copy the index of a model's shards, if it has one."""
    if (source / INDEX).is_file():
        shutil.copyfile(source / INDEX, target / INDEX)


def _rewrite(file: Path, target: Path, kind: str) -> None:
    """Convert the floats of one file."""
    tensors: list[tuple[Entry, Iterator[memoryview | bytearray]]] = []
    for stored in read_header(file):
        parts = _cast(stored, kind) if stored.kind in FLOATS else raw_blocks(stored, BLOCK)
        tensors.append((_entry(stored, kind), parts))
    write_file(target, tensors)


def _entry(stored: Stored, kind: str) -> Entry:
    """The converted tensor's entry: floats as ``kind``, others unchanged."""
    if stored.kind in FLOATS:
        return Entry(stored.name, kind, stored.shape, stored.size * FLOATS[kind].itemsize)
    return Entry(stored.name, stored.kind, stored.shape, stored.end - stored.begin)


def _cast(stored: Stored, kind: str) -> Iterator[memoryview | bytearray]:
    for values in blocks(stored):
        yield finite_cast(values, stored, kind).view(torch.uint8).numpy().data


def finite_cast(values: torch.Tensor, stored: Stored, kind: str) -> torch.Tensor:
    """Values of a tensor in another float format; DataError if one is not finite in it."""
    cast = values.to(FLOATS[kind])
    if not torch.isfinite(cast).all():
        raise DataError(f"{stored.file}: tensor {stored.name} has a value that is not finite in {kind}")
    return cast
