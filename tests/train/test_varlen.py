"""Attention without padding: a reference takes the place of PyTorch's kernel, which is for GPUs only."""

import copy
import inspect

import pytest
import torch
from attention_reference import CALLS, on_a_cpu, reference
from hypothesis import given, settings
from hypothesis import strategies as st
from test_attention import sequences_of, small
from transformers import AutoModelForCausalLM

from magcli.errors import EnvironmentFault
from magcli.train import varlen
from magcli.train.attention import NAME, VARLEN_NAME, forward_packed, use_packed_attention
from magcli.train.packing import pack, pack_completions
from magcli.train.varlen import segments


@pytest.fixture(scope="module", autouse=True)
def _replaced_kernel():
    with pytest.MonkeyPatch.context() as patch:
        on_a_cpu(patch)
        yield


def both(plain):
    """The same weights with padded attention and with attention without padding."""
    models = copy.deepcopy(plain), copy.deepcopy(plain)
    use_packed_attention(models[0])
    use_packed_attention(models[1], "varlen")
    return models


@pytest.fixture(scope="module")
def pair(tiny_model_dir):
    return both(AutoModelForCausalLM.from_pretrained(tiny_model_dir))


def check_equal(models, packed):
    """The same hidden states and gradients."""
    states = [forward_packed(model, packed) for model in models]
    torch.testing.assert_close(*states, atol=2e-5, rtol=1e-4)
    factor = torch.randn(states[0].shape, generator=torch.Generator().manual_seed(0))
    grads = [
        torch.autograd.grad((state * factor).sum(), list(model.get_decoder().parameters()))
        for state, model in zip(states, models, strict=True)
    ]
    whole = torch.cat([grad.flatten() for grad in grads[0]]).norm()
    for ours, theirs in zip(*grads, strict=True):
        assert (ours - theirs).norm() <= 1e-4 * theirs.norm() + 1e-5 * whole


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 70), min_size=1, max_size=12).filter(any))
def test_it_computes_what_padded_attention_computes(pair, lengths):
    check_equal(pair, pack(sequences_of(lengths)))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 30), st.lists(st.integers(0, 40), min_size=1, max_size=5)), min_size=1, max_size=4
    ),
    st.randoms(use_true_random=False),
)
def test_completions_share_their_prompt(pair, groups, random):
    prompts = sequences_of([length for length, _ in groups])
    pairs = [(prompts[i], own) for i, (_, sizes) in enumerate(groups) for own in sequences_of(sizes, seed=i)]
    random.shuffle(pairs)
    packed = pack_completions(pairs)
    CALLS.clear()
    check_equal(pair, packed)
    repeated = sum(len(prompt) for prompt, own in pairs if own)
    assert set(CALLS) == {(packed.num_tokens, packed.num_tokens + repeated)}, "each token is a query once"


@pytest.mark.parametrize("kind", ["qwen3", "mistral"])
def test_grouped_heads_and_windows(kind):
    plain = small(kind, **({"sliding_window": 8} if kind == "mistral" else {}))
    models = both(plain)
    check_equal(models, pack(sequences_of([5, 12, 1, 30])))
    check_equal(models, pack_completions([([1] * 12, [2] * 9), ([1] * 12, [3] * 4)]))


def test_without_prompts_keys_are_not_copied():
    assert segments(pack([[1, 2], [3]])).keys is None
    shared = segments(pack_completions([([1, 2], [3]), ([1, 2], [4, 5])]))
    assert shared.query_starts.tolist() == [0, 2, 3, 5]
    assert shared.key_starts.tolist() == [0, 2, 5, 9]
    assert shared.keys.tolist() == [0, 1, 0, 1, 2, 0, 1, 3, 4]
    assert (shared.longest_query, shared.longest_key) == (2, 4)


def test_soft_caps_are_refused_at_the_start():
    settings = {"sliding_window": 8, "attn_logit_softcapping": 2.0}
    with pytest.raises(EnvironmentFault, match="no soft caps, sinks or dropout; take --attention sdpa"):
        use_packed_attention(small("gemma2", **settings), "varlen")


def test_auto_leaves_out_padding_where_the_model_allows_it():
    plain = small("qwen3")
    use_packed_attention(plain, "fastest")
    assert plain.config._attn_implementation == VARLEN_NAME
    capped = small("gemma2", sliding_window=8, attn_logit_softcapping=2.0)
    other = copy.deepcopy(capped)
    use_packed_attention(capped, "fastest")
    assert capped.config._attn_implementation == NAME
    use_packed_attention(other)
    packed = pack(sequences_of([5, 12, 30]))
    assert torch.equal(forward_packed(capped, packed), forward_packed(other, packed))


def test_auto_is_attention_with_padding_without_the_kernel(monkeypatch):
    def missing(device):
        raise EnvironmentFault("needs a GPU")

    monkeypatch.setattr(varlen, "require", missing)
    model = small("qwen3")
    use_packed_attention(model, "fastest")
    assert model.config._attn_implementation == NAME


def test_bf16_in_the_kernel_stays_close(pair, monkeypatch):
    _, model = pair
    packed = pack(sequences_of([40, 7, 33, 60]))
    exact = forward_packed(model, packed)
    monkeypatch.setattr(varlen, "KERNEL_DTYPE", torch.bfloat16)
    rough = forward_packed(model, packed)
    assert rough.dtype == torch.float32
    assert 0 < (rough - exact).norm() < 0.02 * exact.norm()


def test_pytorch_has_the_kernel_with_these_arguments():
    varlen_attn = pytest.importorskip("torch.nn.attention.varlen").varlen_attn
    ours, theirs = inspect.signature(reference).parameters, inspect.signature(varlen_attn).parameters
    assert list(ours)[:7] == list(theirs)[:7]
    assert set(ours) <= set(theirs)
