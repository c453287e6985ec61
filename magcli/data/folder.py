"""`datasets` folders (`save_to_disk`) and hub ids. The only place that imports `datasets`.

`datasets` reads a file that was cut between two batches without a word, so a folder is checked against its own counts.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from magcli.data import arrow, durable, manifest, seal
from magcli.data.source import Rows, Source, manifest_path
from magcli.errors import DataError, EnvironmentFault


def open_folder(path: Path) -> Source:
    """Read a `save_to_disk` folder.

    Raises:
        DataError: it is no such folder, or a file of it is cut, damaged or missing.
    """
    chain = _check_manifest(path)
    try:
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        files = [path / entry["filename"] for entry in state["_data_files"]]
    except (OSError, ValueError, KeyError):
        raise DataError(f"{path} is not a folder that `datasets` saved: no usable state.json in it") from None
    missing = [str(file) for file in files if not file.exists()]
    if missing:
        raise DataError(f"{path} is incomplete: {', '.join(missing)} is missing")
    sources = [arrow.open_file(file) for file in files]
    if not sources:
        raise DataError(f"{path} has no data file")
    expected = _promised_rows(path)
    schema = sources[0].schema.remove_metadata()
    return Source(str(path), schema, _rows(sources, schema, expected, path), chain, _digest(files), expected)


def _digest(files: list[Path]) -> str:
    return seal.hash_text("".join(seal.hash_file(file) for file in files))


def _promised_rows(path: Path) -> int | None:
    try:
        info = json.loads((path / "dataset_info.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    splits = info.get("splits") or {}
    counts = [split.get("num_examples") for split in splits.values()]
    return sum(counts) if counts and all(isinstance(count, int) for count in counts) else None


def _rows(sources: list[Source], schema: pa.Schema, expected: int | None, path: Path) -> Rows:
    count = 0
    for source in sources:
        for batch in source.rows:
            count += batch.num_rows
            yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    if expected is not None and count != expected:
        raise DataError(f"{path} is cut: {count} rows where its dataset_info.json promises {expected}")


def _check_manifest(path: Path) -> manifest.Chain:
    note = manifest_path(path)
    if not note.exists():
        return ()
    try:
        told = json.loads(note.read_text(encoding="utf-8"))
        files, chain = told["files"], manifest.from_json(told["chain"])
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{note} is damaged") from None
    for name, digest in files.items():
        if not (path / name).exists() or seal.hash_file(path / name) != digest:
            raise DataError(f"{path / name} is cut, damaged or missing: it is not what {note} tells")
    return chain


class FolderSink:
    """A `save_to_disk` folder being written: one stream file and the two JSON files that `datasets` expects."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self.folder = folder
        self.file = open(folder / "data-00000-of-00001.arrow", "wb")  # noqa: SIM115
        self.schema = schema.remove_metadata()
        self.writer = pa.ipc.new_stream(self.file, self.schema)
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self.rows += batch.num_rows
        self.writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=self.schema))

    def finish(self, chain: manifest.Chain) -> str:
        """Write the descriptions and the manifest."""
        from datasets import Features

        self.writer.close()
        self.file.close()
        features = Features.from_arrow_schema(self.schema).to_dict()
        info = {"features": features, "splits": {"train": {"name": "train", "num_examples": self.rows}}}
        state: dict[str, Any] = {
            "_data_files": [{"filename": "data-00000-of-00001.arrow"}],
            "_fingerprint": seal.hash_file(self.folder / "data-00000-of-00001.arrow")[:16],
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": None,
        }
        self._json("dataset_info.json", info)
        self._json("state.json", state)
        names = ["data-00000-of-00001.arrow", "dataset_info.json", "state.json"]
        files = {name: seal.hash_file(self.folder / name) for name in names}
        self._json("manifest.json", {"chain": manifest.to_json(chain), "files": files, "rows": self.rows})
        return _digest([self.folder / "data-00000-of-00001.arrow"])

    def _json(self, name: str, value: dict[str, Any]) -> None:
        (self.folder / name).write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")


@contextlib.contextmanager
def folder_sink(path: Path, schema: pa.Schema, head: str) -> Iterator[FolderSink]:
    """A folder that takes its place when it is finished."""
    with durable.whole_folder(path) as temp:
        yield FolderSink(temp, schema)


def open_hub(name: str) -> Source:
    """Read a hub data set, ``owner/name`` or ``owner/name:split``.

    Raises:
        EnvironmentFault: the hub cannot be reached or has no such data set.
    """
    from datasets import load_dataset

    repository, _, split = name.partition(":")
    try:
        data = load_dataset(repository, split=split or "train")
    except Exception as error:  # the hub client has no common error type
        raise EnvironmentFault(f"hub data set {name} cannot be had: {str(error).splitlines()[0]}") from None
    table = data.data.table
    return Source(name, table.schema.remove_metadata(), iter(table.to_batches(1024)), (), "", table.num_rows)
