"""Integers of 128 bits, such as polars' Int128, which Arrow's format has and pyarrow refuses together with their table.

The schema of a table is a FlatBuffer. In it, such a type is replaced in place by ``fixed_size_binary[16]``, which is
stored alike; the 16 bytes are then read as ``decimal256(39, 0)``.
"""

import base64
import mmap
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from magcli.data.rebuild import is_listlike, rebuilt, validity
from magcli.errors import DataError

REFUSED = "Integers with more than 64 bits"
"""How pyarrow's message starts."""
WIDE = pa.decimal256(39, 0)
BYTES = pa.binary(16)
INT, FIXED_SIZE_BINARY = 2, 15
"""Numbers of types in Arrow's Schema.fbs; the slots of its tables follow."""
MESSAGE_HEADER, FOOTER_SCHEMA, SCHEMA_FIELDS = 2, 1, 1
FIELD_TYPE_NUMBER, FIELD_TYPE, FIELD_CHILDREN = 2, 3, 5
INT_BITS, INT_IS_SIGNED = 0, 1
MAX_SCHEMA = 1 << 26
MAX_LEVELS = 64
PARQUET_SCHEMA = b"ARROW:schema"

Widths = dict[tuple[int, ...], bool]
"""Where integers of 128 bits are, by the numbers of the column and of the children in it; whether they have a sign."""


class Readable(Protocol):
    """What a stream is read from."""

    def read(self, size: int = -1) -> bytes: ...


class Rejoined:
    """A stream whose start was read already."""

    closed = False

    def __init__(self, start: bytes, rest: Readable) -> None:
        self.start, self.rest = start, rest

    def read(self, size: int = -1) -> bytes:
        """Read exactly ``size`` bytes, fewer only at the end."""
        if size < 0:
            start, self.start = self.start, b""
            return start + self.rest.read()
        start, self.start = self.start[:size], self.start[size:]
        missing = size - len(start)
        return start + self.rest.read(missing) if missing else start


def of_stream(stream: Readable) -> tuple[Rejoined, Widths]:
    """A stream of Arrow with its schema readable, and where integers of 128 bits are."""
    # A mark, and the length of the first message, which is the schema.
    start = stream.read(8)
    length = struct.unpack("<i", start[4:])[0] if len(start) == 8 else 0
    has_schema = 0 < length <= MAX_SCHEMA
    head = bytearray(stream.read(length)) if has_schema else bytearray()
    widths = _patched(head, MESSAGE_HEADER)
    return Rejoined(start + bytes(head), stream), widths


def of_file(path: Path) -> tuple[pa.BufferReader, Widths]:
    """A random-access file of Arrow, or Parquet file, with its schema readable, and where such integers are."""
    with open(path, "rb") as file:
        # Private pages of the file: what is replaced is not written to it.
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    widths = _patched_parquet(data) if data[:4] == b"PAR1" else _patched_footer(data)
    return pa.BufferReader(pa.py_buffer(data)), widths


def _patched_footer(data: mmap.mmap) -> Widths:
    """The footer has a schema of its own; after it come its length in four bytes, and ARROW1."""
    end = len(data) - 10
    size = struct.unpack("<i", data[end : end + 4])[0]
    if not 0 < size <= min(end, MAX_SCHEMA):
        return {}
    footer = bytearray(data[end - size : end])
    widths = _patched(footer, FOOTER_SCHEMA)
    data[end - size : end] = bytes(footer)
    return widths


def _patched_parquet(data: mmap.mmap) -> Widths:
    """The schema of Arrow is base64 in the metadata of the footer: its key, 0x18, its length, its text."""
    key = data.rfind(PARQUET_SCHEMA)
    if key < 0:
        return {}
    at = key + len(PARQUET_SCHEMA) + 1
    # The length is a varint: 7 bits a byte, the lowest first; the top bit says that another byte follows.
    length = 0
    for shift in range(0, 35, 7):
        byte = data[at]
        at += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    try:
        schema = bytearray(base64.b64decode(data[at : at + length], validate=True))
    except ValueError:
        return {}
    message = schema[8:]  # after a mark and the length
    widths = _patched(message, MESSAGE_HEADER)
    # Only a text of the same length can be replaced.
    text = base64.b64encode(schema[:8] + message)
    if len(text) != length:
        return {}
    data[at : at + length] = text
    return widths


# ---- FlatBuffers ----


def _patched(data: bytearray, schema_slot: int) -> Widths:
    """Replace the integers of 128 bits in the schema of a message or footer; a damaged one is left to pyarrow."""
    # The width of such an integer, as a schema has it; almost every schema ends here.
    if struct.pack("<i", 128) not in data:
        return {}
    widths: Widths = {}
    try:
        root = struct.unpack_from("<I", data, 0)[0]
        schema = _table(data, root, schema_slot)
        for path, field in _fields(data, schema, SCHEMA_FIELDS, ()):
            _replace(data, path, field, widths)
    except (struct.error, IndexError):
        return {}
    return widths


def _replace(data: bytearray, path: tuple[int, ...], field: int, widths: Widths) -> None:
    """Make a field of integers of 128 bits one of ``fixed_size_binary[16]``; both types have their width in slot 0."""
    number = _slot(data, field, FIELD_TYPE_NUMBER)
    kind = _table(data, field, FIELD_TYPE)
    if not number or not kind or data[number] != INT:
        return
    bits = _slot(data, kind, INT_BITS)
    if not bits or struct.unpack_from("<i", data, bits)[0] != 128:
        return
    sign = _slot(data, kind, INT_IS_SIGNED)
    widths[path] = bool(sign and data[sign])
    data[number] = FIXED_SIZE_BINARY
    struct.pack_into("<i", data, bits, 16)


def _fields(data: bytearray, table: int, slot: int, path: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], int]]:
    """The fields in a vector of a table, and those nested in them, with their paths."""
    vector = _table(data, table, slot) if table else 0
    if not vector or len(path) >= MAX_LEVELS:
        return
    # A vector begins with its length; its elements are distances to the tables. A damaged length may be any number.
    count = struct.unpack_from("<I", data, vector)[0]
    for number in range(min(count, len(data) // 4)):
        at = vector + 4 + 4 * number
        field = at + struct.unpack_from("<I", data, at)[0]
        yield (*path, number), field
        yield from _fields(data, field, FIELD_CHILDREN, (*path, number))


def _slot(data: bytearray, table: int, slot: int) -> int:
    """Where a table has the value of a slot; 0 if it has none."""
    # A table begins with the distance back to its vtable: sizes of vtable and table, then an offset for each slot.
    vtable = table - struct.unpack_from("<i", data, table)[0]
    entry = 4 + 2 * slot
    if entry >= struct.unpack_from("<H", data, vtable)[0]:
        return 0
    offset: int = struct.unpack_from("<H", data, vtable + entry)[0]
    return table + offset if offset else 0


def _table(data: bytearray, table: int, slot: int) -> int:
    """Where the table or vector is to which a slot leads; 0 if there is none."""
    at = _slot(data, table, slot)
    return at + int(struct.unpack_from("<I", data, at)[0]) if at else 0


# ---- values ----


def widened_schema(schema: pa.Schema, widths: Widths) -> pa.Schema:
    """The schema with the type of integers of 128 bits.

    Raises:
        DataError: some are within a type other than lists, structs and maps.
    """
    fields = list(schema)
    for path in widths:
        field = fields[path[0]]
        try:
            fields[path[0]] = field.with_type(_widened_type(field.type, path[1:]))
        except TypeError as error:
            problem = f"column {field.name} has integers of 128 bits within {error}, which cannot be read"
            raise DataError(f"{problem}; cast it to text or leave it out with the tool that wrote it") from None
    return pa.schema(fields, schema.metadata)


def _widened_type(kind: pa.DataType, path: tuple[int, ...]) -> pa.DataType:
    """The type with integers of 128 bits at the end of a path; raises TypeError for a kind of nesting not read."""
    if not path:
        if kind != BYTES:
            raise TypeError(str(kind))
        return WIDE
    if is_listlike(kind):
        return pa.list_(_widened_type(kind.value_type, path[1:]))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_widened_type(kind.value_type, path[1:]), kind.list_size)
    if pa.types.is_struct(kind):
        number, *inner = path
        parts = list(kind)
        part = parts[number]
        parts[number] = part.with_type(_widened_type(part.type, tuple(inner)))
        return pa.struct(parts)
    raise TypeError(str(kind))


def widened(batch: pa.RecordBatch, schema: pa.Schema, widths: Widths) -> pa.RecordBatch:
    """The rows with their integers of 128 bits, in the schema of ``widened_schema``."""
    columns = list(batch.columns)
    # A column may have integers of both kinds in it: those with a sign are widened first, then the others.
    for signed in (True, False):
        part = partial(_decimals, signed=signed)
        for path, has_sign in widths.items():
            if has_sign is signed:
                number, *inner = path
                kind = _widened_type(columns[number].type, tuple(inner))
                columns[number] = rebuilt(columns[number], kind, part)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _decimals(array: pa.Array, kind: pa.DataType, *, signed: bool) -> pa.Array:
    """Integers of 128 bits as decimals of 256: the 16 bytes of each, the lowest first, and 16 that repeat its sign."""
    if kind != WIDE:
        return array.cast(kind)
    # Words of 64 bits: two of each integer, four of each decimal.
    words: Any = np.frombuffer(array.buffers()[1], "<i8").reshape(-1, 2)
    words = words[array.offset : array.offset + len(array)]
    wide = np.zeros((len(array), 4), "<i8")
    wide[:, :2] = words
    if signed:
        # An arithmetic shift leaves 0 or -1, the sign.
        wide[:, 2:] = words[:, 1:] >> 63
    buffers = [validity(array), pa.py_buffer(wide.tobytes())]
    return pa.Array.from_buffers(WIDE, len(array), buffers)
