"""The interfaces of table formats: an open table (``Source``) and one being written (``Sink``)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from magcli.data.manifest import Chain

Rows = Iterator[pa.RecordBatch]
"""A stream of record batches of one schema."""

BadRow = Callable[[str, str, str], None]
"""Called with the id or line number, the reason and an excerpt of a row that cannot be read; the reader continues."""


def ignore(location: str, reason: str, excerpt: str) -> None:
    """A ``BadRow`` that does nothing, where the same rows are reported by another pass."""


NOT_UTF8 = "not-utf-8"
"""The reason of rows in another encoding."""
LOST = {
    NOT_UTF8: "convert the input, for example with iconv -f LATIN1 -t UTF-8",
    "line-too-large": "shorten or remove these rows in the input",
    "too-large": "shorten or remove these rows in the input",
}
"""Reasons of rows that magcli itself cannot read, and what to do."""


@dataclass
class Source:
    """A table to read once.

    ``chain`` is its history, ``sha256`` its digest, ``total`` its number of rows; those of a pipe are set after the
    last row.
    """

    name: str
    schema: pa.Schema
    rows: Rows
    chain: Chain = ()
    sha256: str = ""
    total: int | None = None


def total_rows(sources: Sequence[Source]) -> int | None:
    """The number of rows of several tables together; None if that of one is unknown."""
    totals = [source.total for source in sources if source.total is not None]
    return sum(totals) if len(totals) == len(sources) else None


class Sink(Protocol):
    """A table being written; it appears after ``finish``, which writes history and digest and returns the digest."""

    def write(self, batch: pa.RecordBatch) -> None: ...
    def finish(self, chain: Chain) -> str: ...
