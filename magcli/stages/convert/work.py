"""The work of `magcli convert`, once its options are checked."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from magcli.data import condition, selection
from magcli.data.column_paths import column_at, has, top_name
from magcli.data.condition import columns_of
from magcli.data.selection import columns_schema, explode, exploded_schema, in_order, is_empty_list, sorted_order
from magcli.errors import DataError, usage
from magcli.stages.convert import Config
from magcli.stages.shared.sides import held_out

if TYPE_CHECKING:
    from magcli.data.condition import Condition
    from magcli.data.source import Rows
    from magcli.run.job import Job

BATCH_ROWS = 1024


def layouts(config: Config, input_schemas: Sequence[pa.Schema]) -> list[dict[str, str]]:
    """The columns of each table after renaming, as name -> path: those that are kept, and those that options read.

    Raises:
        DataError: no table has a column that is named.
        UsageError: a table has a column of the new name already.
    """
    renamed = [_renamed(config, schema) for schema in input_schemas]
    all_columns = _named(chain.from_iterable(renamed))
    read = _read_by_options(config, all_columns)

    # A column that is named must be in some table: old names before renaming, all others after it.
    old_names = [pair.partition("=")[2] for pair in config.rename]
    missing = [name for name in old_names if not any(has(name, schema) for schema in input_schemas)]
    if not missing:
        paths = (*read, *config.columns, *config.drop_columns)
        missing = [path for path in paths if top_name(path, all_columns) is None]
    if missing:
        present = dict.fromkeys(chain.from_iterable(schema.names for schema in input_schemas))
        listed = ", ".join(present) or "none"
        raise DataError(f"convert: the input lacks column {', '.join(missing)}; it has: {listed}")

    # A column within objects needs the whole column that it is in.
    names = {top_name(path, all_columns) for path in (*_kept(config, all_columns), *read)}
    kept = []
    for columns in renamed:
        kept.append({new: path for new, path in columns.items() if new in names})
    return kept


def _renamed(config: Config, schema: pa.Schema) -> dict[str, str]:
    """The columns of one table after renaming, as name -> path; a value within objects is copied to its own column."""
    # By the old name.
    new_of = {}
    for pair in config.rename:
        new, old = pair.split("=")
        new_of[old] = new
    columns = [(new_of.get(name, name), name) for name in schema.names]
    # Old names that are paths into objects, such as reward_model.ground_truth.
    columns += [(new, old) for old, new in new_of.items() if old not in schema.names and has(old, schema)]
    names = [new for new, _ in columns]
    # A new name that another column has.
    twice = sorted({name for name in new_of.values() if names.count(name) > 1})
    usage(not twice, f"convert.rename: the input has a column {', '.join(twice)} already; rename that one too")
    return dict(columns)


def _read_by_options(config: Config, schema: pa.Schema) -> list[str]:
    """The columns, after renaming, that options read."""
    named = [pair.partition("=")[0] for pair in config.rename]
    sort = [key.removeprefix("-") for key in config.sort]
    by = [config.by] if config.split else []
    explode = [config.explode] if config.explode else []
    return [*named, *sort, *by, *explode, *columns_of(config.where, schema)]


def _named(names: Iterable[str]) -> pa.Schema:
    """A schema of these columns, whose types are not known."""
    # Only names are looked up in it.
    return pa.schema([(name, pa.null()) for name in dict.fromkeys(names)])


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """The columns in the order of their choice."""
    return columns_schema(_row_schema(config, input_schema), _kept(config, input_schema))


def _row_schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """The columns of the rows before some are chosen."""
    return exploded_schema(input_schema, config.explode) if config.explode else input_schema


def _kept(config: Config, schema: pa.Schema) -> Sequence[str]:
    return config.columns or [name for name in schema.names if name not in config.drop_columns]


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Choose and order the rows, then their columns."""
    row_schema = _row_schema(config, job.schema)
    if config.explode:
        rows = _exploded(config.explode, rows, row_schema, job)
    if config.where:
        rows = _matching(condition.parse(config.where, row_schema), rows, job)
    if config.split:
        rows = _split(config, rows, job)
    if config.sort or config.shuffle or config.sample:
        rows = _ordered(config, rows, row_schema, job)
    if config.limit:
        rows = _limited(config, rows, job)
    names = _kept(config, row_schema)
    # Nothing to choose: batches pass as they are.
    if list(names) == row_schema.names:
        return rows
    return selection.columns(rows, names, selection.columns_schema(row_schema, names))


def _limited(config: Config, rows: Rows, job: Job) -> Rows:
    """The first rows; those after them are counted only if they are read."""
    assert job.inputs is not None
    chooses_rows = config.where or config.explode or config.split or config.sort or config.shuffle or config.sample
    # Then the reader itself stops early.
    if not chooses_rows:
        job.inputs.select_first(config.limit)
        yield from rows
        return
    is_pipe = any(source.total is None for source in job.sources)  # read to its end, where its history is
    # Sorted rows have all been read anyway.
    is_read = bool(is_pipe or config.sort or config.shuffle or config.sample)
    left = config.limit
    for batch in rows:
        kept = batch.slice(0, left)
        left -= kept.num_rows
        job.drops.batch(batch.slice(kept.num_rows), "over-limit")
        yield kept
        if not left and not is_read:
            return


def _exploded(name: str, rows: Rows, schema: pa.Schema, job: Job) -> Rows:
    for batch in rows:
        job.drops.batch(batch.filter(is_empty_list(batch, name)), "empty-list")
        yield explode(batch, name, schema)


def _matching(wanted: Condition, rows: Rows, job: Job) -> Rows:
    for batch in rows:
        matching = wanted.matching(batch)
        job.drops.batch(batch.filter(pc.invert(matching)), "not-matching")
        yield batch.filter(matching)


def _split(config: Config, rows: Rows, job: Job) -> Rows:
    """The rows on the side of --split; the others are those that `magcli split` holds out with the same seed."""
    for batch in rows:
        values = column_at(batch, config.by).to_pylist()
        # --split is the share to keep, ``held_out`` takes that of the others.
        others = pa.array([held_out(value, 1 - config.split, config.seed) for value in values], pa.bool_())
        job.drops.batch(batch.filter(others), "held-out")
        yield batch.filter(pc.invert(others))


def _ordered(config: Config, rows: Rows, schema: pa.Schema, job: Job) -> Rows:
    """All rows, which are held in memory, in their order; of a sample, the chosen ones."""
    batches = [batch for batch in rows if batch.num_rows]
    rng = random.Random(config.seed)
    # Row numbers over all batches.
    numbers: Sequence[int] = range(sum(batch.num_rows for batch in batches))
    if config.sort:
        numbers = sorted_order(batches, config.sort, schema)
    if config.shuffle:
        numbers = rng.sample(numbers, len(numbers))
    if config.sample and config.sample < len(numbers):
        # Positions, not numbers, so that a sample of sorted rows stays sorted.
        positions = set(rng.sample(range(len(numbers)), config.sample))
        others = [number for position, number in enumerate(numbers) if position not in positions]
        numbers = [number for position, number in enumerate(numbers) if position in positions]  # in their order
        for batch in in_order(batches, sorted(others), BATCH_ROWS):
            job.drops.batch(batch, "not-sampled")
    yield from in_order(batches, numbers, BATCH_ROWS)
