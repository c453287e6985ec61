"""LoRA starts as the frozen model, trains only its matrices, is merged exactly, and resumes from its adapters."""

from dataclasses import dataclass

import pytest
import torch
from transformers import AutoModelForCausalLM

from magcli.errors import DataError
from magcli.train import checkpoint, lora, optim
from magcli.train.attention import use_packed_attention
from magcli.train.commands import RankState
from magcli.train.controller import OneProcess, RankController
from magcli.train.distributed import Ranks
from magcli.train.logprobs import token_logprobs
from magcli.train.packing import pack
from magcli.train.sft import Example, TrainStep, num_targets, split_examples
from magcli.train.shard import ShardedModel

EXAMPLES = [Example(tuple(range(8, 8 + n)), (False, *[True] * (n - 1))) for n in (9, 17, 5)]
PACKED = pack([example.tokens for example in EXAMPLES])
PROJECTIONS = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


class NoTokenizer:
    """A tokenizer without files."""

    def save_pretrained(self, folder):
        """Write nothing."""


def adapted(model, *, rank=4, seed=0):
    use_packed_attention(model)
    lora.add_lora(model, rank=rank, alpha=8.0, seed=seed)
    return model


def state_of(model):
    return RankState(Ranks(), ShardedModel(model), optim.adamw(model, lr=1e-2, weight_decay=0.0), NoTokenizer())


def train(state, *, steps=3, bf16=False):
    """The losses of some steps on all examples."""
    (batches,) = split_examples(EXAMPLES, micro_tokens=64)
    command = TrainStep(batches, num_targets(EXAMPLES), 1e-2, 1.0, bf16)
    return [command.run(state)[0] for _ in range(steps)]


@dataclass(frozen=True)
class Train:
    """The steps of ``train`` as a command."""

    bf16: bool

    def run(self, state):
        return train(state, bf16=self.bf16)


def bits(tensors):
    return {name: tensor.clone() for name, tensor in tensors.items()}


def scored(model, *, bf16=False):
    with torch.no_grad(), optim.autocast(torch.device("cpu"), bf16):
        return token_logprobs(model, PACKED).values


def test_adapters_do_not_change_a_bit_before_the_first_step(model):
    use_packed_attention(model)
    before = scored(model)
    lora.add_lora(model, rank=4, alpha=8.0, seed=0)
    assert torch.equal(scored(model), before)
    train(state_of(model), steps=1)
    assert not torch.equal(scored(model), before)


def test_a_frozen_model_in_bf16_scores_like_float32_weights_of_the_same_values(tiny_model_dir):
    rounded = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.bfloat16)
    exact = AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.bfloat16).float()
    use_packed_attention(exact)
    torch.testing.assert_close(scored(adapted(rounded), bf16=True), scored(exact, bf16=True), rtol=0, atol=2e-2)


def test_the_loss_falls_while_frozen_weights_keep_their_bits(tiny_model_dir):
    model = adapted(AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.bfloat16))
    frozen = bits(lora.frozen_weights(model))
    losses = train(state_of(model), steps=10, bf16=True)
    assert losses[-1] < 0.9 * losses[0]
    after = lora.frozen_weights(model)
    assert all(torch.equal(after[name], frozen[name]) for name in frozen)
    learning = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert {name.split(".")[-2] for name in learning} == PROJECTIONS
    assert {parameter.dtype for parameter in learning.values()} == {torch.float32}
    assert all(parameter.grad is None and ".lora_" in name for name, parameter in learning.items())


def test_merged_weights_compute_what_the_adapters_do_under_the_old_names(model, tiny_model_dir):
    plain = AutoModelForCausalLM.from_pretrained(tiny_model_dir)
    train(state_of(adapted(model)))
    merged = lora.merged_weights(model)
    assert merged.keys() == plain.state_dict().keys()
    base = scored_plain(plain)
    plain.load_state_dict(merged)
    torch.testing.assert_close(scored_plain(plain), scored(model), rtol=1e-4, atol=1e-5)
    assert (scored_plain(plain) - base).abs().max() > 1e-2


def scored_plain(model):
    copy = AutoModelForCausalLM.from_config(model.config)
    copy.load_state_dict(model.state_dict())
    use_packed_attention(copy.eval())
    return scored(copy)


def test_merged_weights_of_a_bf16_model_are_float32_sums_unless_asked_otherwise(tiny_model_dir):
    model = adapted(AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.bfloat16))
    train(state_of(model), bf16=True)
    name, layer = next(iter(lora.adapted_layers(model).items()))
    expected = layer.weight.double() + 2.0 * layer.lora_b.double() @ layer.lora_a.double()
    exact = lora.merged_weights(model)[f"{name}.weight"]
    assert exact.dtype == torch.float32
    torch.testing.assert_close(exact.double(), expected.detach(), rtol=1e-6, atol=1e-7)
    sent = lora.merged_weights(model, dtype=torch.bfloat16)[f"{name}.weight"]
    assert torch.equal(sent, exact.bfloat16())


def test_with_its_adapters_off_the_model_is_its_own_reference(model):
    use_packed_attention(model)
    before = scored(model)
    lora.add_lora(model, rank=4, alpha=8.0, seed=0)
    train(state_of(model))
    after = scored(model)
    with lora.adapters_off(model):
        assert torch.equal(scored(model), before)
    assert torch.equal(scored(model), after)
    with pytest.raises(KeyboardInterrupt), lora.adapters_off(model):
        raise KeyboardInterrupt
    assert torch.equal(scored(model), after)


def test_the_initialization_depends_only_on_the_seed(tiny_model_dir):
    state = torch.get_rng_state()
    models = [adapted(AutoModelForCausalLM.from_pretrained(tiny_model_dir), seed=seed) for seed in (3, 3, 4)]
    assert torch.equal(torch.get_rng_state(), state)
    first, second, other = (next(iter(lora.adapted_layers(model).values())).lora_a for model in models)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_checkpoint_has_only_adapters_and_resumes_to_the_same_bits(dtype, tiny_model_dir, tmp_path):
    bf16 = dtype == torch.bfloat16
    through = opened(tiny_model_dir, dtype)
    through.run([Train(bf16)])
    folder = checkpoint.step_folder(tmp_path, 3)
    through.save(folder, {"step": 3})
    assert not (folder / checkpoint.WEIGHTS).exists()
    resumed = opened(tiny_model_dir, dtype, seed=1)
    assert resumed.load(folder) == {"step": 3}
    losses = [controller.run([Train(bf16)]) for controller in (through, resumed)]
    assert losses[0] == losses[1]
    first, second = (dict(controller.weights()) for controller in (through, resumed))
    assert all(torch.equal(first[name], second[name]) for name in first)


def opened(folder, dtype=torch.float32, *, rank=4, seed=0):
    model = adapted(AutoModelForCausalLM.from_pretrained(folder, dtype=dtype), rank=rank, seed=seed)
    controller = RankController(OneProcess())
    controller.open(lambda ranks, bf16: state_of(model))
    return controller


def test_a_checkpoint_of_another_rank_or_of_all_weights_is_refused(tiny_model_dir, tmp_path):
    opened(tiny_model_dir, rank=4).save(tmp_path / "step-000001", {"step": 1})
    with pytest.raises(DataError, match="is missing or of another rank"):
        opened(tiny_model_dir, rank=2).load(tmp_path / "step-000001")
    whole = state_of(AutoModelForCausalLM.from_pretrained(tiny_model_dir))
    checkpoint.save(
        tmp_path / "step-000002", model=whole.model, optimizer=whole.optimizer, state={}, tokenizer=NoTokenizer()
    )
    with pytest.raises(DataError, match=r"adapter_model\.safetensors cannot be read"):
        opened(tiny_model_dir).load(tmp_path / "step-000002")


def test_peft_reads_the_adapters(model, tiny_model_dir, tmp_path):
    peft = pytest.importorskip("peft")
    train(state_of(adapted(model)))
    lora.save_adapter(model, tmp_path / "adapter")
    theirs = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny_model_dir), tmp_path / "adapter")
    merged = theirs.merge_and_unload().state_dict()
    for name, tensor in lora.merged_weights(model).items():
        torch.testing.assert_close(tensor, merged[name], rtol=1e-5, atol=1e-6)
