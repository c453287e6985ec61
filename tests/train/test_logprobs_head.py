"""The fused LM head and softmax against PyTorch's own operations."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from magcli.train import logprobs
from magcli.train.logprobs import ScorePlan, score_rows

ROWS, HIDDEN, VOCABULARY = 37, 16, 101


def inputs(*, bias=True):
    torch.manual_seed(0)
    hidden, weight = torch.randn(ROWS, HIDDEN), torch.randn(VOCABULARY, HIDDEN)
    added = torch.randn(VOCABULARY).requires_grad_() if bias else None
    targets, temperature = torch.randint(VOCABULARY, (ROWS,)), torch.linspace(0.5, 2, ROWS)
    return hidden.requires_grad_(), weight.requires_grad_(), added, targets, temperature


def by_the_book(hidden, weight, bias, targets, temperature, softcap=None):
    logits = torch.nn.functional.linear(hidden, weight, bias)
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    logits = logits / temperature[:, None]
    logprobs = logits.log_softmax(-1)
    return logprobs.gather(-1, targets[:, None])[:, 0], -(logprobs.exp() * logprobs).sum(-1)


def gradients(scored, tensors, *, entropy):
    values, entropies = scored
    slopes = torch.linspace(-1, 1, ROWS)
    loss = (values * slopes).sum() + ((entropies * slopes.flip(0)).sum() if entropy else 0)
    return torch.autograd.grad(loss, [tensor for tensor in tensors[:3] if tensor is not None])


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("block", [1, 10, 64])
@pytest.mark.parametrize("softcap", [None, 4.0])
def test_values_and_gradients_are_those_of_plain_operations(softcap, block, store, entropy, bias):
    given = inputs(bias=bias)
    scored = score_rows(*given, ScorePlan(block, store, entropy, softcap=softcap))
    plain = by_the_book(*given, softcap)
    for ours, theirs in zip(scored, plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    found = gradients(scored, given, entropy=entropy), gradients(plain, given, entropy=entropy)
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_large_logits_do_not_overflow():
    hidden, weight, _, targets, temperature = inputs(bias=False)
    given = ((hidden * 1e4).detach().requires_grad_(), weight, None, targets, temperature)
    scored, plain = score_rows(*given, ScorePlan(10, store=True)), by_the_book(*given)
    for ours, theirs in zip(scored, plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert all(gradient.isfinite().all() for gradient in gradients(scored, given, entropy=False))


def test_products_in_bf16_round_the_gradient_and_nothing_else():
    given = inputs()
    exact, rounded = (
        score_rows(*given, ScorePlan(10, True, products=dtype)) for dtype in (torch.float32, torch.bfloat16)
    )
    assert torch.equal(exact[0], rounded[0])
    for ours, theirs in zip(
        gradients(rounded, given, entropy=False), gradients(exact, given, entropy=False), strict=True
    ):
        assert 0 <= (ours - theirs).norm() < 0.01 * theirs.norm()


def test_frozen_weights_get_no_gradient():
    hidden, weight, bias, targets, temperature = inputs()
    values, _ = score_rows(hidden, weight.detach(), bias.detach(), targets, temperature, ScorePlan(10, store=False))
    values.sum().backward()
    assert hidden.grad is not None
    assert weight.grad is None


def test_zero_rows_have_a_zero_gradient():
    hidden, weight, bias, targets, temperature = inputs()
    values, _ = score_rows(hidden[:0], weight, bias, targets[:0], temperature[:0], ScorePlan(10, store=True))
    values.sum().backward()
    assert not weight.grad.any()


class LargestTensor(TorchDispatchMode):
    """Records the number of elements of the largest tensor that an operation makes."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        result = function(*arguments, **(keywords or {}))
        for made in result if isinstance(result, tuple | list) else (result,):
            if isinstance(made, torch.Tensor):
                self.elements = max(self.elements, made.numel())
        return result


@pytest.mark.parametrize("on_gpu", [False, True])
def test_the_largest_buffer_is_one_block_of_logits(on_gpu, monkeypatch):
    rows, vocabulary, block = 3_000, 1_000, 52
    monkeypatch.setattr(logprobs, "_is_cpu", lambda tensor: not on_gpu)
    hidden = torch.randn(rows, 8, requires_grad=True)
    weight = torch.randn(vocabulary, 8, requires_grad=True)
    targets = torch.randint(vocabulary, (rows,))
    with LargestTensor() as largest:
        values, _ = score_rows(hidden, weight, None, targets, torch.ones(rows), ScorePlan(block, store=False))
        values.sum().backward()
    assert largest.elements <= block * vocabulary


@pytest.mark.parametrize("store", [False, True])
def test_values_and_gradients_on_a_gpu_are_those_on_a_cpu(store, monkeypatch):
    given = inputs()
    results = []
    for on_gpu in (False, True):
        monkeypatch.setattr(logprobs, "_is_cpu", lambda tensor, on_gpu=on_gpu: not on_gpu)
        scored = score_rows(*given, ScorePlan(10, store))
        results.append((*scored, *gradients(scored, given, entropy=False)))
    for cpu, gpu in zip(*results, strict=True):
        torch.testing.assert_close(gpu, cpu, rtol=1e-5, atol=1e-6)
