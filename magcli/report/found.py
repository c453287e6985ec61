"""What lies under the paths that a report is made of: tables with their histories, training runs, landscapes."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from magcli.data import table
from magcli.data.manifest import Chain, Link
from magcli.data.schema import DROPPED
from magcli.data.source import manifest_path
from magcli.errors import DataError
from magcli.report.wording import tail
from magcli.run import lineage
from magcli.run.rundir import RunDir

DEPTH = 5
"""How far below a folder things are looked for."""
LANDSCAPE_FILES = ("landscape.json", "plane.json")
FOREIGN = re.compile("[\ud800-\udfff]")
"""What a byte that is no UTF-8 becomes in a file's name."""
Kind = Literal["run", "landscape", "table", "folder"]
Thing = TypeVar("Thing")


@dataclass(frozen=True, slots=True)
class Table:
    """A table that magcli wrote: its columns, rows if they are known, digest, history, and the note beside it."""

    path: Path
    columns: tuple[str, ...]
    rows: int | None
    sha256: str
    chain: Chain
    note: Mapping[str, Any]

    @property
    def made_by(self) -> Link | None:
        """The stage that wrote it, None where it has no history."""
        return self.chain[-1] if self.chain else None

    @property
    def of_dropped_rows(self) -> bool:
        """Whether it holds what a stage left out."""
        return self.columns == tuple(DROPPED.names)

    @property
    def of_metrics(self) -> bool:
        """Whether it holds figures of `magcli evaluate`."""
        return {"metric", "value", "low", "high"} <= set(self.columns)


@dataclass(slots=True)
class Found:
    """What a report is made of, each thing once: in the order given, those of a folder in the order of their making.

    ``named`` are the paths that were given themselves, whose damage is an error; ``unread`` says of what is damaged in
    folders why it could not be read.
    """

    tables: list[Table] = field(default_factory=list)
    runs: list[Path] = field(default_factory=list)
    landscapes: list[Path] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    named: frozenset[Path] = frozenset()

    def readable(self, paths: Iterable[Path], read: Callable[[Path], Thing]) -> list[Thing]:
        """What is read of each path, but of those that turn out to be damaged.

        Raises:
            DataError: a damaged one was named itself.
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


def find(paths: Sequence[Path]) -> Found:
    """Everything under the paths.

    Raises:
        DataError: a path is not there or not of magcli, or there is nothing under any of them.
    """
    found = Found(named=frozenset(paths))
    for path in paths:
        if not path.exists():
            raise DataError(f"report: {path} does not exist")
        if (kind := _kind(path)) is None:
            raise DataError(f"report: {path} is no table, run or landscape of magcli, nor a folder that holds some")
        _take(path, kind, found)
    found.tables = _each_once(found.tables, lambda each: each.path)
    found.runs = _each_once(found.runs, lambda each: each)
    found.landscapes = _each_once(found.landscapes, lambda each: each)
    if not (found.tables or found.runs or found.landscapes):
        raise DataError(f"report: there is nothing of magcli under {', '.join(map(str, paths))}")
    return found


def _each_once(things: Iterable[Any], path: Any) -> list[Any]:
    return list({path(each).resolve(): each for each in things}.values())


def _kind(path: Path) -> Kind | None:
    if path.is_file():
        return "table" if path.name.endswith(table.SUFFIXES) and not path.name.endswith(table.SIDECARS) else None
    if RunDir(path).note_path.is_file():
        return "run"
    if any((path / name).is_file() for name in LANDSCAPE_FILES):
        return "landscape"
    return "table" if (path / "state.json").is_file() else "folder"


def _take(path: Path, kind: Kind, found: Found) -> None:
    """Take what a path that was given is, or holds."""
    if kind == "table":
        found.tables.append(opened(path))
    elif kind == "landscape":
        found.landscapes.append(path)
    elif kind == "run":
        _take_run(path, found)
    else:
        held = Found()
        _search(path, DEPTH, held)
        found.tables += sorted(held.tables, key=_made_at)
        found.runs += _in_order(held.runs)
        found.landscapes += held.landscapes
        found.unread += held.unread


def _take_run(path: Path, found: Found) -> None:
    """A run, and the landscapes in its folder."""
    found.runs.append(path)
    found.landscapes += [each for each in sorted(path.iterdir()) if each.is_dir() and _kind(each) == "landscape"]


def _search(folder: Path, depth: int, found: Found) -> None:
    for path in _inside(folder, found):
        kind = None if path.name.startswith(".") or path.is_symlink() else _kind_if_open(path, found)
        if kind == "folder" and depth and not (path / "config.json").exists():
            _search(path, depth - 1, found)
        elif kind == "run":
            _try_run(path, found)
        elif kind == "landscape":
            found.landscapes.append(path)
        elif kind == "table" and _of_magcli(path):
            _try(path, found)


def _kind_if_open(path: Path, found: Found) -> Kind | None:
    """What a path is; None where it may not be looked into."""
    try:
        return _kind(path)
    except PermissionError as error:
        found.unread.append(f"{path} cannot be read: {error.strerror}")
        return None


def _inside(folder: Path, found: Found) -> list[Path]:
    """What lies in a folder under names that are text; nothing where it may not be looked into."""
    try:
        every = sorted(folder.iterdir())
    except OSError as error:
        found.unread.append(f"{folder} cannot be read: {error.strerror}")
        return []
    foreign = [path for path in every if FOREIGN.search(path.name)]
    found.unread += [f"{str(path)!a}: the name is not UTF-8; rename it" for path in foreign]
    return [path for path in every if not FOREIGN.search(path.name)]


def _of_magcli(path: Path) -> bool:
    """Whether a table in a folder may carry a history; other files there are not looked into."""
    return path.suffix in (".arrow", ".parquet") or manifest_path(path).exists() or _note_path(path).exists()


def _try_run(path: Path, found: Found) -> None:
    try:
        lineage.read(path)
    except DataError as error:
        found.unread.append(str(error))
    else:
        _take_run(path, found)


def _try(path: Path, found: Found) -> None:
    try:
        each = opened(path)
    except DataError as error:
        found.unread.append(str(error))
    else:
        found.tables += [each] if each.chain else []


def opened(path: Path) -> Table:
    """A table with what is told beside it; its rows are read by those who want them.

    Raises:
        DataError: it is cut or damaged.
    """
    source = table.read(str(path))
    if not source.chain:  # only its end would tell that an Arrow file was cut
        for _ in source.rows:
            pass
    return Table(path, tuple(source.schema.names), source.total, source.sha256, source.chain, _note(path))


def rows_of(each: Table) -> Iterator[dict[str, Any]]:
    """The rows of a table, one after the other."""
    for batch in table.read(str(each.path)).rows:
        yield from batch.to_pylist()


def _note_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.run.json")


def _note(path: Path) -> Mapping[str, Any]:
    """What the run that wrote a table noted beside it: command, time, seconds. Nothing where it is gone or damaged."""
    try:
        told = json.loads(_note_path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def _made_at(each: Table) -> tuple[float, float]:
    """When a table was finished, in seconds of the epoch, by its note and by its file: copies keep the note, which
    tells whole seconds, but not always the file's own time.
    """
    changed = each.path.stat().st_mtime
    try:
        return datetime.fromisoformat(each.note["finished"]).timestamp(), changed
    except (KeyError, TypeError, ValueError):
        return changed, changed


def _in_order(runs: Sequence[Path]) -> list[Path]:
    """Runs by the time when they were begun, none before the one whose model it began from."""
    begun = {run: _begun(run) for run in sorted(runs, key=lambda run: RunDir(run).note_path.stat().st_mtime)}
    ordered: list[Path] = []
    while begun:
        waiting = {tail(f"{run}/model") for run in begun}
        ready = [run for run, model in begun.items() if model not in waiting] or list(begun)
        ordered.append(ready[0])
        del begun[ready[0]]
    return ordered


def _begun(run: Path) -> str:
    """What tells the model apart that a run began from."""
    return tail(lineage.read(run).begun_from)
