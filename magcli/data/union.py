"""Several tables as one: every column of any of them, in the order of their first appearance."""

import json
from collections.abc import Sequence

import pyarrow as pa

from magcli.data.jsontypes import ABSENT_KEY, TEXT_KEY
from magcli.data.schema import TEXTS
from magcli.data.source import brief
from magcli.errors import DataError


def common_schema(schemas: Sequence[pa.Schema], names: Sequence[str]) -> pa.Schema:
    """The schema that holds the rows of all tables.

    Raises:
        DataError: a column has types that no one type holds.
    """
    if len(schemas) < 2:
        return schemas[0] if schemas else pa.schema([])
    columns = dict.fromkeys(name for schema in schemas for name in schema.names)
    return pa.schema([_common_field(column, schemas, names) for column in columns], schemas[0].metadata)


def _common_field(column: str, schemas: Sequence[pa.Schema], names: Sequence[str]) -> pa.Field:
    fields = [schema.field(column) for schema in schemas if column in schema.names]
    marks = {mark for field in fields for mark in field.metadata or {}}
    if TEXT_KEY in marks or (column in TEXTS and _two_kinds(fields)):
        return pa.field(column, pa.string(), metadata={TEXT_KEY: b"1"})
    try:
        single = [pa.schema([field.remove_metadata()]) for field in fields]
        kind = pa.unify_schemas(single, promote_options="permissive").field(0).type
    except pa.ArrowException as error:
        raise DataError(f"column {column} does not fit together in {', '.join(names)}: {brief(error)}") from None
    absent = len(fields) < len(schemas) or ABSENT_KEY in marks
    return pa.field(column, kind, metadata={ABSENT_KEY: b"1"} if absent else None)


def _two_kinds(fields: Sequence[pa.Field]) -> bool:
    """Whether numbers are whole in one table and broken in another: as text each has to stay as it is written."""
    is_a = pa.types
    return any(is_a.is_integer(f.type) for f in fields) and any(is_a.is_floating(f.type) for f in fields)


def widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A table's rows in the common schema; columns that it lacks are null.

    Raises:
        DataError: a value does not fit into the common type.
    """
    return pa.RecordBatch.from_arrays([_column(batch, field) for field in schema], schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    column, given = batch.column(field.name), batch.schema.field(field.name)
    if TEXT_KEY in (field.metadata or {}) and TEXT_KEY not in (given.metadata or {}):
        values = column.to_pylist()
        return pa.array(
            [None if value is None else json.dumps(value, ensure_ascii=False) for value in values], pa.string()
        )
    try:
        return column if column.type == field.type else column.cast(field.type)
    except pa.ArrowException as error:
        what = f"column {field.name} is {given.type} here and {field.type} in another input"
        raise DataError(f"{what}: {brief(error)}; write it as text, or give the inputs one by one") from None
