"""LoRA starts as the frozen model, trains only its matrices, and is merged and unmerged exactly."""

import pytest
import torch

from magcli.train import lora, optim
from magcli.train.controller import RankState
from magcli.train.distributed import Ranks
from magcli.train.logprobs import token_logprobs
from magcli.train.packing import pack, use_packed_attention
from magcli.train.sft import Example, TrainStep, num_targets, split_examples
from magcli.train.shard import ShardedModel

EXAMPLES = [Example(tuple(range(8, 8 + n)), (False, *[True] * (n - 1))) for n in (9, 17, 5)]
PACKED = pack([example.tokens for example in EXAMPLES])


def trained(model, *, seed=0, steps=3):
    use_packed_attention(model)
    adapters = lora.add_lora(model, rank=4, alpha=8.0, seed=seed)
    state = RankState(
        Ranks(), ShardedModel(model), optim.adamw(model, lr=1e-2, weight_decay=0.0), None, adapters=adapters
    )
    (batches,) = split_examples(EXAMPLES, micro_tokens=64)
    for _ in range(steps):
        TrainStep(batches, num_targets(EXAMPLES), 1e-2, 1.0, False).run(state)
    return adapters


def bits(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_adapters_do_not_change_the_model_before_the_first_step(model):
    use_packed_attention(model)
    before = token_logprobs(model, PACKED).values
    lora.add_lora(model, rank=4, alpha=8.0, seed=0)
    torch.testing.assert_close(token_logprobs(model, PACKED).values, before)


def test_only_the_matrices_of_linear_layers_train(model):
    frozen = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    trained(model)
    learning = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert learning
    assert all("lora_" in name for name in learning)
    for name, tensor in model.state_dict().items():
        if "lora_" not in name:
            assert torch.equal(tensor, frozen[name.replace(".base_layer", "")])


def test_merging_preserves_the_outputs_and_is_reversible(model):
    names = set(model.state_dict())
    trained(model)
    before, said = bits(model), token_logprobs(model, PACKED).values
    with lora.merged(model):
        assert set(model.state_dict()) == names
        torch.testing.assert_close(token_logprobs(model, PACKED).values, said, rtol=1e-4, atol=1e-5)
    after = bits(model)
    assert all(torch.equal(after[name], before[name]) for name in before)
    with pytest.raises(KeyboardInterrupt), lora.merged(model):
        raise KeyboardInterrupt
    assert bits(model).keys() == before.keys()


def test_the_initialization_depends_only_on_the_seed(model):
    state = torch.get_rng_state()
    lora.add_lora(model, rank=4, alpha=8.0, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
