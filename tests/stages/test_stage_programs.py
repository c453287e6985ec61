"""Stages that sample: programs that a sandbox judges, and a user's own reward."""

import json
import random
from pathlib import Path

import pytest
from calling import call_stage

from magcli.data import table

SMALL = {
    "updates": 2, "group": 8, "n_async": 16, "n_batch": 16, "n_mini": 16, "max_tokens": 40, "lr": 1e-3, "bf16": "no",
    "dtype": "fp32", "system": Path("none"), "language": False, "schedule": "sync",
}  # fmt: skip


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rollouts(run):
    files = sorted((run / "rollouts").glob("step-*.arrow"))
    return [row for file in files for batch in table.read(str(file)).rows for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def coder(tiny_model_dir, tmp_path_factory):
    """The tiny model after a second of SFT: it answers any letter with a program that prints 1, 2, 3 or 4."""
    folder, choose = tmp_path_factory.mktemp("coder"), random.Random(0)
    programs = (f"<think></think>\n```py\nprint({choose.choice('1234')})\n```" for _ in range(240))
    rows = [{"prompt": f"{choose.choice('abcdefgh')}?", "completion": program} for program in programs]
    options = {"epochs": 12, "step_tokens": 512, "lr": 5e-3, "bf16": "no", "system": Path("none")}
    data = written(folder / "traces.jsonl", rows)
    call_stage("sft", data, model=str(tiny_model_dir), run=folder / "run", **options)
    return folder / "run" / "model"


def test_programs_are_judged_and_train(coder, tmp_path):
    tests = [{"input": "1", "output": "3\n"}, {"input": "2", "output": "3\n"}]
    problems = [{"id": f"p{n}", "kind": "code", "prompt": f"{'abcd'[n]}?", "tests": tests} for n in range(4)]
    call_stage("rl", written(tmp_path / "p.jsonl", problems), model=str(coder), run=tmp_path / "run", **SMALL)
    rows = rollouts(tmp_path / "run")
    assert {"accepted", "wrong-answer"} <= {row["reason"] for row in rows}
    for row in rows:
        right = "print(3)" in row["completion"] and row["reason"] == "accepted"
        assert row["correct"] == right
        assert row["reward_correct"] == pytest.approx(0.9 * right)
    assert any(row["advantage"] for row in rows)


def test_a_custom_reward_trains(guesser, tmp_path):
    (tmp_path / "own.py").write_text("def threes(completion, row): return completion.count(row['digit'])\n")
    data = written(tmp_path / "p.jsonl", [{"id": f"p{n}", "prompt": f"{'abcd'[n]}?", "digit": "3"} for n in range(4)])
    options = {**SMALL, "reward": f"{tmp_path / 'own.py'}:threes"}
    call_stage("rl", data, model=str(guesser), run=tmp_path / "run", **options)
    rows = rollouts(tmp_path / "run")
    assert {row["reason"] for row in rows} == {"correct", "wrong"}
    assert all(row["reward"] == row["completion"].count("3") for row in rows)


def test_programs_of_a_model_are_evaluated_and_filtered(coder, tmp_path):
    tests = [{"input": "", "output": f"{number}"} for number in (3, 9)]
    problems = [
        {"id": id, "kind": "code", "prompt": "a?", "tests": [test]}
        for id, test in zip(("often", "never"), tests, strict=True)
    ]
    source = written(tmp_path / "p.jsonl", problems)
    asking = {"model": str(coder), "samples": 16, "max_tokens": 40, "system": Path("none")}
    kept = tmp_path / "completions.arrow"
    call_stage("evaluate", source, output=tmp_path / "e.arrow", completions=kept, ks="1,4", **asking)
    found = {
        row["metric"]: row["value"] for batch in table.read(str(tmp_path / "e.arrow")).rows for row in batch.to_pylist()
    }
    graded = [row for batch in table.read(str(kept)).rows for row in batch.to_pylist()]
    share = sum(row["reason"] == "accepted" for row in graded) / len(graded)
    assert 0 < share < 0.5
    assert found["pass@1"] == pytest.approx(share)
    dropped = tmp_path / "dropped.jsonl"
    call_stage("filter-math", source, output=tmp_path / "f.arrow", dropped=dropped, temperature=1.0, **asking)
    (row,) = [row for batch in table.read(str(tmp_path / "f.arrow")).rows for row in batch.to_pylist()]
    assert (row["id"], row["majority"], row["num_samples"]) == ("often", "", 16)
    assert 0 < row["pass_rate"] < 1
    assert [json.loads(line)["drop_reason"] for line in dropped.read_text().splitlines()] == ["never-solved"]
