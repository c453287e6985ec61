"""Translations that exist already, such as MGSM's of GSM8K, joined to the rows that they belong to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from magcli.curate.reading import Warn, read_most, read_whole
from magcli.data.columns import attach
from magcli.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from magcli.curate.language.translation import Choice
    from magcli.data.source import Rows

EXISTING = "existing_translation"
"""The column in which a row's existing translation waits until it has been judged."""

By = Literal["id", "position"]
Texts = dict[tuple[str, str], str]
"""(id or number of the row, language) -> text; of several the first."""


def read_translations(path: Path, by: By, languages: Sequence[str], warn: Warn) -> Texts:
    """All translations of a table: columns ``prompt``, ``id`` or ``position``, and ``language`` unless there is one.

    Raises:
        DataError: a column is missing, two languages are asked for and the table does not tell them apart, or lines
            are counted and one cannot be read.
    """
    source = read_most(path, warn) if by == "id" else read_whole(path)
    names = source.schema.names
    missing = [name for name in ("prompt", *(("id",) if by == "id" else ())) if name not in names]
    if missing:
        raise DataError(f"{path} lacks column {missing[0]}; it has: {', '.join(names)}")
    if "language" not in names and len(languages) > 1:
        raise DataError(f"{path} has no column language, so --languages must name one alone, not {','.join(languages)}")
    found: Texts = {}
    for number, row in enumerate(row for batch in source.rows for row in batch.to_pylist()):
        key = row["id"] if by == "id" else row.get("position", number)
        found.setdefault((str(key), row.get("language") or languages[0]), row["prompt"])
    return found


def joined(rows: Rows, texts: Mapping[tuple[str, str], str], by: By, choice: Choice) -> Rows:
    """The rows, each with the existing translation into the language that it was chosen for."""
    before = 0
    for batch in rows:
        ids = batch.column("id").to_pylist()
        keys = ids if by == "id" else map(str, range(before, before + len(ids)))
        column = [texts.get((key, choice.of(id) or "")) for key, id in zip(keys, ids, strict=True)]
        yield attach(batch, pa.RecordBatch.from_pydict({EXISTING: pa.array(column, pa.string())}))
        before += batch.num_rows
