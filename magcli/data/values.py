"""The values of columns as Python objects: times of any unit, and those of columns that store JSON text."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from magcli.data.json_columns import encoded, is_json_text
from magcli.data.readable import is_in_nanoseconds, nested_types, readable_values
from magcli.data.rebuild import changed_type
from magcli.errors import DataError, first_line


def to_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch, with the values of columns that store JSON text."""
    return _rows(batch, python_values)


def all_rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """The rows of all batches, as of ``to_rows``; they must fit into memory."""
    return [row for batch in batches for row in to_rows(batch)]


def readable_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a batch as people read them: see ``readable_values``."""
    return _rows(batch, readable_values)


def _rows(batch: pa.RecordBatch, of_column: Callable[[pa.Array], list[Any]]) -> list[dict[str, Any]]:
    names = batch.schema.names
    columns = [_parsed(of_column(batch.column(field.name)), field) for field in batch.schema]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _parsed(values: list[Any], field: pa.Field) -> list[Any]:
    if not is_json_text(field):
        return values
    try:
        return [None if text is None else json.loads(text) for text in values]
    except (ValueError, RecursionError):
        raise DataError(f"column {field.name} has a text that is not JSON, or is nested too deeply") from None


def from_rows(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """The inverse of ``to_rows``; a column that a row lacks is null.

    Raises:
        DataError: a column has times that Python cannot represent and that cannot be read from text.
    """
    columns = [_column([row.get(field.name) for row in rows], field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(values: list[Any], field: pa.Field) -> pa.Array:
    if is_json_text(field):
        return encoded(values)
    if not _has(field.type, pa.types.is_temporal):
        return pa.array(values, field.type)
    try:
        # As ``python_values`` has them: times in nanoseconds are text, which Arrow parses.
        return pa.array(values, _with_text(field.type, is_in_nanoseconds)).cast(field.type)
    except pa.ArrowException as error:
        raise DataError(f"column {field.name}: {first_line(error)}; convert it to text or drop it") from None


def python_values(column: pa.Array) -> list[Any]:
    """The values of a column; times that Python cannot represent, such as those in nanoseconds, are text."""
    if _has(column.type, is_in_nanoseconds):
        column = _times_as_text(column, is_in_nanoseconds)
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):  # Python's years end at 9999, its durations at a billion days
        values = _times_as_text(column, pa.types.is_temporal).to_pylist()
    return values


def _has(kind: pa.DataType, is_such: Callable[[pa.DataType], bool]) -> bool:
    """Whether ``is_such`` holds for a type, or for one nested in it."""
    return any(map(is_such, nested_types(kind)))


def _times_as_text(column: pa.Array, is_such: Callable[[pa.DataType], bool]) -> pa.Array:
    return column.cast(_with_text(column.type, is_such))


def _with_text(kind: pa.DataType, is_such: Callable[[pa.DataType], bool]) -> pa.DataType:
    """The type with text in place of those for which ``is_such`` holds."""
    return changed_type(kind, lambda part: pa.string() if is_such(part) else None)


def parse_texts(column: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    """JSON texts as values of a type; for ``string``, values that are not strings stay as written.

    Raises:
        DataError: a value is of another type.
    """
    values = [None if text is None else _parse_text(text, name, kind) for text in column.to_pylist()]
    return pa.array(values, kind)


def _parse_text(text: str, name: str, kind: pa.DataType) -> Any:
    value = json.loads(text)
    if value is None:
        return None
    if pa.types.is_string(kind):
        return value if isinstance(value, str) else text
    if pa.types.is_boolean(kind) and value in (0, 1):
        return bool(value)
    # 3.0 is a whole number too.
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_whole = is_number and value % 1 == 0
    if pa.types.is_integer(kind) and is_whole and abs(value) < 2**63:
        return int(value)
    what = "true or false" if pa.types.is_boolean(kind) else "a whole number"
    raise DataError(f"column {name} has {text[:100]}, where {what} is expected; correct it, or remove the column")
