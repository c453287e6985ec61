"""JSON lines, and the objects of one JSON array: read in two passes (types first, then rows). Lines are written back
byte for byte; ``.gz`` after a name packs and unpacks them.

Values of one type become that Arrow type. A column whose values do not share one (numbers of two kinds, objects with
other keys, null beside absent) keeps each value as JSON text and is marked so; it is written back as it was. How the
lines were spaced and escaped travels with the schema.

Not kept, because rows of one table share it: key orders that contradict each other between rows, keys given twice in
one object, spacing or escapes that change within the file, blank lines, CRLF, a byte-order mark, and numbers written
otherwise than Python writes them (``1.50``, ``1e5``, ``-0``). The values are kept in all of these.
"""

import contextlib
import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from magcli.data import beside
from magcli.data.jsontexts import ROW_LIMIT, Texts, texts_of
from magcli.data.jsontypes import ABSENT_KEY, TEXT_KEY, Column, order
from magcli.data.source import BadRow, Rows, Sink, Source
from magcli.data.types import exact, without_bytes
from magcli.errors import DataError

STYLE_KEY = b"magcli.jsonl"
CHUNK_ROWS = 1024
CHUNK_BYTES = 1 << 24
ID = re.compile(rb'"id"\s*:\s*("[^"\\\\]{1,200}"|\d{1,20})')


@dataclass(frozen=True, slots=True)
class Style:
    """How the lines of a file are written; ``slash``: ``/`` is escaped, ``end``: the last line ends as the others."""

    item: str = ", "
    key: str = ": "
    ascii: bool = False
    slash: bool = False
    end: bool = True

    def dumps(self, value: Any) -> str:
        """A value in this style."""
        text = json.dumps(value, ensure_ascii=self.ascii, separators=(self.item, self.key))
        return text.replace("/", "\\/") if self.slash else text


SPACINGS = ((", ", ": "), (",", ":"), (", ", ":"), (",", ": "))
STYLES = [Style(*spacing, ascii, slash) for spacing in SPACINGS for ascii in (False, True) for slash in (False, True)]


def open_file(path: Path, bad: BadRow) -> Source:
    """Read JSON lines or, of a ``.json`` file, the objects of its array; broken ones go to ``bad``.

    Raises:
        DataError: the file has no usable row, is not what its manifest says or, of an array or a packed file, is cut.
    """
    digest, note = beside.check(path)
    texts = texts_of(path)
    if note is not None and all(exact(kind) for kind in note.schema.types):
        return Source(str(path), note.schema, _rows(texts, note.schema, bad), note.chain, digest, note.rows)
    source = open_texts(texts, str(path), bad)
    source.sha256, source.chain = digest, note.chain if note else ()
    return source


def open_texts(texts: Texts, name: str, bad: BadRow) -> Source:
    """Read rows from their texts, which are asked for twice: for the types, then for the rows.

    Raises:
        DataError: there is no usable row.
    """
    schema, total = scan(_parsed(texts, lambda *_: None), Style() if texts.noun == "element" else None)
    if not total:
        raise DataError(f"{name} has no JSON object in it")
    return Source(name, schema, _rows(texts, schema, bad), total=total)


def _rows(texts: Texts, schema: pa.Schema, bad: BadRow) -> Rows:
    style = style_of(schema)
    chunk: list[dict[str, Any]] = []
    size = 0
    for text, row in _parsed(texts, bad):
        chunk.append(row)
        size += len(text)
        if len(chunk) >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield to_batch(chunk, schema, style)
            chunk, size = [], 0
    if chunk:
        yield to_batch(chunk, schema, style)


def _parsed(texts: Texts, bad: BadRow) -> Iterator[tuple[str, dict[str, Any]]]:
    """The good texts and their objects; the others are told to ``bad``."""
    for number, line in enumerate(texts.each(), 1):
        if not line.strip():
            continue
        reason, text, row = _parse(line)
        if reason:
            bad(_place(line, f"{texts.noun} {number}"), reason, _excerpt(line))
        else:
            yield text, row


def _parse(line: bytes) -> tuple[str, str, dict[str, Any]]:
    """(why a line is unusable or nothing, its text, its object)."""
    if len(line) > ROW_LIMIT:
        return "line-too-large", "", {}
    try:
        text = line.decode("utf-8-sig")
        row = json.loads(text)
    except (ValueError, RecursionError):
        return "broken-json", "", {}
    if not isinstance(row, dict) or not row:
        return "not-an-object", "", {}
    if "\\ud" in text.lower() and not _encodable(row):
        return "broken-text", "", {}
    return "", text, row


def _place(line: bytes, number: str) -> str:
    """The id that an unusable line seems to have, or its number."""
    found = ID.search(line, 0, 1 << 16)
    return found[1].decode("utf-8", "replace").strip('"') if found else number


def _excerpt(line: bytes) -> str:
    return line[:500].decode("utf-8", "replace").rstrip("\n")


def _encodable(row: Mapping[str, Any]) -> bool:
    try:
        json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


# ---- types ----


def scan(lines: Iterator[tuple[str, dict[str, Any]]], style: Style | None = None) -> tuple[pa.Schema, int]:
    """Find the schema and the number of rows of parsed lines; how they are written, unless a style is given."""
    columns: dict[str, Column] = {}
    orders: dict[tuple[str, ...], None] = {}
    styles, end = STYLES, True
    total = 0
    for line, row in lines:
        total += 1
        if style is None:
            styles, end = _told(styles, line, row), line.endswith("\n")
        orders[tuple(row)] = None
        for key, value in row.items():
            columns.setdefault(key, Column()).see(value)
    fields = [columns[key].field(key, total) for key in order(orders)]
    told = style or replace(styles[0], end=end)
    return pa.schema(fields, metadata={STYLE_KEY: json.dumps(asdict(told)).encode()}), total


def _told(styles: list[Style], line: str, row: Mapping[str, Any]) -> list[Style]:
    """Those of the possible styles in which this line can have been written; all when it was in none of them."""
    spacing_known = len({(style.item, style.key) for style in styles}) == 1
    tells_ascii = (not line.isascii() or "\\u" in line) and len({style.ascii for style in styles}) > 1
    tells_slash = "/" in line and len({style.slash for style in styles}) > 1
    if spacing_known and not tells_ascii and not tells_slash:
        return styles
    return [style for style in styles if style.dumps(row) == line.strip()] or styles


def to_batch(rows: Sequence[Mapping[str, Any]], schema: pa.Schema, style: Style) -> pa.RecordBatch:
    """Rows as a batch of the schema."""
    columns = []
    for field in schema:
        if TEXT_KEY in (field.metadata or {}):
            values = [style.dumps(row[field.name]) if field.name in row else None for row in rows]
        else:
            values = [row.get(field.name) for row in rows]
        columns.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# ---- writing ----


def style_of(schema: pa.Schema) -> Style:
    """The style that a schema carries, or the default one."""
    kept = (schema.metadata or {}).get(STYLE_KEY)
    return Style(**json.loads(kept)) if kept else Style()


def to_lines(batch: pa.RecordBatch, style: Style) -> Iterator[str]:
    """The rows of a batch as JSON text without line ends."""
    marks = [(exact(f.type), style.dumps(f.name), f.metadata or {}) for f in batch.schema]
    columns = [column.to_pylist() for column in batch.columns]
    for values in zip(*columns, strict=True):
        parts = []
        for (plain, name, mark), value in zip(marks, values, strict=True):
            if value is None and (ABSENT_KEY in mark or TEXT_KEY in mark):
                continue
            text = value if TEXT_KEY in mark else style.dumps(value if plain else _jsonable(value))
            parts.append(f"{name}{style.key}{text}")
        yield "{" + style.item.join(parts) + "}"


def _jsonable(value: Any) -> Any:
    """A value as JSON can say it, at any depth: dates and the like as text."""
    if isinstance(value, bytes):
        raise DataError("a column of raw bytes has no JSON form; drop it or write parquet or arrow")
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, dict):
        return {key: _jsonable(part) for key, part in value.items()}
    return [_jsonable(part) for part in value] if isinstance(value, list | tuple) else str(value)


class LinesWriter:
    """JSON lines being written."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        without_bytes(schema, "JSON")
        self.file, self.style = file, style_of(schema)
        self.open_line = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows; the last line stays open until it is known whether it is the last of all."""
        for line in to_lines(batch, self.style):
            self.file.write((("\n" if self.open_line else "") + line).encode("utf-8"))
            self.open_line = True

    def close(self) -> None:
        """End the last line, if lines of this file end."""
        if self.open_line and self.style.end:
            self.file.write(b"\n")


class ArrayWriter:
    """A JSON array of objects being written, one a line."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        without_bytes(schema, "JSON")
        self.file, self.style = file, style_of(schema)
        self.before = "[\n"

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        for line in to_lines(batch, self.style):
            self.file.write((self.before + line).encode("utf-8"))
            self.before = ",\n"

    def close(self) -> None:
        """End the array."""
        self.file.write(b"[]\n" if self.before == "[\n" else b"\n]\n")


class PackedWriter:
    """A table as text that is packed on its way; equal tables have equal bytes, so no time and no name is in it."""

    def __init__(self, file: BinaryIO, make: Callable[[BinaryIO], beside.Writer]) -> None:
        self.packed = gzip.GzipFile("", "wb", fileobj=file, mtime=0)
        self.writer = make(cast(BinaryIO, self.packed))

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self.writer.write(batch)

    def close(self) -> None:
        """End the table and what packs it."""
        self.writer.close()
        self.packed.close()


def file_sink(path: Path, schema: pa.Schema, head: str) -> contextlib.AbstractContextManager[Sink]:
    """A file of JSON lines, or of an array, that takes its place when it is finished, with its manifest beside it."""

    def make(file: BinaryIO) -> beside.Writer:
        return (ArrayWriter if ".json" in path.suffixes[-2:] else LinesWriter)(file, schema)

    return beside.noted(path, schema, lambda file: PackedWriter(file, make) if path.suffix == ".gz" else make(file))
