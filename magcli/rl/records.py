"""What a run leaves of each update: its rollouts as rows, and a line of metrics."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from magcli.data.schema import COMPLETION, PROBLEM, REWARD, TOKENS
from magcli.generate.types import Rollout
from magcli.rl.rollouts import Group
from magcli.verify.reward import columns as reward_columns
from magcli.verify.reward import of_row as reward_of
from magcli.verify.types import UNGRADED

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


def group_metrics(trained: Sequence[Group], dropped: Sequence[Group], version: int) -> dict[str, Any]:
    """What the rollouts say: rewards by part over all that could be graded, lengths, kept and dropped, staleness."""
    sampled = [*trained, *dropped]
    rewards = [r for group in sampled for r in group.rewards if r.reason not in UNGRADED]
    lengths = [len(rollout.tokens) for group in sampled for rollout in group.rollouts]
    stale = [version - rollout.versions[0][1] for group in trained for rollout in group.rollouts if rollout.versions]
    cut = [rollout.finish == "length" for group in sampled for rollout in group.rollouts]
    return {
        "reward": _mean([r.total for r in rewards]),
        "reward_format": _mean([r.format for r in rewards]),
        "reward_correct": _mean([r.correctness for r in rewards]),
        "reward_length": _mean([r.length for r in rewards]),
        "reward_language": _mean([r.language for r in rewards]),
        "correct": _mean([r.correct for r in rewards]),
        "correct_anywhere": _mean([r.correct_anywhere for r in rewards]),
        "length_mean": _mean(lengths),
        "length_p95": float(np.quantile(lengths, 0.95)) if lengths else None,
        "cut_share": _mean(cut),
        "groups_trained": len(trained),
        "groups_dropped": dict(Counter(str(group.dropped) for group in dropped)),
        "reasons": dict(Counter(r.reason for group in sampled for r in group.rewards)),
        "staleness_mean": _mean(stale),
        "staleness_max": max(stale, default=0),
        "mixed_versions": _mean([len(r.versions) > 1 for group in trained for r in group.rollouts]),
        "generated_tokens": sum(lengths),
        "trained_tokens": sum(group.num_tokens for group in trained),
    }


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None


def summary(line: Mapping[str, Any]) -> str:
    """An update's line of metrics as people read it while the run goes on."""
    dropped = sum(line["groups_dropped"].values())
    return (
        f"reward {line['reward']:.3f} correct {line['correct']:.3f} length {line['length_mean']:.0f} "
        f"groups {line['groups_trained']}+{dropped} entropy {line['entropy'] or 0:.2f} "
        f"{line['generate_tokens_per_s']:,.0f}+{line['train_tokens_per_s']:,.0f} tokens/s"
    )
