"""Manually judged pairs of every kind of answer in ``math_kinds.jsonl``; each is compared in both directions."""

import json
from pathlib import Path

import pytest

from magcli.verify.math import compare, parsable

QUANTITIES = [json.loads(line) for line in Path(__file__).with_name("math_quantities.jsonl").read_text().splitlines()]
CASES = [json.loads(line) for line in Path(__file__).with_name("math_kinds.jsonl").read_text().splitlines()]
KINDS = sorted({case["kind"] for case in CASES})


@pytest.mark.parametrize("kind", KINDS)
def test_verdicts_on_kinds_of_answers_are_symmetric(kind: str) -> None:
    wrong = []
    for case in (case for case in CASES if case["kind"] == kind):
        for prediction, gold in ((case["left"], case["right"]), (case["right"], case["left"])):
            same, path = compare(prediction, gold)
            if same != case["same"]:
                wrong.append(f"{prediction} | {gold}: {same} by {path}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_equals_itself_in_a_box(kind: str) -> None:
    for case in (case for case in CASES if case["kind"] == kind and case["same"]):
        for text in (case["left"], case["right"]):
            assert compare(text, f"\\boxed{{{text}}}")[0], text
            assert parsable(text), text


def test_named_quantities_and_bare_values() -> None:
    """This rule depends on which side is the ground truth, so these are judged in one direction."""
    wrong = [case for case in QUANTITIES if compare(case["prediction"], case["gold"])[0] != case["same"]]
    assert not wrong, "\n".join(map(str, wrong))
