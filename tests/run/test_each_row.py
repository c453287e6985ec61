"""Decisions on rows: kept, dropped with a reason, or tried again when the run is resumed."""

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa

from magcli.console import Console
from magcli.run.each_row import Decision, Drop, Retry, each_row
from magcli.run.job import Drops, Job
from magcli.run.journal import Journal

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])


def table(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": f"row {n}", "n": n} for n in numbers], SCHEMA)


def new_job(journal: Journal | None = None) -> Job:
    return Job("stage", Console(quiet=True), Drops(keep=True), journal=journal, output_schema=SCHEMA)


def numbers_of(batches: list[pa.RecordBatch]) -> list[int]:
    return [n for batch in batches for n in batch.column("n").to_pylist()]


async def halve_even(row: dict[str, Any]) -> Decision:
    """Keep even numbers, halved."""
    if row["n"] % 2:
        return Drop("odd", remainder=row["n"] % 2)
    return {**row, "n": row["n"] // 2}


def test_rows_are_kept_changed_or_dropped_with_a_reason() -> None:
    job = new_job()
    batches = list(each_row(job, iter([table(4, 5, 6, 7)]), halve_even, size=3))
    assert numbers_of(batches) == [2, 3]
    assert job.drops.counts == {"odd": 2}


def test_order_is_that_of_the_input_although_later_rows_are_decided_first() -> None:
    async def slow_first(row: dict[str, Any]) -> Decision:
        await asyncio.sleep(0.05 if row["n"] == 0 else 0)
        return row

    batches = list(each_row(new_job(), iter([table(0, 1, 2, 3)]), slow_first, window=4))
    assert numbers_of(batches) == [0, 1, 2, 3]


def test_only_decisions_that_the_machine_forced_are_made_again(tmp_path: Path) -> None:
    decided: list[int] = []

    async def fail_on_two(row: dict[str, Any]) -> Decision:
        decided.append(row["n"])
        if row["n"] == 2:
            return Retry(Drop("not-run"))
        return row

    for _ in range(2):
        job = new_job(Journal.open(tmp_path / "journal", SCHEMA, {"seed": 0}))
        batches = list(each_row(job, iter([table(1, 2, 3)]), fail_on_two))
        assert numbers_of(batches) == [1, 3]
        assert job.drops.counts == {"not-run": 1}
        assert job.journal is not None
        job.journal.close()
    assert decided == [1, 2, 3, 2]


def test_the_schema_of_the_output_may_have_more_columns() -> None:
    more = SCHEMA.append(pa.field("double", pa.int64()))

    async def double(row: dict[str, Any]) -> Decision:
        return {**row, "double": 2 * row["n"]}

    job = new_job()
    job.output_schema = more
    (batch,) = each_row(job, iter([table(4)]), double)
    assert batch.to_pylist() == [{"id": "row 4", "n": 4, "double": 8}]
