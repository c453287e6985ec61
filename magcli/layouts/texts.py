"""Columns of text in which a completion may be the JSON of what an API returned, as CSV files and some loggers have it.

Only such texts are parsed; a completion that is JSON by itself stays as it is.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from magcli.data.source import Rows
from magcli.layouts import names
from magcli.layouts.responses import PRINTED, object_in, said
from magcli.layouts.types import Unreadable
from magcli.model.chat.thoughts import THINK
from magcli.run.layout import Converted
from magcli.run.validation import UNREAD

# What such a text begins with: an object or a list of objects, in JSON or as Python prints it.
STARTS = r"^\s*\[?\s*\{\s*['\"]|^(" + "|".join(client.replace("(", r"\(") for client in PRINTED) + ")"
SEVERAL = "several-completions\tthe text is a response of {} completions; store the object itself instead of its JSON"


def completion_column(schema: pa.Schema) -> str:
    """The column of text that is read as the completion; empty if there is none, or several could be it."""
    # The column itself comes before its other names.
    present = [name for name in names.COMPLETION if name in schema.names]
    if not present:
        present = [name for name in names.COMPLETION["completion"] if name in schema.names]
    if len(present) != 1:
        return ""
    (name,) = present
    return name if pa.types.is_string(schema.field(name).type) else ""


def with_texts(layout: Converted | None, schema: pa.Schema) -> Converted | None:
    """A table whose completions are texts, also where these are the JSON of an API's object.

    Args:
        layout: How the table is converted otherwise, if it is.
        schema: Its columns, before that.
    """
    before = layout.schema if layout else schema
    name = completion_column(before)
    if not name:
        return layout
    fields = [*(field for field in before if field.name != UNREAD), pa.field(UNREAD, pa.string())]
    after = pa.schema(fields, before.metadata)

    def rows(batches: Rows) -> Rows:
        for batch in layout.rows(batches) if layout else batches:
            yield _with_texts(batch, name, after)

    return replace(layout, schema=after, rows=rows) if layout else Converted(after, rows, {}, "")


def _with_texts(batch: pa.RecordBatch, name: str, schema: pa.Schema) -> pa.RecordBatch:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns.setdefault(UNREAD, pa.nulls(batch.num_rows, pa.string()))
    # Most completions do not look like objects, so their column stays in Arrow.
    rows = pc.indices_nonzero(pc.match_substring_regex(columns[name], STARTS)).to_pylist()
    if rows:
        texts = columns[name].to_pylist()
        reasons = columns[UNREAD].to_pylist()
        for row, text, reason in _read(texts, rows):
            texts[row] = text
            reasons[row] = reasons[row] or reason  # an earlier one stays
        columns[name] = pa.array(texts, pa.string())
        columns[UNREAD] = pa.array(reasons, pa.string())
    return pa.RecordBatch.from_pydict(columns, schema=schema)


def _read(texts: list[Any], rows: list[int]) -> Iterator[tuple[int, str | None, str | None]]:
    """The row, the text that was said, and why it cannot be read, of each text that is an object of an API."""
    for row in rows:
        try:
            value = object_in(texts[row])
            if value is not None:
                yield row, *_text_of(value)
        except Unreadable as error:
            yield row, texts[row], f"{error.reason}\t{error.detail}"


def _text_of(value: Any) -> tuple[str | None, str | None]:
    """What was said in an object, after its thoughts; and why it cannot be read."""
    completed = said(value)
    completion = completed["completion"]
    if isinstance(completion, list):
        # The rows of a table of texts cannot become more here.
        return None, SEVERAL.format(len(completion))
    if completed["thoughts"] and completion is not None:
        return THINK.join(completed["thoughts"], completion), None
    return completion, None
