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
from rl_runs import GROUP, OPTIONS, check_account, rollouts


def start(letters: Path, model: Path, run: Path, options: dict[str, object]) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "magcli", "rl", str(letters), "--model", str(model), "--run", str(run), "--quiet"]
    command += flags_of(OPTIONS | options)
    return subprocess.Popen(command, stderr=subprocess.PIPE, env=quiet(), start_new_session=True)


def run_killed(begin, wanted: int, horizon: float, draw: random.Random) -> Counter[str]:
    """Run to the end while random processes of the run are killed; returns how many of which kind were."""
    done: Counter[str] = Counter()
    while True:
        process = begin()
        while process.poll() is None and done.total() < wanted:
            try:
                process.wait(draw.uniform(0, horizon))
            except subprocess.TimeoutExpired:
                victim = draw.choice([process.pid, *kills.processes(process.pid)])
                done["parent" if victim == process.pid else "child"] += 1
                os.kill(victim, signal.SIGKILL)
        errors = process.communicate(timeout=280)[1].decode()
        if process.returncode == 0:
            return done
        # A run whose local Ray was killed ends with a message, and can be started again.
        ended_by_ray = process.returncode == 4 and done["child"] and "Traceback" not in errors
        assert process.returncode == -signal.SIGKILL or ended_by_ray, errors
        deadline = time.monotonic() + 10
        while left := kills.processes(process.pid):
            assert time.monotonic() < deadline, f"these outlive the run: {[command_line(pid) for pid in left]}"
            time.sleep(0.05)


def command_line(pid: int) -> str:
    """What a process is; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
    except OSError:
        return ""


def seconds_of(begin) -> float:
    begun = time.monotonic()
    errors = (process := begin()).communicate(timeout=280)[1].decode()
    assert process.returncode == 0, errors
    return time.monotonic() - begun


@pytest.mark.faults
@pytest.mark.parametrize(("wanted", "updates"), [(3, 8), pytest.param(50, 60, marks=pytest.mark.timeout(2400))])
def test_every_group_is_trained_once_or_dropped_with_a_reason(wanted, updates, letters, guesser, tmp_path):
    draw = random.Random(kills.fresh_seed())

    def begin(run: Path = tmp_path / "run") -> "subprocess.Popen[bytes]":
        return start(letters, guesser, run, {"updates": updates})

    whole = seconds_of(lambda: begin(tmp_path / "whole"))
    done = run_killed(begin, wanted, whole / wanted + 3, draw)
    print(done)
    assert done
    check_account(tmp_path / "whole", updates)
    check_account(tmp_path / "run", updates)


@pytest.mark.faults
@pytest.mark.parametrize("victim", ["/raylet/raylet ", "/gcs/gcs_server "])
def test_a_run_whose_ray_was_killed_ends_with_a_message(victim, letters, guesser, tmp_path):
    """Ray would wait for a node that nobody starts, or end the process itself after a minute."""
    process = start(letters, guesser, tmp_path / "run", {"updates": 500})
    while not (tmp_path / "run" / "metrics.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.1)
    (service,) = [pid for pid in kills.processes(process.pid) if victim in command_line(pid)]
    os.kill(service, signal.SIGKILL)
    errors = process.communicate(timeout=400)[1].decode()
    assert process.returncode == 4, errors
    assert errors.splitlines()[-1].endswith("the local Ray died; run the same command again to resume")
    assert "Traceback" not in errors


@pytest.mark.faults
@pytest.mark.parametrize(("wanted", "updates"), [(2, 5), pytest.param(50, 40, marks=pytest.mark.timeout(2400))])
def test_the_synchronous_schedule_ends_with_the_weights_of_an_unbroken_run(wanted, updates, letters, guesser, tmp_path):
    draw = random.Random(kills.fresh_seed())

    def begin(run: Path = tmp_path / "run") -> "subprocess.Popen[bytes]":
        return start(letters, guesser, run, {"updates": updates, "schedule": "sync", "n_mini": GROUP, "lr": 2e-4})

    whole = seconds_of(lambda: begin(tmp_path / "whole"))
    done = run_killed(begin, wanted, whole / wanted + 3, draw)
    print(done)
    assert done
    check_account(tmp_path / "run", updates)
    assert rollouts(tmp_path / "run") == rollouts(tmp_path / "whole")
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert weights[0] == weights[1]
