"""Whole runs of ``magcli rl`` and of TRL's GRPOTrainer, each a process that writes one line of metrics per update.

The clock runs from the end of the last warm-up update to the end of the last timed one.
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

from benchmarks.downloads import ROOT, trl_path
from benchmarks.monitor import Line, Record, monitor
from benchmarks.rl import settings
from benchmarks.rl.settings import Arm

SECONDS = 4 * 3600.0
REWARD = f"{ROOT}/benchmarks/rl/reward.py:correct_anywhere"


@dataclass(frozen=True, slots=True)
class Task:
    """Model, problems, token limit, updates before the clock starts and on it, and the rank of adapters; 0: none."""

    model: Path
    problems: Path
    limit: int
    warmup: int
    timed: int
    lora: int = 0


@dataclass(frozen=True, slots=True)
class Timed:
    """Measurements of a run on the clock; ``generating`` and ``training`` are shares of its seconds.

    ``padding`` is a share of the trained positions. ``rate_with_warmup`` is trained tokens a second from the beginning
    of the first update, which excludes tokens generated for later updates.
    """

    seconds: float
    updates: int
    trained_tokens: int
    rate_with_warmup: float
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
        return self.trained_tokens / self.seconds

    def summary(self) -> str:
        """One line."""
        return (
            f"{self.rate:.1f} trained tokens/s ({self.trained_tokens} in {self.seconds:.0f} s; with warm-up "
            f"{self.rate_with_warmup:.1f}), "
            f"{self.seconds / self.updates:.1f} s per update, generating {self.generating:.0%}, "
            f"training {self.training:.0%}, padding {self.padding:.0%}, lengths {self.lengths}, "
            f"reward {self.reward:.2f}, groups dropped {self.dropped}, peak {self.peak_mib:,} MiB"
        )


def time_magcli(task: Task, **options: Any) -> Timed:
    """Time ``magcli rl``; ``options`` override the settings."""
    return _magcli_timed(task, run_magcli(task, **options))


def run_magcli(task: Task, *, seconds: float = SECONDS, **options: Any) -> Record:
    """Run ``magcli rl`` for at most ``seconds``."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        return monitor(
            [sys.executable, "-m", "magcli", "rl", str(task.problems), *flags(magcli_options(task, run) | options)],
            run / "metrics.jsonl",
            last=task.warmup + task.timed,
            environment=environment(settings.THREADS),
            seconds=seconds,
        )


def magcli_options(task: Task, run: Path) -> dict[str, Any]:
    """The options of ``magcli rl`` for a task; writes the system prompt next to the run's folder."""
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
        "lora": task.lora,
        "lora_alpha": settings.LORA_ALPHA,
        **settings.MAGCLI,
    }


def time_trl(task: Task, arm: Arm, *, seconds: float = SECONDS) -> Timed:
    """Time TRL's trainer for at most ``seconds``."""
    with tempfile.TemporaryDirectory() as folder:
        spec = trl_spec(task) | {"continuous": arm.continuous, "bf16": arm.bf16}
        return trl_timed(task, run_trl(spec, Path(folder), last=task.warmup + task.timed, seconds=seconds))


def trl_spec(task: Task) -> dict[str, Any]:
    """What ``trl_child`` is told about a task."""
    return {
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
        "reward": REWARD,
        "workers": 1,
        "rule": {},
        "lora": task.lora,
        "lora_alpha": settings.LORA_ALPHA,
    }


def run_trl(
    spec: Mapping[str, Any], folder: Path, *, last: int, seconds: float = SECONDS, python: Path | None = None
) -> Record:
    """Run ``trl_child`` with a spec, by this interpreter with TRL alone, or by ``python``, which has its own.

    Raises:
        Unavailable: TRL cannot be installed.
    """
    output, path = folder / "trl", folder / "spec.json"
    path.write_text(json.dumps({**spec, "folder": str(output), "metrics": str(output / "metrics.jsonl")}))
    paths = str(ROOT) if python else os.pathsep.join((str(ROOT), trl_path()))
    return monitor(
        [str(python or sys.executable), "-m", "benchmarks.rl.trl_child", str(path)],
        output / "metrics.jsonl",
        last=last,
        environment=environment(spec["threads"]) | {"PYTHONPATH": paths},
        seconds=seconds,
    )


def environment(threads: int) -> dict[str, str]:
    """This process's environment, offline and with a number of threads."""
    offline = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false"}
    return os.environ | offline | {"OMP_NUM_THREADS": str(threads)}


def flags(options: Mapping[str, Any]) -> list[str]:
    """Options as command-line arguments."""
    return [word for name, value in options.items() for word in _flag(name.replace("_", "-"), value)]


def _flag(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    return [f"--{name}", str(value)]


def clock(task: Task, record: Record) -> tuple[float, list[Line]]:
    """Seconds on the clock and the metrics of the timed updates."""
    last = task.warmup + task.timed
    lines = [record.lines[step] for step in range(task.warmup + 1, last + 1)]
    return record.at[last] - record.at[task.warmup], lines


def rate_with_warmup(task: Task, record: Record, tokens: Callable[[Line], int]) -> float:
    """Trained tokens a second from the beginning of the first update."""
    last = task.warmup + task.timed
    start = record.at[1] - record.lines[1]["seconds"]
    return sum(tokens(record.lines[step]) for step in range(1, last + 1)) / (record.at[last] - start)


def _magcli_timed(task: Task, record: Record) -> Timed:
    seconds, lines = clock(task, record)
    return Timed(
        seconds=seconds,
        updates=task.timed,
        trained_tokens=sum(line["trained_tokens"] for line in lines),
        rate_with_warmup=rate_with_warmup(task, record, lambda line: line["trained_tokens"]),
        generating=_weighted_mean(lines, [1 - line["generator_idle"] for line in lines]),
        training=_weighted_mean(lines, [1 - line["trainer_idle"] for line in lines]),
        padding=0.0,
        lengths=f"{fmean(line['length_mean'] for line in lines):.0f} (p95 {lines[-1]['length_p95']:.0f})",
        reward=fmean(line["reward"] for line in lines),
        dropped=sum(sum(line["groups_dropped"].values()) for line in lines),
        peak_mib=record.peak_mib,
    )


def trl_timed(task: Task, record: Record) -> Timed:
    """The measurements of a run of TRL."""
    seconds, lines = clock(task, record)
    lengths = [length for line in lines for length in line["lengths"]]
    generating = sum(line["generate_seconds"] for line in lines)
    grading = sum(line["grade_seconds"] for line in lines)
    return Timed(
        seconds=seconds,
        updates=task.timed,
        trained_tokens=sum(lengths),
        rate_with_warmup=rate_with_warmup(task, record, lambda line: sum(line["lengths"])),
        generating=generating / seconds,
        training=1 - (generating + grading) / seconds,
        padding=fmean(map(padding_share, lines)),
        lengths=f"{fmean(lengths):.0f} (p95 {sorted(lengths)[int(0.95 * len(lengths))]})",
        reward=fmean(line["reward"] for line in lines),
        dropped=0,
        peak_mib=record.peak_mib,
    )


def _weighted_mean(lines: Sequence[Line], shares: Sequence[float]) -> float:
    """The mean of shares, weighted by the seconds of the updates."""
    seconds = [line["seconds"] for line in lines]
    return sum(share * second for share, second in zip(shares, seconds, strict=True)) / sum(seconds)


def padding_share(line: Line) -> float:
    """The share of padding in TRL's batch, as wide as its longest prompt plus its longest completion."""
    prompts, lengths = line["prompt_lengths"], line["lengths"]
    return 1 - (sum(prompts) + sum(lengths)) / (len(lengths) * (max(prompts) + max(lengths)))
