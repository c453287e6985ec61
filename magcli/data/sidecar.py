"""The manifest next to a table whose format cannot contain it: history, types, number of rows and digest."""

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
class Manifest:
    """History, number of rows and digest of a file, and its exact types, which text does not contain."""

    chain: manifest.Chain
    rows: int
    sha256: str
    schema: pa.Schema


def check(path: Path) -> tuple[str, Manifest | None]:
    """A file's digest, and its manifest if there is one.

    Raises:
        DataError: the file differs from its manifest, or it is empty and has none.
    """
    digest, place = seal.hash_file(path), manifest_path(path)
    if not place.exists():
        if path.stat().st_size == 0:
            raise DataError(f"{path} is empty")
        return digest, None
    try:
        value = seal.open_json(place.read_bytes())
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value["schema"])))
        found = Manifest(manifest.from_json(value["chain"]), value["rows"], value["sha256"], schema)
    except (ValueError, KeyError, TypeError, pa.ArrowException):
        raise DataError(f"{place} is damaged; remove it to read {path.name} without its history") from None
    if found.sha256 != digest:
        raise DataError(
            f"{path} is not what magcli wrote (truncated, damaged or edited); remove {place} to read it anyway"
        )
    return digest, found


class Writer(Protocol):
    """Writes a table as text; ``close`` writes the rest."""

    def write(self, batch: pa.RecordBatch) -> None: ...
    def close(self) -> None: ...


class ManifestSink:
    """Writes a table through a ``Writer``, and prepares the manifest to write next to it."""

    def __init__(self, writer: Writer, file: BinaryIO, schema: pa.Schema) -> None:
        self.writer, self.file, self.schema = writer, file, schema
        self.rows = 0
        self.manifest = ""

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
        value = {"chain": manifest.to_json(chain), "rows": self.rows, "schema": schema, "sha256": digest}
        self.manifest = seal.seal_json(value)
        return digest


@contextlib.contextmanager
def with_manifest(path: Path, schema: pa.Schema, make: Callable[[BinaryIO], Writer]) -> Iterator[Sink]:
    """Write a file and then its manifest; a kill in between leaves a file without history."""
    place = manifest_path(path)
    with durable.atomic_file(path) as file:
        sink = ManifestSink(make(file), file, schema)
        yield sink
        durable.remove(place)
    with durable.atomic_file(place) as file:
        file.write(sink.manifest.encode())
