"""Matrices of many problems as one table, in the order of the problems, and what a killed run had finished of it.

The runs of a finished problem are in a journal beside the table before the problem itself is, so they are never made
twice. The table is written whole at the end.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from magcli import __version__
from magcli.curate.code.agreement import Run
from magcli.data import durable, manifest, seal, table
from magcli.data.schema import MATRIX, require
from magcli.data.source import Rows
from magcli.errors import DataError, usage
from magcli.run.journal import Journal, Result
from magcli.run.shard import KEY

COLUMNS = ("solution", "test", "verdict", "group", "output", "seconds")
"""Those of a run, as the fields of ``Run``."""


class MatrixTable:
    """The table that a stage leaves beside its own. Used from one thread.

    Args:
        path: Where the table goes.
        sandbox: How programs are isolated; runs of another isolation are not taken.
        restart: Begin anew.
        shard: Which part of the problems is run; none is all.

    Raises:
        UsageError: unfinished runs were begun with another sandbox, or the table is that of another shard.
    """

    def __init__(self, path: Path, *, sandbox: str, restart: bool, shard: str | None = None) -> None:
        self._path = path
        _check_shard(path, shard)
        journal = path.with_name(f".{path.name}.journal")
        path.parent.mkdir(parents=True, exist_ok=True)
        if restart:
            durable.remove(journal)
        told = {KEY: shard} if shard else {}
        self._journal = Journal.open(journal, MATRIX, {"sandbox": sandbox, "version": __version__, **told})

    def get(self, id: str, digest: str) -> list[Run] | None:
        """The runs of a problem, where they are finished; what the machine failed is not."""
        key = f"{digest} {id}"
        found = runs_of(self._journal.get(key).rows.to_pylist()) if key in self._journal else []
        return found if found and found[0].verdict != "infra-error" else None

    def put(self, id: str, digest: str, runs: Sequence[Run]) -> None:
        """Keep the runs of a problem for good."""
        names = {"id": id, "digest": digest}
        rows = pa.RecordBatch.from_pylist([names | run._asdict() for run in runs], MATRIX)
        self._journal.put(f"{digest} {id}", Result(rows))
        self._journal.sync()

    def finish(self, problems: Iterable[tuple[str, str]], history: Callable[[int], manifest.Chain]) -> None:
        """Write the table of problems (id, digest), in that order. A table that this very run had finished stays.

        ``history`` tells of a number of rows how they came to be.

        Raises:
            DataError: runs are missing, as somebody has removed the journal.
        """
        wanted = [f"{digest} {id}" for id, digest in problems]
        if all(key in self._journal for key in wanted):
            self._write(wanted, history)
        elif not self._is_finished(history(0)[-1]):
            raise DataError(f"{self._path}: the runs of finished problems are gone; give --restart to run them again")
        self._journal.remove()

    def close(self) -> None:
        """Leave the journal for the next run."""
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
    """Refuse to write over a finished matrix of another shard, whose runs would be lost."""
    last = _last_link(path) if path.exists() else None
    theirs = last.config.get(KEY) if last else None
    usage(
        theirs in (None, shard),
        f"{path} is the matrix of shard {theirs}; give each shard a --matrix of its own, and join them with "
        "magcli commit",
    )


def _last_link(path: Path) -> manifest.Link | None:
    """What is told of how a table was made, where there is a whole one."""
    try:
        chain = table.read(str(path)).chain
    except DataError:
        return None
    return chain[-1] if chain else None


def _identity(link: manifest.Link) -> tuple[Any, ...]:
    return link.stage, link.version, seal.pack(link.config), [each.sha256 for each in link.inputs]


def runs_of(rows: Iterable[Mapping[str, Any]]) -> list[Run]:
    """The runs that rows of a matrix tell of."""
    return [Run(*(row[name] for name in COLUMNS)) for row in rows]


class Replay:
    """A matrix read beside the problems that it was made from, in their order.

    Args:
        path: The table.

    Raises:
        DataError: it is no matrix.
    """

    def __init__(self, path: Path) -> None:
        source = table.read(str(path))
        require(source.schema, MATRIX.names, stage="filter-code", where=str(path))
        self._path = path
        self._last: tuple[tuple[str, str], list[Run]] = ("", ""), []
        self._problems = groupby(_each(source.rows), key=lambda row: (row["id"], row["digest"]))

    def runs(self, id: str, digest: str) -> list[Run]:
        """The runs of a problem; those of problems in between are passed over.

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
            f"{self._path} has no runs of problem {id} as it stands, or in another order; "
            "give the problems and the options that it was made with"
        )


def _each(rows: Rows) -> Iterator[Mapping[str, Any]]:
    for batch in rows:
        yield from batch.to_pylist()
