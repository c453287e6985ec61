"""The RL algorithm: from the rewards of a mini-batch to the loss of each of its tokens.

One pure function for each term of the objective (recipe, section 1; P 2.1). For token t of completion i the loss is

    weight[i] * ( importance[i,t] * policy loss[i,t] + kl_coef * KL[i,t] - entropy_coef * entropy[i,t] )

summed over all tokens of the mini-batch. ``magcli.rl.losses`` has the combinations of these terms that have names.
``--advantage`` and ``--loss`` replace ``advantages`` and ``clipped_policy_loss`` by a user's functions with the same
arguments, given as ``module:function`` or ``file.py:function`` like a reward:

    def leave_one_out(rewards, groups):
        ...
        return advantages  # one number for each completion of the mini-batch

    def reinforce(tokens, clip_low, clip_high):
        return -tokens.advantage * tokens.new  # the loss of each token, [N]

Loss normalisation, importance correction, KL penalty and entropy bonus apply to any loss.

The papers: GRPO is DeepSeekMath (arXiv 2402.03300), Dr. GRPO 2503.20783, DAPO 2503.14476, PPO 1707.06347, RLOO
2402.14740, REINFORCE++ 2501.03262, AReaL 2505.24298; P is Magistral (2506.10910).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor

from magcli.choices import AdvantageNorm, DiverseBy, LossNorm
from magcli.errors import MagError, UsageError
from magcli.verify.custom import load
from magcli.verify.types import UNGRADED, Reason

if TYPE_CHECKING:
    from magcli.verify.reward import Reward

DropReason = Literal["all-right", "all-wrong", "same-reward", "bad-gold", "timeout", "infra-error", "reward-error"]

EQUAL = 1e-6
"""Rewards closer than this are equal: far below the smallest part of a reward, far above float32 rounding."""

MAX_LOG_RATIO = 20.0
"""exp of more would overflow in gradients; a ratio this large (5e8) has zero gradient."""


class Tokens(NamedTuple):
    """The generated tokens of one micro-batch, each field ``[N]``; completions are whole and lie end to end.

    Attributes:
        new: log-probabilities under the policy; the only field with a gradient.
        old: log-probabilities in the denominator of the importance ratio: the sampler's, under the weights that
            generated each token, or with ``--tis-cap`` those of the proximal policy.
        advantage: that of the token's completion.
        sequence: int64, index of the token's completion in the micro-batch.
    """

    new: Tensor
    old: Tensor
    advantage: Tensor
    sequence: Tensor


def drop_reason(
    rewards: Sequence[float], correct: Sequence[bool], reasons: Sequence[Reason], *, by: DiverseBy
) -> DropReason | None:
    """Why a group is removed from training, or None (P 2.1, eliminating non-diverse groups; DAPO, dynamic sampling).

    ``outcome`` requires correct and wrong completions, ``reward`` two different rewards, ``none`` neither. If the
    grading of one sample failed, its reward is unknown and every advantage of the group would be wrong, so the group is
    dropped.
    """
    if not rewards:
        raise MagError("a group needs at least one completion")
    # The order of ``UNGRADED`` decides which reason is named.
    for ungraded in UNGRADED:
        if ungraded in reasons:
            return ungraded
    if by == "none":
        return None
    if by == "reward":
        return None if max(rewards) - min(rewards) > EQUAL else "same-reward"
    # One of each is enough: then advantages differ from 0.
    if any(correct) and not all(correct):
        return None
    return "all-right" if all(correct) else "all-wrong"


def drop_reason_of(rewards: "Sequence[Reward]", *, by: DiverseBy) -> DropReason | None:
    """``drop_reason`` of a group with these rewards."""
    totals = [reward.total for reward in rewards]
    correct = [reward.correct for reward in rewards]
    reasons = [reward.reason for reward in rewards]
    return drop_reason(totals, correct, reasons, by=by)


def advantages(
    rewards: Sequence[float], groups: Sequence[int], *, norm: AdvantageNorm, lengths: Sequence[int] = ()
) -> list[float]:
    """The advantage of each completion of a mini-batch; ``groups`` are the numbers of their groups.

    ``none``: A = reward - mean of the group (Dr. GRPO, section 3.2). ``group``: A / standard deviation of the group's
    rewards (GRPO, section 4.1.2). ``minibatch``: (A - mean of A) / standard deviation of A, both over the mini-batch
    (P 2.1). ``leave-one-out``: reward - mean of the group's other completions (RLOO). ``global``: (reward - mean) /
    standard deviation, both over the generated tokens of the mini-batch, of which a completion has one of ``lengths``
    (REINFORCE++). Standard deviations are population ones; if one is zero, the advantages are zero.
    """
    if norm == "global":
        return _standardise(rewards, counts=lengths)
    members = _members(groups, len(rewards))
    # Rewards minus the mean of their group, on which the other norms build.
    centred = [0.0] * len(rewards)
    for indices in members:
        _assign(centred, indices, _centre([rewards[i] for i in indices]))
    if norm == "minibatch":
        return _standardise(centred, counts=[1] * len(centred))
    if norm == "group":
        for indices in members:
            centred_of_group = [centred[i] for i in indices]
            _assign(centred, indices, _standardise(centred_of_group, counts=[1] * len(indices)))
    if norm == "leave-one-out":
        for indices in members:
            # Reward minus the mean of the others is n / (n - 1) times reward minus the mean of all.
            size = len(indices)
            others = max(size - 1, 1)
            _assign(centred, indices, [centred[i] * size / others for i in indices])
    return centred


def _members(groups: Sequence[int], num_rewards: int) -> list[list[int]]:
    """The indices of each group's completions."""
    if len(groups) != num_rewards:
        raise MagError(f"{num_rewards} rewards for {len(groups)} group numbers: each completion needs one of each")
    members: dict[int, list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        members[group].append(index)
    return list(members.values())


def _assign(values: list[float], indices: Sequence[int], new: Sequence[float]) -> None:
    for index, value in zip(indices, new, strict=True):
        values[index] = value


def _centre(values: Sequence[float]) -> list[float]:
    mean = math.fsum(values) / len(values)
    return [value - mean for value in values]


def _standardise(values: Sequence[float], *, counts: Sequence[int]) -> list[float]:
    """Values minus their mean, over their standard deviation, each counted so many times; zeros if all are equal."""
    if not values:
        return []
    # fsum is exact, so the order of the completions does not matter.
    total = sum(counts)
    mean = math.fsum(value * count for value, count in zip(values, counts, strict=True)) / total
    centred = [value - mean for value in values]
    squares = math.fsum(value * value * count for value, count in zip(centred, counts, strict=True))
    std = math.sqrt(squares / total)
    if std > EQUAL:
        return [value / std for value in centred]
    return [0.0] * len(centred)


def token_weights(lengths: Sequence[int], groups: Sequence[int], *, norm: LossNorm, max_tokens: int = 0) -> Tensor:
    """The weight of every token of each completion of a mini-batch, float32 ``[num_completions]``.

    ``group`` (P 2.1, loss normalisation): 1 / (number of groups * generated tokens of the completion's group).
    ``token`` (DAPO, eq. 8): 1 / generated tokens of the mini-batch. ``sample`` (GRPO, eq. 3): 1 / (number of
    completions * tokens of the completion). The weights of all tokens sum to 1, except with ``constant`` (Dr. GRPO,
    section 3.2): 1 / (number of completions * ``max_tokens``, the most that a completion can have).
    The losses of micro-batches and ranks are summed, so how the mini-batch is split does not change the gradient.
    """
    if any(length < 1 for length in lengths):
        raise MagError("cannot train on a completion without generated tokens")
    completions = len(lengths)
    tokens: Counter[int] = Counter()
    for length, group in zip(lengths, groups, strict=True):
        tokens[group] += length
    divisors = {
        "group": [len(tokens) * tokens[group] for group in groups],
        "token": [sum(lengths)] * completions,
        "sample": [completions * length for length in lengths],
        "constant": [completions * max_tokens] * completions,
    }
    # In float64 first, so that each weight is rounded only once.
    return torch.tensor(divisors[norm], dtype=torch.float64).reciprocal().float()


def clipped_policy_loss(tokens: Tokens, clip_low: float, clip_high: float) -> Tensor:
    """-min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) of each token ``[N]``, with r = new / old probability.

    PPO, eq. 7, with the wider upper bound of clip-higher (DAPO, eq. 10; P 2.1).
    """
    ratio = importance_ratio(tokens.new, tokens.old)
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    return -torch.minimum(ratio * tokens.advantage, clipped * tokens.advantage)


def importance_ratio(new: Tensor, old: Tensor) -> Tensor:
    """exp(new - old) of log-probabilities, bounded to keep its gradient finite."""
    return (new - old).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def is_clipped(tokens: Tokens, clip_low: float, clip_high: float) -> tuple[Tensor, Tensor]:
    """Which tokens have zero gradient because of the lower and of the upper clipping bound, bool ``[N]`` each."""
    ratio = importance_ratio(tokens.new.detach(), tokens.old)
    # A negative advantage lowers the ratio until the lower bound, a positive one raises it until the upper one.
    low = (tokens.advantage < 0) & (ratio < 1 - clip_low)
    high = (tokens.advantage > 0) & (ratio > 1 + clip_high)
    return low, high


def truncated_importance(proximal: Tensor, sampler: Tensor, *, cap: float) -> Tensor:
    """min(proximal / sampler probability, ``cap``) of each token ``[N]``, without gradient (``--tis-cap``).

    The decoupled objective of AReaL (section 5.2): the importance ratio of the policy loss is relative to the proximal
    policy, the trainer's weights at the start of the batch; this weight corrects for a sampler with older weights or
    another engine. Truncation bounds its variance (truncated importance sampling).
    """
    log_ratio = (proximal - sampler).detach()
    # The cap as a logarithm, so that the exponential cannot overflow.
    return log_ratio.clamp(-MAX_LOG_RATIO, math.log(cap)).exp()


def kl_estimate(new: Tensor, reference: Tensor) -> Tensor:
    """The k3 estimate of KL(policy || reference) of each token ``[N]``: r - 1 - log r, r = reference / policy.

    GRPO, eq. 4. It is never negative, unbiased if the policy generated the tokens, and has zero gradient where the two
    agree. The recipe has no such penalty (P 2.1); ``--kl`` adds it.
    """
    # Only from above: far below 0 the exponential is 0, and its gradient too.
    log_ratio = (reference - new).clamp(max=MAX_LOG_RATIO)
    return log_ratio.exp() - 1 - log_ratio


def reverse_kl(new: Tensor, teacher: Tensor) -> Tensor:
    """log policy - log teacher probability of each token ``[N]``, without gradient (``--teacher``).

    Its mean over the policy's own completions is KL(policy || teacher). On-policy distillation has its negative as the
    advantage of each token, which descends that divergence token by token: GKD with the reverse KL (Agarwal et al.,
    arXiv 2306.13649, section 3), as a policy gradient (Thinking Machines, On-Policy Distillation, 2025). The
    log-probability of a stale sample is that of the present policy, whose divergence is to fall.
    """
    return new.detach() - teacher


def weighted_loss(
    weight: Tensor,
    policy_loss: Tensor,
    *,
    importance: Tensor | None = None,
    kl: Tensor | None = None,
    kl_coef: float = 0.0,
    entropy: Tensor | None = None,
    entropy_coef: float = 0.0,
) -> Tensor:
    """The sum over tokens of weight * (importance * policy loss + kl_coef * KL - entropy_coef * entropy).

    All tensors are ``[N]``; terms that are None are left out. The entropy bonus is that of PPO, eq. 9.
    """
    # Weights of the whole mini-batch: the losses of its micro-batches are summed.
    loss = policy_loss if importance is None else importance * policy_loss
    if kl is not None:
        loss = loss + kl_coef * kl
    if entropy is not None:
        loss = loss - entropy_coef * entropy
    return (weight * loss).sum()


def custom_advantages(spec: str, rewards: Sequence[float], groups: Sequence[int]) -> list[float]:
    """The advantages of a mini-batch's completions by a custom function.

    Raises:
        UsageError: there is no such function, it fails, or its result is not one finite number for each completion.
    """
    function = load(spec, "advantage")
    try:
        values = [float(value) for value in function(list(rewards), list(groups))]
    except Exception as error:
        raise _failed("advantage", spec, error) from error
    if len(values) != len(rewards):
        raise UsageError(f"advantage {spec!r} returned {len(values)} values for {len(rewards)} completions")
    for value in values:
        if not math.isfinite(value):
            raise UsageError(f"advantage {spec!r} returned {value}, which is not finite")
    return values


def custom_policy_loss(spec: str, tokens: Tokens, clip_low: float, clip_high: float) -> Tensor:
    """The loss ``[N]`` of a micro-batch's tokens by a custom function. An optimizer step whose loss is not finite is
    skipped, as with the built-in loss.

    Raises:
        UsageError: there is no such function, it fails, or its result is not a differentiable tensor ``[N]``.
    """
    function = load(spec, "loss")
    try:
        policy_loss = function(tokens, clip_low, clip_high)
    except Exception as error:
        raise _failed("loss", spec, error) from error
    if not isinstance(policy_loss, Tensor):
        raise UsageError(f"loss {spec!r} returned {type(policy_loss).__name__}, expected a tensor")
    if policy_loss.shape != tokens.new.shape:
        shape, expected = list(policy_loss.shape), list(tokens.new.shape)
        raise UsageError(f"loss {spec!r} returned shape {shape}, expected one value for each token {expected}")
    # The backward pass would fail or, with a KL penalty, train for that alone.
    if tokens.new.requires_grad and not policy_loss.requires_grad:
        raise UsageError(f"loss {spec!r} does not depend on tokens.new, so it has no gradient")
    return policy_loss


def check_custom(advantage: str, loss: str) -> None:
    """Call the custom functions on two groups of two completions before anything is generated; "" is none.

    Raises:
        UsageError: one fails.
    """
    if advantage:
        custom_advantages(advantage, [1.0, 0.0, 0.1, 0.9], [0, 0, 1, 1])
    if loss:
        # Four completions of one token each.
        old = torch.tensor([-0.5, -1.0, -1.5, -2.0])
        new = (old + 0.1).requires_grad_()
        signs = torch.tensor([1.0, -1.0, 1.0, -1.0])
        tokens = Tokens(new, old, advantage=signs, sequence=torch.arange(4))
        custom_policy_loss(loss, tokens, clip_low=0.2, clip_high=0.28)


def _failed(option: str, spec: str, error: Exception) -> UsageError:
    message = f"{type(error).__name__}: {error}"
    on_one_line = " ".join(message.split())
    return UsageError(f"{option} {spec!r} failed: {on_one_line}")
