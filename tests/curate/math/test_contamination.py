"""Decontamination: what evaluation sets hold is found, reworded at its ends or not; boilerplate is no hit."""

import json

import pytest

from magcli.curate.math.contamination import Evaluations, Source, read_evaluations
from magcli.errors import DataError

LONG = (
    "A rectangular garden is 12 metres long and 7 metres wide and is surrounded by a gravel path of constant width "
    "whose area is 66 square metres. Find the width of the path."
)
END = "can be written as $m/n$, where $m$ and $n$ are relatively prime positive integers. Find $m+n$."
FRACTION = f"Four cards are drawn from a pack of 52. The probability that all of them are of one colour {END}"
SHORT = "What is $3^4 - 5$?"


@pytest.fixture(scope="module")
def evaluations() -> Evaluations:
    found = Evaluations()
    for name, statement in (("long", LONG), ("fraction", FRACTION), ("short", SHORT)):
        found.add(Source("eval.jsonl", name), statement)
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
def test_hits(evaluations: Evaluations, statement: str, row: str | None) -> None:
    assert evaluations.hit(statement) == (Source("eval.jsonl", row) if row else None)


def test_statements_are_found_and_rows_named_by_id_or_number(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"id": 7, "problem": LONG}) + "\n")
    (tmp_path / "b.csv").write_text("question,answer\nnone,1\n" + json.dumps(SHORT) + ",76\n")
    found = read_evaluations([tmp_path / "a.jsonl", tmp_path / "b.csv"])
    assert found.hit(LONG) == Source("a.jsonl", "7")
    assert found.hit(SHORT) == Source("b.csv", "1")


def test_facts_in_a_separate_column_are_part_of_the_statement(tmp_path) -> None:
    row = {"body": "Ann has 3 pears.", "question": "How many are there?"}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    found = read_evaluations([tmp_path / "a.jsonl"])
    assert found.hit("Ann has 3 pears. How many are there?") == Source("a.jsonl", "0")
    assert found.hit("How many are there?") is None


def test_a_table_without_statements_is_refused_by_name(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n')
    with pytest.raises(DataError, match=r"a\.jsonl has no column prompt, problem"):
        read_evaluations([tmp_path / "a.jsonl"])


def test_a_table_with_a_broken_line_is_refused(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"problem": LONG}) + '\n{"problem": \n')
    with pytest.raises(DataError, match=r"a\.jsonl has unreadable lines: line 2 \(broken-json\)"):
        read_evaluations([tmp_path / "a.jsonl"])
