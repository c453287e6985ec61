"""Columns of tables: add columns, and combine the columns of several tables."""

import json
from collections.abc import Sequence

import pyarrow as pa

from magcli.data.schema import TEXT_COLUMNS
from magcli.data.types import ABSENT_KEY, TEXT_KEY, is_json_text
from magcli.errors import DataError, first_line


def extend_schema(schema: pa.Schema, extra: pa.Schema) -> pa.Schema:
    """The schema with more columns at the end, which replace those of the same name."""
    return pa.schema([field for field in schema if field.name not in extra.names] + list(extra), schema.metadata)


def with_columns(batch: pa.RecordBatch, extra: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with more columns, as ``extend_schema`` orders them."""
    schema = extend_schema(batch.schema, extra.schema)
    columns = [(extra if name in extra.schema.names else batch).column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def repeat_rows(batch: pa.RecordBatch, count: int) -> pa.RecordBatch:
    """Each row ``count`` times, one after the other."""
    return batch.take(pa.array([row for row in range(batch.num_rows) for _ in range(count)], pa.int64()))


def common_schema(schemas: Sequence[pa.Schema], names: Sequence[str]) -> pa.Schema:
    """The schema of several tables as one: all columns, in order of appearance.

    Raises:
        DataError: a column has types that have no common one.
    """
    if len(schemas) < 2:
        return schemas[0] if schemas else pa.schema([])
    columns = dict.fromkeys(name for schema in schemas for name in schema.names)
    return pa.schema([_common_field(column, schemas, names) for column in columns], schemas[0].metadata)


def _common_field(column: str, schemas: Sequence[pa.Schema], names: Sequence[str]) -> pa.Field:
    fields = [schema.field(column) for schema in schemas if column in schema.names]
    marks = {mark for field in fields for mark in field.metadata or {}}
    if TEXT_KEY in marks or (column in TEXT_COLUMNS and _mixes_numbers(fields)):
        return pa.field(column, pa.string(), metadata={TEXT_KEY: b"1"})
    try:
        single = [pa.schema([field.remove_metadata()]) for field in fields]
        kind = pa.unify_schemas(single, promote_options="permissive").field(0).type
    except pa.ArrowException as error:
        raise DataError(f"column {column} has different types in {', '.join(names)}: {first_line(error)}") from None
    absent = len(fields) < len(schemas) or ABSENT_KEY in marks
    return pa.field(column, kind, metadata={ABSENT_KEY: b"1"} if absent else None)


def _mixes_numbers(fields: Sequence[pa.Field]) -> bool:
    """Whether a column has integers in one table and floats in another; as text each must stay as written."""
    is_a = pa.types
    return any(is_a.is_integer(f.type) for f in fields) and any(is_a.is_floating(f.type) for f in fields)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A table's rows in the common schema; missing columns are null.

    Raises:
        DataError: a value does not fit into the common type.
    """
    return pa.RecordBatch.from_arrays([_column(batch, field) for field in schema], schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    column, given = batch.column(field.name), batch.schema.field(field.name)
    if is_json_text(field) and not is_json_text(given):
        values = column.to_pylist()
        return pa.array(
            [None if value is None else json.dumps(value, ensure_ascii=False) for value in values], pa.string()
        )
    try:
        return column if column.type == field.type else column.cast(field.type)
    except pa.ArrowException as error:
        what = f"column {field.name} is {given.type} here and {field.type} in another input"
        raise DataError(f"{what}: {first_line(error)}; convert it to text, or process the inputs separately") from None
