"""Difficulty: classes of equal answers, pass rates, and which problems stay."""

import itertools
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magcli.curate.math.difficulty import (
    Rules,
    SampleCounts,
    Summary,
    answer_classes,
    band,
    count_samples,
    judge,
    needed,
    settled,
    summarise,
)
from magcli.errors import UsageError

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


def test_equality_is_checked_only_for_different_texts() -> None:
    asked: list[tuple[str, str]] = []

    def never(left: str, right: str) -> bool:
        asked.append((left, right))
        return False

    answer_classes(["a"] * 50 + ["b"] * 30 + ["c"], never)
    assert asked == [("b", "a"), ("c", "a"), ("c", "b")]


@given(samples)
def test_largest_class_by_value(pairs: list[tuple[str, bool]]) -> None:
    answers, correct = [text for text, _ in pairs], [right for _, right in pairs]
    summary = summarise(answers, correct, equal_numbers)
    values = Counter(Fraction(text) for text in answers if text)
    assert summary.majority_share * len(pairs) == pytest.approx(max(values.values(), default=0))
    assert bool(summary.majority) == bool(values)
    assert summary.pass_rate * len(pairs) == pytest.approx(sum(correct))


@given(samples, st.randoms(use_true_random=False))
def test_the_order_of_samples_does_not_matter(pairs: list[tuple[str, bool]], random) -> None:
    shuffled = list(pairs)
    random.shuffle(shuffled)
    one, other = (summarise([a for a, _ in each], [c for _, c in each], equal_numbers) for each in (pairs, shuffled))
    assert (one.pass_rate, one.majority_share) == (other.pass_rate, other.majority_share)


def decide(pass_rate: float, *, share: float = 0.0, matches: bool = False, drop_suspect: bool = True) -> str:
    summary = Summary(pass_rate, 16, "7" if share else "", share)
    return judge(summary, Rules(0.1, 0.8, drop_suspect), gold_matches_majority=matches)


def test_the_first_pass_keeps_the_band() -> None:
    assert decide(0.0) == "never-solved"
    assert decide(1 / 16) == "too-hard"
    assert decide(0.1) == decide(0.8) == "kept"
    assert decide(13 / 16) == "too-easy"


def test_majority_against_the_ground_truth_is_suspect_only_on_request() -> None:
    assert decide(0.0, share=0.6) == "suspect-gold"
    assert decide(0.3, share=0.6) == "suspect-gold"
    assert decide(0.0, share=0.6, drop_suspect=False) == "never-solved"
    assert decide(0.3, share=0.5) == "kept"
    assert decide(0.6, share=0.6, matches=True) == "kept"


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_a_problem_is_kept_exactly_inside_the_band(rate: float, one: float, other: float) -> None:
    low, high = sorted((one, other))
    verdict = judge(Summary(rate, 16, "", 0.0), Rules(low, high, drop_suspect=True), gold_matches_majority=False)
    assert (verdict == "kept") == (low <= rate <= high)


@pytest.mark.parametrize(("text", "found"), [("0.01..0.9", (0.01, 0.9)), ("0..1", (0.0, 1.0)), (".5...5", (0.5, 0.5))])
def test_a_band_has_two_rates(text: str, found: tuple[float, float]) -> None:
    assert band(text) == found


@pytest.mark.parametrize("text", ["0.9..0.1", "0.1", "0.1-0.9", "..", "-1..0.5", "0..2", "nan..1", "0..1..2"])
def test_an_invalid_band_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"filter-math\.keep: "):
        band(text)


# ---- adaptive sampling ----

GOLD = "7"
outcomes = st.lists(
    st.one_of(
        st.sampled_from(["7", "7.0", "14/2"]).map(lambda text: (text, True)),
        st.sampled_from(["7", "0.5", "1/2", "3", "4", EMPTY]).map(lambda text: (text, False)),
        st.none(),  # not graded
    ),
    min_size=1,
    max_size=12,
)
rules = st.builds(
    lambda ends, suspect: Rules(*sorted(ends), suspect),
    st.tuples(st.sampled_from([0, 0.01, 0.25, 0.5, 0.9, 1]), st.sampled_from([0, 0.1, 0.5, 0.85, 1])),
    st.booleans(),
)


def is_gold(answer: str) -> bool:
    return equal_numbers(answer, GOLD)


def outcome(samples: list[tuple[str, bool] | None], with_rules: Rules) -> str:
    """What becomes of a problem, by all of these samples."""
    judged = [each for each in samples if each is not None]
    if not judged:
        return "nothing"
    summary = summarise([text for text, _ in judged], [right for _, right in judged], equal_numbers)
    return judge(summary, with_rules, gold_matches_majority=not summary.majority or is_gold(summary.majority))


def is_settled(samples: list[tuple[str, bool] | None], remaining: int, with_rules: Rules) -> bool:
    judged = [each for each in samples if each is not None]
    answers, right = [text for text, _ in judged], [right for _, right in judged]
    return settled(counted(answers, right, with_rules), remaining, with_rules)


def counted(answers: list[str], right: list[bool], with_rules: Rules) -> SampleCounts:
    return count_samples(answers, right, with_rules, same=equal_numbers, is_gold=is_gold)


@settings(max_examples=500, deadline=None)
@given(outcomes, rules)
def test_an_early_decision_is_the_decision_of_all_samples(
    samples: list[tuple[str, bool] | None], with_rules: Rules
) -> None:
    for made in range(1, len(samples)):
        if is_settled(samples[:made], len(samples) - made, with_rules):
            assert outcome(samples[:made], with_rules) == outcome(samples, with_rules)


EVERY = [("7", True), ("7", False), ("3", False), ("4", False), (EMPTY, False), None]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(EVERY), min_size=1, max_size=8), st.integers(1, 3), rules)
def test_an_undecided_problem_could_still_go_either_way(
    samples: list[tuple[str, bool] | None], remaining: int, with_rules: Rules
) -> None:
    """Against all that could follow: no certainty is missed, but where a majority below one half may tie."""
    outcomes = {outcome([*samples, *more], with_rules) for more in itertools.product(EVERY, repeat=remaining)}
    found = is_settled(samples, remaining, with_rules)
    assert not found or len(outcomes) == 1
    if not with_rules.drop_suspect and outcomes != {"nothing"} and any(samples):
        assert found == (len(outcomes) == 1)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(EVERY), max_size=6), st.integers(0, 3), rules)
def test_the_minimum_number_of_samples_can_decide_a_problem(
    samples: list[tuple[str, bool] | None], remaining: int, with_rules: Rules
) -> None:
    def may(more: int) -> bool:
        outcomes = itertools.product(EVERY, repeat=more)
        return any(is_settled([*samples, *each], remaining - more, with_rules) for each in outcomes)

    judged = [each for each in samples if each is not None]
    found = counted([text for text, _ in judged], [right for _, right in judged], with_rules)
    least = needed(found, remaining, with_rules)
    assert 0 <= least <= remaining
    assert least == remaining or may(least)
    assert not any(may(fewer) for fewer in range(least))


@pytest.mark.parametrize(
    ("number", "with_rules", "first"),
    [
        (16, Rules(0.01, 0.9), 3),
        (16, Rules(0.01, 0.9, drop_suspect=True), 8),
        (16, Rules(0.2, 0.8), 8),
        (16, Rules(0.0, 1.0), 1),
        (4, Rules(0.01, 0.9), 2),
        (4, Rules(0.01, 0.9, drop_suspect=True), 2),
        (1, Rules(0.01, 0.9), 1),
    ],
)
def test_the_first_wave_has_the_minimum_that_can_decide(number: int, with_rules: Rules, first: int) -> None:
    assert needed(SampleCounts(0, 0, 0, 0), number, with_rules) == first


def test_few_samples_decide_within_the_band_and_most_are_needed_at_its_edges() -> None:
    def needed(outcomes: str, with_rules: Rules) -> int:
        samples: list[tuple[str, bool] | None] = [("7", True) if each == "1" else ("3", False) for each in outcomes]
        return next(k for k in range(1, 17) if k == 16 or is_settled(samples[:k], 16 - k, with_rules))

    paper = Rules(0.01, 0.9)
    assert needed("0100000000000000", paper) == 3
    assert needed("1111111111111111", paper) == 15
    assert needed("0000000000000000", paper) == 16
    assert needed("0000000000000000", paper._replace(drop_suspect=True)) == 9
    assert needed("1111100001111111", paper._replace(drop_suspect=True)) == 12
