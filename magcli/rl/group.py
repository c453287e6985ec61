"""Groups of completions of one problem: whether a group teaches anything, and each completion's advantage.

Pure functions on numbers (recipe, section 1). A group is the G completions sampled for one problem.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from magcli.errors import MagError
from magcli.verify.types import UNGRADED, Reason

AdvantageNorm = Literal["minibatch", "group", "none"]
DiverseBy = Literal["outcome", "reward"]
DropReason = Literal["all-right", "all-wrong", "same-reward", "bad-gold", "timeout", "infra-error", "reward-error"]

EQUAL = 1e-6
"""Rewards closer than this are the same: far below the smallest part of a reward, far above float32 rounding."""


def advantages(rewards: Sequence[float], groups: Sequence[str | int], *, norm: AdvantageNorm) -> list[float]:
    """Advantages of the completions of one mini-batch, in their order.

    ``none``: reward minus the group's mean. ``group``: that over the group's standard deviation. ``minibatch`` (the
    recipe): the centred rewards of all completions, minus their mean, over their standard deviation. Standard
    deviations are those of a population; where one is zero, the advantages are zero.
    """
    members = _members(groups, len(rewards))
    centred = [0.0] * len(rewards)
    for indices in members.values():
        _write(centred, indices, _centre([rewards[i] for i in indices]))
    if norm == "minibatch":
        return _standardise(centred)
    if norm == "group":
        for indices in members.values():
            _write(centred, indices, _standardise([centred[i] for i in indices]))
    return centred


def diverse(rewards: Sequence[float], correct: Sequence[bool], *, by: DiverseBy) -> bool:
    """Whether a group has something to compare: right and wrong answers, or at least two different rewards."""
    if by == "outcome":
        return any(correct) and not all(correct)
    return max(rewards) - min(rewards) > EQUAL


def drop_reason(
    rewards: Sequence[float], correct: Sequence[bool], reasons: Sequence[Reason], *, by: DiverseBy
) -> DropReason | None:
    """Why a group does not train, or None when it does.

    A sample whose grading failed condemns its group, whatever the others got: its reward is unknown, so every
    advantage of the group would be wrong.
    """
    if not rewards:
        raise MagError("a group without completions cannot be judged")
    for ungraded in UNGRADED:
        if ungraded in reasons:
            return ungraded
    if diverse(rewards, correct, by=by):
        return None
    if by == "reward":
        return "same-reward"
    return "all-right" if all(correct) else "all-wrong"


def _members(groups: Sequence[str | int], num_rewards: int) -> dict[str | int, list[int]]:
    if len(groups) != num_rewards:
        raise MagError(f"{num_rewards} rewards for {len(groups)} group names: each completion needs one of each")
    members: dict[str | int, list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        members[group].append(index)
    return members


def _write(values: list[float], indices: Sequence[int], new: Sequence[float]) -> None:
    for index, value in zip(indices, new, strict=True):
        values[index] = value


def _centre(values: Sequence[float]) -> list[float]:
    mean = math.fsum(values) / len(values)
    return [value - mean for value in values]


def _standardise(values: Sequence[float]) -> list[float]:
    if not values:
        return []
    centred = _centre(values)
    std = math.sqrt(math.fsum(value * value for value in centred) / len(centred))
    return [value / std for value in centred] if std > EQUAL else [0.0] * len(centred)
