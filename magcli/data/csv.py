"""CSV files with a header line, by ``pyarrow.csv``; nested columns are written as JSON.

A file with a manifest is read in its types. For other files the types are inferred in a first pass, because pyarrow's
inference changes values: ``01234`` becomes 1234, and long integers next to floats are rounded. The project's text
columns stay text. An empty cell is null; a quoted empty one (``""``) is an empty text.
"""

import codecs
import contextlib
import csv
import io
import itertools
import json
import re
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from magcli.data.json_columns import encoded, finite, is_json_text
from magcli.data.manifest import check_manifest, with_manifest
from magcli.data.packed import PACKED, Opener, damage, foreign, has_suffix, opener
from magcli.data.readable import readable_numbers, readable_values, time_texts
from magcli.data.schema import TEXT_COLUMNS
from magcli.data.selection import first
from magcli.data.source import NOT_UTF8, BadRow, Rows, Sink, Source, ignore
from magcli.data.types import is_exact_in_json, refuse_bytes
from magcli.data.unread import Unread
from magcli.errors import DataError, first_line

PATTERNS = {
    pa.int64(): "^-?(0|[1-9][0-9]{0,18})$",
    # Whole numbers of up to 15 digits, which are exact; numbers with an exponent; numbers with decimals.
    pa.float64(): r"^-?((0|[1-9][0-9]{0,14})|(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)|(0|[1-9][0-9]*)\.[0-9]+)$",
    pa.bool_(): "^(true|false|True|False|TRUE|FALSE)$",
}
"""Types from narrow to wide, and the pattern of their cells. Integers that float64 would round are not floats."""
BLOCK = 1 << 28
"""Maximum bytes of a line."""
MATCHED = 1 << 16
"""Cells that are matched at once: to prepare a pattern takes longer than to match it with a column of few rows."""
HEADER = 1 << 24
"""Maximum bytes of the header."""
HEAD_BLOCK = 1 << 24
"""The same where only the first rows are read."""
MARK_ROOM = 128
"""Bytes that a block has for the mark after the last row (``_cells``), besides one for each column."""
# The rest of a quoted cell, in which a quotation mark is written as two.
_TO_CLOSING_QUOTE = re.compile(rb'[^"]*(?:""[^"]*)*"(?!")')


class Cells(NamedTuple):
    """A CSV file: its name in messages, how it is opened, what separates its cells, and the maximum bytes of a line."""

    name: str
    opened: Opener
    delimiter: str
    block: int = BLOCK


def open_file(path: Path, bad: BadRow) -> Source:
    """Read a CSV file; ragged lines and invalid text are reported to ``bad``.

    Raises:
        DataError: it is empty, has no header, or differs from its manifest.
    """
    digest, manifest = check_manifest(path)
    # A small file needs no larger block, with room for its mark; the size of a packed one says nothing of its content.
    block = BLOCK if path.suffix.lower() in PACKED else min(BLOCK, path.stat().st_size + MARK_ROOM)
    file = Cells(str(path), opener(path), _delimiter(path), block)
    if manifest is not None:
        schema = _readable(manifest.schema)
        # In a table of one column an empty line is a null.
        rows = _typed(_cells(file, _header(file), bad, keep_empty=True, is_checked=True), schema)
        return Source(file.name, schema, rows, manifest.chain, digest, manifest.rows)
    source = open_cells(file, bad)
    source.sha256 = digest
    return source


def open_head(path: Path, bad: BadRow, rows: int) -> Source:
    """Read the first rows of a file, with types inferred from these rows alone.

    Raises:
        DataError: there is no header.
    """
    file = _with_delimiter(Cells(str(path), opener(path), _delimiter(path), HEAD_BLOCK))
    names = _header(file)
    schema, total = _scan(first(_cells(file, names, ignore, keep_empty=False), rows), names)
    head = _typed(first(_cells(file, names, bad, keep_empty=False), rows), schema)
    return Source(file.name, schema, head, total=total if total < rows else None)


def open_cells(file: Cells, bad: BadRow) -> Source:
    """Read cells whose types are not known: once for the types, once for the values.

    Raises:
        DataError: there is no header.
    """
    file = _with_delimiter(file)
    names = _header(file)
    schema, total = _scan(_cells(file, names, ignore, keep_empty=False), names)
    rows = _typed(_cells(file, names, bad, keep_empty=False, is_checked=True), schema)
    return Source(file.name, schema, rows, total=total)


def _with_delimiter(file: Cells) -> Cells:
    """The file with the delimiter of its header, which may be a semicolon or a tab where no comma is."""
    header = _first_line(file).decode("utf-8", "replace")
    for delimiter in (file.delimiter, ";", "\t"):
        if delimiter in header:
            return file._replace(delimiter=delimiter)
    return file


def _first_line(file: Cells) -> bytes:
    with damage(file.name), file.opened() as raw:
        return raw.readline(1 << 16)  # a file that is not text may be one long line


def _readable(schema: pa.Schema) -> pa.Schema:
    """The schema, with text in place of types that cannot be parsed from cells."""
    is_a = pa.types

    def parsable(kind: pa.DataType) -> bool:
        if is_a.is_nested(kind):
            return is_exact_in_json(kind)
        return not (is_a.is_time(kind) or is_a.is_duration(kind) or is_a.is_interval(kind))

    fields = [field if parsable(field.type) else pa.field(field.name, pa.string()) for field in schema]
    return pa.schema(fields, schema.metadata)


def _header(file: Cells) -> list[str]:
    if what := foreign(_first_line(file)):
        raise DataError(f"{file.name} is not readable as CSV{what}")
    with damage(file.name), file.opened() as raw:
        try:
            names = next(csv.reader(_header_lines(raw), delimiter=file.delimiter), [])
        except csv.Error as error:
            raise DataError(f"{file.name}: line 1 is not a header of column names ({first_line(error)})") from None
    if not names or len(set(names)) < len(names):
        raise DataError(f"{file.name}: line 1 is not a header of distinct column names: {', '.join(names)[:200]}")
    return names


def _header_lines(raw: BinaryIO) -> Iterator[str]:
    """The lines of the header, of which a quoted name may take several.

    Raises:
        csv.Error: it has more than ``HEADER`` bytes.
    """
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
    size = 0
    while line := raw.readline(HEADER + 1):
        size += len(line)
        if size > HEADER:
            raise csv.Error(f"it has more than {HEADER:,} bytes")
        yield decoder.decode(line)


def _delimiter(path: Path) -> str:
    return "\t" if has_suffix(path, ".tsv") else ","


def _cells(file: Cells, names: list[str], bad: BadRow, *, keep_empty: bool, is_checked: bool = False) -> Rows:
    """All cells as text, empty ones as null; lines that cannot be read are reported to ``bad``.

    ``is_checked``: the ends of quoted cells were checked before.

    Raises:
        DataError: a quoted cell runs into other rows, or a line is too long.
    """
    # Arrow accepts the end of a file inside a quoted cell. Only there a mark after the last row becomes part of a cell.
    mark = secrets.token_hex(16)
    is_complete = False
    spans_lines = False
    num_ragged = 0
    ragged_lines, other_encoding = Unread(bad), Unread(bad)

    def ragged(line: Any) -> str:
        nonlocal spans_lines, num_ragged
        text = str(line.text)
        spans_lines = spans_lines or "\n" in text
        # A row with the mark runs into the end of the file, which is refused below.
        if mark not in text:
            # Numbers count the header, from 1, and ragged lines too.
            ragged_lines.add(line.number - 2 - num_ragged, "ragged line", "ragged-line", text[:500])
        num_ragged += 1
        return "skip"

    convert = arrow_csv.ConvertOptions(
        # Bytes, because a cell that is not UTF-8 would end the whole file as text.
        column_types={name: pa.binary() for name in names},
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
    )
    parse = arrow_csv.ParseOptions(
        delimiter=file.delimiter,
        newlines_in_values=True,
        ignore_empty_lines=not keep_empty,
        invalid_row_handler=ragged,
    )
    read = arrow_csv.ReadOptions(use_threads=False, block_size=file.block)
    try:
        with damage(file.name), file.opened() as raw:
            marked = _WithLastRow(raw, mark + file.delimiter * (len(names) - 1))
            for batch in arrow_csv.open_csv(marked, read, parse, convert):
                # Arrow accepts a line of up to two blocks, if it does not begin with one.
                if batch.nbytes > file.block and _longest_row(batch) > file.block:
                    raise _too_long(file)
                spans_lines = spans_lines or (not is_checked and _spans_lines(batch))
                is_complete = _ends_with(batch, mark)
                whole = batch.slice(0, batch.num_rows - is_complete)
                for part in ragged_lines.among(whole):
                    yield from _as_text(part, other_encoding)
    except pa.ArrowException as error:
        _refuse_open_quotes(file)
        what = first_line(error)
        if "straddl" in what:
            raise _too_long(file) from None
        raise DataError(f"{file.name} is not readable as CSV: {what}") from None
    if not is_complete or (spans_lines and not is_checked):
        _refuse_open_quotes(file)


class _WithLastRow(io.RawIOBase):
    """A file with one more row at its end."""

    def __init__(self, raw: BinaryIO, row: str) -> None:
        self._raw = raw
        self._row = f"{row}\n".encode()
        self._last = b"\n"

    def readable(self) -> bool:
        """It is read only."""
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most ``size``."""
        chunk = self._raw.read(size)
        if chunk:
            self._last = chunk[-1:]
            return chunk
        # An empty line could be a row.
        if self._last not in b"\r\n":
            self._row = b"\n" + self._row
            self._last = b"\n"
        start, self._row = self._row[:size], self._row[size:]
        return start


def _ends_with(batch: pa.RecordBatch, cell: str) -> bool:
    """Whether the last row begins with a cell."""
    return batch.num_rows > 0 and bool(batch.column(0)[-1].as_py() == cell.encode())


def _refuse_open_quotes(file: Cells) -> None:
    """Refuse a quoted cell that runs into other rows: the file ends in it, or it closes in another line before text.

    As for Arrow, a cell is quoted if it begins with a mark; in other cells marks are text.

    Raises:
        DataError: there is one; the message names the line in which it opens.
    """
    delimiter = re.escape(file.delimiter.encode())
    to_next_cell = re.compile(rb"[^%b\r\n]*[%b\r\n]?" % (delimiter, delimiter))
    is_end_of_cell = re.compile(rb"[ \t]*(?:[%b\r\n]|\Z)" % delimiter)
    opened_in = 0
    with damage(file.name), file.opened() as raw:
        for number, line in enumerate(raw, 1):
            if b'"' not in line:  # most lines
                continue
            position = len(codecs.BOM_UTF8) if number == 1 and line.startswith(codecs.BOM_UTF8) else 0
            while position < len(line):
                if not opened_in and line[position] == ord('"'):
                    opened_in = number
                    position += 1
                if opened_in:
                    closed = _TO_CLOSING_QUOTE.match(line, position)
                    if closed is None:
                        break
                    position = closed.end()
                    # Within one line text after a closing mark loses no row.
                    if number > opened_in and not is_end_of_cell.match(line, position):
                        raise _open_quote(file, opened_in, f"ends before text in line {number:,}")
                    opened_in = 0
                rest = to_next_cell.match(line, position)
                position = rest.end() if rest else len(line)
    if opened_in:
        raise _open_quote(file, opened_in, "is never closed")


def _open_quote(file: Cells, line: int, fault: str) -> DataError:
    advice = 'close it there, or write a mark that belongs to a cell twice, in quotes ("6""" for 6")'
    return DataError(f"{file.name}: the quotation mark that opens a cell in line {line:,} {fault}; {advice}")


def _spans_lines(batch: pa.RecordBatch) -> bool:
    """Whether a cell has a line break."""
    return any(pc.any(pc.match_substring(column, "\n")).as_py() for column in batch.columns)


def _longest_row(batch: pa.RecordBatch) -> int:
    """The bytes of all cells of the row that has most."""
    lengths = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        lengths += pc.binary_length(column).fill_null(0).to_numpy()
    return int(lengths.max(initial=0))


def _too_long(file: Cells) -> DataError:
    problem = f"a line has more than {file.block:,} bytes, or a quotation mark is not closed"
    return DataError(f"{file.name} is not readable as CSV: {problem}")


def _as_text(batch: pa.RecordBatch, unread: Unread) -> Rows:
    """The rows as text; those that are not in UTF-8 are left out and added to ``unread``."""
    schema = pa.schema([(name, pa.string()) for name in batch.schema.names])
    try:
        return unread.among(batch.cast(schema))
    except pa.ArrowException:  # some cell is not in UTF-8
        pass
    is_text = []
    before = unread.taken
    for row in batch.to_pylist():
        is_text.append(all(map(_is_utf8, row.values())))
        before += is_text[-1]
        if not is_text[-1]:
            unread.add(before, str(row.get("id", b"broken line"))[:200], NOT_UTF8, str(row)[:500])
    return unread.among(batch.filter(pa.array(is_text)).cast(schema))


def _is_utf8(cell: bytes | None) -> bool:
    try:
        (cell or b"").decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _scan(rows: Rows, names: list[str]) -> tuple[pa.Schema, int]:
    """The narrowest type that fits all cells of each column, and the number of rows."""
    inferred = [name for name in names if name not in TEXT_COLUMNS]
    candidates = dict.fromkeys(PATTERNS, inferred)
    filled: set[str] = set()
    total = 0
    for batch in rows:
        total += batch.num_rows
        filled.update(name for name in names if batch.column(name).null_count < batch.num_rows)
        for kind, fitting in candidates.items():
            matching = _matching(batch, fitting, kind)
            candidates[kind] = [name for name in matching if _in_range(batch.column(name), kind)]
    kinds = dict.fromkeys(names, pa.string())
    # From wide to narrow, so that the narrowest type is the last.
    for kind in reversed(PATTERNS):
        for name in candidates[kind]:
            # A column without any value could have any type; it is text.
            if name in filled:
                kinds[name] = kind
    return pa.schema(list(kinds.items())), total


def _matching(batch: pa.RecordBatch, names: Sequence[str], kind: pa.DataType) -> Iterator[str]:
    """The columns of which all cells match the pattern of a type."""
    width = max(1, MATCHED // max(1, batch.num_rows))
    for start in range(0, len(names), width):
        group = names[start : start + width]
        # One array, column after column, as the matches are laid out below.
        cells = pa.concat_arrays([batch.column(name) for name in group])
        matches = pc.match_substring_regex(cells, PATTERNS[kind]).fill_null(True)
        by_column = matches.to_numpy(zero_copy_only=False).reshape(len(group), batch.num_rows)
        yield from itertools.compress(group, by_column.all(axis=1))


def _in_range(column: pa.Array, kind: pa.DataType) -> bool:
    """Whether all cells, which match the pattern of a type, are in its range."""
    try:
        values = column.cast(kind)
    except pa.ArrowException:
        return False
    if not pa.types.is_floating(kind):
        return True
    # 1e999 matches the pattern, and is infinite.
    are_finite = pc.all(pc.is_finite(values)).as_py()
    return are_finite is not False  # it is None if all cells are null


def _typed(rows: Rows, schema: pa.Schema) -> Rows:
    for batch in rows:
        columns = [_parse(batch.column(field.name), field) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _parse(column: pa.Array, field: pa.Field) -> pa.Array:
    if is_json_text(field):
        return encoded(map(_cell_value, column.to_pylist()))
    if pa.types.is_nested(field.type):
        values = [None if text is None else json.loads(text) for text in column.to_pylist()]
        return pa.array(values, field.type)
    return column.cast(field.type)


def _cell_value(cell: str | None) -> Any:
    """The value of a cell in a column of JSON: a text that is not JSON stands for itself."""
    if cell is None:
        return None
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return cell


class CsvWriter:
    """Writes a CSV file."""

    def __init__(self, file: BinaryIO, schema: pa.Schema) -> None:
        refuse_bytes(schema, "CSV")
        self.fields = list(schema)
        self.schema = pa.schema([(field.name, _cell_type(field.type)) for field in schema])
        self.writer = arrow_csv.CSVWriter(file, self.schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        cells = [_cells_of(column, field) for column, field in zip(batch.columns, self.fields, strict=True)]
        self.writer.write_batch(pa.RecordBatch.from_arrays(cells, schema=self.schema))

    def close(self) -> None:
        """End the table."""
        self.writer.close()


def _cell_type(kind: pa.DataType) -> pa.DataType:
    """The type of a column's cells as ``pyarrow.csv`` writes them."""
    if pa.types.is_float16(kind):
        return pa.float64()
    return kind if _primitive(kind) else pa.string()


def _primitive(kind: pa.DataType) -> bool:
    is_a = pa.types
    return bool(is_a.is_boolean(kind) or is_a.is_integer(kind) or is_a.is_floating(kind) or is_a.is_string(kind))


def _cells_of(column: pa.Array, field: pa.Field) -> pa.Array:
    """The cells of a column; values without a form in CSV are JSON."""
    if is_json_text(field):
        return pa.array(map(_json_cell, column.to_pylist()), pa.string())
    if pa.types.is_float16(column.type):
        return readable_numbers(column)
    if _primitive(column.type):
        return column
    if pa.types.is_nested(column.type):
        return encoded(map(finite, readable_values(column)))
    return time_texts(column) if pa.types.is_temporal(column.type) else column.cast(pa.string())


def _json_cell(text: str | None) -> str | None:
    """A value of a column of JSON as a cell: a text stands for itself unless it could be read as JSON."""
    if text is None:
        return None
    value = json.loads(text)
    return value if isinstance(value, str) and _cell_value(value) is value else text


def file_sink(path: Path, schema: pa.Schema, head: str) -> contextlib.AbstractContextManager[Sink]:
    """A CSV file that appears when it is finished, with its manifest next to it."""
    return with_manifest(path, schema, lambda file: CsvWriter(file, schema))
