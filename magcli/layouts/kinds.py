"""Whether a problem with tests asks for a program: one that has tests and no answer is of kind code."""

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
    # Tests in another form are those of a layout.
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
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    nothing = pa.nulls(batch.num_rows, pa.string())
    stated_kinds = columns.get("kind", nothing)
    num_tests = pc.list_value_length(columns["tests"])
    # The length of a null is null.
    has_tests = pc.fill_null(pc.greater(num_tests, 0), False)
    has_answer = _answered(batch)
    lacks_kind = pc.and_(has_tests, stated_kinds.is_null())
    is_code = pc.and_(lacks_kind, pc.invert(has_answer))
    is_ambiguous = pc.and_(lacks_kind, has_answer)
    columns["kind"] = pc.if_else(is_code, "code", stated_kinds)
    reasons = pc.if_else(is_ambiguous, BOTH, nothing)
    # A row that could not be read before keeps that reason.
    columns[UNREAD] = pc.coalesce(columns.get(UNREAD, nothing), reasons)
    return pa.RecordBatch.from_pydict(columns, schema=schema)


def _answered(batch: pa.RecordBatch) -> pa.Array:
    """Which rows have an answer, under any of its names."""
    column = next((name for name in ("answer", *names.PROBLEM["answer"]) if name in batch.schema.names), None)
    if column is None:
        return pa.array([False] * batch.num_rows)
    values = batch.column(column)
    if not pa.types.is_string(values.type):
        return values.is_valid()
    length = pc.utf8_length(pc.utf8_trim_whitespace(values))
    return pc.fill_null(pc.greater(length, 0), False)
