"""Which points are sampled, in what order, and how often: grid, refinement, extra samples, and the origin again.

A visit loads the weights of one point and draws some samples of every problem. Its result is journalled when it ends,
keyed by point and sample numbers, so a resumed run repeats nothing, and a run with more points or more
samples extends the earlier one.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from magcli.data.schema import COMPLETION, REWARD
from magcli.landscape.surface import Array, near_best_and_path, refinement_points
from magcli.run.journal import Journal
from magcli.run.tasks import end_all
from magcli.run.types import Result

VISIT = pa.schema(
    [
        ("a1", pa.float64()),
        ("a2", pa.float64()),
        ("off_plane", pa.float64()),
        ("id", pa.string()),
        ("prompt", pa.string()),
        *COMPLETION,
        *[(part.name, pa.float64() if part.type == pa.float32() else part.type) for part in REWARD],
        ("digest", pa.string()),
    ]
)
"""One row per completion, ordered by problem and sample: actual coordinates of the weights, completion and reward.
Most texts are null; ``digest`` still identifies equal ones."""


class Visit(NamedTuple):
    """A requested point of the plane and the sample numbers ``first`` to ``last`` (exclusive).

    ``repeat`` marks the repeated evaluation of the final weights.
    """

    a1: float
    a2: float
    first: int
    last: int
    repeat: bool = False

    @property
    def key(self) -> str:
        """The key in the journal."""
        return json.dumps(self)


class SurveyPlan(NamedTuple):
    """Samples per problem at every point, number of refinement points, and extra samples near the best and the path."""

    samples: int
    refine: int = 0
    more_samples: int = 0


Measure = Callable[[Visit], Awaitable[pa.RecordBatch]]
"""Evaluates a visit: rows of ``VISIT`` ordered by problem and sample."""


@dataclass
class Survey:
    """Requested coordinates (P, 2), whether each is on the grid, its rows, and those of the repeated origin."""

    points: list[tuple[float, float]] = field(default_factory=list)
    grid: list[bool] = field(default_factory=list)
    rows: list[pa.RecordBatch] = field(default_factory=list)
    repeated_origin: pa.RecordBatch | None = None

    def add(self, point: tuple[float, float], rows: pa.RecordBatch, *, grid: bool) -> None:
        """Add a point."""
        self.points.append(point)
        self.grid.append(grid)
        self.rows.append(rows)

    def rewards(self) -> Array:
        """Mean reward of each problem at each point, (points, problems)."""
        return np.stack([column(rows, "reward").mean(1) for rows in self.rows])


def column(rows: pa.RecordBatch, name: str) -> Array:
    """A column of a point's rows as (problems, samples)."""
    values = np.asarray(rows.column(name).to_numpy(zero_copy_only=False))
    return values.reshape(problems_in(rows), -1)


def problems_in(rows: pa.RecordBatch) -> int:
    """Number of problems in a point's rows; their ids need not be unique."""
    sample = rows.column("sample").to_numpy()
    return int((sample == sample[0]).sum())


async def survey(grid: Array, trajectory: Array, plan: SurveyPlan, measure: Measure, *, at_once: int = 1) -> Survey:
    """Visit every point of the grid (P, 2), the refinements and extra samples of the plan, then the origin again.

    The refinements follow from all points of the grid, and the extra samples from both. ``at_once``: number of visits
    that wait for ``measure`` at the same time.
    """
    visited = Survey()

    async def visit_all(points: Array, *, on_grid: bool) -> None:
        visits = [Visit(a1, a2, 0, plan.samples) for a1, a2 in points.tolist()]
        all_rows = await _all_rows(measure, visits, at_once)
        for visit, rows in zip(visits, all_rows, strict=True):
            visited.add((visit.a1, visit.a2), rows, grid=on_grid)

    await visit_all(grid, on_grid=True)
    if plan.refine:
        refinements = refinement_points(visited.points, visited.rewards(), plan.refine)
        await visit_all(refinements, on_grid=False)
    if plan.more_samples:
        mean_rewards = visited.rewards().mean(1)  # (points,)
        chosen: list[int] = near_best_and_path(visited.points, mean_rewards, trajectory).tolist()
        # The samples after those that the points have.
        first, last = plan.samples, plan.samples + plan.more_samples
        visits = [Visit(*visited.points[index], first, last) for index in chosen]
        all_rows = await _all_rows(measure, visits, at_once)
        for index, rows in zip(chosen, all_rows, strict=True):
            visited.rows[index] = merge_samples(visited.rows[index], rows)
    visited.repeated_origin = await measure(Visit(0.0, 0.0, 0, plan.samples, repeat=True))
    return visited


async def _all_rows(measure: Measure, visits: Sequence[Visit], at_once: int) -> list[pa.RecordBatch]:
    """The rows of all visits, in their order, in which they also start. The first error cancels the others."""
    free = asyncio.Semaphore(at_once)

    async def rows_of(visit: Visit) -> pa.RecordBatch:
        async with free:
            return await measure(visit)

    # A semaphore wakes those that wait in their order, so visits start in that of the list.
    tasks = [asyncio.create_task(rows_of(visit)) for visit in visits]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await end_all(tasks)


def merge_samples(*parts: pa.RecordBatch) -> pa.RecordBatch:
    """Merge rows of the same point and problems, ordered by problem."""
    problems = problems_in(parts[0])
    slices = []
    for number in range(problems):
        for part in parts:
            samples = part.num_rows // problems
            slices.append(part.slice(number * samples, samples))
    return pa.Table.from_batches(slices).combine_chunks().to_batches()[0]


class JournalledVisits:
    """Measures visits, reusing samples that are already in the journal.

    ``on_visit`` is called after each visit with whether it was read entirely from the journal.
    """

    def __init__(self, journal: Journal, evaluate: Measure, on_visit: Callable[[bool], None]) -> None:
        self.journal = journal
        self.evaluate = evaluate
        self.on_visit = on_visit

    async def measure(self, visit: Visit) -> pa.RecordBatch:
        """The rows of a visit."""
        parts = list(self._parts(visit))
        new = [part for part in parts if part.key not in self.journal]
        for part in new:  # each is stored at once, so that an interrupted visit keeps it
            self.journal.put(part.key, Result(await self.evaluate(part)))
        self.on_visit(not new)
        stored = [self.journal.get(part.key).rows for part in parts]
        wanted = [_within(rows, part, visit) for rows, part in zip(stored, parts, strict=True)]
        return merge_samples(*wanted)

    def _parts(self, visit: Visit) -> Iterator[Visit]:
        """Journalled and new visits that together cover the samples of ``visit``."""
        journalled = [Visit(*json.loads(key)) for key in self.journal.positions]
        point = (visit.a1, visit.a2, visit.repeat)
        # Exact floats: their keys are JSON, which reads back every double as it was.
        earlier = [other for other in journalled if (other.a1, other.a2, other.repeat) == point]
        first = visit.first
        while first < visit.last:
            covering = [other for other in earlier if other.first <= first < other.last]
            if covering:
                part = covering[0]
            else:
                # A new visit up to the next sample that the journal has.
                later = [other.first for other in earlier if other.first > first]
                end = min([visit.last, *later])
                part = visit._replace(first=first, last=end)
            yield part
            first = part.last


def _within(rows: pa.RecordBatch, part: Visit, visit: Visit) -> pa.RecordBatch:
    """The rows of a part that belong to the visit."""
    if visit.first <= part.first and part.last <= visit.last:
        return rows
    number = rows.column("sample").to_numpy()
    return rows.filter(pa.array((number >= visit.first) & (number < visit.last)))
