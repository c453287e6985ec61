import json
import math
import threading
import time
from pathlib import Path

import pytest

from magcli.console import Console
from magcli.errors import DataError, EnvironmentFault
from magcli.rl import track
from magcli.rl.trackers import Run

LINE = {
    "step": 3,
    "lr": 1e-6,
    "reward": 0.25,
    "reward_format": 0.1,
    "correct": 0.5,
    "correct_anywhere": 0.75,
    "length_mean": 12.0,
    "length_p95": 20.0,
    "cut_share": 0.0,
    "groups_trained": 4,
    "groups_dropped": {"all-wrong": 2, "all-right": 1},
    "reasons": {"correct": 9, "wrong": 7},
    "staleness_mean": 0.5,
    "staleness_max": 1,
    "mixed_versions": 0.125,
    "generated_tokens": 800,
    "trained_tokens": 500,
    "loss": None,
    "grad_norm": math.nan,
    "entropy": 1.5,
    "clip_low": 0.0,
    "ratio_p50": 1.0,
    "approx_kl": 0.0,
    "mismatch_p99": 0.01,
    "seconds": 2.0,
    "train_tokens_per_s": 100.0,
    "generator_idle": 0.5,
    "stage": 1,
    "problems_active": 8,
}


def test_every_finite_number_of_a_line_has_a_name_of_its_own() -> None:
    found = track.values(LINE)
    told = {
        "reward/mean": 0.25,
        "reward/correct_share": 0.5,
        "length/p95": 20.0,
        "groups/trained": 4.0,
        "groups/dropped": 3.0,
        "dropped/all-wrong": 2.0,
        "reasons/correct": 9.0,
        "staleness/max": 1.0,
        "train/entropy": 1.5,
        "train/lr": 1e-6,
        "run/stage": 1.0,
        "problems/active": 8.0,
        "speed/generator_idle": 0.5,
        "clip/low": 0.0,
    }
    assert {name: found[name] for name in told} == told
    flat = [part for value in LINE.values() for part in (value.values() if isinstance(value, dict) else [value])]
    known = [value for value in flat if value is not None and math.isfinite(value)]
    assert len(found) == len(known) - 1 + 1, "without the step, and with the sum of the dropped groups"
    assert all(name.count("/") == 1 for name in found)


def test_a_run_keeps_the_name_that_trackers_know_it_by(tmp_path: Path) -> None:
    folder = tmp_path / "run one: ä"
    folder.mkdir()
    name = track.identity(folder)
    assert track.identity(folder) == name
    assert name.startswith("run-one----")
    (folder / "tracked.json").unlink()
    assert track.identity(folder) != name


@pytest.mark.parametrize("kept", ["", "{}", "[1]"])
def test_a_damaged_name_is_told_with_its_place(kept, tmp_path: Path) -> None:
    (tmp_path / "tracked.json").write_text(kept)
    with pytest.raises(DataError, match=r"tracked\.json is damaged; remove it"):
        track.identity(tmp_path)


class Diary:
    """A tracker that keeps what it gets in a list, holds two updates already, and fails or hangs where it shall."""

    def __init__(self, run: Run, *, fails_at: int = 0, hangs_at: int = 0) -> None:
        self.last, self.where, self.held, self.ended = 2, "a list", [], []
        self.fails_at, self.hangs_at, self.free = fails_at, hangs_at, threading.Event()

    def log(self, step, values) -> None:
        if step == self.fails_at:
            raise ConnectionError("the network\nis gone")
        if step == self.hangs_at:
            self.free.wait(60)
        self.held.append((step, values["train/lr"]))

    def close(self, *, finished) -> None:
        print("a tracker's farewell")
        self.ended.append(finished)


@pytest.fixture
def diary(monkeypatch, tmp_path):
    """Follow lines by a diary: ``diary(count, **how)`` appends them one by one and gives the diary back."""
    made = []

    def follow(count, *, fault=None, **how):
        def opened(run):
            made.append(Diary(run, **how))
            return made[-1]

        monkeypatch.setitem(track.TRACKERS, "wandb", opened)
        lines = []
        with track.tracked(["wandb", "wandb"], tmp_path, {}, Console(), begun=True) as tell:
            for step in range(1, count + 1):
                lines.append({"step": step, "lr": float(step), "groups_dropped": {}})
                tell(lines)
            if fault:
                raise fault
        return made[-1]

    yield follow
    for each in made:
        each.free.set()


def test_a_tracker_gets_what_it_lacks_once_and_in_order(diary, capsys) -> None:
    found = diary(200)
    assert found.held == [(step, float(step)) for step in range(3, 201)]
    assert found.ended == [True]
    told = capsys.readouterr()
    assert told.out == "", "stdout is for rows"
    (line,) = told.err.splitlines()
    assert line.startswith("rl: wandb has this run as ")


def test_a_tracker_that_fails_is_told_of_once_and_left_alone(diary, capsys) -> None:
    found = diary(50, fails_at=10)
    assert found.held == [(step, float(step)) for step in range(3, 10)]
    assert found.ended == []
    warnings = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert warnings == [
        "warning: rl: wandb gets nothing more: ConnectionError: the network is gone; the same command brings it up to "
        "date"
    ]


def test_a_tracker_that_hangs_holds_nothing_up(diary, capsys, monkeypatch) -> None:
    monkeypatch.setattr(track, "LAST_PATIENCE", 0.5)
    begun = time.monotonic()
    found = diary(1000, hangs_at=5)
    assert time.monotonic() - begun < 3
    assert [step for step, _ in found.held] == [3, 4]
    assert capsys.readouterr().err.count("warning: rl: wandb gets nothing more: TimeoutError") == 1


def test_a_run_that_ends_early_says_so(diary, monkeypatch) -> None:
    closed = []
    monkeypatch.setattr(Diary, "close", lambda self, *, finished: closed.append((finished, self.held)))
    with pytest.raises(RuntimeError, match="on purpose"):
        diary(9, fault=RuntimeError("on purpose"))
    assert closed == [(False, [(step, float(step)) for step in range(3, 10)])]


def test_a_tracker_that_cannot_be_opened_stops_a_run_only_before_it_begins(tmp_path: Path, capsys) -> None:
    (tmp_path / "tensorboard").write_text("a file where a folder should be")
    with (
        pytest.raises(EnvironmentFault, match=r"tensorboard cannot be opened: FileExistsError.*leave out --track"),
        track.tracked(["tensorboard"], tmp_path, {}, Console(), begun=False),
    ):
        pass
    with track.tracked(["tensorboard"], tmp_path, {}, Console(), begun=True) as follow:
        follow([])
    assert "warning: rl: tensorboard cannot be opened" in capsys.readouterr().err


def test_events_are_json_where_they_are_asked_for(diary, tmp_path: Path, capsys) -> None:
    with track.tracked(["tensorboard"], tmp_path, {}, Console(as_json=True), begun=False):
        pass
    (event,) = map(json.loads, capsys.readouterr().err.splitlines())
    assert (event["event"], event["tracker"], event["run"]) == ("tracker", "tensorboard", track.identity(tmp_path))


def test_nothing_is_left_in_the_folder_of_a_run_that_is_not_tracked(tmp_path: Path) -> None:
    with track.tracked([], tmp_path, {}, Console(), begun=False) as follow:
        follow([])
    assert list(tmp_path.iterdir()) == []
