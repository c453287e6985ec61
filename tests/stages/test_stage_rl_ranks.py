"""`magcli rl` under torchrun: two ranks train as one does, and their checkpoints go on with one."""

import json
from pathlib import Path

import pytest
import torch
from calling import call_stage
from safetensors.torch import load_file
from training_ranks import finished, killed_once, launched

from magcli.rl import ledger

SIZES = {
    "updates": 3,
    "group_size": 8,
    "n_async": 32,
    "n_batch": 32,
    "n_mini": 32,
    "max_tokens": 24,
    "lr": 1e-3,
    "bf16": "no",
    "dtype": "fp32",
    "system": "none",
    "language": False,
    "schedule": "sync",
    "micro_tokens": 256,
    "checkpoint_every": 1,
    "workers": 1,
}


NO_SYSTEM = {"system": Path("none")}


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    path = tmp_path_factory.mktemp("problems") / "problems.jsonl"
    rows = [{"id": f"p{i}", "prompt": f"{letter}?", "answer": "3"} for i, letter in enumerate("abcdefgh")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_two_ranks_train_like_one(problems, guesser, tmp_path):
    call_stage("rl", problems, model=str(guesser), run=tmp_path / "one", **SIZES | NO_SYSTEM)
    errors = finished(launched("rl", problems, model=guesser, run=tmp_path / "two", **SIZES))
    assert errors.count("rl: model in") == 1, "one rank speaks"
    one, two = (load_file(tmp_path / run / "model" / "model.safetensors") for run in ("one", "two"))
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        assert (tensor - two[name]).norm() <= 1e-3 * tensor.norm()
    assert ledger.account(ledger.read(tmp_path / "two" / "ledger.jsonl")).trained == 12


def test_a_run_started_by_two_ranks_resumes_with_one(problems, guesser, tmp_path):
    run, options = tmp_path / "run", {"updates": 12, "lr": 1e-5}
    killed_once(
        launched("rl", problems, model=guesser, run=run, **SIZES | options), run / "checkpoints" / "step-000003"
    )
    call_stage("rl", problems, model=str(guesser), run=run, **SIZES | options | NO_SYSTEM)
    account = ledger.account(ledger.read(run / "ledger.jsonl"))
    assert (account.trained, account.outstanding, account.faults) == (48, 0, ())
    assert all(torch.isfinite(tensor).all() for tensor in load_file(run / "model" / "model.safetensors").values())
