"""Each input table in its own layout: its columns are named and selected before the tables are joined."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from magcli.data.column_paths import column_at, field_at
from magcli.data.schema import resolve_aliases
from magcli.data.source import Rows, Source
from magcli.errors import DataError
from magcli.run.stage import Stage
from magcli.run.validation import TEXT, as_text

Columns = Mapping[str, str]
"""The columns of a table as a stage reads them: name -> name or path in the table."""


def arrange(stage: Stage, config: Any, sources: Sequence[Source]) -> list[Columns]:
    """Name and select the columns of each table as the stage reads them; returns those with another tool's name.

    Raises:
        DataError: a column could be several, or a table has none that are read; the message names the table.
    """
    given = [source.schema for source in sources]
    for source, columns in zip(sources, stage.layouts(config, given) or [], strict=False):
        if not columns:
            there = ", ".join(source.schema.names) or "none"
            raise DataError(f"{stage.name}: {source.name} has none of the columns to read; it has: {there}")
        _select(source, columns)
    needs = stage.reads(config) or ()
    renamed = [_name(source, needs, stage.ALIASES or {}) for source in sources]
    if len(sources) > 1:
        for source in sources:
            _write_text(source, needs)
    return renamed


def _select(source: Source, columns: Columns) -> None:
    """Leave only these columns in the table."""
    fields = [field_at(source.schema, old).with_name(new) for new, old in columns.items()]
    source.rows = _selected(source.rows, list(columns.values()), pa.schema(fields, source.schema.metadata))
    source.schema = pa.schema(fields, source.schema.metadata)


def _selected(rows: Rows, names: Sequence[str], schema: pa.Schema) -> Rows:
    for batch in rows:
        yield pa.RecordBatch.from_arrays([column_at(batch, name) for name in names], schema=schema)


def _write_text(source: Source, needs: Sequence[str]) -> None:
    """Make the required columns of text text, as they would be if the table was alone."""
    needed = {name for need in needs for name in need.split("|")} & set(TEXT)
    texts = [field for field in source.schema if field.name in needed and not pa.types.is_binary(field.type)]
    names = [field.name for field in texts]
    fields = [pa.field(field.name, pa.string()) if field.name in names else field for field in source.schema]
    source.rows = _with_text(source.rows, names, pa.schema(fields, source.schema.metadata))
    source.schema = pa.schema(fields, source.schema.metadata)


def _with_text(rows: Rows, names: Sequence[str], schema: pa.Schema) -> Rows:
    for batch in rows:
        columns = [as_text(batch.column(f.name), f) if f.name in names else batch.column(f.name) for f in batch.schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _name(source: Source, needs: Sequence[str], aliases: Mapping[str, Sequence[str]]) -> Columns:
    """Give required columns under another tool's name their own; returns name -> name in the table."""
    try:
        found = resolve_aliases(source.schema, needs, aliases)
    except DataError as error:
        raise DataError(f"{source.name}: {error}") from None
    if found:
        _select(source, {found.get(name, name): name for name in source.schema.names})
    return {name: alias for alias, name in found.items()}
