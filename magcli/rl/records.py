"""The rollouts of a run as rows."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from magcli.data.schema import COMPLETION, PROBLEM, REWARD, TOKENS
from magcli.generate.types import Rollout
from magcli.rl.rollouts import Group
from magcli.verify.reward import columns as reward_columns
from magcli.verify.reward import of_row as reward_of

PLACE = pa.schema(
    [
        pa.field("group", pa.int64()),
        pa.field("step", pa.int64()),
        pa.field("advantage", pa.float32()),
        pa.field("dropped", pa.string()),
        pa.field("temperature", pa.float32()),
    ]
)
"""Where a rollout went: its group, the update that it trained or was dropped before, why it was dropped, and the
temperature that it was sampled at."""

ROLLOUT = pa.schema([*PROBLEM, *COMPLETION, *TOKENS, *REWARD, *PLACE])
"""The output of `magcli rl`: all that was sampled, trained or not."""


def rollout_rows(
    groups: Sequence[Group], step: int | None, advantages: Mapping[int, Sequence[float]]
) -> pa.RecordBatch:
    """Groups as rows, one a rollout; ``step`` None while they wait."""
    rows = [
        {
            **{name: str(group.problem.get(name) or "") for name in PROBLEM.names},
            "sample": rollout.index,
            "completion": text,
            "num_tokens": len(rollout.tokens),
            "finish": rollout.finish,
            "seed": rollout.seed,
            "prompt_tokens": list(group.prompt),
            "tokens": list(rollout.tokens),
            "logprobs": list(rollout.logprobs),
            "versions": [{"start": start, "version": version} for start, version in rollout.versions],
            "group": group.number,
            "step": step,
            "advantage": advantages[group.number][rollout.index] if group.number in advantages else None,
            "dropped": group.dropped,
            "temperature": group.temperature,
        }
        for group in groups
        for rollout, text in zip(group.rollouts, group.texts, strict=True)
    ]
    rewards = reward_columns([reward for group in groups for reward in group.rewards])
    kept = pa.RecordBatch.from_pylist(rows, pa.schema([f for f in ROLLOUT if f.name not in REWARD.names]))
    arrays = [(rewards if name in REWARD.names else kept).column(name) for name in ROLLOUT.names]
    return pa.RecordBatch.from_arrays(arrays, schema=ROLLOUT)


def groups_of(batches: Iterable[pa.RecordBatch]) -> list[Group]:
    """Rows as groups again, in the order of the rows; the inverse of ``rollout_rows``."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [_group(number, list(members)) for number, members in groupby(rows, key=lambda row: row["group"])]


def _group(number: int, rows: Sequence[Mapping[str, Any]]) -> Group:
    first, prompt = rows[0], tuple(rows[0]["prompt_tokens"])
    return Group(
        number,
        {name: first[name] for name in PROBLEM.names},
        prompt,
        tuple(_rollout(row, prompt) for row in rows),
        tuple(row["completion"] for row in rows),
        tuple(map(reward_of, rows)),
        first["dropped"],
        first["temperature"],
    )


def _rollout(row: Mapping[str, Any], prompt: tuple[int, ...]) -> Rollout:
    return Rollout(
        index=row["sample"],
        prompt=prompt,
        tokens=tuple(row["tokens"]),
        logprobs=tuple(row["logprobs"]),
        versions=tuple((span["start"], span["version"]) for span in row["versions"]),
        finish=row["finish"],
        seed=row["seed"],
    )
