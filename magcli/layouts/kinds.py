"""Whether a problem with tests asks for a program: one that has tests and no answer is of kind code."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from magcli.data.source import Rows
from magcli.layouts import names
from magcli.run.layout import Converted
from magcli.run.validation import UNREAD

KIND = pa.field("kind", pa.string())
BOTH = "ambiguous-kind\tthe row has an answer and tests; column kind must say math or code"


def with_kinds(input_schema: pa.Schema) -> Converted | None:
    """The table with the kind of each row that has tests but no kind; None if there are no such rows.

    A row with an answer, tests and no kind is ambiguous, and is marked in column ``UNREAD``.
    """
    if "tests" not in input_schema.names or not pa.types.is_list(input_schema.field("tests").type):
        return None
    if "kind" in input_schema.names and not pa.types.is_string(input_schema.field("kind").type):
        return None
    fields = [field for field in input_schema if field.name not in (KIND.name, UNREAD)]
    schema = pa.schema([*fields, KIND, pa.field(UNREAD, pa.string())], input_schema.metadata)

    def rows(batches: Rows) -> Rows:
        for batch in batches:
            yield _with_kinds(batch, schema)

    return Converted(schema, rows, {}, "")


def _with_kinds(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    nothing = pa.nulls(batch.num_rows, pa.string())
    stated_kinds = batch.column("kind") if "kind" in batch.schema.names else nothing
    why = batch.column(UNREAD) if UNREAD in batch.schema.names else nothing
    tested = pc.fill_null(pc.greater(pc.list_value_length(batch.column("tests")), 0), False)
    is_open = pc.and_(tested, stated_kinds.is_null())
    answered = _answered(batch)
    kind = pc.if_else(pc.and_(is_open, pc.invert(answered)), "code", stated_kinds)
    why = pc.coalesce(why, pc.if_else(pc.and_(is_open, answered), BOTH, nothing))
    columns = {**dict(zip(batch.schema.names, batch.columns, strict=True)), "kind": kind, UNREAD: why}
    return pa.RecordBatch.from_arrays([columns[field.name] for field in schema], schema=schema)


def _answered(batch: pa.RecordBatch) -> pa.Array:
    """Which rows have an answer, under any of its names."""
    column = _answer_column(batch.schema.names)
    if column is None:
        return pa.array([False] * batch.num_rows)
    values = batch.column(column)
    if not pa.types.is_string(values.type):
        return values.is_valid()
    return pc.fill_null(pc.greater(pc.utf8_length(pc.utf8_trim_whitespace(values)), 0), False)


def _answer_column(present: Sequence[str]) -> str | None:
    return next((name for name in ("answer", *names.PROBLEM["answer"]) if name in present), None)
