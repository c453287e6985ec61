"""Data stages on a Ray cluster whose nodes and processes are killed at random instants: the rows of one process.

``DATA_KILLS`` is the number of raylets that are killed; ``FAULT_SEED`` repeats a run.
"""

import json
import os
import random
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from calling import call_stage, flags_of
from kills import fresh_seed
from ray_kills import Command, Pace, kill_raylets, kill_workers, processes_of, until
from ray_machines import Machines

from magcli.data import table

KILLS = int(os.environ.get("DATA_KILLS", "10"))
ASK = {"samples": 64, "max_tokens": 24, "system": Path("none"), "deterministic": True}
FILTER = {**ASK, "keep": "0.1..0.9"}
HORIZON = 8.0

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hundred problems, one without an answer, and a line that no one can read."""
    path = tmp_path_factory.mktemp("problems") / "problems.jsonl"
    rows = [{"id": f"p{i}", "prompt": f"{'abcdefgh'[i % 8]}{i}?", "answer": "1234"[i % 4]} for i in range(200)]
    rows[4]["answer"] = ""
    lines = [json.dumps(row) for row in rows]
    lines[3:3] = ["{"]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def unbroken(problems: Path, guesser: Path) -> Path:
    """The folder with the tables of one process."""
    folder = problems.parent / "unbroken"
    folder.mkdir()
    tables = {"output": folder / "kept.arrow", "dropped": folder / "dropped.jsonl"}
    call_stage("filter-math", problems, model=str(guesser), **tables, **FILTER)
    return folder


def start_filter(problems: Path, model: Path, folder: Path, machines: Machines) -> Command:
    """Start `filter-math` on the cluster, with its tables in a folder."""
    folder.mkdir()
    options = [*flags_of(FILTER), "--cluster", machines.address]
    tables = ["-o", folder / "kept.arrow", "--dropped", folder / "dropped.jsonl"]
    return Command.start(["filter-math", problems, "--model", model, *options, *tables], folder / "log", machines)


def check_ended(command: Command, folder: Path, unbroken: Path, machines: Machines) -> None:
    """A command has ended well, with the rows of one process, and no process of it is left on the cluster."""
    assert command.exit_code() == 0, command.log.read_text()
    assert (folder / "kept.arrow").read_bytes() == (unbroken / "kept.arrow").read_bytes()
    assert by_id(rows_of(folder / "dropped.jsonl")) == by_id(rows_of(unbroken / "dropped.jsonl"))
    left_over = [path.name for path in folder.iterdir() if path.name.endswith((".shards", ".journal", ".lock"))]
    assert not left_over
    until(lambda: not machines.workers(), "processes are left on the cluster")


def rows_of(path: Path) -> list[dict[str, object]]:
    return [row for batch in table.read(str(path)).rows for row in batch.to_pylist()]


def by_id(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(rows, key=lambda row: (str(row["id"]), str(row.get("drop_reason"))))


def finished_in(folder: Path) -> tuple[int, int]:
    """The number of finished shards in a folder, and the size of the journals, which grow with the finished rows."""
    journaled = 0
    for path in folder.glob(".*.journal"):
        with suppress(FileNotFoundError):  # its shard has finished meanwhile
            journaled += path.stat().st_size
    return len(list(folder.glob("kept-*"))), journaled


def test_raylets_are_killed(machines: Machines, problems: Path, guesser: Path, unbroken: Path, tmp_path: Path) -> None:
    draw = random.Random(fresh_seed())
    landed: list[str] = []
    runs = count()
    while len(landed) < KILLS:
        folder = tmp_path / f"run-{next(runs)}"
        command = start_filter(problems, guesser, folder, machines)
        pace = Pace(command, partial(finished_in, folder / ".kept.arrow.shards"), draw, HORIZON)
        landed += kill_raylets(command, machines, pace, draw, KILLS - len(landed))
        check_ended(command, folder, unbroken, machines)
    print(Counter(landed), landed)


def test_an_engine_is_killed_as_it_loads(
    machines: Machines, problems: Path, guesser: Path, unbroken: Path, tmp_path: Path
) -> None:
    command = start_filter(problems, guesser, tmp_path / "run", machines)
    first, *_ = processes_of("engine", command, machines)
    os.kill(first, signal.SIGKILL)
    check_ended(command, tmp_path / "run", unbroken, machines)
    assert "; trying again" in command.log.read_text()


def test_processes_of_engines_are_killed_during_evaluate(
    machines: Machines, problems: Path, guesser: Path, tmp_path: Path
) -> None:
    options = {**ASK, "samples": 32, "anywhere": True}
    here = tmp_path / "here.arrow"
    call_stage("evaluate", problems, output=here, model=str(guesser), **options)
    draw = random.Random(fresh_seed())
    left: Sequence[str] = ["engine", "engine"]
    runs = count()
    while left:
        folder = tmp_path / f"run-{next(runs)}"
        folder.mkdir()
        there = folder / "there.arrow"
        arguments = ["evaluate", problems, "--model", guesser, *flags_of(options), "--cluster", machines.address]
        command = Command.start([*arguments, "-o", there], folder / "log", machines)
        pace = Pace(command, partial(finished_in, folder), draw, HORIZON)
        left = kill_workers(command, machines, pace, draw, left)
        assert command.exit_code() == 0, command.log.read_text()
        assert rows_of(there) == rows_of(here)
