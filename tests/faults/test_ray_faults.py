"""`magcli rl` on a Ray cluster whose nodes, processes and driver are killed at random instants.

``KILLS`` is the number of raylets that are killed, ``DRIVER_KILLS`` that of drivers; ``FAULT_SEED`` repeats a run.
"""

import os
import random
from collections import Counter
from pathlib import Path

import pytest
from calling import flags_of
from kills import fresh_seed
from ray_kills import Command, Pace, kill_raylets, kill_workers, until
from ray_machines import Machines
from rl_runs import OPTIONS, check_account, check_metrics

from magcli.run.rundir import RunDir

KILLS = int(os.environ.get("KILLS", "20"))
DRIVER_KILLS = int(os.environ.get("DRIVER_KILLS", "10"))
SIZES = {**OPTIONS, "lr": 1e-5, "trainers": 2, "micro_tokens": 256}
HORIZON = 12.0
"""Seconds until the next kill, at most: as long as it takes until lost ranks train again."""

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]


def start(letters: Path, model: Path, run: Path, machines: Machines, updates: int) -> Command:
    options = [*flags_of({**SIZES, "updates": updates}), "--cluster", machines.address]
    arguments = ["rl", letters, "--model", model, "--run", run, *options]
    return Command.start(arguments, run.with_suffix(".log"), machines)


def updates_of(run: Path) -> int:
    """Updates that have their line of metrics."""
    return len(RunDir(run).metrics())


def check_ended(command: Command, run: Path, updates: int, machines: Machines) -> None:
    """A command has ended well, its run is complete, and no process of it is left on the cluster."""
    command.finish()
    check_account(run, updates)
    check_metrics(run, updates)
    until(lambda: not machines.workers(), "processes are left on the cluster")


def test_raylets_are_killed(machines: Machines, letters: Path, guesser: Path, tmp_path: Path) -> None:
    draw = random.Random(fresh_seed())
    landed: list[str] = []
    while len(landed) < KILLS:
        run = tmp_path / f"run-after-{len(landed)}"
        command = start(letters, guesser, run, machines, updates=150)
        pace = Pace(command, lambda run=run: updates_of(run), draw, HORIZON)
        landed += kill_raylets(command, machines, pace, draw, KILLS - len(landed))
        check_ended(command, run, 150, machines)
    print(Counter(landed), landed)


def test_processes_of_ranks_and_generators_are_killed(
    machines: Machines, letters: Path, guesser: Path, tmp_path: Path
) -> None:
    draw, run = random.Random(fresh_seed()), tmp_path / "run"
    command = start(letters, guesser, run, machines, updates=150)
    pace = Pace(command, lambda: updates_of(run), draw, HORIZON)
    kill_workers(command, machines, pace, draw, ["rank", "generator", "rank", "generator"])
    check_ended(command, run, 150, machines)


def test_drivers_are_killed(machines: Machines, letters: Path, guesser: Path, tmp_path: Path) -> None:
    draw, run = random.Random(fresh_seed()), tmp_path / "run"
    updates_after: list[int] = []
    while len(updates_after) < DRIVER_KILLS:
        command = start(letters, guesser, run, machines, updates=250)
        assert not command.has_ended(draw.uniform(0, 2 * HORIZON)), "the run had ended before all kills"
        command.kill()
        until(lambda: not machines.workers(), "processes of a dead driver are left on the cluster")
        updates_after.append(updates_of(run))
    check_ended(start(letters, guesser, run, machines, updates=250), run, 250, machines)
    print("updates after each kill:", updates_after)
