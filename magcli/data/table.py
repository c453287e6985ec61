"""Read and write tables by name: ``-`` (Arrow stream), .arrow, .parquet, .jsonl, .json (one array), both also as .gz,
.csv, `datasets` folders; read hub ids.
"""

import contextlib
import io
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from magcli.data import arrow, csv, durable, folder, jsonl, seal, types
from magcli.data.source import BadRow, Rows, Sink, Source
from magcli.errors import DataError, UsageError, first_line, usage

ROWS_PER_BATCH = 1024
LINES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
SUFFIXES = (".arrow", ".parquet", *LINES, ".csv")
SINKS: Mapping[str, Callable[[Path, pa.Schema, str], contextlib.AbstractContextManager[Sink]]] = {
    ".arrow": arrow.file_sink,
    ".parquet": arrow.parquet_sink,
    **dict.fromkeys(LINES, jsonl.file_sink),
    ".csv": csv.file_sink,
}
"""The writer of each suffix; a name without one is a folder."""
SIDECARS = (".manifest.json", ".run.json")
"""Endings of the files that magcli writes next to tables."""


def ignore(place: str, reason: str, excerpt: str) -> None:
    """A ``BadRow`` that does nothing."""


def read(name: str, bad: BadRow = ignore) -> Source:
    """Open a table by its name; rows that cannot be read are reported to ``bad``.

    Raises:
        DataError: it does not exist, is empty, truncated or damaged, or has an unknown suffix.
        EnvironmentFault: a hub data set cannot be loaded.
    """
    source = _open(name, bad)
    schema = types.plain_schema(source.schema, name)
    source.rows = _plain(source.rows, schema, name)
    source.schema = schema
    return source


def _plain(rows: Rows, schema: pa.Schema, name: str) -> Rows:
    for batch in rows:
        try:
            yield from types.plain_rows(batch, schema)
        except pa.ArrowException as error:
            raise DataError(f"{name}: {first_line(error)}") from None


def _open(name: str, bad: BadRow) -> Source:
    path = Path(name)
    if name == "-":
        usage(sys.stdin is not None, "stdin is closed: name a table, or pipe one in")
        return _read_pipe(io.FileIO(sys.stdin.fileno(), closefd=False), "stdin", bad)
    if path.is_dir():
        return folder.open_folder(path)
    if not path.exists():
        if _may_be_hub_id(path):
            return folder.open_hub(name)
        raise DataError(f"{name} does not exist")
    if path.is_fifo() or path.is_char_device():
        return _read_pipe(io.FileIO(name), name, bad)
    if name.endswith(SIDECARS):
        raise DataError(f"{name} is not a table but the manifest or run record of one; give the table itself")
    match kind := suffix(path):
        case ".arrow":
            return arrow.open_file(path)
        case ".parquet":
            return arrow.open_parquet(path)
        case ".jsonl" | ".jsonl.gz" | ".json" | ".json.gz" | ".ndjson" | ".ndjson.gz":
            return jsonl.open_file(path, bad)
        case ".csv":
            return csv.open_file(path, bad)
    raise DataError(f"{name}: unknown table format '{kind}'; known: {', '.join(SUFFIXES)}, a folder, a hub id, -")


def _may_be_hub_id(path: Path) -> bool:
    """Whether a name may be a hub id, OWNER/NAME, which may contain dots."""
    known = (*SUFFIXES, ".ndjson", ".gz")
    return (
        len(path.parts) == 2
        and not path.parts[0].startswith((".", "/"))
        and not (path.parent.is_dir() or path.suffix in known)
    )


def suffix(path: Path) -> str:
    """The suffix that determines the format; for ``.gz`` with the one before it."""
    return "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix


def _read_pipe(raw: io.FileIO, name: str, bad: BadRow) -> Source:
    if raw.isatty():
        raise UsageError("no input table: name one, or pipe one in")
    pipe = io.BufferedReader(raw, 1 << 16)
    head = pipe.peek(4)[:4]
    if not head:
        raise DataError(f"{name} is empty: the previous command of the pipe wrote no table")
    if (first := head.lstrip()[:1]) in (b"{", b"["):
        opened, digest = _spooled(pipe)
        source = jsonl.open_texts(jsonl.opened_texts(opened, name, array=first == b"["), name, bad)
        source.rows = _with_digest(source, source.rows, digest)
        return source
    return arrow.open_stream(pipe, name)


def _with_digest(source: Source, rows: Rows, digest: str) -> Rows:
    """The rows of a pipe; its digest is set after the last one as for any pipe, since only files can be sharded."""
    yield from rows
    source.sha256 = digest


def _spooled(pipe: BinaryIO) -> tuple[jsonl.Opener, str]:
    """Copy a pipe of JSON, which is read twice, to an unnamed temporary file; returns its opener and its digest."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with its last reader
    hashing = seal.HashingWriter(file)
    shutil.copyfileobj(pipe, hashing)

    @contextlib.contextmanager
    def opened() -> Iterator[BinaryIO]:
        file.seek(0)
        yield file

    return opened, hashing.hash.hexdigest()


def check_target(name: str) -> None:
    """Check that an output can be written, before any work is done.

    Raises:
        UsageError: an unknown suffix, or something else is there.
    """
    path = Path(name)
    kind = suffix(path)
    if name != "-" and kind not in SUFFIXES and kind:
        raise UsageError(f"output {name}: unknown table format '{kind}'; known: {', '.join(SUFFIXES)}, a folder, -")
    usage(name != "-" or sys.stdout is not None, "stdout is closed: give -o FILE")
    if name == "-" and sys.stdout.isatty():
        raise UsageError("the output is an Arrow stream, not for a terminal: give -o FILE or pipe into another command")
    if kind in SUFFIXES and path.is_dir():
        raise UsageError(f"output {name} is a folder; choose another name or remove it")
    if not kind and path.exists() and not path.is_dir():
        raise UsageError(
            f"output {name} is a file, and a name without a suffix means a folder; known: {', '.join(SUFFIXES)}"
        )
    if path.is_dir() and any(path.iterdir()) and not (path / "state.json").exists():
        raise UsageError(f"output {name} is a folder with other files; choose another name")


@contextlib.contextmanager
def write(name: str, schema: pa.Schema, head: str) -> Iterator[Sink]:
    """A table to write, by its name; it appears when it is finished and the block ends without an error."""
    path = Path(name)
    if name == "-":
        with durable.disk_errors(Path("stdout")), open(sys.stdout.fileno(), "wb", closefd=False) as out:
            yield arrow.StreamSink(out, schema, head, flush=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with SINKS.get(suffix(path), folder.folder_sink)(path, schema, head) as sink:
        yield sink


def rechunk(rows: Rows, size: int = ROWS_PER_BATCH, max_bytes: int = types.BATCH_BYTES) -> Rows:
    """The same rows in batches of ``size`` rows, fewer if they would have more than ``max_bytes``.

    The boundaries of batches depend only on the rows, so equal tables have equal bytes however they were computed.
    """
    pending: list[pa.RecordBatch] = []
    held = weight = 0
    for batch in (batch for batch in rows if batch.num_rows):
        sizes = types.row_bytes(batch)
        while batch.num_rows:
            fits = types.fitting_rows(sizes[: size - held], max_bytes - weight)
            if pending and sizes[0] > max_bytes - weight:
                fits = 0
            pending.append(batch.slice(0, fits))
            held, weight = held + fits, weight + int(sizes[:fits].sum())
            batch, sizes = batch.slice(fits), sizes[fits:]
            if held == size or batch.num_rows:
                yield one_batch(pending)
                pending, held, weight = [], 0, 0
    if held:
        yield one_batch(pending)


def one_batch(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches of one schema as one, copied, because a slice would be written with stray bits of its neighbours."""
    return pa.concat_batches(batches)
