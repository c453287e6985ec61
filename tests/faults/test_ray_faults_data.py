"""Data stages on a Ray cluster whose nodes and processes are killed at random instants: the rows of one process.

``DATA_KILLS`` is the number of raylets that are killed; ``FAULT_SEED`` repeats a run.
"""

import json
import os
import random
from collections import Counter
from pathlib import Path

import pytest
from calling import call_stage, flags_of
from kills import fresh_seed
from ray_kills import Command, Pace, kill_raylets, kill_workers, until
from ray_machines import Machines

from magcli.data import table

KILLS = int(os.environ.get("DATA_KILLS", "10"))
ASK = {"samples": 64, "max_tokens": 24, "system": Path("none"), "deterministic": True}
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


def rows_of(path: Path) -> list[dict[str, object]]:
    return [row for batch in table.read(str(path)).rows for row in batch.to_pylist()]


def by_id(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(rows, key=lambda row: (str(row["id"]), str(row.get("drop_reason"))))


def bytes_in(folder: Path) -> int:
    """How much the journals of a folder have."""
    return sum(path.stat().st_size for path in folder.glob(".*.journal"))


def test_raylets_are_killed_during_filter_math(
    machines: Machines, problems: Path, guesser: Path, tmp_path: Path
) -> None:
    whole, whole_dropped = tmp_path / "whole.arrow", tmp_path / "whole-dropped.jsonl"
    options = {**ASK, "keep": "0.1..0.9"}
    call_stage("filter-math", problems, output=whole, dropped=whole_dropped, model=str(guesser), **options)
    draw = random.Random(fresh_seed())
    landed: list[str] = []
    while len(landed) < KILLS:
        folder = tmp_path / f"after-{len(landed)}"
        folder.mkdir()
        kept, dropped = folder / "kept.arrow", folder / "dropped.jsonl"
        shards = folder / ".kept.arrow.shards"
        arguments = ["filter-math", problems, "--model", guesser, *flags_of(options), "--cluster", machines.address]
        command = Command.start([*arguments, "-o", kept, "--dropped", dropped], folder / "log", machines)
        pace = Pace(command, lambda shards=shards: bytes_in(shards), draw, HORIZON)
        landed += kill_raylets(command, machines, pace, draw, KILLS - len(landed))
        command.finish()
        assert kept.read_bytes() == whole.read_bytes()
        assert by_id(rows_of(dropped)) == by_id(rows_of(whole_dropped))
        assert not shards.exists()
        until(lambda: not machines.workers(), "processes are left on the cluster")
    print(Counter(landed), landed)


def test_processes_of_engines_are_killed_during_evaluate(
    machines: Machines, problems: Path, guesser: Path, tmp_path: Path
) -> None:
    options = {**ASK, "samples": 16, "anywhere": True}
    here, there = tmp_path / "here.arrow", tmp_path / "there.arrow"
    call_stage("evaluate", problems, output=here, model=str(guesser), **options)
    draw = random.Random(fresh_seed())
    arguments = ["evaluate", problems, "--model", guesser, *flags_of(options), "--cluster", machines.address]
    command = Command.start([*arguments, "-o", there], tmp_path / "log", machines)
    pace = Pace(command, lambda: bytes_in(tmp_path), draw, HORIZON)
    kill_workers(command, machines, pace, draw, ["engine", "engine"])
    command.finish()
    assert rows_of(there) == rows_of(here)
