"""A stage that decides on each row by itself: keep it, changed or not, or drop it with a reason."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from magcli.data.source import Rows
from magcli.data.values import from_rows, to_rows
from magcli.run.job import Job
from magcli.run.types import Dropped, Result
from magcli.run.units import resumable

Row = Mapping[str, Any]


class Drop:
    """Why a row is dropped, and what else is known about it: JSON values, which become columns of ``--dropped``."""

    def __init__(self, reason: str, /, **detail: Any) -> None:
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True)
class Retry:
    """A decision forced by a failure of the machine, such as a program that could not run; a resumed run repeats it."""

    decision: Row | Drop


@dataclass(frozen=True)
class Counted:
    """A decision, and what it adds to the job's tally, in a resumed run too."""

    decision: Row | Drop
    tally: Mapping[str, int]


Decision = Row | Drop | Retry | Counted
"""A row of the output, or why there is none."""
Decide = Callable[[dict[str, Any]], Awaitable[Decision]]
"""The decision on a row of the input."""


async def nothing_to_close() -> None:
    """For stages that hold nothing open."""


def each_row(
    job: Job,
    rows: Rows,
    decide: Decide,
    *,
    close: Callable[[], Awaitable[None]] = nothing_to_close,
    size: int = 1,
    window: int = 1,
    unit: str = "rows",
    completions: Callable[[], int] | None = None,
) -> Rows:
    """Decide on the rows that are not in the job's journal; the output has the order of the input.

    Args:
        job: this run of the stage.
        rows: the input.
        decide: the decision on a row; what it raises ends the stage.
        close: awaited at the end, also after an error.
        size: number of rows that are journaled together; more than one where decisions are quick.
        window: number of units of ``size`` rows that are decided concurrently.
        unit: what progress counts.
        completions: the number of completions sampled so far, for the progress of stages that sample.
    """

    async def compute(part: pa.RecordBatch) -> Result:
        part_rows = to_rows(part)
        # The decisions of a unit wait for servers and programs at the same time.
        decisions = await asyncio.gather(*map(decide, part_rows))
        return result_of(part_rows, decisions, job.output_schema)

    return resumable(rows, job, compute, close, size=size, window=window, unit=unit, completions=completions)


def result_of(rows: list[dict[str, Any]], decisions: list[Decision], schema: pa.Schema) -> Result:
    """What decisions on rows add to the output, whose columns are ``schema``, and to the dropped rows."""
    kept: list[Row] = []
    dropped: list[Dropped] = []
    tally: Counter[str] = Counter()
    retry = False
    for position, (row, decision) in enumerate(zip(rows, decisions, strict=True)):
        if isinstance(decision, Retry):
            # One failure is enough: the rows of a unit are journaled together or not at all.
            retry = True
            decision = decision.decision
        elif isinstance(decision, Counted):
            tally.update(decision.tally)
            decision = decision.decision
        if isinstance(decision, Drop):
            dropped.append(Dropped(row["id"], decision.reason, decision.detail, row, position))
        else:
            kept.append(decision)
    return Result(from_rows(kept, schema), dropped, retry, tally)
