"""Packed layers compute what plain ones do, before and after new weights."""

import copy

import pytest
import torch
from torch import nn
from transformers import Qwen2Config, Qwen2ForCausalLM

from magcli.generate.torch.slot_model import PackedLinear, Prompt, SlotModel, pack_linears
from magcli.model.load import load_model


@pytest.mark.parametrize("rows", [1, 7, 64, 300])
@pytest.mark.parametrize("bias", [False, True])
def test_a_packed_layer_computes_what_the_plain_one_does(rows, bias):
    linear = nn.Linear(48, 104, bias=bias).requires_grad_(False)
    inputs = torch.randn(1, rows, 48)
    torch.testing.assert_close(PackedLinear(linear)(inputs), linear(inputs), rtol=1e-5, atol=1e-5)


def test_a_layer_accepts_new_weights_of_another_type():
    linear, other = (nn.Linear(48, 104, bias=False).requires_grad_(False) for _ in range(2))
    packed, inputs = PackedLinear(linear), torch.randn(3, 48)
    packed.pack(other.weight.double())
    torch.testing.assert_close(packed(inputs), other(inputs), rtol=1e-5, atol=1e-5)


def test_all_linear_layers_of_a_model_are_packed(tiny_model_dir):
    model = load_model(str(tiny_model_dir), dtype=torch.float32)
    copied = copy.deepcopy(model)
    linears = {name for name, module in copied.named_modules() if isinstance(module, nn.Linear)}
    packed = pack_linears(copied)
    assert set(packed) == linears
    assert all(layer.weight.is_meta for layer in packed.values())
    assert dict(copied.named_parameters()).keys() <= dict(model.named_parameters(remove_duplicate=False)).keys()


@pytest.mark.parametrize("missing", ["lm_head.weight", "model.embed_tokens.weight"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_new_weights_reach_packed_layers_and_what_is_tied_to_them(dtype, missing):
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, tie_word_embeddings=True, pad_token_id=0,
    )  # fmt: skip
    old, new = (Qwen2ForCausalLM(config).to(dtype).eval() for _ in range(2))
    packed, plain = (SlotModel(copy.deepcopy(old), 2, deterministic=fixed) for fixed in (False, True))
    weights = {name: value for name, value in new.state_dict().items() if name != missing}
    before = logits(packed)
    for model in (packed, plain):
        model.load(weights)
    torch.testing.assert_close(logits(packed), logits(plain), rtol=1e-5, atol=1e-2 if dtype == torch.bfloat16 else 1e-5)
    assert not torch.equal(logits(packed), before)


def logits(model):
    none = torch.zeros(0, dtype=torch.long)
    _, (prefix,) = model.forward(none, none, 0, [Prompt((1, 2, 3))])
    return prefix.logits


def test_deterministic_engines_and_types_that_onednn_lacks_stay_plain(tiny_model_dir):
    model = load_model(str(tiny_model_dir), dtype=torch.float32)
    assert not pack_linears(copy.deepcopy(model).double())
    fixed = SlotModel(copy.deepcopy(model), 2, deterministic=True)
    assert not any(isinstance(module, PackedLinear) for module in fixed._model.modules())
