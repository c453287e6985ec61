"""A stage's door: the columns it needs are there, their rows are usable, every row has an id.

A row that cannot be used is set aside with a reason; the run goes on. A stage may take columns that other tools name
otherwise for what they are; people are told so.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from magcli.data.schema import KNOWN, KNOWN_JSON, require, resolve_aliases
from magcli.data.source import Rows
from magcli.data.types import ABSENT_KEY, is_json_text, parse_texts
from magcli.errors import DataError
from magcli.run.job import CELL_LIMIT, Job

TEXT = ("prompt", "answer", "completion")
"""Columns that must be text; numbers in them become text."""

TURNS = ("prompt", "completion")
"""Columns that other tools give as conversations."""

MISSING = {"prompt": "empty-prompt", "answer": "missing-answer", "completion": "missing-completion"}
"""Why a row is dropped that lacks one of these."""

EMPTY = ("prompt", "answer")
"""Columns in which blank text is as good as none."""

ID_LIMIT = 200
"""Characters of an id that are told of a dropped row."""


def admit(
    needs: Sequence[str],
    schema: pa.Schema,
    rows: Rows,
    job: Job,
    where: str,
    aliases: Mapping[str, Sequence[str]] | None = None,
) -> tuple[pa.Schema, Rows]:
    """Check a table against what a stage needs; returns the schema after the door and the usable rows.

    A need such as ``answer|tests`` is met by either column, and a row by either value.

    Raises:
        DataError: a column is missing; the message names it, the stage and the columns that are there.
    """
    if found := resolve_aliases(schema, needs, aliases or {}):
        schema, rows = _renamed(found, schema, rows, job)
    require(schema, [name for name in needs if name != "id"], stage=job.stage, where=where)
    needs, either = _present(needs, schema)
    fields = [_behind(field, needs) for field in schema]
    if "id" in needs and "id" not in schema.names:
        fields.insert(0, pa.field("id", pa.string()))
    after = pa.schema(fields, metadata=schema.metadata)
    return after, _admitted(needs, either, after, rows, job)


def _behind(field: pa.Field, needs: Sequence[str]) -> pa.Field:
    """A column as it comes out; a stage that needs none takes the table as it is."""
    if field.name in (*TEXT, "id") and field.name in needs:
        return pa.field(field.name, pa.string())
    if needs and is_json_text(field) and field.name in KNOWN:
        return pa.field(field.name, KNOWN[field.name], metadata={ABSENT_KEY: b"1"})
    return field


def _renamed(found: Mapping[str, str], schema: pa.Schema, rows: Rows, job: Job) -> tuple[pa.Schema, Rows]:
    told = ", ".join(f"{alias} as {name}" for alias, name in found.items())
    job.console.say(f"{job.stage}: reading {told}", event="renamed", columns=dict(found))
    names = [found.get(name, name) for name in schema.names]
    fields = [field.with_name(name) for field, name in zip(schema, names, strict=True)]
    return pa.schema(fields, schema.metadata), (batch.rename_columns(names) for batch in rows)


def _present(needs: Sequence[str], schema: pa.Schema) -> tuple[list[str], dict[str, str]]:
    """The needed columns that are there, and the id; and of those that another one can stand in for, which."""
    groups = [[name for name in need.split("|") if name in schema.names or name == "id"] for need in needs]
    return [name for group in groups for name in group], {group[0]: group[1] for group in groups if len(group) > 1}


def _admitted(needs: Sequence[str], either: Mapping[str, str], schema: pa.Schema, rows: Rows, job: Job) -> Rows:
    before = 0
    for batch in rows:
        fitted = _fit(batch, schema, needs)
        yield _usable(fitted, _reasons(batch, fitted, needs, either), job, before)
        before += batch.num_rows


def _fit(batch: pa.RecordBatch, schema: pa.Schema, needs: Sequence[str]) -> pa.RecordBatch:
    columns = {f.name: _fitted(batch.column(f.name), f, needs) for f in batch.schema}
    if "id" in needs:
        columns["id"] = _ids(columns, batch.num_rows)
    return pa.RecordBatch.from_arrays([columns[f.name] for f in schema], schema=schema)


def _fitted(column: pa.Array, field: pa.Field, needs: Sequence[str]) -> pa.Array:
    if field.name in (*TEXT, "id") and field.name in needs:
        return _as_text(column, field)
    if not needs or not is_json_text(field):
        return column
    if field.name in KNOWN:
        return parse_texts(column, field.name, KNOWN[field.name])
    if field.name in KNOWN_JSON:
        return pc.if_else(pc.equal(column, "null"), pa.scalar(None, pa.string()), column)
    return column


def _as_text(column: pa.Array, field: pa.Field) -> pa.Array:
    if is_json_text(field):
        texts = column.to_pylist()
        return pa.array([None if text is None else _told(json.loads(text), field, text) for text in texts], pa.string())
    if pa.types.is_nested(column.type):
        return pa.array([None if value is None else _told(value, field) for value in column.to_pylist()], pa.string())
    if pa.types.is_binary(column.type):
        return pa.array([_decoded(value) for value in column.to_pylist()], pa.string())
    return column.cast(pa.string())


def _told(value: Any, field: pa.Field, text: str = "") -> str | None:
    """A value as text: of a conversation its only turn, as other tools put prompts and completions, of a list of one
    answer that answer; else its JSON.

    Raises:
        DataError: a conversation has several turns.
    """
    if isinstance(value, str) or value is None:
        return value
    if field.name in TURNS and isinstance(value, list) and value and all(map(_is_turn, value)):
        if len(value) > 1:
            roles = ", ".join(str(turn["role"]) for turn in value)
            what = f"column {field.name} has a conversation ({roles}), where one text is expected"
            raise DataError(f"{what}; give the question or the answer alone, a system prompt by --system")
        return str(value[0]["content"])
    if (
        field.name == "answer"
        and isinstance(value, list)
        and [type(each) in (str, int, float) for each in value] == [True]
    ):
        return str(value[0])
    return text or json.dumps(value, ensure_ascii=False, default=str)


def _is_turn(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str) and isinstance(value.get("content"), str)


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _ids(columns: dict[str, pa.Array], size: int) -> pa.Array:
    """The ids that are there; for the others a hash of prompt and answer, equal on every run."""
    nothing = [None] * size
    given, prompts, answers = (
        columns[name].to_pylist() if name in columns else nothing for name in ("id", "prompt", "answer")
    )
    filled = (id or _hash_id(prompt, answer) for id, prompt, answer in zip(given, prompts, answers, strict=True))
    return pa.array(filled, pa.string())


def _hash_id(prompt: str | None, answer: str | None) -> str:
    return hashlib.sha256(f"{prompt}\x1f{answer}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _usable(batch: pa.RecordBatch, reasons: pa.Array, job: Job, before: int) -> pa.RecordBatch:
    """The rows without a reason against them; the others are dropped. ``before``: rows of earlier batches."""
    if reasons.null_count == len(reasons):
        return batch
    for row in pc.indices_nonzero(reasons.is_valid()).to_pylist():
        values = batch.slice(row, 1).to_pylist()[0]
        job.drops.row(str(values.get("id") or f"row {before + row + 1}")[:ID_LIMIT], reasons[row].as_py(), values)
    return batch.filter(reasons.is_null())


def _reasons(
    given: pa.RecordBatch, fitted: pa.RecordBatch, needs: Sequence[str], either: Mapping[str, str]
) -> pa.Array:
    """Per row, why it cannot be used: the first reason found, or null."""
    reasons = pa.nulls(fitted.num_rows, pa.string())
    for name in [name for name in TEXT if name in needs]:
        column = fitted.column(name)
        lost = pc.and_(column.is_null(), given.column(name).is_valid())
        reasons = _noted(reasons, pc.and_(lost, pa.scalar(pa.types.is_binary(given.column(name).type))), "broken-text")
        alone = pc.invert(_filled(fitted.column(either[name]))) if name in either else pa.scalar(True)
        reasons = _noted(reasons, pc.and_(column.is_null(), alone), MISSING[name])
        if name in EMPTY:
            blank = pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(column)), 0)
            reasons = _noted(reasons, pc.and_(blank, alone), MISSING[name])
        reasons = _noted(reasons, pc.match_substring(column, "\x00"), "nul-byte")
    for column in fitted.columns if needs else ():
        if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
            reasons = _noted(reasons, pc.greater(pc.binary_length(column), CELL_LIMIT), "too-large")
    return reasons


def _filled(column: pa.Array) -> pa.Array:
    """Where a column has a value that is not empty; a value is a list, a text or a mapping."""
    if pa.types.is_struct(column.type):
        return column.is_valid()
    size = pc.list_value_length(column) if pa.types.is_list(column.type) else pc.utf8_length(column.cast(pa.string()))
    return pc.greater(pc.fill_null(size, 0), 0)


def _noted(reasons: pa.Array, holds: pa.Array, reason: str) -> pa.Array:
    """Give a reason to the rows for which something holds and that have none yet."""
    told = pc.if_else(pc.fill_null(holds, False), pa.scalar(reason), pa.scalar(None, pa.string()))
    return pc.coalesce(reasons, told)
