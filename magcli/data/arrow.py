"""Files of Arrow: IPC streams, the default format, Feather and Parquet. History and digest are inside.

A stream file has the same bytes as a pipe. A finished stream or Feather file of magcli ends with an empty batch whose
custom metadata contains the history and the digest; a Parquet file has them in the key-value metadata of its footer.
Every other reader, such as `datasets`, can read them.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from magcli.data import durable, intervals, manifest, seal, types
from magcli.data.source import Rows, Source
from magcli.errors import DataError, first_line

TRUNCATED = "it is truncated; write it again"
# Arrow's end of a stream: a continuation mark, and a message of length 0.
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"

WIDE_INTEGERS = "Integers with more than 64 bits"
"""How pyarrow's refusal of a schema with such integers starts, which Arrow's format has."""

ROW_GROUP = 8
"""Batches per row group of a Parquet file."""


def open_file(path: Path, name: str = "", *, verify: bool = True) -> Source:
    """Read a stream file, or a random-access file (Feather); a sealed file is verified before its first row.

    ``name`` is that of the table in messages, by default its path. Without ``verify`` neither seal nor digest is read.

    Raises:
        DataError: the file is truncated, damaged or not Arrow.
    """
    name = name or str(path)
    digest = seal.verify_file(path) if verify else None
    with open(path, "rb") as file:
        # The magic of Arrow's file format; a stream has none.
        is_random_access = file.read(6) == b"ARROW1"
    if is_random_access:
        return _open_random_access(path, name, digest, verify)
    source = open_stream(pa.OSFile(str(path)), name)
    source.sha256 = _digest(path, digest, verify)
    if digest:
        source.chain, source.total = _closing(path)
    elif not verify:
        with contextlib.suppress(DataError):  # of another tool, or truncated: its number of rows is unknown
            _, source.total = _closing(path)
    return source


def _digest(path: Path, sealed: str | None, verify: bool) -> str:
    """The digest of a file: that of its seal, or else its own; without ``verify`` none, as the whole file is read."""
    if sealed:
        return sealed
    return seal.hash_file(path) if verify else ""


def _open_random_access(path: Path, name: str, digest: str | None, verify: bool) -> Source:
    try:
        reader = pa.ipc.open_file(pa.OSFile(str(path)))
        batches = map(reader.get_batch, range(reader.num_record_batches))
        total = sum(batch.num_rows for batch in batches)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(f"{name} is not a complete Arrow file", name, error) from None
    schema = reader.schema.with_metadata(seal.foreign_metadata(reader.schema.metadata))
    chain = _random_access_chain(reader) if digest else ()
    rows = _random_access_rows(reader, schema, name)
    return Source(name, schema, rows, chain, _digest(path, digest, verify), total)


def _unreadable(problem: str, name: str, error: Exception) -> DataError:
    """What is wrong with a table that pyarrow does not open: integers of 128 bits, or else ``problem``."""
    message = first_line(error)
    if message.startswith(WIDE_INTEGERS):
        return DataError(
            f"{name} has integers of 128 bits, such as polars' Int128, which pyarrow cannot read: cast them where the "
            "table is written, to text or to a decimal"
        )
    return DataError(f"{problem}: {message}")


def _random_access_chain(reader: Any) -> manifest.Chain:
    """The history of a sealed file, which is in its last batch."""
    _, metadata = reader.get_batch_with_custom_metadata(reader.num_record_batches - 1)
    return _chain_and_rows(dict(metadata))[0]


def _random_access_rows(reader: Any, schema: pa.Schema, name: str) -> Rows:
    for number in range(reader.num_record_batches):
        batch = _validated(reader.get_batch(number), name)
        if batch.num_rows:  # the closing batch has none
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _closing(path: Path) -> tuple[manifest.Chain, int]:
    """The history and row count of a verified file, from its last message."""
    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as reader:
        for _, metadata in _messages(reader, str(path)):
            if metadata:
                return _chain_and_rows(metadata)
    raise DataError(f"{path}: no end mark; {TRUNCATED}")


def open_stream(file: "BinaryIO | pa.NativeFile", name: str) -> Source:
    """Read a stream from a pipe or an open file; the end mark is checked when it arrives."""
    hashing = seal.HashingReader(file)
    try:
        reader = pa.ipc.open_stream(pa.PythonFile(hashing, mode="r"))
        schema = reader.schema
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(f"{name} is not an Arrow stream, or is truncated in its header", name, error) from None
    types.plain_schema(schema, name)  # raises for a damaged header: column names that are not UTF-8
    ours = seal.HEAD_KEY.encode() in (schema.metadata or {})
    # The rest of the metadata may be of other tools; that of the seal would be wrong in a table made from this one.
    schema = schema.with_metadata(seal.foreign_metadata(schema.metadata))
    source = Source(name, schema, iter(()))
    rows = _rows(reader, hashing, source, schema, ours)
    source.rows = rows
    return source


def _rows(reader: Any, hashing: seal.HashingReader, source: Source, schema: pa.Schema, ours: bool) -> Rows:
    """The rows with their ``schema``; that of the source may be of fewer columns by then."""
    sealed = False
    count = 0
    # After each message that is not the last, so that of the stream only the message with the digest is in memory.
    hashing.mark()
    for batch, metadata in _messages(reader, source.name):
        if metadata:
            sealed = True
            digest = metadata.get(seal.DIGEST_KEY.encode(), b"").decode("utf-8", "replace")
            source.sha256 = digest.removeprefix(seal.MARK.decode())
            if not hashing.matches(source.sha256):
                raise DataError(f"{source.name} is damaged: its content does not match its seal")
            source.chain, _ = _chain_and_rows(metadata)
            break
        hashing.mark()
        count += batch.num_rows
        yield pa.RecordBatch.from_arrays(_validated(batch, source.name).columns, schema=schema)
    # A stream of another tool has no seal, but must have Arrow's own mark at its end.
    if not sealed and (ours or hashing.since_mark != END_OF_STREAM):
        raise DataError(f"{source.name} has no end mark after {count} rows; {TRUNCATED}")
    source.total = count
    source.sha256 = source.sha256 or hashing.close_digest()


def _validated(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """Validate a batch, as the offsets of a damaged one could point anywhere in memory."""
    try:
        batch.validate(full=True)
    except pa.ArrowException as error:
        raise DataError(f"{name} is damaged: {first_line(error)}") from None
    return batch


def _messages(reader: Any, name: str) -> Iterator[tuple[pa.RecordBatch, dict[bytes, bytes] | None]]:
    while True:
        try:
            batch, metadata = reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            return
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{name} is truncated or damaged: {first_line(error)}") from None
        # Batches of other tools may have metadata of their own.
        keys = dict(metadata) if metadata is not None else {}
        yield batch, keys if seal.SEAL_KEY.encode() in keys else None


def _chain_and_rows(metadata: dict[bytes, bytes]) -> tuple[manifest.Chain, int]:
    closing = json.loads(metadata[seal.SEAL_KEY.encode()])
    return manifest.from_json(closing["chain"]), closing["rows"]


class StreamSink:
    """Writes a stream to an open file or pipe.

    ``flush``: each batch is sent at once, so that the next command of a pipe can start with it.
    """

    def __init__(self, out: BinaryIO, schema: pa.Schema, head: str, *, flush: bool = False) -> None:
        self.out = seal.HashingWriter(out)
        self._flush = flush
        self.schema = _with_head(schema, head)
        self.writer = pa.ipc.new_stream(pa.PythonFile(self.out, mode="w"), self.schema)
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self.rows += batch.num_rows
        self.writer.write_batch(batch.replace_schema_metadata(self.schema.metadata))
        if self._flush:
            self.out.out.flush()

    def finish(self, chain: manifest.Chain) -> str:
        """Write the closing batch with history and digest."""
        self.out.pending = []  # hold back what follows: the digest goes into it
        _write_closing(self.writer, self.schema, chain, self.rows)
        return self.out.finish()


@contextlib.contextmanager
def file_sink(path: Path, schema: pa.Schema, head: str) -> Iterator[StreamSink]:
    """A stream file that appears when it is finished."""
    with durable.atomic_file(path) as file:
        yield StreamSink(file, schema, head)


class FeatherSink:
    """Writes a random-access file."""

    def __init__(self, file: BinaryIO, schema: pa.Schema, head: str) -> None:
        self.file, self.schema = file, _with_head(schema, head)
        self.writer = pa.ipc.new_file(pa.PythonFile(file, mode="w"), self.schema)
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self.rows += batch.num_rows
        self.writer.write_batch(batch.replace_schema_metadata(self.schema.metadata))

    def finish(self, chain: manifest.Chain) -> str:
        """Write the closing batch with history and digest, and the footer."""
        _write_closing(self.writer, self.schema, chain, self.rows)
        return seal.patch(self.file)


@contextlib.contextmanager
def feather_sink(path: Path, schema: pa.Schema, head: str) -> Iterator[FeatherSink]:
    """A random-access file that appears when it is finished."""
    with durable.atomic_file(path) as file:
        yield FeatherSink(file, schema, head)


def _with_head(schema: pa.Schema, head: str) -> pa.Schema:
    return schema.with_metadata({**(schema.metadata or {}), seal.HEAD_KEY.encode(): head.encode()})


def _write_closing(writer: Any, schema: pa.Schema, chain: manifest.Chain, rows: int) -> None:
    """Write an empty batch with the history and the place of the digest, and close the writer."""
    closing = seal.pack({"chain": manifest.to_json(chain), "rows": rows})
    # Without rows, so that other readers see nothing of it.
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)
    writer.write_batch(empty, custom_metadata={seal.SEAL_KEY: closing, seal.DIGEST_KEY: seal.PLACEHOLDER})
    writer.close()


def open_parquet(path: Path, name: str = "", *, verify: bool = True) -> Source:
    """Read a Parquet file; a sealed one is verified first. Arguments as in ``open_file``.

    Raises:
        DataError: the file is truncated, damaged or not Parquet.
    """
    import pyarrow.parquet as pq

    name = name or str(path)
    digest = seal.verify_file(path) if verify else None
    try:
        # Pages of a file without a seal may have checksums of their own.
        file = pq.ParquetFile(pa.OSFile(str(path)), page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(f"{name} is not a complete Parquet file", name, error) from None
    extra = file.metadata.metadata or {}
    ours = seal.HEAD_KEY.encode() in extra
    if ours and verify and not digest:
        raise DataError(f"{name} is damaged: its seal is missing")
    chain: manifest.Chain = ()
    if ours:
        closing = json.loads(extra[seal.SEAL_KEY.encode()])
        chain = manifest.from_json(closing["chain"])
    schema = file.schema_arrow.with_metadata(seal.foreign_metadata(file.schema_arrow.metadata))
    rows = _parquet_rows(file, schema, name)
    schema, rows = _with_intervals(file, schema, rows, name)
    return Source(name, schema, rows, chain, _digest(path, digest, verify), file.metadata.num_rows)


def _with_intervals(file: Any, schema: pa.Schema, rows: Rows, name: str) -> tuple[pa.Schema, Rows]:
    """Schema and rows with the intervals of Parquet, such as DuckDB's, which pyarrow reads as 12 bytes.

    Raises:
        DataError: intervals are inside of lists or structs.
    """
    # The leaves of Parquet's schema; that of a column without nesting has its name as path.
    leaves = [file.schema.column(number) for number in range(len(file.schema))]
    names = {leaf.path for leaf in leaves if leaf.converted_type == "INTERVAL"}
    if not names:
        return schema, rows
    nested = sorted(names.difference(schema.names))
    if nested:
        problem = f"column {nested[0]} is of type INTERVAL inside of a list or struct, which is not read"
        raise DataError(f"{name}: {problem}; convert it to text")
    kind = pa.month_day_nano_interval()
    fields = [field.with_type(kind) if field.name in names else field for field in schema]
    timed = pa.schema(fields, schema.metadata)
    return timed, (_interval_batch(batch, timed) for batch in rows)


def _interval_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for column, field in zip(batch.columns, schema, strict=True):
        is_interval = pa.types.is_interval(field.type)
        columns.append(intervals.parquet_intervals(column) if is_interval else column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _parquet_rows(file: Any, schema: pa.Schema, name: str) -> Rows:
    try:
        for batch in file.iter_batches(batch_size=1024):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{name} is damaged: {first_line(error)}") from None


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
        if not self.pending:
            return
        try:
            self.writer.write_table(pa.Table.from_batches(self.pending))
        except pa.ArrowInvalid as error:
            problem = f"the table has a value that Parquet cannot store: {first_line(error)}"
            raise DataError(f"{problem}; write arrow, or change the column's type") from None
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
def parquet_sink(path: Path, schema: pa.Schema, head: str) -> Iterator[ParquetSink]:
    """A Parquet file that appears when it is finished."""
    with durable.atomic_file(path) as file:
        sink = ParquetSink(file, schema, head)
        try:
            yield sink
        finally:
            sink.close()
