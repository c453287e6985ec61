"""The fused LM head and softmax against PyTorch's own operations."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from magcli.train import logprobs
from magcli.train.attention import use_packed_attention
from magcli.train.logprobs import ScorePlan, score_rows
from magcli.train.packing import pack

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


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize("softcap", [None, 4.0])
def test_bf16_factors_give_exact_products_and_float32_sums(softcap, store, bias):
    """As on a GPU: the logits are those of rounded hidden states and weights, computed in float32."""
    given = inputs(bias=bias)
    plan = ScorePlan(10, store, softcap=softcap, products=torch.bfloat16, factors=torch.bfloat16)
    scored = score_rows(*given, plan)
    rounded = [tensor.detach().bfloat16().float().requires_grad_() for tensor in given[:2]]
    plain = by_the_book(*rounded, *given[2:], softcap)
    for ours, theirs in zip(scored, plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    exact = by_the_book(*given, softcap)
    assert 1e-4 < (scored[0] - exact[0]).abs().max() < 0.1
    found = gradients(scored, given, entropy=False), gradients(exact, given, entropy=False)
    for ours, theirs in zip(*found, strict=True):
        assert ours.dtype == torch.float32
        assert (ours - theirs).norm() < 0.02 * theirs.norm()


def test_a_frozen_head_in_bf16_needs_no_copy_in_float32():
    hidden, weight, _, targets, temperature = inputs(bias=False)
    plan = ScorePlan(10, store=False, products=torch.bfloat16, factors=torch.bfloat16)
    stored = weight.detach().bfloat16()
    values, _ = score_rows(hidden, stored, None, targets, temperature, plan)
    same, _ = score_rows(hidden, stored.float(), None, targets, temperature, plan)
    assert torch.equal(values, same)
    values.sum().backward()
    assert hidden.grad is not None


def test_only_a_gpu_under_autocast_has_bf16_factors():
    assert logprobs._factors("cuda", torch.bfloat16) == torch.bfloat16
    assert logprobs._factors("cuda", torch.float32) == torch.float32
    assert logprobs._factors("cpu", torch.bfloat16) == torch.float32


def test_on_a_gpu_the_product_has_bf16_factors_and_a_float32_result(monkeypatch):
    """The branch for GPUs, with PyTorch's product replaced: a CPU has none of these types."""
    calls = []

    def mm(first, second, *, out_dtype, out):
        calls.append((first.dtype, second.dtype, out_dtype, out.dtype))
        return out.copy_(first.float() @ second.float())

    hidden, weight, _, targets, temperature = (t.detach() if t is not None else t for t in inputs(bias=False))
    plan = ScorePlan(64, store=False, factors=torch.bfloat16)
    expected = score_rows(hidden, weight, None, targets, temperature, plan)[0]
    monkeypatch.setattr(logprobs, "_is_cpu", lambda _: False)
    monkeypatch.setattr(logprobs.torch, "mm", mm)
    found = score_rows(hidden, weight, None, targets, temperature, plan)[0]
    assert calls == [(torch.bfloat16, torch.bfloat16, torch.float32, torch.float32)]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_model_under_autocast_takes_them_into_account(model, monkeypatch):
    """Whole log-probs of a model with the GPU's choice, forced on a CPU, stay close to those of a float32 head."""
    use_packed_attention(model)
    packed = pack([[5, 6, 7, 8, 9] * 6, [9, 8, 7, 6] * 5])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        exact = logprobs.token_logprobs(model, packed).values
        monkeypatch.setattr(logprobs, "_factors", lambda device, products: products)
        rounded = logprobs.token_logprobs(model, packed).values
    assert 0 < (exact - rounded).abs().max() < 0.05
    rounded.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
