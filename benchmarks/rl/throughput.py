"""``magcli rl`` against TRL's GRPOTrainer: trained completion tokens a second, in pairs of whole runs.

Short trials find TRL's fastest arm, then the sides alternate. Neither side removes groups; one more run shows magcli
with the recipe's removal.
"""

import os
import time
from pathlib import Path

from benchmarks.downloads import TRL_TITLE
from benchmarks.monitor import TooSlow
from benchmarks.pairs import Result
from benchmarks.rl import inputs, settings
from benchmarks.rl.runs import SECONDS, Task, time_magcli, time_trl
from benchmarks.rl.settings import Arm


def heavy_tail() -> Result:
    """Lengths are the model's own, truncated at 256 tokens."""
    return _compare("rl-heavy-vs-trl", inputs.smollm2(), settings.HEAVY_LIMIT, fixed=False)


def fixed_length() -> Result:
    """All completions have 128 tokens."""
    return _compare("rl-fixed-vs-trl", inputs.smollm2_without_end(), settings.FIXED_TOKENS, fixed=True)


def _compare(name: str, model: Path, limit: int, *, fixed: bool) -> Result:
    print(f"{name}: against {TRL_TITLE}", flush=True)
    task = _task(model, limit, settings.WARMUP, settings.TIMED)
    arm = _best_arm(name, model, limit)
    ratios = [_pair(name, task, arm, fixed=fixed) for _ in range(settings.PAIRS)]
    with_removal = time_magcli(task, diverse_by="outcome")
    print(f"  {name}: magcli with removal of groups: {with_removal.summary()}", flush=True)
    return Result(name, tuple(ratios))


def _task(model: Path, limit: int, warmup: int, timed: int) -> Task:
    return Task(model, inputs.problems(warmup + timed), limit, warmup, timed)


def _best_arm(name: str, model: Path, limit: int) -> Arm:
    """The arm named by ``PEERS_ARM``, or the fastest in short trials; slow trials are stopped early."""
    if arm_name := os.environ.get("PEERS_ARM"):
        return next(arm for arm in settings.TRL_ARMS if arm.name == arm_name)
    task = _task(model, limit, settings.TRIAL_WARMUP, settings.TRIAL_TIMED)
    rates: dict[Arm, float] = {}
    timeout = SECONDS
    for arm in settings.TRL_ARMS:
        started = time.monotonic()
        try:
            trial = time_trl(task, arm, seconds=timeout)
        except TooSlow:
            print(f"  {name}: trial of TRL, {arm.name}: stopped after {timeout:.0f} s", flush=True)
            continue
        rates[arm] = trial.rate
        timeout = min(timeout, settings.TIMEOUT_FACTOR * (time.monotonic() - started))
        print(f"  {name}: trial of TRL, {arm.name}: {trial.summary()}", flush=True)
    best = max(rates, key=lambda arm: rates[arm])
    print(f"  {name}: TRL runs as {best.name}, magcli with {settings.MAGCLI}", flush=True)
    return best


def _pair(name: str, task: Task, arm: Arm, *, fixed: bool) -> float:
    ours = time_magcli(task)
    print(f"  {name}: magcli: {ours.summary()}", flush=True)
    theirs = time_trl(task, arm)
    print(f"  {name}: TRL, {arm.name}: {theirs.summary()}, ratio {ours.rate / theirs.rate:.2f}", flush=True)
    expected = task.limit * task.timed * settings.COMPLETIONS
    assert not fixed or ours.trained_tokens == theirs.trained_tokens == expected, f"{name}: a completion ended early"
    assert not ours.dropped, f"{name}: magcli removed {ours.dropped} groups"
    return ours.rate / theirs.rate
