"""A stage that decides on each row by itself: keep it, changed or not, or drop it with a reason."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from magcli.data.source import Rows
from magcli.data.values import from_rows, to_rows
from magcli.run.job import Job
from magcli.run.journal import Dropped, Result
from magcli.run.units import resumable


class Keep(NamedTuple):
    """A row of the output. ``retry``: the machine failed it, so a resumed run decides again."""

    row: Mapping[str, Any]
    retry: bool = False


class Drop(NamedTuple):
    """Why a row is dropped.

    ``known`` is what is known of it besides, in JSON types: columns of ``--dropped``. ``retry`` is as in ``Keep``.
    """

    reason: str
    known: Mapping[str, Any] = {}
    retry: bool = False


Decide = Callable[[dict[str, Any]], Awaitable[Keep | Drop]]
"""The decision on a row, which has the columns of the input."""


async def nothing_to_close() -> None:
    """For stages that hold nothing open."""


def each_row(
    rows: Rows,
    job: Job,
    decide: Decide,
    *,
    schema: pa.Schema,
    close: Callable[[], Awaitable[None]] = nothing_to_close,
    window: int = 1,
    unit: str = "rows",
    completions: Callable[[], int] | None = None,
) -> Rows:
    """Decide on rows, ``window`` at a time, except those in the job's journal; the output has their order.

    Args:
        rows: the input.
        job: this run of the stage.
        decide: the decision; what it raises ends the stage.
        schema: the columns of the output.
        close: awaited at the end, also after an error.
        window: number of rows that are decided concurrently.
        unit: what progress counts.
        completions: the number of completions sampled so far, for the progress of stages that sample.
    """

    async def compute(part: pa.RecordBatch) -> Result:
        (row,) = to_rows(part)
        return result_of(row, await decide(row), schema)

    return resumable(rows, job, compute, close, size=1, window=window, unit=unit, completions=completions)


def result_of(row: Mapping[str, Any], decision: Keep | Drop, schema: pa.Schema) -> Result:
    """What a decision on a row adds to the output and to the dropped rows."""
    if isinstance(decision, Keep):
        return Result(from_rows([decision.row], schema), retry=decision.retry)
    dropped = Dropped(row["id"], decision.reason, decision.known, row)
    return Result(from_rows([], schema), [dropped], retry=decision.retry)
