"""The rows shipped with recipes/smollm2: complete, disjoint, right by the verifier, and dropped for the named flaw."""

import json
from collections import Counter
from pathlib import Path

import pytest

from magcli.curate.math.problems import Dropped, clean
from magcli.verify import math
from magcli.verify.format import Parts, gate

DATA = Path(__file__).parents[2] / "recipes" / "smollm2" / "data"
Row = dict[str, str]


def rows(name: str) -> list[Row]:
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def test_no_problem_is_in_two_files() -> None:
    names = ("problems.jsonl", "cold_start.jsonl", "test_svamp.jsonl", "test_gsm8k.jsonl", "instructions.jsonl")
    prompts = Counter(prompt for name in names for prompt in {row["prompt"] for row in rows(name)})
    assert set(prompts.values()) == {1}
    assert len(prompts) >= 2000


def test_traces_have_the_format_and_the_right_answer() -> None:
    for row in rows("cold_start.jsonl"):
        assert isinstance(gate(row["completion"]), Parts), row["id"]
        assert math.equal(math.extract(row["completion"]) or "", row["answer"]), row["id"]
        assert "<<" not in row["completion"]


@pytest.mark.parametrize("name", ["test_svamp.jsonl", "test_gsm8k.jsonl"])
def test_held_out_problems_pass_the_filter(name: str) -> None:
    for row in rows(name):
        assert clean(row["prompt"], row["answer"], parsable=math.parsable) == (row["prompt"], row["answer"], "")


def test_only_flawed_problems_are_dropped_each_for_its_flaw() -> None:
    reasons = Counter()
    for row in rows("problems.jsonl"):
        decided = clean(row["prompt"], row["answer"], parsable=math.parsable)
        flaw = row["source"].removeprefix("flawed/") if row["source"].startswith("flawed/") else ""
        assert not isinstance(decided, Dropped) or decided.reason == flaw, row["id"]
        reasons[decided.reason if isinstance(decided, Dropped) else decided.note] += 1
    assert reasons.pop("") == 240
    assert set(reasons.values()) == {20}
    assert set(reasons) == {
        *("proof", "multi-part", "incomplete", "no-answer", "prose-answer", "multiple-choice", "opened")
    }
