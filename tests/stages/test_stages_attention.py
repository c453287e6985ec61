"""`--attention varlen` in `rl` and `sft`, with a reference in the place of the kernel for GPUs."""

import json
from pathlib import Path

import pytest
import torch
from attention_reference import CALLS, on_a_cpu
from calling import TRAINED, call_stage
from safetensors.torch import load_file

from magcli.stages.shared import rank_options

SFT = {"epochs": 1, "step_tokens": 128, "lr": 3e-3, "bf16": "no", "system": Path("none")}
RL = {name: value for name, value in TRAINED.items() if name not in ("updates", "trajectory_every")}
STAGES = {"rl": RL | {"updates": 1, "kl": 0.1}, "sft": SFT}


@pytest.mark.parametrize("name", STAGES)
def test_a_run_without_padding_trains_the_same_weights(name, guesser, letters, tmp_path, monkeypatch):
    rows = [{"id": str(number), "prompt": "a?", "completion": "<think></think>" + "x" * number} for number in range(20)]
    traces = tmp_path / "traces.jsonl"
    traces.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = letters if name == "rl" else traces
    on_a_cpu(monkeypatch)
    monkeypatch.setattr(rank_options, "check_attention", lambda stage, config: None)
    CALLS.clear()
    trained = {}
    for attention in ("sdpa", "varlen"):
        call_stage(name, source, model=str(guesser), run=tmp_path / attention, attention=attention, **STAGES[name])
        trained[attention] = load_file(tmp_path / attention / "model" / "model.safetensors")
        assert bool(CALLS) is (attention == "varlen")
    for tensor, wanted in trained["sdpa"].items():
        torch.testing.assert_close(trained["varlen"][tensor], wanted, rtol=1e-2, atol=1e-4)
