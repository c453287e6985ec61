"""The metrics of an update, and the rules over them that end a run when it cannot learn any more.

The metrics are those of training, of the rollouts, and the speed of trainer and generators. Each rule returns a line of
text with the numbers that it is based on, or None.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from magcli.generate.types import Rollout
from magcli.rl.types import ClipStats, Group, Times, UpdateMetrics
from magcli.run.rundir import Line
from magcli.verify.reward import Reward
from magcli.verify.types import UNGRADED

RATIO_QUANTILES = (0.01, 0.5, 0.99)
MISMATCH_QUANTILES = (0.5, 0.9, 0.99)

SAMPLED = "sampled_"
"""Prefix of the mismatch on the tokens of a batch that the weights before its update sampled, if there are any; without
it, the mismatch on the probe after the update (``magcli.rl.probe``)."""

NON_DIVERSE = ("all-right", "all-wrong", "same-reward")
"""The reasons for dropping a graded group that has zero advantage (``magcli.rl.algorithm``)."""


def training_metrics(update: UpdateMetrics) -> dict[str, Any]:
    """The metrics of training; means are over optimizer steps or tokens."""
    parts = update.micro_batches
    metrics = {
        "loss": _mean(update.losses),
        "grad_norm": _mean(update.norms),
        "skipped_steps": update.skipped,
        "entropy": _mean_of_tokens([part.entropy for part in parts]),
        "padding_share_if_padded": sum(update.padding) / max(len(update.padding), 1),
        "micro_batches": update.num_micro_batches,
        **clip_summary([part.clips for part in parts]),
        **mismatch_summary([part.mismatch for part in parts if part.mismatch is not None]),
    }
    # Without the option there is no such metric, rather than one of 0.
    of_options = {
        "importance_mean": [part.importance for part in parts],
        "kl_reference": [part.divergence for part in parts],
        "kl_teacher": [part.reverse_kl for part in parts],
    }
    for name, tensors in of_options.items():
        measured = [tensor for tensor in tensors if tensor is not None]
        if measured:
            metrics[name] = _mean_of_tokens(measured)
    return metrics


def clip_summary(parts: Sequence[ClipStats]) -> Mapping[str, float]:
    """Metrics of an update from the clip statistics of its micro-batches, over all tokens.

    Quantiles of the ratio (``ratio_min``, ``ratio_p01``, ``ratio_p50``, ``ratio_p99``, ``ratio_max``), the shares of
    tokens clipped at the lower and upper bound, and ``approx_kl``, the mean of ratio - 1 - log ratio: never negative,
    and an unbiased estimate of KL(old || new) if the tokens come from the old policy.
    """
    log_ratio = torch.cat([part.log_ratio for part in parts]).double()
    if not len(log_ratio):
        return {}
    ratio = log_ratio.exp()
    clipped_low = torch.cat([part.low for part in parts]).double()
    clipped_high = torch.cat([part.high for part in parts]).double()
    return {
        "ratio_min": ratio.min().item(),
        **_quantiles("ratio", ratio, RATIO_QUANTILES),
        "ratio_max": ratio.max().item(),
        "clip_low_share": clipped_low.mean().item(),
        "clip_high_share": clipped_high.mean().item(),
        "approx_kl": (ratio - 1 - log_ratio).mean().item(),
    }


def mismatch_summary(parts: Sequence[Tensor]) -> Mapping[str, float]:
    """The mismatch between trainer and engine: how far their log-probabilities of the same tokens differ.

    ``parts`` are log-ratios ``[N]``, trainer minus engine, at equal weights. Returns their number
    (``mismatch_tokens``), the mean (``mismatch_mean``), quantiles (``_p50``, ``_p90``, ``_p99``) and maximum of their
    absolute values, and the signed mean (``mismatch_signed``), which is near zero if the tokens were sampled from the
    trainer's distribution.
    """
    # torch.cat refuses an empty list.
    log_ratio = torch.cat([torch.zeros(0), *(part.cpu() for part in parts)]).double()
    if not len(log_ratio):
        return {"mismatch_tokens": 0}
    size = log_ratio.abs()
    return {
        "mismatch_tokens": len(size),
        "mismatch_mean": size.mean().item(),
        **_quantiles("mismatch", size, MISMATCH_QUANTILES),
        "mismatch_max": size.max().item(),
        "mismatch_signed": log_ratio.mean().item(),
    }


def group_metrics(trained: Sequence[Group], dropped: Sequence[Group], version: int) -> dict[str, Any]:
    """Means of the reward parts over all graded rollouts; lengths, groups trained and dropped, staleness."""
    sampled = [*trained, *dropped]
    rewards, graded = _rewards(sampled)
    totals = [reward.total for reward in graded]
    rollouts = [rollout for group in sampled for rollout in group.rollouts]
    lengths = [rollout.num_generated for rollout in rollouts]
    return {
        # Of all that was sampled: groups that train are a choice, which the policy did not make.
        "reward": _mean(totals),
        "reward_min": min(totals, default=None),
        "reward_max": max(totals, default=None),
        "reward_format": _mean([reward.format for reward in graded]),
        "reward_correct": _mean([reward.correctness for reward in graded]),
        "reward_length": _mean([reward.length for reward in graded]),
        "reward_language": _mean([reward.language for reward in graded]),
        **part_metrics(graded),
        "correct": _mean([reward.correct for reward in graded]),
        "correct_anywhere": _mean([reward.correct_anywhere for reward in graded]),
        "length_mean": _mean(lengths),
        "length_p95": float(np.quantile(lengths, 0.95)) if lengths else None,
        "cut_share": _mean([rollout.finish == "length" for rollout in rollouts]),
        "groups_trained": len(trained),
        "groups_dropped": dict(Counter(str(group.dropped) for group in dropped)),
        "reasons": dict(Counter(reward.reason for reward in rewards)),
        **staleness_metrics([rollout for group in trained for rollout in group.rollouts], version),
        "generated_tokens": sum(lengths),
        "trained_tokens": sum(group.num_tokens for group in trained),
        **kind_metrics(sampled),
    }


def _rewards(groups: Sequence[Group]) -> tuple[list[Reward], list[Reward]]:
    """All rewards of some groups, and those that are known: of 0 because the grading failed nothing follows."""
    rewards = [reward for group in groups for reward in group.rewards]
    graded = [reward for reward in rewards if reward.reason not in UNGRADED]
    return rewards, graded


def staleness_metrics(rollouts: Sequence[Rollout], version: int) -> dict[str, float | None]:
    """How many updates ``version`` is ahead of the weights that generated these rollouts, by their first token and by
    all of their tokens, and the share of rollouts that several versions generated.
    """
    # A rollout without generated tokens may have no version.
    generated = [rollout for rollout in rollouts if rollout.versions]
    stale = [version - rollout.versions[0][1] for rollout in generated]
    # Sum over tokens of version - own version.
    stale_tokens = sum(version * rollout.num_generated - version_sum(rollout) for rollout in generated)
    tokens = sum(rollout.num_generated for rollout in generated)
    return {
        "staleness_mean": _mean(stale),
        "staleness_max": max(stale, default=0),
        "staleness_tokens": stale_tokens / max(1, tokens),
        "mixed_versions": _mean([len(rollout.versions) > 1 for rollout in rollouts]),
    }


def part_metrics(rewards: Sequence[Reward]) -> dict[str, Any]:
    """The mean of each part of a custom reward, over the rewards that have it, as ``reward_parts``; {} without any."""
    values_by_name: dict[str, list[float]] = {}
    for reward in rewards:
        for name, value in reward.parts.items():
            values_by_name.setdefault(name, []).append(value)
    if not values_by_name:
        return {}
    return {"reward_parts": {name: _mean(values_by_name[name]) for name in sorted(values_by_name)}}


def kind_metrics(groups: Sequence[Group]) -> dict[str, float | None]:
    """Mean reward, correctness and length of each kind of problem; empty if all are of one kind."""
    by_kind: dict[str, list[Group]] = {}
    for group in groups:
        by_kind.setdefault(group.kind, []).append(group)
    if len(by_kind) < 2:
        return {}
    metrics: dict[str, float | None] = {}
    for kind, groups_of_kind in sorted(by_kind.items()):
        _, graded = _rewards(groups_of_kind)
        lengths = [rollout.num_generated for group in groups_of_kind for rollout in group.rollouts]
        metrics[f"reward_of_{kind}"] = _mean([reward.total for reward in graded])
        metrics[f"correct_of_{kind}"] = _mean([reward.correct for reward in graded])
        metrics[f"length_of_{kind}"] = _mean(lengths)
    return metrics


def version_sum(rollout: Rollout) -> int:
    """The sum over a rollout's generated tokens of the version of the weights that generated them."""
    # Each version generated from its start to that of the next one.
    ends = [start for start, _ in rollout.versions[1:]] + [len(rollout.tokens)]
    total = 0
    for (start, version), end in zip(rollout.versions, ends, strict=True):
        generated = end - start - _given_within(rollout, start, end)
        total += version * generated
    return total


def _given_within(rollout: Rollout, start: int, end: int) -> int:
    """Number of tokens of a range that an environment wrote."""
    total = 0
    for first, last in rollout.given:
        overlap = min(end, last) - max(start, first)
        total += max(0, overlap)
    return total


def speeds(line: Line, training: float, times: Times) -> dict[str, float]:
    """Tokens per second of trainer and generators while they work, and the shares of time that both idled.

    0 tokens per second if nothing was generated since the update before.
    """
    generating = times.generating
    return {
        "seconds": times.seconds,
        "generate_seconds": generating,
        "train_tokens_per_s": line["trained_tokens"] / max(training, 1e-9),
        "generate_tokens_per_s": times.generated_tokens / generating if generating > 0 else 0.0,
        **times.idle,
    }


def summary(line: Line) -> str:
    """The metrics of an update on one line for the terminal."""
    parts = []
    if line.get("accuracy") is not None:
        parts.append(f"held-out accuracy {line['accuracy']:.3f}")
    if line.get("kl_teacher") is not None:
        parts.append(f"KL to teacher {line['kl_teacher']:.3f}")
    parts.append(f"reward {line['reward']:.3f} correct {line['correct']:.3f}")
    dropped = sum(line["groups_dropped"].values())
    parts.append(f"length {line['length_mean']:.0f} groups {line['groups_trained']} ({dropped} dropped)")
    parts.append(f"entropy {line['entropy'] or 0:.2f}")
    parts.append("tokens/s")
    # A replay generates nothing.
    if "generate_tokens_per_s" in line:
        parts.append(f"{line['generate_tokens_per_s']:,.0f} generated")
    parts.append(f"{line['train_tokens_per_s']:,.0f} trained")
    return " ".join(parts)


def _quantiles(name: str, values: Tensor, shares: Sequence[float]) -> Mapping[str, float]:
    """Nearest-rank quantiles ``NAME_p50``; ``torch.quantile`` refuses more than 16M values."""
    # Nearest rank: a value that occurs, and exact for any number of values.
    ascending = values.sort().values
    last = len(ascending) - 1
    return {f"{name}_p{round(100 * share):02d}": ascending[round(share * last)].item() for share in shares}


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None


def _mean_of_tokens(parts: Sequence[Tensor]) -> float | None:
    return torch.cat(list(parts)).mean().item() if parts else None


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits beyond which a run does not learn.

    Attributes:
        mismatch_p50, mismatch_p99: of the absolute log-ratio of trainer and engine at equal weights. Measured with
            SmolLM2-135M before and after SFT: a bf16 engine has up to 0.016 and 0.17; tokens sampled at temperature 1
            and scored at 0.7 have a 99th percentile of 0.9 to 3.6, tokens sampled at top-p 0.8 a median of 0.16 where
            the model is uncertain. Beyond these limits the tokens come from another distribution, and the clipping of
            their ratios is noise.
        mismatch_tokens: minimum number of tokens for a 99th percentile.
        mismatch_updates: number of consecutive updates that must exceed these.
        cut_share: share of completions that reach the token limit, which hardly ever get a reward. Runs at 0.97 to
            0.99 do not improve.
        unstopped_share: share of completions that reach the token limit, while an unused end token stands inside some
            of them: the model ends its turns, but the engine does not know the token.
        unstopped_updates: number of consecutive updates that must exceed it.
        non_diverse_share: share of graded groups with zero advantage. At this limit fifty groups are generated
            for each one that trains.
        updates: number of consecutive updates that must exceed these shares.
    """

    mismatch_p50: float = 0.1
    mismatch_p99: float = 0.5
    mismatch_tokens: int = 500
    mismatch_updates: int = 3
    cut_share: float = 0.97
    unstopped_share: float = 0.9
    unstopped_updates: int = 2
    non_diverse_share: float = 0.98
    updates: int = 10


LIMITS = Limits()


def stop_reason(lines: Sequence[Line]) -> str | None:
    """Why a run should stop after the last of these lines, oldest first, or None."""
    rules = (
        (mismatch_fault, LIMITS.mismatch_updates),
        (sampled_mismatch_fault, LIMITS.mismatch_updates),
        (unstopped_fault, LIMITS.unstopped_updates),
        (cut_fault, LIMITS.updates),
        (non_diverse_fault, LIMITS.updates),
    )
    for rule, updates in rules:
        # All of the last updates have to fail: one bad batch is chance.
        faults = [rule(line) for line in lines[-updates:]]
        has_enough_lines = len(faults) == updates
        if has_enough_lines and all(faults):
            return f"in {updates} consecutive updates: {faults[-1]}"
    return None


def mismatch_fault(line: Line) -> str | None:
    """Why a ``mismatch_summary`` shows that the engine samples from another distribution, or None.

    Before the first update this alone is a reason to stop, because training cannot have caused it.
    """
    if line.get("mismatch_tokens", 0) < LIMITS.mismatch_tokens:
        return None
    median, tail = line["mismatch_p50"], line["mismatch_p99"]
    if not _exceeds(median, LIMITS.mismatch_p50) and not _exceeds(tail, LIMITS.mismatch_p99):
        return None
    return (
        f"engine and trainer at equal weights: the log-probs of {line['mismatch_tokens']:,} tokens differ by "
        f"{_text(median)} in the median (limit {LIMITS.mismatch_p50:g}), {_text(tail)} at the 99th percentile (limit "
        f"{LIMITS.mismatch_p99:g}); check the engine; one in bf16 differs less with --dtype fp32 (and --restart)"
    )


def with_probe(line: Line, delivered: Line) -> dict[str, Any]:
    """The metrics of training and those of the delivery of its weights, whose ``mismatch`` is that of the probe: the
    mismatch on sampled tokens gets a prefix.
    """
    renamed = {}
    for name, value in line.items():
        of_sampled_tokens = name.startswith("mismatch")
        renamed[f"{SAMPLED}{name}" if of_sampled_tokens else name] = value
    return renamed | dict(delivered)


def sampled_mismatch_fault(line: Line) -> str | None:
    """``mismatch_fault`` of the mismatch on the tokens of an update's batch."""
    sampled = {name.removeprefix(SAMPLED): value for name, value in line.items() if name.startswith(SAMPLED)}
    return mismatch_fault(sampled)


def mismatch_text(line: Line) -> str:
    """A ``mismatch_summary`` as a sentence."""
    if not line["mismatch_tokens"]:
        return "no token was sampled from the current weights, so engine and trainer cannot be compared"
    return (
        f"engine and trainer at equal weights: the log-probs of {line['mismatch_tokens']:,} tokens differ by "
        f"{_text(line['mismatch_p50'])} in the median, {_text(line['mismatch_p99'])} at the 99th percentile, "
        f"{_text(line['mismatch_max'])} at most"
    )


def cut_fault(line: Line) -> str | None:
    """Why an update shows that hardly any completion ends by itself, or None."""
    share = line["cut_share"]
    if share is None or share < LIMITS.cut_share:
        return None
    return f"{100 * share:.1f} % of completions reach the token limit; increase --max-tokens, or run SFT first"


def unstopped_fault(line: Line) -> str | None:
    """Why an update shows that completions run on beyond an end token that does not stop them, or None."""
    share, token = line["cut_share"], line.get("unused_end")
    if share is None or share < LIMITS.unstopped_share or not token:
        return None
    return (
        f"{100 * share:.1f} % of completions reach the token limit, and {token} stands inside "
        f"{100 * line['unused_end_share']:.0f} % of these; if it ends a turn, give --stop '{token}' (with --restart)"
    )


def unused_end(rollouts: Sequence[Rollout], unused: Mapping[int, str]) -> dict[str, Any]:
    """The token of ``unused`` that stands inside most truncated completions, and its share of these.

    ``unused`` has the texts, by id, of tokens that look like an end but do not stop a completion.
    """
    truncated = [rollout for rollout in rollouts if rollout.finish == "length"]
    counts: Counter[int] = Counter()
    for rollout in truncated:
        # The last token is not inside, and a token counts once per completion.
        inside = set(rollout.generated(rollout.tokens)[:-1])
        counts.update(inside & unused.keys())
    if not counts:
        return {}
    token, count = counts.most_common(1)[0]
    return {"unused_end": unused[token], "unused_end_share": count / len(truncated)}


def non_diverse_fault(line: Line) -> str | None:
    """Why an update shows that nearly all groups have zero advantage, or None."""
    by_reason: Counter[str] = Counter()
    for reason, count in line["groups_dropped"].items():
        if reason in NON_DIVERSE:
            by_reason[reason] = count
    non_diverse = by_reason.total()
    # Groups whose grading failed say nothing about the problems.
    graded = line["groups_trained"] + non_diverse
    if not graded or non_diverse < LIMITS.non_diverse_share * graded:
        return None
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in by_reason.most_common())
    text = f"{non_diverse:,} of {graded:,} groups had zero advantage ({reasons})"
    low, high = line.get("reward_min"), line.get("reward_max")
    # Lines of runs without graded completions have no range.
    if low is None:
        return f"{text}; use other problems"
    return f"{text}; rewards were {low:g} to {high:g}: {_non_diverse_advice(by_reason)}"


def _non_diverse_advice(by_reason: Mapping[str, int]) -> str:
    if by_reason.get("same-reward"):
        return "those of a group are equal; raise --temperature, or use other problems"
    return "use other problems, or --diverse-by reward if those of a group differ"


def _exceeds(value: float | None, limit: float) -> bool:
    """Whether a value exceeds a limit; a number that is not finite is None in a line of metrics."""
    return value is None or not value <= limit  # NaN exceeds it too


def _text(value: float | None) -> str:
    return "a non-finite number" if value is None else f"{value:.3g}"
