"""Chunked log-probabilities against a plain log-softmax of the whole model."""

import copy

import pytest
import torch
from tracking import LiveTensors
from transformers import CohereConfig, CohereForCausalLM

from magcli.errors import EnvironmentFault
from magcli.plan import memory
from magcli.train import logprobs
from magcli.train.attention import use_packed_attention
from magcli.train.logprobs import ScorePlan, score_rows, token_logprobs
from magcli.train.packing import pack

SEQUENCES = [[(7 * i + 3 * j) % 104 for j in range(n)] for i, n in enumerate((5, 40, 1, 33, 2))]


def reference(model, temperature):
    """Textbook log-probabilities and entropies, 0 for first tokens."""
    values, entropies = [], []
    for sequence in SEQUENCES:
        logprobs = (model(torch.tensor([sequence])).logits[0] / temperature).log_softmax(-1)[:-1]
        values += [torch.zeros(1), logprobs.gather(-1, torch.tensor(sequence[1:], dtype=torch.long)[:, None])[:, 0]]
        entropies += [torch.zeros(1), -(logprobs.exp() * logprobs).sum(-1)]
    return torch.cat(values), torch.cat(entropies)


@pytest.fixture
def packed_model(model):
    copied = copy.deepcopy(model)
    use_packed_attention(copied)
    return copied


@pytest.mark.parametrize("chunk", [1, 16, 4096])
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_values_entropy_and_gradient_are_those_of_a_plain_softmax(model, packed_model, chunk, temperature):
    values, entropies = reference(model, temperature)
    got = token_logprobs(packed_model, pack(SEQUENCES), temperature=temperature, chunk=chunk)
    torch.testing.assert_close(got.values, values, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got.entropy, entropies, rtol=1e-5, atol=1e-5)
    weights = torch.linspace(-1, 1, len(values))
    (values * weights).sum().backward()
    (got.values * weights).sum().backward()
    for ours, theirs in zip(packed_model.parameters(), model.parameters(), strict=True):
        assert (ours.grad - theirs.grad).norm() <= 1e-5 * theirs.grad.norm()


@pytest.mark.parametrize("chunk", [16, 4096])
def test_each_token_is_scored_at_its_temperature(model, packed_model, chunk):
    packed = pack(SEQUENCES)
    temperatures = packed.spread([0.5, 0.7, 1.0, 1.3, 2.0])
    got = token_logprobs(packed_model, packed, temperature=temperatures, chunk=chunk)
    for temperature in (0.5, 0.7, 1.0, 1.3, 2.0):
        chosen = temperatures == torch.tensor(temperature)
        values, entropies = reference(model, temperature)
        torch.testing.assert_close(got.values[chosen], values[chosen], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(got.entropy[chosen], entropies[chosen], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chunk", [16, 4096])
def test_the_entropy_gradient_is_that_of_a_plain_softmax(model, packed_model, chunk):
    _, entropies = reference(model, 0.7)
    assert not token_logprobs(packed_model, pack(SEQUENCES), chunk=chunk).entropy.requires_grad
    got = token_logprobs(packed_model, pack(SEQUENCES), temperature=0.7, chunk=chunk, entropy_grad=True)
    weights = torch.linspace(-1, 1, len(entropies))
    (entropies * weights).sum().backward()
    (got.entropy * weights).sum().backward()
    for ours, theirs in zip(packed_model.parameters(), model.parameters(), strict=True):
        assert (ours.grad - theirs.grad).norm() <= 1e-5 * theirs.grad.norm()


def test_only_the_selected_tokens_are_scored(packed_model):
    packed = pack(SEQUENCES)
    where = torch.arange(packed.num_tokens) % 3 == 0
    some = token_logprobs(packed_model, packed, where=where).values
    every = token_logprobs(packed_model, packed).values
    torch.testing.assert_close(some, every * where)


def test_an_empty_selection_gives_zeros(packed_model):
    packed = pack([[1], [2]])
    result = token_logprobs(packed_model, packed)
    assert result.values.tolist() == result.entropy.tolist() == [0.0, 0.0]


def test_the_head_runs_in_float32_under_autocast(packed_model):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        values = token_logprobs(packed_model, pack(SEQUENCES)).values
    exact = token_logprobs(packed_model, pack(SEQUENCES)).values
    assert values.dtype == torch.float32
    # bf16 logits would leave at most a few hundred distinct values of 8 bits each.
    assert (values - values.bfloat16().float()).abs().max() > 1e-4
    torch.testing.assert_close(values, exact, rtol=0.05, atol=0.3)


@pytest.mark.parametrize("entropy_grad", [False, True])
def test_no_logits_of_all_tokens_are_kept_for_the_backward_pass(packed_model, entropy_grad):
    packed = pack([[i % 104 for i in range(100)] for _ in range(8)])
    sizes: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
        token_logprobs(packed_model, packed, chunk=50, entropy_grad=entropy_grad)
    hidden_times_mlp = packed.num_tokens * packed_model.config.intermediate_size
    assert max(sizes) <= hidden_times_mlp < packed.num_tokens * packed_model.config.vocab_size


def test_a_head_that_changes_its_logits_in_an_unknown_way_is_rejected():
    config = CohereConfig(
        vocab_size=16, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        bos_token_id=1, eos_token_id=2, logit_scale=0.5,
    )  # fmt: skip
    model = CohereForCausalLM(config)
    model.logit_scale = 0.25
    with pytest.raises(EnvironmentFault, match="training would not compute what it computes"):
        use_packed_attention(model)


@pytest.mark.parametrize("entropy_grad", [False, True])
def test_scratch_of_a_gpu_is_bounded_by_the_block_not_by_the_tokens(monkeypatch, entropy_grad):
    rows, width, vocabulary = 3000, 16, 1000
    row = 4 * vocabulary
    monkeypatch.setattr(logprobs, "_is_cpu", lambda _: False)
    monkeypatch.setattr(memory, "GPU_PIECE_BYTES", 20 * row)
    hidden = torch.randn(rows, width, requires_grad=True)
    weight = torch.randn(vocabulary, width, requires_grad=True)
    targets = torch.randint(vocabulary, (rows,))
    plan = ScorePlan(block=60, store=False, entropy_grad=entropy_grad)
    with LiveTensors([hidden, weight, targets]) as live:
        before = live.live
        values, entropies = score_rows(hidden, weight, None, targets, torch.ones(rows), plan)
        (values + entropies if entropy_grad else values).sum().backward()
    gradients = 2 * (hidden.nbytes + weight.nbytes)
    assert live.peak - before < gradients + (60 + 4 * 20) * row + 40 * rows
