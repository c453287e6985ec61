"""The manifest beside a file of a format that cannot carry its own history: what the file is, and the proof of it."""

import base64
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow as pa

from magcli.data import durable, manifest, seal
from magcli.data.source import Sink, manifest_path
from magcli.errors import DataError


@dataclass(frozen=True)
class Note:
    """What a manifest tells of its file: history, rows, digest, and the exact types that text cannot tell."""

    chain: manifest.Chain
    rows: int
    sha256: str
    schema: pa.Schema


def check(path: Path) -> tuple[str, Note | None]:
    """A file's digest and its manifest, when there is one beside it.

    Raises:
        DataError: the file is empty with no manifest to say so, or is not what its manifest tells.
    """
    digest, note = seal.hash_file(path), manifest_path(path)
    if not note.exists():
        if path.stat().st_size == 0:
            raise DataError(f"{path} is empty")
        return digest, None
    try:
        told = _parse(note.read_bytes())
    except (ValueError, KeyError, TypeError, pa.ArrowException):
        raise DataError(f"{note} is damaged; remove it to read {path.name} without its history") from None
    if told.sha256 != digest:
        raise DataError(f"{path} is not what magcli wrote (cut, damaged or edited); remove {note} to read it anyway")
    return digest, told


def _parse(text: bytes) -> Note:
    told = seal.open_json(text)
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(told["schema"])))
    return Note(manifest.from_json(told["chain"]), told["rows"], told["sha256"], schema)


class Writer(Protocol):
    """A table being written as text."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        ...

    def close(self) -> None:
        """Write what is left."""
        ...


class NotedSink:
    """A sink whose history goes into a manifest beside the file."""

    def __init__(self, writer: Writer, file: BinaryIO, schema: pa.Schema) -> None:
        self.writer, self.file, self.schema = writer, file, schema
        self.rows = 0
        self.note = ""

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self.writer.write(batch)
        self.rows += batch.num_rows

    def finish(self, chain: manifest.Chain) -> str:
        """Close the table and prepare its manifest."""
        self.writer.close()
        self.file.flush()
        self.file.seek(0)
        digest = seal.hash_open(self.file)
        schema = base64.b64encode(self.schema.serialize().to_pybytes()).decode()
        told = {"chain": manifest.to_json(chain), "rows": self.rows, "schema": schema, "sha256": digest}
        self.note = seal.seal_json(told)
        return digest


@contextlib.contextmanager
def noted(path: Path, schema: pa.Schema, make: Callable[[BinaryIO], Writer]) -> Iterator[Sink]:
    """Write a file and then its manifest; between the two the file stands alone, as any other tool's would."""
    note = manifest_path(path)
    with durable.whole_file(path) as file:
        sink = NotedSink(make(file), file, schema)
        yield sink
        durable.remove(note)
    with durable.whole_file(note) as file:
        file.write(sink.note.encode())
