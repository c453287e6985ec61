"""The metrics of an update: those of training, of the rollouts, and the speed of trainer and generators."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from magcli.rl.rollouts import Group
from magcli.run.rundir import Line
from magcli.verify.types import UNGRADED

RATIO_QUANTILES = (0.01, 0.5, 0.99)
MISMATCH_QUANTILES = (0.5, 0.9, 0.99)


class ClipStats(NamedTuple):
    """How clipping affects the tokens of one micro-batch, each ``[N]`` and without gradient.

    ``log_ratio`` is new minus old log-probability; ``low`` and ``high``: the lower or upper bound sets the token's
    gradient to zero.
    """

    log_ratio: Tensor
    low: Tensor
    high: Tensor


@dataclass(slots=True)
class UpdateMetrics:
    """What an update measures; tensors have the generated tokens ``[N]`` of one micro-batch.

    ``version`` is the version of the weights, or None after the first optimizer step: only before it can trainer and
    engine be compared at equal weights.
    """

    version: int | None = None
    clips: list[ClipStats] = field(default_factory=list)
    entropies: list[Tensor] = field(default_factory=list)
    mismatches: list[Tensor] = field(default_factory=list)
    importance: list[Tensor] = field(default_factory=list)
    divergences: list[Tensor] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    skipped: int = 0
    padding: list[float] = field(default_factory=list)
    micro_batches: int = 0
    seconds: float = 0.0
    advantages: dict[int, list[float]] = field(default_factory=dict)

    def line(self) -> dict[str, Any]:
        """The metrics of training; means are over optimizer steps or tokens."""
        return {
            "loss": _mean(self.losses),
            "grad_norm": _mean(self.norms),
            "skipped_steps": self.skipped,
            "entropy": _mean_of_tokens(self.entropies),
            "padding_share_if_padded": sum(self.padding) / max(len(self.padding), 1),
            "micro_batches": self.micro_batches,
            **clip_summary(self.clips),
            **mismatch_summary(self.mismatches),
            **({"importance_mean": _mean_of_tokens(self.importance)} if self.importance else {}),
            **({"kl_reference": _mean_of_tokens(self.divergences)} if self.divergences else {}),
        }


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
    return {
        "ratio_min": ratio.min().item(),
        **_quantiles("ratio", ratio, RATIO_QUANTILES),
        "ratio_max": ratio.max().item(),
        "clip_low_share": torch.cat([part.low for part in parts]).double().mean().item(),
        "clip_high_share": torch.cat([part.high for part in parts]).double().mean().item(),
        "approx_kl": (ratio - 1 - log_ratio).mean().item(),
    }


def mismatch_summary(parts: Sequence[Tensor]) -> Mapping[str, float]:
    """The mismatch between trainer and engine: how far their log-probabilities of the same tokens differ.

    ``parts`` are log-ratios ``[N]``, trainer minus engine, at equal weights. Returns their number
    (``mismatch_tokens``), the mean (``mismatch_mean``), quantiles (``_p50``, ``_p90``, ``_p99``) and maximum of their
    absolute values, and the signed mean (``mismatch_signed``), which is near zero if the tokens were sampled from the
    trainer's distribution.
    """
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


def speeds(line: Line, training: float, generating: float, wall: float) -> dict[str, float]:
    """Tokens per second of trainer and generators while they work, and the share of the update's time that each idled.

    0 tokens per second if nothing was generated since the update before.
    """
    return {
        "seconds": wall,
        "train_tokens_per_s": line["trained_tokens"] / max(training, 1e-9),
        "generate_tokens_per_s": line["generated_tokens"] / generating if generating > 0 else 0.0,
        "trainer_idle": max(0.0, 1 - training / wall),
        "generator_idle": max(0.0, 1 - generating / wall),
    }


def summary(line: Line) -> str:
    """The metrics of an update on one line for the terminal."""
    dropped = sum(line["groups_dropped"].values())
    return (
        f"reward {line['reward']:.3f} correct {line['correct']:.3f} length {line['length_mean']:.0f} "
        f"groups {line['groups_trained']} ({dropped} dropped) entropy {line['entropy'] or 0:.2f} "
        f"tokens/s {line['generate_tokens_per_s']:,.0f} generated {line['train_tokens_per_s']:,.0f} trained"
    )


def _quantiles(name: str, values: Tensor, shares: Sequence[float]) -> Mapping[str, float]:
    """Nearest-rank quantiles ``NAME_p50``; ``torch.quantile`` refuses more than 16M values."""
    ascending = values.sort().values
    return {f"{name}_p{round(100 * q):02d}": ascending[round(q * (len(ascending) - 1))].item() for q in shares}


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if len(values) else None


def _mean_of_tokens(parts: Sequence[Tensor]) -> float | None:
    return torch.cat(list(parts)).mean().item() if parts else None
