"""After a power cut at any point: an output that is there is whole, nothing recorded is lost, a rerun ends the same.

Every protection is taken away once, and a named check must see it.
"""

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import powercut
import pyarrow as pa
import pytest
from calling import others_slow

from magcli.console import Console
from magcli.data import durable, seal, table
from magcli.errors import DataError
from magcli.run import harness, job, journal
from magcli.run.journal import Journal
from magcli.run.stage import Stage
from magcli.run.types import Dropped, Result
from magcli.run.units import resumable

ROWS = 6


@dataclass(frozen=True)
class Options:
    """None."""


class Work:
    """A stage of one row a unit that counts what it computes; row 3 is dropped."""

    def __init__(self, place: Path, output: str) -> None:
        self.place, self.output = place, output
        self.computed: list[str] = []

    def run(self) -> None:
        """Run it in its folder, as the command line would."""

        async def compute(part: pa.RecordBatch) -> Result:
            (row,) = part.to_pylist()
            self.computed.append(row["id"])
            if row["id"] == "3":
                return Result(part.slice(0, 0), [Dropped("3", "wrong", row=row)])
            return Result(part)

        async def close() -> None:
            return None

        def units(config: Any, rows: Any, running: job.Job) -> Any:
            return resumable(rows, running, compute, close, size=1, window=2, unit="rows")

        stage = Stage("work", Options, units, lambda config, schema: schema, lambda config: (), RESUMES=True)
        tables = harness.Tables(
            [str(self.place / "in.jsonl")],
            str(self.place / self.output),
            str(self.place / "dropped.jsonl"),
            overwrite=True,  # else a table whose history is lost is refused before it can be checked
        )
        harness.execute(stage, Options(), tables, Console(quiet=True))

    def outputs(self) -> dict[str, bytes]:
        """The bytes of what it made."""
        names = [self.output, "dropped.jsonl"]
        files = [file for name in names for file in sorted([self.place / name, *(self.place / name).rglob("*")])]
        return {str(file.relative_to(self.place)): file.read_bytes() for file in files if file.is_file()}


def begin(place: Path, older: str = "") -> Path:
    """A folder with the input; with the outputs of another one if ``older`` names them."""
    place.mkdir()
    if older:
        (place / "in.jsonl").write_text('{"id": "3"}\n{"id": "old"}\n')
        Work(place, older).run()
    (place / "in.jsonl").write_text("".join(f'{{"id": "{i}"}}\n' for i in range(ROWS)))
    return place


def whole(place: Path) -> bool:
    try:
        list(table.read(str(place)).rows)
    except DataError:
        return False
    return True


def power_cuts(
    folder: Path, output: str, monkeypatch: pytest.MonkeyPatch, mutate: Callable[[], None], *, older: bool = False
) -> set[str]:
    """Run the work once on a disk that is watched, then again from every state that a cut can leave.

    Returns the names of the checks that failed.
    """
    monkeypatch.setattr(os, "fsync", nothing)
    intact = Work(begin(folder / "intact"), output)
    intact.run()
    expected = intact.outputs()
    recorded: dict[str, int] = {}
    watched = begin(folder / "watched", output if older else "")
    disk = powercut.Disk(watched)
    with monkeypatch.context() as patch:
        patch.setattr(journal, "SYNC_EVERY", 0.0)
        mutate()
        disk.watch(patch.setattr)
        put = Journal.put

        def noting(self: Journal, key: str, result: Result) -> None:
            put(self, key, result)
            for row in [*result.rows.to_pylist(), *({"id": d.id} for d in result.dropped)]:
                recorded[row["id"]] = disk.point()

        patch.setattr(Journal, "put", noting)
        Work(watched, output).run()
    done = disk.point()
    monkeypatch.undo()
    monkeypatch.setattr(os, "fsync", nothing)  # from here on only what is in the files matters
    failed: set[str] = set()
    seen: set[tuple[str, bool, int]] = set()
    for moment, tree in disk.cuts:
        known = {id for id, at in recorded.items() if at <= moment}
        mark = (repr(tree), moment >= done, len(known))
        if mark not in seen:
            seen.add(mark)
            failed |= examine(tree, folder / f"cut-{len(seen)}", output, expected, known, moment >= done)
    assert len(seen) > 50
    return failed


def examine(
    tree: powercut.Tree, place: Path, output: str, expected: dict[str, bytes], recorded: set[str], done: bool
) -> set[str]:
    """The checks that fail for what one power cut left."""
    failed = set()
    powercut.restore(tree, place)
    work = Work(place, output)
    if any((place / name).exists() and not whole(place / name) for name in (output, "dropped.jsonl")):
        failed.add("an output that is there is whole")
    if done and any(name not in work.outputs() or work.outputs()[name] != expected[name] for name in expected):
        failed.add("a finished output lasts")
    work.run()
    if recorded & set(work.computed):
        failed.add("nothing recorded is computed again")
    if work.outputs() != expected:
        failed.add("the rerun has the same bytes")
    shutil.rmtree(place)
    return failed


@pytest.mark.parametrize(
    "output", others_slow(["out.arrow", "out.parquet", "out.jsonl", "out"], kept=["out.arrow", "out"])
)
def test_a_power_cut_at_any_point_loses_nothing_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    assert power_cuts(tmp_path, output, monkeypatch, lambda: None) == set()


@pytest.mark.parametrize("output", others_slow(["out.jsonl", "out"], kept=["out.jsonl"]))
def test_a_power_cut_while_an_older_output_is_replaced_loses_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    assert power_cuts(tmp_path, output, monkeypatch, lambda: None, older=True) == set()


def nothing(*_: Any) -> None:
    """Do nothing."""


def copied(source: Path, target: Path) -> None:
    """A rename that is none."""
    shutil.copyfile(source, target)
    os.unlink(source)
    durable.sync_folder(target.parent)


def removed_too_early(patch: pytest.MonkeyPatch) -> None:
    finish = seal.HashingWriter.finish

    def early(self: Any) -> str:
        for place in Path(self.out.name).parent.glob(".*.journal"):
            durable.remove(place)
        return finish(self)

    patch.setattr(seal.HashingWriter, "finish", early)


def without_fsync_in(function: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Take away the fsyncs that one function asks for, directly."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        for name in ("sync", "sync_folder"):
            kept = getattr(durable, name)
            patch.setattr(
                durable, name, lambda at, k=kept: None if sys._getframe(1).f_code.co_name == function else k(at)
            )

    return mutate


WHOLE = "an output that is there is whole"
KEPT = "nothing recorded is computed again"
MUTATIONS: dict[str, tuple[Callable[[pytest.MonkeyPatch], Any], str]] = {
    "fsync of a file": (without_fsync_in("atomic_file"), WHOLE),
    "fsync of a rename": (without_fsync_in("rename"), KEPT),
    "rename: written in place": (lambda patch: patch.setattr(durable, "temp_path", lambda path: path), WHOLE),
    "rename: copied": (lambda patch: patch.setattr(durable, "rename", copied), WHOLE),
    "fsync of the journal": (without_fsync_in("sync"), KEPT),
    "fsync of the journal's name": (without_fsync_in("open"), KEPT),
    "commit of a unit": (lambda patch: patch.setattr(Journal, "_append", lambda self, data: len(data)), KEPT),
    "journal kept until the output is there": (removed_too_early, KEPT),
}


@pytest.mark.parametrize("name", others_slow(MUTATIONS, kept=["fsync of a file", "fsync of the journal"]))
def test_removing_one_protection_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    mutate, seen_by = MUTATIONS[name]
    assert seen_by in power_cuts(tmp_path, "out.arrow", monkeypatch, lambda: mutate(monkeypatch))


@pytest.mark.slow
def test_removing_the_fsync_of_a_folder_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate = without_fsync_in("_sync_tree")
    assert WHOLE in power_cuts(tmp_path, "out", monkeypatch, lambda: mutate(monkeypatch))


@pytest.mark.slow
def test_removing_the_fsync_of_a_removal_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate = without_fsync_in("remove")
    assert WHOLE in power_cuts(tmp_path, "out.jsonl", monkeypatch, lambda: mutate(monkeypatch), older=True)
