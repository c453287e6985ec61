"""Each input table in its own layout: its columns are named and selected before the tables are joined.

The layouts are defined in ``magcli.layouts``; stages use it in their hook ``layouts``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from magcli.data.column_paths import field_at
from magcli.data.schema import resolve_aliases
from magcli.data.selection import columns as selected_columns
from magcli.data.source import Rows, Source
from magcli.errors import DataError
from magcli.run.job import CountedInputs
from magcli.run.stage import Stage
from magcli.run.types import Columns, Named
from magcli.run.validation import TEXT, as_text


@dataclass(frozen=True)
class Converted:
    """A table whose rows are converted from a layout.

    ``columns`` maps the names of what is read to its paths, ``layout`` names the layout for messages.
    ``changes_number``: a row may become several.
    """

    schema: pa.Schema
    rows: Callable[[Rows], Rows]
    columns: Columns
    layout: str
    changes_number: bool = False


def arrange(stage: Stage, config: Any, sources: Sequence[Source]) -> list[Named]:
    """Name, convert and select the columns of each table as the stage reads them; returns what had another name.

    Raises:
        DataError: a column could be several, or a table has none that are read; the message names the table.
    """
    schemas = [source.schema for source in sources]
    layouts = stage.layouts(config, schemas) or [None] * len(sources)
    needs = stage.reads(config) or ()
    converted = [_arrange(stage, source, layout) for source, layout in zip(sources, layouts, strict=True)]
    named = []
    for source, of_layout in zip(sources, converted, strict=True):
        aliases = _name(source, needs, stage.ALIASES or {})
        named.append(Named({**of_layout.columns, **aliases}, of_layout.layout))
    if len(sources) > 1:  # a column may have other types in other tables
        for source in sources:
            _write_text(source, needs)
    return named


def joined(stage: Stage, config: Any, sources: Sequence[Source]) -> CountedInputs:
    """The tables as one input, each in its layout; errors as of ``arrange``."""
    schemas = [source.schema for source in sources]  # before ``arrange`` changes them
    named = arrange(stage, config, sources)
    return CountedInputs(sources, schemas, named)


def _arrange(stage: Stage, source: Source, layout: Any) -> Named:
    """Bring one table into its layout, as the stage's hook gives it.

    Raises:
        DataError: the hook says that it cannot be read, or it has no column that is read.
    """
    if layout is None:
        return Named({})
    if isinstance(layout, DataError):
        raise DataError(f"{stage.name}: {source.name}: {layout}")
    if isinstance(layout, Converted):
        convert(source, layout)
        return Named(layout.columns, layout.layout)
    if not layout:
        there = ", ".join(source.schema.names) or "none"
        raise DataError(f"{stage.name}: {source.name} has none of the columns to read; it has: {there}")
    _select(source, layout)
    return Named({})


def convert(source: Source, layout: Converted) -> None:
    """Convert the rows of a table from its layout."""
    source.rows = layout.rows(source.rows)
    source.schema = layout.schema
    source.total = None if layout.changes_number else source.total


def _select(source: Source, columns: Columns) -> None:
    """Leave only these columns in the table."""
    fields = [field_at(source.schema, old).with_name(new) for new, old in columns.items()]
    schema = pa.schema(fields, source.schema.metadata)
    source.rows = selected_columns(source.rows, list(columns.values()), schema)
    source.schema = schema


def _write_text(source: Source, needs: Sequence[str]) -> None:
    """Convert the required text columns to text, as for a single table."""
    alternatives = [need.split("|") for need in needs]  # ``answer|tests`` needs either
    needed = set(chain.from_iterable(alternatives)) & set(TEXT)
    names, fields = [], []
    for field in source.schema:
        # Bytes that are not UTF-8 become a reason to drop the row, which ``validate_rows`` finds.
        if field.name in needed and not pa.types.is_binary(field.type):
            names.append(field.name)
            field = pa.field(field.name, pa.string())
        fields.append(field)
    schema = pa.schema(fields, source.schema.metadata)
    source.rows = _with_text(source.rows, names, schema)
    source.schema = schema


def _with_text(rows: Rows, names: Sequence[str], schema: pa.Schema) -> Rows:
    for batch in rows:
        columns = []
        for column, field in zip(batch.columns, batch.schema, strict=True):
            columns.append(as_text(column, field) if field.name in names else column)
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _name(source: Source, needs: Sequence[str], aliases: Mapping[str, Sequence[str]]) -> Columns:
    """Give required columns under another tool's name their own; returns name -> name in the table."""
    try:
        renames = resolve_aliases(source.schema, needs, aliases)
    except DataError as error:
        raise DataError(f"{source.name}: {error}") from None
    if renames:
        _select(source, {renames.get(name, name): name for name in source.schema.names})
    return {name: alias for alias, name in renames.items()}
