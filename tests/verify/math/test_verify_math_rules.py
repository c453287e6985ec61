"""The pairs of answers in ``docs/math-rules.toml``, which the documentation shows, are judged as it says."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from magcli.verify.math import compare, parsable

TABLE = Path(__file__).parents[3] / "docs" / "math-rules.toml"
RULES = tomllib.loads(TABLE.read_text(encoding="utf-8"))["rule"]


def expected_verdicts(rule: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """(answer, ground truth, whether it is right): every pair of a rule, symmetric ones in both directions."""
    verdicts = []
    for key, right in (("equal", True), ("different", False)):
        for one, other in rule.get(key, []):
            verdicts += [(one, other, right), (other, one, right)]
    for key, right in (("right", True), ("wrong", False)):
        verdicts += [(answer, gold, right) for answer, gold in rule.get(key, [])]
    return verdicts


@pytest.mark.parametrize("rule", RULES, ids=[f"{number}-{rule['topic']}" for number, rule in enumerate(RULES)])
def test_a_rule_holds_for_its_answers(rule: dict[str, Any]) -> None:
    verdicts = expected_verdicts(rule)
    assert verdicts
    wrong = []
    for answer, gold, right in verdicts:
        found, path = compare(answer, gold, rule.get("question", ""))
        if found != right:
            wrong.append(f"{answer} | {gold}: {found} by {path}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("rule", RULES, ids=[f"{number}-{rule['topic']}" for number, rule in enumerate(RULES)])
def test_a_rule_has_only_the_known_keys_and_its_ground_truths_can_be_graded(rule: dict[str, Any]) -> None:
    assert rule.keys() <= {"topic", "says", "question", "equal", "different", "right", "wrong"}
    for answer, gold, right in expected_verdicts(rule):
        assert not right or parsable(gold), f"{answer} | {gold}"
