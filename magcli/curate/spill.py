"""Data spilled to temporary files while a whole set is read, which may not fit in memory."""

import json
import tempfile
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from magcli.data import durable
from magcli.data.source import Rows


class SpilledBatches:
    """Record batches in a temporary file that is deleted on close; use with ``closing``."""

    def __init__(self, schema: pa.Schema) -> None:
        self.folder = Path(tempfile.gettempdir())
        with durable.disk_errors(self.folder):
            self.file = tempfile.TemporaryFile()  # noqa: SIM115
        self.writer = pa.ipc.new_stream(self.file, schema)

    def add(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        with durable.disk_errors(self.folder):
            self.writer.write_batch(batch)

    def rows(self) -> Rows:
        """All rows in order; no more can be added."""
        with durable.disk_errors(self.folder):
            self.writer.close()
            self.file.seek(0)
        with pa.ipc.open_stream(self.file) as reader:
            yield from reader

    def close(self) -> None:
        """Delete the file."""
        self.file.close()


def numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches with the number of their first row."""
    first = 0
    for batch in batches:
        yield first, batch
        first += batch.num_rows


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
        line = json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass")
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
    """Open an empty sequence whose file is deleted with the block."""
    with tempfile.TemporaryFile() as file:
        yield SpilledRows(file)
