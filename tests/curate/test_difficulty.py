"""Difficulty: classes of equal answers, pass rates, and which problems stay."""

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.curate.difficulty import Summary, answer_classes, judge, summarise

EMPTY = ""
texts = st.sampled_from(["1/2", "0.5", "2/4", "3", "3.0", "6/2", "7", EMPTY, " 3 "])
samples = st.lists(st.tuples(texts, st.booleans()), min_size=1, max_size=40)


def equal_numbers(left: str, right: str) -> bool:
    return Fraction(left) == Fraction(right)


def test_spellings_of_one_value_form_one_class() -> None:
    summary = summarise(["0.5", "1/2", "3", "1/2"], [False] * 4, equal_numbers)
    assert summary == Summary(pass_rate=0.0, num_samples=4, majority="1/2", majority_share=0.75)


def test_samples_without_an_answer_form_no_majority() -> None:
    assert summarise([EMPTY, EMPTY, "  "], [False] * 3, equal_numbers) == Summary(0.0, 3, "", 0.0)
    assert summarise([EMPTY, EMPTY, "7"], [False, False, True], equal_numbers) == Summary(1 / 3, 3, "7", 1 / 3)


def test_equality_is_asked_about_different_texts_only() -> None:
    asked: list[tuple[str, str]] = []

    def never(left: str, right: str) -> bool:
        asked.append((left, right))
        return False

    answer_classes(["a"] * 50 + ["b"] * 30 + ["c"], never)
    assert asked == [("b", "a"), ("c", "a"), ("c", "b")]


@pytest.mark.parametrize(("answers", "correct"), [([], []), (["1"], []), (["1"], [True, False])])
def test_lengths_must_agree(answers: list[str], correct: list[bool]) -> None:
    with pytest.raises(ValueError, match="verdicts"):
        summarise(answers, correct, equal_numbers)


@given(samples)
def test_largest_class_by_value(pairs: list[tuple[str, bool]]) -> None:
    answers, correct = [text for text, _ in pairs], [right for _, right in pairs]
    summary = summarise(answers, correct, equal_numbers)
    values = Counter(Fraction(text) for text in answers if text)
    assert summary.majority_share * len(pairs) == pytest.approx(max(values.values(), default=0))
    assert bool(summary.majority) == bool(values)
    assert summary.pass_rate * len(pairs) == pytest.approx(sum(correct))


@given(samples, st.randoms(use_true_random=False))
def test_order_of_samples_changes_no_number(pairs: list[tuple[str, bool]], random) -> None:
    shuffled = list(pairs)
    random.shuffle(shuffled)
    one, other = (summarise([a for a, _ in each], [c for _, c in each], equal_numbers) for each in (pairs, shuffled))
    assert (one.pass_rate, one.majority_share) == (other.pass_rate, other.majority_share)


def decide(pass_rate: float, *, share: float = 0.0, matches: bool = False, drop_suspect: bool = True) -> str:
    summary = Summary(pass_rate, 16, "7" if share else "", share)
    return judge(summary, low=0.1, high=0.8, drop_suspect=drop_suspect, gold_matches_majority=matches)


def test_first_pass_keeps_the_band() -> None:
    assert decide(0.0) == "never-solved"
    assert decide(1 / 16) == "too-hard"
    assert decide(0.1) == decide(0.8) == "kept"
    assert decide(13 / 16) == "too-easy"


def test_majority_against_the_ground_truth_is_suspect_only_when_asked() -> None:
    assert decide(0.0, share=0.6) == "suspect-gold"
    assert decide(0.3, share=0.6) == "suspect-gold"
    assert decide(0.0, share=0.6, drop_suspect=False) == "never-solved"
    assert decide(0.3, share=0.5) == "kept"
    assert decide(0.6, share=0.6, matches=True) == "kept"


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_kept_exactly_inside_the_band(rate: float, one: float, other: float) -> None:
    low, high = sorted((one, other))
    verdict = judge(Summary(rate, 16, "", 0.0), low=low, high=high, drop_suspect=True, gold_matches_majority=False)
    assert (verdict == "kept") == (low <= rate <= high)
