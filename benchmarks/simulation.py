"""The simulation of `magcli rl` beside real runs: speeds from some sizes, throughput predicted at others.

A Llama of 0.4M parameters with random weights answers with geometric lengths (any token may be the last), a reward that
is a hash of the text drops about a third of the groups, and takes 5 ms. Runs to calibrate with and runs to predict
take turns, so that what else the machine does falls on both. Of the former one has few sequences, and one is cut at
fewer tokens: only so can a step's own time, what each sequence adds and what each token attended to adds be told apart.
The first update of each run, in which processes start, is left out on both sides. A predicted throughput may be off by
15%.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from benchmarks.pairs import Result, report
from magcli.rl.simulate.calibrate import Measured, calibrate, read_run
from magcli.rl.simulate.draw import resampled
from magcli.rl.simulate.events import Simulation, Update
from magcli.rl.simulate.machine import Machine, as_toml

TOLERANCE = 0.15
TOKENIZER = Path(__file__).parents[1] / "recipes" / "tiny" / "model"
ENDS = (1, 100, 200, 300)
"""Tokens that end an answer, of 435: a length of about 109, if the limit allows it."""
WORKERS = 2
SEEDS = range(3)
COMMON = {
    "updates": 20,
    "group": 8,
    "max_tokens": 256,
    "penalty_end": 256,
    "lr": 1e-9,
    "dtype": "fp32",
    "diverse_by": "reward",
    "system": "none",
    "workers": WORKERS,
    "micro_tokens": 4096,
}
"""The same in all runs; so small a learning rate leaves the lengths as they are."""

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
    """Of one run, real or simulated, from its second update on."""

    tokens_per_s: float
    generator_idle: float
    trainer_idle: float
    staleness: float
    mixed: float


def shared() -> Result:
    """Trainer and engine take turns in one process."""
    return _compare("shared", {})


def split() -> Result:
    """One process generates while the other trains."""
    return _compare("split", {"generators": 1})


def _compare(placement: str, options: Mapping[str, int]) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        _write_inputs(place)
        _run(place, place / "warm-up", {**COMMON, **options, **PREDICTED[0], "updates": 4})
        for sizes in _alternating(CALIBRATION, PREDICTED):
            _run(place, _folder(place, sizes), {**COMMON, **options, **sizes})
        known = [read_run(_folder(place, sizes)) for sizes in CALIBRATION]
        machine = calibrate(known, workers=WORKERS)
        print(f"{placement}, fitted:\n{as_toml(machine)}", flush=True)
        offs = [_predicted(placement, place, sizes, machine, known) for sizes in PREDICTED]
    return Result(f"simulation-{placement}", tuple(offs), within=TOLERANCE)


def _alternating(first: Sequence[Mapping[str, int]], second: Sequence[Mapping[str, int]]) -> list[Mapping[str, int]]:
    longest = max(len(first), len(second))
    return [sizes for place in range(longest) for side in (second, first) for sizes in side[place : place + 1]]


def _predicted(
    placement: str, place: Path, sizes: Mapping[str, int], machine: Machine, known: Sequence[Measured]
) -> float:
    """Print one comparison; returns predicted over measured throughput."""
    folder = _folder(place, sizes)
    real = read_run(folder)
    whole = [run for run in known if run.settings.max_tokens >= real.settings.max_tokens]
    groups = [group for run in whole for group in run.groups.values()]
    simulated = []
    for seed in SEEDS:
        draw = resampled(groups, group=real.settings.group, max_tokens=real.settings.max_tokens, seed=seed)
        simulated.append(_of_updates(Simulation(real.settings, machine, draw).run().updates, machine))
    ours, truth = _mean(simulated), _of_run(real, folder)
    ratio = ours.tokens_per_s / truth.tokens_per_s
    told = ", ".join(f"{name} {value}" for name, value in sizes.items() if name != "n_mini")
    print(f"  {placement}: {told}: predicted/measured {ratio:.3f}")
    for name in Figures.__dataclass_fields__:
        print(f"    {name:15} {getattr(ours, name):10.3f} {getattr(truth, name):10.3f}", flush=True)
    return ratio


def _of_updates(updates: Sequence[Update], machine: Machine) -> Figures:
    first, last = updates[0], updates[-1]
    seconds = last.time - first.time
    busy = (last.work.seconds - first.work.seconds) / machine.generators.engines
    stale = [value for update in updates[1:] for value in update.staleness]
    return Figures(
        (last.trained_tokens - first.trained_tokens) / seconds,
        1 - busy / seconds,
        1 - (last.training - first.training) / seconds,
        mean(stale),
        sum(update.mixed for update in updates[1:]) / len(stale),
    )


def _of_run(run: Measured, folder: Path) -> Figures:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()][1:]
    seconds = run.seconds[1:].sum()
    return Figures(
        run.completions[1:].sum() / seconds,
        1 - run.generating[1:].sum() / seconds,
        1 - run.training[1:].sum() / seconds,
        mean(line["staleness_mean"] for line in lines),
        mean(line["mixed_versions"] for line in lines),
    )


def _mean(figures: Sequence[Figures]) -> Figures:
    names = Figures.__dataclass_fields__
    return replace(figures[0], **{name: mean(getattr(one, name) for one in figures) for name in names})


def _folder(place: Path, sizes: Mapping[str, int]) -> Path:
    return place / "-".join(map(str, sizes.values()))


def _run(place: Path, run: Path, options: Mapping[str, object]) -> None:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    command = [sys.executable, "-m", "magcli", "rl", "problems.jsonl", "--model", "model", "--run", str(run)]
    done = subprocess.run(
        [*command, *flags, "--bf16=no", "--reward=reward.py:hashed", "--quiet"],
        cwd=place,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    print(f"  ran {run.name}", flush=True)


def _write_inputs(place: Path) -> None:
    rows = [{"id": f"p{i}", "prompt": f"What is {i} and {i + 1}?"} for i in range(64)]
    (place / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (place / "reward.py").write_text(REWARD)
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    tokenizer.save_pretrained(place / "model")
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=352,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=list(ENDS),
        pad_token_id=0,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(place / "model")


if __name__ == "__main__":
    report(shared, split)
