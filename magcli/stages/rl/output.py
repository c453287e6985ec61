"""The output of `magcli rl`: its rollouts, with the columns of their problems."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from magcli.console import put
from magcli.data import table
from magcli.data.json_columns import encoded, is_json_text
from magcli.errors import DataError
from magcli.model.chat.targets import TokensWithMask, show_mask
from magcli.model.model import Model
from magcli.rl.store import EPISODE_ROLLOUT, groups_of, rollout_schema
from magcli.rl.stored import StoredRollouts
from magcli.run.rundir import RunDir
from magcli.stages.rl.config import Config


def schema(config: Config, input_schema: pa.Schema) -> pa.Schema:
    """One row per rollout, with all columns of its problem."""
    rollout = rollouts_of(config.replay, config.reward, config.environment)
    # A column of the rollouts replaces one of the problems with its name.
    others = [field for field in input_schema if field.name not in rollout.names]
    return pa.schema([*rollout, *others], input_schema.metadata)


def rollouts_of(replay: Path | None, reward: str, environment: str) -> pa.Schema:
    """The columns of a run's rollouts, without those of its problems; of a replay those that its rollouts have."""
    if replay is not None:
        return StoredRollouts(replay).schema
    return rollout_schema(custom=bool(reward), environment=bool(environment))


def with_problems(batch: pa.RecordBatch, problems: Mapping[str, Mapping[str, Any]], out: pa.Schema) -> pa.RecordBatch:
    """Rollouts with the other columns of their problems, so that they can be graded again.

    Raises:
        DataError: a problem of a stage's own table has another type in a column than the run's input.
    """
    ids = batch.column("id").to_pylist()
    arrays = []
    for field in out:
        if field.name in batch.schema.names:
            arrays.append(batch.column(field.name))
            continue
        if field.name in EPISODE_ROLLOUT.names:  # the parts of a reward, of updates by an earlier version
            arrays.append(pa.nulls(batch.num_rows, field.type))
            continue
        values = [problems[id].get(field.name) if id in problems else None for id in ids]
        try:
            arrays.append(encoded(values) if is_json_text(field) else pa.array(values, field.type))
        except pa.ArrowException as error:
            text = f"rl: column {field.name} of a stage's data is not {field.type} as in the input: {error}"
            raise DataError(text) from error
    return pa.RecordBatch.from_arrays(arrays, schema=out)


def show_masks(run: Path, model: Model, number: int) -> None:
    """Print the first ``number`` rollouts that the newest update of a run trained, with their loss masks.

    Raises:
        DataError: the run has trained none.
    """
    # Names have the number of the update, with leading zeros.
    paths = sorted(RunDir(run).rollouts.glob("step-*.arrow"))
    if not paths:
        raise DataError(f"rl: {run} has no rollouts yet; --show-mask shows those of a run, so train first")
    newest = table.read(str(paths[-1]))
    trained = [group.rollouts for group in groups_of(newest.rows) if group.dropped is None]
    rollouts = list(chain.from_iterable(trained))
    for rollout in rollouts[:number]:
        is_sampled = [True] * len(rollout.tokens)
        for start, end in rollout.given:  # what an environment said
            is_sampled[start:end] = [False] * (end - start)
        # The loss is on sampled tokens alone, not on the prompt.
        tokens = [*rollout.prompt, *rollout.tokens]
        mask = [False] * len(rollout.prompt) + is_sampled
        shown = show_mask(model.tokenizer, TokensWithMask(tokens, mask))
        put(f"{shown}\n\n")
