"""`magcli rl --lora`: runs in both placements, survives kills, and leaves a merged model and its adapters."""

import json
import shutil

import pytest
import torch
from calling import TRAINED, call_stage, kill_and_resume, seconds_of
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from magcli.errors import UsageError
from magcli.run.rundir import RunDir
from magcli.stages.rl import plan, sampling_engine

LORA = TRAINED | {"lora": 4, "lr": 1e-2, "checkpoint_every": 2}
ASYNC = {name: value for name, value in LORA.items() if name != "schedule"}


def weights(folder):
    return load_file(folder / "model.safetensors")


@pytest.fixture(scope="module")
def adapted(guesser, letters, tmp_path_factory):
    """A finished synchronous run with a KL penalty and a trajectory."""
    run = tmp_path_factory.mktemp("lora") / "run"
    call_stage("rl", letters, model=str(guesser), run=run, **LORA | {"kl": 0.05, "trajectory_every": 3})
    return run


def test_the_model_has_the_adapters_merged_and_all_other_weights_as_before(adapted, guesser):
    before, after = weights(guesser), weights(adapted / "model")
    assert before.keys() == after.keys()
    for name, tensor in after.items():
        assert torch.equal(tensor, before[name]) != name.endswith("_proj.weight"), name


def test_the_adapters_on_the_initial_model_are_the_trained_model(adapted, guesser):
    peft = pytest.importorskip("peft")
    base, trained = (AutoModelForCausalLM.from_pretrained(folder) for folder in (guesser, adapted / "model"))
    with_adapters = peft.PeftModel.from_pretrained(base, adapted / "adapter")
    ids = torch.arange(10, 40)[None]
    with torch.no_grad():
        torch.testing.assert_close(with_adapters(ids).logits, trained(ids).logits, rtol=1e-4, atol=1e-4)


def test_checkpoints_have_adapters_only_and_the_trajectory_whole_models(adapted, guesser):
    (last,) = (adapted / "checkpoints").iterdir()
    assert not (last / "model.safetensors").exists()
    stored = load_file(last / "adapter_model.safetensors")
    assert all(".lora_A." in name or ".lora_B." in name for name in stored)
    kept = [weights(folder) for folder in sorted((adapted / "trajectory").iterdir())]
    assert all(torch.equal(tensor, kept[0][name]) for name, tensor in weights(guesser).items())
    assert all(torch.equal(tensor, kept[-1][name]) for name, tensor in weights(adapted / "model").items())


def test_engine_and_trainer_agree_after_each_update_and_the_reference_is_the_initial_model(adapted):
    lines = RunDir(adapted).metrics()
    assert len({line["weights_digest"] for line in lines}) == len(lines)
    assert all(line["mismatch_p99"] < 1e-3 for line in lines if line["mismatch_tokens"])
    assert any(line["mismatch_tokens"] for line in lines[1:])
    assert lines[0]["kl_reference"] == pytest.approx(0, abs=1e-6)
    assert lines[-1]["kl_reference"] > 1e-4


@pytest.mark.parametrize("kills", [2, pytest.param(25, marks=pytest.mark.faults)])
def test_a_killed_run_resumes_to_the_same_weights(kills, guesser, letters, tmp_path):
    options = LORA | {"model": str(guesser), "updates": 8, "checkpoint_every": 3}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    took = seconds_of("rl", letters, run=whole, **options)
    kill_and_resume(kills, 0.7 * took, "rl", letters, run=broken, **options)
    for file in ("model/model.safetensors", "adapter/adapter_model.safetensors"):
        assert (broken / file).read_bytes() == (whole / file).read_bytes()


@pytest.mark.parametrize("generators", [0, 1])
def test_merged_weights_in_bf16_reach_the_engine_in_either_placement(generators, guesser, letters, tmp_path):
    run, stored = tmp_path / "run", in_bf16(guesser, tmp_path / "stored")
    options = ASYNC | {"generators": generators, "bf16": "yes", "dtype": "bf16", "updates": 3, "kl": 0.05}
    call_stage("rl", letters, model=str(stored), run=run, **options)
    assert {tensor.dtype for tensor in weights(run / "model").values()} == {torch.bfloat16}
    lines = RunDir(run).metrics()
    assert [line["weights_version"] for line in lines] == [1, 2, 3]
    assert all(line["mismatch_tokens"] for line in lines)
    assert max(line["mismatch_p50"] for line in lines) < 0.05
    state = json.loads(next((run / "checkpoints").glob("*/state.json")).read_text())
    assert state["step"] == 3


@pytest.mark.parametrize("stored_in", ["fp32", "bf16"])
def test_an_engine_on_the_frozen_weights_of_the_trainer_agrees_with_it_and_resumes(
    stored_in, guesser, letters, tmp_path, monkeypatch
):
    monkeypatch.setattr(plan, "_shares_base", lambda given, rank, *, on_gpu: True)  # as on a GPU
    opened = []
    monkeypatch.setattr(sampling_engine, "open_policy", lambda spec: opened.append(spec))
    model = in_bf16(guesser, tmp_path / "stored") if stored_in == "bf16" else guesser
    run = tmp_path / "run"
    options = ASYNC | {"bf16": "yes" if stored_in == "bf16" else "no", "dtype": stored_in, "model": str(model)}
    call_stage("rl", letters, run=run, **options | {"updates": 3, "checkpoint_every": 1})
    call_stage("rl", letters, run=run, **options | {"updates": 5, "checkpoint_every": 1})
    lines = RunDir(run).metrics()
    assert [line["weights_version"] for line in lines] == [1, 2, 3, 4, 5]
    assert len({line["weights_digest"] for line in lines}) == 5
    assert all(line["mismatch_tokens"] for line in lines)
    assert max(line["mismatch_p50"] for line in lines) < (0.05 if stored_in == "bf16" else 1e-4)
    assert opened == [], "the engine has a copy of the weights"


def in_bf16(source, folder):
    """A copy of a model that is stored in bf16, so that LoRA keeps it in bf16."""
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("SHA256SUMS"))
    AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16).save_pretrained(folder)
    return folder


def test_lora_runs_in_one_process(guesser, letters, tmp_path):
    with pytest.raises(UsageError, match="rl: --lora trains in one process"):
        call_stage("rl", letters, model=str(guesser), run=tmp_path / "run", trainers=2, **LORA)
