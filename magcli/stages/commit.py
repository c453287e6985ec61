"""Join the finished shards of a stage into one table.

A stage with --shard 3/8 takes the third eighth of its rows, so that eight machines share them. The joined table has the
rows, order and history of one run on the whole table. A missing or duplicate shard, or one of another command or input,
is an error. Tables of dropped rows are joined by a separate command.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.source import Rows
    from magcli.run.job import Job

INPUTS = "The shards, in any order."
NEEDS_ALL = True
EXAMPLE = "magcli commit examples/shards/graded-1.arrow examples/shards/graded-2.arrow -o all-graded.arrow"


@dataclass(frozen=True)
class Config:
    """`magcli commit` has no options: the shards' histories say all."""


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """The columns of the shards."""
    return input_schema


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Check that all shards are there, and join their rows in order."""
    from magcli.run import shard

    assert job.inputs is not None
    shards = shard.parts(job.sources)
    job.inputs.sources = [part.source for part in shards]
    job.joined = shard.history(shards)
    if mixed := [f"{option} {values}" for option, values in shard.resolved_options(shards).items() if "," in values]:
        job.console.warn(
            f"commit: shards differ in {'; '.join(mixed)}; set it for every shard to get the rows of one run"
        )
    job.facts["shards"] = {part.source.name: part.source.sha256 for part in shards}
    return rows
