"""LoRA adapters that vLLM gets instead of new weights: they replace each other while sequences run."""

import asyncio
import inspect
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch
from safetensors.torch import load_file
from test_vllm import LONG, collect, difference

from magcli.errors import MagError
from magcli.generate.open import open_policy
from magcli.generate.spec import Spec
from magcli.generate.types import Rollout, Sampling
from magcli.generate.vllm.adapter import RANKS, AdapterSender, accepts, adapter_request, engine_settings
from magcli.generate.vllm.policy import VllmPolicy
from magcli.generate.weights import matching
from magcli.generate.weights.digest import WeightsFault, check_arrival, digests
from magcli.generate.weights.matching import shared_adapter
from magcli.model.load import load_model
from magcli.model.model import Model
from magcli.model.weights.peft import layer_of
from magcli.train.lora import adapted_layers, adapter_weights, add_lora


def adapted(folder: Path, seed: int) -> torch.nn.Module:
    """A model with an adapter that changes what it computes."""
    model = load_model(str(folder), dtype=torch.float32)
    add_lora(model, rank=4, alpha=16.0, seed=seed)
    torch.manual_seed(seed)
    for layer in adapted_layers(model).values():
        layer.lora_b.data.normal_(0, 0.3)
    return model


class Bench:
    """An engine with adapters and its event loop, the base model, and two adapted ones."""

    def __init__(self, folder: Path) -> None:
        spec = Spec(Model.open(folder), engine="vllm", dtype="fp32", slots=8, deadline=300, lora_rank=4, lora_alpha=16)
        self.plain = load_model(str(folder), dtype=torch.float32)
        self.first, self.second = adapted(folder, 1), adapted(folder, 2)
        self.runner = asyncio.Runner()
        policy = open_policy(spec)
        assert isinstance(policy, VllmPolicy)
        self.policy = policy


@pytest.fixture(scope="module", params=[pytest.param("engine", marks=pytest.mark.slow)])
def bench(wide_model_dir: Path) -> Iterator[Bench]:
    made = Bench(wide_model_dir)
    yield made
    made.runner.run(made.policy.close())
    made.runner.close()


def test_the_engine_samples_only_once_it_has_an_adapter(bench):
    with pytest.raises(MagError, match="only once it has one"):
        bench.runner.run(collect(bench.policy, LONG, Sampling(4), range(1)))


def test_log_probs_are_those_of_the_newest_adapter(bench):
    async def scenario() -> list[Rollout]:
        found = []
        for version, model in enumerate((bench.first, bench.second)):
            sent = adapter_weights(model)
            (arrived,) = await bench.policy.load(sent, version)
            check_arrival(digests(sent), arrived, version)
            found += await collect(bench.policy, LONG, Sampling(8), range(2))
        return found

    found = bench.runner.run(scenario())
    assert [rollout.versions for rollout in found] == [((0, 0),)] * 2 + [((0, 1),)] * 2
    assert max(difference(bench.first, rollout) for rollout in found[:2]) < 1e-4
    assert max(difference(bench.second, rollout) for rollout in found[2:]) < 1e-4
    assert min(difference(bench.plain, rollout) for rollout in found) > 1e-3


def test_given_tokens_are_scored_with_the_adapter(bench):
    async def scenario() -> tuple[Rollout, list[float]]:
        await bench.policy.load(adapter_weights(bench.first), 2)
        (rollout,) = await collect(bench.policy, LONG, Sampling(20), range(1))
        ((scores,),) = await bench.policy.score([(LONG, rollout.tokens)])
        return rollout, scores

    rollout, scores = bench.runner.run(scenario())
    assert difference(bench.first, replace(rollout, logprobs=tuple(scores))) < 1e-4


def test_running_sequences_continue_with_the_new_adapter(bench):
    """Tokens before the change are those of the first adapter; those after it are, on the older cache, not."""

    async def scenario() -> list[Rollout]:
        await bench.policy.load(adapter_weights(bench.first), 3)
        running = asyncio.ensure_future(collect(bench.policy, LONG, Sampling(300), range(4)))
        while sum(request.has_token for request in bench.policy._requests.values()) < 4:
            await asyncio.sleep(0.01)
        await bench.policy.load(adapter_weights(bench.second), 4)
        return await running

    for rollout in bench.runner.run(scenario()):
        assert [version for _, version in rollout.versions] == [3, 4]
        change = rollout.versions[1][0]
        before = replace(rollout, tokens=rollout.tokens[:change], logprobs=rollout.logprobs[:change])
        assert difference(bench.first, before) < 1e-4
        assert difference(bench.first, rollout) > 1e-3


def test_an_adapter_is_refused_where_the_model_has_no_such_layer(bench):
    """vLLM itself would load it and sample without it. It ends the engine: its weights are not those of the run."""
    sent = {name.replace("layers.1", "layers.7"): tensor for name, tensor in adapter_weights(bench.first).items()}
    with pytest.raises(MagError, match=r"vLLM's model has no layer .*layers\.7"):
        bench.runner.run(bench.policy.load(sent, 5))


def test_other_weights_are_refused(tiny_model_dir):
    with (
        pytest.raises(WeightsFault, match="got other weights"),
        AdapterSender(16.0).ready({"model.norm.weight": torch.ones(3)}, None),
    ):
        raise AssertionError


def test_an_adapter_is_a_folder_in_shared_memory_as_long_as_it_is_needed(tiny_model_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(matching, "SHARED_MEMORY", tmp_path)
    sent = adapter_weights(adapted(tiny_model_dir, 1))
    with shared_adapter(sent, 16.0) as folder:
        assert folder.parent == tmp_path
        stored = load_file(folder / "adapter_model.safetensors")
        assert digests(stored) == digests(sent)
    assert list(tmp_path.iterdir()) == []
    assert {layer_of(name).rpartition(".")[2] for name in sent} >= {"q_proj", "down_proj"}


def test_adapters_of_killed_processes_are_swept(tmp_path, monkeypatch):
    monkeypatch.setattr(matching, "SHARED_MEMORY", tmp_path)
    left = tmp_path / f"magcli-{2**31 - 1}-x.adapter"
    left.mkdir()
    (left / "adapter_config.json").touch()
    with shared_adapter({"x.lora_A.weight": torch.ones(1, 2)}, 1.0) as ours:
        matching.sweep()
        assert list(tmp_path.iterdir()) == [ours]


@pytest.mark.parametrize(("rank", "largest"), [(1, 1), (4, 8), (32, 32), (300, 320)])
def test_the_engine_has_room_for_the_rank(rank, largest, tiny_model_dir):
    spec = Spec(Model.open(tiny_model_dir), lora_rank=rank)
    layers = ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]
    wanted = {"enable_lora": True, "max_lora_rank": largest, "max_loras": 1, "lora_target_modules": layers}
    assert engine_settings(spec) == wanted
    pytest.importorskip("vllm").AsyncEngineArgs(model="m", **wanted)
    assert engine_settings(replace(spec, lora_rank=0)) == {}


def test_a_gpu_needs_bf16():
    """vLLM's kernels for adapters assert 16-bit inputs."""
    assert [accepts(16, on_gpu=gpu, bf16=bf16) for gpu in (False, True) for bf16 in (False, True)] == [
        True, True, False, True,
    ]  # fmt: skip
    assert not accepts(513, on_gpu=False, bf16=True)


def test_vllm_has_what_adapters_need():
    """Names and values of vLLM 0.32 that nothing else would check."""
    lora = pytest.importorskip("vllm.config.lora")
    from vllm.lora.lora_model import LoRAModel
    from vllm.lora.worker_manager import WorkerLoRAManager

    assert get_args(lora.MaxLoRARanks) == RANKS
    request = adapter_request(Path("folder"), replaces=True)
    assert (request.lora_int_id, request.load_inplace) == (1, True)
    assert "self._lora_model_cls.from_local_checkpoint" in inspect.getsource(WorkerLoRAManager._load_adapter)
    assert list(inspect.signature(LoRAModel.from_lora_tensors).parameters)[:2] == ["lora_model_id", "tensors"]
