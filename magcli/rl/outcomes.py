"""What became of a run's groups so far: counts for people, and the rules that end a run that cannot learn.

All counts begin with the process: a resumed run is not stopped because of groups that it did not see.
"""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

from magcli.errors import first_line
from magcli.rl.algorithm import EQUAL
from magcli.rl.types import Group

LOWEST_PASS_RATE = 0.005
"""A policy with a smaller pass rate finds too few right completions to learn from."""

SIGNIFICANCE = 0.05
"""The largest probability of seeing no right completion at ``LOWEST_PASS_RATE`` when a run is stopped."""

MAX_WRONG = 100 * math.ceil(math.log(SIGNIFICANCE) / math.log(1 - LOWEST_PASS_RATE) / 100)
"""This many completions without a right one exclude ``LOWEST_PASS_RATE``: 598, rounded up to hundreds."""

PATIENCE = 10
"""A run waits for a solved group at most this many times as long as it did on average before."""

MAX_REJECTED_BATCHES = 50
"""The run stops after this many batches of consecutive dropped groups that are not all wrong."""


class GroupOutcomes:
    """Counts finished groups; the streaks begin after the last group that could train.

    The streak of wrong completions also begins again after a right one.

    Args:
        custom: The reward is a user's own: its scale is unknown, and right is what it calls so.
    """

    def __init__(self, *, custom: bool = False) -> None:
        self._custom = custom
        self.admitted = self.completions = self.right = 0
        self.dropped: Counter[str] = Counter()
        self.last_error = ""
        """The newest failure of the reward function, and the problem."""
        self.on_first_error: Callable[[str], None] = lambda error: None
        """Called with the first failure."""
        self._solved = 0
        """Groups with a right completion, or that could train."""
        self._rejected: Counter[str] = Counter()
        """Why the groups since the last admitted one were dropped."""
        self._rewards = RewardRange()
        """The rewards of these groups."""
        self._wrong = WrongStreak()

    @property
    def finished(self) -> int:
        """Groups finished in this process."""
        return self.admitted + self.dropped.total()

    def add(self, group: Group) -> None:
        """Count a finished group."""
        right = sum(reward.correct for reward in group.rewards)
        # A custom reward may train groups in which nothing counts as right.
        is_solved = right > 0 or group.dropped is None
        self.completions += len(group.rewards)
        self.right += right
        self._solved += is_solved
        self._note_error(group)
        if group.dropped is None:
            self.admitted += 1
            # A group that trains ends the streak of those that do not.
            self._rejected.clear()
            self._rewards = RewardRange()
        else:
            self._rewards.add(group)
            self.dropped[group.dropped] += 1
            self._rejected[group.dropped] += 1
        if is_solved:
            self._wrong = WrongStreak()
        else:
            self._wrong.add(group)

    def _note_error(self, group: Group) -> None:
        """Note the last failure of the reward function in a group, if any."""
        errors = [reward.detail for reward in group.rewards if reward.reason == "reward-error"]
        if not errors:
            return
        is_first = not self.last_error
        self.last_error = f"problem {group.problem.get('id')}: {first_line(ValueError(errors[-1]))}"
        if is_first:
            self.on_first_error(self.last_error)

    def counts(self) -> dict[str, Any]:
        """The counts of this process, for events."""
        return {
            "groups_finished": self.finished,
            "groups_admitted": self.admitted,
            "groups_dropped": dict(self.dropped),
            "completions": self.completions,
            "right": self.right,
        }

    def text(self, update: int, updates: int) -> str:
        """The counts as one line; ``update`` is the one that groups are collected for."""
        dropped = f"{self.dropped.total():,} dropped"
        if self.dropped:
            dropped += f": {_in_words(self.dropped)}"
        error = f"; the reward function failed: {self.last_error}" if self.last_error else ""
        return (
            f"update {update:,} of {updates:,}: {self.finished:,} groups finished ({self.admitted:,} admitted, "
            f"{dropped}), {self.completions:,} completions, {self.right:,} right{error}"
        )

    def stop_reason(self, batch_groups: int) -> str | None:
        """Why the run should stop after the last group, or None. ``batch_groups``: groups of an update."""
        # A reward that fails makes nothing right, so its own message comes first.
        return (
            self._reward_fault(batch_groups)
            or self._never_right_fault(batch_groups)
            or self._rejected_fault(batch_groups)
        )

    def _reward_fault(self, batch_groups: int) -> str | None:
        """A run stops when the groups with failing rewards since the last admitted group fill one batch."""
        failed = self._rejected["reward-error"]
        if failed < batch_groups:
            return None
        return (
            f"the reward function (--reward) failed in {failed:,} groups, a whole batch: {self.last_error}; correct "
            "the function, which must return a reward for any completion, and repeat the command with --restart"
        )

    def _never_right_fault(self, batch_groups: int) -> str | None:
        """A run stops when at least ``MAX_WRONG`` graded completions of at least one batch of groups have no right
        one and no group trained meanwhile, unless earlier waits for a solved group were nearly as long (``PATIENCE``).
        """
        wrong = self._wrong
        if wrong.completions < MAX_WRONG or wrong.groups < batch_groups:
            return None
        # The groups of this process before the streak, for each solved one.
        earlier_wait = (self.finished - wrong.groups) / self._solved if self._solved else 0.0
        if wrong.groups < PATIENCE * earlier_wait:
            return None
        if self._custom:
            number = f"{wrong.groups:,} consecutive groups of {wrong.completions:,} completions"
            return f"{number} had zero advantage: {self._custom_advice()}"
        return (
            f"none of {wrong.completions:,} completions of {wrong.groups:,} groups is right, which excludes a pass "
            f"rate of {100 * LOWEST_PASS_RATE:g} % ({_in_words(wrong.reasons)}); {wrong.advice()}"
        )

    def _rejected_fault(self, batch_groups: int) -> str | None:
        """A run stops when ``MAX_REJECTED_BATCHES`` batches of groups, not counting all-wrong ones, have been dropped
        and none could train meanwhile.
        """
        rejected = self._rejected.total()
        not_all_wrong = rejected - self._rejected["all-wrong"]
        if not_all_wrong <= MAX_REJECTED_BATCHES * batch_groups:
            return None
        ungraded = any(reason in UNGRADED_ADVICE for reason in self._rejected)
        outcome = "could not train" if ungraded else "had zero advantage"
        reasons = _in_words(self._rejected)
        return f"{rejected:,} consecutive groups {outcome} ({reasons}); {self._rejected_advice(rejected)}"

    def _rejected_advice(self, rejected: int) -> str:
        """What to do about the most frequent reason."""
        # The advice is for the most frequent reason; the message lists all.
        reason, count = self._rejected.most_common(1)[0]
        if reason in UNGRADED_ADVICE:
            return UNGRADED_ADVICE[reason]
        if self._custom:
            return self._custom_advice()
        if reason == "same-reward":
            return f"{self._rewards.text()}; {EQUAL_ADVICE}"
        if self._rewards.differ and reason in ("all-right", "all-wrong"):
            return f"rewards differ within groups ({self._rewards.span()}): try --diverse-by reward"
        if reason == "all-right" and 2 * count > rejected:
            return "the problems are too easy: keep harder ones with `magcli filter-math --keep 0.01..0.9`"
        return "use other problems"

    def _custom_advice(self) -> str:
        """Why groups with a custom reward do not train, and what to do."""
        rewards = self._rewards
        compared_rewards = self._rejected["same-reward"] > 0  # only --diverse-by reward has this reason
        if rewards.differ and not compared_rewards:
            return (
                f"the rewards within a group differ ({rewards.span()}), but all of a group are below 1 or all are 1 or "
                "more, and from 1 on they count as right: compare the rewards themselves, with --diverse-by reward"
            )
        advice = rewards.advice()
        if not compared_rewards and not rewards.is_binary:
            advice += "; with rewards that are not 0 and 1 use --diverse-by reward"
        return f"{rewards.text()}; {advice}"


class RewardRange:
    """The rewards of groups that could not train: how far they reach, and how far they differ within a group."""

    def __init__(self) -> None:
        self.groups = 0
        self.smallest = math.inf
        self.largest = -math.inf
        self.difference = 0.0
        """The largest difference of two completions of a group; of correctness, which decides, if that is smaller."""

    def add(self, group: Group) -> None:
        """Add a group; completions that could not be graded do not count."""
        graded = [reward for reward in group.rewards if reward.trainable]
        if not graded:
            return
        totals = [reward.total for reward in graded]
        # Length and language make totals differ even among answers that are all wrong.
        correctness = [reward.correctness for reward in graded]
        self.groups += 1
        self.smallest = min(self.smallest, *totals)
        self.largest = max(self.largest, *totals)
        difference_of_totals = max(totals) - min(totals)
        difference_of_correctness = max(correctness) - min(correctness)
        self.difference = max(self.difference, min(difference_of_totals, difference_of_correctness))

    @property
    def differ(self) -> bool:
        """Whether rewards differ within a group so far that they could train it."""
        return self.difference > EQUAL

    @property
    def is_binary(self) -> bool:
        """Whether all are 0 or 1."""
        return {self.smallest, self.largest} <= {0.0, 1.0}

    def span(self) -> str:
        """The smallest and the largest reward in words."""
        return f"smallest {_exact(self.smallest)}, largest {_exact(self.largest)}"

    def text(self) -> str:
        """That rewards are equal within each group, with their range."""
        if 0 < self.difference <= EQUAL:
            return (
                f"rewards differ within the {self.groups:,} groups by at most {self.difference:.2g} ({self.span()}), "
                f"and less than {EQUAL:g} counts as equal"
            )
        return f"each of the {self.groups:,} groups has equal rewards: {self.span()}"

    def advice(self) -> str:
        """How rewards could differ."""
        if 0 < self.difference <= EQUAL:
            return "multiply the rewards by a constant"
        if self.smallest == self.largest:
            return (
                "check that the reward tells completions apart; if it does, raise --temperature, or use problems that "
                "are solved sometimes"
            )
        return EQUAL_ADVICE


EQUAL_ADVICE = "raise --temperature or --group-size, or use problems that are solved sometimes"
UNGRADED_ADVICE = {
    "timeout": "verdicts take longer than --verify-deadline: give them more time, or make the reward faster",
    "infra-error": "grading itself fails: column detail of the run's groups says how",
    "bad-gold": "their ground truth cannot be parsed: drop these problems with `magcli clean-math`",
    "reward-error": "the reward function fails: correct it",
}
"""What to do where grading failed in most groups, by reason."""


def _exact(value: float) -> str:
    """A reward, as a number that is no integer by sight."""
    return str(float(f"{value:.6g}"))


class WrongStreak:
    """Consecutive groups without a right completion, and how their completions are wrong."""

    def __init__(self) -> None:
        self.groups = self.completions = self.right_anywhere = self.truncated = 0
        self.reasons: Counter[str] = Counter()
        self.rewards_differ = False
        """Whether correctness and total of the rewards inside some group differ, so that the rewards could train it."""

    def add(self, group: Group) -> None:
        """Count a dropped group without a right completion; completions that could not be graded do not count."""
        graded = [reward for reward in group.rewards if reward.trainable]
        is_truncated = [rollout.finish == "length" for rollout in group.rollouts]
        self.groups += 1
        self.completions += len(graded)
        self.right_anywhere += sum(reward.correct_anywhere for reward in graded)
        self.truncated += sum(is_truncated)
        self.reasons.update(reward.reason for reward in graded)
        # Totals also differ by format and length, which do not teach the answer.
        correctness = {reward.correctness for reward in graded}
        totals = {reward.total for reward in graded}
        self.rewards_differ |= len(correctness) > 1 and len(totals) > 1

    def advice(self) -> str:
        """The next command."""
        if self.rewards_differ:
            return "rewards differ within groups: try --diverse-by reward"
        if self.right_anywhere:
            return (
                f"{self.right_anywhere:,} have the right answer in the wrong format: teach the format first, with "
                "`magcli cold-start` and `magcli sft`"
            )
        if 2 * self.truncated > self.completions:
            return f"{self.truncated:,} reach the token limit: increase --max-tokens"
        measure = "measure the difficulty with `magcli filter-math PROBLEMS --model MODEL --anywhere`"
        # Of wrong answers in the right format problems are too hard; of others the format is not learned.
        misformatted = self.completions - self.reasons["wrong"] - self.reasons["wrong-answer"]
        if 2 * misformatted > self.completions:
            return f"{measure}, and teach the format with `magcli cold-start` and `magcli sft`, or use easier problems"
        return f"{measure}, and use easier problems"


def _in_words(counts: Counter[str]) -> str:
    return ", ".join(f"{reason} {count:,}" for reason, count in counts.most_common() if count)
