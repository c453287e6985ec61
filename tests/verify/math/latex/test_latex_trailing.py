"""Words after a value: counted nouns are ignored; operations, doubt and negation change the value."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magcli.verify.math.latex.tree import ParseError, num
from magcli.verify.math.latex.units import ALWAYS_CHANGING, FILLER, NUMBERS, VALUE_CHANGING, unit_words
from magcli.verify.math.latex.wording import changes_number

NO_NOUNS = VALUE_CHANGING.union(*FILLER)
NOUNS = st.text("abcdefghijklmnopqrstuvwxyz", min_size=4, max_size=9).filter(
    lambda word: word not in NO_NOUNS and not changes_number(word)
)
NUMBER = num(12)


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("apples", "apples"),
        ("apples in total", "apples"),
        ("more apples", "more apples"),
        ("ways to choose", "ways to choose"),
        ("cups of tea", "cups of tea"),
        ("left over", "left over"),
        ("times", "times"),
        ("times a week", "times a week"),
        ("two-digit numbers", "two-digit numbers"),
        ("square feet", "square feet"),
        ("percent increase", "percent increase"),
        ("only", ""),
        ("(twelve)", ""),
        ("m", "m"),
    ],
)
def test_units_and_counted_things_stay(words: str, left: str) -> None:
    assert unit_words(NUMBER, words.split()) == left.split()


@pytest.mark.parametrize(
    "words",
    [
        "squared", "dozen eggs cubed", "more", "more than x", "or 13", "(or 13)", "of them", "times x",
        "point five", "(eleven)", "square root", "percent of it", "percent off", "M", "k", "to thirteen",
        "cm to thirteen", "is wrong", "apples not pears", "apples?", "apples minus pears", "if even", "base eight",
    ],
)  # fmt: skip
def test_words_that_make_another_value_are_refused(words: str) -> None:
    with pytest.raises(ParseError):
        unit_words(NUMBER, words.split())


@settings(max_examples=60, deadline=None)
@given(st.lists(NOUNS, min_size=1, max_size=3))
def test_unknown_words_do_not_matter(nouns: list[str]) -> None:
    assert unit_words(NUMBER, nouns) == nouns


@settings(max_examples=60, deadline=None)
@given(st.lists(NOUNS, max_size=2), st.sampled_from(sorted(ALWAYS_CHANGING)), st.lists(NOUNS, max_size=2))
def test_an_operation_in_words_changes_the_value(before: list[str], word: str, after: list[str]) -> None:
    alone = not before and not after and num(NUMBERS.get(word, 0)) == NUMBER
    if not alone and not (word == "over" and before[-1:] == ["left"]):
        with pytest.raises(ParseError):
            unit_words(NUMBER, [*before, word, *after])
