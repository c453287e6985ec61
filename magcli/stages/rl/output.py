"""The output of `magcli rl`: its rollouts, with the columns of their problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from magcli.errors import DataError
from magcli.stages.rl.config import Config

if TYPE_CHECKING:
    import pyarrow as pa


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """One row per rollout, with all columns of its problem."""
    import pyarrow as pa

    from magcli.rl.store import CUSTOM_ROLLOUT, ROLLOUT

    rollout = CUSTOM_ROLLOUT if config.reward else ROLLOUT
    others = [field for field in input_schema if field.name not in rollout.names]
    return pa.schema([*rollout, *others], input_schema.metadata)


def with_problems(batch: pa.RecordBatch, problems: Mapping[str, Mapping[str, Any]], out: pa.Schema) -> pa.RecordBatch:
    """Rollouts with the other columns of their problems, so that they can be graded again.

    Raises:
        DataError: a problem of a stage's own table has another type in a column than the run's input.
    """
    import pyarrow as pa

    from magcli.rl.store import CUSTOM_ROLLOUT

    ids = batch.column("id").to_pylist()
    arrays = []
    for field in out:
        if field.name in batch.schema.names:
            arrays.append(batch.column(field.name))
            continue
        if field.name in CUSTOM_ROLLOUT.names:  # the parts of a reward, of updates by an earlier version
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        values = [problems[id].get(field.name) if id in problems else None for id in ids]
        try:
            arrays.append(pa.array(values, field.type))
        except pa.ArrowException as error:
            text = f"rl: column {field.name} of a stage's data is not {field.type} as in the input: {error}"
            raise DataError(text) from error
    return pa.RecordBatch.from_arrays(arrays, schema=out)
