"""JSON lines: read in two passes (types first, then rows) and written back byte for byte.

Values of one type become that Arrow type. A column whose values do not share one (numbers of two kinds, objects with
other keys, null beside absent) keeps each value as JSON text and is marked so; it is written back as it was. How the
lines were spaced and escaped travels with the schema.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from magcli.data import durable, manifest, seal
from magcli.data.source import BadRow, Rows, Source, manifest_path
from magcli.errors import DataError

STYLE_KEY = b"magcli.jsonl"
TEXT_KEY = b"magcli.json_text"
ABSENT_KEY = b"magcli.absent"
CHUNK_ROWS = 1024
CHUNK_BYTES = 1 << 24
LINE_LIMIT = 1 << 25
"""A row longer than this many bytes is set aside as ``line-too-large``."""


@dataclass(frozen=True, slots=True)
class Style:
    """How the lines of a file are written."""

    item: str = ", "
    key: str = ": "
    ascii: bool = False

    def dumps(self, value: Any) -> str:
        """A value in this style."""
        return json.dumps(value, ensure_ascii=self.ascii, separators=(self.item, self.key))


def open_file(path: Path, bad: BadRow) -> Source:
    """Read a JSON-lines file; broken lines go to ``bad``.

    Raises:
        DataError: the file has no usable row, or is not what its manifest says.
    """
    digest, chain = _check_manifest(path)
    with open(path, "rb") as file:
        schema, total = scan(_parsed(file, lambda *_: None))
    if not total:
        raise DataError(f"{path} has no JSON object in it")
    return Source(str(path), schema, _rows(path, schema, bad), chain, digest, total)


def _check_manifest(path: Path) -> tuple[str, manifest.Chain]:
    note = manifest_path(path)
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty")
    digest = seal.hash_file(path)
    if not note.exists():
        return digest, ()
    try:
        told = json.loads(note.read_text(encoding="utf-8"))
        same, chain = told["sha256"] == digest, manifest.from_json(told["chain"])
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{note} is damaged; remove it to read {path.name} without its history") from None
    if not same:
        raise DataError(f"{path} is not what magcli wrote (cut, damaged or edited); remove {note} to read it anyway")
    return digest, chain


def _rows(path: Path, schema: pa.Schema, bad: BadRow) -> Rows:
    style = style_of(schema)
    with open(path, "rb") as file:
        chunk: list[dict[str, Any]] = []
        size = 0
        for _, row, length in _parsed(file, bad):
            chunk.append(row)
            size += length
            if len(chunk) >= CHUNK_ROWS or size >= CHUNK_BYTES:
                yield to_batch(chunk, schema, style)
                chunk, size = [], 0
        if chunk:
            yield to_batch(chunk, schema, style)


def _parsed(file: BinaryIO, bad: BadRow) -> Iterator[tuple[bytes, dict[str, Any], int]]:
    """The good lines: (line, object, bytes); the others are told to ``bad``."""
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        place = f"line {number}"
        if len(line) > LINE_LIMIT:
            bad(place, "line-too-large", _excerpt(line))
            continue
        try:
            row = json.loads(line)
            line.decode("utf-8")
        except (ValueError, RecursionError):
            bad(place, "broken-json", _excerpt(line))
            continue
        if not isinstance(row, dict) or not row:
            bad(place, "not-an-object", _excerpt(line))
        elif b"\\ud" in line.lower() and not _encodable(row):
            bad(place, "broken-text", _excerpt(line))
        else:
            yield line, row, len(line)


def _excerpt(line: bytes) -> str:
    return line[:500].decode("utf-8", "replace").rstrip("\n")


def _encodable(row: Mapping[str, Any]) -> bool:
    try:
        json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


# ---- types ----


def scan(lines: Iterator[tuple[bytes, dict[str, Any], int]]) -> tuple[pa.Schema, int]:
    """Find the schema and the number of rows of parsed lines."""
    kinds: dict[str, pa.DataType | None] = {}
    present: dict[str, int] = {}
    nulls: set[str] = set()
    style: Style | None = None
    escapes: bool | None = None
    total = 0
    for line, row, _ in lines:
        total += 1
        style = style or _spacing(line, row)
        if escapes is None:
            escapes = False if not line.isascii() else True if b"\\u" in line else None
        for key, value in row.items():
            present[key] = present.get(key, 0) + 1
            if value is None:
                nulls.add(key)
            kinds[key] = unify(kinds[key], kind_of(value)) if key in kinds else kind_of(value)
    style = Style(*(asdict(style or Style()) | {"ascii": bool(escapes)}).values())
    fields = [_field(key, kind, present[key] < total, key in nulls) for key, kind in kinds.items()]
    return pa.schema(fields, metadata={STYLE_KEY: json.dumps(asdict(style)).encode()}), total


def _spacing(line: bytes, row: dict[str, Any]) -> Style:
    text = line.decode("utf-8").strip()
    for item, key in ((", ", ": "), (",", ":"), (", ", ":"), (",", ": ")):
        for escaped in (False, True):
            if Style(item, key, escaped).dumps(row) == text:
                return Style(item, key, escaped)
    return Style()


def _field(key: str, kind: pa.DataType | None, absent: bool, null: bool) -> pa.Field:
    if kind is None or (absent and null):
        return pa.field(key, pa.string(), metadata={TEXT_KEY: b"1"})
    if pa.types.is_null(kind):
        kind = pa.string()
    return pa.field(key, kind, metadata={ABSENT_KEY: b"1"} if absent else None)


def kind_of(value: Any) -> pa.DataType | None:
    """The Arrow type of a JSON value; None when it has none of its own."""
    match value:
        case None:
            return pa.null()
        case bool():
            return pa.bool_()
        case int():
            return pa.int64() if -(2**63) <= value < 2**63 else None
        case float():
            return pa.float64()
        case str():
            return pa.string()
        case list():
            return _list_kind(value)
        case dict() if value:
            parts = [(key, kind_of(part)) for key, part in value.items()]
            if any(part is None or pa.types.is_null(part) for _, part in parts):
                return None
            return pa.struct([pa.field(key, part) for key, part in parts])
        case _:
            return None


def _list_kind(values: Sequence[Any]) -> pa.DataType | None:
    kind: pa.DataType | None = pa.null()
    for value in values:
        kind = unify(kind, kind_of(value))
        if kind is None:
            return None
    return pa.list_(kind)


def unify(left: pa.DataType | None, right: pa.DataType | None) -> pa.DataType | None:
    """The one type that holds the values of both, None when there is none that gives them back unchanged."""
    if left is None or right is None:
        return None
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    if pa.types.is_list(left) and pa.types.is_list(right):
        inner = unify(left.value_type, right.value_type)
        return None if inner is None else pa.list_(inner)
    return None


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
    marks = [(f.name, style.dumps(f.name), f.metadata or {}) for f in batch.schema]
    columns = [column.to_pylist() for column in batch.columns]
    for values in zip(*columns, strict=True):
        parts = []
        for (_, name, mark), value in zip(marks, values, strict=True):
            if value is None and (ABSENT_KEY in mark or TEXT_KEY in mark):
                continue
            text = value if TEXT_KEY in mark else style.dumps(_jsonable(value))
            parts.append(f"{name}{style.key}{text}")
        yield "{" + style.item.join(parts) + "}"


def _jsonable(value: Any) -> Any:
    if isinstance(value, bytes):
        raise DataError("a column of raw bytes has no JSON form; drop it or write parquet or arrow")
    if value is None or isinstance(value, str | int | float | bool | list | dict):
        return value
    return str(value)


class LinesSink:
    """JSON lines being written."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        self.file, self.style = file, style_of(schema)
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self.rows += batch.num_rows
        text = "".join(line + "\n" for line in to_lines(batch, self.style))
        self.file.write(text.encode("utf-8"))

    def finish(self, chain: manifest.Chain) -> str:
        """The digest of the lines is taken when their manifest is written."""
        return ""


@contextlib.contextmanager
def file_sink(path: Path, schema: pa.Schema, head: str) -> Iterator["NotedSink"]:
    """A JSON-lines file that takes its place when it is finished, with its manifest beside it."""
    with noted(path, lambda file: LinesSink(file, schema)) as sink:
        yield sink


class NotedSink:
    """A sink of a format that cannot carry its history: a manifest is written beside the file."""

    def __init__(self, inner: Any, file: BinaryIO) -> None:
        self.inner, self.file = inner, file
        self.note: dict[str, Any] | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self.inner.write(batch)

    def finish(self, chain: manifest.Chain) -> str:
        """Close the table and prepare its manifest."""
        self.inner.finish(chain)
        self.file.flush()
        self.file.seek(0)
        digest = seal.hash_open(self.file)
        self.file.seek(0, 2)
        self.note = {"chain": manifest.to_json(chain), "rows": self.inner.rows, "sha256": digest}
        return digest


@contextlib.contextmanager
def noted(path: Path, make: Any) -> Iterator[NotedSink]:
    """Write a file and then its manifest; between the two the file stands alone, as any other tool's would."""
    note = manifest_path(path)
    with durable.whole_file(path) as file:
        sink = NotedSink(make(file), file)
        yield sink
        note.unlink(missing_ok=True)
    if sink.note is not None:
        with durable.whole_file(note) as file:
            file.write((seal.pack(sink.note) + "\n").encode())
