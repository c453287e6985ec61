"""RL of LoRA adapters: only they train and are in checkpoints; the model that a run writes has them merged."""

import json
from pathlib import Path

import pytest
import torch
from calling import TRAINED, call_stage, kill_and_resume
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from magcli.run.rundir import RunDir

LORA = TRAINED | {"schedule": "sync", "lora": 4, "lora_alpha": 8.0, "lr": 1e-2, "kl": 0.05, "trajectory_every": 1}


@pytest.fixture(scope="module")
def lora_run(guesser: Path, letters: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("lora") / "run"
    call_stage("rl", letters, model=str(guesser), run=run, **LORA)
    return run


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def test_the_result_is_the_model_with_merged_adapters(lora_run: Path, guesser: Path) -> None:
    from peft import PeftModel

    start = weights_of(guesser)
    result = weights_of(lora_run / "model")
    assert result.keys() == start.keys()
    changed = {name for name in start if not torch.equal(start[name], result[name])}
    assert changed
    assert all(".self_attn." in name or ".mlp." in name for name in changed), "embeddings and norms are frozen"

    base = AutoModelForCausalLM.from_pretrained(guesser)
    merged = PeftModel.from_pretrained(base, lora_run / "adapter").merge_and_unload().state_dict()
    for name in changed:
        torch.testing.assert_close(merged[name], result[name], rtol=1e-5, atol=1e-6)


def test_checkpoints_have_the_adapters_only_and_trajectories_whole_models(lora_run: Path, guesser: Path) -> None:
    (checkpoint,) = (lora_run / "checkpoints").iterdir()
    names = set(weights_of(checkpoint))
    assert names
    assert all("lora_" in name for name in names)
    for point in (lora_run / "trajectory").iterdir():
        assert weights_of(point).keys() == weights_of(guesser).keys()


def test_the_penalty_is_against_the_model_without_adapters(lora_run: Path) -> None:
    lines = RunDir(lora_run).metrics()
    assert lines[0]["kl_reference"] == pytest.approx(0, abs=1e-6), "the reference is the model without adapters"
    assert lines[-1]["kl_reference"] > 1e-4
    assert all(line["mismatch_p99"] < 1e-3 for line in lines if line.get("mismatch_tokens"))


def test_a_killed_run_ends_with_the_same_bytes(lora_run: Path, guesser: Path, letters: Path, tmp_path: Path) -> None:
    options = {**LORA, "model": str(guesser), "run": tmp_path / "run"}
    kill_and_resume(2, 6.0, "rl", letters, **options)
    for part in ("model", "adapter"):
        for file in (lora_run / part).glob("*.safetensors"):
            assert (tmp_path / "run" / part / file.name).read_bytes() == file.read_bytes()


def test_generators_get_merged_weights(guesser: Path, letters: Path, tmp_path: Path) -> None:
    options = {**LORA, "schedule": "async", "updates": 3, "generators": 1, "trajectory_every": 0}
    call_stage("rl", letters, model=str(guesser), run=tmp_path / "run", **options)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 3
    assert all(line["mismatch_p99"] < 1e-3 for line in lines if line.get("mismatch_tokens"))
