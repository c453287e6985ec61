"""Convert tables between formats, and rename or select columns.

Reads and writes .arrow, .parquet, .jsonl, .json (one array), .jsonl.gz, .json.gz, .csv, `datasets` folders and - (stdin
or stdout); reads hub ids. Values stay the same, where a key that is absent equals null and 1 equals 1.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magcli.config import opt
from magcli.errors import usage

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.source import Rows
    from magcli.run.job import Job

INPUTS = "The tables to read, one after the other; - is stdin."
EXAMPLE = "magcli convert examples/problems.jsonl --rename origin=source -o problems.parquet"


@dataclass(frozen=True)
class Config:
    """Options of `magcli convert`."""

    rename: tuple[str, ...] = opt((), "Columns to rename, as NEW=OLD, comma-separated.")
    columns: tuple[str, ...] = opt((), "Columns to keep, in this order (default: all).")
    limit: int = opt(0, "Maximum number of rows to keep, from the start; 0 keeps all.")


def check(config: Config) -> None:
    """Refuse options that are out of range or contradict each other."""
    usage(config.limit >= 0, f"convert.limit: {config.limit} is negative")
    usage(len(set(config.columns)) == len(config.columns), "convert.columns: a column is named twice")
    for pair in config.rename:
        usage(pair.count("=") == 1 and all(pair.split("=")), f"convert.rename: '{pair}' is not NEW=OLD")
    for names in zip(*(pair.split("=") for pair in config.rename), strict=True):
        twice = [name for name in names if names.count(name) > 1]
        usage(not twice, f"convert.rename: {''.join(twice[:1])} occurs twice as NEW or as OLD; each may occur once")


def layouts(config: Config, given: Sequence[pa.Schema]) -> list[dict[str, str]]:
    """The columns of each table after renaming and choosing.

    Raises:
        DataError: no table has a column that is renamed or chosen.
        UsageError: a table has a column of the new name already.
    """
    import pyarrow as pa

    from magcli.data.schema import require

    new_of = {old: new for new, old in (pair.split("=") for pair in config.rename)}
    require(_together(given), new_of, stage="convert", where="the input")
    renamed = [[(new_of.get(name, name), name) for name in schema.names] for schema in given]
    for columns in renamed:
        names = [new for new, _ in columns]
        twice = sorted({name for name in new_of.values() if names.count(name) > 1})
        usage(not twice, f"convert.rename: the input has a column {', '.join(twice)} already; rename that one too")
    every = _together([pa.schema([(new, pa.null()) for new, _ in columns]) for columns in renamed])
    require(every, config.columns, stage="convert", where="the input")
    wanted = set(config.columns or every.names)
    return [{new: old for new, old in columns if new in wanted} for columns in renamed]


def _together(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """The names of the columns of all tables."""
    import pyarrow as pa

    return pa.schema([(name, pa.null()) for name in dict.fromkeys(name for each in schemas for name in each.names)])


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """The columns in the order of their choice."""
    import pyarrow as pa

    return pa.schema([given.field(name) for name in config.columns or given.names], given.metadata)


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Write the rows, with the chosen columns in their order."""
    assert job.schema is not None
    names = schema(config, job.schema).names
    done = 0
    for batch in rows:
        part = batch.slice(0, max(config.limit - done, 0)) if config.limit else batch
        job.drops.batch(batch.slice(part.num_rows), "over-limit")
        done += batch.num_rows
        yield part.select(names) if config.columns else part
