"""bf16 copies of weights that are held for an update: the same bits as autocast's, and always those of the weights."""

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from magcli.train.attention import use_packed_attention
from magcli.train.distributed import Ranks
from magcli.train.held import HeldLinear
from magcli.train.optim import adamw, autocast, clip_and_step
from magcli.train.sft import Example, accumulate
from magcli.train.shard import shard

CONFIG = Qwen2Config(
    vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, tie_word_embeddings=True,
)  # fmt: skip
"""A small model whose queries, keys and values have biases."""


def sharded(*, bf16):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG).train()
    use_packed_attention(model)
    return shard(model, Ranks(), bf16=bf16)


def micro_batches(step):
    lengths = [[5 + step, 9], [13], [4, 7, 2 + step]]
    return [[Example(tuple(range(length)), (False,) + (True,) * (length - 1)) for length in part] for part in lengths]


def trained(whole, *, steps=3, offloads=False):
    """Losses and the weights after some optimizer steps of several micro-batches."""
    optimizer = adamw(whole.model, lr=1e-2, weight_decay=0.1, offload_moments=offloads)
    losses = []
    for step in range(steps):
        losses.append(accumulate(whole, micro_batches(step), total=30.0, bf16=True))
        assert clip_and_step(optimizer, whole.model.parameters(), max_norm=1.0) is not None
    return losses, whole.model.state_dict()


def held_layers(model):
    return [module for module in model.modules() if isinstance(module, HeldLinear)]


def test_training_with_held_copies_is_that_with_autocast_bit_for_bit():
    theirs, ours = sharded(bf16=False), sharded(bf16=True)
    assert not held_layers(theirs.model)
    assert len(held_layers(ours.model)) == 2 * 7
    (expected, weights), (losses, own) = trained(theirs), trained(ours)
    assert losses == expected
    assert own.keys() == weights.keys()
    assert all(torch.equal(own[name], weights[name]) for name in weights)


def test_copies_are_made_once_after_each_step(monkeypatch):
    copied = []
    original = torch._foreach_copy_
    monkeypatch.setattr(torch, "_foreach_copy_", lambda *lists: copied.append(len(lists[0])) or original(*lists))
    whole = sharded(bf16=True)
    trained(whole, steps=3)
    assert copied == [2 * (7 + 3)] * 3
    for layer in held_layers(whole.model):
        assert not torch.equal(layer.copies[0], layer.weight.to(torch.bfloat16)), "they are those before the last step"


@pytest.mark.parametrize("change", ["load_state_dict", "copy_", "fused step"])
def test_copies_follow_every_change_of_the_weights(change):
    whole = sharded(bf16=True)
    accumulate(whole, micro_batches(0), total=30.0, bf16=True)
    with torch.no_grad():
        if change == "load_state_dict":
            whole.model.load_state_dict({name: 2 * value for name, value in whole.model.state_dict().items()})
        elif change == "copy_":
            for parameter in whole.model.parameters():
                parameter.copy_(2 * parameter)
        else:
            adamw(whole.model, lr=1.0, weight_decay=0.0).step()
    whole(lambda model: None)
    for layer in held_layers(whole.model):
        assert torch.equal(layer.copies[0], layer.weight.to(torch.bfloat16))
        if layer.bias is not None:
            assert torch.equal(layer.copies[1], layer.bias.to(torch.bfloat16))


def test_without_autocast_the_weights_themselves_are_used():
    plain, held = sharded(bf16=False), sharded(bf16=True)
    losses = [accumulate(whole, micro_batches(0), total=30.0, bf16=False) for whole in (plain, held)]
    assert losses[0] == losses[1]


def test_where_activations_are_recomputed_to_save_memory_nothing_is_held():
    model = AutoModelForCausalLM.from_config(CONFIG)
    whole = shard(model, Ranks(), bf16=True, checkpoint_activations=True)
    assert not held_layers(whole.model)
    with autocast(torch.device("cpu"), True):
        assert whole.model.get_decoder().layers[0].mlp.up_proj(torch.ones(1, 32)).dtype == torch.bfloat16
