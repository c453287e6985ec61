"""The embedded engine on the frozen weights under LoRA adapters, which it shares with their owner."""

import asyncio
from pathlib import Path

import pytest
import torch
from nested import make_nested
from torch import nn

from magcli.generate.spec import Spec
from magcli.generate.torch.adapted import AdaptedLinear, adapted_decoder, adapted_linears, load_adapters
from magcli.generate.torch.open import open_adapted
from magcli.generate.weights.digest import WeightsFault, digests
from magcli.model.load import load_model
from magcli.model.model import Model
from magcli.train.lora import adapted_layers, adapter_weights, add_lora, frozen_weights

RANK, ALPHA = 4, 8.0
CONTEXT, TOKENS = [3, 40, 41, 42, 1, 4], [50, 51, 52, 53, 54]


@pytest.fixture
def trained(tiny_model_dir: Path) -> nn.Module:
    """A model with adapters that change its logits."""
    return with_adapters(tiny_model_dir)


def with_adapters(folder: Path) -> nn.Module:
    """A folder's model with adapters that change its logits."""
    model = load_model(str(folder), dtype=torch.float32)
    add_lora(model, rank=RANK, alpha=ALPHA, seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for layer in adapted_layers(model).values():
            layer.lora_b.normal_(std=0.2, generator=generator)
    return model


def logprobs_of(model: nn.Module) -> list[float]:
    with torch.no_grad():
        logits = model(torch.tensor([CONTEXT + TOKENS])).logits[0, len(CONTEXT) - 1 : -1]
    return logits.log_softmax(-1).gather(1, torch.tensor(TOKENS)[:, None])[:, 0].tolist()


def scored(folder: Path, model: nn.Module) -> tuple[list[float], list[float]]:
    """The engine's log-probs before and after it got the model's adapters."""
    spec = Spec(Model.open(folder), engine="torch", dtype="fp32", slots=4, lora_rank=RANK, lora_alpha=ALPHA)

    async def scenario() -> tuple[list[float], list[float]]:
        policy = open_adapted(spec, frozen_weights(model))
        (before,) = await policy.score([(CONTEXT, TOKENS)])
        adapters = adapter_weights(model)
        assert await policy.load(adapters, 1) == [digests(adapters)]
        (after,) = await policy.score([(CONTEXT, TOKENS)])
        await policy.close()
        return list(before[0]), list(after[0])

    return asyncio.run(scenario())


def test_the_engine_computes_what_the_trained_model_does(tiny_model_dir: Path, trained: nn.Module) -> None:
    before, after = scored(tiny_model_dir, trained)
    assert after == pytest.approx(logprobs_of(trained), abs=1e-5)
    assert before == pytest.approx(logprobs_of(load_model(str(tiny_model_dir), dtype=torch.float32)), abs=1e-5)
    assert before != pytest.approx(after, abs=1e-2)


def test_a_text_model_inside_a_larger_one_is_shared_too(tiny_model_dir: Path, tmp_path: Path) -> None:
    folder = make_nested("mistral3", tiny_model_dir, tmp_path / "model")
    model = with_adapters(folder)
    before, after = scored(folder, model)
    assert after == pytest.approx(logprobs_of(model), abs=1e-5)
    assert before == pytest.approx(logprobs_of(load_model(str(folder), dtype=torch.float32)), abs=1e-5)
    assert before != pytest.approx(after, abs=1e-3)


@pytest.mark.parametrize("family", ["gemma3", "qwen2_5_vl"])
def test_a_text_model_of_another_kind_is_not_shared(family: str, tiny_model_dir: Path, tmp_path: Path) -> None:
    assert Model.open(make_nested(family, tiny_model_dir, tmp_path / "model")).decoder is None


def test_the_weights_are_those_of_the_trained_model(tiny_model_dir: Path, trained: nn.Module) -> None:
    config = Model.open(tiny_model_dir).plain
    assert config is not None
    decoder = adapted_decoder(config, frozen_weights(trained), rank=RANK, alpha=ALPHA)
    shared = {parameter.data_ptr() for parameter in frozen_weights(trained).values()}
    assert {parameter.data_ptr() for parameter in decoder.parameters()} == shared
    assert adapted_linears(decoder).keys() == adapted_layers(trained).keys()


def test_adapters_that_do_not_fit_change_nothing(trained: nn.Module) -> None:
    layer = AdaptedLinear(nn.Linear(8, 6), rank=RANK, alpha=ALPHA)
    good = {"base_model.model.a.lora_A.weight": torch.ones(RANK, 8)}
    with pytest.raises(WeightsFault, match=r"new adapters lack base_model.model.a.lora_B.weight"):
        load_adapters({"a": layer}, good)
    with pytest.raises(WeightsFault, match=r"lora_B.weight is \(5, 4\), the engine's is \(6, 4\)"):
        load_adapters({"a": layer}, {**good, "base_model.model.a.lora_B.weight": torch.ones(5, RANK)})
    assert not layer.lora_a.any()
