"""Which points are sampled, in what order, and how often: grid, finer places, more samples, and the origin again.

A visit loads the weights of one point and samples every problem, some numbers of its samples. What a visit gave is
in the journal before the next begins, under the point and the numbers, so a killed run repeats none; a run that asks
for more points or more samples adds them to those that are there.
"""

import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from magcli.data.schema import COMPLETION, REWARD
from magcli.landscape.principal import Array
from magcli.landscape.triangles import near_best_and_path, refined
from magcli.run.journal import Journal, Result

VISIT = pa.schema(
    [
        *[pa.field(name, pa.float64()) for name in ("a1", "a2", "off_plane")],
        pa.field("id", pa.string()),
        pa.field("prompt", pa.string()),
        *COMPLETION,
        *[pa.field(each.name, pa.float64() if each.type == pa.float32() else each.type) for each in REWARD],
        pa.field("digest", pa.string()),
    ]
)
"""One row a completion, problem after problem, sample after sample: where the weights really were, the completion and
its reward. Texts are null but for a few a point; ``digest`` tells equal ones all the same."""


class Visit(NamedTuple):
    """A point of the plane, as asked for, and the numbers of the samples, from ``first`` to below ``last``.

    ``again`` is the second look at the same weights.
    """

    a1: float
    a2: float
    first: int
    last: int
    again: bool = False

    @property
    def key(self) -> str:
        """Its name in the journal."""
        return json.dumps(self)


class Wishes(NamedTuple):
    """Samples of each problem at every point, finer places, and more samples near the best point and the path."""

    samples: int
    refine: int = 0
    more: int = 0


Measure = Callable[[Visit], Awaitable[pa.RecordBatch]]
"""Goes to a point and gives rows of ``VISIT``, in the order of problems and samples."""


@dataclass
class Survey:
    """What was found: asked-for coordinates (P, 2), whether each is of the grid, its rows, and the origin's again."""

    places: list[tuple[float, float]] = field(default_factory=list)
    grid: list[bool] = field(default_factory=list)
    rows: list[pa.RecordBatch] = field(default_factory=list)
    again: pa.RecordBatch | None = None

    def add(self, place: tuple[float, float], rows: pa.RecordBatch, *, grid: bool) -> None:
        """Take in a point."""
        self.places.append(place)
        self.grid.append(grid)
        self.rows.append(rows)

    def rewards(self) -> Array:
        """Mean reward of each problem at each point, (points, problems)."""
        return np.stack([column(rows, "reward").mean(1) for rows in self.rows])


def column(rows: pa.RecordBatch, name: str) -> Array:
    """A column of a point's rows as (problems, samples)."""
    return np.asarray(rows.column(name).to_numpy(zero_copy_only=False)).reshape(problems_in(rows), -1)


def problems_in(rows: pa.RecordBatch) -> int:
    """How many problems a point's rows are of; ids need not differ."""
    sample = rows.column("sample").to_numpy()
    return int((sample == sample[0]).sum())


async def survey(grid: Array, trajectory: Array, wishes: Wishes, measure: Measure) -> Survey:
    """Visit every point of the grid (P, 2), then what the wishes add, then the origin once more."""
    found = Survey()
    for a1, a2 in grid.tolist():
        found.add((a1, a2), await measure(Visit(a1, a2, 0, wishes.samples)), grid=True)
    for a1, a2 in refined(found.places, found.rewards(), wishes.refine).tolist() if wishes.refine else ():
        found.add((a1, a2), await measure(Visit(a1, a2, 0, wishes.samples)), grid=False)
    for index in _worth_more(found, trajectory) if wishes.more else ():
        visit = Visit(*found.places[index], wishes.samples, wishes.samples + wishes.more)
        found.rows[index] = beside(found.rows[index], await measure(visit))
    found.again = await measure(Visit(0.0, 0.0, 0, wishes.samples, again=True))
    return found


def _worth_more(found: Survey, trajectory: Array) -> list[int]:
    chosen: list[int] = near_best_and_path(found.places, found.rewards().mean(1), trajectory).tolist()
    return chosen


def beside(*parts: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of the same point and problems as one, problem after problem."""
    problems = problems_in(parts[0])
    cut = [
        part.slice(number * (part.num_rows // problems), part.num_rows // problems)
        for number in range(problems)
        for part in parts
    ]
    return pa.Table.from_batches(cut).combine_chunks().to_batches()[0]


class Logbook:
    """The journal of visits: those that it holds, whole or in parts, are not made again."""

    def __init__(self, journal: Journal, make: Measure, told: Callable[[bool], None]) -> None:
        self.journal, self.make, self.told = journal, make, told

    async def measure(self, visit: Visit) -> pa.RecordBatch:
        """The rows of a visit; ``told`` hears whether all of them were there."""
        parts = list(self._parts(visit))
        new = [part for part in parts if part.key not in self.journal]
        for part in new:
            self.journal.put(part.key, Result(await self.make(part)))
        self.told(not new)
        return beside(*[_numbers(self.journal.get(part.key).rows, part, visit) for part in parts])

    def _parts(self, visit: Visit) -> Iterator[Visit]:
        """Recorded visits and new ones that make up ``visit``, by the numbers of their samples."""
        first, known = visit.first, [Visit(*json.loads(key)) for key in self.journal.places]
        known = [each for each in known if (each.a1, each.a2, each.again) == (visit.a1, visit.a2, visit.again)]
        while first < visit.last:
            here = [each for each in known if each.first <= first < each.last]
            later = min([each.first for each in known if each.first > first], default=visit.last)
            part = here[0] if here else visit._replace(first=first, last=min(later, visit.last))
            yield part
            first = part.last


def _numbers(rows: pa.RecordBatch, part: Visit, visit: Visit) -> pa.RecordBatch:
    """Those rows of a part that are samples of the visit."""
    if visit.first <= part.first and part.last <= visit.last:
        return rows
    number = rows.column("sample").to_numpy()
    return rows.filter(pa.array((number >= visit.first) & (number < visit.last)))
