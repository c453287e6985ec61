"""Reward over wall-clock time: ``magcli rl`` against TRL's GRPOTrainer from the same weights on the toy problems.

The model is that of ``recipes/tiny`` after SFT, the problems are those that its first difficulty pass keeps, and both
sides use the recipe's sizes and learning rate. magcli also removes groups and normalises advantages as in the recipe;
TRL runs with its nearest options. Measured are the seconds until the reward of the sampled completions, averaged over
several updates, reaches a level.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.downloads import ROOT, TRL_TITLE
from benchmarks.monitor import Record, monitor
from benchmarks.pairs import Result
from benchmarks.rl import inputs, settings
from benchmarks.rl.runs import SECONDS, environment, flags, run_trl

RECIPE = ROOT / "recipes" / "tiny" / "recipe.toml"
TOY = inputs.FOLDER / "tiny"
PROBLEMS = TOY / "first.arrow"
MODEL = TOY / "sft" / "model"

Curve = Sequence[tuple[float, float]]
"""Seconds since the beginning of the run and mean reward, for each update."""


def run() -> Result:
    """One pair per seed: TRL's seconds over magcli's."""
    print(f"rl-reward-per-second: against {TRL_TITLE}", flush=True)
    problems = _problems()
    return Result("rl-reward-per-second", tuple(_ratio(seed, problems) for seed in settings.TOY_SEEDS))


def _ratio(seed: int, problems: Path) -> float:
    ours, theirs = _curve(_magcli(seed, problems)), _curve(_trl(seed, problems))
    for name, curve in (("magcli", ours), ("TRL", theirs)):
        print(f"  rl-reward-per-second: seed {seed}, {name}: {_summary(curve)}", flush=True)
    our_seconds, their_seconds = seconds_to_level(ours), seconds_to_level(theirs)
    assert our_seconds is not None, f"magcli did not reach a reward of {settings.TOY_LEVEL}"
    if their_seconds is None:
        print(f"  rl-reward-per-second: TRL did not reach it; counted as {theirs[-1][0]:.0f} s", flush=True)
    return (their_seconds or theirs[-1][0]) / our_seconds


def seconds_to_level(curve: Curve) -> float | None:
    """When the mean over the last ``TOY_SMOOTH`` updates first reaches ``TOY_LEVEL``; None if it never does."""
    rewards = [reward for _, reward in curve]
    for end in range(settings.TOY_SMOOTH, len(curve) + 1):
        if fmean(rewards[end - settings.TOY_SMOOTH : end]) >= settings.TOY_LEVEL:
            return curve[end - 1][0]
    return None


def _summary(curve: Curve) -> str:
    marks = [next((reward for second, reward in curve if second >= mark), None) for mark in settings.TOY_MARKS]
    at = ", ".join(f"{mark} s {reward:.2f}" for mark, reward in zip(settings.TOY_MARKS, marks, strict=True) if reward)
    seconds = seconds_to_level(curve)
    level = f"{settings.TOY_LEVEL} {f'after {seconds:.0f} s' if seconds else 'never'}"
    return f"{level}; {len(curve)} updates in {curve[-1][0]:.0f} s; reward at {at}, last {curve[-1][1]:.2f}"


def _curve(record: Record) -> Curve:
    """With seconds since the beginning of the first update."""
    steps = sorted(step for step in record.lines if step > 0)
    start = record.at[steps[0]] - record.lines[steps[0]]["seconds"]
    return [(record.at[step] - start, record.lines[step]["reward"]) for step in steps]


def _magcli(seed: int, problems: Path) -> Record:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        options = {"recipe": RECIPE, "model": MODEL, "run": run, "seed": seed, "checkpoint_every": 10**6}
        return monitor(
            [sys.executable, "-m", "magcli", "rl", str(problems), *flags(options)],
            run / "metrics.jsonl",
            last=_recipe()["updates"],
            environment=environment(settings.THREADS),
            seconds=SECONDS,
        )


def _trl(seed: int, problems: Path) -> Record:
    recipe = _recipe()
    spec = {
        "model": str(MODEL),
        "problems": str(problems),
        "system": None,
        "updates": recipe["updates"],
        "group": recipe["group"],
        "completions": recipe["n_batch"],
        "micro": settings.TOY_TRL_MICRO,
        "limit": recipe["max_tokens"],
        "lr": recipe["lr"],
        "lr_warmup": recipe["warmup"],
        "clip_low": settings.CLIP_LOW,
        "clip_high": settings.CLIP_HIGH,
        "temperature": settings.TEMPERATURE,
        "threads": settings.THREADS,
        "seed": seed,
        "shuffle": True,
        "continuous": False,
        "blocks": settings.TRL_BLOCKS,
        "bf16": recipe["dtype"] == "bf16",
        "reward": "",
        "workers": 2,
        "rule": {"penalty_end": recipe["penalty_end"], "use_language": recipe["language"]},
    }
    with tempfile.TemporaryDirectory() as folder:
        return run_trl(spec, Path(folder), last=recipe["updates"])


def _recipe() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads(RECIPE.read_text())["rl"]
    return table


@cache
def _problems() -> Path:
    """Make the toy model and its problems with the recipe's Makefile; the problems as JSONL."""
    program = Path(sys.executable).with_name("magcli")
    jsonl = TOY / "first.jsonl"
    for command in (
        ["make", "-s", "-C", str(RECIPE.parent), f"OUT={TOY}", f"MAGCLI={program}", str(PROBLEMS)],
        [str(program), "convert", str(PROBLEMS), "-o", str(jsonl)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, env=environment(1))
        assert done.returncode == 0, done.stderr[-2000:]
    problems = [json.loads(line) for line in jsonl.read_text().splitlines()]
    print(f"  rl-reward-per-second: {len(problems)} problems from {PROBLEMS.name}", flush=True)
    return jsonl
