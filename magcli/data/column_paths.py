"""Columns by their path, such as ``reward_model.ground_truth``: a column, or a value within the objects of one.

A column whose own name has dots is found by that name first.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from magcli.config import did_you_mean
from magcli.data.json_columns import DECODER, encoded, is_json_text, json_field
from magcli.errors import DataError


def top_name(path: str, schema: pa.Schema) -> str | None:
    """The column that a path names or starts in; None if there is none."""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):  # the longest name first, as a column's own name may have dots
        name = ".".join(parts[:count])
        if schema.get_field_index(name) >= 0:
            return name
    return None


def has(path: str, schema: pa.Schema) -> bool:
    """Whether a path leads to a column or a value in one."""
    try:
        field_at(schema, path)
    except DataError:
        return False
    return True


def field_at(schema: pa.Schema, path: str) -> pa.Field:
    """The field that a path leads to, named by the path; within a column of JSON it is JSON.

    Raises:
        DataError: it leads nowhere; the message names what is there.
    """
    top, keys = _split(path, schema)
    field = schema.field(top)
    if not keys:
        return field
    # What a key leads to differs from row to row.
    if is_json_text(field):
        return json_field(path)
    for key in keys:
        if not pa.types.is_struct(field.type):
            raise DataError(f"column {path}: {field.name} holds no objects but {field.type}")
        names = [part.name for part in field.type]
        if key not in names:
            raise DataError(f"column {path}: {field.name} has no '{key}'{did_you_mean(key, names)}")
        field = field.type.field(key)
    return field.with_name(path)


def column_at(batch: pa.RecordBatch, path: str) -> pa.Array:
    """The values that a path leads to, of the type that ``field_at`` says.

    Raises:
        DataError: it leads nowhere.
    """
    # Its messages say what there is, unlike those of Arrow.
    field_at(batch.schema, path)
    top, keys = _split(path, batch.schema)
    column = batch.column(top)
    if keys and is_json_text(batch.schema.field(top)):
        return encoded(_inner(text, keys) for text in column.to_pylist())
    return pc.struct_field(column, keys) if keys else column


def _split(path: str, schema: pa.Schema) -> tuple[str, list[str]]:
    top = top_name(path, schema)
    if top is None:
        raise DataError(f"no column '{path}'{did_you_mean(path, schema.names)}")
    rest = path[len(top) + 1 :]
    return top, rest.split(".") if rest else []


def _inner(text: str | None, keys: Sequence[str]) -> Any:
    """The value under nested keys of a JSON text; None if there is none."""
    value = None if text is None else DECODER.decode(text)
    for key in keys:
        # Objects differ from row to row, and any other value has no keys.
        value = value.get(key) if isinstance(value, dict) else None
    return value
