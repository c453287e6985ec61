"""The work of `magcli split`, once its options are checked."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa

from magcli.data import seal, table
from magcli.data.column_paths import column_at
from magcli.errors import DataError
from magcli.stages.shared import tables
from magcli.stages.shared.sides import held_out
from magcli.stages.split import Config, reads

if TYPE_CHECKING:
    from magcli.data.source import Rows
    from magcli.run.job import Job

ALIASES = tables.ALIASES
layouts = tables.problem_layouts(reads)


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """The columns of the input."""
    return input_schema


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Pass on the training rows, and write the others; the two counts are reported at the end."""
    assert config.held_out is not None
    num_rows: Counter[bool] = Counter()
    with table.write(str(config.held_out), job.schema, seal.pack({"stage": job.stage})) as sink:
        for batch in rows:
            is_held_out = [
                held_out(value, config.share, config.seed) for value in column_at(batch, config.by).to_pylist()
            ]
            num_rows.update(is_held_out)
            sink.write(batch.filter(pa.array(is_held_out)))
            yield batch.filter(pa.array([not side for side in is_held_out]))
        # Before the table appears: an empty side is of no use.
        if not (num_rows[True] and num_rows[False]):
            empty_side = "training" if num_rows[True] else "held-out"
            raise DataError(f"split: no {empty_side} row among {num_rows.total():,}; give another --share or --seed")
        # Its history counts its own rows, not those of the output.
        sink.finish(job.history(num_rows[True]))
    text = f"{num_rows[False]:,} rows to train on, {num_rows[True]:,} held out"
    job.console.result(f"split: {text}", event="split", train=num_rows[False], held_out=num_rows[True])
    points = 100 * margin(num_rows[True])
    job.console.say(
        f"split: {num_rows[True]:,} problems measure an accuracy of 50 % to +-{points:.1f} points (95 % interval, one "
        "sample each); four times as many halve that",
        event="interval",
        points=points,
    )


def margin(problems: int) -> float:
    """Half the 95% interval (Wilson's) of an accuracy of 50 % on this many problems, as a share: the widest."""
    # The normal quantile of a two-sided 95 % interval.
    z = 1.96
    return z * math.sqrt(0.25 / problems + (z / (2 * problems)) ** 2) / (1 + z**2 / problems)
