"""Auxiliary tables: read strictly or leniently, with context columns, or spilled to temporary files."""

import json
import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from magcli.data import durable, table
from magcli.data.source import Rows, Source
from magcli.errors import DataError
from magcli.layouts.names import CONTEXT


def read_strict(path: Path) -> Source:
    """Read a table that must be complete.

    Raises:
        DataError: it is unreadable, or, after its rows, a line was.
    """
    errors: list[str] = []
    source = table.read(str(path), lambda location, reason, _: errors.append(f"{location} ({reason})"))

    def checked(rows: Rows) -> Rows:
        yield from rows
        if errors:
            raise DataError(f"{path} has unreadable lines: {errors[0]}; fix or remove them")

    # Errors come up while rows are read, so they can only be raised after them.
    source.rows = checked(source.rows)
    return source


def read_lenient(path: Path, warn: Callable[[str], None]) -> Source:
    """Read a table, skipping unreadable lines with a warning.

    Raises:
        DataError: it is unreadable, or has lines in another encoding.
    """
    errors = Counter[str]()
    refuse = table.refuse_lost(str(path))

    def count(location: str, reason: str, excerpt: str) -> None:
        # Raises for another encoding, which would lose every line.
        refuse(location, reason, excerpt)
        errors[reason] += 1

    source = table.read(str(path), count)

    def readable(rows: Rows) -> Rows:
        yield from rows
        if errors:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in errors.most_common())
            warn(f"{path}: skipped unreadable lines ({reasons})")

    source.rows = readable(source.rows)
    return source


def context_columns(names: Iterable[str]) -> list[str]:
    """The context columns of a table; none if it has a ``prompt``, which is complete."""
    available = list(names)
    return [] if "prompt" in available else [name for name in CONTEXT if name in available]


def context_of(row: Mapping[str, Any], columns: Iterable[str]) -> str:
    """The context of a row's question; empty if there is none."""
    for name in columns:
        value = row[name]
        if isinstance(value, str) and value.strip():
            return value.strip()
    return ""


def with_context(context: str, question: str) -> str:
    """The statement: context followed by the question."""
    return f"{context}\n{question}" if context else question


class SpilledBatches:
    """Record batches in a temporary file that is deleted on close, for tables that do not fit in memory."""

    def __init__(self, schema: pa.Schema) -> None:
        self._folder = Path(tempfile.gettempdir())
        with durable.disk_errors(self._folder):
            # Closed by ``close``, as it outlives this method.
            self.file = tempfile.TemporaryFile()  # noqa: SIM115
        self._writer = pa.ipc.new_stream(self.file, schema)

    def add(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        with durable.disk_errors(self._folder):
            self._writer.write_batch(batch)

    def rows(self) -> Rows:
        """All rows in order; no more can be added."""
        with durable.disk_errors(self._folder):
            self._writer.close()
            self.file.seek(0)
        with pa.ipc.open_stream(self.file) as reader:
            yield from reader

    def close(self) -> None:
        """Delete the file. Errors of writing have been raised before, so those of closing are ignored."""
        with suppress(OSError):
            self.file.close()


class SpilledRows:
    """An append-only sequence of JSON rows in a temporary file; memory holds only offsets. See ``spilled_rows``."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._starts = array("q", [0])

    def append(self, row: Mapping[str, Any]) -> None:
        """Append a row.

        Raises:
            OSError: the temporary folder is full.
        """
        # Texts of a table may have unpaired surrogates.
        line = json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass")
        # A read in between has moved the position.
        self._file.seek(self._starts[-1])
        self._file.write(line)
        self._starts.append(self._starts[-1] + len(line))

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._starts) - 1

    def __getitem__(self, number: int) -> dict[str, Any]:
        """The row with that number, from 0."""
        start, end = self._starts[number], self._starts[number + 1]
        self._file.seek(start)
        row: dict[str, Any] = json.loads(self._file.read(end - start).decode("utf-8", "surrogatepass"))
        return row

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """All rows, in order."""
        return (self[number] for number in range(len(self)))


@contextmanager
def spilled_rows() -> Iterator[SpilledRows]:
    """Open an empty sequence whose file is deleted with the block.

    Raises:
        EnvironmentFault: the temporary folder is full.
    """
    with durable.disk_errors(Path(tempfile.gettempdir())), tempfile.TemporaryFile() as file:
        yield SpilledRows(file)
