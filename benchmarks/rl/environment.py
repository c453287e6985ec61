"""``magcli rl`` with an environment of one turn against the same with ``--reward``: what episodes cost by themselves.

Generated tokens a second of whole runs with one generator process beside the trainer, SmolLM2-135M-Instruct on word
problems. The ratio is environment over reward: below 1, the environment slows the run.
"""

from collections.abc import Mapping
from typing import Any

from benchmarks.pairs import Result
from benchmarks.rl import inputs
from benchmarks.rl.runs import REWARD, Task, clock, run_magcli

PAIRS = 5
LIMIT = 48
WARMUP, TIMED = 2, 3
WORKERS = 1
LEAST = 0.97
ENVIRONMENT = REWARD.replace("correct_anywhere", "OneTurn")

SIDES: Mapping[str, Mapping[str, str]] = {
    "reward": {"reward": REWARD},
    "environment": {"environment": ENVIRONMENT, "reward": ""},
}


def run() -> Result:
    """Environment over reward, in pairs; the median must be at least ``LEAST``."""
    task = Task(inputs.smollm2(), inputs.problems(WARMUP + TIMED), LIMIT, WARMUP, TIMED)
    return Result("env-vs-reward", tuple(_ratio(task, number) for number in range(PAIRS)), least=LEAST)


def _ratio(task: Task, number: int) -> float:
    """Of one pair; every second pair starts with the environment."""
    sides = sorted(SIDES, reverse=number % 2 == 0)
    rates = {side: _rate(task, SIDES[side]) for side in sides}
    ratio = rates["environment"] / rates["reward"]
    print(
        f"  env-vs-reward: {rates['reward']:.1f} generated tokens/s, {rates['environment']:.1f} with the environment, "
        f"ratio {ratio:.3f}",
        flush=True,
    )
    return ratio


def _rate(task: Task, grading: Mapping[str, Any]) -> float:
    seconds, lines = clock(task, run_magcli(task, workers=WORKERS, generators=1, **grading))
    return sum(line["generated_tokens"] for line in lines) / seconds
