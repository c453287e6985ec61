"""Weight decay groups, the schedule, and steps that skip bad gradients."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from magcli.train.attention import use_packed_attention
from magcli.train.logprobs import token_logprobs
from magcli.train.optim import adamw, autocast, clip_and_step, cosine, default_lr, set_lr
from magcli.train.packing import pack
from magcli.train.sft import sft_loss


def test_only_matrices_decay(model):
    decayed, plain = adamw(model, lr=1e-3, weight_decay=0.1).param_groups
    assert decayed["weight_decay"] == 0.1
    assert plain["weight_decay"] == 0.0
    assert all(parameter.ndim == 2 for parameter in decayed["params"])
    assert len(plain["params"]) == sum("norm" in name for name, _ in model.named_parameters())
    assert len(decayed["params"]) + len(plain["params"]) == len(list(model.parameters()))


@given(st.integers(1, 300), st.integers(0, 50), st.floats(0, 1))
def test_the_schedule_rises_then_falls_between_its_bounds(total, warmup, floor):
    factors = [cosine(step, total=total, warmup=warmup, floor=floor) for step in range(total + 5)]
    assert all(0 < factor <= 1 for factor in factors[: min(warmup, total)])
    assert factors[:warmup] == sorted(factors[:warmup])
    assert factors[warmup:] == sorted(factors[warmup:], reverse=True)
    assert all(factor >= floor - 1e-12 for factor in factors[warmup:])
    assert factors[-1] == pytest.approx(floor) or total + 5 <= warmup + 1 or total < warmup


def test_the_schedule_at_known_steps():
    assert [cosine(step, total=10, warmup=2, floor=0.2) for step in (0, 1, 2, 6, 10)] == pytest.approx(
        [0.5, 1.0, 1.0, 0.6, 0.2]
    )


def test_a_step_clips_the_gradient_and_clears_it():
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    weight.grad = torch.tensor([3.0, 4.0])
    assert clip_and_step(optimizer, [weight], max_norm=1.0) == pytest.approx(5.0)
    torch.testing.assert_close(weight.data, torch.tensor([-0.6, -0.8]))
    assert weight.grad is None


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_non_finite_gradient_changes_nothing(model, bad):
    optimizer = adamw(model, lr=1e-2, weight_decay=0.1)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    next(model.parameters()).grad[0, 0] = bad
    assert clip_and_step(optimizer, model.parameters(), max_norm=1.0) is None
    assert all(torch.equal(now, then) for now, then in zip(model.parameters(), before, strict=True))
    assert not optimizer.state
    assert all(parameter.grad is None for parameter in model.parameters())


def test_some_steps_memorize_a_sequence(model):
    use_packed_attention(model)
    optimizer = adamw(model, lr=3e-3, weight_decay=0.0)
    packed = pack([[5, 9, 2, 7, 7, 3, 8]])
    targets = packed.position_ids[0] > 0
    losses = []
    for _ in range(30):
        loss = sft_loss(token_logprobs(model, packed).values, targets, total=6)
        loss.backward()
        losses.append(loss.item())
        assert clip_and_step(optimizer, model.parameters(), max_norm=1.0)
    assert losses[0] > 4
    assert losses[-1] < 0.5


def test_the_learning_rate_is_set_in_every_group(model):
    optimizer = adamw(model, lr=1.0, weight_decay=0.1)
    set_lr(optimizer, 0.25)
    assert {group["lr"] for group in optimizer.param_groups} == {0.25}


def test_autocast_runs_products_in_bf16_only_when_enabled():
    x = torch.ones(2, 2)
    with autocast(torch.device("cpu"), enabled=True):
        assert (x @ x).dtype == torch.bfloat16
    with autocast(torch.device("cpu"), enabled=False):
        assert (x @ x).dtype == torch.float32


def test_the_default_learning_rate_falls_with_the_square_root_of_the_number_of_weights():
    assert default_lr(24_000_000_000, at_24b=1e-5, lora=False) == pytest.approx(1e-5)
    assert default_lr(6_000_000_000, at_24b=1e-5, lora=False) == pytest.approx(2e-5)
    assert default_lr(6_000_000_000, at_24b=1e-5, lora=True) == pytest.approx(2e-4)
    assert default_lr(6_000_000_000, at_24b=1e-6, lora=False) == pytest.approx(2e-6)
    assert default_lr(100_000, at_24b=1e-5, lora=False) == 2e-3
