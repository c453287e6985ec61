"""``magcli rl`` beside TRL's GRPOTrainer: trained completion tokens a second, in pairs of whole runs.

Short trials find TRL's best arm; then the sides run in turn. No groups are removed on either side; magcli with the
removal of the recipe is run once more beside them. ``PEERS_SHORT=1`` makes it a short one, and ``PEERS_ARM`` names the
arm that earlier trials found (``continuous bf16``), which saves them.
"""

import os
import time
from pathlib import Path

from benchmarks.pairs import Result
from benchmarks.public import Missing
from benchmarks.rl import prepare, settings, sides
from benchmarks.rl.settings import Arm, Size
from benchmarks.rl.sides import Task, magcli, trl_trainer


def size() -> Size:
    """How long the races are to be."""
    return settings.SHORT if os.environ.get("PEERS_SHORT") == "1" else settings.FULL


def heavy() -> Result | None:
    """Lengths are the model's own, cut at 256 tokens."""
    return _race("rl-heavy-vs-trl", endless=False, limit=settings.HEAVY_LIMIT)


def fixed() -> Result | None:
    """All completions have 128 tokens."""
    return _race("rl-fixed-vs-trl", endless=True, limit=settings.FIXED_TOKENS)


def _race(name: str, *, endless: bool, limit: int) -> Result | None:
    try:
        model = prepare.endless() if endless else prepare.natural()
        task = Task(model, prepare.problems(size().updates), limit, size().warmup, size().timed)
        arm = _best_arm(name, model, limit)
        pairs = [_pair(name, task, arm, equal=endless) for _ in range(size().pairs)]
        print(f"  {name}: magcli with removal of groups {magcli(task, diverse_by='outcome').told()}", flush=True)
        return Result(name, tuple(pairs))
    except Missing as missing:
        print(f"{name}: not run: {missing}", flush=True)
        return None


def _best_arm(name: str, model: Path, limit: int) -> Arm:
    """TRL's way with the highest rate in a short trial of each; one that is hopeless on this machine is given up."""
    if named := os.environ.get("PEERS_ARM"):
        return next(arm for arm in settings.TRL_ARMS if arm.name == named)
    warmup, timed = size().trial_warmup, size().trial_timed
    task = Task(model, prepare.problems(warmup + timed), limit, warmup, timed)
    rates: dict[Arm, float] = {}
    patience = sides.SECONDS
    for arm in settings.TRL_ARMS:
        begun = time.monotonic()
        try:
            tried = trl_trainer(task, arm, seconds=patience)
        except AssertionError as slow:
            if "too slow" not in str(slow):
                raise
            print(f"  {name}: trial of TRL {arm.name}: given up after {patience:.0f} s", flush=True)
            continue
        rates[arm] = tried.rate
        patience = min(patience, settings.PATIENCE * (time.monotonic() - begun))
        print(f"  {name}: trial of TRL {arm.name}: {tried.told()}", flush=True)
    best = max(rates, key=lambda arm: rates[arm])
    print(f"  {name}: TRL's best arm is {best.name}; magcli has {settings.MAGCLI}", flush=True)
    return best


def _pair(name: str, task: Task, arm: Arm, *, equal: bool) -> float:
    ours = magcli(task)
    print(f"  {name}: magcli {ours.told()}", flush=True)
    theirs = trl_trainer(task, arm)
    print(f"  {name}: TRL {arm.name} {theirs.told()}, ratio {ours.rate / theirs.rate:.2f}", flush=True)
    whole = task.limit * task.timed * settings.COMPLETIONS
    assert not equal or ours.trained == theirs.trained == whole, f"{name}: some completion ended before the limit"
    assert not ours.dropped, f"{name}: magcli removed {ours.dropped} groups"
    return ours.rate / theirs.rate
