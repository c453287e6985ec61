"""`magcli rl` on a Ray cluster whose nodes, processes and driver are killed at random instants.

``KILLS`` is the number of raylets that are killed, ``VERIFIER_KILLS`` that of a run with verifiers on nodes,
``DRIVER_KILLS`` that of drivers; ``FAULT_SEED`` repeats a run.
"""

import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest
from calling import flags_of
from kills import fresh_seed
from ray_kills import Command, Pace, kill_raylets, kill_workers, until
from ray_machines import Machines
from rl_runs import OPTIONS, check_account, check_metrics

from magcli.run.rundir import RunDir

KILLS = int(os.environ.get("KILLS", "20"))
VERIFIER_KILLS = int(os.environ.get("VERIFIER_KILLS", "8"))
DRIVER_KILLS = int(os.environ.get("DRIVER_KILLS", "10"))
SIZES = {**OPTIONS, "lr": 1e-5, "trainers": 2, "micro_tokens": 256}
UPDATES = 120
HORIZON = 12.0
"""Seconds until the next kill, at most: as long as it takes until lost ranks train again."""

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]


def start(letters: Path, model: Path, run: Path, machines: Machines, *, verifiers: int = 0) -> Command:
    """Start a run with two ranks and a generator, and perhaps verifiers on nodes, or resume it."""
    sizes = {**SIZES, "updates": UPDATES, "verifiers": verifiers}
    options = [*flags_of(sizes), "--cluster", machines.address]
    arguments = ["rl", letters, "--model", model, "--run", run, *options]
    return Command.start(arguments, run.with_suffix(".log"), machines)


def runs_in(folder: Path) -> Iterator[Path]:
    """The folders of one run after the other: a run may end before all kills."""
    return (folder / f"run-{number}" for number in count())


def updates_of(run: Path) -> int:
    """Updates that have their line of metrics."""
    return len(RunDir(run).metrics())


def paced(command: Command, run: Path, draw: random.Random) -> Pace:
    return Pace(command, lambda: (updates_of(run),), draw, HORIZON)


def check_ended(command: Command, run: Path, machines: Machines) -> None:
    """A command has ended well, its run is complete, and no process of it is left on the cluster."""
    assert command.exit_code() == 0, command.log.read_text()
    check_account(run, UPDATES)
    check_metrics(run, UPDATES)
    until(lambda: not machines.workers(), "processes are left on the cluster")


def test_raylets_are_killed(machines: Machines, letters: Path, guesser: Path, tmp_path: Path) -> None:
    draw = random.Random(fresh_seed())
    landed: list[str] = []
    runs = runs_in(tmp_path)
    while len(landed) < KILLS:
        run = next(runs)
        command = start(letters, guesser, run, machines)
        landed += kill_raylets(command, machines, paced(command, run, draw), draw, KILLS - len(landed))
        check_ended(command, run, machines)
    print(Counter(landed), landed)


def test_raylets_are_killed_while_verifiers_are_on_nodes(
    machines: Machines, letters: Path, guesser: Path, tmp_path: Path
) -> None:
    draw = random.Random(fresh_seed())
    machines.nodes.append(machines.add())
    landed: list[str] = []
    runs = runs_in(tmp_path)
    while len(landed) < VERIFIER_KILLS:
        run = next(runs)
        command = start(letters, guesser, run, machines, verifiers=1)
        landed += kill_raylets(command, machines, paced(command, run, draw), draw, VERIFIER_KILLS - len(landed))
        check_ended(command, run, machines)
    machines.kill(machines.nodes.pop())
    print(Counter(landed), landed)


def test_processes_of_ranks_and_generators_are_killed(
    machines: Machines, letters: Path, guesser: Path, tmp_path: Path
) -> None:
    draw = random.Random(fresh_seed())
    left: Sequence[str] = ["rank", "generator", "rank", "generator"]
    runs = runs_in(tmp_path)
    while left:
        run = next(runs)
        command = start(letters, guesser, run, machines)
        left = kill_workers(command, machines, paced(command, run, draw), draw, left)
        check_ended(command, run, machines)


def test_drivers_are_killed(machines: Machines, letters: Path, guesser: Path, tmp_path: Path) -> None:
    draw = random.Random(fresh_seed())
    runs = runs_in(tmp_path)
    run = next(runs)
    updates_after: list[int] = []
    while len(updates_after) < DRIVER_KILLS:
        command = start(letters, guesser, run, machines)
        if paced(command, run, draw).next_instant():
            command.kill()
            until(lambda: not machines.workers(), "processes of a dead driver are left on the cluster")
            updates_after.append(updates_of(run))
        else:
            check_ended(command, run, machines)
            run = next(runs)
    check_ended(start(letters, guesser, run, machines), run, machines)
    print("updates after each kill:", updates_after)
