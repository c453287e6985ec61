"""Arrow IPC streams, the project's own format: a file is a saved pipe.

A finished stream of ours ends with an empty batch whose custom metadata holds the history and the digest, so `datasets`
and every other Arrow reader read it as it is.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from magcli.data import durable, manifest, seal
from magcli.data.source import Rows, Source
from magcli.errors import DataError

CLOSE_HINT = "it was cut off before its end; make it again"


def open_file(path: Path) -> Source:
    """Read a stream file; one of ours is checked whole before its first row.

    Raises:
        DataError: the file is cut, damaged, or no Arrow stream.
    """
    digest = seal.verify_file(path)
    file = open(path, "rb")  # noqa: SIM115
    if file.read(6) == b"ARROW1":
        raise DataError(f"{path} is in Arrow's random-access file format; magcli reads the stream format")
    file.seek(0)
    source = open_stream(file, str(path))
    if digest:
        source.sha256 = digest
        source.chain, source.total = _closing(path)
    return source


def _closing(path: Path) -> tuple[manifest.Chain, int]:
    """The history and row count of a verified file, from its last message."""
    with open(path, "rb") as file, pa.ipc.open_stream(file) as reader:
        for _, metadata in _messages(reader, str(path)):
            if metadata:
                return _chain_and_rows(metadata)
    raise DataError(f"{path}: no end mark; {CLOSE_HINT}")


def open_stream(file: BinaryIO, name: str) -> Source:
    """Read a stream from a pipe or an open file; the end mark is checked when it arrives."""
    hashing = seal.HashingReader(file)
    try:
        reader = pa.ipc.open_stream(pa.PythonFile(hashing, mode="r"))
        schema = reader.schema
    except (pa.ArrowInvalid, OSError, pa.ArrowException) as error:
        raise DataError(f"{name} is not an Arrow stream, or was cut in its head: {_brief(error)}") from None
    ours = seal.HEAD_KEY.encode() in (schema.metadata or {})
    source = Source(name, _plain(schema), iter(()))
    source.rows = _rows(reader, hashing, source, ours)
    return source


def _rows(reader: Any, hashing: seal.HashingReader, source: Source, ours: bool) -> Rows:
    sealed, count = False, 0
    hashing.mark()
    for batch, metadata in _messages(reader, source.name):
        if metadata:
            sealed = True
            source.sha256 = _digest(metadata)
            if not hashing.matches(source.sha256):
                raise DataError(f"{source.name} is damaged: its content does not match its seal")
            source.chain, _ = _chain_and_rows(metadata)
            break
        hashing.mark()
        count += batch.num_rows
        yield pa.RecordBatch.from_arrays(batch.columns, schema=source.schema)
    if ours and not sealed:
        raise DataError(f"{source.name} has no end mark after {count} rows; {CLOSE_HINT}")
    source.total = count


def _messages(reader: Any, name: str) -> Iterator[tuple[pa.RecordBatch, dict[bytes, bytes] | None]]:
    while True:
        try:
            batch, metadata = reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            return
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{name} is cut or damaged: {_brief(error)}") from None
        keys = dict(metadata) if metadata is not None else {}
        yield batch, keys if seal.SEAL_KEY.encode() in keys else None


def _digest(metadata: dict[bytes, bytes]) -> str:
    value = metadata.get(seal.DIGEST_KEY.encode(), b"").decode("utf-8", "replace")
    return value.removeprefix(seal.MARK.decode())


def _chain_and_rows(metadata: dict[bytes, bytes]) -> tuple[manifest.Chain, int]:
    closing = json.loads(metadata[seal.SEAL_KEY.encode()])
    return manifest.from_json(closing["chain"]), closing["rows"]


def _plain(schema: pa.Schema) -> pa.Schema:
    kept = {k: v for k, v in (schema.metadata or {}).items() if k != seal.HEAD_KEY.encode()}
    return schema.with_metadata(kept or None)


def _brief(error: BaseException) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


class StreamSink:
    """A stream being written to an open file or pipe."""

    def __init__(self, out: BinaryIO, schema: pa.Schema, head: str) -> None:
        self.out = seal.HashingWriter(out)
        metadata = {**(schema.metadata or {}), seal.HEAD_KEY.encode(): head.encode()}
        self.schema = schema.with_metadata(metadata)
        self.writer = pa.ipc.new_stream(pa.PythonFile(self.out, mode="w"), self.schema)
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self.rows += batch.num_rows
        self.writer.write_batch(batch.replace_schema_metadata(self.schema.metadata))

    def finish(self, chain: manifest.Chain) -> str:
        """Write the closing batch with history and digest."""
        closing = {"chain": manifest.to_json(chain), "rows": self.rows}
        self.out.held = []
        empty = self.schema.empty_table().to_batches() or [
            pa.RecordBatch.from_arrays([pa.array([], f.type) for f in self.schema], schema=self.schema)
        ]
        self.writer.write_batch(
            empty[0], custom_metadata={seal.SEAL_KEY: seal.pack(closing), seal.DIGEST_KEY: seal.blank_digest()}
        )
        self.writer.close()
        return self.out.finish()


@contextlib.contextmanager
def file_sink(path: Path, schema: pa.Schema, head: str) -> Iterator[StreamSink]:
    """A stream file that takes its place when it is finished."""
    with durable.whole_file(path) as file:
        yield StreamSink(file, schema, head)
