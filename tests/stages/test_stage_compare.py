"""`magcli compare`: runs and evaluations side by side in the terminal."""

import json
import random
from pathlib import Path

import pytest
from calling import call_stage

from magcli.errors import DataError, UsageError
from magcli.report.comparison import differing, end_of, verdict
from magcli.run.rundir import RunDir


def graded(path: Path, right: dict[str, int], samples: int = 8) -> Path:
    """A table of graded completions: of each problem, so many of the samples are right."""
    rows = [
        {"id": id, "prompt": f"{id}?", "answer": "1", "completion": "x", "correct": number < count}
        for id, count in right.items()
        for number in range(samples)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_better_evaluation_is_told_by_its_paired_difference(tmp_path, capsys):
    rolled = random.Random(0)
    before = {f"p{number}": rolled.randint(0, 6) for number in range(40)}
    after = {id: count + 1 for id, count in before.items()}
    tables = graded(tmp_path / "before.jsonl", before), graded(tmp_path / "after.jsonl", after)
    call_stage("compare", paths=tuple(map(str, tables)))
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1].startswith("after against before: +12.5 points [")
    assert printed.splitlines()[-1].endswith("on 40 problems, better")
    call_stage("compare", paths=tuple(map(str, reversed(tables))))
    assert capsys.readouterr().out.splitlines()[-1].endswith("on 40 problems, worse")


def test_a_difference_within_its_interval_is_no_verdict(tmp_path, capsys):
    one = {f"p{number}": 4 + number % 3 for number in range(12)}
    other = {id: count + (1 if number % 2 else -1) for number, (id, count) in enumerate(one.items())}
    tables = graded(tmp_path / "a.jsonl", one), graded(tmp_path / "b.jsonl", other)
    call_stage("compare", paths=tuple(map(str, tables)))
    assert "neither better nor worse with certainty" in capsys.readouterr().out.splitlines()[-1]


def test_metrics_alone_have_no_difference_by_problem():
    row = {"suite": "aime24", "model": "b", "metric": "avg@n", "difference": None}
    assert verdict(row, "a").startswith("aime24: b against a: no difference by problem")


def made_run(path: Path, lr: float, rewards: list[float], accuracy: float) -> Path:
    with RunDir.open(path, "rl", {"lr": lr, "updates": len(rewards), "inputs": []}, restart=False) as folder:
        folder.log({"step": 0, "accuracy": 0.1})
        for step, reward in enumerate(rewards, 1):
            last = {"accuracy": accuracy, "accuracy_low": accuracy - 0.05, "accuracy_high": accuracy + 0.05}
            folder.log({"step": step, "reward": reward, **(last if step == len(rewards) else {})})
    return path


def test_runs_show_the_options_that_differ_and_their_ends(tmp_path, capsys):
    slow = made_run(tmp_path / "lr-1e-6", 1e-6, [0.1] * 18 + [0.2, 0.4], 0.25)
    fast = made_run(tmp_path / "lr-4e-6", 4e-6, [0.1] * 18 + [0.5, 0.7], 0.5)
    call_stage("compare", paths=(str(slow), str(fast)))
    printed = capsys.readouterr().out
    lines = {line.split("│")[1].strip(): line for line in printed.splitlines() if line.startswith("│")}
    assert [cell.strip() for cell in lines["lr"].split("│")[2:4]] == ["1e-06", "4e-06"]
    assert [cell.strip() for cell in lines["reward"].split("│")[2:4]] == ["0.3", "0.6"]
    assert "25.0 [20.0, 30.0]" in lines["accuracy, %"]
    assert "updates" not in lines, "options that are equal are not shown"
    assert f"magcli evaluate HELD-OUT --model {fast}/model --before {slow}/model" in printed


def test_the_names_of_many_runs_are_whole(tmp_path, capsys):
    names = [f"lr-{lr}-seed-{seed}" for lr in ("1e-5", "2e-4", "1e-3") for seed in (0, 1)]
    runs = [made_run(tmp_path / name, 1e-6, [0.123456], 0.25) for name in names]
    call_stage("compare", paths=tuple(map(str, runs)))
    heading = [line.split("┃")[2:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("┃")]
    assert ["".join(parts).replace(" ", "") for parts in zip(*heading, strict=True)] == names


def test_the_comparison_of_runs_is_an_event_too(tmp_path, capsys):
    runs = made_run(tmp_path / "a", 1e-6, [0.5], 0.25), made_run(tmp_path / "b", 4e-6, [0.7], 0.5)
    call_stage("compare", paths=tuple(map(str, runs)), quiet=False, json_events=True)
    event = json.loads(capsys.readouterr().out)
    assert event["options"] == {"lr": [1e-6, 4e-6]}
    assert [end["reward"] for end in event["ends"]] == [0.5, 0.7]


def test_a_digest_is_shown_only_without_the_option_that_it_belongs_to():
    one, other = {"model": "a", "model_sha256": "1", "kl": 0}, {"model": "b", "model_sha256": "2", "kl": 0}
    assert differing([one, other]) == {"model": ["a", "b"]}
    assert differing([one, {**one, "model_sha256": "2"}]) == {"model_sha256": ["1", "2"]}


def test_what_is_measured_at_intervals_ends_with_its_last_value():
    lines = [{"step": step, "loss": 1.0, "held_out_loss": 2.0 if step == 10 else None} for step in range(1, 31)]
    assert end_of(lines) == {"steps": 30, "loss": 1.0, "held_out_loss": 2.0}


def test_what_cannot_be_compared_is_named(tmp_path):
    run, table = made_run(tmp_path / "run", 1.0, [0.1], 0.1), graded(tmp_path / "t.jsonl", {"p": 1})
    with pytest.raises(UsageError, match="are runs and the others tables"):
        call_stage("compare", paths=(str(run), str(table)))
    with pytest.raises(UsageError, match="name two runs or tables at least"):
        call_stage("compare", paths=(str(run),))
    with pytest.raises(DataError, match="does not exist"):
        call_stage("compare", paths=(str(table), str(tmp_path / "none")))
    with pytest.raises(UsageError, match="none: no such run"):
        call_stage("compare", paths=(str(run), str(tmp_path / "none")))
    problems = tmp_path / "problems.jsonl"
    problems.write_text('{"id": "a", "prompt": "What is 2 * 3?", "answer": "6"}\n')
    with pytest.raises(DataError, match=r"compare: .* these are problems: magcli evaluate --model samples and grades"):
        call_stage("compare", paths=(str(problems), str(table)))
    with pytest.raises(DataError, match=r"is the folder of a run, not a table; magcli report .* shows the run"):
        call_stage("show", run)
