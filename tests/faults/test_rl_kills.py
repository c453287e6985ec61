"""kill -9 of any process of an RL run, trainer, generators, verifiers, at uniform random instants: nothing is lost."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import kills
import pytest
from calling import flags_of, quiet

from magcli.data import table
from magcli.rl import ledger

GROUP, BATCH = 8, 4
OPTIONS = {
    "group_size": GROUP,
    "n_async": 64,
    "n_batch": GROUP * BATCH,
    "n_mini": GROUP * BATCH,
    "max_tokens": 24,
    "lr": 1e-3,
    "bf16": "no",
    "dtype": "fp32",
    "system": "none",
    "language": False,
    "checkpoint_every": 4,
    "generators": 1,
    "workers": 1,
}


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("problems") / "problems.jsonl"
    path.write_text(
        "".join(f'{{"id": "p{i}", "prompt": "{letter}?", "answer": "3"}}\n' for i, letter in enumerate("abcdefgh"))
    )
    return path


def start(problems: Path, model: Path, run: Path, options: dict[str, object]) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "magcli", "rl", str(problems), "--model", str(model), "--run", str(run), "--quiet"]
    command += flags_of(OPTIONS | options)
    return subprocess.Popen(command, stderr=subprocess.PIPE, env=quiet(), start_new_session=True)


def processes(session: int) -> list[int]:
    """Processes that live in a session."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split() if entry.name.isdigit() else []
        except OSError:
            continue
        if fields and int(fields[3]) == session and fields[0] != "Z":
            found.append(int(entry.name))
    return found


def run_killed(begin, wanted: int, horizon: float, draw: random.Random) -> Counter[str]:
    """Run to the end while random processes of the run are killed; returns how many of which kind were."""
    done: Counter[str] = Counter()
    while True:
        process = begin()
        while process.poll() is None and done.total() < wanted:
            try:
                process.wait(draw.uniform(0, horizon))
            except subprocess.TimeoutExpired:
                victim = draw.choice([process.pid, *processes(process.pid)])
                done["parent" if victim == process.pid else "child"] += 1
                os.kill(victim, signal.SIGKILL)
        errors = process.communicate(timeout=280)[1].decode()
        if process.returncode == 0:
            return done
        assert process.returncode == -signal.SIGKILL, errors
        deadline = time.monotonic() + 10
        while left := processes(process.pid):
            assert time.monotonic() < deadline, f"{left} outlive the run"
            time.sleep(0.05)


def seconds_of(begin) -> float:
    begun = time.monotonic()
    errors = (process := begin()).communicate(timeout=280)[1].decode()
    assert process.returncode == 0, errors
    return time.monotonic() - begun


def rollouts(run: Path) -> list[dict[str, object]]:
    paths = sorted((run / "rollouts").iterdir())
    return [row for path in paths for batch in table.read(str(path)).rows for row in batch.to_pylist()]


def check_account(run: Path, updates: int) -> None:
    """reserved = trained + dropped, each group once; every update had its batch; what is on disk says the same."""
    found = ledger.account(ledger.read(run / "ledger.jsonl"))
    assert found.faults == ()
    assert found.outstanding == 0
    assert found.trained == updates * BATCH
    assert set(found.dropped) <= {"all-right", "all-wrong"}
    rows = rollouts(run)
    assert Counter(row["group"] for row in rows) == dict.fromkeys(range(found.reserved), GROUP)
    trained = Counter(row["step"] for row in rows if row["dropped"] is None)
    assert trained == dict.fromkeys(range(1, updates + 1), GROUP * BATCH)
    assert not list((run / "groups").iterdir())


@pytest.mark.faults
@pytest.mark.parametrize(("wanted", "updates"), [(3, 8), pytest.param(50, 60, marks=pytest.mark.timeout(2400))])
def test_every_group_is_trained_once_or_dropped_with_a_reason(wanted, updates, problems, guesser, tmp_path):
    draw = random.Random(kills.fresh_seed())

    def begin(run: Path = tmp_path / "run") -> "subprocess.Popen[bytes]":
        return start(problems, guesser, run, {"updates": updates})

    whole = seconds_of(lambda: begin(tmp_path / "whole"))
    done = run_killed(begin, wanted, whole / wanted + 3, draw)
    print(done)
    assert done
    check_account(tmp_path / "whole", updates)
    check_account(tmp_path / "run", updates)


@pytest.mark.faults
@pytest.mark.parametrize(("wanted", "updates"), [(2, 5), pytest.param(50, 40, marks=pytest.mark.timeout(2400))])
def test_the_synchronous_schedule_ends_with_the_weights_of_an_unbroken_run(
    wanted, updates, problems, guesser, tmp_path
):
    draw = random.Random(kills.fresh_seed())

    def begin(run: Path = tmp_path / "run") -> "subprocess.Popen[bytes]":
        return start(problems, guesser, run, {"updates": updates, "schedule": "sync", "n_mini": GROUP, "lr": 2e-4})

    whole = seconds_of(lambda: begin(tmp_path / "whole"))
    done = run_killed(begin, wanted, whole / wanted + 3, draw)
    print(done)
    assert done
    check_account(tmp_path / "run", updates)
    assert rollouts(tmp_path / "run") == rollouts(tmp_path / "whole")
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert weights[0] == weights[1]
