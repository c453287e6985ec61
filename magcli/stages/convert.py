"""Convert tables between formats, and rename or select columns.

Reads and writes .arrow, .parquet, .jsonl, .json (one array), .jsonl.gz, .json.gz, .csv, `datasets` folders and - (stdin
or stdout); reads hub ids. JSON lines are copied byte for byte.
"""

from __future__ import annotations

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


def schema(config: Config, given: pa.Schema) -> pa.Schema:
    """The columns after renaming and choosing."""
    import pyarrow as pa

    from magcli.data.schema import require

    new_of = {old: new for new, old in (pair.split("=") for pair in config.rename)}
    require(given, new_of, stage="convert", where="the input")
    renamed = pa.schema([field.with_name(new_of.get(field.name, field.name)) for field in given], given.metadata)
    twice = {name for name in new_of.values() if renamed.names.count(name) > 1}
    usage(not twice, f"convert.rename: the input has a column {', '.join(sorted(twice))} already; rename that one too")
    require(renamed, config.columns, stage="convert", where="the input")
    chosen = [renamed.field(name) for name in config.columns] if config.columns else list(renamed)
    return pa.schema(chosen, renamed.metadata)


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Write the rows with their new columns."""
    import pyarrow as pa

    assert job.schema is not None
    target = schema(config, job.schema)
    old_of = dict(pair.split("=") for pair in config.rename)
    done = 0
    for batch in rows:
        part = batch.slice(0, max(config.limit - done, 0)) if config.limit else batch
        job.drops.batch(batch.slice(part.num_rows), "over-limit", done + part.num_rows)
        done += batch.num_rows
        columns = [part.column(old_of.get(name, name)) for name in target.names]
        yield pa.RecordBatch.from_arrays(columns, schema=target)
