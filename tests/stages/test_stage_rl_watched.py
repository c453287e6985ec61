"""`magcli rl` as a person watches it: curves on a terminal, lines in a log, trackers where they were asked for."""

import json
import re
import sys

import pytest
from calling import call_stage, kill_and_resume, seconds_of
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from terminal import Terminal

from magcli.data import table
from magcli.errors import DataError, EnvironmentFault, UsageError
from magcli.rl.samples import NUM_SAMPLES
from magcli.run import trackers
from magcli.run.rundir import RunDir
from magcli.run.trackers import tensorboard
from magcli.stages.rl import work

FLAGS = [
    "--group-size=8", "--n-async=32", "--n-batch=16", "--n-mini=16", "--max-tokens=24", "--lr=1e-3", "--bf16=no",
    "--dtype=fp32", "--system=none", "--no-language", "--checkpoint-every=3",
]  # fmt: skip
TITLES = ("reward ", "length ", "dropped groups ", "staleness ", "generated ", "trained ")
SMALL = {
    "updates": 8,
    "group_size": 8,
    "n_async": 32,
    "n_batch": 16,
    "n_mini": 16,
    "max_tokens": 24,
    "lr": 1e-3,
    "bf16": "no",
    "dtype": "fp32",
    "system": "none",
    "language": False,
    "checkpoint_every": 3,
}


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    path = tmp_path_factory.mktemp("problems") / "problems.jsonl"
    rows = [{"id": letter, "prompt": f"{letter}?", "answer": "3"} for letter in "abcdefgh"]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def command(problems, model, run, *more):
    return [sys.executable, "-m", "magcli", "rl", problems, "--model", model, "--run", run, *FLAGS, *more]


def metrics(run):
    path = run / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]] if path.exists() else []


def test_a_terminal_shows_the_curves_and_is_restored(guesser, problems, tmp_path) -> None:
    run, out = tmp_path / "run", tmp_path / "rows.jsonl"
    with Terminal(command(problems, guesser, run, "--updates=300"), columns=100, lines=40) as terminal:
        before = terminal.settings
        terminal.wait_for(lambda: len(metrics(run)) >= 8 and all(title in terminal.text for title in TITLES))
        terminal.resize(64, 40)
        terminal.wait_for(lambda: "".join(terminal.text.splitlines()[-4:-3]).startswith("generated "))
        assert "engine and trainer at equal weights" in terminal.text.split("reward ")[0], "lines stand above"
        terminal.type(b"\x03")
        assert terminal.end() == 130
        assert terminal.text.replace("\n", "").endswith("ended by SIGINT; the same command resumes from finished work")
        assert "Traceback" not in terminal.text
        assert terminal.settings == before
        assert b"?25l" not in terminal.raw
        assert terminal.screen.cursor.x == 0
    done = len(metrics(run))
    again = command(problems, guesser, run, "--updates=300", "-o", out)
    with Terminal(again, columns=100, lines=40) as terminal:
        terminal.wait_for(lambda: "resuming from update" in terminal.text)
        first = terminal.raw.split(b"resuming from update")[0]
        assert all(title.strip().encode() in first for title in TITLES), "what an earlier process did is there at once"
        terminal.wait_for(lambda: len(metrics(run)) > done + 2)
    assert b"?25l" not in terminal.raw


def test_a_log_has_plain_lines(guesser, problems, tmp_path, magcli) -> None:
    done = magcli("rl", problems, "--model", guesser, "--run", tmp_path / "run", *FLAGS, "--updates=2")
    assert done.returncode == 0
    assert done.stdout == b""
    lines = done.stderr.splitlines()
    assert [line.split(":")[:2] for line in lines] == [
        ["rl", " engine and trainer at equal weights"],
        ["rl", lines[1].removeprefix("rl:")],
        ["rl", f" model in {tmp_path}/run/model"],
    ]
    assert " groups reserved = " in lines[1]


def scalars(folder):
    """What TensorBoard reads: the steps and values of each name, each event once as it lies in the files."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}, purge_orphaned_data=False).Reload()
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]
    }, events.Tags()["tensors"]


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.faults)])
def test_a_killed_run_continues_in_its_tracker_with_each_update_once(kills, guesser, problems, tmp_path) -> None:
    run, options = tmp_path / "run", {**SMALL, "model": str(guesser), "track": ["tensorboard"]}
    took = seconds_of("rl", problems, run=tmp_path / "whole", **options)
    kill_and_resume(kills, 0.8 * took, "rl", problems, run=run, **options)
    lines = metrics(run)
    found, texts = scalars(run / "tensorboard")
    assert sorted(texts) == ["config/text_summary", "samples/text_summary"]
    assert found["reward/mean"] == [(line["step"], pytest.approx(line["reward"])) for line in lines]
    for line in lines:
        for name, value in trackers.metric_values(line).items():
            assert dict(found[name])[line["step"]] == pytest.approx(value, rel=1e-6)
    assert [step for step, _ in found["train/grad_norm"]] == list(range(1, 9))


def test_a_finished_run_can_be_uploaded_to_a_tracker(guesser, problems, tmp_path, capsys) -> None:
    run, options = tmp_path / "run", {**SMALL, "updates": 3, "model": str(guesser)}
    call_stage("rl", problems, run=run, **options)
    assert not (run / "tensorboard").exists()
    assert not (run / "tracked.json").exists()
    for _ in range(2):
        call_stage("rl", problems, run=run, **options, track=["tensorboard"], quiet=False)
        name = json.loads((run / "tracked.json").read_text())["run"]
        assert f"tensorboard run {name}: {run}/tensorboard\n" in capsys.readouterr().err
        assert [step for step, _ in scalars(run / "tensorboard")[0]["reward/mean"]] == [1, 2, 3]


def test_a_run_has_succeeded_for_its_tracker_also_if_its_output_cannot_be_written(
    guesser, problems, tmp_path, monkeypatch
) -> None:
    ends = []

    def refuse(*_):
        raise DataError("no space for the rollouts")

    monkeypatch.setattr(tensorboard.OpenRun, "finish", lambda self, *, completed: ends.append(completed))
    monkeypatch.setattr(work, "with_problems", refuse)
    options = {**SMALL, "updates": 1, "model": str(guesser), "track": ["tensorboard"]}
    with pytest.raises(DataError, match="no space"):
        call_stage("rl", problems, run=tmp_path / "run", **options)
    assert ends == [True]


def test_each_update_has_some_of_its_completions(guesser, problems, tmp_path) -> None:
    run = tmp_path / "run"
    call_stage("rl", problems, run=run, **{**SMALL, "updates": 2}, model=str(guesser), track=["tensorboard"])
    events = EventAccumulator(str(run / "tensorboard")).Reload().Tensors("samples/text_summary")
    assert [event.step for event in events] == [1, 2]
    for event in events:
        rows = table.read(str(RunDir(run).rollouts_of(event.step))).rows
        completions = {row["completion"] for batch in rows for row in batch.to_pylist()}
        text = event.tensor_proto.string_val[0].decode()
        parts = text.split("**Reward ")[1:]
        assert len(parts) == NUM_SAMPLES
        for part in parts:
            assert re.match(r"[\d.]+: [a-z-]+\*\*\n\nPrompt\n\n    [a-h]\?\n\nCompletion\n\n    ", part)
            assert part.split("Completion\n\n    ")[1].strip() in {each.strip() for each in completions}


def test_a_tracker_that_is_not_installed_is_refused_first(problems, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentFault, match=r"--track trackio needs its package: pip install 'magcli\[trackio\]'"):
        call_stage("rl", problems, model="none", run=tmp_path / "run", track=["trackio"])
    assert not (tmp_path / "run").exists()


def test_an_unknown_tracker_is_refused_with_the_known_ones(problems, tmp_path) -> None:
    with pytest.raises(UsageError, match=r"rl\.track: 'comet' is not one of tensorboard, wandb, trackio"):
        call_stage("rl", problems, model="none", run=tmp_path / "run", track=["comet"])
