"""The interfaces of table formats: an open table (``Source``) and one being written (``Sink``)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from magcli.data.manifest import Chain

Rows = Iterator[pa.RecordBatch]
"""A stream of record batches of one schema."""

BadRow = Callable[[str, str, str], None]
"""Called with (id or line number, reason, excerpt) for a row that cannot be read; the reader continues."""


@dataclass
class Source:
    """A table to read once.

    ``chain``, ``sha256`` and ``total`` describe the whole table; for a pipe they are set after its last row, for a file
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
        """Write the history and the proof that the table is complete; returns its digest."""
        ...


def manifest_path(path: Path) -> Path:
    """The manifest of a file or folder whose format cannot carry its history."""
    return path / "manifest.json" if path.is_dir() else path.with_name(path.name + ".manifest.json")
