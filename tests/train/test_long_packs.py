"""Packs of 32k tokens, the longest of the recipe: the same loss and gradient as smaller ones."""

from itertools import pairwise

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from magcli.train.attention import use_packed_attention
from magcli.train.sft import Example, accumulate, num_targets, split_examples
from magcli.train.shard import ShardedModel

LONGEST = 32768
CUTS = (0, 20000, 32000, LONGEST)


@pytest.mark.slow
def test_a_pack_of_32k_tokens_has_the_gradient_of_separate_traces():
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=104,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=LONGEST,
        )
    )
    use_packed_attention(model)
    ids = torch.randint(0, 104, (LONGEST,)).tolist()
    traces = [Example(tuple(ids[start:end]), (False, *[True] * (end - start - 1))) for start, end in pairwise(CUTS)]
    losses, gradients = [], []
    for micro_tokens in (LONGEST, CUTS[1]):
        model.zero_grad()
        (batches,) = split_examples(traces, micro_tokens=micro_tokens)
        losses.append(accumulate(ShardedModel(model), batches, total=num_targets(traces), bf16=False))
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for packed, separate in zip(*gradients, strict=True):
        torch.testing.assert_close(packed, separate, rtol=1e-3, atol=1e-6)
