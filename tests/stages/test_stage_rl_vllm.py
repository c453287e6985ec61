"""RL whose generator is vLLM: the trainer beside it, weights in flight, the engine's death no end of the run."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from calling import flags_of, quiet
from overlap import overlap

from magcli.data import table
from magcli.rl import ledger

SIZES = {
    "updates": 6,
    "group_size": 8,
    "n_async": 32,
    "n_batch": 16,
    "n_mini": 16,
    "max_tokens": 48,
    "lr": 1e-3,
    "bf16": "no",
    "dtype": "fp32",
    "system": "none",
    "language": False,
    "diverse_by": "reward",
    "engine": "vllm",
    "generators": 1,
    "workers": 1,
}
TOYS = Path(__file__).parent.parent / "environments" / "toys.py"
REWARD = "def letters(completion, row):\n    return len(set(completion)) / 100\n"


AUTO_IS_VLLM = """
from magcli.plan import engines
engines.policy_engine = lambda name, device, *, deterministic=False: "vllm" if name == "auto" else name
"""


def started(folder: Path, model: Path, path: Path | None = None, **options) -> "subprocess.Popen[bytes]":
    problems = folder / "problems.jsonl"
    problems.write_text("".join(json.dumps({"id": f"p{i}", "prompt": f"{i}?", "answer": "3"}) + "\n" for i in range(8)))
    (folder / "letters.py").write_text(REWARD)
    command = [sys.executable, "-m", "magcli", "rl", str(problems), "--model", str(model), "--run", str(folder / "run")]
    grading = {} if "environment" in options else {"reward": f"{folder / 'letters.py'}:letters"}
    command += flags_of(SIZES | grading | options)
    environment = quiet() | ({"PYTHONPATH": str(path)} if path else {})
    return subprocess.Popen(command, stderr=subprocess.PIPE, env=environment, start_new_session=True)


def metrics(run: Path) -> list[dict[str, object]]:
    path = run / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def check(run: Path, updates: int) -> None:
    account = ledger.account(ledger.read(run / "ledger.jsonl"))
    assert (account.trained, account.outstanding, account.faults) == (2 * updates, 0, ())


@pytest.mark.parametrize(
    "adapters",
    [{}, pytest.param({"lora": 4, "lr": 1e-2}, marks=pytest.mark.slow)],
    ids=["all-weights", "adapters"],
)
def test_trainer_and_vllm_log_probs_match_and_weights_change_in_flight(adapters, wide_model_dir, tmp_path):
    process = started(tmp_path, wide_model_dir, staleness=2, **adapters)
    errors = process.communicate(timeout=280)[1].decode()
    run = tmp_path / "run"
    check(run, 6)
    lines = metrics(run)
    assert all(line["mismatch_tokens"] >= 64 and line["mismatch_p99"] < 0.02 for line in lines), errors
    assert lines[0]["sampled_mismatch_tokens"] > 200
    sampled = [line["sampled_mismatch_p50"] for line in lines if line["sampled_mismatch_tokens"]]
    assert max(sampled) < 0.02, "of tokens on older caches too"
    assert "rl: engine and trainer at equal weights: the log-probs of" in errors
    assert overlap(ledger.read(run / "ledger.jsonl")) > 0
    paths = sorted((run / "rollouts").iterdir())
    rows = [row for path in paths for batch in table.read(str(path)).rows for row in batch.to_pylist()]
    versions = {span["version"] for row in rows for span in row["versions"]}
    # Update 4 changes version 3 and update 6 version 5: within a staleness of 2 their groups are of 1 to 3 and 3 to 5.
    assert min(versions) == 0
    assert versions & {1, 2, 3}
    assert max(versions) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("adapters", [{}, {"lora": 4, "lr": 1e-2}], ids=["all-weights", "adapters"])
def test_the_trainer_has_a_vllm_engine_of_its_own_without_generators(adapters, wide_model_dir, tmp_path):
    errors = (
        started(tmp_path, wide_model_dir, generators=0, staleness=2, **adapters).communicate(timeout=280)[1].decode()
    )
    run = tmp_path / "run"
    check(run, 6)
    lines = metrics(run)
    assert all(line["mismatch_tokens"] >= 64 and line["mismatch_p99"] < 0.02 for line in lines), errors
    assert overlap(ledger.read(run / "ledger.jsonl")) > 0, "it samples while the trainer computes"


@pytest.mark.slow
@pytest.mark.parametrize(
    "placed",
    [{"generators": 0}, {"generators": 1}, {"generators": 0, "vllm_sleep": "yes", "card": "999G", "n_async": 16}],
    ids=["beside", "generator", "asleep"],
)
def test_vllm_samples_the_turns_of_episodes(placed, wide_model_dir, tmp_path):
    options = {"environment": f"{TOYS}:Cup", "diverse_by": "none", "max_tokens": 90, "updates": 3, "staleness": 2}
    process = started(tmp_path, wide_model_dir, **options | placed)
    errors = process.communicate(timeout=500)[1].decode()
    assert process.returncode == 0, errors
    run = tmp_path / "run"
    check(run, 3)
    assert all(line["mismatch_tokens"] >= 64 and line["mismatch_p99"] < 0.02 for line in metrics(run)), errors
    paths = sorted((run / "rollouts").iterdir())
    rows = [row for path in paths for batch in table.read(str(path)).rows for row in batch.to_pylist()]
    assert any(row["given"] for row in rows), "what the environment says lies between turns"
    assert all(row["num_tokens"] == len(row["tokens"]) - row["logprobs"].count(0.0) for row in rows)


@pytest.mark.slow
def test_the_embedded_engine_samples_where_the_vllm_of_auto_does_not_start(wide_model_dir, tmp_path):
    """``auto`` is vLLM on this CPU as it is on a GPU, and vLLM does not know the model."""
    shutil.copytree(wide_model_dir, tmp_path / "odd")
    config = json.loads((tmp_path / "odd" / "config.json").read_text())
    (tmp_path / "odd" / "config.json").write_text(json.dumps(config | {"architectures": ["NobodysForCausalLM"]}))
    (tmp_path / "sitecustomize.py").write_text(AUTO_IS_VLLM)
    process = started(tmp_path, tmp_path / "odd", path=tmp_path, generators=0, engine="auto", updates=2)
    errors = process.communicate(timeout=280)[1].decode()
    check(tmp_path / "run", 2)
    (warning,) = [line for line in errors.splitlines() if "vLLM cannot run" in line]
    assert warning.startswith("warning: rl: vLLM cannot run ")
    assert warning.endswith("; sampling with --engine torch instead")


@pytest.mark.slow
@pytest.mark.parametrize("adapters", [{}, {"lora": 4, "lr": 1e-2}], ids=["all-weights", "adapters"])
def test_vllm_sleeps_during_updates(adapters, wide_model_dir, tmp_path):
    """On a CPU its memory stays; --card stands for the GPU that it would share with the trainer."""
    options = {"generators": 0, "vllm_sleep": "yes", "card": "999G", "n_async": 16, "max_tokens": 160, "staleness": 2}
    process = started(tmp_path, wide_model_dir, **options, **adapters)
    errors = process.communicate(timeout=280)[1].decode()
    run = tmp_path / "run"
    check(run, 6)
    lines = metrics(run)
    assert all(line["mismatch_tokens"] >= 64 and line["mismatch_p99"] < 0.02 for line in lines), errors
    assert [line["weights_version"] for line in lines] == [1, 2, 3, 4, 5, 6]
    paths = sorted((run / "rollouts").iterdir())
    spans = [row["versions"] for path in paths for batch in table.read(str(path)).rows for row in batch.to_pylist()]
    assert any(len(versions) > 1 for versions in spans), "running sequences are kept"


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("transfer", ["file", "broadcast"])
def test_two_trainer_ranks_send_weights_to_a_generator_of_two_ranks(transfer, wide_model_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")  # compilation takes longer than the run on a busy machine
    process = started(
        tmp_path, wide_model_dir, updates=3, staleness=2, trainers=2, tensor_parallel=2, transfer=transfer
    )
    errors = process.communicate(timeout=800)[1].decode()
    assert process.returncode == 0, errors
    run = tmp_path / "run"
    check(run, 3)
    lines = metrics(run)
    assert [line["weights_version"] for line in lines] == [1, 2, 3]
    assert all(line["mismatch_tokens"] >= 64 and line["mismatch_p99"] < 0.02 for line in lines), errors


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "sent",
    [{"transfer": "file"}, {"transfer": "broadcast"}, {"transfer": "broadcast", "trainers": 2}, {"lora": 4}],
    ids=["file", "broadcast", "ranks", "adapters"],
)
def test_a_killed_engine_is_replaced(sent, wide_model_dir, tmp_path):
    run = tmp_path / "run"
    with started(tmp_path, wide_model_dir, updates=40, lr=1e-5, **sent) as process:
        killed, deadline = 0, time.monotonic() + 600
        while killed < 2 and process.poll() is None and time.monotonic() < deadline:
            if len(metrics(run)) >= 5 * (killed + 1) and (engine := engines(process.pid)):
                os.kill(engine[-1], signal.SIGKILL)
                killed += 1
            time.sleep(0.05)
        errors = process.communicate(timeout=280)[1].decode()
    assert process.returncode == 0, errors
    assert killed == 2
    assert errors.count("starting another") == 2
    check(run, 40)


def engines(session: int) -> list[int]:
    """vLLM's engine processes in a session: the only ones there that multiprocessing has started."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text() if entry.name.isdigit() else ""
            name = (entry / "cmdline").read_bytes() if fields else b""
        except OSError:
            continue
        if b"spawn_main" in name and int(fields.rsplit(")", 1)[1].split()[3]) == session:
            found.append(int(entry.name))
    return sorted(found)
