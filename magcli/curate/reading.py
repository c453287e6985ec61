"""Read auxiliary tables: unreadable lines are an error or a warning, context columns are prepended to questions."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from magcli.data import table
from magcli.data.source import Rows, Source
from magcli.errors import DataError

Warn = Callable[[str], None]
"""Prints a warning."""
CONTEXT_COLUMNS = ("body", "Body", "context", "passage")
"""Columns in which other datasets keep the facts of a question (ASDiv, SVAMP, OlympiadBench)."""


def read_strict(path: Path) -> Source:
    """Read a table that must be complete.

    Raises:
        DataError: it is unreadable, or, after its rows, a line was.
    """
    unread: list[str] = []
    source = table.read(str(path), lambda place, reason, _: unread.append(f"{place} ({reason})"))

    def whole(rows: Rows) -> Rows:
        yield from rows
        if unread:
            raise DataError(f"{path} has unreadable lines: {unread[0]}; fix or remove them")

    source.rows = whole(source.rows)
    return source


def read_lenient(path: Path, warn: Warn) -> Source:
    """Read a table, skipping unreadable lines with a warning.

    Raises:
        DataError: it is unreadable.
    """
    unread = Counter[str]()
    source = table.read(str(path), lambda _, reason, __: unread.update([reason]))

    def most(rows: Rows) -> Rows:
        yield from rows
        if unread:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in unread.most_common())
            warn(f"{path}: skipped unreadable lines ({reasons})")

    source.rows = most(source.rows)
    return source


def context_columns(names: Iterable[str]) -> list[str]:
    """The context columns of a table; none if it has a ``prompt``, which is complete."""
    available = list(names)
    return [] if "prompt" in available else [name for name in CONTEXT_COLUMNS if name in available]


def context_of(row: Mapping[str, Any], columns: Iterable[str]) -> str:
    """The context of a row's question; empty if there is none."""
    found = (value for name in columns if isinstance(value := row[name], str))
    return next((value.strip() for value in found if value.strip()), "")


def with_context(context: str, question: str) -> str:
    """The statement: context followed by the question."""
    return f"{context}\n{question}" if context else question
