"""Any table in, any table out: ``-`` (Arrow stream), .arrow, .parquet, .jsonl, .csv, `datasets` folders, hub ids."""

import contextlib
import io
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from magcli.data import arrow, csv, folder, jsonl, parquet
from magcli.data.source import BadRow, Rows, Sink, Source
from magcli.errors import DataError, UsageError

ROWS_PER_BATCH = 1024
SUFFIXES = (".arrow", ".parquet", ".jsonl", ".csv")


def ignore(place: str, reason: str, excerpt: str) -> None:
    """A ``BadRow`` for readers that only look."""


def read(name: str, bad: BadRow = ignore) -> Source:
    """Open a table by its name; rows that cannot be read are told to ``bad``.

    Raises:
        DataError: it does not exist, is empty, cut or damaged, or its kind is unknown.
        EnvironmentFault: a hub id that cannot be had.
    """
    path = Path(name)
    if name == "-":
        return _read_stdin(bad)
    if path.is_dir():
        return folder.open_folder(path)
    if not path.exists():
        if name.count("/") == 1 and not path.suffix and not name.startswith("."):
            return folder.open_hub(name)
        raise DataError(f"{name} does not exist")
    match path.suffix:
        case ".arrow":
            return arrow.open_file(path)
        case ".parquet":
            return parquet.open_file(path)
        case ".jsonl" | ".ndjson":
            return jsonl.open_file(path, bad)
        case ".csv":
            return csv.open_file(path)
    raise DataError(
        f"{name}: unknown kind of table '{path.suffix}'; known: {', '.join(SUFFIXES)}, a folder, a hub id, -"
    )


def _read_stdin(bad: BadRow) -> Source:
    stdin = io.BufferedReader(io.FileIO(sys.stdin.fileno(), closefd=False), 1 << 16)
    head = stdin.peek(4)[:4]
    if not head:
        raise DataError("stdin is empty: the command before this one in the pipe gave no table")
    if head.lstrip()[:1] == b"{":
        return _read_piped_lines(stdin, bad)
    return arrow.open_stream(stdin, "stdin")


def _read_piped_lines(stdin: BinaryIO, bad: BadRow) -> Source:
    """JSON lines need two passes, so a pipe of them is kept in a temporary file first."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl", delete=False) as file:
        shutil.copyfileobj(stdin, file)
    path = Path(file.name)
    try:
        source = jsonl.open_file(path, bad)
    except DataError as error:
        path.unlink()
        raise DataError(str(error).replace(file.name, "stdin")) from None
    source.name, source.rows = "stdin", _then_remove(source.rows, path)
    return source


def _then_remove(rows: Rows, path: Path) -> Rows:
    try:
        yield from rows
    finally:
        path.unlink(missing_ok=True)


def check_target(name: str) -> None:
    """Refuse an output that cannot be written, before any work is done.

    Raises:
        UsageError: an unknown kind of table or a parent that is a file.
    """
    path = Path(name)
    if name != "-" and path.suffix not in SUFFIXES and path.suffix:
        raise UsageError(
            f"output {name}: unknown kind of table '{path.suffix}'; known: {', '.join(SUFFIXES)}, a folder, -"
        )
    if name == "-" and sys.stdout.isatty():
        raise UsageError("the output is an Arrow stream, not for a terminal: give -o FILE or pipe into another command")


@contextlib.contextmanager
def write(name: str, schema: pa.Schema, head: str) -> Iterator[Sink]:
    """A table to write by its name; it appears when it is finished and the block ends well."""
    path = Path(name)
    if name == "-":
        with open(sys.stdout.fileno(), "wb", closefd=False) as out:
            yield arrow.StreamSink(out, schema, head)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with _maker(path)(path, schema, head) as sink:
        yield sink


def _maker(path: Path) -> Callable[[Path, pa.Schema, str], contextlib.AbstractContextManager[Sink]]:
    match path.suffix:
        case ".arrow":
            return arrow.file_sink
        case ".parquet":
            return parquet.file_sink
        case ".jsonl":
            return jsonl.file_sink
        case ".csv":
            return csv.file_sink
    return folder.folder_sink


def rechunk(rows: Rows, size: int = ROWS_PER_BATCH) -> Rows:
    """The same rows in batches of ``size``, so that equal tables have equal bytes however they were made."""
    pending: list[pa.RecordBatch] = []
    held = 0
    for batch in rows:
        while batch.num_rows:
            part = batch.slice(0, size - held)
            pending.append(part)
            held += part.num_rows
            batch = batch.slice(part.num_rows)
            if held == size:
                yield one_batch(pending)
                pending, held = [], 0
    if pending:
        yield one_batch(pending)


def one_batch(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Several batches of one schema as one."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
