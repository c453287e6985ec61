"""Columns added to rows: a stage's own columns take the place of older ones of the same name."""

import pyarrow as pa


def extended(schema: pa.Schema, extra: pa.Schema) -> pa.Schema:
    """The columns of a table after a stage added its own."""
    return pa.schema([field for field in schema if field.name not in extra.names] + list(extra), schema.metadata)


def attach(batch: pa.RecordBatch, extra: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with more columns; both have the same number of rows."""
    schema = extended(batch.schema, extra.schema)
    columns = [(extra if name in extra.schema.names else batch).column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def repeated(batch: pa.RecordBatch, count: int) -> pa.RecordBatch:
    """Each row ``count`` times, one after the other."""
    return batch.take(pa.array([row for row in range(batch.num_rows) for _ in range(count)], pa.int64()))
