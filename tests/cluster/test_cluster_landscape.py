"""``landscape --cluster``: engines on a local Ray visit points, also when one of them or the command is killed."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from calling import call_stage, journaled
from forking import fork_server
from test_data_stages import descendants, rows_of

from magcli.errors import UsageError

ASK = {
    "points": 7,
    "samples": 4,
    "refine": 2,
    "max_tokens": 24,
    "system": Path("none"),
    "language": False,
    "deterministic": True,
    "seed": 3,
}


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    rows = [{"id": f"p{i}", "prompt": f"{letter}?", "answer": "3"} for i, letter in enumerate("abcd")]
    path = tmp_path_factory.mktemp("problems") / "problems.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def trained(finished_run, tmp_path_factory):
    return shutil.copytree(finished_run, tmp_path_factory.mktemp("landscape") / "rl")


@pytest.fixture(scope="module")
def here(trained, problems, tmp_path_factory):
    """The points and figures of one process."""
    return drawn(trained, problems, tmp_path_factory.mktemp("here"))


def drawn(trained, problems, folder, **options):
    call_stage("landscape", problems, run=trained, **places(folder), **ASK | options)
    return result_of(folder)


def places(folder):
    return {"out": folder / "landscape", "output": folder / "points.arrow"}


def result_of(folder):
    """Points, samples and figures."""
    out = folder / "landscape"
    return (
        rows_of(folder / "points.arrow"),
        rows_of(out / "samples.arrow"),
        json.loads((out / "landscape.json").read_text()),
    )


def visit_with_two_engines(trained, problems, folder):
    """Run the command as on a machine with two GPUs, but on CPUs."""
    from magcli.stages.shared import cluster_engines

    cluster_engines.devices_for = lambda cluster, config: [config.device, config.device]
    drawn(trained, problems, folder, cluster="local")


def started(trained, problems, folder):
    """The command in a process of its own."""
    process = fork_server().Process(target=visit_with_two_engines, args=(trained, problems, folder))
    process.start()
    return process


def engines_of(process):
    return {child for child, line in descendants(process.pid).items() if line.startswith("ray::ServiceActor")}


def until_points_are_finished(process, folder):
    """Wait until a point is in the journal while others are not; returns the engines' processes."""
    journal = folder / "landscape" / "points.journal"
    while process.is_alive():
        if journal.exists() and journaled(folder / "landscape"):
            return engines_of(process)
        time.sleep(0.01)
    raise AssertionError("the command ended before it was looked at")


def test_two_engines_find_what_one_process_finds(here, trained, problems, tmp_path):
    process = started(trained, problems, tmp_path)
    assert len(until_points_are_finished(process, tmp_path)) == 2
    process.join(240)
    assert process.exitcode == 0
    assert result_of(tmp_path) == here


@pytest.mark.slow
def test_the_point_of_a_lost_engine_is_visited_by_another(here, trained, problems, tmp_path):
    process = started(trained, problems, tmp_path)
    engine, _ = until_points_are_finished(process, tmp_path)
    os.kill(engine, signal.SIGKILL)
    process.join(240)
    assert process.exitcode == 0
    assert result_of(tmp_path) == here
    keys = journaled(tmp_path / "landscape")
    assert len(keys) == len(set(keys)) == len(here[0]) + 1


@pytest.mark.slow
def test_a_killed_command_is_resumed_without_the_cluster(here, trained, problems, tmp_path):
    process = started(trained, problems, tmp_path)
    until_points_are_finished(process, tmp_path)
    process.kill()
    process.join()
    finished = journaled(tmp_path / "landscape")
    assert drawn(trained, problems, tmp_path) == here
    keys = journaled(tmp_path / "landscape")
    assert keys[: len(finished)] == finished
    assert len(keys) == len(set(keys)) == len(here[0]) + 1


@pytest.mark.parametrize("option", ["plane_only", "cost"])
def test_what_samples_nothing_needs_no_cluster(option, trained):
    with pytest.raises(UsageError, match="--cluster local samples at points, and --plane-only and --cost do not"):
        call_stage("landscape", run=trained, cluster="local", dry_run=True, **{option: True})
