"""JSON lines and JSON arrays of objects (``.json``), optionally gzipped, read in two passes: types first, then rows.

``shapes`` says which Arrow type a column becomes; a column of values without a common type stores JSON text
(``json_columns``). Values are preserved, where an absent key equals null and 1 equals 1.0; NaN and Infinity, which are
not JSON, are written as null. The spacing and escaping of the lines is stored with the schema and used again.

Memory is bounded by a batch; of a row over the limit only the start is kept. A truncated array or gzip file is an
error.
"""

import codecs
import contextlib
import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from functools import cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from magcli.data.json_columns import finite, is_json_text
from magcli.data.manifest import check_manifest, with_manifest
from magcli.data.packed import GzipWriter, Opener, damage, described, has_suffix, opener
from magcli.data.readable import is_short_float, nested_types, readable_values
from magcli.data.shapes import ABSENT_KEY, Column, key_order
from magcli.data.source import NOT_UTF8, BadRow, Rows, Sink, Source, ignore
from magcli.data.types import is_exact_in_json, refuse_bytes
from magcli.data.unread import Unread
from magcli.errors import DataError

STYLE_KEY = b"magcli.jsonl"
BATCH_ROWS = 1024
BATCH_BYTES = 1 << 24
ROW_LIMIT = 1 << 25
"""Rows of more bytes are reported as ``line-too-large``."""
CHUNK = 1 << 20
"""Bytes of an array that are read at a time."""
# The id in a row that cannot be parsed; only for messages.
ID = re.compile(rb'"id"\s*:\s*("[^"\\\\]{1,200}"|\d{1,20})')
# Outside of strings, what opens, closes or separates values.
STRUCTURE = re.compile(rb'["\[\]{},]')
# Inside a string, its end; an escaped character is skipped as a whole.
STRING_END = re.compile(rb'"|\\.', re.DOTALL)


class Texts(NamedTuple):
    """The texts of all rows, at each call of ``read``; the name of one in messages; the first bytes of the file."""

    read: Callable[[], Iterator[bytes]]
    noun: str
    head: Callable[[], bytes] = bytes


@dataclass(frozen=True, slots=True)
class Style:
    """The style of a file's lines; ``slash``: ``/`` is escaped, ``end``: the last line ends with a newline."""

    item: str = ", "
    key: str = ": "
    ascii: bool = False
    slash: bool = False
    end: bool = True

    def dumps(self, value: Any) -> str:
        """A value in this style; NaN and Infinity are null."""
        encode = _encoder(self.item, self.key, self.ascii)
        try:
            text = encode(value)
        except ValueError:
            text = encode(finite(value))
        return text.replace("/", "\\/") if self.slash else text


@cache
def _encoder(item: str, key: str, ascii: bool) -> Callable[[Any], str]:
    # One encoder a style, not one a row.
    return json.JSONEncoder(ensure_ascii=ascii, allow_nan=False, separators=(item, key)).encode


# Of the styles that fit all lines the first one is used, so those of ``json`` and of JavaScript come first.
SPACINGS = ((", ", ": "), (",", ":"), (", ", ":"), (",", ": "))
STYLES = [Style(*spacing, ascii, slash) for spacing in SPACINGS for ascii in (False, True) for slash in (False, True)]


def open_file(path: Path, bad: BadRow) -> Source:
    """Read JSON lines or, if a ``.json`` file starts with one, the objects of an array; reports broken rows to ``bad``.

    Raises:
        DataError: no usable row, a file that differs from its manifest, or a truncated array or gzip file.
    """
    digest, manifest = check_manifest(path)
    texts = texts_of(path)
    # Values of these types need no inference: the manifest says what they were.
    if manifest is not None and all(map(is_exact_in_json, manifest.schema.types)):
        rows = _rows(texts, manifest.schema, bad)
        return Source(str(path), manifest.schema, rows, manifest.chain, digest, manifest.rows)
    source = open_texts(texts, str(path), bad)
    # Only a single object can be a table of columns.
    if is_json(path) and source.total == 1 and texts.noun == "line":
        _refuse_columns(texts, str(path))
    source.sha256 = digest
    source.chain = manifest.chain if manifest else ()
    return source


def open_head(path: Path, bad: BadRow, rows: int) -> Source:
    """Read the first rows of a file, with types inferred from these rows alone.

    Raises:
        DataError: no usable row.
    """
    texts = texts_of(path)
    schema, total = scan(islice(_parsed(texts, ignore), rows), Style())
    if not total:  # an empty table of magcli has its columns in the manifest
        return open_file(path, bad)
    return Source(str(path), schema, _rows(texts, schema, bad, rows), total=total if total < rows else None)


def open_texts(texts: Texts, name: str, bad: BadRow) -> Source:
    """Read rows from their texts: once for the types, once for the values.

    Raises:
        DataError: no usable row.
    """
    style = Style() if texts.noun == "element" else None  # only lines have one that is used again
    # Bad rows are reported by the pass that reads the values, so that each is counted once.
    schema, total = scan(_parsed(texts, ignore), style)
    if not total:
        raise DataError(_without_rows(texts, name))
    return Source(name, schema, _rows(texts, schema, bad), total=total)


def _without_rows(texts: Texts, name: str) -> str:
    """Why a file has no usable row, by its first bad one."""
    faults: list[tuple[str, str]] = []

    def keep_first(location: str, reason: str, excerpt: str) -> None:
        faults[:] = faults or [(location, reason)]

    scan(_parsed(texts, keep_first), None)
    for location, reason in faults:
        if reason in ("broken-text", "line-too-large"):
            return f"{name} has no usable row: {location} is {reason}"
    return f"{name} contains no JSON object{described(texts.head())}"


def _refuse_columns(texts: Texts, name: str) -> None:
    """Check that the only object of a ``.json`` file is a row, and not a table of columns.

    Raises:
        DataError: its values are lists of one length, so that it could be either.
    """
    for _, row in _parsed(texts, ignore):
        are_lists = all(isinstance(value, list) for value in row.values())
        lengths = {len(value) for value in row.values()} if are_lists else set()
        if len(row) > 1 and len(lengths) == 1:
            problem = f"holds one object of lists of {lengths.pop()} values, which may be a table of columns"
            raise DataError(f"{name} {problem}; write one object a row, or name it .jsonl if it is one row")


# ---- texts of rows ----


def texts_of(path: Path) -> Texts:
    """The rows of a file: the elements of an array, or its lines.

    A ``.json`` file that starts with a bracket is an array; a file of lines is one if an object follows the bracket.
    """
    opened = opener(path)
    signs = _first_signs(opened, str(path))
    is_array = signs == "[{" or (signs[0] == "[" and is_json(path))
    return opened_texts(opened, str(path), array=is_array)


def is_json(path: Path) -> bool:
    """Whether a file is named as one JSON value instead of lines."""
    return has_suffix(path, ".json")


def opened_texts(opened: Opener, name: str, *, array: bool) -> Texts:
    """The rows of the file that ``opened`` opens: the elements of its array, or its lines."""
    split = partial(_split, opened, name, elements if array else _lines)
    head = partial(_head, opened, name)
    return Texts(split, "element" if array else "line", head)


def _head(opened: Opener, name: str) -> bytes:
    return next(_split(opened, name, _pieces), b"")


def _first_signs(opened: Opener, name: str) -> str:
    """The first two characters after a byte-order mark, without white space; blanks if there are none."""
    signs = b""
    for piece in _split(opened, name, _pieces):
        without_space = b"".join(piece.removeprefix(codecs.BOM_UTF8).split(maxsplit=2))
        # A piece may be all white space, or have only the first sign.
        signs += without_space[:2]
        if len(signs) >= 2:
            break
    return signs[:2].decode("latin-1").ljust(2)


def _pieces(file: BinaryIO, name: str) -> Iterator[bytes]:
    return iter(partial(file.read, CHUNK), b"")


def _split(opened: Opener, name: str, split: Callable[[BinaryIO, str], Iterator[bytes]]) -> Iterator[bytes]:
    with damage(name), opened() as file:
        yield from split(file, name)


def _lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    while line := file.readline(ROW_LIMIT + 1):
        last = line
        while len(line) > ROW_LIMIT and last and not last.endswith(b"\n"):
            last = file.readline(ROW_LIMIT)  # the rest of a line that is too long is skipped
        yield line


def elements(file: BinaryIO, name: str, *, alone: bool = True) -> Iterator[bytes]:
    """The text of each element, split at the brackets and commas outside of strings.

    Raises:
        DataError: the array does not end, or it should be ``alone`` and something follows it.
    """
    text = bytearray()
    start = 0  # of the element in ``text``
    at = 0  # up to here ``text`` is searched
    depth = 0  # 1 within the array, more within its elements
    quoted = False
    while chunk := file.read(CHUNK):
        text += chunk
        while match := (STRING_END if quoted else STRUCTURE).search(text, at):
            sign, at = match[0], match.end()
            if sign == b'"':
                quoted = not quoted
            elif sign in (b"[", b"{"):
                depth += 1
                start = at if depth == 1 else start  # behind the bracket of the array itself
            # A comma or a closing bracket; in a string the match is an escape. A brace that closes nothing is the
            # parser's to refuse.
            elif not quoted and (depth > 1 or sign != b"}"):
                if depth == 1:
                    yield bytes(text[start : at - 1]).strip()
                    start = at
                depth -= sign != b","  # a comma separates elements, a bracket ends a level
                if depth == 0:
                    if alone:
                        _refuse_rest(chain([bytes(text[at:])], _pieces(file, name)), name)
                    return
        # A backslash at the end of the chunk escapes the first character of the next one.
        in_escape = quoted and at < len(text) and text.endswith(b"\\")
        del text[:start]
        del text[ROW_LIMIT + 1 :]  # one byte over the limit tells that the element is too large
        start = 0
        at = len(text) + in_escape
    raise DataError(f"{name} is truncated: its array does not end")


def _refuse_rest(rest: Iterable[bytes], name: str) -> None:
    """Check that only white space follows the array; reads to the end, where a gzip file has its checksum."""
    for piece in rest:
        if piece.strip():
            raise DataError(f"{name} is not a single array: after its end comes {piece.strip()[:40]!r}")


# ---- rows ----


def _rows(texts: Texts, schema: pa.Schema, bad: BadRow, limit: int | None = None) -> Rows:
    style = style_of(schema)
    batch: list[dict[str, Any]] = []
    size = 0
    unread = Unread(bad)

    def found(location: str, reason: str, excerpt: str) -> None:
        unread.add(unread.taken + len(batch), location, reason, excerpt)

    for text, row in islice(_parsed(texts, found), limit):
        batch.append(row)
        size += len(text)
        if len(batch) >= BATCH_ROWS or size >= BATCH_BYTES:
            yield from unread.among(to_batch(batch, schema, style))
            batch, size = [], 0
    if batch:
        yield from unread.among(to_batch(batch, schema, style))


def _parsed(texts: Texts, bad: BadRow) -> Iterator[tuple[str, dict[str, Any]]]:
    """The valid texts and their objects; the others are reported to ``bad``."""
    for number, line in enumerate(texts.read(), 1):
        if not line.strip():
            continue
        reason, text, row = _parse(line)
        if reason:
            # A row may have many megabytes; its id is near its start.
            match = ID.search(line, 0, 1 << 16)
            location = match[1].decode("utf-8", "replace").strip('"') if match else f"{texts.noun} {number}"
            bad(location, reason, line[:500].decode("utf-8", "replace").rstrip("\n"))
        else:
            yield text, row


def _parse(line: bytes) -> tuple[str, str, dict[str, Any]]:
    """(why a line is invalid or "", its text, its object)."""
    if len(line) > ROW_LIMIT:
        return "line-too-large", "", {}
    try:
        # Of files that were joined each may begin with a byte-order mark.
        text = line.decode("utf-8-sig")
        row = json.loads(text)
    except UnicodeDecodeError:
        return NOT_UTF8, "", {}
    except (ValueError, RecursionError):
        return "broken-json", "", {}
    # Such as a conversation of Open-Reasoner-Zero; `datasets` names the items in this way.
    if isinstance(row, list) and all(isinstance(item, dict) for item in row):
        row = {str(number): item for number, item in enumerate(row)}
    if not isinstance(row, dict) or not row:
        return "not-an-object", "", {}
    # Only an escape can write a lone surrogate, which no file can store.
    if "\\ud" in text.lower() and not _encodable(row):
        return "broken-text", "", {}
    return "", text, row


def _encodable(row: Mapping[str, Any]) -> bool:
    try:
        json.dumps(row, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def scan(lines: Iterator[tuple[str, dict[str, Any]]], style: Style | None = None) -> tuple[pa.Schema, int]:
    """The schema and number of rows of parsed lines; finds their style unless one is given."""
    columns: dict[str, Column] = {}
    # The different orders of keys, and the styles in which all lines so far may have been written.
    orders: dict[tuple[str, ...], None] = {}
    styles = STYLES
    end = True
    total = 0
    for line, row in lines:
        total += 1
        if style is None:
            styles = _possible(styles, line, row)
            end = line.endswith("\n")
        orders[tuple(row)] = None
        for key, value in row.items():
            columns.setdefault(key, Column()).add(value)
    fields = [columns[key].field(key, total) for key in key_order(orders)]
    file_style = style or replace(styles[0], end=end)
    return pa.schema(fields, metadata={STYLE_KEY: json.dumps(asdict(file_style)).encode()}), total


def _possible(styles: list[Style], line: str, row: Mapping[str, Any]) -> list[Style]:
    """The styles that reproduce this line, or all if none does."""
    # To encode a row again takes time, so only lines that tell styles apart are tried.
    has_one_spacing = len({(style.item, style.key) for style in styles}) == 1
    shows_ascii = (not line.isascii() or "\\u" in line) and len({style.ascii for style in styles}) > 1
    shows_slash = "/" in line and len({style.slash for style in styles}) > 1
    if has_one_spacing and not shows_ascii and not shows_slash:
        return styles
    return [style for style in styles if style.dumps(row) == line.strip()] or styles


def to_batch(rows: Sequence[Mapping[str, Any]], schema: pa.Schema, style: Style) -> pa.RecordBatch:
    """Rows as a batch of the schema."""
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        if is_json_text(field):
            values = [None if value is None else _json_text(value, field.name, style) for value in values]
        columns.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _json_text(value: Any, name: str, style: Style) -> str | None:
    """A value as JSON text; NaN, which is null, has none.

    Raises:
        DataError: it is nested too deeply to be written.
    """
    try:
        text = style.dumps(value)
    except RecursionError:
        raise DataError(f"column {name} has a value that is nested too deeply to be written; remove the row") from None
    return None if text == "null" else text


# ---- writing ----


def style_of(schema: pa.Schema) -> Style:
    """The style that a schema carries, or the default one."""
    style = (schema.metadata or {}).get(STYLE_KEY)
    try:
        return Style(**json.loads(style)) if style else Style()
    except (ValueError, TypeError, RecursionError):  # of another program
        return Style()


def to_lines(batch: pa.RecordBatch, style: Style) -> Iterator[str]:
    """The rows of a batch as JSON text without newlines.

    Raises:
        DataError: a column has raw bytes.
    """
    refuse_bytes(batch.schema, "JSON")
    columns = [_json_values(batch.column(field.name), field) for field in batch.schema]
    names = batch.schema.names
    # Their nulls are rows without the key, which are written without it again.
    absent = {field.name for field in batch.schema if ABSENT_KEY in (field.metadata or {})}
    texts = [is_json_text(field) for field in batch.schema]
    for values in zip(*columns, strict=True):
        # Stored JSON text goes into the line as it is: parsed and written again, its numbers could change.
        if any(texts):
            yield _line_with_texts(names, values, texts, absent, style)
            continue
        row = dict(zip(names, values, strict=True))
        if absent:
            row = {name: value for name, value in row.items() if value is not None or name not in absent}
        yield style.dumps(row)


def _json_values(column: pa.Array, field: pa.Field) -> list[Any]:
    """The values of a column in JSON types."""
    is_plain = is_exact_in_json(field.type) and not any(map(_is_shortened, nested_types(field.type)))
    values: list[Any] = column.to_pylist() if is_plain else list(map(_jsonable, readable_values(column)))
    return values


def _is_shortened(kind: pa.DataType) -> bool:
    """Whether JSON has other numbers than Python: floats with fewer digits, whole decimals as integers."""
    return is_short_float(kind) or bool(pa.types.is_decimal(kind))


def _line_with_texts(
    names: Sequence[str], values: Sequence[Any], texts: Sequence[bool], absent: Container[str], style: Style
) -> str:
    """A row of which some values are JSON text already."""
    parts = []
    for name, value, is_text in zip(names, values, texts, strict=True):
        if value is None and name in absent:
            continue
        text = value if is_text and value is not None else style.dumps(value)
        parts.append(f"{style.dumps(name)}{style.key}{text}")
    return "{" + style.item.join(parts) + "}"


def _jsonable(value: Any) -> Any:
    """A value in JSON types, at any depth: dates and the like as text, decimals too unless they are whole numbers."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, dict):
        return {key: _jsonable(part) for key, part in value.items()}
    if isinstance(value, Decimal):
        return int(value) if value.as_tuple().exponent == 0 else str(value)
    return [_jsonable(part) for part in value] if isinstance(value, list | tuple) else str(value)


class LinesWriter:
    """Writes JSON lines, or with ``array`` one JSON array with an object on each line."""

    def __init__(self, file: BinaryIO, schema: pa.Schema, *, array: bool) -> None:
        refuse_bytes(schema, "JSON")
        self.file = file
        self.style = style_of(schema)
        self.array = array
        self.empty = True

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows; a newline is written before the next row, because the last one may have none."""
        first, between = ("[\n", ",\n") if self.array else ("", "\n")
        for line in to_lines(batch, self.style):
            before = first if self.empty else between
            self.file.write(f"{before}{line}".encode())
            self.empty = False

    def close(self) -> None:
        """End the array, or the last line if the style says so."""
        if self.array:
            self.file.write(b"[]\n" if self.empty else b"\n]\n")
        elif self.style.end and not self.empty:
            self.file.write(b"\n")


def file_sink(path: Path, schema: pa.Schema, head: str) -> contextlib.AbstractContextManager[Sink]:
    """A file of JSON lines or an array that appears when it is finished, with its manifest next to it."""
    make = partial(LinesWriter, schema=schema, array=is_json(path))
    is_packed = path.suffix.lower() == ".gz"
    return with_manifest(path, schema, lambda file: GzipWriter(file, make) if is_packed else make(file))
