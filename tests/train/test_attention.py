"""Packed sequences against the same sequences one at a time through transformers' own attention."""

import copy
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM

from magcli.errors import DataError, EnvironmentFault, MagError
from magcli.train.attention import forward_packed, use_packed_attention
from magcli.train.logprobs import token_logprobs
from magcli.train.packing import pack, pack_completions
from magcli.train.padded import buckets


def sequences_of(lengths, seed=0):
    draw = random.Random(seed)
    return [[draw.randrange(104) for _ in range(length)] for length in lengths]


@pytest.fixture(scope="module")
def pair(tiny_model_dir):
    """The same weights twice: with transformers' attention, and with packed attention."""
    plain = AutoModelForCausalLM.from_pretrained(tiny_model_dir)
    packed = copy.deepcopy(plain)
    use_packed_attention(packed)
    return plain, packed


def target_loss(logits, ids):
    return torch.nn.functional.cross_entropy(logits[:-1], ids[1:], reduction="sum")


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(2, 70), min_size=1, max_size=12))
def test_packed_and_unpacked_give_the_same_loss_and_gradient(pair, lengths):
    plain, packed_model = pair
    sequences = sequences_of(lengths)
    expected = torch.zeros(())
    for sequence in sequences:
        ids = torch.tensor(sequence)
        expected = expected + target_loss(plain(ids[None]).logits[0], ids)
    packed = pack(sequences)
    logits = packed_model.lm_head(forward_packed(packed_model, packed))
    spans = [slice(start, start + n) for start, n in zip(packed.starts, packed.lengths, strict=True)]
    loss = torch.stack([target_loss(logits[span], packed.input_ids[0, span]) for span in spans]).sum()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    wanted = torch.autograd.grad(expected, list(plain.parameters()))
    got = torch.autograd.grad(loss, list(packed_model.parameters()))
    for ours, theirs in zip(got, wanted, strict=True):
        assert (ours - theirs).norm() <= 1e-5 * theirs.norm()


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 30), st.lists(st.integers(0, 40), min_size=1, max_size=5)), min_size=1, max_size=4
    ),
    st.randoms(use_true_random=False),
)
def test_completions_with_a_shared_prompt_give_the_same_results(pair, groups, random):
    _, model = pair
    prompts = sequences_of([length for length, _ in groups])
    pairs = [(prompts[i], own) for i, (_, sizes) in enumerate(groups) for own in sequences_of(sizes, seed=i)]
    random.shuffle(pairs)
    packed = pack_completions(pairs)
    assert packed.num_tokens == sum(map(len, prompts)) + sum(len(own) for _, own in pairs)
    together = forward_packed(model, packed)
    shared = [together[start : start + n] for start, n in zip(packed.starts, packed.lengths, strict=True)]
    alone = pack([prompt + own for prompt, own in pairs])
    states = forward_packed(model, alone)
    separate = [
        states[start + len(prompt) : start + n]
        for start, n, (prompt, _) in zip(alone.starts, alone.lengths, pairs, strict=True)
    ]
    factors = [torch.randn(part.shape, generator=torch.Generator().manual_seed(i)) for i, part in enumerate(separate)]
    if not sum(part.numel() for part in separate):
        return
    for ours, theirs in zip(shared, separate, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)
    weights = list(model.get_decoder().parameters())
    got, wanted = (
        torch.autograd.grad(sum((part * factor).sum() for part, factor in zip(parts, factors, strict=True)), weights)
        for parts in (shared, separate)
    )
    for ours, theirs in zip(got, wanted, strict=True):
        assert (ours - theirs).norm() <= 1e-4 * theirs.norm() + 1e-6


def test_a_sequence_does_not_attend_to_other_sequences(pair):
    _, model = pair
    first, second, other = sequences_of([9, 12, 12])
    alone = forward_packed(model, pack([first, second]))
    assert torch.equal(forward_packed(model, pack([first, other]))[:9], alone[:9])


@given(st.lists(st.integers(0, 90), min_size=1, max_size=40).filter(any))
def test_each_token_has_one_slot_and_padding_is_bounded(lengths):
    packed = pack(sequences_of(lengths))
    plan = buckets(packed)
    assert torch.equal(plan.slots[plan.places], torch.arange(packed.num_tokens))
    assert len(plan.slots) == sum(count * length for count, length in plan.shapes)
    assert len(plan.slots) <= packed.num_tokens / 0.75


def test_no_quadratic_tensor_is_created(pair):
    _, model = pair
    packed = pack(sequences_of([6] * 100))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
        sizes: list[int] = []
        forward_packed(model, packed)
    assert 0 < max(sizes) < packed.num_tokens**2 / 4


def test_bf16_autocast_stays_close_to_float32(pair):
    _, model = pair
    packed = pack(sequences_of([40, 7, 33, 60]))
    exact = forward_packed(model, packed)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = forward_packed(model, packed)
    assert not torch.equal(rough.float(), exact)
    assert (rough.float() - exact).norm() < 0.02 * exact.norm()


def test_running_the_model_without_boundaries_is_an_error(pair):
    _, model = pair
    with pytest.raises(MagError, match="without sequence boundaries"):
        model(torch.tensor([[1, 2, 3]]))


def small(kind, **settings):
    """A random model of another architecture."""
    sizes = {"vocab_size": 104, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    config = AutoConfig.for_model(kind, **sizes | heads | {"pad_token_id": 0} | settings)
    return AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "mistral", "olmo2", "gemma"])
def test_other_architectures_can_be_packed(kind):
    plain = small(kind)
    packed_model = copy.deepcopy(plain)
    use_packed_attention(packed_model)
    sequences = sequences_of([5, 12, 1, 30])
    hidden = forward_packed(packed_model, pack(sequences)).split([len(s) for s in sequences])
    for got, sequence in zip(hidden, sequences, strict=True):
        expected = plain.get_decoder()(torch.tensor([sequence])).last_hidden_state[0]
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("mistral", {"sliding_window": 8}),
        ("gemma2", {"sliding_window": 8, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}),
        ("gpt_oss", {"sliding_window": 8, "num_local_experts": 2, "num_experts_per_tok": 1}),
        ("granite", {"logits_scaling": 4.0}),
        ("cohere", {"logit_scale": 0.25}),
    ],
)
def test_windows_caps_and_sinks_have_the_models_own_gradients(kind, settings):
    plain = small(kind, **settings)
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.normal_(0, 0.3)
    packed_model = copy.deepcopy(plain)
    use_packed_attention(packed_model)
    plain.set_attn_implementation("eager")
    sequences = sequences_of([5, 12, 2, 30])
    expected = torch.zeros(())
    for sequence in sequences:
        ids = torch.tensor(sequence)
        expected = expected + target_loss(plain(ids[None]).logits[0], ids)
    loss = -token_logprobs(packed_model, pack(sequences)).values.sum()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    wanted = torch.autograd.grad(expected, list(plain.parameters()))
    got = torch.autograd.grad(loss, list(packed_model.parameters()))
    for ours, theirs in zip(got, wanted, strict=True):
        assert (ours - theirs).norm() <= 1e-4 * theirs.norm() + 1e-6


def test_a_sequence_for_which_the_rotary_embedding_would_change_is_rejected():
    rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}
    model = small("llama", rope_parameters=rope, max_position_embeddings=16)
    use_packed_attention(model)
    assert forward_packed(model, pack([[1] * 16, [2] * 5])).shape == (21, 16)
    with pytest.raises(DataError, match="a sequence of 17 tokens: from 16 on"):
        forward_packed(model, pack([[1] * 17]))


@pytest.mark.parametrize(
    ("kind", "settings", "reason"),
    [
        ("qwen3_next", {"num_experts": 2, "num_experts_per_tok": 1}, "layers of type linear_attention"),
        ("recurrent_gemma", {"lru_width": 16, "num_hidden_layers": 3}, "training would not compute what it computes"),
        ("stablelm", {}, "it passes no arguments on"),
        ("doge", {}, "it changes the attention mask"),
        ("bloom", {}, "it does not call transformers' attention interface"),
    ],
)
def test_a_model_that_cannot_be_packed_is_rejected(kind, settings, reason):
    with pytest.raises(EnvironmentFault, match=f"is not supported: {reason}.*train a model of another family"):
        use_packed_attention(small(kind, **settings))
