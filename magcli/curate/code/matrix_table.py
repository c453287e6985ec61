"""The matrices of all problems as one table, in the order of the problems, and its journal.

The runs of a problem are journalled before the problem itself is, so a resumed run never repeats them. The table is
written atomically at the end.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from magcli import __version__
from magcli.curate.code.agreement import Run
from magcli.data import durable, manifest, seal, table
from magcli.data.schema import MATRIX, require
from magcli.errors import DataError, usage
from magcli.run.journal import Journal, Result
from magcli.run.shard import KEY

COLUMNS = ("solution", "test", "verdict", "group", "output", "seconds")
"""Columns of a run, in the order of the fields of ``Run``."""


class MatrixTable:
    """Writes the matrix table next to the output of the stage. Not thread-safe.

    Args:
        path: The table.
        sandbox: The isolation of programs; journalled runs of another one are not reused.
        restart: Discard the journal.
        shard: The shard that is run; None for all problems.

    Raises:
        UsageError: the journal belongs to another sandbox, or the table to another shard.
    """

    def __init__(self, path: Path, *, sandbox: str, restart: bool, shard: str | None = None) -> None:
        self._path = path
        _check_shard(path, shard)
        journal = path.with_name(f".{path.name}.journal")
        path.parent.mkdir(parents=True, exist_ok=True)
        if restart:
            durable.remove(journal)
        identity = {"sandbox": sandbox, "version": __version__, **({KEY: shard} if shard else {})}
        self._journal = Journal.open(journal, MATRIX, identity)

    def get(self, id: str, digest: str) -> list[Run] | None:
        """The finished runs of a problem; None if there are none or the machine failed."""
        key = f"{digest} {id}"
        found = runs_of(self._journal.get(key).rows.to_pylist()) if key in self._journal else []
        return found if found and found[0].verdict != "infra-error" else None

    def put(self, id: str, digest: str, runs: Sequence[Run]) -> None:
        """Store the runs of a problem durably."""
        names = {"id": id, "digest": digest}
        rows = pa.RecordBatch.from_pylist([names | run._asdict() for run in runs], MATRIX)
        self._journal.put(f"{digest} {id}", Result(rows))
        self._journal.sync()

    def finish(self, problems: Iterable[tuple[str, str]], history: Callable[[int], manifest.Chain]) -> None:
        """Write the table of problems (id, digest) in that order, unless this run has already written it.

        ``history`` returns the history for a number of rows.

        Raises:
            DataError: runs are missing because the journal was removed.
        """
        wanted = [f"{digest} {id}" for id, digest in problems]
        if all(key in self._journal for key in wanted):
            self._write(wanted, history)
        elif not self._is_finished(history(0)[-1]):
            raise DataError(f"{self._path}: the runs of finished problems are missing; use --restart to run them again")
        self._journal.remove()

    def close(self) -> None:
        """Close the journal, keeping it for the next run."""
        if not self._journal.file.closed:
            self._journal.close()

    def _write(self, keys: Iterable[str], history: Callable[[int], manifest.Chain]) -> None:
        count = 0
        with table.write(str(self._path), MATRIX, seal.pack({"stage": history(0)[-1].stage})) as sink:
            for batch in table.rechunk(self._journal.get(key).rows for key in keys):
                count += batch.num_rows
                sink.write(batch)
            sink.finish(history(count))

    def _is_finished(self, link: manifest.Link) -> bool:
        last = _last_link(self._path)
        return last is not None and _identity(last) == _identity(link)


def _check_shard(path: Path, shard: str | None) -> None:
    """Refuse to overwrite the finished matrix of another shard."""
    last = _last_link(path) if path.exists() else None
    other = last.config.get(KEY) if last else None
    usage(
        other in (None, shard),
        f"{path} is the matrix of shard {other}; use one --matrix per shard and join them with magcli commit",
    )


def _last_link(path: Path) -> manifest.Link | None:
    """The last entry of a table's history; None if there is no complete table."""
    try:
        chain = table.read(str(path)).chain
    except DataError:
        return None
    return chain[-1] if chain else None


def _identity(link: manifest.Link) -> tuple[Any, ...]:
    return link.stage, link.version, seal.pack(link.config), [each.sha256 for each in link.inputs]


def runs_of(rows: Iterable[Mapping[str, Any]]) -> list[Run]:
    """Convert rows of a matrix to runs."""
    return [Run(*(row[name] for name in COLUMNS)) for row in rows]


class MatrixReplay:
    """Reads a matrix in step with the problems it was made from, in the same order.

    Raises:
        DataError: the table is not a matrix.
    """

    def __init__(self, path: Path) -> None:
        source = table.read(str(path))
        require(source.schema, MATRIX.names, stage="filter-code", where=str(path))
        self._path = path
        self._last: tuple[tuple[str, str], list[Run]] = ("", ""), []
        rows = (row for batch in source.rows for row in batch.to_pylist())
        self._problems = groupby(rows, key=lambda row: (row["id"], row["digest"]))

    def runs(self, id: str, digest: str) -> list[Run]:
        """The runs of a problem, skipping those of problems in between.

        Raises:
            DataError: there are none further on.
        """
        if (id, digest) == self._last[0]:
            return self._last[1]
        for found, rows in self._problems:
            if found == (id, digest):
                self._last = found, runs_of(rows)
                return self._last[1]
        raise DataError(
            f"{self._path} has no runs of problem {id} in its current form and order; "
            "use the problems and options that the matrix was made with"
        )
