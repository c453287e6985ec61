"""SIGTERM and SIGINT at random instants of an update of RL that takes about a minute: the process ends at once."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import kills
import pytest
from calling import flags_of, quiet

from magcli.data import table
from magcli.rl import ledger

SIGNALS = 20
BOUND = 2.0
OPTIONS = {
    "updates": 1,
    "schedule": "sync",
    "group_size": 8,
    "n_batch": 64,
    "n_mini": 16,
    "n_async": 64,
    "max_tokens": 256,
    "diverse_by": "reward",
    "bf16": "no",
    "dtype": "fp32",
    "system": "none",
    "workers": 1,
}
REWARD = "def odd(completion, row):\n    return float(len(completion) % 2)\n"


@pytest.fixture(scope="module")
def place(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with problems, a reward, and a model with much work in each layer."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    folder = tmp_path_factory.mktemp("long")
    config = AutoConfig.from_pretrained(tiny_model_dir)
    config.hidden_size, config.intermediate_size, config.head_dim = 768, 6144, 192
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder / "model")
    AutoTokenizer.from_pretrained(tiny_model_dir).save_pretrained(folder / "model")
    (folder / "problems.jsonl").write_text("".join(f'{{"id": "p{i}", "prompt": "{i}?"}}\n' for i in range(8)))
    (folder / "reward.py").write_text(REWARD)
    return folder


def start(place: Path, run: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "magcli", "rl", str(place / "problems.jsonl"), "--model", str(place / "model")]
    command += ["--run", str(run), "--reward", f"{place / 'reward.py'}:odd", *flags_of(OPTIONS)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=quiet(), start_new_session=True)


def in_the_update(process: "subprocess.Popen[str]") -> None:
    """Wait until a run that goes on is about to make its update again."""
    errors = next((line for line in process.stderr if "resuming from update" in line), "")
    assert "resuming from update 1; repeating 1 with the same groups" in errors


def taken(run: Path) -> bool:
    """Whether the groups of the first update are on disk, so that it has begun."""
    path = run / "ledger.jsonl"
    return path.exists() and '"taken"' in path.read_text()


def ended(process: "subprocess.Popen[str]", number: signal.Signals) -> float:
    """Send a signal; the seconds in which the process and all that it started have ended."""
    begun = time.monotonic()
    process.send_signal(number)
    errors = process.communicate(timeout=400)[1]
    seconds = time.monotonic() - begun
    assert process.returncode == 128 + number, errors
    assert errors.splitlines()[-1] == f"error: ended by {number.name}; the same command resumes from finished work"
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    return seconds


def signalled(place: Path, run: Path, longest: float, draw: random.Random) -> list[tuple[str, float, float]]:
    """Begin the update again and again; signal, instant, and seconds to the end of each."""
    found = []
    for _ in range(SIGNALS // 2):
        process = start(place, run)
        in_the_update(process)
        number, instant = draw.choice([signal.SIGINT, signal.SIGTERM]), draw.uniform(0.0, 0.7 * longest)
        time.sleep(instant)
        found.append((number.name, round(instant, 1), round(ended(process, number), 2)))
        print(run.name, found[-1], flush=True)
    return found


def finish(place: Path, run: Path) -> tuple[float, bytes]:
    """Run to the end; seconds of the update, and the weights."""
    process = start(place, run)
    in_the_update(process)
    begun = time.monotonic()
    errors = process.communicate(timeout=400)[1]
    assert process.returncode == 0, errors
    assert ledger.account(ledger.read(run / "ledger.jsonl")).faults == ()
    (rollouts,) = (run / "rollouts").iterdir()
    assert sum(batch.num_rows for batch in table.read(str(rollouts)).rows) == OPTIONS["n_batch"]
    return time.monotonic() - begun, (run / "model" / "model.safetensors").read_bytes()


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_a_signal_in_a_long_update_ends_the_run_at_once_and_it_can_be_resumed(place, tmp_path) -> None:
    draw = random.Random(kills.fresh_seed())
    runs = [tmp_path / name for name in ("whole", "one", "other")]
    process = start(place, runs[0])
    while not taken(runs[0]):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    print("first", ended(process, signal.SIGTERM))
    for run in runs[1:]:
        shutil.copytree(runs[0], run)
    longest, whole = finish(place, runs[0])
    print(f"an unbroken update takes {longest:.0f} s")
    with ThreadPoolExecutor(2) as pool:
        draws = [random.Random(draw.random()) for _ in runs[1:]]
        found = list(pool.map(lambda run, own: signalled(place, run, longest, own), runs[1:], draws))
        assert [seconds for each in found for _, _, seconds in each if seconds >= BOUND] == []
        assert [weights for _, weights in pool.map(lambda run: finish(place, run), runs[1:])] == [whole, whole]
