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
from magcli.errors import DataError
from magcli.run.journal import Journal, Result

COLUMNS = ("solution", "test", "verdict", "group", "output", "seconds")
"""Those of a run, as the fields of ``Run``."""


class MatrixTable:
    """The table that a stage leaves beside its own. Used from one thread.

    Args:
        path: Where the table goes.
        sandbox: How programs are isolated; runs of another isolation are not taken.
        restart: Begin anew.

    Raises:
        UsageError: unfinished runs were begun with another sandbox.
    """

    def __init__(self, path: Path, *, sandbox: str, restart: bool) -> None:
        self._path = path
        journal = path.with_name(f".{path.name}.journal")
        path.parent.mkdir(parents=True, exist_ok=True)
        if restart:
            durable.remove(journal)
        self._journal = Journal.open(journal, MATRIX, {"sandbox": sandbox, "version": __version__})

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
        try:
            chain = table.read(str(self._path)).chain
        except DataError:
            return False
        return bool(chain) and _identity(chain[-1]) == _identity(link)


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
