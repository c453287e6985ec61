"""An open table and a place to write one: the two shapes that every format has."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from magcli.data.manifest import Chain

Rows = Iterator[pa.RecordBatch]
"""A stream of record batches of one schema."""

BadRow = Callable[[str, str, str], None]
"""Called with (id or place, reason, excerpt) for a row that cannot be read; the reader goes on."""


@dataclass
class Source:
    """A table to read once.

    ``chain``, ``sha256`` and ``total`` describe the whole table; a pipe knows them only after its last row, a file
    from the start.
    """

    name: str
    schema: pa.Schema
    rows: Rows
    chain: Chain = ()
    sha256: str = ""
    total: int | None = None


class Sink(Protocol):
    """A table being written; it appears only after ``finish``."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        ...

    def finish(self, chain: Chain) -> str:
        """Write what proves that the table is whole, and its history; returns its digest."""
        ...


def manifest_path(path: Path) -> Path:
    """Where the history of a format that cannot carry it is kept."""
    return path / "manifest.json" if path.is_dir() else path.with_name(path.name + ".manifest.json")


def brief(error: BaseException) -> str:
    """The first line of a library's message."""
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
