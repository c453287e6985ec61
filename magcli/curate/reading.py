"""Tables that options name besides the input: lines of them that cannot be read are told, or are an error."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from magcli.data import table
from magcli.data.source import Rows, Source
from magcli.errors import DataError

Warn = Callable[[str], None]
"""Tells people one line."""


def read_whole(path: Path) -> Source:
    """A table of which every line matters.

    Raises:
        DataError: it cannot be read; a line cannot, which comes with the rows.
    """
    unread: list[str] = []
    source = table.read(str(path), lambda place, reason, _: unread.append(f"{place} ({reason})"))

    def whole(rows: Rows) -> Rows:
        yield from rows
        if unread:
            raise DataError(f"{path} cannot be read as a whole: {unread[0]}; mend or remove what is broken")

    source.rows = whole(source.rows)
    return source


def read_most(path: Path, warn: Warn) -> Source:
    """A table that does without the lines that cannot be read; after its last row it is told how many these are.

    Raises:
        DataError: it cannot be read.
    """
    unread = Counter[str]()
    source = table.read(str(path), lambda _, reason, __: unread.update([reason]))

    def most(rows: Rows) -> Rows:
        yield from rows
        if unread:
            told = ", ".join(f"{reason} {count:,}" for reason, count in unread.most_common())
            warn(f"{path}: left out what cannot be read ({told})")

    source.rows = most(source.rows)
    return source
