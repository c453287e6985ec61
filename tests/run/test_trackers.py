"""Metrics reach each tracker once and in order, also from killed processes; tracker faults never stop a run."""

import json
import math
import os
import re
import shutil
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import pytest

from magcli.console import Console
from magcli.errors import DataError, EnvironmentFault
from magcli.run import trackers
from magcli.run.trackers import Source
from magcli.run.trackers.tensorboard import as_markdown
from magcli.run.trackers.types import Run, Sample

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
    "clip_low_share": 0.0,
    "ratio_p50": 1.0,
    "approx_kl": 0.0,
    "mismatch_p99": 0.01,
    "seconds": 2.0,
    "train_tokens_per_s": 100.0,
    "generator_idle": 0.5,
    "stage": 1,
    "problems_active": 8,
}


def test_each_finite_number_of_a_line_has_a_metric_name() -> None:
    found = trackers.metric_values(LINE)
    expected = {
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
        "clip/low_share": 0.0,
    }
    assert {name: found[name] for name in expected} == expected
    flat = [part for value in LINE.values() for part in (value.values() if isinstance(value, dict) else [value])]
    known = [value for value in flat if value is not None and math.isfinite(value)]
    assert len(found) == len(known) - 1 + 1, "without the step, and with the sum of the dropped groups"
    assert all(name.count("/") == 1 for name in found)


def test_the_id_of_a_run_stays_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "run one: ä"
    folder.mkdir()
    name = trackers.run_id(folder)
    assert trackers.run_id(folder) == name
    assert name.startswith("run-one----")
    (folder / "tracked.json").unlink()
    assert trackers.run_id(folder) != name


def test_a_moved_run_keeps_its_id_and_a_copy_gets_one_of_its_own(tmp_path: Path) -> None:
    first, moved, copy = (tmp_path / name for name in ("first", "moved", "copy"))
    first.mkdir()
    name = trackers.run_id(first)
    first.rename(moved)
    assert trackers.run_id(moved) == name
    shutil.copytree(moved, copy)
    of_copy = trackers.run_id(copy)
    assert of_copy != name
    assert trackers.run_id(copy) == of_copy, "also when it is asked again"
    assert trackers.run_id(moved) == name


@pytest.mark.parametrize("text", ["", "{}", "[1]"])
def test_a_damaged_id_is_refused_with_its_file(text, tmp_path: Path) -> None:
    (tmp_path / "tracked.json").write_text(text)
    with pytest.raises(DataError, match=r"tracked\.json is damaged; remove it"):
        trackers.run_id(tmp_path)


class Recorder:
    """A tracker that records what it receives, has two updates already, and fails or hangs at a given one."""

    def __init__(self, run: Run, *, fails_at: int = 0, hangs_at: int = 0) -> None:
        self.last_step, self.location, self.logged, self.finished = 2, "a list", [], []
        self.fails_at, self.hangs_at, self.free = fails_at, hangs_at, threading.Event()

    def log(self, step, values, samples) -> None:
        if step == self.fails_at:
            raise ConnectionError("the network\nis gone")
        if step == self.hangs_at:
            self.free.wait(60)
        self.logged.append((step, values["train/lr"]))

    def finish(self, *, completed) -> None:
        print("a tracker's last words")
        self.finished.append(completed)


@pytest.fixture
def record(monkeypatch, tmp_path):
    """``record(count, **how)`` logs as many lines one by one and returns the tracker that received them."""
    made = []

    def run(count, *, fault=None, **how):
        def opened(run):
            made.append(Recorder(run, **how))
            return made[-1]

        monkeypatch.setattr(trackers, "open_tracker", lambda name, run: opened(run))
        lines = []
        with trackers.open_trackers(["wandb", "wandb"], Source("rl", tmp_path, {}), Console(), resumed=True) as upload:
            for step in range(1, count + 1):
                lines.append({"step": step, "lr": float(step), "groups_dropped": {}})
                upload(lines)
            if fault:
                raise fault
        return made[-1]

    yield run
    for each in made:
        each.free.set()


def test_a_tracker_receives_what_it_lacks_once_and_in_order(record, capsys) -> None:
    found = record(200)
    assert found.logged == [(step, float(step)) for step in range(3, 201)]
    assert found.finished == [True]
    printed = capsys.readouterr()
    assert printed.out == "", "stdout is for rows"
    assert re.fullmatch(r"rl: wandb run \S+: a list\n", printed.err)


def test_a_tracker_that_fails_causes_one_warning(record, capsys) -> None:
    found = record(50, fails_at=10)
    assert found.logged == [(step, float(step)) for step in range(3, 10)]
    assert found.finished == []
    warnings = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert warnings == [
        "warning: rl: wandb failed and gets no more updates: ConnectionError: the network is gone; run the same "
        "command again to upload the rest"
    ]


@pytest.mark.flaky(reruns=2)
def test_a_tracker_that_hangs_delays_nothing(record, capsys, monkeypatch) -> None:
    monkeypatch.setattr(trackers, "FINISH_TIMEOUT", 0.5)
    begun = time.monotonic()
    found = record(1000, hangs_at=5)
    assert time.monotonic() - begun < 3
    assert [step for step, _ in found.logged] == [3, 4]
    assert capsys.readouterr().err.count("warning: rl: wandb failed and gets no more updates: TimeoutError") == 1


def test_a_run_that_ends_early_is_marked_so(record, monkeypatch) -> None:
    closed = []
    monkeypatch.setattr(Recorder, "finish", lambda self, *, completed: closed.append((completed, self.logged)))
    with pytest.raises(RuntimeError, match="on purpose"):
        record(9, fault=RuntimeError("on purpose"))
    assert closed == [(False, [(step, float(step)) for step in range(3, 10)])]


def test_a_tracker_that_cannot_be_opened_stops_only_a_new_run(tmp_path: Path, capsys) -> None:
    (tmp_path / "tensorboard").write_text("a file where a folder should be")
    with (
        pytest.raises(EnvironmentFault, match=r"cannot open tensorboard: FileExistsError.*omit --track"),
        trackers.open_trackers(["tensorboard"], Source("rl", tmp_path, {}), Console(), resumed=False),
    ):
        pass
    with trackers.open_trackers(["tensorboard"], Source("rl", tmp_path, {}), Console(), resumed=True) as upload:
        upload([])
    assert "warning: rl: cannot open tensorboard" in capsys.readouterr().err


def test_the_event_of_a_tracker_names_the_run(record, tmp_path: Path, capsys) -> None:
    with trackers.open_trackers(["tensorboard"], Source("rl", tmp_path, {}), Console(as_json=True), resumed=False):
        pass
    (event,) = map(json.loads, capsys.readouterr().err.splitlines())
    assert (event["event"], event["tracker"], event["run"]) == ("tracker", "tensorboard", trackers.run_id(tmp_path))


def test_an_untracked_run_has_no_file_for_trackers(tmp_path: Path) -> None:
    with trackers.open_trackers([], Source("rl", tmp_path, {}), Console(), resumed=False) as upload:
        upload([])
    assert list(tmp_path.iterdir()) == []


def test_a_completion_is_text_without_markup() -> None:
    text = as_markdown(Sample("# 2 < 3?\n* a", "<b>|x|</b>", 0.25, "wrong"))
    assert text == "**Reward 0.25: wrong**\n\nPrompt\n\n    # 2 < 3?\n    * a\n\nCompletion\n\n    <b>|x|</b>"


# ---- the trackers' own packages ----

PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from magcli.console import Console
from magcli.run.trackers import Source, open_trackers

name, folder, known, last, pause, end = sys.argv[1], Path(sys.argv[2]), *map(float, sys.argv[3:6]), sys.argv[6]
line = lambda step: {"step": step, "reward": step / 8, "groups_dropped": {"all-wrong": step}, "stage": 0}
source = Source("rl", folder, {"lr": 0.25, "stage": [{"n_batch": 8}]})
with open_trackers([name], source, Console(), resumed=False) as upload:
    lines = [line(step) for step in range(1, int(known) + 1)]
    upload(lines)
    for step in range(int(known) + 1, int(last) + 1):
        time.sleep(pause)
        lines.append(line(step))
        upload(lines)
    if end == "killed":
        time.sleep(pause)
        os.kill(os.getpid(), signal.SIGKILL)
"""
STEPS = 40


def needs(name, why):
    return pytest.param(name, marks=pytest.mark.skipif(find_spec(name) is None, reason=why))


NAMES = [
    "tensorboard",
    needs("wandb", "wandb is not installed: 75 MB with what it needs"),
    needs("trackio", "trackio is not installed: it asks for an older pillow"),
]


@pytest.fixture
def environment(tmp_path):
    """Trackers store their runs in the test's folder and contact no server."""
    return {
        **os.environ,
        "WANDB_MODE": "offline",
        "TRACKIO_DIR": str(tmp_path / "trackio"),
        "HF_HUB_OFFLINE": "1",
    }


def events_of_tensorboard(folder, run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "run/tensorboard"), size_guidance={"scalars": 0}, purge_orphaned_data=False)
    events.Reload()
    found = [(event.step, name, event.value) for name in events.Tags()["scalars"] for event in events.Scalars(name)]
    (config,) = events.Tensors("config/text_summary")
    return found, config.tensor_proto.string_val[0].decode()


def wandb_records(data):
    """The records of a .wandb file, a LevelDB log: 7 bytes of header, then blocks of 32 KiB of framed fragments."""
    at, record = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        record += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            yield record
            record = b""


def events_of_wandb(folder, run):
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = (folder / "run/wandb").glob(f"offline-run-*-{run}/run-{run}.wandb")
    found, config = [], ""
    for record in map(Record.FromString, wandb_records(path.read_bytes())):
        config += "".join(each.key + each.value_json for each in record.run.config.update)
        values = {each.key or each.nested_key[0]: each.value_json for each in record.history.item}
        found += [(record.history.step.num, name, float(value)) for name, value in values.items() if name[0] != "_"]
    return found, config


def events_of_trackio(folder, run):
    with sqlite3.connect(folder / "trackio/magcli.db") as data:
        rows = data.execute("select step, metrics from metrics where run_name = ?", (run,)).fetchall()
        ((config,),) = data.execute("select config from configs where run_name = ?", (run,)).fetchall()
    return [(step, name, value) for step, each in rows for name, value in json.loads(each).items()], str(config)


EVENTS = {
    "tensorboard": events_of_tensorboard,
    "wandb": events_of_wandb,
    "trackio": events_of_trackio,
}


@pytest.mark.faults
@pytest.mark.parametrize("name", NAMES)
def test_killed_processes_leave_each_update_once(name, environment, tmp_path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    known = 0
    for last, pause, end in (
        (0, 0.0, "killed"),
        (9, 0.0, "killed"),
        (20, 0.1, "killed"),
        (30, 0.0, "killed"),
        (STEPS, 0.0, "done"),
    ):
        command = [sys.executable, "-c", PROGRAM, name, folder, known, last, pause, end]
        done = subprocess.run(list(map(str, command)), env=environment, cwd=tmp_path, capture_output=True, timeout=240)
        assert done.returncode == (0 if end == "done" else -9), done.stderr.decode()
        assert done.stdout == b"", "stdout is for rows"
        known = last
    found, config = EVENTS[name](tmp_path, trackers.run_id(folder))
    expected = [(step, "reward/mean", step / 8) for step in range(1, STEPS + 1)]
    assert sorted(event for event in found if event[1] == "reward/mean") == expected
    assert {key for _, key, _ in found} == {"reward/mean", "dropped/all-wrong", "groups/dropped", "run/stage"}
    assert len(found) == 4 * STEPS
    assert "n_batch" in config
    assert "0.25" in config


def test_every_tracker_has_an_extra_of_its_name() -> None:
    import tomllib
    from pathlib import Path

    extras = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert all(extras[name][0].startswith(f"{name}>=") for name in get_args(trackers.Name))


def test_a_missing_package_is_named_by_its_extra(monkeypatch) -> None:
    trackers.require("sft", "tensorboard")
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentFault, match=r"sft: --track trackio .*pip install 'magcli\[trackio\]'"):
        trackers.require("sft", "trackio")
