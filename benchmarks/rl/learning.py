"""Reward by wall-clock second: ``magcli rl`` and TRL's GRPOTrainer from the same weights on the toy problems.

The model is that of ``recipes/tiny`` after its SFT, the problems those that its first difficulty pass keeps, and sizes
and rates are the recipe's for both. magcli runs as the recipe has it, with groups removed that teach nothing and with
the recipe's normalisation; TRL with what comes nearest. The curve is the mean reward of what each update sampled, and
the measure is the seconds until it has reached a level for good, that is over several updates.
"""

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.pairs import Result
from benchmarks.public import ROOT, Missing
from benchmarks.rl import settings
from benchmarks.rl.prepare import PLACE
from benchmarks.rl.sides import SECONDS, environment, flags, run_trl
from benchmarks.rl.watch import Watched, watch

RECIPE = ROOT / "recipes" / "tiny" / "recipe.toml"
TOY = PLACE / "tiny"
PREPARED = TOY / "first.arrow"
MODEL = TOY / "sft" / "model"

Curve = Sequence[tuple[float, float]]
"""(seconds since the run began, mean reward of an update's samples), by update."""


def run() -> Result | None:
    """All seeds, both sides in turn."""
    try:
        return Result("rl-reward-per-second", tuple(_pair(seed, _problems()) for seed in _seeds()))
    except Missing as missing:
        print(f"rl-reward-per-second: not run: {missing}", flush=True)
        return None


def _seeds() -> Sequence[int]:
    return settings.TOY_SEEDS[:1] if os.environ.get("PEERS_SHORT") == "1" else settings.TOY_SEEDS


def _pair(seed: int, problems: Path) -> float:
    ours, theirs = _curve(_magcli(seed, problems)), _curve(_trl(seed, problems))
    for name, curve in (("magcli", ours), ("TRL", theirs)):
        print(f"  rl-reward-per-second: seed {seed}, {name}: {_told(curve)}", flush=True)
    our_seconds, their_seconds = reached(ours), reached(theirs)
    assert our_seconds is not None, f"magcli did not reach a reward of {settings.TOY_LEVEL}"
    if their_seconds is None:
        print(f"  rl-reward-per-second: TRL did not get there; its {theirs[-1][0]:.0f} s count", flush=True)
    return (their_seconds or theirs[-1][0]) / our_seconds


def reached(curve: Curve) -> float | None:
    """The second at which the mean over the last ``TOY_SMOOTH`` updates first has the level; None if it never has."""
    rewards = [reward for _, reward in curve]
    for end in range(settings.TOY_SMOOTH, len(curve) + 1):
        if fmean(rewards[end - settings.TOY_SMOOTH : end]) >= settings.TOY_LEVEL:
            return curve[end - 1][0]
    return None


def _told(curve: Curve) -> str:
    marks = [next((reward for second, reward in curve if second >= mark), None) for mark in settings.TOY_MARKS]
    at = ", ".join(f"{mark} s {reward:.2f}" for mark, reward in zip(settings.TOY_MARKS, marks, strict=True) if reward)
    seconds = reached(curve)
    level = f"{settings.TOY_LEVEL} {f'after {seconds:.0f} s' if seconds else 'never'}"
    return f"{level}; {len(curve)} updates in {curve[-1][0]:.0f} s; reward at {at}, last {curve[-1][1]:.2f}"


def _curve(watched: Watched) -> Curve:
    """Seconds count from the beginning of the first update, not from the start of a process."""
    steps = sorted(step for step in watched.lines if step > 0)
    start = watched.at[steps[0]] - watched.lines[steps[0]]["seconds"]
    return [(watched.at[step] - start, watched.lines[step]["reward"]) for step in steps]


def _magcli(seed: int, problems: Path) -> Watched:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "run"
        options = {"recipe": RECIPE, "model": MODEL, "run": place, "seed": seed, "checkpoint_every": 10**6}
        return watch(
            [sys.executable, "-m", "magcli", "rl", str(problems), *flags(options)],
            place / "metrics.jsonl",
            last=_recipe()["updates"],
            environment=environment(settings.TOY_THREADS),
            seconds=SECONDS,
        )


def _trl(seed: int, problems: Path) -> Watched:
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
        "threads": settings.TOY_THREADS,
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
    """Make the toy model and its problems by the recipe's Makefile; the problems as lines that both sides read."""
    program = Path(sys.executable).with_name("magcli")
    lines = TOY / "first.jsonl"
    for command in (
        ["make", "-s", "-C", str(RECIPE.parent), f"OUT={TOY}", f"MAGCLI={program}", str(PREPARED)],
        [str(program), "convert", str(PREPARED), "-o", str(lines)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, env=environment(1))
        assert done.returncode == 0, done.stderr[-2000:]
    kept = [json.loads(line) for line in lines.read_text().splitlines()]
    print(f"  rl-reward-per-second: {len(kept)} problems from {PREPARED.name}", flush=True)
    return lines
