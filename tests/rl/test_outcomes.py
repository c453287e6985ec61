"""Counts of a run's groups, and when they end a run that cannot learn."""

from dataclasses import replace

import pytest

from magcli.generate.types import Rollout
from magcli.rl.outcomes import MAX_REJECTED_BATCHES, MAX_WRONG, GroupOutcomes
from magcli.rl.types import Group
from magcli.verify.reward import Reward, ungraded


def reward(*, right=False, anywhere=False, correctness=0.0, reason="wrong"):
    return Reward(correctness, 0.0, correctness, 0.0, 0.0, right, right or anywhere, "correct" if right else reason)


def group(rewards, dropped="all-wrong", finish="stop"):
    rollouts = tuple(Rollout(index, (1,), (2,), (-1.0,), ((0, 0),), finish, index) for index, _ in enumerate(rewards))
    return Group(0, {"id": "p"}, (1,), rollouts, ("",) * len(rewards), tuple(rewards), dropped)


def wrong(size=4, finish="stop", **values):
    return group([reward(**values)] * size, finish=finish)


TRAINS = group([reward(right=True), reward(), reward(), reward()], dropped=None)
SOLVED = group([reward(right=True)] * 4, dropped="all-right")


def groups_until_stop(outcomes, finished, batch=1, limit=5_000):
    """How many more groups finish before the run stops, and why."""
    for number in range(1, limit):
        outcomes.add(finished)
        if reason := outcomes.stop_reason(batch):
            return number, reason
    raise AssertionError("the run goes on")


def test_the_limit_excludes_half_a_percent():
    assert MAX_WRONG == 600
    assert 0.995**598 < 0.05 < 0.995**597


@pytest.mark.parametrize(("size", "batch", "stopped"), [(4, 4, 150), (16, 4, 38), (16, 128, 128), (7, 1, 86)])
def test_a_run_without_a_right_completion_stops(size, batch, stopped):
    groups, reason = groups_until_stop(GroupOutcomes(), wrong(size), batch)
    assert groups == stopped
    assert reason.startswith(f"none of {size * stopped:,} completions of {stopped} groups is right")


@pytest.mark.parametrize("between", [TRAINS, SOLVED, group([reward(), reward(correctness=0.5)], dropped=None)])
def test_a_right_completion_or_a_group_that_trains_begins_the_count_again(between):
    outcomes = GroupOutcomes()
    for finished in ([wrong()] * 149 + [between]) * 3:
        outcomes.add(finished)
        assert outcomes.stop_reason(4) is None


def test_a_run_that_solves_few_groups_is_waited_for():
    """One group in thirty is solved: ten times as long without one shows that something has changed."""
    outcomes = GroupOutcomes()
    for finished in ([wrong(16)] * 29 + [TRAINS] + [wrong(16)] * 60 + [TRAINS]) * 20:
        outcomes.add(finished)
        assert outcomes.stop_reason(8) is None
    assert groups_until_stop(outcomes, wrong(16), 8)[0] >= 400


def test_groups_that_train_without_a_right_completion_never_stop_a_run():
    outcomes = GroupOutcomes()
    for _ in range(2_000):
        outcomes.add(group([reward(), reward(correctness=0.5)], dropped=None))
        assert outcomes.stop_reason(1) is None


@pytest.mark.parametrize(
    ("finished", "advice"),
    [
        (wrong(anywhere=True, reason="no-think"), "magcli cold-start` and `magcli sft`"),
        (wrong(reason="no-box"), "--anywhere`, and teach the format"),
        (wrong(finish="length"), "increase --max-tokens"),
        (wrong(), "--anywhere`, and use easier problems"),
        (group([reward(), reward(correctness=0.5)]), "try --diverse-by reward"),
    ],
)
def test_the_advice_follows_from_how_completions_are_wrong(finished, advice):
    assert advice in groups_until_stop(GroupOutcomes(), finished)[1]


def test_rewards_of_equal_totals_are_not_advised_to_decide():
    """They are dropped with --diverse-by reward too, so that it may be given already."""
    equal = group([reward(), replace(reward(correctness=0.5), total=0.0)])
    assert "--diverse-by" not in groups_until_stop(GroupOutcomes(), equal)[1]


def test_failing_rewards_stop_a_run_when_they_fill_a_batch():
    failed = group([ungraded("reward-error", "KeyError: 'x' (own.py:3, f)\nmore")] * 4, dropped="reward-error")
    outcomes = GroupOutcomes()
    for finished in [failed, failed, TRAINS]:
        outcomes.add(finished)
        assert outcomes.stop_reason(3) is None
    groups, reason = groups_until_stop(outcomes, failed, 3)
    assert groups == 3
    assert "failed in 3 groups, a whole batch: problem p: KeyError: 'x' (own.py:3, f); correct" in reason
    assert "\n" not in outcomes.text(1, 9)


def test_a_run_whose_problems_are_all_solved_stops_with_its_own_advice():
    groups, reason = groups_until_stop(GroupOutcomes(), SOLVED, 2)
    assert groups == 2 * MAX_REJECTED_BATCHES + 1
    assert "zero advantage (all-right 101); the problems are too easy" in reason


def test_counts_are_one_line():
    outcomes = GroupOutcomes()
    for finished in [TRAINS, SOLVED, wrong(), wrong()]:
        outcomes.add(finished)
    assert outcomes.text(3, 100) == (
        "update 3 of 100: 4 groups finished (1 admitted, 3 dropped: all-wrong 2, all-right 1), 16 completions, 5 right"
    )
    assert outcomes.counts()["groups_dropped"] == {"all-right": 1, "all-wrong": 2}


def scored(*totals, dropped):
    """A group with a custom reward: a number of 1 or more counts as right."""
    rewards = [Reward(t, 0.0, t, 0.0, 0.0, t >= 1, t >= 1, "correct" if t >= 1 else "wrong") for t in totals]
    return group(rewards, dropped=dropped)


@pytest.mark.parametrize(
    ("finished", "advice"),
    [
        (scored(1.0, 5.0, 9.0, 2.0, dropped="all-right"), "differ (smallest 1.0, largest 9.0)"),
        (scored(0.1, 0.5, -0.8, 0.0, dropped="all-wrong"), "differ (smallest -0.8, largest 0.5)"),
        (scored(3.0, 3.0, 3.0, 3.0, dropped="all-right"), "has equal rewards: smallest 3.0, largest 3.0"),
        (scored(3.0, 3.0, 3.0, 3.0, dropped="same-reward"), "has equal rewards: smallest 3.0, largest 3.0"),
        (scored(0.3, 0.3, 0.3, 0.3, dropped="same-reward"), "has equal rewards: smallest 0.3, largest 0.3"),
        (
            scored(0.0, 4e-8, 0.0, 0.0, dropped="same-reward"),
            "by at most 4e-08 (smallest 0.0, largest 4e-08)",
        ),
    ],
)
def test_with_a_custom_reward_the_reason_is_the_range_of_rewards(finished, advice):
    reason = groups_until_stop(GroupOutcomes(custom=True), finished, 2)[1]
    assert advice in reason
    assert "is right" not in reason
    assert "easy" not in reason
    assert "easier" not in reason
    assert "filter-math" not in reason
    assert ("--diverse-by reward" in reason) == (finished.dropped != "same-reward")


def test_partial_rewards_of_groups_that_are_all_right_are_to_be_compared():
    """Also of the recipe's reward, for example with --partial."""
    finished = scored(1.0, 1.1, 1.0, 1.0, dropped="all-right")
    assert "try --diverse-by reward" in groups_until_stop(GroupOutcomes(), finished, 2)[1]


def test_groups_that_cannot_be_graded_do_not_have_zero_advantage():
    finished = group([ungraded("timeout", "over 2 s")] * 4, dropped="timeout")
    reason = groups_until_stop(GroupOutcomes(), finished, 2)[1]
    assert "could not train (timeout 101); verdicts take longer than --verify-deadline" in reason


def test_the_first_failure_of_a_reward_is_told_at_once_with_its_problem():
    told = []
    outcomes = GroupOutcomes()
    outcomes.on_first_error = told.append
    for detail in ("SystemExit: 3 (own.py:3, f)", "KeyError: 'x'"):
        outcomes.add(group([reward(), ungraded("reward-error", detail)], dropped="reward-error"))
    assert told == ["problem p: SystemExit: 3 (own.py:3, f)"]
