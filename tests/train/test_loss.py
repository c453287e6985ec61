"""The objectives: against the recipe's formula written out, and under every split into micro-batches."""

import math
import random
from collections import defaultdict
from itertools import chain, pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from magcli.errors import MagError
from magcli.train.attention import use_packed_attention
from magcli.train.logprobs import token_logprobs
from magcli.train.loss import (
    clip_summary,
    grpo_loss,
    kl_penalty,
    mismatch_summary,
    sft_loss,
    token_weights,
    truncated_importance,
)
from magcli.train.packing import pack

CLIP = {"clip_low": 0.2, "clip_high": 0.28}
PROMPT = 4
LENGTHS = [11, 3, 25, 8, 1, 17, 30, 2]
GROUPS = ["a", "a", "b", "b", "a", "c", "c", "b"]


@pytest.fixture(scope="module")
def trained(tiny_model_dir):
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir)
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


@given(st.lists(st.tuples(tokens, st.sampled_from("abc"), st.floats(-3, 3)), min_size=1, max_size=8))
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
        **CLIP,
    )
    assert loss.item() == pytest.approx(-direct_objective(new, old, advantages, groups), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("norm", ["group", "token", "sample"])
@given(st.lists(st.tuples(st.integers(1, 500), st.sampled_from("abcd")), min_size=1, max_size=30))
def test_the_weights_of_all_tokens_sum_to_one(norm, samples):
    lengths, groups = [length for length, _ in samples], [group for _, group in samples]
    weights = token_weights(lengths, groups, norm=norm)
    assert (weights * torch.tensor(lengths)).sum().item() == pytest.approx(1.0, rel=1e-5)


def test_token_weights_of_a_known_mini_batch():
    lengths, groups = [2, 6, 2], ["a", "a", "b"]
    assert token_weights(lengths, groups, norm="group").tolist() == pytest.approx([1 / 16, 1 / 16, 1 / 4])
    assert token_weights(lengths, groups, norm="token").tolist() == pytest.approx([1 / 10] * 3)
    assert token_weights(lengths, groups, norm="sample").tolist() == pytest.approx([1 / 6, 1 / 18, 1 / 6])


def test_a_sequence_without_generated_tokens_is_refused():
    with pytest.raises(MagError, match="without generated tokens"):
        token_weights([3, 0], ["a", "a"], norm="token")


def micro_batch_loss(model, rollouts, weights, batch):
    sequences, old, advantages = rollouts
    packed = pack([sequences[i] for i in batch])
    generated = packed.position_ids[0] >= PROMPT
    return grpo_loss(
        token_logprobs(model, packed, where=generated, chunk=32).values,
        torch.cat([old[i] for i in batch]),
        packed.spread([advantages[i] for i in batch]),
        packed.spread(weights[batch]) * generated,
        **CLIP,
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


@settings(max_examples=15, deadline=None)
@given(batches=splits)
def test_any_split_gives_sft_the_same_gradient(trained, rollouts, batches):
    sequences, _, _ = rollouts

    def loss(batch):
        packed = pack([sequences[i] for i in batch])
        mask = packed.position_ids[0] >= PROMPT
        return sft_loss(token_logprobs(trained, packed, where=mask).values, mask, total=sum(LENGTHS))

    expected = gradient(trained, [loss(list(range(len(LENGTHS))))])
    got = gradient(trained, (loss(batch) for batch in batches))
    assert (got - expected).norm() <= 1e-5 * expected.norm()


@settings(max_examples=10, deadline=None)
@given(batches=splits)
def test_clip_metrics_do_not_depend_on_the_split(trained, rollouts, batches):
    weights = token_weights(LENGTHS, GROUPS, norm="group")
    with torch.no_grad():
        whole = clip_summary([micro_batch_loss(trained, rollouts, weights, list(range(len(LENGTHS))))[1]])
        parts = clip_summary([micro_batch_loss(trained, rollouts, weights, batch)[1] for batch in batches])
    assert parts == pytest.approx(whole, rel=1e-4, abs=1e-6)


def test_sft_loss_is_the_mean_over_targets():
    logprobs = torch.tensor([-1.0, -2.0, -4.0])
    mask = torch.tensor([False, True, True])
    assert sft_loss(logprobs, mask, total=2).item() == pytest.approx(3.0)
    weighted = sft_loss(logprobs, mask, total=4, weight=torch.tensor([9.0, 1.0, 3.0]))
    assert weighted.item() == pytest.approx(3.5)
    with pytest.raises(MagError, match="needs target tokens"):
        sft_loss(logprobs, mask, total=0)


@pytest.mark.parametrize(
    ("log_ratio", "advantage", "low", "high"),
    [(0.5, 1.0, False, True), (0.5, -1.0, False, False), (-0.5, 1.0, False, False), (-0.5, -1.0, True, False)],
)
def test_a_clipped_token_has_no_gradient_and_is_counted_on_its_side(log_ratio, advantage, low, high):
    new = torch.tensor([log_ratio - 1.0], requires_grad=True)
    loss, stats = grpo_loss(new, torch.tensor([-1.0]), torch.tensor([advantage]), torch.ones(1), **CLIP)
    loss.backward()
    assert (stats.low.item(), stats.high.item()) == (low, high)
    assert (new.grad.item() == 0.0) == (low or high)


def test_on_policy_the_gradient_is_that_of_reinforce():
    new = torch.tensor([-0.3, -2.0], requires_grad=True)
    loss, stats = grpo_loss(new, new.detach(), torch.tensor([2.0, -1.0]), torch.tensor([0.5, 0.25]), **CLIP)
    loss.backward()
    assert new.grad.tolist() == pytest.approx([-1.0, 0.25])
    summary = clip_summary([stats])
    assert summary["approx_kl"] == summary["clip_low"] == summary["clip_high"] == 0.0
    assert summary["ratio_min"] == summary["ratio_p50"] == summary["ratio_max"] == 1.0


def test_tokens_of_weight_zero_count_nowhere():
    new = torch.tensor([-0.1, -100.0], requires_grad=True)
    loss, stats = grpo_loss(new, torch.tensor([-0.2, 0.0]), torch.ones(2), torch.tensor([1.0, 0.0]), **CLIP)
    loss.backward()
    assert len(stats.log_ratio) == 1
    assert new.grad[1].item() == 0.0


def test_a_log_prob_that_is_no_number_shows_in_the_loss():
    new = torch.tensor([-0.1, -0.2], requires_grad=True)
    loss, _ = grpo_loss(new, torch.tensor([-0.2, math.nan]), torch.ones(2), torch.tensor([1.0, math.nan]), **CLIP)
    assert loss.isnan()


def test_an_absurd_ratio_gives_a_finite_gradient():
    new = torch.tensor([0.0, 0.0], requires_grad=True)
    loss, _ = grpo_loss(new, torch.tensor([-200.0, -200.0]), torch.tensor([1.0, -1.0]), torch.ones(2), **CLIP)
    loss.backward()
    assert new.grad.isfinite().all()


def test_no_tokens_give_no_metrics():
    empty = torch.zeros(0)
    assert clip_summary([grpo_loss(empty, empty, empty, empty, **CLIP)[1]]) == {}


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
    divergence, tokens = kl_penalty(new, other, new.exp())
    assert divergence.item() == pytest.approx((new.exp() * (new - other)).sum().item(), abs=1e-9)
    assert (tokens >= -1e-12).all()
    same = new.clone().requires_grad_()
    kl_penalty(same, new, torch.ones_like(new))[0].backward()
    assert same.grad.abs().max() <= 1e-12


def test_an_absurd_reference_gives_a_finite_penalty():
    new = torch.tensor([-300.0, 0.0], requires_grad=True)
    loss, _ = kl_penalty(new, torch.tensor([0.0, -300.0]), torch.ones(2))
    loss.backward()
    assert loss.isfinite()
    assert new.grad.isfinite().all()


def test_mismatch_of_known_log_ratios():
    parts = [torch.linspace(-1, 0, 51), torch.zeros(0), torch.linspace(0.02, 1, 50)]
    got = mismatch_summary(parts)
    assert got["mismatch_tokens"] == 101
    expected = {"mean": 51 / 101, "p50": 0.5, "p90": 0.9, "p99": 1.0, "max": 1.0, "signed": 0.0}
    assert {name: got[f"mismatch_{name}"] for name in expected} == pytest.approx(expected, abs=1e-6)
    assert mismatch_summary([]) == mismatch_summary([torch.zeros(0)]) == {"mismatch_tokens": 0}


def test_mismatch_of_what_is_no_number_is_no_number():
    assert math.isnan(mismatch_summary([torch.full((9,), math.nan)])["mismatch_p50"])
