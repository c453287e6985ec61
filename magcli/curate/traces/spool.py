"""Rows that wait on disk until it is known which of them are wanted: memory holds no more than facts of them."""

import json
import tempfile
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any


class Spool:
    """An append-only sequence of rows that JSON can say, in a file. Open it with ``spool``."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._starts = array("q", [0])

    def append(self, row: Mapping[str, Any]) -> None:
        """Add a row at the end.

        Raises:
            OSError: the temporary folder is full.
        """
        line = json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass")
        self._file.seek(self._starts[-1])
        self._file.write(line)
        self._starts.append(self._starts[-1] + len(line))

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self._starts) - 1

    def __getitem__(self, number: int) -> dict[str, Any]:
        """The row of a number, counted from 0."""
        start, end = self._starts[number], self._starts[number + 1]
        self._file.seek(start)
        row: dict[str, Any] = json.loads(self._file.read(end - start).decode("utf-8", "surrogatepass"))
        return row

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """All rows, in order."""
        return (self[number] for number in range(len(self)))


@contextmanager
def spool() -> Iterator[Spool]:
    """Room for rows in a temporary file, which goes with the block or the process."""
    with tempfile.TemporaryFile() as file:
        yield Spool(file)
