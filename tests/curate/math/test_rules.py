"""The table of rules: each matches its example and not its counterexample, behind a word that gives it away."""

import pytest

from magcli.curate.math.engine import Engine, Rule
from magcli.curate.math.rules import ENGINE, RULES


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_matches_its_example_and_not_its_counterexample(rule: Rule) -> None:
    alone = Engine([rule])
    assert alone.words(rule.reason, rule.example)
    assert not alone.words(rule.reason, rule.counter)


def test_rules_have_unique_names_and_lower_case_triggers() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert all(rule.trigger == rule.trigger.lower() for rule in RULES)
    assert {rule.reason for rule in RULES} == set(ENGINE.by_reason)
