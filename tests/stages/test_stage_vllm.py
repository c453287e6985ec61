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

from magcli.data import table
from magcli.errors import UsageError

OPTIONS = ["--engine", "vllm", "--dtype", "fp32", "--system", "none", "--slots", "8", "--samples", "2"]


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(json.dumps({"id": f"p{i}", "prompt": f"{i}?", "answer": "3"}) + "\n" for i in range(12)))
    return path


def test_generate_on_vllm_writes_rows_and_nothing_else_to_stdout(magcli, wide_model_dir, problems):
    done = magcli("generate", problems, "--model", wide_model_dir, *OPTIONS, "--max-tokens", 16, timeout=280)
    assert done.returncode == 0, done.stderr
    rows = pa.ipc.open_stream(io.BytesIO(done.stdout)).read_all().to_pylist()
    assert [(row["id"], row["sample"]) for row in rows] == [(f"p{i}", sample) for i in range(12) for sample in range(2)]
    assert all(0 < row["num_tokens"] <= 16 for row in rows)
    assert len({row["completion"] for row in rows}) > 12


@pytest.mark.parametrize("stage", ["generate", "filter-math", "evaluate"])
def test_bits_that_must_be_the_same_are_refused(magcli, stage, wide_model_dir, problems):
    done = magcli(stage, problems, "--model", wide_model_dir, *OPTIONS, "--deterministic", "--dry-run")
    assert done.returncode == UsageError.exit_code
    assert "--deterministic needs --engine torch" in done.stderr


@pytest.mark.faults
def test_an_engine_ends_with_the_process_that_started_it_and_the_stage_goes_on(
    magcli, wide_model_dir, problems, tmp_path
):
    """The engine is killed in the first run, its parent in the second; the third ends the work."""
    out = tmp_path / "out.jsonl"
    given = ["generate", problems, "--model", wide_model_dir, *OPTIONS, "--max-tokens", 400, "-o", out]
    for victim in ("engine", "parent"):
        parent = subprocess.Popen([sys.executable, "-m", "magcli", *map(str, given)], stderr=subprocess.PIPE, text=True)
        engine = _engine_of(parent.pid)
        begun = _journal_bytes(tmp_path)
        _wait(lambda begun=begun: _journal_bytes(tmp_path) > begun)
        os.kill(engine if victim == "engine" else parent.pid, signal.SIGKILL)
        _wait(lambda engine=engine: not _runs(engine), 10)
        said = parent.communicate(timeout=60)[1]
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
