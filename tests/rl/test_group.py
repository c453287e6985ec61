"""Advantages and the removal of groups that teach nothing (recipe, section 1)."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.errors import MagError
from magcli.rl.group import advantages, diverse, drop_reason

rewards_of_groups = st.lists(
    st.lists(st.sampled_from([0.0, 0.05, 0.1, 0.9, 1.0, 1.1]), min_size=1, max_size=8), min_size=1, max_size=6
)


def flatten(groups: list[list[float]]) -> tuple[list[float], list[int]]:
    rewards = [reward for group in groups for reward in group]
    names = [name for name, group in enumerate(groups) for _ in group]
    return rewards, names


@given(rewards_of_groups)
def test_unnormalised_advantages_are_rewards_minus_their_groups_mean(groups):
    rewards, names = flatten(groups)
    expected = [reward - statistics.fmean(group) for group in groups for reward in group]
    assert advantages(rewards, names, norm="none") == pytest.approx(expected, abs=1e-12)


@given(rewards_of_groups)
def test_minibatch_advantages_follow_the_formula(groups):
    rewards, names = flatten(groups)
    centred = advantages(rewards, names, norm="none")
    mean, std = statistics.fmean(centred), statistics.pstdev(centred)
    expected = [(a - mean) / std if std > 1e-6 else 0.0 for a in centred]
    assert advantages(rewards, names, norm="minibatch") == pytest.approx(expected, abs=1e-9)


@given(rewards_of_groups)
def test_group_advantages_have_the_spread_of_one_in_each_group_that_differs(groups):
    rewards, names = flatten(groups)
    result = iter(advantages(rewards, names, norm="group"))
    for group in groups:
        own = [next(result) for _ in group]
        spread = 1.0 if max(group) > min(group) else 0.0
        assert statistics.fmean(own) == pytest.approx(0.0, abs=1e-9)
        assert statistics.pstdev(own) == pytest.approx(spread, abs=1e-9)


@pytest.mark.parametrize("norm", ["minibatch", "group", "none"])
@given(rewards_of_groups, st.randoms(use_true_random=False))
def test_the_order_of_completions_does_not_matter(norm, groups, random):
    rewards, names = flatten(groups)
    order = list(range(len(rewards)))
    random.shuffle(order)
    shuffled = advantages([rewards[i] for i in order], [names[i] for i in order], norm=norm)
    straight = advantages(rewards, names, norm=norm)
    assert shuffled == pytest.approx([straight[i] for i in order], abs=1e-9)


@pytest.mark.parametrize("norm", ["minibatch", "group", "none"])
def test_equal_rewards_give_no_advantage_even_when_they_cannot_be_averaged_exactly(norm):
    result = advantages([0.1] * 3 + [0.7] * 3, ["a"] * 3 + ["b"] * 3, norm=norm)
    assert result == pytest.approx([0.0] * 6, abs=1e-12)


def test_no_completions_give_no_advantages():
    assert advantages([], [], norm="minibatch") == []


def test_each_reward_needs_a_group():
    with pytest.raises(MagError, match="2 rewards for 1 group"):
        advantages([0.0, 1.0], ["a"], norm="none")


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.1, 1.0]), st.booleans()), min_size=1, max_size=6))
def test_a_group_is_diverse_when_two_of_its_outcomes_or_rewards_differ(samples):
    rewards, correct = [reward for reward, _ in samples], [right for _, right in samples]
    assert diverse(rewards, correct, by="outcome") == (len(set(correct)) > 1)
    assert diverse(rewards, correct, by="reward") == (len(set(rewards)) > 1)


def test_float32_rounding_is_no_difference():
    assert not diverse([0.1, math.nextafter(0.1, 1.0), 0.1 + 1e-8], [False] * 3, by="reward")


@pytest.mark.parametrize(
    ("rewards", "correct", "by", "expected"),
    [
        ([1.0, 0.1], [True, False], "outcome", None),
        ([1.0, 0.9], [True, True], "outcome", "all-right"),
        ([0.1, 0.0], [False, False], "outcome", "all-wrong"),
        ([1.0, 0.9], [True, True], "reward", None),
        ([0.1, 0.0], [False, False], "reward", None),
        ([0.1, 0.1], [False, False], "reward", "same-reward"),
    ],
)
def test_groups_that_teach_nothing_are_dropped_with_a_reason(rewards, correct, by, expected):
    reasons = ["correct" if right else "wrong" for right in correct]
    assert drop_reason(rewards, correct, reasons, by=by) == expected


@pytest.mark.parametrize("ungraded", ["bad-gold", "timeout", "infra-error"])
@pytest.mark.parametrize("by", ["outcome", "reward"])
def test_one_sample_whose_grading_failed_keeps_a_group_from_training(ungraded, by):
    assert drop_reason([1.0, 0.1, 0.0], [True, False, False], ["correct", "wrong", ungraded], by=by) == ungraded


def test_a_group_needs_completions():
    with pytest.raises(MagError, match="without completions"):
        drop_reason([], [], [], by="outcome")
