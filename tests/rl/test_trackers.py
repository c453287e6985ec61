"""Each tracker's own package, in processes that are killed; what it holds is read back by other means."""

import json
import os
import sqlite3
import subprocess
import sys
from importlib.util import find_spec

import pytest

from magcli.errors import EnvironmentFault
from magcli.rl import track, trackers, wandb_files

PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from magcli.console import Console
from magcli.rl.track import tracked

name, folder, known, last, pause, end = sys.argv[1], Path(sys.argv[2]), *map(float, sys.argv[3:6]), sys.argv[6]
line = lambda step: {"step": step, "reward": step / 8, "groups_dropped": {"all-wrong": step}, "stage": 0}
with tracked([name], folder, {"lr": 0.25, "stage": [{"n_batch": 8}]}, Console(), begun=False) as follow:
    lines = [line(step) for step in range(1, int(known) + 1)]
    follow(lines)
    for step in range(int(known) + 1, int(last) + 1):
        time.sleep(pause)
        lines.append(line(step))
        follow(lines)
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
    needs("mlflow", "mlflow is not installed: half a gigabyte with what it needs"),
]


@pytest.fixture
def places(tmp_path):
    """The environment in which trackers keep their runs in a folder of the test, and talk to nobody."""
    return {
        **os.environ,
        "WANDB_MODE": "offline",
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db",
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


def events_of_wandb(folder, run):
    from wandb.proto.wandb_internal_pb2 import Record

    found, config = [], ""
    for path in sorted((folder / "run/wandb").glob(f"offline-run-*-{run}/run-{run}.wandb")):
        for record in map(Record.FromString, wandb_files.records(path.read_bytes())):
            config += "".join(each.key + each.value_json for each in record.run.config.update)
            told = {each.key or each.nested_key[0]: each.value_json for each in record.history.item}
            found += [(record.history.step.num, name, float(value)) for name, value in told.items() if name[0] != "_"]
    return found, config


def events_of_trackio(folder, run):
    with sqlite3.connect(folder / "trackio/magcli.db") as data:
        rows = data.execute("select step, metrics from metrics where run_name = ?", (run,)).fetchall()
        ((config,),) = data.execute("select config from configs where run_name = ?", (run,)).fetchall()
    return [(step, name, value) for step, each in rows for name, value in json.loads(each).items()], str(config)


def events_of_mlflow(folder, run):
    with sqlite3.connect(folder / "mlflow.db") as data:
        ((uuid, status),) = data.execute("select run_uuid, status from runs where name = ?", (run,)).fetchall()
        assert status == "FINISHED"
        found = data.execute("select step, key, value from metrics where run_uuid = ? and key != 'update'", (uuid,))
        config = data.execute("select key, value from params where run_uuid = ?", (uuid,)).fetchall()
        return found.fetchall(), str(config)


EVENTS = {
    "tensorboard": events_of_tensorboard,
    "wandb": events_of_wandb,
    "trackio": events_of_trackio,
    "mlflow": events_of_mlflow,
}


@pytest.mark.parametrize("name", NAMES)
def test_killed_processes_leave_each_update_once(name, places, tmp_path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    known = 0
    for last, pause, end in ((9, 0.0, "killed"), (20, 0.1, "killed"), (30, 0.0, "killed"), (STEPS, 0.0, "done")):
        command = [sys.executable, "-c", PROGRAM, name, folder, known, last, pause, end]
        done = subprocess.run(list(map(str, command)), env=places, cwd=tmp_path, capture_output=True, timeout=120)
        assert done.returncode == (0 if end == "done" else -9), done.stderr.decode()
        assert done.stdout == b"", "stdout is for rows"
        known = last
    found, config = EVENTS[name](tmp_path, track.identity(folder))
    told = [(step, "reward/mean", step / 8) for step in range(1, STEPS + 1)]
    assert sorted(event for event in found if event[1] == "reward/mean") == told
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
    assert all(extras[name][0].startswith(f"{name}>=") for name in trackers.TRACKERS)


def test_a_package_that_is_missing_is_called_by_its_extra(monkeypatch) -> None:
    trackers.require("tensorboard")
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentFault, match=r"pip install 'magcli\[trackio\]'"):
        trackers.require("trackio")
