"""A stage's door: the columns it needs are there, their rows are usable, every row has an id.

A row that cannot be used is set aside with a reason; the run goes on.
"""

import hashlib
import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from magcli.data.jsonl import TEXT_KEY
from magcli.data.schema import require
from magcli.data.source import Rows
from magcli.run.job import CELL_LIMIT, Job

TEXT = ("prompt", "answer", "completion")
"""Columns that must be text; numbers in them become text."""

EMPTY = {"prompt": "empty-prompt", "answer": "missing-answer"}
"""Columns that may not be empty, and the reason a row is dropped for when one is."""


def admit(needs: Sequence[str], schema: pa.Schema, rows: Rows, job: Job, where: str) -> tuple[pa.Schema, Rows]:
    """Check a table against what a stage needs; returns the schema after the door and the usable rows.

    Raises:
        DataError: a column is missing; the message names it, the stage and the columns that are there.
    """
    require(schema, [name for name in needs if name != "id"], stage=job.stage, where=where)
    fields = [_text_field(field) if field.name in (*TEXT, "id") else field for field in schema]
    if "id" in needs and "id" not in schema.names:
        fields.insert(0, pa.field("id", pa.string()))
    after = pa.schema(fields, metadata=schema.metadata)
    checked = [name for name in TEXT if name in needs]
    return after, (_usable(_fit(batch, after, needs), checked, job) for batch in rows)


def _text_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, pa.string())


def _fit(batch: pa.RecordBatch, schema: pa.Schema, needs: Sequence[str]) -> pa.RecordBatch:
    columns = {f.name: batch.column(f.name) for f in batch.schema}
    for name in (*TEXT, "id"):
        if name in columns:
            columns[name] = _as_text(columns[name], batch.schema.field(name))
    if "id" in needs:
        columns["id"] = _ids(columns)
    return pa.RecordBatch.from_arrays([columns[f.name] for f in schema], schema=schema)


def _as_text(column: pa.Array, field: pa.Field) -> pa.Array:
    if TEXT_KEY in (field.metadata or {}):
        return pa.array([None if text is None else _json_text(text) for text in column.to_pylist()], pa.string())
    if pa.types.is_nested(column.type):
        return pa.array([None if v is None else json.dumps(v, ensure_ascii=False) for v in column.to_pylist()])
    return column.cast(pa.string())


def _json_text(text: str) -> str | None:
    value = json.loads(text)
    return value if isinstance(value, str) or value is None else text


def _ids(columns: dict[str, pa.Array]) -> pa.Array:
    """The ids that are there; for the others a hash of prompt and answer, equal on every run."""
    size = len(next(iter(columns.values())))
    given = columns["id"].to_pylist() if "id" in columns else [None] * size
    prompts = columns["prompt"].to_pylist() if "prompt" in columns else [None] * size
    answers = columns["answer"].to_pylist() if "answer" in columns else [None] * size
    return pa.array(
        [id or _hash_id(prompt, answer) for id, prompt, answer in zip(given, prompts, answers, strict=True)],
        pa.string(),
    )


def _hash_id(prompt: str | None, answer: str | None) -> str:
    return hashlib.sha256(f"{prompt}\x1f{answer}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _usable(batch: pa.RecordBatch, names: Sequence[str], job: Job) -> pa.RecordBatch:
    reasons: list[str | None] = [None] * batch.num_rows
    for name in names:
        for row, reason in enumerate(_reasons(batch.column(name), EMPTY.get(name))):
            reasons[row] = reasons[row] or reason
    if not any(reasons):
        return batch
    for row, reason in enumerate(reasons):
        if reason is not None:
            values = batch.slice(row, 1).to_pylist()[0]
            job.drops.row(str(values.get("id") or f"row {row}"), reason, values)
    return batch.filter(pa.array([reason is None for reason in reasons]))


def _reasons(column: pa.Array, empty: str | None) -> list[str | None]:
    """Per row: why this cell makes the row unusable, or None."""
    blank = pc.fill_null(pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(column)), 0), True)
    large = pc.fill_null(pc.greater(pc.binary_length(column), CELL_LIMIT), False)
    nul = pc.fill_null(pc.match_substring(column, "\x00"), False)
    missing = pc.is_null(column)
    found: list[str | None] = []
    for is_blank, is_large, has_nul, is_missing in zip(blank, large, nul, missing, strict=True):
        if (is_blank.as_py() and empty) or is_missing.as_py():
            found.append(empty or "missing-completion")
        else:
            found.append("too-large" if is_large.as_py() else "nul-byte" if has_nul.as_py() else None)
    return found
