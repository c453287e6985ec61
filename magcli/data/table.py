"""Read and write tables by name: ``-`` (a stream), .arrow, .feather, .parquet, .jsonl, .json (one array), both also as
.gz, .csv, `datasets` folders; read hub ids and what ``magcli.data.generated`` makes.
"""

import contextlib
import glob
import io
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from magcli.data import (
    arrow,
    csv,
    durable,
    features,
    folder,
    generated,
    inside,
    inspect_log,
    json_columns,
    jsonl,
    pipe,
    plain,
    reasoning_gym,
    repository,
    seal,
    stream,
    tasksets,
    types,
    wandb_table,
)
from magcli.data.manifest import SIDE_FILES, Chain, merge
from magcli.data.packed import PACKED
from magcli.data.schema import common_schema, conform
from magcli.data.source import LOST, BadRow, Rows, Sink, Source, total_rows
from magcli.data.source import ignore as ignore
from magcli.errors import DataError, UsageError, first_line, usage

ROWS_PER_BATCH = 1024
LINES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")
SUFFIXES = (".arrow", ".feather", ".parquet", *LINES, ".csv")
_TEXTS = itertools.product((".jsonl", ".ndjson", ".json", ".csv", ".tsv"), ("", *PACKED))
READABLE = (*map("".join, _TEXTS), ".parquet", ".arrow", ".feather")
"""The suffixes of the tables in a folder."""
SINKS: Mapping[str, Callable[[Path, pa.Schema, str], contextlib.AbstractContextManager[Sink]]] = {
    ".arrow": arrow.file_sink,
    ".feather": arrow.feather_sink,
    ".parquet": arrow.parquet_sink,
    **dict.fromkeys(LINES, jsonl.file_sink),
    ".csv": csv.file_sink,
}
"""The writer of each suffix; a name without one is a folder."""


def refuse_lost(name: str) -> BadRow:
    """A ``BadRow`` for tables that options name: what magcli itself cannot read is an error, other rows are left out.

    Raises:
        DataError: a row is in another encoding or too large.
    """

    def refuse(location: str, reason: str, excerpt: str) -> None:
        if reason in LOST:
            raise DataError(f"{name}: {location} cannot be read ({reason}); {LOST[reason]}")

    return refuse


def read(name: str, bad: BadRow | None = None, head: int = 0) -> Source:
    """Open a table by its name; rows that cannot be read are reported to ``bad``, by default ``refuse_lost``.

    With ``head``, a file is read only as far as needed for that many rows; its seal and digest are not checked.

    Raises:
        DataError: it does not exist, is empty, truncated or damaged, or has an unknown suffix.
        UsageError: a library has nothing of the name that follows its own.
        EnvironmentFault: a hub data set cannot be loaded, or a library is not installed.
    """
    source = _open(name, bad or refuse_lost(name), head)
    schema = types.plain_schema(source.schema, name)
    source.rows = _plain(source.rows, schema, name)
    source.schema = schema
    return source


def expand(names: Sequence[str]) -> list[str]:
    """The names of tables, with the files that a pattern in quotes stands for.

    Raises:
        DataError: no file matches.
    """
    expanded: list[str] = []
    for name in names:
        is_pattern = any(sign in name for sign in "*?[")
        # A file or a generated table may have such a sign in its name.
        if os.path.lexists(name) or generated.is_generated(name) or not is_pattern:
            expanded.append(name)
            continue
        files = sorted(glob.glob(name, recursive=True))
        if not files:
            raise DataError(f"no file matches {name}")
        expanded += files
    return expanded


def _plain(rows: Rows, schema: pa.Schema, name: str) -> Rows:
    for batch in rows:
        try:
            yield from types.plain_rows(batch, schema)
        except pa.ArrowException as error:
            raise DataError(f"{name}: {first_line(error)}") from None


def _open(name: str, bad: BadRow, head: int) -> Source:
    path = Path(name)
    usage(bool(name), "the name of a table is empty")
    if name == "-":
        usage(sys.stdin is not None, "stdin is closed: name a table, or pipe one in")
        return pipe.read(io.FileIO(sys.stdin.fileno(), closefd=False), "stdin", bad)
    if path.is_dir():
        return _open_folder(path, "", bad, head)
    if not path.exists():
        # A folder of this name comes before a library or a hub id of it.
        before, colon, split = name.partition(":")
        if colon and Path(before).is_dir():
            return _open_folder(Path(before), split, bad, head)
        if generated.is_generated(name):
            return _open_generated(name)
        if "://" in name:
            raise DataError(f"{name} is a URL; download the file, or pipe it in: curl -L URL | magcli ...")
        if _may_be_hub_id(path):
            return folder.open_hub(name)
        raise DataError(f"{name} does not exist")
    if path.is_fifo() or path.is_char_device() or name.startswith("/dev/fd/"):
        return pipe.read(io.FileIO(name), name, bad)
    if name.endswith(SIDE_FILES):
        raise DataError(f"{name} is not a table but the manifest or run record of one; give the table itself")
    return _open_file(path, bad, head)


def _open_generated(name: str) -> Source:
    """The table that a library makes. Raises UsageError and EnvironmentFault as the library's module does."""
    readers = {reasoning_gym.LIBRARY: reasoning_gym.read, tasksets.LIBRARY: tasksets.read}
    request = generated.requested(name)
    return readers[request.library](request)


def _open_file(path: Path, bad: BadRow, head: int) -> Source:
    """Read a file by its suffix.

    Raises:
        DataError: the suffix is unknown, or the file cannot be read.
    """
    # By their content, as both may have the suffix of JSON.
    if inspect_log.is_log(path):
        return inspect_log.open_file(path, bad)
    if wandb_table.is_table(path):
        return wandb_table.open_file(path, bad)
    match kind := suffix(path):
        case ".arrow" | ".feather":
            return arrow.open_file(path, verify=not head)
        case ".parquet":
            return arrow.open_parquet(path, verify=not head)
        case _ if _text_suffix(kind) in (".jsonl", ".json", ".ndjson"):
            return jsonl.open_head(path, bad, head) if head else jsonl.open_file(path, bad)
        case _ if _text_suffix(kind) in (".csv", ".tsv"):
            return csv.open_head(path, bad, head) if head else csv.open_file(path, bad)
    formats = ", ".join((*SUFFIXES, inspect_log.ARCHIVE))
    raise DataError(f"{path}: unknown table format '{kind}'; known: {formats}, a folder, a hub id, -")


def _open_folder(path: Path, split: str, bad: BadRow, head: int) -> Source:
    """Read a folder that `datasets` saved, or the files of one split of a folder of tables."""
    # `datasets` writes the first for a table, the second for a dictionary of splits.
    if (path / "state.json").exists() and not split:
        return folder.open_folder(path)
    if (path / "dataset_dict.json").exists():
        folder_of_split = inside.named_in(path, split, f"{path}:{split}") if split else path
        return folder.open_folder(folder_of_split)
    if (path / "run.json").exists() and (path / "metrics.jsonl").exists():
        rollouts = f"; its rollouts are the table {path / 'rollouts'}" if (path / "rollouts").is_dir() else ""
        raise DataError(f"{path} is the folder of a run, not a table{rollouts}; magcli report {path} shows the run")
    splits = repository.splits_of(path, READABLE)
    if not splits:
        return folder.open_folder(path)
    names = ", ".join(f"{path}:{name}" for name in splits)
    if not split and len(splits) > 1:
        raise DataError(f"{path} contains several tables; give one of them: {names}")
    if split and split not in splits:
        raise DataError(f"{path} has no split {split}; it has: {names}")
    only_split = next(iter(splits))
    files = splits[split or only_split]
    return _joined(str(path), [read(str(file), bad, head) for file in files])


def _joined(name: str, parts: Sequence[Source]) -> Source:
    """The files of one split as one table."""
    schema = common_schema([part.schema for part in parts])
    batches = itertools.chain.from_iterable(part.rows for part in parts)
    rows = (conform(batch, schema) for batch in batches)
    chain = merge([part.chain for part in parts])
    digest = seal.hash_text("".join(part.sha256 for part in parts))
    return Source(name, schema, rows, chain, digest, total_rows(parts))


def _text_suffix(kind: str) -> str:
    """The suffix of a text file without that of its compression."""
    return kind.removesuffix(".gz").removesuffix(".zst")


def _may_be_hub_id(path: Path) -> bool:
    """Whether a name may be a hub id, OWNER/NAME, which may contain dots."""
    if len(path.parts) != 2 or path.parts[0].startswith((".", "/")):
        return False
    is_missing_file = path.parent.is_dir() or path.suffix.lower() in (*SUFFIXES, ".ndjson", ".tsv", *PACKED)
    return not is_missing_file


def suffix(path: Path) -> str:
    """The suffix that determines the format, in lower case; for a compressed file with the one before it."""
    last = path.suffix.lower()
    return "".join(path.suffixes[-2:]).lower() if last in PACKED else last


def check_target(name: str, form: str = "") -> None:
    """Check that an output can be written, before any work is done; ``form`` is the format of a stream.

    Raises:
        UsageError: an unknown suffix, or something else is there.
        EnvironmentFault: the name is too long.
    """
    if stream.is_stream(name):
        stream.check(name, form)
        return
    path = Path(name)
    durable.check_length(path)
    kind = suffix(path)
    usage(bool(path.name), f"output '{name}' has no name of its own; name a file or a folder in it")
    usage(not form, f"--format is that of stdout and named pipes; the format of {name} is that of its suffix")
    if kind not in SUFFIXES and kind:
        raise UsageError(f"output {name}: unknown table format '{kind}'; known: {', '.join(SUFFIXES)}, a folder, -")
    if kind in SUFFIXES and path.is_dir():
        raise UsageError(f"output {name} is a folder; choose another name or remove it")
    if not kind and path.exists() and not path.is_dir():
        raise UsageError(
            f"output {name} is a file, and a name without a suffix means a folder; known: {', '.join(SUFFIXES)}"
        )
    # What `datasets` or magcli saved there may be replaced.
    if path.is_dir() and any(path.iterdir()) and not (path / "state.json").exists():
        raise UsageError(f"output {name} is a folder with other files; choose another name")


@contextlib.contextmanager
def write(name: str, schema: pa.Schema, head: str, form: str = "") -> Iterator[Sink]:
    """A table to write, by its name; a file or folder appears when it is finished and the block ends without an error.

    ``form`` is the format of a stream.
    """
    if stream.is_stream(name):
        with _stream_sink(name, schema, head, stream.format_of(name, form)) as sink:
            yield sink
        return
    path = Path(stream.target(name))
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = suffix(path)
    # Text has plain values; the manifest records their types.
    if kind in (*LINES, ".csv"):
        with SINKS[kind](path, schema, head) as sink:
            yield sink
        return
    stored = _stored(schema, kind)
    with SINKS.get(kind, folder.folder_sink)(path, stored, head) as sink:
        yield _StoringSink(sink, stored)


@contextlib.contextmanager
def _stream_sink(name: str, schema: pa.Schema, head: str, form: str) -> Iterator[Sink]:
    is_stdout = name == stream.STDOUT
    label = "stdout" if is_stdout else name
    stored = _stored(schema, ".arrow") if form == "arrow" else schema
    file = sys.stdout.fileno() if is_stdout else name
    with durable.disk_errors(Path(label)), open(file, "wb", closefd=not is_stdout) as out:
        sink = stream.sink(out, stored, head, form)
        yield _StoringSink(sink, stored) if form == "arrow" else sink


def _stored(schema: pa.Schema, kind: str) -> pa.Schema:
    """The schema in Arrow and Parquet files, as `datasets` writes it: ``arrow.json``, and features.

    A folder (no ``kind``) has plain types, because `datasets` does not know the others.
    """
    fields = [plain.stored_field(field, in_parquet=kind == ".parquet") if kind else field for field in schema]
    return features.with_features(json_columns.with_arrow_json(pa.schema(fields, schema.metadata)))


@dataclass
class _StoringSink:
    """Writes a table with the types and metadata of ``_stored``."""

    sink: Sink
    schema: pa.Schema

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        columns = [_as_stored(column, field) for column, field in zip(batch.columns, self.schema, strict=True)]
        self.sink.write(pa.RecordBatch.from_arrays(columns, schema=self.schema))

    def finish(self, chain: Chain) -> str:
        """End the table."""
        return self.sink.finish(chain)


def _as_stored(column: pa.Array, field: pa.Field) -> pa.Array:
    if isinstance(field.type, pa.JsonType):
        return pa.ExtensionArray.from_storage(field.type, column)
    try:
        return plain.stored_array(column, field.type)
    except ValueError as error:
        raise DataError(
            f"column {field.name} was {field.type}, and has another value now: {first_line(error)}"
        ) from None


def rechunk(rows: Rows, size: int = ROWS_PER_BATCH, max_bytes: int = types.BATCH_BYTES) -> Rows:
    """The same rows in batches of ``size`` rows, fewer if they would have more than ``max_bytes``.

    The boundaries of batches depend only on the rows, so equal tables have equal bytes however they were computed.
    """
    pending: list[pa.RecordBatch] = []
    pending_rows = pending_bytes = 0
    for batch in (batch for batch in rows if batch.num_rows):
        sizes = types.row_bytes(batch)
        while batch.num_rows:
            fits = types.fitting_rows(sizes[: size - pending_rows], max_bytes - pending_bytes)
            # ``fitting_rows`` is at least 1, for rows beyond the limit; such a row starts a batch of its own.
            if pending and sizes[0] > max_bytes - pending_bytes:
                fits = 0
            pending.append(batch.slice(0, fits))
            pending_rows += fits
            pending_bytes += int(sizes[:fits].sum())
            batch, sizes = batch.slice(fits), sizes[fits:]
            if pending_rows == size or batch.num_rows:
                yield one_batch(pending)
                pending = []
                pending_rows = 0
                pending_bytes = 0
    if pending_rows:
        yield one_batch(pending)


def one_batch(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches of one schema as one, copied, because a slice would be written with stray bits of its neighbours."""
    return pa.concat_batches(batches)
