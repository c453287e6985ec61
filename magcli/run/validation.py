"""Validation of a stage's input: required columns are present, unusable rows are dropped, every row has an id.

A row that cannot be used is dropped with a reason; the run continues. A stage may accept other tools' names of columns;
a message says which were renamed.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from magcli.data.json_columns import encoded, is_json_text
from magcli.data.schema import KNOWN, require, resolve_aliases
from magcli.data.shapes import ABSENT_KEY
from magcli.data.source import Rows
from magcli.data.values import parse_texts, python_values, to_rows
from magcli.errors import DataError
from magcli.run.job import CELL_LIMIT, Job
from magcli.run.stage import Stage

TEXT = ("prompt", "answer", "completion")
"""Columns that must be text; numbers in them become text."""

TURNS = ("prompt", "completion")
"""Columns that other tools store as conversations."""

MISSING = {"prompt": "empty-prompt", "answer": "missing-answer", "completion": "missing-completion"}
"""Why a row without a value in one of these columns is dropped."""

EMPTY = ("prompt", "answer")
"""Columns in which blank text counts as missing."""

UNREAD = "_unread"
"""A column that says why a row cannot be read in its table's layout: the reason, a tab, and what is wrong."""

ID_LIMIT = 200
"""Maximum number of characters of a dropped row's id."""


def validate_rows(
    required: Sequence[str],
    schema: pa.Schema,
    rows: Rows,
    job: Job,
    where: str,
    aliases: Mapping[str, Sequence[str]] | None = None,
) -> tuple[pa.Schema, Rows]:
    """Check a table against the columns that a stage requires; returns the schema and the usable rows.

    ``answer|tests`` requires either column, and of a row either value.

    Raises:
        DataError: a column is missing; the message names it, the stage and the existing columns.
    """
    renames = resolve_aliases(schema, required, aliases or {})
    if renames:
        schema, rows = _renamed(renames, schema, rows, job)
    visible = [field for field in schema if field.name != UNREAD]
    without_id = [name for name in required if name != "id"]  # a table without ids gets some
    require(pa.schema(visible), without_id, stage=job.stage, where=where)
    names, alternatives = _present(required, schema)
    fields = [_converted(field, names) for field in visible]
    if "id" in names and "id" not in schema.names:
        fields.insert(0, pa.field("id", pa.string()))
    validated = pa.schema(fields, metadata=schema.metadata)
    return validated, _valid_rows(names, alternatives, validated, rows, job)


def usable_rows(stage: Stage, config: Any, job: Job, names: Sequence[str]) -> Rows:
    """The usable rows of a job's inputs, tables of these names; the job gets their columns.

    Raises:
        DataError: as ``validate_rows``.
    """
    assert job.inputs is not None
    columns = stage.reads(config) or ()
    where = ", ".join(names)
    job.schema, rows = validate_rows(columns, job.inputs.schema, job.inputs.rows(), job, where)
    return rows


def _converted(field: pa.Field, names: Sequence[str]) -> pa.Field:
    """The field of a column after validation; without required columns the table stays as it is."""
    if _must_be_text(field, names):
        return pa.field(field.name, pa.string())
    if names and _is_of_another_type(field):
        return pa.field(field.name, KNOWN[field.name], metadata={ABSENT_KEY: b"1"})
    return field


def _must_be_text(field: pa.Field, names: Sequence[str]) -> bool:
    return field.name in (*TEXT, "id") and field.name in names


def _is_of_another_type(field: pa.Field) -> bool:
    """Whether a known column has values of several types, or floats where integers are expected."""
    kind = KNOWN.get(field.name)
    if kind is None:
        return False
    return is_json_text(field) or (pa.types.is_integer(kind) and pa.types.is_floating(field.type))


def _renamed(renames: Mapping[str, str], schema: pa.Schema, rows: Rows, job: Job) -> tuple[pa.Schema, Rows]:
    columns = ", ".join(f"{alias} as {name}" for alias, name in renames.items())
    job.console.say(f"{job.stage}: reading {columns}", event="renamed", columns=dict(renames))
    names = []
    fields = []
    for field in schema:
        name = renames.get(field.name, field.name)
        names.append(name)
        fields.append(field.with_name(name))
    renamed = pa.schema(fields, schema.metadata)
    return renamed, (batch.rename_columns(names) for batch in rows)


def _present(required: Sequence[str], schema: pa.Schema) -> tuple[list[str], dict[str, str]]:
    """The required columns that exist, and the id; and which column can replace which."""
    available = {*schema.names, "id"}
    names: list[str] = []
    alternatives = {}
    for need in required:
        present = [name for name in need.split("|") if name in available]
        names += present
        if len(present) > 1:
            alternatives[present[0]] = present[1]
    return names, alternatives


def _valid_rows(names: Sequence[str], alternatives: Mapping[str, str], schema: pa.Schema, rows: Rows, job: Job) -> Rows:
    before = 0
    for batch in rows:
        converted = _convert(batch, schema, names)
        # The values as they came too, as bytes that are not UTF-8 are null by now.
        reasons = _reasons(batch, converted, names, alternatives)
        if UNREAD in batch.schema.names:
            reasons = pc.coalesce(batch.column(UNREAD), reasons)
        yield _usable(converted, reasons, job, before)
        before += batch.num_rows


def _key(values: Mapping[str, Any], row: int) -> str:
    """The id of a dropped row, or its number, counted from 1."""
    return str(values.get("id") or f"row {row + 1}")[:ID_LIMIT]


def _convert(batch: pa.RecordBatch, schema: pa.Schema, names: Sequence[str]) -> pa.RecordBatch:
    columns = {}
    for field in batch.schema:
        if field.name != UNREAD:
            columns[field.name] = _convert_column(batch.column(field.name), field, names)
    if "id" in names:
        columns["id"] = _ids(columns, batch.num_rows)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _convert_column(column: pa.Array, field: pa.Field, names: Sequence[str]) -> pa.Array:
    if _must_be_text(field, names):
        return as_text(column, field)
    if not names:
        return column
    if is_json_text(field):  # earlier versions wrote null as text
        column = pc.if_else(pc.equal(column, "null"), pa.scalar(None, pa.string()), column)
    if not _is_of_another_type(field):
        return column
    texts = column if is_json_text(field) else encoded(column.to_pylist())
    return parse_texts(texts, field.name, KNOWN[field.name])


def as_text(column: pa.Array, field: pa.Field) -> pa.Array:
    """The values of a column that must be text."""
    if is_json_text(field):
        values: list[str | None] = []
        for text in column.to_pylist():
            values.append(None if text is None else _value_text(json.loads(text), field, text))
        return pa.array(values, pa.string())
    if pa.types.is_nested(column.type):
        values = [_value_text(value, field) for value in python_values(column)]
        return pa.array(values, pa.string())
    if pa.types.is_binary(column.type):
        values = [_decoded(value) for value in column.to_pylist()]
        return pa.array(values, pa.string())
    texts = column.cast(pa.string())
    # One pass in Arrow, because almost no column of answers has such a text.
    if field.name == "answer" and pc.any(pc.starts_with(texts, '["')).as_py():
        return pa.array(map(_only_answer, texts.to_pylist()), pa.string())
    return texts


def _only_answer(text: str | None) -> str | None:
    """The answer in the JSON text of a list of one text, as Skywork-OR1 stores it; other texts as they are."""
    if not text or not text.startswith('["'):
        return text
    try:
        values = json.loads(text)
    except ValueError:
        return text
    is_single = len(values) == 1 and isinstance(values[0], str)
    return values[0] if is_single else text


def _value_text(value: Any, field: pa.Field, text: str = "") -> str | None:
    """A value as text: the only turn of a conversation, the only answer of a list; else its JSON.

    Raises:
        DataError: a conversation has several turns.
    """
    if isinstance(value, str) or value is None:
        return value
    if isinstance(value, list) and value:
        if field.name in TURNS and all(map(_is_turn, value)):
            return _only_turn(value, field)
        is_single = len(value) == 1 and type(value[0]) in (str, int, float)  # a bool is no answer
        if field.name == "answer" and is_single:
            return str(value[0])
    return text or json.dumps(value, ensure_ascii=False, default=str)


def _only_turn(turns: Sequence[Mapping[str, Any]], field: pa.Field) -> str:
    """The text of the only turn of a conversation.

    Raises:
        DataError: it has several turns.
    """
    if len(turns) > 1:
        roles = ", ".join(str(turn["role"]) for turn in turns)
        problem = f"column {field.name} holds a conversation ({roles}), but one text is expected"
        raise DataError(f"{problem}; keep the question or the answer only, and give a system prompt by --system")
    return str(turns[0]["content"])


def _is_turn(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str) and isinstance(value.get("content"), str)


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _ids(columns: dict[str, pa.Array], size: int) -> pa.Array:
    """The given ids; for rows without one a hash of prompt and answer, or of all columns if the table has neither."""
    names = ["prompt", "answer"]
    if columns.keys().isdisjoint(names):
        names = sorted(columns)
    absent = [None] * size
    values = [columns[name].to_pylist() if name in columns else absent for name in names]
    given = columns["id"].to_pylist() if "id" in columns else absent
    ids = []
    for id, *row in zip(given, *values, strict=True):
        # ASCII's unit separator keeps "12" and "3" apart from "1" and "23".
        ids.append(id or _hash("\x1f".join(map(str, row))))
    return pa.array(ids, pa.string())


def _hash(content: str) -> str:
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _usable(batch: pa.RecordBatch, reasons: pa.Array, job: Job, before: int) -> pa.RecordBatch:
    """The rows without a reason to drop them; the others are dropped. ``before``: rows of earlier batches.

    A reason may have what is wrong behind a tab, as in ``UNREAD``.
    """
    if reasons.null_count == len(reasons):
        return batch
    for row in pc.indices_nonzero(reasons.is_valid()).to_pylist():
        (values,) = to_rows(batch.slice(row, 1))
        reason, _, error = reasons[row].as_py().partition("\t")
        job.drops.row(_key(values, before + row), reason, values, error=error)
    return batch.filter(reasons.is_null())


def _reasons(
    batch: pa.RecordBatch, converted: pa.RecordBatch, names: Sequence[str], alternatives: Mapping[str, str]
) -> pa.Array:
    """Per row, why it cannot be used: the first reason found, or null."""
    reasons = pa.nulls(converted.num_rows, pa.string())
    for name in [name for name in TEXT if name in names]:
        column = converted.column(name)
        original = batch.column(name)
        if pa.types.is_binary(original.type):  # bytes that are not UTF-8 have become null
            is_lost = pc.and_(column.is_null(), original.is_valid())
            reasons = _add_reason(reasons, is_lost, "broken-text")
        is_missing = column.is_null()
        # An empty completion is an answer, if a wrong one.
        if name in EMPTY:
            is_blank = pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(column)), 0)
            is_missing = pc.or_(is_missing, pc.fill_null(is_blank, False))
        other = alternatives.get(name)
        if other:
            has_other = _filled(converted.column(other))
            is_missing = pc.and_(is_missing, pc.invert(has_other))
        reasons = _add_reason(reasons, is_missing, MISSING[name])
        reasons = _add_reason(reasons, pc.match_substring(column, "\x00"), "nul-byte")
    if not names:
        return reasons
    for column in converted.columns:
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            is_too_large = pc.greater(pc.binary_length(column), CELL_LIMIT)
            reasons = _add_reason(reasons, is_too_large, "too-large")
    return reasons


def _filled(column: pa.Array) -> pa.Array:
    """Where a column of lists, texts or mappings has a value that is not empty."""
    if pa.types.is_struct(column.type):
        return column.is_valid()
    is_list = pa.types.is_list(column.type)
    size = pc.list_value_length(column) if is_list else pc.utf8_length(column.cast(pa.string()))
    return pc.greater(pc.fill_null(size, 0), 0)


def _add_reason(reasons: pa.Array, holds: pa.Array, reason: str) -> pa.Array:
    """Give a reason to the rows for which a condition holds and that have none yet."""
    added = pc.if_else(pc.fill_null(holds, False), pa.scalar(reason), pa.scalar(None, pa.string()))
    return pc.coalesce(reasons, added)
