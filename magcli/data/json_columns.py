"""Columns of JSON values without a common type: text of JSON within magcli, ``arrow.json`` in Arrow and Parquet files.

``arrow.json`` is Arrow's extension type for JSON, `datasets`' feature ``Json()``. Other tools use it at any depth, for
example a list of JSON objects; magcli reads such a column as a column of JSON.
"""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from magcli.errors import DataError, first_line

TEXT_KEY = b"magcli.json_text"
"""Marks a column that stores each value as JSON text."""
DECODER = json.JSONDecoder(parse_constant=lambda _: None)
"""NaN and Infinity are not JSON; they are null."""


def json_field(name: str, marks: Mapping[bytes, bytes] | None = None) -> pa.Field:
    """A column that stores each value as JSON text."""
    return pa.field(name, pa.string(), metadata={**(marks or {}), TEXT_KEY: b"1"})


def is_json_text(field: pa.Field) -> bool:
    """Whether a column stores each value as JSON text."""
    return TEXT_KEY in (field.metadata or {})


def holds_json(kind: pa.DataType) -> bool:
    """Whether a type is ``arrow.json``, or has it at any depth."""
    if isinstance(kind, pa.JsonType):
        return True
    if not pa.types.is_nested(kind):
        return False
    return any(holds_json(kind.field(i).type) for i in range(kind.num_fields))


def json_texts(column: pa.Array, name: str) -> pa.Array:
    """A column whose type ``holds_json`` as JSON text.

    Raises:
        DataError: a text in it is not JSON.
    """
    try:
        if isinstance(column.type, pa.JsonType):
            return pa.array(map(_checked, column.to_pylist()), pa.string())
        return pa.array(map(dumps, parsed_values(column)), pa.string())
    except (ValueError, RecursionError) as error:
        raise DataError(f"column {name} has a text that is not JSON: {first_line(error)}") from None


def _checked(text: str | None) -> str | None:
    """A JSON text of another tool, in one line; null is null."""
    if text is None:
        return None
    value = DECODER.decode(text)
    return dumps(value) if value is None or "\n" in text or "N" in text or "I" in text else text


def dumps(value: Any) -> str | None:
    """A value as JSON text; null is null."""
    return None if value is None else json.dumps(value, ensure_ascii=False, default=str)


def parsed_values(column: pa.Array) -> list[Any]:
    """The values of a column whose type ``holds_json``, with those of JSON parsed."""
    return [_parsed(value, column.type) for value in column.to_pylist()]


def _parsed(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if isinstance(kind, pa.JsonType):
        return DECODER.decode(value)
    if isinstance(kind, pa.BaseExtensionType):
        return _parsed(value, kind.storage_type)
    if pa.types.is_struct(kind):
        return {field.name: _parsed(value[field.name], field.type) for field in kind}
    if pa.types.is_nested(kind) and not pa.types.is_map(kind) and kind.num_fields == 1:
        return [_parsed(part, kind.value_type) for part in value]
    return value


def with_arrow_json(schema: pa.Schema) -> pa.Schema:
    """The schema for Arrow and Parquet files: columns of JSON text are ``arrow.json``."""
    return pa.schema([_as_arrow_json(field) for field in schema], schema.metadata)


def _as_arrow_json(field: pa.Field) -> pa.Field:
    if not is_json_text(field):
        return field
    marks = {key: value for key, value in field.metadata.items() if key != TEXT_KEY}
    return pa.field(field.name, pa.json_(), metadata=marks or None)


def encoded(values: Iterable[Any]) -> pa.Array:
    """Values as a column of JSON text."""
    return pa.array(map(dumps, values), pa.string())


def finite(value: Any) -> Any:
    """A value with null in place of NaN and Infinity, at any depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    return [finite(part) for part in value] if isinstance(value, list) else value
