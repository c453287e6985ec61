"""Pairs of every kind of answer in ``math_kinds.jsonl``, judged by hand; each is compared both ways round."""

import json
from pathlib import Path

import pytest

from magcli.verify.math import compare, parsable

CASES = [json.loads(line) for line in Path(__file__).with_name("math_kinds.jsonl").read_text().splitlines()]
READABLE = [case for case in CASES if case["same"] and case["kind"] != "giant"]


def named(case: dict[str, str]) -> str:
    return f"{case['kind']}: {case['left']} | {case['right']}"


@pytest.mark.parametrize("case", CASES, ids=named)
def test_kinds_of_answers_either_way(case: dict[str, str]) -> None:
    found = [compare(case["left"], case["right"]), compare(case["right"], case["left"])]
    assert [same for same, _ in found] == [case["same"]] * 2, found


@pytest.mark.parametrize("case", READABLE, ids=named)
def test_every_answer_is_itself_and_a_ground_truth(case: dict[str, str]) -> None:
    for text in (case["left"], case["right"]):
        assert compare(text, f"\\boxed{{{text}}}")[0]
        assert parsable(text)
