"""``rl --eval-table``: the accuracy of each N-th update's weights on held-out problems."""

import json
from functools import partial

import pytest
from calling import TRAINED, call_stage, kill_and_resume, seconds_of
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from magcli.data import table
from magcli.errors import DataError, UsageError
from magcli.run.rundir import HELD_OUT, RunDir
from magcli.stages.shared.heldout import HeldOut

SYNC = {name: value for name, value in TRAINED.items() if name != "trajectory_every"}
ASYNC = {name: value for name, value in SYNC.items() if name != "schedule"}
EXAM = {"evaluate_every": 4, "eval_samples": 3, "eval_max_tokens": 24, "eval_temperature": 1.0, "eval_slots": 8}
TIMES = ("seconds", "idle", "_per_s")
"""Parts of the names of metrics that no two runs have equal."""


@pytest.fixture
def exam(tmp_path):
    """Held-out problems: letters that the run's problems do not have."""
    path = tmp_path / "exam.jsonl"
    rows = [{"id": f"held-{letter}", "prompt": f"{letter}?", "answer": "3"} for letter in "ijklmn"]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def metrics(run):
    return RunDir(run).metrics()


def curve(run):
    """The lines of metrics without times."""
    return [
        {key: value for key, value in line.items() if not any(part in key for part in TIMES)} for line in metrics(run)
    ]


def evaluations(run):
    return {line["step"]: line["accuracy"] for line in metrics(run) if "accuracy" in line}


def equal_weights(one, other):
    a, b = (load_file(run / "model" / "model.safetensors") for run in (one, other))
    return a.keys() == b.keys() and all(a[name].equal(b[name]) for name in a)


def test_a_synchronous_run_has_the_same_weights_and_rollouts_with_evaluations(
    guesser, letters, finished_run, exam, tmp_path
):
    run, rows = tmp_path / "run", tmp_path / "rows.jsonl"
    call_stage("rl", letters, model=str(guesser), run=run, eval_table=exam, output=rows, **SYNC | EXAM)
    assert equal_weights(run, finished_run)
    assert rows.read_bytes() == (finished_run.parent / "rows.jsonl").read_bytes()
    assert [line["step"] for line in metrics(run)] == [0, 1, 2, 3, 4, 5, 6]
    assert list(evaluations(run)) == [0, 4, 6], "at the start, each fourth, and at the end"
    without = [{key: value for key, value in line.items() if key not in HELD_OUT} for line in curve(run)[1:]]
    assert without == curve(finished_run)
    for line in metrics(run):
        if "accuracy" in line:
            assert 0 <= line["accuracy_low"] <= line["accuracy"] <= line["accuracy_high"] <= 1
            assert 10 < line["answer_tokens"] <= 24


@pytest.mark.parametrize("all_solved", [False, True], ids=["rule", "all-solved"])
def test_a_run_that_ends_early_evaluates_and_stores_the_weights_of_its_model(
    guesser, letters, exam, tmp_path, monkeypatch, all_solved
):
    run, recipe = tmp_path / "run", tmp_path / "recipe.toml"
    # Neither is due before the end.
    options = SYNC | EXAM | {"evaluate_every": 50, "trajectory_every": 50, "updates": 9, "retire_after": 1}
    options |= {"track": ["tensorboard"]}
    if all_solved:
        monkeypatch.setattr("magcli.rl.curriculum.ProblemStats.add", solved)
        recipe.write_text("")
    else:
        monkeypatch.setattr("magcli.rl.training_stages.EASY_WINDOW", 2)
        monkeypatch.setattr("magcli.rl.training_stages.EASY_SHARE", -1.0)  # any groups are too easy
        recipe.write_text('[[rl.stage]]\nuntil = "data-easy"\n')
    call_stage("rl", letters, model=str(guesser), run=run, eval_table=exam, recipe=recipe, **options)
    last = metrics(run)[-1]["step"]
    assert last < 9
    assert list(evaluations(run)) == [0, last]
    assert scalars(run) == list(evaluations(run).items()), "also if the tracker had the update before its evaluation"
    assert [step for step, _ in scalars(run, "reward/mean")] == list(range(1, last + 1))
    stored = RunDir(run).stored_weights()
    assert [folder.name for folder in stored] == ["step-000000", f"step-{last:06d}"]
    model = load_file(run / "model" / "model.safetensors")
    landscape = load_file(stored[-1] / "model.safetensors")
    assert all(tensor.equal(model[name]) for name, tensor in landscape.items())


def solved(stats, correct, graded, *, is_open=False):
    """Any group counts as solved."""
    stats.groups, stats.solved_in_a_row = stats.groups + 1, 1


def test_the_last_accuracy_is_that_of_evaluate_on_the_result(guesser, letters, exam, tmp_path):
    run, measured = tmp_path / "run", tmp_path / "metrics.jsonl"
    call_stage("rl", letters, model=str(guesser), run=run, eval_table=exam, **SYNC | EXAM)
    options = {"samples": 3, "max_tokens": 24, "temperature": 1.0, "slots": 32, "deterministic": True}
    call_stage("evaluate", exam, model=str(run / "model"), output=measured, system="none", **options)
    found = {row["metric"]: row for row in map(json.loads, measured.read_text().splitlines())}
    last = metrics(run)[-1]
    assert (last["accuracy"], last["accuracy_low"], last["accuracy_high"]) == pytest.approx(
        tuple(found["avg@n"][name] for name in ("value", "low", "high"))
    )
    assert last["answer_tokens"] == pytest.approx(found["tokens"]["value"])


@pytest.mark.parametrize("generators", [0, 1])
def test_an_asynchronous_run_evaluates_each_version_and_trains_every_group_once(
    generators, guesser, letters, exam, tmp_path, capsys
):
    run = tmp_path / "run"
    options = ASYNC | EXAM | {"evaluate_every": 2, "generators": generators, "quiet": False, "json_events": True}
    call_stage("rl", letters, model=str(guesser), run=run, eval_table=exam, **options)
    lines = metrics(run)
    assert list(evaluations(run)) == [0, 2, 4, 6]
    assert [line["groups_trained"] for line in lines[1:]] == [2] * 6
    assert [line["step"] for line in lines[1:] if "trainer_idle_evaluation" in line] == [1, 3, 5]
    for line in lines[1:]:
        causes = [line[name] for name in line if name.startswith("trainer_idle_")]
        assert sum(causes) == pytest.approx(line["trainer_idle"])
        assert 0 <= line["generator_idle"] <= 1
        assert line["staleness_max"] <= 8
    kept = [row for path in sorted((run / "rollouts").iterdir()) for batch in table.read(str(path)).rows
            for row in batch.select(["id"]).to_pylist()]  # fmt: skip
    assert not [row for row in kept if row["id"].startswith("held-")], "samples of evaluations are no rollouts"
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    said = {event["step"]: event["accuracy"] for event in events if event["event"] == "evaluation"}
    assert said == evaluations(run)
    updates = {event["step"]: event.get("accuracy") for event in events if event["event"] == "update"}
    assert updates == {step: evaluations(run).get(step) for step in range(1, 7)}


def test_an_evaluation_that_was_cut_off_is_done_on_resume(guesser, letters, exam, tmp_path, monkeypatch):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    options = SYNC | EXAM | {"model": str(guesser), "eval_table": exam, "track": ["tensorboard"]}
    call_stage("rl", letters, run=whole, **options)
    measure, calls = HeldOut.accuracy, []

    async def cut_off(self, generator):
        calls.append(generator)
        if len(calls) == 2:
            raise DataError("cut off")
        return await measure(self, generator)

    monkeypatch.setattr(HeldOut, "accuracy", cut_off)
    with pytest.raises(DataError, match="cut off"):
        call_stage("rl", letters, run=broken, **options)
    assert list(evaluations(broken)) == [0]
    assert [line["step"] for line in metrics(broken)] == [0, 1, 2, 3, 4]
    call_stage("rl", letters, run=broken, **options)
    assert curve(broken) == curve(whole)
    assert equal_weights(broken, whole)
    assert scalars(broken) == scalars(whole) == list(evaluations(whole).items())


def scalars(run, name="evaluation/accuracy"):
    """The values of a metric that TensorBoard has, by step; by default the accuracies."""
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    return [(event.step, pytest.approx(event.value)) for event in events.Scalars(name)]


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.faults)])
def test_a_killed_run_has_the_same_lines(kills, guesser, letters, exam, tmp_path):
    options = SYNC | EXAM | {"evaluate_every": 1, "model": str(guesser), "eval_table": exam}
    took = seconds_of("rl", letters, run=tmp_path / "whole", **options)
    kill_and_resume(kills, 0.9 * took, "rl", letters, run=tmp_path / "broken", **options)
    assert curve(tmp_path / "broken") == curve(tmp_path / "whole")
    assert equal_weights(tmp_path / "broken", tmp_path / "whole")


def test_a_prolonged_run_goes_on_with_its_evaluations(guesser, letters, exam, tmp_path):
    run, options = tmp_path / "run", SYNC | EXAM | {"model": str(guesser), "eval_table": exam, "evaluate_every": 2}
    call_stage("rl", letters, run=run, **options | {"updates": 3})
    call_stage("rl", letters, run=run, **options | {"updates": 6})
    assert list(evaluations(run)) == [0, 2, 3, 4, 6]


def test_the_runs_own_reward_grades_held_out_problems_without_an_answer(guesser, letters, tmp_path):
    reward, exam = tmp_path / "reward.py", tmp_path / "exam.jsonl"
    reward.write_text("def has_two(completion, row):\n    return float('2' in completion)\n")
    exam.write_text('{"prompt": "i?"}\n{"prompt": "j?"}\n')
    options = ASYNC | EXAM | {"updates": 1, "reward": f"{reward}:has_two", "eval_samples": 16}
    call_stage("rl", letters, model=str(guesser), run=tmp_path / "run", eval_table=exam, **options)
    assert all(0 < accuracy < 0.7 for accuracy in evaluations(tmp_path / "run").values()), "it guesses 1 to 4"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"eval_slots": 0}, "rl.eval_slots: 0 is not positive"),
        ({"evaluate_every": 0}, "rl.evaluate_every: 0 is not positive"),
        ({"eval_temperature": -1.0}, "rl.eval_temperature: -1.0 is negative"),
    ],
)
def test_invalid_options_are_refused_first(change, message):
    with pytest.raises(UsageError, match=message):
        call_stage("rl", "nothing.jsonl", model="m", **EXAM | change)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"id": "a", "prompt": "i" * 600, "answer": "3"}],
            "rl: problem a of .* do not fit the model's context of 512",
        ),
        ([{"id": "a", "prompt": "i?", "answer": "3"}] * 2, "rl: two problems of .* have the id a"),
        (
            [{"prompt": "i?", "answer": "\\frac{1}{"}],
            "rl: problem 0 of .* cannot be graded: the answer .* cannot be verified",
        ),
        ([{"prompt": "i?"}], "lacks column"),
    ],
)
def test_held_out_problems_are_checked_before_any_work(rows, message, guesser, letters, tmp_path):
    exam = tmp_path / "exam.jsonl"
    exam.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = partial(call_stage, "rl", letters, model=str(guesser), run=tmp_path / "run")
    with pytest.raises(DataError, match=message):
        run(eval_table=exam, **ASYNC | EXAM)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
