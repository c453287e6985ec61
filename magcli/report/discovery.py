"""Discover the artifacts of a report under the given paths: tables with their history, training runs, landscapes."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from magcli.data import table
from magcli.data.manifest import SIDE_FILES, Chain, Link, manifest_path, note_path
from magcli.data.schema import DROPPED
from magcli.data.values import readable_rows
from magcli.errors import DataError
from magcli.report.formatting import short_path
from magcli.run.rundir import RunDir, read_run

MAX_DEPTH = 5
"""How deep folders are searched."""
LANDSCAPE_FILES = ("landscape.json", "plane.json")
NOT_UTF8 = re.compile("[\ud800-\udfff]")
"""Surrogates, which stand for bytes of a file name that are not valid UTF-8."""
Kind = Literal["run", "landscape", "table", "folder"]
Artifact = TypeVar("Artifact")


@dataclass(frozen=True, slots=True)
class Table:
    """A table written by magcli: columns, number of rows if known, digest, history, and its note."""

    path: Path
    columns: tuple[str, ...]
    rows: int | None
    sha256: str
    chain: Chain
    note: Mapping[str, Any]

    @property
    def made_by(self) -> Link | None:
        """The stage that wrote it; None without a history."""
        return self.chain[-1] if self.chain else None

    @property
    def of_dropped_rows(self) -> bool:
        """Whether it holds the rows that a stage dropped."""
        return self.columns[-len(DROPPED) :] == tuple(DROPPED.names)

    @property
    def of_metrics(self) -> bool:
        """Whether it holds metrics of `magcli evaluate`."""
        return {"metric", "value", "low", "high"} <= set(self.columns)

    @property
    def of_completions(self) -> bool:
        """Whether it holds completions, such as rollouts."""
        return "completion" in self.columns


@dataclass(slots=True)
class Artifacts:
    """The artifacts of a report, each once: in the given order, and within a folder in order of creation.

    ``named`` are the paths given explicitly: damage there is an error. Damage elsewhere is described in ``unread``.
    """

    tables: list[Table] = field(default_factory=list)
    runs: list[Path] = field(default_factory=list)
    landscapes: list[Path] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    named: frozenset[Path] = frozenset()

    def read_all(self, paths: Iterable[Path], read: Callable[[Path], Artifact]) -> list[Artifact]:
        """Apply ``read`` to every path, skipping damaged ones.

        Raises:
            DataError: a damaged path was named explicitly.
        """
        artifacts = []
        for path in paths:
            try:
                artifacts.append(read(path))
            except DataError as error:
                if path in self.named:
                    raise
                self.unread.append(str(error))
        return artifacts


def discover(paths: Sequence[Path]) -> Artifacts:
    """All artifacts under the paths.

    Raises:
        DataError: a path does not exist or is not an artifact of magcli, or nothing was found.
    """
    artifacts = Artifacts(named=frozenset(paths))
    for path in paths:
        if not path.exists():
            raise DataError(f"report: {path} does not exist")
        kind = _kind(path)
        if kind is None:
            raise DataError(f"report: {path} is neither a table nor a folder")
        _add(path, kind, artifacts)
    # Of several names of a table the last one stays, in the place of the first.
    by_file = {artifact.path.resolve(): artifact for artifact in artifacts.tables}
    artifacts.tables = list(by_file.values())
    artifacts.runs = _unique(artifacts.runs)
    artifacts.landscapes = _unique(artifacts.landscapes)
    if not (artifacts.tables or artifacts.runs or artifacts.landscapes):
        raise DataError(f"report: no tables, runs or landscapes written by magcli under {', '.join(map(str, paths))}")
    return artifacts


def _unique(paths: Iterable[Path]) -> list[Path]:
    """The paths of different files, each once, though links and relative paths may name one several times."""
    return list({path.resolve(): path for path in paths}.values())


def _kind(path: Path) -> Kind | None:
    if path.is_file():
        is_table = path.name.endswith(table.SUFFIXES) and not path.name.endswith(SIDE_FILES)
        return "table" if is_table else None
    # First, as a run's folder may have landscapes and tables in it.
    if RunDir(path).note_path.is_file():
        return "run"
    if any((path / name).is_file() for name in LANDSCAPE_FILES):
        return "landscape"
    return "table" if (path / "state.json").is_file() else "folder"


def _add(path: Path, kind: Kind, artifacts: Artifacts) -> None:
    """Add a path that was named explicitly, or what a folder holds."""
    if kind == "table":
        named = open_table(path)
        if not (named.chain or named.of_metrics or named.of_completions):
            raise DataError(f"report: {path} was not written by magcli; to look at its rows: magcli show {path}")
        artifacts.tables.append(named)
    elif kind == "landscape":
        artifacts.landscapes.append(path)
    elif kind == "run":
        _add_run(path, artifacts)
    else:
        in_folder = Artifacts()
        _search(path, MAX_DEPTH, in_folder)
        artifacts.tables += sorted(in_folder.tables, key=_finished_at)
        artifacts.runs += _sorted_runs(in_folder.runs)
        artifacts.landscapes += in_folder.landscapes
        artifacts.unread += in_folder.unread


def _add_run(path: Path, artifacts: Artifacts) -> None:
    """Add a run and the landscapes in its folder."""
    artifacts.runs.append(path)
    for entry in sorted(path.iterdir()):
        if entry.is_dir() and _kind(entry) == "landscape":
            artifacts.landscapes.append(entry)


def _search(folder: Path, depth: int, artifacts: Artifacts) -> None:
    for path in _entries(folder, artifacts):
        # Links may lead round in circles, and out of the folder.
        if path.name.startswith(".") or path.is_symlink():
            continue
        kind = _readable_kind(path, artifacts)
        if kind == "folder":
            # A model has no tables, and may have very many files.
            is_model = (path / "config.json").exists()
            if depth and not is_model:
                _search(path, depth - 1, artifacts)
        elif kind == "run":
            # A damaged run is noted and left out.
            if artifacts.read_all([path], read_run):
                _add_run(path, artifacts)
        elif kind == "landscape":
            artifacts.landscapes.append(path)
        elif kind == "table" and _may_have_history(path):
            opened = artifacts.read_all([path], open_table)
            artifacts.tables += [artifact for artifact in opened if artifact.chain]


def _readable_kind(path: Path, artifacts: Artifacts) -> Kind | None:
    """The kind of a path; None without permission to read it."""
    try:
        return _kind(path)
    except PermissionError as error:
        artifacts.unread.append(f"{path} cannot be read: {error.strerror}")
        return None


def _entries(folder: Path, artifacts: Artifacts) -> list[Path]:
    """The entries of a folder with UTF-8 names; none without permission to read it."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        artifacts.unread.append(f"{folder} cannot be read: {error.strerror}")
        return []
    invalid = [path for path in entries if NOT_UTF8.search(path.name)]
    artifacts.unread += [f"{str(path)!a}: the file name is not UTF-8; rename it" for path in invalid]
    return [path for path in entries if path not in invalid]


def _may_have_history(path: Path) -> bool:
    """Whether a table in a folder is worth opening: other projects' files are not read."""
    return path.suffix in (".arrow", ".parquet") or manifest_path(path).exists() or note_path(path).exists()


def open_table(path: Path) -> Table:
    """Open a table without reading its rows.

    Raises:
        DataError: it is truncated or damaged.
    """
    source = table.read(str(path))
    if not source.chain:  # a truncated Arrow file is recognised only at its end
        for _ in source.rows:
            pass
    columns = tuple(source.schema.names)
    return Table(path, columns, source.total, source.sha256, source.chain, _note(path))


def rows_of(artifact: Table) -> Iterator[dict[str, Any]]:
    """Iterate over the rows of a table, as people read them."""
    for batch in table.read(str(artifact.path)).rows:
        yield from readable_rows(batch)


def _note(path: Path) -> Mapping[str, Any]:
    """The note of a table (command, time, seconds); empty if missing or damaged."""
    try:
        note = json.loads(note_path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return note if isinstance(note, dict) else {}


def _finished_at(artifact: Table) -> tuple[float, float]:
    """When a table was finished, in seconds since the epoch: by its note, which copies keep, then by its file time."""
    changed = artifact.path.stat().st_mtime
    # The note has whole seconds, so the file time decides among tables of one second.
    try:
        return datetime.fromisoformat(artifact.note["finished"]).timestamp(), changed
    except (KeyError, TypeError, ValueError):
        return changed, changed


def _sorted_runs(runs: Sequence[Path]) -> list[Path]:
    """Runs by start time, none before the run whose model it started from."""
    by_time = sorted(runs, key=lambda run: RunDir(run).note_path.stat().st_mtime)
    model_before = {run: short_path(read_run(run).started_from) for run in by_time}
    ordered: list[Path] = []
    while model_before:
        models_to_come = {short_path(f"{run}/model") for run in model_before}
        ready = [run for run, model in model_before.items() if model not in models_to_come]
        # Runs that name each other's models have no order: take the earliest.
        first = ready[0] if ready else next(iter(model_before))
        ordered.append(first)
        del model_before[first]
    return ordered
