"""Parquet files; history and digest are in the key-value metadata of the footer."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from magcli.data import durable, manifest, seal
from magcli.data.source import Rows, Source
from magcli.errors import DataError, first_line

ROW_GROUP = 8
"""Batches per row group."""


def open_file(path: Path) -> Source:
    """Read a Parquet file; a sealed one is verified first.

    Raises:
        DataError: the file is truncated, damaged or not Parquet.
    """
    import pyarrow.parquet as pq

    digest = seal.verify_file(path)
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is not a complete Parquet file: {first_line(error)}") from None
    extra = file.metadata.metadata or {}
    ours = seal.HEAD_KEY.encode() in extra
    if ours and not digest:
        raise DataError(f"{path} is damaged: its seal is missing")
    chain = manifest.from_json(json.loads(extra[seal.SEAL_KEY.encode()])["chain"]) if ours else ()
    schema = file.schema_arrow.with_metadata(seal.foreign_metadata(file.schema_arrow.metadata))
    return Source(
        str(path), schema, _rows(file, schema, path), chain, digest or seal.hash_file(path), file.metadata.num_rows
    )


def _rows(file: Any, schema: pa.Schema, path: Path) -> Rows:
    try:
        for batch in file.iter_batches(batch_size=1024):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is damaged: {first_line(error)}") from None


class ParquetSink:
    """Writes a Parquet file."""

    def __init__(self, file: BinaryIO, schema: pa.Schema, head: str) -> None:
        import pyarrow.parquet as pq

        self.file, self.head = file, head
        self.writer = pq.ParquetWriter(file, schema, write_page_checksum=True)
        self.pending: list[pa.RecordBatch] = []
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows; complete row groups go to the file."""
        self.pending.append(batch)
        self.rows += batch.num_rows
        if len(self.pending) >= ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        if self.pending:
            self.writer.write_table(pa.Table.from_batches(self.pending))
            self.pending.clear()

    def close(self) -> None:
        """Close the writer while its file is open, also after an error; its destructor would print one."""
        with contextlib.suppress(OSError, ValueError, pa.ArrowException):
            self.writer.close()

    def finish(self, chain: manifest.Chain) -> str:
        """Write the footer with history and digest."""
        self._flush()
        closing = seal.pack({"chain": manifest.to_json(chain), "rows": self.rows})
        self.writer.add_key_value_metadata(
            {seal.HEAD_KEY: self.head, seal.SEAL_KEY: closing, seal.DIGEST_KEY: seal.PLACEHOLDER}
        )
        self.writer.close()
        return seal.patch(self.file)


@contextlib.contextmanager
def file_sink(path: Path, schema: pa.Schema, head: str) -> Iterator[ParquetSink]:
    """A Parquet file that appears when it is finished."""
    with durable.atomic_file(path) as file:
        sink = ParquetSink(file, schema, head)
        try:
            yield sink
        finally:
            sink.close()
