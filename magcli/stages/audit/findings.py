"""What rollouts tell together: whose verdicts differ, rewards without a reason, groups without spread, repetition.

A group is all rollouts of one step with the same prompt, and the same value of a column ``group`` if there is one.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from magcli.stages.audit.measures import Answer, Ratios

CUT = ("length", "max_tokens", "max_output_tokens", "truncated", "true")
"""Values of the reason why a completion ended that say that it was cut off."""
LOOPING = 0.5
"""Share of repeated 8-word sequences from which a completion is a loop."""
MAX_FACTOR = 4.0
"""Factor between the sampler's and the trainer's probability of a token above which it is an outlier."""
MAX_MEAN_FACTOR = 1.05
"""The same on average over a completion; from here on NeMo-RL warns."""
AT_CAP = 3
"""Completions of exactly the greatest length from which on that is taken for the limit."""

MAX_ANSWERS = 64
"""Different answers of a group that are compared, of each verdict."""

Equal = Callable[[str, str], bool]
"""Whether two answers are equal."""


@dataclass(slots=True)
class Rollout:
    """One rollout: what the dump and our verifier say of it. None is unknown.

    ``group`` joins the samples of a prompt, ``text`` is a digest of the completion. ``reward`` and ``said_right`` are
    the trainer's, ``is_right`` is ours. ``ends_within``: the completion ends within its thoughts, a box or a block of
    code. ``findings``, by name, are true, false, or None if it could not be checked; ``why`` says more.
    """

    group: tuple[Any, ...]
    text: bytes
    reward: float | None
    said_right: bool | None
    is_right: bool | None
    ends_within: bool
    answer: Answer | None
    finish: str | None
    num_tokens: int | None
    ratios: Ratios | None
    drifts: bool | None
    repetition: float
    copies: int = 0
    findings: dict[str, bool | None] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Basis:
    """What the findings rest on: the reward from which an answer counted as right (None: the dump says what it took for
    right, or all rewards are equal), and what the dump lacks, a sentence each.
    """

    right_from: float | None
    lacking: Sequence[str]


def find_all(rollouts: Sequence[Rollout], equal: Equal, right_from: float | None) -> Basis:
    """Fill ``findings`` of each rollout; ``right_from`` is the user's limit of rewards, None for that of the dump."""
    # First, as all other findings rest on what the trainer took for right.
    limit = _judge_rewards(rollouts, right_from)
    missing = _find_truncated(rollouts)
    groups = grouped(rollouts)
    for members in groups:
        _find_unequal(members, equal)
        _find_spread(members)
    _find_copies(rollouts, groups)
    for rollout in rollouts:
        _find_alone(rollout)
    return Basis(limit, [*missing, *_lacking(rollouts, groups)])


def grouped(rollouts: Sequence[Rollout]) -> list[list[Rollout]]:
    """The rollouts of each group, in the order of the dump."""
    groups: dict[tuple[Any, ...], list[Rollout]] = defaultdict(list)
    for rollout in rollouts:
        groups[rollout.group].append(rollout)
    return list(groups.values())


def threshold(rollouts: Sequence[Rollout]) -> float | None:
    """The reward halfway between the lowest and the highest; None without rewards, or if all are equal."""
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    # Two defaults that are equal: no rewards, no threshold.
    low, high = min(rewards, default=0.0), max(rewards, default=0.0)
    return (low + high) / 2 if low < high else None


def _judge_rewards(rollouts: Sequence[Rollout], right_from: float | None) -> float | None:
    """Set what the trainer took for right where the dump does not say it; returns the limit of rewards if it is used.

    The user's limit also replaces what the dump says.
    """
    limit = threshold(rollouts) if right_from is None else right_from
    is_used = False
    for rollout in rollouts:
        is_open = rollout.said_right is None or right_from is not None
        if not is_open or rollout.reward is None:
            continue
        if limit is None:  # all rewards are equal
            rollout.said_right = rollout.reward > 0
        else:
            rollout.said_right = rollout.reward >= limit
        is_used = True
    return limit if is_used else None


def _find_truncated(rollouts: Sequence[Rollout]) -> list[str]:
    """Which completions were cut off: by the reason why they ended, else by length, else by what they leave open."""
    if any(rollout.finish for rollout in rollouts):
        for rollout in rollouts:
            rollout.findings["truncated"] = rollout.finish.lower() in CUT if rollout.finish else None
        return []
    # Several of exactly the greatest length do not happen by chance.
    cap, at_cap = _cap(rollouts)
    is_limit = at_cap >= AT_CAP
    for rollout in rollouts:
        is_at_limit = is_limit and rollout.num_tokens == cap
        rollout.findings["truncated"] = rollout.ends_within or is_at_limit
        if rollout.ends_within:
            rollout.why["truncated"] = "it ends within its thoughts, a box or a block of code"
    if is_limit:
        return [f"no reasons why completions ended: {at_cap:,} have {cap:,} tokens, which is taken for the limit"]
    return ["no reasons why completions ended: those count as truncated that end within thoughts, a box or code"]


def _cap(rollouts: Sequence[Rollout]) -> tuple[int, int]:
    """The greatest length, and how many completions have it."""
    lengths = Counter(rollout.num_tokens for rollout in rollouts if rollout.num_tokens)
    cap = max(lengths, default=0)
    # A Counter has 0 for the default.
    return cap, lengths[cap]


def _find_unequal(members: Sequence[Rollout], equal: Equal) -> None:
    """Which rollouts of a group have an answer that another one has too, with the other verdict of the trainer."""
    right: dict[Answer, list[Rollout]] = defaultdict(list)
    wrong: dict[Answer, list[Rollout]] = defaultdict(list)
    for member in members:
        if len(members) == 1 or member.said_right is None or member.answer is None:
            member.findings["equal_answers"] = None
            continue
        member.findings["equal_answers"] = False  # until an equal answer is found
        by_answer = right if member.said_right else wrong
        by_answer[member.answer].append(member)
    # Two answers are compared once, however many rollouts gave them.
    # Comparing all pairs would take their product.
    right_answers = list(right)[:MAX_ANSWERS]
    wrong_answers = list(wrong)[:MAX_ANSWERS]
    for one, other in product(right_answers, wrong_answers):
        if _same(one, other, equal):
            _mark_unequal(right[one], wrong[other][0])
            _mark_unequal(wrong[other], right[one][0])


def _mark_unequal(members: Sequence[Rollout], other: Rollout) -> None:
    answer = other.answer.text if other.answer else ""
    reward = "no reward" if other.reward is None else f"the reward {other.reward:.4g}"
    for member in members:
        member.findings["equal_answers"] = True
        member.why["equal_answers"] = f"another rollout of the group has the answer {answer} and {reward}"


def _same(one: Answer, other: Answer, equal: Equal) -> bool:
    """Whether two answers are equal and in the same form."""
    # A trainer that wants a box may well reward one answer and not the other.
    if one.is_boxed != other.is_boxed:
        return False
    return one.text == other.text or equal(one.text, other.text)


def _find_spread(members: Sequence[Rollout]) -> None:
    """Whether all rewards of a group are equal, so that it teaches nothing."""
    rewards = [member.reward for member in members]
    is_known = len(members) > 1 and None not in rewards
    # Exactly equal: a small difference is divided by the small deviation, and teaches.
    flat = len(set(rewards)) == 1 if is_known else None
    for member in members:
        member.findings["no_spread"] = flat


def _find_copies(rollouts: Sequence[Rollout], groups: Sequence[Sequence[Rollout]]) -> None:
    """How many other rollouts have the same text."""
    everywhere = Counter(rollout.text for rollout in rollouts)
    for members in groups:
        here = Counter(member.text for member in members)
        for member in members:
            member.copies = everywhere[member.text] - 1
            member.findings["repeated"] = member.copies > 0
            if member.copies:
                # Without the rollout itself, as ``copies``.
                inside = here[member.text] - 1
                elsewhere = member.copies - inside
                member.why["repeated"] = (
                    f"the same text {inside:,} times in its group and {elsewhere:,} times elsewhere"
                )


def _find_alone(rollout: Rollout) -> None:
    """What the rollout tells by itself."""
    ours = rollout.is_right
    theirs = rollout.said_right
    # None unless there are the verdicts or log-probs to tell.
    names = ("rewarded_wrong", "unrewarded_right", "no_answer", "ratio_outlier")
    findings: dict[str, bool | None] = dict.fromkeys(names)
    if theirs is not None:
        findings["no_answer"] = theirs and rollout.answer is None
        if ours is not None:
            findings["rewarded_wrong"] = theirs and not ours
            findings["unrewarded_right"] = ours and not theirs
    findings["language_drift"] = rollout.drifts
    findings["looping"] = rollout.repetition >= LOOPING
    if findings["looping"]:
        rollout.why["looping"] = f"{100 * rollout.repetition:.0f} % of its 8-word sequences occurred before"
    ratios = rollout.ratios
    if ratios:
        findings["ratio_outlier"] = ratios.highest > MAX_FACTOR or ratios.mean > MAX_MEAN_FACTOR
        if findings["ratio_outlier"]:
            rollout.why["ratio_outlier"] = f"a factor of {ratios.highest:.3g} at most, {ratios.mean:.4g} on average"
    rollout.findings |= findings


def _lacking(rollouts: Sequence[Rollout], groups: Sequence[Sequence[Rollout]]) -> list[str]:
    """What the dump lacks besides, a sentence each."""
    lacking = []
    if all(rollout.said_right is None for rollout in rollouts):
        lacking.append("no rewards: the trainer's verdicts and spread were not checked")
    if all(rollout.is_right is None for rollout in rollouts):
        lacking.append("no reference answers that can be graded: verdicts were not compared")
    if all(rollout.ratios is None for rollout in rollouts):
        lacking.append("no log-probs of both sampler and trainer: ratios were not checked")
    if all(len(members) == 1 for members in groups):
        lacking.append("no groups: each prompt has one completion, so spread and equal answers were not checked")
    return lacking
