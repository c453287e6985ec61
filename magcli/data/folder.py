"""`datasets` folders (`save_to_disk`) and hub ids. The only module that imports `datasets`.

`datasets` reads a file that was truncated between two batches without an error; here every file of a folder must have
its end-of-stream mark. (The counts in dataset_info.json are no evidence: `filter` keeps those of the whole data set.) A
folder written by magcli is checked against the digests in its manifest.json.
"""

import contextlib
import itertools
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from magcli.data import arrow, durable, manifest, seal
from magcli.data.inside import named_in, refuse_outside
from magcli.data.manifest import manifest_path
from magcli.data.source import Source
from magcli.errors import DataError, EnvironmentFault

DATA_FILE = "data-00000-of-00001.arrow"
"""How `datasets` names the only data file of a folder."""
HUB_TIMEOUT = 5.0
"""Seconds to wait for a connection to the hub."""


def open_folder(path: Path) -> Source:
    """Read a `save_to_disk` folder.

    Raises:
        DataError: it is not such a folder, or a file of it is truncated, damaged or missing.
    """
    chain, total = _check_manifest(path)
    files = _data_files(path)
    missing = [str(file) for file in files if not file.exists()]
    if missing:
        raise DataError(f"{path} is incomplete: {', '.join(missing)} is missing")
    sources = [arrow.open_file(file) for file in files]
    schema = sources[0].schema
    batches = itertools.chain.from_iterable(source.rows for source in sources)
    rows = (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in batches)
    return Source(str(path), schema, rows, chain, _digest(files), total)


def _data_files(path: Path) -> list[Path]:
    """The files of a table, in its order. Raises DataError if the folder has none or several tables."""
    if (path / "dataset_dict.json").exists():
        folders = [folder for folder in sorted(path.iterdir()) if folder.is_dir()]
        splits = ", ".join(map(str, folders))
        raise DataError(f"{path} contains several tables; give one of them: {splits}")
    try:
        state = json.loads(refuse_outside(path / "state.json", path).read_text(encoding="utf-8"))
        files = [named_in(path, entry["filename"], path / "state.json") for entry in state["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise DataError(f"{path} is not a folder that `datasets` saved, and has no table in it") from None
    if not files:
        raise DataError(f"{path} has no data file")
    return files


def _digest(files: list[Path]) -> str:
    return seal.hash_text("".join(seal.hash_file(file) for file in files))


def _check_manifest(path: Path) -> tuple[manifest.Chain, int | None]:
    """The history and the number of rows of a folder that magcli wrote. Raises DataError if a file has changed."""
    manifest_file = manifest_path(path)
    if not manifest_file.exists():
        return (), None
    try:
        record = seal.open_json(manifest_file.read_bytes())
        files = record["files"]
        chain = manifest.from_json(record["chain"])
        rows = int(record["rows"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DataError(f"{manifest_file} is damaged") from None
    for name, digest in files.items():
        if not named_in(path, name, manifest_file).exists() or seal.hash_file(path / name) != digest:
            raise DataError(f"{path / name} is truncated, damaged or missing: its digest in {manifest_file} differs")
    return chain, rows


class FolderSink:
    """Writes a `save_to_disk` folder: one stream file and the two JSON files that `datasets` expects."""

    def __init__(self, folder: Path, schema: pa.Schema, features: Any) -> None:
        self.folder, self.features = folder, features
        self.file = open(folder / DATA_FILE, "wb")  # noqa: SIM115
        self.schema = schema
        self.writer = pa.ipc.new_stream(self.file, self.schema)
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self.rows += batch.num_rows
        self.writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=self.schema))

    def finish(self, chain: manifest.Chain) -> str:
        """Write the JSON files and the manifest."""
        self.writer.close()
        self.file.close()
        # Read again, because importing `datasets` has registered its extension types.
        schema = pa.ipc.read_schema(self.schema.serialize())
        features = self.features.from_arrow_schema(schema).to_dict()
        info = {"features": features, "splits": {"train": {"name": "train", "num_examples": self.rows}}}
        state: dict[str, Any] = {
            "_data_files": [{"filename": DATA_FILE}],
            # `datasets` names its caches by it, so it follows from the rows.
            "_fingerprint": seal.hash_file(self.folder / DATA_FILE)[:16],
            "_format_columns": None,
            "_format_kwargs": {},
            "_format_type": None,
            "_output_all_columns": False,
            "_split": None,
        }
        self._json("dataset_info.json", info)
        self._json("state.json", state)
        names = [DATA_FILE, "dataset_info.json", "state.json"]
        files = {name: seal.hash_file(self.folder / name) for name in names}
        value = {"chain": manifest.to_json(chain), "files": files, "rows": self.rows}
        (self.folder / "manifest.json").write_text(seal.seal_json(value), encoding="utf-8")
        return _digest([self.folder / DATA_FILE])

    def _json(self, name: str, value: dict[str, Any]) -> None:
        (self.folder / name).write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")


@contextlib.contextmanager
def folder_sink(path: Path, schema: pa.Schema, head: str) -> Iterator[FolderSink]:
    """A folder that appears when it is finished."""
    from datasets import Features

    with durable.atomic_folder(path) as temp:
        sink = FolderSink(temp, schema, Features)
        with sink.file:
            yield sink


def open_hub(name: str) -> Source:
    """Read a hub data set, ``owner/name``, ``owner/name:split`` or ``owner/name:configuration:split``.

    Raises:
        DataError: it has several splits, and none is named.
        EnvironmentFault: the hub cannot be reached or has no such data set.
    """
    _reach_hub(name)
    repository, *chosen = name.split(":")
    split = chosen[-1] if chosen else None
    configuration = chosen[0] if len(chosen) > 1 else None
    return open_split(name, repository, configuration, split)


def open_split(name: str, repository: str, configuration: str | None, split: str | None) -> Source:
    """Read a split of a repository that `datasets` can load; without a name the only one, or ``train``.

    Raises:
        DataError: it has several splits without ``train``, and none is named.
        EnvironmentFault: it cannot be loaded.
    """
    from datasets import get_dataset_split_names, load_dataset

    with _hub_errors(name):
        splits = [split] if split else get_dataset_split_names(repository, configuration)
    if len(splits) > 1 and "train" not in splits:
        names = ", ".join(f"{name}:{split_name}" for split_name in splits)
        raise DataError(f"{name} contains several tables; give one of them: {names}")
    chosen = splits[0] if len(splits) == 1 else "train"
    with _hub_errors(name):  # code in the repository is never run
        data = load_dataset(repository, configuration, split=chosen, trust_remote_code=False)
    table = data.data.table
    schema = table.schema.with_metadata(data.features.arrow_schema.metadata)
    return Source(name, schema, iter(table.to_batches(1024)), total=data.num_rows)


@contextlib.contextmanager
def _hub_errors(name: str) -> Iterator[None]:
    """Report what the hub's client raises, which has no common type."""
    try:
        yield
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise EnvironmentFault(f"cannot load hub data set {name}: {reason}") from None


def _reach_hub(name: str) -> None:
    """Fail quickly if the hub cannot be reached; the hub client would try for half a minute."""
    try:
        from huggingface_hub import constants
    except ModuleNotFoundError:
        text = f"{name} is not a local file or folder; to read data sets of the hub: pip install 'magcli[hub]'"
        raise EnvironmentFault(text) from None

    # The user may have set another one, such as a mirror.
    endpoint = urlsplit(constants.ENDPOINT)
    port = endpoint.port or (443 if endpoint.scheme == "https" else 80)
    try:
        socket.create_connection((endpoint.hostname or "", port), HUB_TIMEOUT).close()
    except OSError as error:
        reason = f"{endpoint.hostname} cannot be reached ({error.strerror or error})"
        raise EnvironmentFault(f"{name} is not a local file or folder, and as a hub data set: {reason}") from None
