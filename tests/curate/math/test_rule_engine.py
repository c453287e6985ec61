"""The engine of the rules: triggers, languages, the first match, all matches, replacements."""

from magcli.curate.math.engine import Engine, Rule

ENGINE = Engine(
    [
        Rule("cat", "animal", "en", "cat|kitten", r"\bcat\b|kitten", "a cat", "a catalogue"),
        Rule("dog", "animal", "en", "dog", r"dogs?|bark", "a dog", "a god"),
        Rule("cat-zh", "animal", "zh", "", r"猫|\bmao\b", "猫", "狗"),
        Rule("end", "end", "any", "", r"\Z", "", ""),
    ]
)


def test_the_first_rule_in_the_table_wins_over_the_first_place_in_the_text() -> None:
    assert ENGINE.words("animal", "Dogs and a Cat!") == "Cat"
    assert ENGINE.words("animal", "A catalogue of gods") == ""
    assert [found[0] for found in ENGINE.every("animal", "dogs, cat, dog")] == ["cat", "dogs", "dog"]


def test_a_rule_is_not_tried_without_its_trigger() -> None:
    assert not ENGINE.matches("animal", "It barks.")
    assert ENGINE.words("animal", "It barks at the dog.") == "bark"


def test_a_rule_for_chinese_is_not_tried_on_ascii_text() -> None:
    assert not ENGINE.matches("animal", "mao")
    assert ENGINE.words("animal", "mao，猫") == "mao"


def test_an_empty_match_is_named_by_its_reason() -> None:
    assert ENGINE.words("end", "") == "end"


def test_matches_are_replaced() -> None:
    assert ENGINE.replaced("animal", "a cat and 2 dogs", lambda found: found[0].upper()) == "a CAT and 2 DOGS"
    assert ENGINE.replaced("animal", "a cat and 2 dogs", "") == "a  and 2 "
