"""Any table in, any table out: ``-`` (Arrow stream), .arrow, .parquet, .jsonl, .json (one array), both also as .gz,
.csv, `datasets` folders, hub ids.
"""

import contextlib
import io
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from magcli.data import arrow, csv, durable, folder, jsonl, jsontexts, parquet, seal, types
from magcli.data.source import BadRow, Rows, Sink, Source, brief
from magcli.errors import DataError, UsageError, usage

ROWS_PER_BATCH = 1024
LINES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
SUFFIXES = (".arrow", ".parquet", *LINES, ".csv")
BESIDE = (".manifest.json", ".run.json")
"""What the files are called that magcli leaves beside tables."""


def ignore(place: str, reason: str, excerpt: str) -> None:
    """A ``BadRow`` for readers that only look."""


def read(name: str, bad: BadRow = ignore) -> Source:
    """Open a table by its name; rows that cannot be read are told to ``bad``.

    Raises:
        DataError: it does not exist, is empty, cut or damaged, or its kind is unknown.
        EnvironmentFault: a hub id that cannot be had.
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
            raise DataError(f"{name}: {brief(error)}") from None


def _open(name: str, bad: BadRow) -> Source:
    path = Path(name)
    if name == "-":
        usage(sys.stdin is not None, "stdin is closed: name a table, or pipe one in")
        return _read_pipe(io.FileIO(sys.stdin.fileno(), closefd=False), "stdin", bad)
    if path.is_dir():
        return folder.open_folder(path)
    if not path.exists():
        if _may_be_of_hub(path):
            return folder.open_hub(name)
        raise DataError(f"{name} does not exist")
    if path.is_fifo() or path.is_char_device():
        return _read_pipe(io.FileIO(name), name, bad)
    if name.endswith(BESIDE):
        raise DataError(f"{name} tells of the table beside it and is none")
    match kind := suffix(path):
        case ".arrow":
            return arrow.open_file(path)
        case ".parquet":
            return parquet.open_file(path)
        case ".jsonl" | ".jsonl.gz" | ".json" | ".json.gz" | ".ndjson" | ".ndjson.gz":
            return jsonl.open_file(path, bad)
        case ".csv":
            return csv.open_file(path, bad)
    raise DataError(f"{name}: unknown kind of table '{kind}'; known: {', '.join(SUFFIXES)}, a folder, a hub id, -")


def _may_be_of_hub(path: Path) -> bool:
    """Whether a name that is no file may be OWNER/NAME: such names have dots too."""
    known = (*SUFFIXES, ".ndjson", ".gz")
    return (
        len(path.parts) == 2
        and not path.parts[0].startswith((".", "/"))
        and not (path.parent.is_dir() or path.suffix in known)
    )


def suffix(path: Path) -> str:
    """What tells the kind of a table: the end of its name, with ``.gz`` also what stands before."""
    return "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix


def _read_pipe(raw: io.FileIO, name: str, bad: BadRow) -> Source:
    if raw.isatty():
        raise UsageError("no table: name one, or pipe one in")
    pipe = io.BufferedReader(raw, 1 << 16)
    head = pipe.peek(4)[:4]
    if not head:
        raise DataError(f"{name} is empty: the command before this one in the pipe gave no table")
    if (first := head.lstrip()[:1]) in (b"{", b"["):
        opened, digest = _kept(pipe)
        source = jsonl.open_texts(jsontexts.opened_texts(opened, name, array=first == b"["), name, bad)
        source.rows = _proven(source, source.rows, digest)
        return source
    return arrow.open_stream(pipe, name)


def _proven(source: Source, rows: Rows, digest: str) -> Rows:
    """The rows of a pipe, whose digest is known after the last one as that of any pipe: only a file can be parted."""
    yield from rows
    source.sha256 = digest


def _kept(pipe: BinaryIO) -> tuple[jsontexts.Opener, str]:
    """JSON is read twice, so a pipe of it is kept in a temporary file without a name; and the digest of its bytes."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as its reader
    hashing = seal.HashingWriter(file)
    shutil.copyfileobj(pipe, hashing)

    @contextlib.contextmanager
    def opened() -> Iterator[BinaryIO]:
        file.seek(0)
        yield file

    return opened, hashing.hash.hexdigest()


def check_target(name: str) -> None:
    """Refuse an output that cannot be written, before any work is done.

    Raises:
        UsageError: an unknown kind of table or a parent that is a file.
    """
    path = Path(name)
    kind = suffix(path)
    if name != "-" and kind not in SUFFIXES and kind:
        raise UsageError(f"output {name}: unknown kind of table '{kind}'; known: {', '.join(SUFFIXES)}, a folder, -")
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
        raise UsageError(f"output {name} is a folder with other things in it; choose another name")


@contextlib.contextmanager
def write(name: str, schema: pa.Schema, head: str) -> Iterator[Sink]:
    """A table to write by its name; it appears when it is finished and the block ends well."""
    path = Path(name)
    if name == "-":
        with durable.disk_faults(Path("stdout")), open(sys.stdout.fileno(), "wb", closefd=False) as out:
            yield arrow.StreamSink(out, schema, head)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with _maker(path)(path, schema, head) as sink:
        yield sink


def _maker(path: Path) -> Callable[[Path, pa.Schema, str], contextlib.AbstractContextManager[Sink]]:
    match suffix(path):
        case ".arrow":
            return arrow.file_sink
        case ".parquet":
            return parquet.file_sink
        case kind if kind in LINES:
            return jsonl.file_sink
        case ".csv":
            return csv.file_sink
    return folder.folder_sink


def rechunk(rows: Rows, size: int = ROWS_PER_BATCH, room: int = types.BATCH_BYTES) -> Rows:
    """The same rows in batches of ``size``, fewer where these would be larger than ``room`` bytes.

    Where a batch ends depends on the rows alone, so equal tables have equal bytes however they were made.
    """
    pending: list[pa.RecordBatch] = []
    held = weight = 0
    for batch in (batch for batch in rows if batch.num_rows):
        sizes = types.row_bytes(batch)
        while batch.num_rows:
            fits = types.fitting_rows(sizes[: size - held], room - weight)
            if pending and sizes[0] > room - weight:
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
    """Several batches of one schema as one, copied: a slice brings stray bits of its neighbours along."""
    return pa.concat_batches(batches)
