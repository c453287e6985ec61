"""What a question is about, where other tools keep that in a column of its own (ASDiv, SVAMP, OlympiadBench)."""

from collections.abc import Iterable, Mapping
from typing import Any

FACTS = ("body", "Body", "context", "passage")


def columns_of_facts(names: Iterable[str]) -> list[str]:
    """Which columns of a table hold facts; none where magcli's own ``prompt`` is there, which is whole."""
    given = list(names)
    return [] if "prompt" in given else [name for name in FACTS if name in given]


def facts_of(row: Mapping[str, Any], columns: Iterable[str]) -> str:
    """The facts that stand beside a row's question; empty where there are none."""
    found = (value for name in columns if isinstance(value := row[name], str))
    return next((value.strip() for value in found if value.strip()), "")


def stated(facts: str, question: str) -> str:
    """The statement: the facts, and the question after them."""
    return f"{facts}\n{question}" if facts else question
