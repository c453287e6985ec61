"""The table of rules: each matches its example and not its counterexample, behind a word that gives it away."""

import pytest

from magcli.curate.math.rule_table import Rule, RuleTable
from magcli.curate.math.rules import RULES


@pytest.mark.parametrize("rule", RULES.rules, ids=lambda rule: rule.id)
def test_a_rule_matches_its_example_and_not_its_counterexample(rule: Rule) -> None:
    alone = RuleTable([rule])
    assert alone.matches(rule.reason, rule.example)
    assert not alone.matches(rule.reason, rule.counter)


def test_rules_have_unique_names_and_lower_case_triggers() -> None:
    assert len({rule.id for rule in RULES.rules}) == len(RULES.rules)
    assert all(rule.trigger == rule.trigger.lower() for rule in RULES.rules)


ANIMALS = RuleTable(
    [
        Rule("cat", "animal", "en", "cat|kitten", r"\bcat\b|kitten", "a cat", "a catalogue"),
        Rule("dog", "animal", "en", "dog", r"dogs?|bark", "a dog", "a god"),
        Rule("cat-zh", "animal", "zh", "", r"猫|\bmao\b", "猫", "狗"),
        Rule("end", "end", "any", "", r"\Z", "", ""),
    ]
)


def test_the_first_rule_in_the_table_wins_over_the_first_place_in_the_text() -> None:
    assert ANIMALS.matched_text("animal", "Dogs and a Cat!") == "Cat"
    assert ANIMALS.matched_text("animal", "A catalogue of gods") == ""
    assert [found[0] for found in ANIMALS.find_all("animal", "dogs, cat, dog")] == ["cat", "dogs", "dog"]


def test_a_rule_is_not_tried_without_its_trigger() -> None:
    assert not ANIMALS.matches("animal", "It barks.")
    assert ANIMALS.matched_text("animal", "It barks at the dog.") == "bark"


def test_a_rule_for_chinese_is_not_tried_on_ascii_text() -> None:
    assert not ANIMALS.matches("animal", "mao")
    assert ANIMALS.matched_text("animal", "mao，猫") == "mao"


def test_an_empty_match_is_named_by_its_reason() -> None:
    assert ANIMALS.matched_text("end", "") == "end"


def test_matches_are_replaced() -> None:
    assert ANIMALS.replace("animal", "a cat and 2 dogs", lambda found: found[0].upper()) == "a CAT and 2 DOGS"
    assert ANIMALS.replace("animal", "a cat and 2 dogs", "") == "a  and 2 "
