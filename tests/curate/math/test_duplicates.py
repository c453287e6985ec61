"""Duplicates: equal and nearly equal statements of one set, whatever their order; other numbers are other problems."""

import json
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.curate.math.duplicates import (
    EvaluationIndex,
    EvaluationRow,
    StatementIndex,
    components,
    index_evaluations,
)
from magcli.curate.math.words import jaccard, mathematics_of, shingles_of, tokens_of
from magcli.errors import DataError
from magcli.verify.math import equal

TRAIN = "A train leaves the station at 9 in the morning and travels 60 miles per hour for 3 hours. How far does it go?"


def found(rows: list[tuple[str, str, str]], similarity: float = 0.7) -> set[tuple[int, str, int]]:
    seen = StatementIndex(equal)
    for row in rows:
        seen.add(*row)
    return {tuple(duplicate) for duplicate in seen.duplicates(similarity)}


def test_statements_that_differ_only_in_spaces_are_duplicates() -> None:
    rows = [("b", "What is  1 + 1?", "2"), ("a", "What is 1 +\n1?", "2"), ("c", "What is 2 + 1?", "3")]
    assert found(rows) == found(rows, 1.0) == {(0, "duplicate", 1)}


@pytest.mark.parametrize(
    ("other", "answer", "near"),
    [
        (TRAIN.replace("station", "terminal").replace("the morning", "the evening"), "180", True),
        (TRAIN.replace("How far does it go?", "How far does it travel in total?"), "$180$.", True),
        (TRAIN.replace("3 hours", "three hours"), "180.0", True),
        (TRAIN.replace("station", "sttaion"), "180", True),
        (TRAIN.replace("A train", "The train").replace("How far", "So how far"), "180", True),
        (TRAIN.replace("60", "70"), "180", False),
        (TRAIN.replace("station", "terminal"), "210", False),
        (TRAIN.replace("How far does it go?", "How far does it not go?"), "180", False),
        (TRAIN.replace("A train leaves", "The least train leaves"), "180", True),
        (
            "A ship sails at 60 knots from 9 on and 3 of its sails tear. How many knots does it make in all?",
            "180",
            False,
        ),
    ],
)
def test_near_duplicates_have_the_same_mathematics_and_answer(other: str, answer: str, near: bool) -> None:
    gone = found([("a", TRAIN, "180"), ("b", other, answer)])
    assert gone == ({(1, "near-duplicate", 0)} if near else set())


def templated(text: str, fillers: str, answer: str) -> list[tuple[str, str, str]]:
    return [(f"{number:03}", text.format(filler), answer) for number, filler in enumerate(fillers.split())]


RULES = (
    "A word is a palindrome if its letters read the same from the right as from the left, so that the first is the "
    "last, the second is the last but one, and so on. Say True if the word below is one, else False."
)
GIFT = "{} received 50 dollars as a gift, and bought two tapes for 9 dollars each. How much money is left in the end?"


@pytest.mark.parametrize(
    "rows",
    [
        templated(f"{RULES}\n\n{{}}", "level radar noon deed civic kayak rotor madam refer", "True"),
        templated(f"Example 1: abba is True. {RULES}\n\n{{}}", "level radar noon deed civic kayak rotor madam", "True"),
        templated(f"Words in quotes have 5 letters. {RULES} Word: '{{}}'", "level radar", "True"),
        templated("In how many ways can all 5 letters of the word {} be put in a row?", "RADII PROOF GEESE", "60"),
        templated(GIFT, "Amanda Josie", "32"),
        templated(
            "Let $n$ be the {} positive multiple of 15 whose digits are all 8 or 0. Find n / 15.", "least most", "592"
        ),
        templated(
            "Let $f$ and $g$ be {} functions. Is the product $f(x) g(x)$ even, odd or neither?", "odd even", "even"
        ),
    ],
)
def test_what_is_filled_into_a_template_makes_other_problems(rows: list[tuple[str, str, str]]) -> None:
    assert found(rows) == set()


def test_a_large_template_has_copies_and_rewordings_of_its_problems() -> None:
    words = [f"{one}{two}{one}{two}" for one in "abcdefghijklmnopqrst" for two in "uvwxyz"]
    rows = templated(f"{RULES}\n\n{{}}", " ".join(words), "False")
    rows.append(("copy", rows[7][1].replace("True", "TRUE"), "False"))
    rows.append(("reworded", rows[9][1].replace("Say True if", "Please give True if"), "False"))
    assert found(rows) == {(120, "duplicate", 7), (121, "near-duplicate", 9)}


def test_contradicting_answers_to_one_statement_drop_all_its_rows() -> None:
    rows = [
        ("a", TRAIN, "7"),
        ("b", TRAIN, "10"),
        ("c", TRAIN.replace(". How", ".\n\nHow"), "10"),
        ("d", "1 + 1?", "2"),
    ]
    reason = "conflicting-answers"
    assert found(rows) == found(rows, 1.0) == {(0, reason, 1), (1, reason, 0), (2, reason, 0)}


@pytest.mark.parametrize(
    ("one", "other", "reason"),
    [
        ("180", "180.0", "duplicate"),
        ("\\frac{1}{2}", "0.5", "duplicate"),
        ("2\\sqrt{3}", "\\sqrt{12}", "duplicate"),
        ("180", "210", "conflicting-answers"),
        ("True", "False", "conflicting-answers"),
    ],
)
@pytest.mark.parametrize("change", [str, str.upper, lambda text: text.replace(".", " .").removesuffix("?")])
def test_answers_contradict_unless_the_verifier_takes_them_as_equal(
    one: str, other: str, reason: str, change: Callable[[str], str]
) -> None:
    assert {why for _, why, _ in found([("a", TRAIN, one), ("b", change(TRAIN), other)])} == {reason}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What is $88 \\div (4 \\div 2)$?", "What is $88 \\div 4 \\div 2$?"),
        ("Find $A$ if $A + 2a = 3$ and $a = 1$.", "Find $a$ if $A + 2a = 3$ and $a = 1$."),
        ("What is $5!$?", "What is $5$?"),
        ("Read this word:\n#  #\n# #", "Read this word:\n# #\n#  #"),
        ("What is $1.5 + 2$?", "What is $15 + 2$?"),
    ],
)
def test_other_statements_may_have_other_answers(one: str, other: str) -> None:
    assert found([("a", one, "1"), ("b", other, "2")]) == set()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Find $\\dfrac12+\\left(3\\right)$.", "Find $\\frac{1}{2} + (3)$.", True),
        ("Pay 1,000 dollars", "Pay 1000 dollars", True),
        ("Two pens and 3 cups", "2 pens and three cups", True),
        ("$x+1=2$", "$x-1=2$", False),
        ("$\\sin 30$", "$\\cos 30$", False),
        ("a 3-digit number", "a 3 digit number", True),
    ],
)
def test_mathematics_is_compared_without_its_formatting(one: str, other: str, same: bool) -> None:
    assert (mathematics_of(one) == mathematics_of(other)) == same


def test_chinese_is_read_by_character() -> None:
    assert tokens_of("小明有3个苹果，$x=1.5$") == ["小", "明", "有", "3", "个", "苹", "果", "x", "1.5"]
    one, other = (
        "小明有3个苹果，又买了5个苹果，现在一共有多少个苹果？",
        "小红有3个苹果，又买了5个苹果，现在一共有多少个苹果？",
    )
    assert found([("a", one, "8"), ("b", other, "8")]) == {(1, "near-duplicate", 0)}


def test_the_kept_row_does_not_depend_on_the_order() -> None:
    texts = [
        TRAIN,
        TRAIN.replace("station", "terminal"),
        TRAIN.replace("leaves", "departs from"),
        TRAIN.replace(" ", "  "),
    ]
    rows = [(f"id{i}", text, "180") for i, text in enumerate(texts * 2)]
    stay = set()
    for seed in range(8):
        order = random.Random(seed).sample(rows, len(rows))
        gone = {number for number, _, _ in found(order)}
        stay.add(tuple(order[number][0] for number in range(len(order)) if number not in gone))
    assert stay == {("id0",)}


@given(st.lists(st.frozensets(st.sampled_from("abcdefgh"), min_size=1), max_size=12))
def test_clusters_are_connected_by_similar_pairs(sets: list[frozenset[str]]) -> None:
    for cluster in components(sets, 0.8):
        for index in cluster:
            assert any(jaccard(sets[index], sets[other]) >= 0.8 for other in cluster if other != index)


def test_almost_every_pair_above_the_threshold_is_found() -> None:
    chooser = random.Random(0)
    found_pairs = pairs = 0
    for _ in range(300):
        words = [f"w{chooser.randrange(10**6)}" for _ in range(40)]
        one = " ".join(words)
        words[chooser.randrange(40)] = "other"
        two = " ".join(words)
        if jaccard(shingles_of(one), shingles_of(two)) >= 0.8:
            pairs += 1
            found_pairs += len(components([shingles_of(one), shingles_of(two)], 0.8))
    assert pairs > 250
    assert found_pairs >= 0.99 * pairs


LONG = (
    "A rectangular garden is 12 metres long and 7 metres wide and is surrounded by a gravel path of constant width "
    "whose area is 66 square metres. Find the width of the path."
)
END = "can be written as $m/n$, where $m$ and $n$ are relatively prime positive integers. Find $m+n$."
FRACTION = f"Four cards are drawn from a pack of 52. The probability that all of them are of one colour {END}"
SHORT = "What is $3^4 - 5$?"


@pytest.fixture(scope="module")
def evaluations() -> EvaluationIndex:
    found = EvaluationIndex()
    for name, statement in (("long", LONG), ("fraction", FRACTION), ("short", SHORT)):
        found.add(EvaluationRow("eval.jsonl", name), statement)
    return found


@pytest.mark.parametrize(
    ("statement", "row"),
    [
        (LONG, "long"),
        (LONG.upper().replace(" ", "\n"), "long"),
        (f"Solve this problem. {LONG} Give your answer in metres, rounded to 2 decimals.", "long"),
        (LONG.removesuffix(" Find the width of the path.") + " How wide is the path?", "long"),
        (LONG.replace("12", "14"), None),
        (LONG.replace("A rectangular garden", "A garden"), "long"),
        (f"Three dice are thrown. The probability that their sum is odd and over 52 {END}", None),
        (FRACTION, "fraction"),
        ("What is $3^{4}-5$?", "short"),
        ("What is $3^4 + 5$?", None),
        ("What is $3^4 - 6$?", None),
        ("", None),
    ],
)
def test_hits(evaluations: EvaluationIndex, statement: str, row: str | None) -> None:
    assert evaluations.match(statement) == (EvaluationRow("eval.jsonl", row) if row else None)


def test_statements_are_found_and_rows_named_by_id_or_number(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"id": 7, "problem": LONG}) + "\n")
    (tmp_path / "b.csv").write_text("question,answer\nnone,1\n" + json.dumps(SHORT) + ",76\n")
    found = index_evaluations([tmp_path / "a.jsonl", tmp_path / "b.csv"])
    assert found.match(LONG) == EvaluationRow("a.jsonl", "7")
    assert found.match(SHORT) == EvaluationRow("b.csv", "1")


def test_facts_in_a_separate_column_are_part_of_the_statement(tmp_path) -> None:
    row = {"body": "Ann has 3 pears.", "question": "How many are there?"}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    found = index_evaluations([tmp_path / "a.jsonl"])
    assert found.match("Ann has 3 pears. How many are there?") == EvaluationRow("a.jsonl", "0")
    assert found.match("How many are there?") is None


def test_a_table_without_statements_is_refused_by_name(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n')
    with pytest.raises(DataError, match=r"a\.jsonl has none of the columns prompt, problem"):
        index_evaluations([tmp_path / "a.jsonl"])


def test_a_table_with_a_broken_line_is_refused(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"problem": LONG}) + '\n{"problem": \n')
    with pytest.raises(DataError, match=r"a\.jsonl has unreadable lines: line 2 \(broken-json\)"):
        index_evaluations([tmp_path / "a.jsonl"])
