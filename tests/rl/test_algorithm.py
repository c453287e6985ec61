"""The terms of the objective: against the formulas of the papers written out, and under every split."""

import math
import random
import statistics
from collections import defaultdict
from itertools import chain, pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from magcli.errors import MagError
from magcli.model.load import load_model
from magcli.rl.algorithm import (
    Tokens,
    advantages,
    clipped_policy_loss,
    drop_reason,
    is_clipped,
    kl_estimate,
    token_weights,
    truncated_importance,
    weighted_loss,
)
from magcli.rl.metrics import clip_summary
from magcli.rl.types import ClipStats
from magcli.train.attention import use_packed_attention
from magcli.train.logprobs import token_logprobs
from magcli.train.packing import pack

CLIP = {"clip_low": 0.2, "clip_high": 0.28}
PROMPT = 4
LENGTHS = [11, 3, 25, 8, 1, 17, 30, 2]
GROUPS = [0, 0, 1, 1, 0, 2, 2, 1]


def grpo_loss(new, old, advantage, weight):
    """The weighted loss of tokens, and what clipping does to them."""
    tokens = Tokens(new, old, advantage, torch.zeros(len(new), dtype=torch.long))
    stats = ClipStats((new - old).detach(), *is_clipped(tokens, **CLIP))
    return weighted_loss(weight, clipped_policy_loss(tokens, **CLIP)), stats


@pytest.fixture(scope="module")
def trained(tiny_model_dir):
    model = load_model(str(tiny_model_dir), dtype=torch.float32)
    use_packed_attention(model)
    return model


@pytest.fixture(scope="module")
def rollouts(trained):
    """Sequences of a prompt and an answer, their sampler log-probs (off the policy by some) and advantages."""
    draw = random.Random(1)
    sequences = [[draw.randrange(104) for _ in range(PROMPT + length)] for length in LENGTHS]
    packed = pack(sequences)
    with torch.no_grad():
        own = token_logprobs(trained, packed).values
    noise = torch.randn(own.shape, generator=torch.Generator().manual_seed(0)) * 0.3
    return sequences, list((own + noise).split(packed.lengths)), [draw.gauss(0, 1) for _ in LENGTHS]


def direct_objective(new, old, advantages, groups):
    """Section 1 of the recipe, a token at a time: mean over groups of 1/sum|o_i| sum_i sum_t min(...)."""
    members = defaultdict(list)
    for index, group in enumerate(groups):
        members[group].append(index)
    objective = 0.0
    for indices in members.values():
        total = 0.0
        for i in indices:
            for new_token, old_token in zip(new[i], old[i], strict=True):
                ratio = math.exp(new_token - old_token)
                clipped = min(max(ratio, 1 - 0.2), 1 + 0.28)
                total += min(ratio * advantages[i], clipped * advantages[i])
        objective += total / sum(len(new[i]) for i in indices)
    return objective / len(members)


tokens = st.lists(st.tuples(st.floats(-6, 0), st.floats(-1.5, 1.5)), min_size=1, max_size=6)


@given(st.lists(st.tuples(tokens, st.integers(0, 2), st.floats(-3, 3)), min_size=1, max_size=8))
def test_the_loss_is_the_negated_objective_of_the_recipe(samples):
    old = [[value for value, _ in sequence] for sequence, _, _ in samples]
    new = [[value + shift for value, shift in sequence] for sequence, _, _ in samples]
    groups, advantages = [group for _, group, _ in samples], [advantage for _, _, advantage in samples]
    lengths = [len(values) for values in new]
    repeats = torch.tensor(lengths)
    loss, _ = grpo_loss(
        torch.tensor(list(chain(*new))),
        torch.tensor(list(chain(*old))),
        torch.tensor(advantages).repeat_interleave(repeats),
        token_weights(lengths, groups, norm="group").repeat_interleave(repeats),
    )
    assert loss.item() == pytest.approx(-direct_objective(new, old, advantages, groups), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("norm", ["group", "token", "sample"])
@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 3)), min_size=1, max_size=30))
def test_the_weights_of_all_tokens_sum_to_one(norm, samples):
    lengths, groups = [length for length, _ in samples], [group for _, group in samples]
    weights = token_weights(lengths, groups, norm=norm)
    assert (weights * torch.tensor(lengths)).sum().item() == pytest.approx(1.0, rel=1e-5)


def test_token_weights_of_a_known_mini_batch():
    lengths, groups = [2, 6, 2], [0, 0, 1]
    assert token_weights(lengths, groups, norm="group").tolist() == pytest.approx([1 / 16, 1 / 16, 1 / 4])
    assert token_weights(lengths, groups, norm="token").tolist() == pytest.approx([1 / 10] * 3)
    assert token_weights(lengths, groups, norm="sample").tolist() == pytest.approx([1 / 6, 1 / 18, 1 / 6])


def test_a_sequence_without_generated_tokens_is_refused():
    with pytest.raises(MagError, match="without generated tokens"):
        token_weights([3, 0], [0, 0], norm="token")


def micro_batch_loss(model, rollouts, weights, batch):
    sequences, old, advantages = rollouts
    packed = pack([sequences[i] for i in batch])
    generated = packed.position_ids[0] >= PROMPT
    return grpo_loss(
        token_logprobs(model, packed, where=generated, chunk=32).values,
        torch.cat([old[i] for i in batch]),
        packed.spread([advantages[i] for i in batch]),
        packed.spread(weights[batch]) * generated,
    )


def gradient(model, losses):
    model.zero_grad()
    for loss in losses:
        loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def split(order, cuts):
    bounds = [0, *sorted(cuts), len(order)]
    return [order[a:b] for a, b in pairwise(bounds) if b > a]


splits = st.builds(split, st.permutations(range(len(LENGTHS))), st.sets(st.integers(1, len(LENGTHS) - 1)))


@pytest.mark.parametrize("norm", ["group", "token", "sample"])
@settings(max_examples=15, deadline=None)
@given(batches=splits)
def test_any_split_into_micro_batches_gives_the_same_gradient(trained, rollouts, norm, batches):
    weights = token_weights(LENGTHS, GROUPS, norm=norm)
    whole, _ = micro_batch_loss(trained, rollouts, weights, list(range(len(LENGTHS))))
    expected = gradient(trained, [whole])
    got = gradient(trained, (micro_batch_loss(trained, rollouts, weights, batch)[0] for batch in batches))
    assert (got - expected).norm() <= 1e-5 * expected.norm()


@pytest.mark.parametrize(
    ("log_ratio", "advantage", "low", "high"),
    [(0.5, 1.0, False, True), (0.5, -1.0, False, False), (-0.5, 1.0, False, False), (-0.5, -1.0, True, False)],
)
def test_a_clipped_token_has_no_gradient_and_is_counted_on_its_side(log_ratio, advantage, low, high):
    new = torch.tensor([log_ratio - 1.0], requires_grad=True)
    loss, stats = grpo_loss(new, torch.tensor([-1.0]), torch.tensor([advantage]), torch.ones(1))
    loss.backward()
    assert (stats.low.item(), stats.high.item()) == (low, high)
    assert (new.grad.item() == 0.0) == (low or high)


def test_on_policy_the_gradient_is_that_of_reinforce():
    new = torch.tensor([-0.3, -2.0], requires_grad=True)
    loss, stats = grpo_loss(new, new.detach(), torch.tensor([2.0, -1.0]), torch.tensor([0.5, 0.25]))
    loss.backward()
    assert new.grad.tolist() == pytest.approx([-1.0, 0.25])
    summary = clip_summary([stats])
    assert summary["approx_kl"] == summary["clip_low_share"] == summary["clip_high_share"] == 0.0
    assert summary["ratio_min"] == summary["ratio_p50"] == summary["ratio_max"] == 1.0


def test_tokens_of_weight_zero_have_no_gradient():
    new = torch.tensor([-0.1, -100.0], requires_grad=True)
    loss, _ = grpo_loss(new, torch.tensor([-0.2, 0.0]), torch.ones(2), torch.tensor([1.0, 0.0]))
    loss.backward()
    assert new.grad[0].item() != 0.0
    assert new.grad[1].item() == 0.0


def test_a_nan_log_prob_makes_the_loss_nan():
    new = torch.tensor([-0.1, -0.2], requires_grad=True)
    loss, _ = grpo_loss(new, torch.tensor([-0.2, math.nan]), torch.ones(2), torch.tensor([1.0, math.nan]))
    assert loss.isnan()


def test_an_absurd_ratio_gives_a_finite_gradient():
    new = torch.tensor([0.0, 0.0], requires_grad=True)
    loss, _ = grpo_loss(new, torch.tensor([-200.0, -200.0]), torch.tensor([1.0, -1.0]), torch.ones(2))
    loss.backward()
    assert new.grad.isfinite().all()


@settings(max_examples=10, deadline=None)
@given(batches=splits)
def test_clip_metrics_do_not_depend_on_the_split(trained, rollouts, batches):
    weights = token_weights(LENGTHS, GROUPS, norm="group")
    with torch.no_grad():
        whole = clip_summary([micro_batch_loss(trained, rollouts, weights, list(range(len(LENGTHS))))[1]])
        parts = clip_summary([micro_batch_loss(trained, rollouts, weights, batch)[1] for batch in batches])
    assert parts == pytest.approx(whole, rel=1e-4, abs=1e-6)


def test_no_tokens_give_no_metrics():
    empty = torch.zeros(0)
    assert clip_summary([grpo_loss(empty, empty, empty, empty)[1]]) == {}


def test_importance_is_the_ratio_up_to_the_cap():
    sampler = torch.tensor([-1.0, -1.0, -1.0, -900.0, -1.0])
    proximal = torch.tensor([-1.0, -1.5, 0.0, -1.0, -900.0], requires_grad=True)
    got = truncated_importance(proximal, sampler, cap=2.0)
    assert got.tolist() == pytest.approx([1.0, math.exp(-0.5), 2.0, 2.0, 0.0], abs=1e-6)
    assert not got.requires_grad


@given(st.lists(st.floats(-4, 4), min_size=2, max_size=9), st.integers(0, 99))
def test_the_expected_penalty_is_the_kl_divergence_and_its_gradient_vanishes_at_the_reference(logits, seed):
    new = torch.tensor(logits, dtype=torch.float64).log_softmax(0)
    other = torch.randn(len(logits), dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).log_softmax(0)
    estimate = kl_estimate(new, other)
    assert (new.exp() * estimate).sum().item() == pytest.approx((new.exp() * (new - other)).sum().item(), abs=1e-9)
    assert (estimate >= -1e-12).all()
    same = new.clone().requires_grad_()
    kl_estimate(same, new).sum().backward()
    assert same.grad.abs().max() <= 1e-12


def test_an_absurd_reference_gives_a_finite_penalty():
    new = torch.tensor([-300.0, 0.0], requires_grad=True)
    loss = kl_estimate(new, torch.tensor([0.0, -300.0])).sum()
    loss.backward()
    assert loss.isfinite()
    assert new.grad.isfinite().all()


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
def test_group_advantages_have_unit_standard_deviation(groups):
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
    result = advantages([0.1] * 3 + [0.7] * 3, [0] * 3 + [1] * 3, norm=norm)
    assert result == pytest.approx([0.0] * 6, abs=1e-12)


def test_no_completions_give_no_advantages():
    assert advantages([], [], norm="minibatch") == []


def test_each_reward_needs_a_group():
    with pytest.raises(MagError, match="2 rewards for 1 group"):
        advantages([0.0, 1.0], [7], norm="none")


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.1, 1.0]), st.booleans()), min_size=1, max_size=6))
def test_a_group_is_diverse_if_two_outcomes_or_rewards_differ(samples):
    rewards, correct = [reward for reward, _ in samples], [right for _, right in samples]
    reasons = ["correct" if right else "wrong" for right in correct]
    assert (drop_reason(rewards, correct, reasons, by="outcome") is None) == (len(set(correct)) > 1)
    assert (drop_reason(rewards, correct, reasons, by="reward") is None) == (len(set(rewards)) > 1)


def test_float32_rounding_is_no_difference():
    rewards = [0.1, math.nextafter(0.1, 1.0), 0.1 + 1e-8]
    assert drop_reason(rewards, [False] * 3, ["wrong"] * 3, by="reward") == "same-reward"


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
def test_groups_with_zero_advantage_are_dropped_with_a_reason(rewards, correct, by, expected):
    reasons = ["correct" if right else "wrong" for right in correct]
    assert drop_reason(rewards, correct, reasons, by=by) == expected


@pytest.mark.parametrize("ungraded", ["bad-gold", "timeout", "infra-error"])
@pytest.mark.parametrize("by", ["outcome", "reward"])
def test_a_group_with_an_ungraded_sample_does_not_train(ungraded, by):
    assert drop_reason([1.0, 0.1, 0.0], [True, False, False], ["correct", "wrong", ungraded], by=by) == ungraded


def test_a_group_needs_completions():
    with pytest.raises(MagError, match="at least one completion"):
        drop_reason([], [], [], by="outcome")
