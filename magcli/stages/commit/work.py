"""The work of `magcli commit`, once its options are checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magcli.run import shard
from magcli.stages.commit import Config

if TYPE_CHECKING:
    import pyarrow as pa

    from magcli.data.source import Rows
    from magcli.run.job import Job


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """The columns of the shards."""
    return input_schema


def run(config: Config, rows: Rows, job: Job) -> Rows:
    """Check that all shards are there, and join their rows in order."""
    assert job.inputs is not None
    shards = shard.parts(job.sources)
    # In the order of the rows, whatever the order of the arguments.
    job.inputs.sources = [part.source for part in shards]
    job.joined = shard.history(shards)
    resolved = shard.resolved_options(shards)
    # ``auto`` may mean different things on different machines.
    mixed = [f"{option} {values}" for option, values in resolved.items() if "," in values]
    if mixed:
        job.console.warn(
            f"commit: shards differ in {'; '.join(mixed)}; set it for every shard to get the rows of one run"
        )
    job.facts["shards"] = {part.source.name: part.source.sha256 for part in shards}
    return rows
