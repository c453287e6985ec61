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
from magcli.data.values import to_rows
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
        found = []
        for path in paths:
            try:
                found.append(read(path))
            except DataError as error:
                if path in self.named:
                    raise
                self.unread.append(str(error))
        return found


def discover(paths: Sequence[Path]) -> Artifacts:
    """All artifacts under the paths.

    Raises:
        DataError: a path does not exist or is not an artifact of magcli, or nothing was found.
    """
    found = Artifacts(named=frozenset(paths))
    for path in paths:
        if not path.exists():
            raise DataError(f"report: {path} does not exist")
        if (kind := _kind(path)) is None:
            raise DataError(f"report: {path} is neither a table nor a folder")
        _add(path, kind, found)
    found.tables = list({each.path.resolve(): each for each in found.tables}.values())
    found.runs = _unique(found.runs)
    found.landscapes = _unique(found.landscapes)
    if not (found.tables or found.runs or found.landscapes):
        raise DataError(f"report: no tables, runs or landscapes written by magcli under {', '.join(map(str, paths))}")
    return found


def _unique(paths: Iterable[Path]) -> list[Path]:
    return list({path.resolve(): path for path in paths}.values())


def _kind(path: Path) -> Kind | None:
    if path.is_file():
        return "table" if path.name.endswith(table.SUFFIXES) and not path.name.endswith(SIDE_FILES) else None
    if RunDir(path).note_path.is_file():
        return "run"
    if any((path / name).is_file() for name in LANDSCAPE_FILES):
        return "landscape"
    return "table" if (path / "state.json").is_file() else "folder"


def _add(path: Path, kind: Kind, found: Artifacts) -> None:
    """Add a path that was named explicitly, or what a folder holds."""
    if kind == "table":
        found.tables.append(open_table(path))
    elif kind == "landscape":
        found.landscapes.append(path)
    elif kind == "run":
        _add_run(path, found)
    else:
        held = Artifacts()
        _search(path, MAX_DEPTH, held)
        found.tables += sorted(held.tables, key=_finished_at)
        found.runs += _sorted_runs(held.runs)
        found.landscapes += held.landscapes
        found.unread += held.unread


def _add_run(path: Path, found: Artifacts) -> None:
    """Add a run and the landscapes in its folder."""
    found.runs.append(path)
    found.landscapes += [each for each in sorted(path.iterdir()) if each.is_dir() and _kind(each) == "landscape"]


def _search(folder: Path, depth: int, found: Artifacts) -> None:
    for path in _entries(folder, found):
        kind = None if path.name.startswith(".") or path.is_symlink() else _readable_kind(path, found)
        if kind == "folder" and depth and not (path / "config.json").exists():
            _search(path, depth - 1, found)
        elif kind == "run":
            if found.read_all([path], read_run):
                _add_run(path, found)
        elif kind == "landscape":
            found.landscapes.append(path)
        elif kind == "table" and _may_have_history(path):
            found.tables += [each for each in found.read_all([path], open_table) if each.chain]


def _readable_kind(path: Path, found: Artifacts) -> Kind | None:
    """The kind of a path; None without permission to read it."""
    try:
        return _kind(path)
    except PermissionError as error:
        found.unread.append(f"{path} cannot be read: {error.strerror}")
        return None


def _entries(folder: Path, found: Artifacts) -> list[Path]:
    """The entries of a folder with UTF-8 names; none without permission to read it."""
    try:
        every = sorted(folder.iterdir())
    except OSError as error:
        found.unread.append(f"{folder} cannot be read: {error.strerror}")
        return []
    invalid = [path for path in every if NOT_UTF8.search(path.name)]
    found.unread += [f"{str(path)!a}: the file name is not UTF-8; rename it" for path in invalid]
    return [path for path in every if path not in invalid]


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
    return Table(path, tuple(source.schema.names), source.total, source.sha256, source.chain, _note(path))


def rows_of(each: Table) -> Iterator[dict[str, Any]]:
    """Iterate over the rows of a table."""
    for batch in table.read(str(each.path)).rows:
        yield from to_rows(batch)


def _note(path: Path) -> Mapping[str, Any]:
    """The note of a table (command, time, seconds); empty if missing or damaged."""
    try:
        note = json.loads(note_path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def _finished_at(each: Table) -> tuple[float, float]:
    """When a table was finished, in seconds since the epoch: by its note, which copies keep, then by its file time."""
    changed = each.path.stat().st_mtime
    try:
        return datetime.fromisoformat(each.note["finished"]).timestamp(), changed
    except (KeyError, TypeError, ValueError):
        return changed, changed


def _sorted_runs(runs: Sequence[Path]) -> list[Path]:
    """Runs by start time, none before the run whose model it started from."""
    pending = {
        run: short_path(read_run(run).started_from)
        for run in sorted(runs, key=lambda run: RunDir(run).note_path.stat().st_mtime)
    }
    ordered: list[Path] = []
    while pending:
        unfinished = {short_path(f"{run}/model") for run in pending}
        ready = [run for run, model in pending.items() if model not in unfinished] or list(pending)
        ordered.append(ready[0])
        del pending[ready[0]]
    return ordered
