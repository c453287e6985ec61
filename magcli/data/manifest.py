"""The history of a table: one link per stage, stored with the data in files and pipes.

A link has the stage, its settings, inputs and counts, but no times or hosts, so that equal outputs have equal bytes. A
format that cannot contain the history has it in a manifest, a hidden file next to the table.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from magcli.data import durable, seal
from magcli.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Input:
    """A table that a stage read: its name without folder, digest and number of rows."""

    name: str
    sha256: str
    rows: int


@dataclass(frozen=True, slots=True)
class Link:
    """One stage's part of a table's history."""

    stage: str
    version: str
    config: Mapping[str, Any]
    inputs: Sequence[Input] = ()
    rows_in: int = 0
    rows_out: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)


MANIFEST = ".manifest.json"
NOTE = ".run.json"
SIDE_FILES = (MANIFEST, NOTE)
"""Endings of the side files of a table."""
Chain = tuple[Link, ...]
"""The history of a table, oldest stage first."""


def to_json(chain: Chain) -> list[dict[str, Any]]:
    """A chain as JSON values."""
    return [asdict(link) for link in chain]


def from_json(values: Sequence[Mapping[str, Any]]) -> Chain:
    """A chain from what ``to_json`` returns."""
    links = []
    for value in values:
        inputs = tuple(Input(**entry) for entry in value.get("inputs", ()))
        links.append(Link(**{**value, "inputs": inputs}))
    return tuple(links)


def merge(chains: Sequence[Chain]) -> Chain:
    """The histories of several inputs, one after the other, each link once."""
    seen: list[Link] = []
    for chain in chains:
        # Inputs may have their first stages in common.
        seen.extend(link for link in chain if link not in seen)
    return tuple(seen)


def manifest_path(path: Path) -> Path:
    """The manifest of a file or folder whose format cannot contain its history."""
    return path / "manifest.json" if path.is_dir() else _existing(path, MANIFEST)


def note_path(path: Path) -> Path:
    """The note of a table: times and rates of the command that wrote it, which would make equal tables differ."""
    return _existing(path, NOTE)


def _existing(path: Path, ending: str) -> Path:
    """A side file: the hidden one, or the visible one of an earlier version if only that exists.

    The side files of a table behind a symbolic link are next to the table.
    """
    path = path.resolve() if path.is_symlink() else path
    hidden = hidden_path(path, ending)
    visible = path.with_name(path.name + ending)
    return visible if visible.exists() and not hidden.exists() else hidden


def hidden_path(path: Path, ending: str) -> Path:
    """A side file to write; it is hidden, because `datasets` takes every other file of a folder for data."""
    return path.with_name(f".{path.name}{ending}")


def remove_side_file(path: Path, ending: str) -> None:
    """Remove a side file, also that of an earlier version."""
    durable.remove(hidden_path(path, ending))
    durable.remove(path.with_name(path.name + ending))


@dataclass(frozen=True)
class Manifest:
    """History, number of rows and digest of a file, and its exact types, which text does not contain."""

    chain: Chain
    rows: int
    sha256: str
    schema: pa.Schema


def check_manifest(path: Path) -> tuple[str, Manifest | None]:
    """A file's digest, and its manifest if there is one.

    Raises:
        DataError: the file differs from its manifest, or it is empty and has none.
    """
    import pyarrow as pa

    digest = seal.hash_file(path)
    location = manifest_path(path)
    if not location.exists():
        # A table of magcli without rows may be empty too, and has its columns in the manifest.
        if path.stat().st_size == 0:
            raise DataError(f"{path} is empty")
        return digest, None
    try:
        value = seal.open_json(location.read_bytes())
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(value["schema"])))
        manifest = Manifest(from_json(value["chain"]), value["rows"], value["sha256"], schema)
    except (ValueError, KeyError, TypeError, pa.ArrowException):
        raise DataError(f"{location} is damaged; remove it to read {path.name} without its history") from None
    if manifest.sha256 != digest:
        raise DataError(
            f"{path} is not what magcli wrote (truncated, damaged or edited); remove {location} to read it anyway"
        )
    return digest, manifest


class TextWriter(Protocol):
    """Writes a table as text; ``close`` writes the rest."""

    def write(self, batch: pa.RecordBatch) -> None: ...
    def close(self) -> None: ...


class ManifestSink:
    """Writes a table through a ``TextWriter``, and prepares the manifest to write next to it."""

    def __init__(self, writer: TextWriter, file: BinaryIO, schema: pa.Schema) -> None:
        self.writer = writer
        self.file = file
        self.schema = schema
        self.rows = 0
        self.manifest = ""

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self.writer.write(batch)
        self.rows += batch.num_rows

    def finish(self, chain: Chain) -> str:
        """Close the table and prepare its manifest."""
        self.writer.close()
        self.file.flush()
        self.file.seek(0)
        # Of the bytes on the disk, which may be compressed.
        digest = seal.hash_open(self.file)
        schema = base64.b64encode(self.schema.serialize().to_pybytes()).decode()
        value = {"chain": to_json(chain), "rows": self.rows, "schema": schema, "sha256": digest}
        self.manifest = seal.seal_json(value)
        return digest


@contextlib.contextmanager
def with_manifest(path: Path, schema: pa.Schema, make: Callable[[BinaryIO], TextWriter]) -> Iterator[ManifestSink]:
    """Write a file and then its manifest; a kill in between leaves a file without history."""
    with durable.atomic_file(path) as file:
        sink = ManifestSink(make(file), file, schema)
        yield sink
        # Before the file appears: with the manifest of an older one it would count as damaged.
        remove_side_file(path, MANIFEST)
    with durable.atomic_file(hidden_path(path, MANIFEST)) as file:
        file.write(sink.manifest.encode())
