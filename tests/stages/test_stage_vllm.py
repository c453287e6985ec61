"""Stages on vLLM as a user starts them: clean rows on stdout, and no engine is left behind."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from calling import call_stage

from magcli.data import table
from magcli.errors import UsageError
from magcli.model.load import load_model
from magcli.model.weights.save import open_original, save_model

OPTIONS = ["--engine", "vllm", "--dtype", "fp32", "--system", "none", "--slots", "8", "--samples", "2"]


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(json.dumps({"id": f"p{i}", "prompt": f"{i}?", "answer": "3"}) + "\n" for i in range(12)))
    return path


@pytest.mark.slow
def test_generate_on_vllm_writes_rows_and_nothing_else_to_stdout(magcli, wide_model_dir, problems):
    done = magcli("generate", problems, "--model", wide_model_dir, *OPTIONS, "--max-tokens", 16, timeout=280)
    assert done.returncode == 0, done.stderr
    rows = pa.ipc.open_stream(io.BytesIO(done.stdout)).read_all().to_pylist()
    assert [(row["id"], row["sample"]) for row in rows] == [(f"p{i}", sample) for i in range(12) for sample in range(2)]
    assert all(0 < row["num_tokens"] <= 16 for row in rows)
    assert len({row["completion"] for row in rows}) > 12


@pytest.mark.parametrize("stage", ["generate", "filter-math", "evaluate"])
def test_deterministic_sampling_is_refused(magcli, stage, wide_model_dir, problems):
    done = magcli(stage, problems, "--model", wide_model_dir, *OPTIONS, "--deterministic", "--dry-run")
    assert done.returncode == UsageError.exit_code
    assert "--deterministic needs --engine torch" in done.stderr


@pytest.mark.slow
def test_landscape_on_vllm_loads_the_weights_of_each_point(wide_model_dir, problems, tmp_path):
    """Greedy answers say which weights made them: both engines give the same rows, of points that differ."""
    (tmp_path / "letters.py").write_text("def letters(completion, row):\n    return len(set(completion)) / 100\n")
    options = {"points": 7, "samples": 1, "max_tokens": 24, "temperature": 0.0, "system": Path("none"), "dtype": "fp32"}
    found = {}
    for engine in ("vllm", "torch"):
        run = tmp_path / engine
        _trajectory(wide_model_dir, run / "trajectory")
        reward = f"{tmp_path / 'letters.py'}:letters"
        call_stage("landscape", problems, run=run, engine=engine, reward=reward, output=run / "points.arrow", **options)
        found[engine] = [row for batch in table.read(str(run / "points.arrow")).rows for row in batch.to_pylist()]
    assert found["vllm"] == found["torch"]
    assert len({str(row["reward"]) for row in found["vllm"]}) > 2


def _trajectory(model_dir: Path, folder: Path) -> None:
    """Four checkpoints on a crooked path in a plane, from a model's weights on."""
    model, original = load_model(str(model_dir), dtype=torch.float32), open_original(str(model_dir))
    torch.manual_seed(1)
    begin = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    along, across = ({name: 0.02 * torch.randn_like(tensor) for name, tensor in begin.items()} for _ in range(2))
    for step, turn in enumerate([0.0, 1.0, 0.4, 1.5]):
        for name, parameter in model.named_parameters():
            parameter.data = begin[name] + step * along[name] + turn * across[name]
        save_model(model, original, folder / f"step-{step:06d}", dtype="fp32")


@pytest.mark.faults
def test_an_engine_ends_with_its_parent_and_the_stage_resumes(magcli, wide_model_dir, problems, tmp_path):
    """The engine is killed in the first run, its parent in the second; the third ends the work."""
    out = tmp_path / "out.jsonl"
    given = ["generate", problems, "--model", wide_model_dir, *OPTIONS, "--max-tokens", 400, "-o", out]
    for victim in ("engine", "parent"):
        parent = subprocess.Popen([sys.executable, "-m", "magcli", *map(str, given)], stderr=subprocess.PIPE, text=True)
        engine = _engine_of(parent.pid)
        size = _journal_bytes(tmp_path)
        _wait(lambda size=size: _journal_bytes(tmp_path) > size)
        os.kill(engine if victim == "engine" else parent.pid, signal.SIGKILL)
        _wait(lambda engine=engine: not _runs(engine), 10)
        said = parent.communicate(timeout=400)[1]
        assert parent.returncode == (4 if victim == "engine" else -signal.SIGKILL), said
        assert victim == "parent" or f"the vLLM engine process (pid {engine}) died (SIGKILL)" in said
    done = magcli(*given, timeout=280)
    assert done.returncode == 0, done.stderr
    assert sum(batch.num_rows for batch in table.read(str(out)).rows) == 24


def _journal_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if "journal" in path.name)


def _engine_of(parent: int) -> int:
    found: list[int] = []

    def look() -> bool:
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                of, command = status.read_text(), (status.parent / "cmdline").read_text()
            except OSError:
                continue
            if f"\nPPid:\t{parent}\n" in of and "spawn_main" in command:
                found.append(int(status.parent.name))
        return bool(found)

    _wait(look)
    return found[0]


def _runs(pid: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def _wait(condition, seconds: float = 240) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "waited in vain"
        time.sleep(0.05)
