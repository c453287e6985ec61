"""Record batches set aside on disk while the whole of a set is read, which must not lie in memory."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from magcli.data import durable
from magcli.data.source import Rows


class Aside:
    """Record batches in a temporary file, which goes when it is closed or the process ends. Use it with ``closing``."""

    def __init__(self, schema: pa.Schema) -> None:
        self.place = Path(tempfile.gettempdir())
        with durable.disk_errors(self.place):
            self.file = tempfile.TemporaryFile()  # noqa: SIM115
        self.writer = pa.ipc.new_stream(self.file, schema)

    def add(self, batch: pa.RecordBatch) -> None:
        """Set rows aside."""
        with durable.disk_errors(self.place):
            self.writer.write_batch(batch)

    def rows(self) -> Rows:
        """All rows as they were added; no more can be added."""
        with durable.disk_errors(self.place):
            self.writer.close()
            self.file.seek(0)
        with pa.ipc.open_stream(self.file) as reader:
            yield from reader

    def close(self) -> None:
        """Give the space back."""
        self.file.close()


def numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches, each with the number of rows before it."""
    before = 0
    for batch in batches:
        yield before, batch
        before += batch.num_rows
