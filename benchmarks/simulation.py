"""``magcli simulate`` against real RL runs: speeds fitted to four runs predict the throughput of four others.

A random Llama of 0.4M parameters samples completions of geometric length (several tokens end one). The reward, a hash
of the text, takes 5 ms and leaves about a third of the groups without two outcomes. Calibration runs and predicted runs
alternate, so that other load falls on both. One calibration run has few sequences and one a lower token limit: without
them the cost of a step, of a sequence and of an attended token could not be separated. The first update of each run, in
which processes start, does not count. A prediction may be off by 15 %.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import mean

from transformers import AutoTokenizer

from benchmarks.downloads import ROOT
from benchmarks.models import random_llama
from benchmarks.pairs import Result
from magcli_simulate.machine import TABLES, Machine
from magcli_simulate.predict import MeasuredRun, calibrate, read_run
from magcli_simulate.simulation import SimulatedUpdate, Simulation
from magcli_simulate.workload import resampled_source

TOLERANCE = 0.15
TOKENIZER = ROOT / "recipes" / "tiny" / "model"
SIZES = {
    "hidden_size": 128,
    "intermediate_size": 352,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
ENDS = (1, 100, 200, 300)
"""Tokens that end a completion, of 435: a mean length of about 109 unless truncated."""
WORKERS = 2
SEEDS = range(3)
COMMON = {
    "updates": 20,
    "group_size": 8,
    "max_tokens": 256,
    "penalty_end": 256,
    "lr": 1e-9,
    "dtype": "fp32",
    "diverse_by": "reward",
    "system": "none",
    "workers": WORKERS,
    "micro_tokens": 4096,
}
"""Options of all runs; with this learning rate the lengths stay as they are."""

CALIBRATION: Sequence[Mapping[str, int]] = (
    {"n_async": 8, "n_batch": 16, "n_mini": 16, "staleness": 1},
    {"n_async": 32, "n_batch": 64, "n_mini": 64, "staleness": 1},
    {"n_async": 128, "n_batch": 64, "n_mini": 64, "staleness": 1},
    {"n_async": 64, "n_batch": 32, "n_mini": 32, "staleness": 1, "max_tokens": 128},
)
PREDICTED: Sequence[Mapping[str, int]] = (
    {"n_async": 64, "n_batch": 64, "n_mini": 64, "staleness": 1},
    {"n_async": 64, "n_batch": 128, "n_mini": 128, "staleness": 1},
    {"n_async": 16, "n_batch": 32, "n_mini": 32, "staleness": 2},
    {"n_async": 96, "n_batch": 96, "n_mini": 96, "staleness": 1, "max_tokens": 96},
)
REWARD = """
import time, zlib


def hashed(completion, row):
    time.sleep(0.005)
    return float(zlib.crc32(completion.encode()) % 8 == 0)
"""


@dataclass(frozen=True)
class Figures:
    """Metrics of a real or simulated run from its second update on."""

    tokens_per_s: float
    generator_idle: float
    trainer_idle: float
    staleness: float
    mixed: float


def shared() -> Result:
    """Trainer and engine alternate in one process."""
    return _compare("shared", {})


def split() -> Result:
    """A generator process runs beside the trainer."""
    return _compare("split", {"generators": 1})


def _compare(placement: str, options: Mapping[str, int]) -> Result:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_inputs(folder)
        run_rl(folder / "warm-up", {**COMMON, **options, **PREDICTED[0], "updates": 4})
        for sizes in _alternating(CALIBRATION, PREDICTED):
            run_rl(_run_folder(folder, sizes), {**COMMON, **options, **sizes})
        calibration = [read_run(_run_folder(folder, sizes)) for sizes in CALIBRATION]
        machine = calibrate(calibration, workers=WORKERS)
        print(f"{placement}, fitted:\n{_as_toml(machine)}", flush=True)
        ratios = [_predict(placement, folder, sizes, machine, calibration) for sizes in PREDICTED]
    return Result(f"simulation-{placement}", tuple(ratios), within=TOLERANCE)


def _alternating(first: Sequence[Mapping[str, int]], second: Sequence[Mapping[str, int]]) -> list[Mapping[str, int]]:
    longest = max(len(first), len(second))
    return [sizes for index in range(longest) for side in (second, first) for sizes in side[index : index + 1]]


def _predict(
    placement: str, folder: Path, sizes: Mapping[str, int], machine: Machine, calibration: Sequence[MeasuredRun]
) -> float:
    """Print one prediction; returns predicted over measured throughput."""
    run_folder = _run_folder(folder, sizes)
    real = read_run(run_folder)
    untruncated = [run for run in calibration if run.settings.max_tokens >= real.settings.max_tokens]
    groups = [group for run in untruncated for group in run.groups.values()]
    simulated = []
    for seed in SEEDS:
        source = resampled_source(
            groups, group=real.settings.group_size, max_tokens=real.settings.max_tokens, seed=seed
        )
        simulated.append(of_updates(Simulation(real.settings, machine, source).run().updates, machine))
    predicted, measured = mean_of(simulated), of_run(real, run_folder)
    ratio = predicted.tokens_per_s / measured.tokens_per_s
    options = ", ".join(f"{name} {value}" for name, value in sizes.items() if name != "n_mini")
    print(f"  {placement}: {options}: predicted/measured {ratio:.3f}")
    for name in Figures.__dataclass_fields__:
        print(f"    {name:15} {getattr(predicted, name):10.3f} {getattr(measured, name):10.3f}", flush=True)
    return ratio


def _as_toml(machine: Machine) -> str:
    """A machine as the text of its TOML file, without defaults."""
    lines: list[str] = []
    for table in TABLES:
        part = getattr(machine, table)
        values = {field.name: (getattr(part, field.name), field.default) for field in fields(part)}
        changed = {name: value for name, (value, default) in values.items() if value != default}
        lines += ["", f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in changed.items())]
    return "\n".join(lines[1:]) + "\n"


def of_updates(updates: Sequence[SimulatedUpdate], machine: Machine) -> Figures:
    """The figures of a simulated run."""
    first, last = updates[0], updates[-1]
    seconds = last.time - first.time
    busy = (last.work.seconds - first.work.seconds) / machine.generators.engines
    staleness = [value for update in updates[1:] for value in update.staleness]
    return Figures(
        (last.trained_tokens - first.trained_tokens) / seconds,
        1 - busy / seconds,
        1 - (last.training - first.training) / seconds,
        mean(staleness),
        sum(update.mixed for update in updates[1:]) / len(staleness),
    )


def of_run(run: MeasuredRun, folder: Path) -> Figures:
    """The figures of a real run in a folder."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()][1:]
    seconds = run.seconds[1:].sum()
    return Figures(
        sum(line["trained_tokens"] for line in lines) / seconds,
        1 - run.generating[1:].sum() / seconds,
        1 - run.training[1:].sum() / seconds,
        mean(line["staleness_mean"] for line in lines),
        mean(line["mixed_versions"] for line in lines),
    )


def mean_of(figures: Sequence[Figures]) -> Figures:
    """The mean of each figure."""
    names = Figures.__dataclass_fields__
    return replace(figures[0], **{name: mean(getattr(one, name) for one in figures) for name in names})


def _run_folder(folder: Path, sizes: Mapping[str, int]) -> Path:
    return folder / "-".join(map(str, sizes.values()))


def run_rl(run: Path, options: Mapping[str, object]) -> None:
    """Run ``magcli rl`` on the inputs beside the run's folder, on one thread in each process."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    command = [sys.executable, "-m", "magcli", "rl", "problems.jsonl", "--model", "model", "--run", str(run)]
    done = subprocess.run(
        [*command, *flags, "--bf16=no", "--reward=reward.py:hashed", "--quiet"],
        cwd=run.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    print(f"  ran {run.name}", flush=True)


def write_inputs(folder: Path, **sizes: int) -> None:
    """Problems, a reward function, and a random model, whose ``sizes`` replace the usual ones."""
    rows = [{"id": f"p{i}", "prompt": f"What is {i} and {i + 1}?"} for i in range(64)]
    (folder / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "reward.py").write_text(REWARD)
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER, trust_remote_code=False)
    tokenizer.save_pretrained(folder / "model")
    model = random_llama(
        **SIZES | sizes,
        vocab_size=len(tokenizer),
        max_position_embeddings=512,
        eos_token_id=list(ENDS),
        pad_token_id=0,
    )
    model.save_pretrained(folder / "model")
