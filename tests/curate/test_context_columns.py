"""Facts that stand in a column beside the question."""

import pytest

from magcli.curate.reading import context_columns, context_of, with_context


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (["body", "question"], ["body"]),
        (["question", "context", "Body"], ["Body", "context"]),
        (["prompt", "context"], []),
        (["question"], []),
    ],
)
def test_facts_are_joined_only_for_known_columns(names: list[str], columns: list[str]) -> None:
    assert context_columns(names) == columns


@pytest.mark.parametrize(
    ("row", "statement"),
    [
        ({"body": " Ann has a pear. ", "context": "x"}, "Ann has a pear.\nHow many?"),
        ({"body": " ", "context": "Bob has two."}, "Bob has two.\nHow many?"),
        ({"body": None, "context": ["x"]}, "How many?"),
    ],
)
def test_the_statement_begins_with_the_first_textual_facts(row: dict, statement: str) -> None:
    assert with_context(context_of(row, ["body", "context"]), "How many?") == statement
