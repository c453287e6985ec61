"""`--offload moments` in `rl` and `sft`, forced on a CPU, where moments would be in host memory anyway."""

import json
from pathlib import Path

import pytest
from calling import TRAINED, call_stage

from magcli.errors import EnvironmentFault
from magcli.run.rundir import RunDir
from magcli.train import optim
from magcli.train.offload import OffloadedAdamW

SFT = {"epochs": 2, "step_tokens": 128, "lr": 3e-3, "bf16": "no", "checkpoint_every": 2, "system": Path("none")}
STAGES = {"rl": TRAINED, "sft": SFT}


@pytest.fixture(params=STAGES)
def stage(request, guesser, letters, tmp_path):
    """A function that runs a stage in a folder of this name and returns the run."""
    rows = [{"id": str(number), "prompt": "a?", "completion": "<think></think>" + "x" * number} for number in range(40)]
    traces = tmp_path / "traces.jsonl"
    traces.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = letters if request.param == "rl" else traces

    def run(name, **options):
        given = STAGES[request.param] | options
        call_stage(request.param, source, model=str(guesser), run=tmp_path / name, **given)
        return tmp_path / name

    return run


def offload(monkeypatch, *, steps=None):
    """Offload moments on a CPU as on a GPU, and fail before step ``steps``; returns the optimizers that are made."""
    made = []

    class Offloaded(OffloadedAdamW):
        taken = 0

        def step(self, closure=None):
            if self.taken == steps:
                raise EnvironmentFault("power cut")
            self.taken += 1
            super().step(closure)

    def adamw(groups, *, fused, **options):
        assert fused
        made.append(Offloaded(groups, **options))
        return made[-1]

    monkeypatch.setattr(optim, "AdamW", adamw)
    return made


def weights(run):
    return (run / "model" / "model.safetensors").read_bytes()


def test_offloaded_moments_make_the_same_weights_also_after_an_interruption(stage, monkeypatch):
    plain = stage("plain")
    with monkeypatch.context() as patched:
        made = offload(patched)
        whole = stage("whole", offload="moments")
    assert made[0].taken > 3
    assert weights(whole) == weights(plain)
    with monkeypatch.context() as patched:
        offload(patched, steps=3)
        with pytest.raises(EnvironmentFault, match="power cut"):
            stage("broken", offload="moments")
    assert len(RunDir(plain.with_name("broken")).metrics()) == 3
    with monkeypatch.context() as patched:
        made = offload(patched)
        assert weights(stage("broken", offload="moments")) == weights(plain)
    assert 0 < made[0].taken <= len(RunDir(plain).metrics()) - 2


def test_a_run_goes_on_without_offloading(stage, monkeypatch):
    with monkeypatch.context() as patched:
        offload(patched, steps=3)
        with pytest.raises(EnvironmentFault, match="power cut"):
            stage("broken", offload="moments")
    assert weights(stage("broken")) == weights(stage("plain"))
