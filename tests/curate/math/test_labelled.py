"""The hand-labelled sample: halves by digest, later parts that repeat nothing, labels, notes and digests."""

import json
import re
from pathlib import Path

import pytest
from labelled.columns import COLUMNS, boxed, digest, half_of, problem_of, read

HERE = Path(__file__).parent / "labelled"
BY_DIGEST = {"seen": "clean_math.jsonl", "held-out": "clean_math_held_out.jsonl"}
LATER = {
    "unseen": "clean_math_unseen.jsonl",
    "foreign": "clean_math_foreign.jsonl",
    "fresh": "clean_math_fresh.jsonl",
    "foreign-held-out": "clean_math_foreign_held_out.jsonl",
    "outside": "clean_math_outside.jsonl",
    "outside-held-out": "clean_math_outside_held_out.jsonl",
    "rl": "clean_math_rl.jsonl",
}
PARTS = BY_DIGEST | LATER
ROWS = [row for name in PARTS.values() for row in read(HERE / name)]
LABELS = [
    "incomplete", "proof", "multi-part", "prose-answer", "unparsable-answer",
    "missing-answer", "choice-rewrite", "choice-drop", "keep",
]  # fmt: skip


@pytest.mark.parametrize("half", BY_DIGEST)
def test_halves_follow_the_digest(half: str) -> None:
    rows = read(HERE / BY_DIGEST[half])
    assert len(rows) > 300
    assert {half_of(row["sha256"]) for row in rows} == {row["half"] for row in rows} == {half}


@pytest.mark.parametrize("part", LATER)
def test_a_later_part_repeats_nothing(part: str) -> None:
    rows = read(HERE / PARTS[part])
    assert len(rows) > 300
    assert {row["half"] for row in rows} == {part}
    earlier = [row for name in list(PARTS)[: list(PARTS).index(part)] for row in read(HERE / PARTS[name])]
    assert {row["sha256"] for row in rows}.isdisjoint(row["sha256"] for row in earlier)
    problems = [{re.sub(r"\W+", "", row["problem"]) for row in each if "problem" in row} for each in (rows, earlier)]
    assert problems[0].isdisjoint(problems[1])


def test_every_row_has_its_fields() -> None:
    assert {row["label"] for row in ROWS} == set(LABELS)
    assert all(re.fullmatch("[0-9a-f]{16}", row["sha256"]) and row["note"] for row in ROWS)
    assert all(("open_answer" in row) == (row["label"] == "choice-rewrite") for row in ROWS)
    assert all(("problem" in row) == ("answer" in row) for row in ROWS)
    assert len({(row["source"], row["row"]) for row in ROWS}) == len(ROWS)
    assert {row["source"] for row in ROWS} == set(COLUMNS) == {row["source"] for row in read(HERE / "sources.jsonl")}


def test_inputs_are_taken_from_the_right_columns() -> None:
    letters = {"question": "q", "label": "B", "options": {"B": "2", "A": "1"}}
    assert problem_of("gaokao_math_qa_zh.jsonl", letters) == ("q", "B", ["1", "2"])
    assert problem_of("mawps_addsub.jsonl", {"input": "1 + 1 ?", "target": 2.0}) == ("1 + 1 ?", "2.0", None)
    assert problem_of("gsm8k_test.jsonl", {"question": "q", "answer": "steps\n#### 7"}) == ("q", "7", None)
    assert problem_of("math_train.json", {"problem": "p", "answer": None}).answer is None
    assert boxed(r"so \boxed{a} and \boxed{\frac{1}{2}}.") == r"\frac{1}{2}"
    assert boxed("none") is None
    assert digest({"b": "½", "a": 1}) == digest(json.loads('{"a": 1, "b": "\\u00bd"}')) != digest({"a": 1})
