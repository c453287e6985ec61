"""A worker that loses or garbles a tensor of update 3 stops the run there, and the run can be resumed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from calling import TRAINED, call_stage, flags_of, quiet

from magcli.errors import Stopped
from magcli.generate.torch.slot_model import PackedLinear
from magcli.rl import ledger
from magcli.rl.metrics import LIMITS
from magcli.run.rundir import RunDir

FAULTY_WORKER = Path(__file__).parents[1] / "generate" / "faulty_worker"
TENSOR = "model.layers.1.self_attn.k_proj.weight"
OPTIONS = {name: value for name, value in TRAINED.items() if name not in ("schedule", "trajectory_every")}
OPTIONS |= {"updates": 4, "diverse_by": "reward", "workers": 1, "system": "none", "checkpoint_every": 2}
REWARD = "def letters(completion, row):\n    return len(set(completion)) / 100\n"


def arguments(folder, model, **options):
    rows = [{"id": f"p{number}", "prompt": f"{number}?", "answer": "3"} for number in range(8)]
    (folder / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "letters.py").write_text(REWARD)
    fixed = {"model": model, "run": folder / "run", "reward": f"{folder / 'letters.py'}:letters"}
    return [folder / "problems.jsonl"], fixed | OPTIONS | options


def run_command(folder, model, fault, **options):
    inputs, given = arguments(folder, model, **options)
    environment = quiet()
    if fault:
        paths = [str(FAULTY_WORKER), environment.get("PYTHONPATH", "")]
        environment |= {"WEIGHTS_FAULT": fault, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    flags = flags_of({name: str(value) if isinstance(value, Path) else value for name, value in given.items()})
    command = [sys.executable, "-m", "magcli", "rl", str(inputs[0]), *flags]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=280)


def metrics(folder):
    return RunDir(folder / "run").metrics()


def check_stopped_and_resumed(folder, model, fault, **options):
    stopped = run_command(folder, model, fault, **options)
    assert stopped.returncode == 4, stopped.stderr
    last = stopped.stderr.strip().splitlines()[-1]
    assert "weights of update 3" in last
    assert TENSOR in last
    assert [line["weights_version"] for line in metrics(folder)] == [1, 2]
    resumed = run_command(folder, model, "", **options)
    assert resumed.returncode == 0, resumed.stderr
    lines = metrics(folder)
    assert [line["weights_version"] for line in lines] == [1, 2, 3, 4]
    assert len({line["weights_digest"] for line in lines}) == 4
    assert all(line["mismatch_tokens"] >= 64 and line["mismatch_p99"] < 0.02 for line in lines)
    account = ledger.account(ledger.read(folder / "run" / "ledger.jsonl"))
    assert (account.trained, account.outstanding, account.faults) == (8, 0, ())


@pytest.mark.parametrize("generators", [0, 2])
@pytest.mark.parametrize("fault", ["drop", "garble"])
def test_a_faulty_embedded_engine_stops_the_run(fault, generators, tiny_model_dir, tmp_path):
    check_stopped_and_resumed(tmp_path, tiny_model_dir, fault, generators=generators)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("transfer", ["file", "broadcast"])
@pytest.mark.parametrize("fault", ["drop", "garble"])
def test_a_faulty_vllm_worker_stops_the_run(fault, transfer, wide_model_dir, tmp_path):
    options = {"engine": "vllm", "generators": 1, "transfer": transfer}
    check_stopped_and_resumed(tmp_path, wide_model_dir, fault, **options)


def test_weights_that_arrive_but_are_not_loaded_stop_the_run(tiny_model_dir, tmp_path, monkeypatch):
    """Digests cannot show this: the rows of each layer are shifted after it was digested."""
    pack = PackedLinear.pack
    monkeypatch.setattr(PackedLinear, "pack", lambda layer, weight: pack(layer, torch.roll(weight, 1, 0)))
    monkeypatch.setattr(PackedLinear, "__init__", packed_rightly(pack))
    inputs, options = arguments(tmp_path, tiny_model_dir, n_batch=64, n_async=64, n_mini=64)
    with pytest.raises(Stopped, match="rl: after update 1: engine and trainer at equal weights"):
        call_stage("rl", *inputs, **options | {"model": str(tiny_model_dir), "system": Path("none")})
    (line,) = metrics(tmp_path)
    assert line["mismatch_tokens"] >= LIMITS.mismatch_tokens
    assert line["sampled_mismatch_p99"] < 0.02


def packed_rightly(pack):
    """The constructor of a packed layer, with the function that is not broken."""

    def init(layer, linear):
        super(PackedLinear, layer).__init__()
        layer.weight = torch.nn.Parameter(torch.empty_like(linear.weight, device="meta"), requires_grad=False)
        layer.bias = linear.bias
        pack(layer, linear.weight)

    return init
