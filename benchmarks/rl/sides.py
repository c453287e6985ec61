"""The two sides of a race: a whole run of ``magcli rl``, and one of TRL's GRPOTrainer, as users start them.

Each is a process of its own that leaves a line of metrics an update, watched from outside. The clock runs from the end
of the last warm-up update to the end of the last timed one.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.public import ROOT
from benchmarks.rl import settings
from benchmarks.rl.settings import Arm
from benchmarks.rl.watch import Line, Watched, watch
from benchmarks.trl_reward import trl

SECONDS = 4 * 3600.0
REWARD = f"{ROOT}/benchmarks/rl/answered.py:answered"


@dataclass(frozen=True, slots=True)
class Task:
    """What both sides are to do: a model, problems, where completions are cut, updates before and on the clock."""

    model: Path
    problems: Path
    limit: int
    warmup: int
    timed: int


@dataclass(frozen=True, slots=True)
class Timed:
    """What a side did on the clock. Shares are of its seconds; ``padding`` is the share of trained positions.

    ``whole`` is its trained tokens a second from the beginning of the first update to the end of the last timed one:
    there no token is counted that was made before, and some are left out that are made for later.
    """

    seconds: float
    updates: int
    trained: int
    whole: float
    generating: float
    training: float
    padding: float
    lengths: str
    reward: float
    dropped: int
    peak_mib: int

    @property
    def rate(self) -> float:
        """Trained completion tokens a second."""
        return self.trained / self.seconds

    def told(self) -> str:
        """One line for people."""
        return (
            f"{self.rate:.1f} trained tokens/s ({self.trained} in {self.seconds:.0f} s; warm-up included "
            f"{self.whole:.1f}), "
            f"{self.seconds / self.updates:.1f} s an update, generating {self.generating:.0%}, "
            f"training {self.training:.0%}, padding {self.padding:.0%}, lengths {self.lengths}, "
            f"reward {self.reward:.2f}, groups dropped {self.dropped}, peak {self.peak_mib:,} MiB"
        )


def magcli(task: Task, **more: Any) -> Timed:
    """A run of ``magcli rl``, options in ``more`` winning; by ``reward`` no group of this race is removed."""
    return _of_magcli(task, run_magcli(task, **more))


def run_magcli(task: Task, *, seconds: float = SECONDS, **more: Any) -> Watched:
    """Start ``magcli rl`` and watch it, for so many seconds at most."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        return watch(
            [sys.executable, "-m", "magcli", "rl", str(task.problems), *flags(options_of(task, run) | more)],
            run / "metrics.jsonl",
            last=task.warmup + task.timed,
            environment=environment(settings.THREADS),
            seconds=seconds,
        )


def options_of(task: Task, run: Path) -> dict[str, Any]:
    """The options of ``magcli rl`` for a task, with the run in a folder that is not there yet."""
    system = run.with_name("system.txt")
    system.write_text(settings.SYSTEM)
    return {
        "model": task.model,
        "run": run,
        "updates": task.warmup + task.timed + settings.TAIL,
        "group": settings.GROUP,
        "n_batch": settings.COMPLETIONS,
        "n_mini": settings.COMPLETIONS,
        "diverse_by": "reward",
        "loss_norm": "token",
        "clip_low": settings.CLIP_LOW,
        "clip_high": settings.CLIP_HIGH,
        "lr": settings.LR,
        "max_tokens": task.limit,
        "temperature": settings.TEMPERATURE,
        "system": system,
        "reward": REWARD,
        "seed": settings.SEED,
        "checkpoint_every": 10**6,
        **settings.MAGCLI,
    }


def trl_trainer(task: Task, arm: Arm, *, seconds: float = SECONDS) -> Timed:
    """A run of TRL's trainer, for so many seconds at most."""
    with tempfile.TemporaryDirectory() as folder:
        spec = {
            "model": str(task.model),
            "problems": str(task.problems),
            "system": settings.SYSTEM,
            "updates": task.warmup + task.timed,
            "group": settings.GROUP,
            "completions": settings.COMPLETIONS,
            "micro": settings.TRL_MICRO,
            "blocks": settings.TRL_BLOCKS,
            "limit": task.limit,
            "lr": settings.LR,
            "lr_warmup": 0,
            "clip_low": settings.CLIP_LOW,
            "clip_high": settings.CLIP_HIGH,
            "temperature": settings.TEMPERATURE,
            "threads": settings.THREADS,
            "seed": settings.SEED,
            "continuous": arm.continuous,
            "bf16": arm.bf16,
            "reward": REWARD,
            "workers": 1,
            "rule": {},
        }
        return _of_trl(task, run_trl(spec, Path(folder), last=task.warmup + task.timed, seconds=seconds))


def run_trl(spec: Mapping[str, Any], folder: Path, *, last: int, seconds: float = SECONDS) -> Watched:
    """Start ``trl_child`` with a spec and watch it.

    Raises:
        Missing: TRL cannot be had.
    """
    place, path = folder / "trl", folder / "spec.json"
    path.write_text(json.dumps({**spec, "folder": str(place), "metrics": str(place / "metrics.jsonl")}))
    paths = os.pathsep.join((str(ROOT), trl()))
    return watch(
        [sys.executable, "-m", "benchmarks.rl.trl_child", str(path)],
        place / "metrics.jsonl",
        last=last,
        environment=environment(spec["threads"]) | {"PYTHONPATH": paths},
        seconds=seconds,
    )


def environment(threads: int) -> dict[str, str]:
    """This process's, offline and with so many threads."""
    quiet = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false"}
    return os.environ | quiet | {"OMP_NUM_THREADS": str(threads)}


def flags(options: Mapping[str, Any]) -> list[str]:
    """Options as they stand on a command line."""
    return [word for name, value in options.items() for word in _flag(name.replace("_", "-"), value)]


def _flag(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    return [f"--{name}", str(value)]


def clock(task: Task, watched: Watched) -> tuple[float, list[Line]]:
    """Seconds on the clock, and the lines of the updates that ended in them."""
    last = task.warmup + task.timed
    lines = [watched.lines[step] for step in range(task.warmup + 1, last + 1)]
    return watched.at[last] - watched.at[task.warmup], lines


def _whole(task: Task, watched: Watched, tokens: Callable[[Line], int]) -> float:
    """Trained tokens a second, the warm-up included."""
    last = task.warmup + task.timed
    begun = watched.at[1] - watched.lines[1]["seconds"]
    return sum(tokens(watched.lines[step]) for step in range(1, last + 1)) / (watched.at[last] - begun)


def _of_magcli(task: Task, watched: Watched) -> Timed:
    seconds, lines = clock(task, watched)
    return Timed(
        seconds=seconds,
        updates=task.timed,
        trained=sum(line["trained_tokens"] for line in lines),
        whole=_whole(task, watched, lambda line: line["trained_tokens"]),
        generating=_share(lines, [1 - line["generator_idle"] for line in lines]),
        training=_share(lines, [1 - line["trainer_idle"] for line in lines]),
        padding=0.0,
        lengths=f"{fmean(line['length_mean'] for line in lines):.0f} (p95 {lines[-1]['length_p95']:.0f})",
        reward=fmean(line["reward"] for line in lines),
        dropped=sum(sum(line["groups_dropped"].values()) for line in lines),
        peak_mib=watched.peak_mib,
    )


def _of_trl(task: Task, watched: Watched) -> Timed:
    seconds, lines = clock(task, watched)
    lengths = [length for line in lines for length in line["lengths"]]
    generating = sum(line["generate_seconds"] for line in lines)
    grading = sum(line["grade_seconds"] for line in lines)
    return Timed(
        seconds=seconds,
        updates=task.timed,
        trained=sum(lengths),
        whole=_whole(task, watched, lambda line: sum(line["lengths"])),
        generating=generating / seconds,
        training=1 - (generating + grading) / seconds,
        padding=fmean(map(_padding, lines)),
        lengths=f"{fmean(lengths):.0f} (p95 {sorted(lengths)[int(0.95 * len(lengths))]})",
        reward=fmean(line["reward"] for line in lines),
        dropped=0,
        peak_mib=watched.peak_mib,
    )


def _share(lines: Sequence[Line], shares: Sequence[float]) -> float:
    """The mean of shares of updates' seconds, longer updates counting more."""
    seconds = [line["seconds"] for line in lines]
    return sum(share * second for share, second in zip(shares, seconds, strict=True)) / sum(seconds)


def _padding(line: Line) -> float:
    """The share of padding in TRL's batch, which is as wide as its longest prompt and its longest completion."""
    prompts, lengths = line["prompt_lengths"], line["lengths"]
    return 1 - (sum(prompts) + sum(lengths)) / (len(lengths) * (max(prompts) + max(lengths)))
