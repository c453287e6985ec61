"""Objectives as weighted sums over tokens.

Every divisor (target tokens of the optimizer step, tokens of a group, groups of the mini-batch) is known before a
batch is split and enters as a weight, so micro-batches and ranks just add up: no split changes the gradient.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from magcli.errors import MagError

TokenNorm = Literal["group", "token", "sample"]

LOG_RATIO_BOUND = 20.0
"""exp of more overflows gradients; a token this far off (a ratio of 5e8) has none."""

RATIO_QUANTILES = (0.01, 0.5, 0.99)
MISMATCH_QUANTILES = (0.5, 0.9, 0.99)


class ClipStats(NamedTuple):
    """What clipping did to the tokens of one micro-batch, each ``[N]`` and without gradient.

    ``log_ratio`` is new minus old log-probability; ``low`` and ``high`` tell whether the bound below or above took
    the token's gradient away.
    """

    log_ratio: Tensor
    low: Tensor
    high: Tensor


def sft_loss(logprobs: Tensor, mask: Tensor, *, total: float, weight: Tensor | None = None) -> Tensor:
    """Cross-entropy of the targets of one micro-batch: its share of the mean over an optimizer step.

    ``logprobs`` and ``mask`` (bool) are ``[T]``; ``weight`` ``[T]`` scales tokens. ``total`` is the number of target
    tokens (the sum of their weights) of the whole step, all micro-batches together.
    """
    if total <= 0:
        raise MagError(f"an optimizer step needs target tokens, not {total}")
    scale = mask.float() if weight is None else mask * weight
    return -(logprobs * scale).sum() / total


def token_weights(lengths: Sequence[int], groups: Sequence[str | int], *, norm: TokenNorm) -> Tensor:
    """The weight of each token of a sequence, float32 ``[num_sequences]``, for a whole mini-batch before any split.

    ``group`` (recipe, section 1): 1 / (groups in the mini-batch * generated tokens of the sequence's group).
    ``token`` (DAPO): 1 / generated tokens of the mini-batch. ``sample`` (GRPO): 1 / (sequences * the sequence's
    tokens). ``lengths`` count generated tokens. In each case the weights of all tokens sum to 1.
    """
    if any(length < 1 for length in lengths):
        raise MagError("a sequence without generated tokens cannot train")
    tokens: Counter[str | int] = Counter()
    for length, group in zip(lengths, groups, strict=True):
        tokens[group] += length
    divisors = {
        "group": [len(tokens) * tokens[group] for group in groups],
        "token": [sum(lengths)] * len(lengths),
        "sample": [len(lengths) * length for length in lengths],
    }
    return torch.tensor(divisors[norm], dtype=torch.float64).reciprocal().float()


def grpo_loss(
    new: Tensor, old: Tensor, advantage: Tensor, weight: Tensor, *, clip_low: float, clip_high: float
) -> tuple[Tensor, ClipStats]:
    """The clipped objective of the recipe, section 1, negated: a weighted sum over tokens, and what clipping did.

    All tensors are ``[N]``: the policy's log-probabilities, those that the ratio is against (the sampler's, at the
    version of the weights that made each token), advantages and weights. Tokens of weight 0 (prompts) count nowhere.
    There is no KL term.
    """
    live = weight != 0
    new, old, advantage, weight = new[live], old[live], advantage[live], weight[live]
    log_ratio = new - old
    ratio = log_ratio.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    loss = -(weight * torch.minimum(ratio * advantage, clipped * advantage)).sum()
    low = (advantage < 0) & (ratio < 1 - clip_low)
    high = (advantage > 0) & (ratio > 1 + clip_high)
    return loss, ClipStats(log_ratio.detach(), low, high)


def truncated_importance(proximal: Tensor, sampler: Tensor, *, cap: float) -> Tensor:
    """min(proximal / sampler probability, ``cap``) of each token ``[N]``, without gradient.

    What the tokens' terms are weighted by where the ratio is against the proximal policy, the trainer's own at the
    start of the batch, and not against the sampler's: it pays for the sampler being an older policy or another engine.
    That is the decoupled objective of AReaL with token-level truncated importance sampling.
    """
    return (proximal - sampler).detach().clamp(-LOG_RATIO_BOUND, math.log(cap)).exp()


def kl_penalty(new: Tensor, reference: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """KL(policy || reference) as a weighted sum over tokens, and each token's estimate without gradient ``[N]``.

    The k3 estimate, ratio - 1 - log ratio with ratio = reference / policy: never negative, unbiased where the policy
    drew the tokens, and its gradient vanishes where the two agree.
    """
    log_ratio = (reference - new).clamp(max=LOG_RATIO_BOUND)
    estimate = log_ratio.exp() - 1 - log_ratio
    return (weight * estimate).sum(), estimate.detach()


def clip_summary(parts: Sequence[ClipStats]) -> Mapping[str, float]:
    """Metrics of an update from the clip statistics of its micro-batches, every token counting once.

    Quantiles of the ratio (``ratio_min``, ``ratio_p01``, ``ratio_p50``, ``ratio_p99``, ``ratio_max``), the shares of
    tokens clipped low and high, and ``approx_kl``, the mean of ratio - 1 - log ratio: never negative, and an
    unbiased estimate of KL(old || new) where tokens come from the old policy.
    """
    log_ratio = torch.cat([part.log_ratio for part in parts]).double()
    if not len(log_ratio):
        return {}
    ratio = log_ratio.exp()
    return {
        "ratio_min": ratio.min().item(),
        **_quantiles("ratio", ratio, RATIO_QUANTILES),
        "ratio_max": ratio.max().item(),
        "clip_low": torch.cat([part.low for part in parts]).double().mean().item(),
        "clip_high": torch.cat([part.high for part in parts]).double().mean().item(),
        "approx_kl": (ratio - 1 - log_ratio).mean().item(),
    }


def mismatch_summary(parts: Sequence[Tensor]) -> Mapping[str, float]:
    """How far two log-probabilities of the same tokens at equal weights lie apart: the trainer's and the engine's.

    ``parts`` are log-ratios ``[N]``, trainer minus engine. Their number (``mismatch_tokens``), the mean
    (``mismatch_mean``), quantiles (``_p50``, ``_p90``, ``_p99``) and maximum of their sizes, and the mean with its sign
    (``mismatch_signed``): far from zero, one of the two distributions is not what the tokens were drawn from.
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


def _quantiles(name: str, values: Tensor, shares: Sequence[float]) -> Mapping[str, float]:
    """Nearest-rank quantiles ``NAME_p50``; ``torch.quantile`` refuses more than 16M values."""
    ascending = values.sort().values
    return {f"{name}_p{round(100 * q):02d}": ascending[round(q * (len(ascending) - 1))].item() for q in shares}
