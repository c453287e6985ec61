"""Facts that stand in a column beside the question."""

import pytest

from magcli.curate.math.facts import columns_of_facts, facts_of, stated


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (["body", "question"], ["body"]),
        (["question", "context", "Body"], ["Body", "context"]),
        (["prompt", "context"], []),
        (["question"], []),
    ],
)
def test_facts_stand_beside_questions_of_other_tools_alone(names: list[str], columns: list[str]) -> None:
    assert columns_of_facts(names) == columns


@pytest.mark.parametrize(
    ("row", "statement"),
    [
        ({"body": " Ann has a pear. ", "context": "x"}, "Ann has a pear.\nHow many?"),
        ({"body": " ", "context": "Bob has two."}, "Bob has two.\nHow many?"),
        ({"body": None, "context": ["x"]}, "How many?"),
    ],
)
def test_the_statement_begins_with_the_first_facts_that_are_text(row: dict, statement: str) -> None:
    assert stated(facts_of(row, ["body", "context"]), "How many?") == statement
