"""The plain data that the parts of ``magcli.run`` hand to one another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

Columns = Mapping[str, str]
"""The columns of a table as a stage reads them: name -> name or path in the table."""


@dataclass(frozen=True)
class Named:
    """What is read from where: the columns that are under another name or converted, and the layout of these."""

    columns: Columns
    layout: str = ""


class Dropped(NamedTuple):
    """A dropped row: its id, the reason, what else the stage knows about it, in JSON types, and the row.

    A journal does not store the row, but its position in the unit: ids may repeat.
    """

    id: str
    reason: str
    detail: Mapping[str, Any] = {}
    row: Mapping[str, Any] = {}
    position: int = 0


class Result(NamedTuple):
    """The result of one unit of work: rows for the output and dropped rows.

    ``retry``: the machine failed it, so it is not journaled, and a resumed run repeats it. ``tally`` is what it adds to
    the job's.
    """

    rows: pa.RecordBatch
    dropped: Sequence[Dropped] = ()
    retry: bool = False
    tally: Mapping[str, int] = {}


class Notes(Protocol):
    """Unfinished work that records what it was started with: a journal or a run's folder."""

    notes: dict[str, str]

    def note(self, name: str, value: str) -> None:
        """Record a value."""
