"""Units of work: in order, at most so many at once, recorded once, never computed twice."""

import asyncio
import gc
import json
import os
import signal
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magcli.console import Console
from magcli.errors import UsageError
from magcli.run.job import Drops, Job
from magcli.run.journal import Journal
from magcli.run.types import Dropped, Result
from magcli.run.units import AsyncRunner, WorkThread, drain, in_order, keyed, resumable

SCHEMA = pa.schema([("n", pa.int64())])


def rows(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(numbers)}, schema=SCHEMA)


async def closed() -> None:
    """Nothing to close."""


def job_with(journal: Journal | None = None) -> Job:
    return Job("stage", Console(quiet=True), Drops(keep=True), journal=journal, schema=SCHEMA)


# ---- order and concurrency ----


@settings(max_examples=30, deadline=None)
@given(delays=st.lists(st.integers(0, 4), max_size=25), window=st.integers(1, 6))
def test_results_come_in_order_and_at_most_a_window_runs_at_once(delays: list[int], window: int) -> None:
    running: list[int] = [0, 0]

    async def finish(key: str, part: pa.RecordBatch) -> int:
        running[0] += 1
        running[1] = max(running)
        for _ in range(delays[int(key)]):
            await asyncio.sleep(0)
        running[0] -= 1
        return int(key)

    units = ((str(i), rows(i)) for i in range(len(delays)))
    assert list(drain(in_order(units, finish, window), closed)) == list(range(len(delays)))
    assert running[1] <= window


def test_a_failing_unit_cancels_the_others_and_is_raised() -> None:
    ended: list[str] = []

    async def finish(key: str, part: pa.RecordBatch) -> str:
        if key == "2":
            raise ZeroDivisionError
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(key)
        return key

    with pytest.raises(ZeroDivisionError):
        list(drain(in_order(((str(i), rows(i)) for i in range(9)), finish, 4), closed))
    assert sorted(ended) == ["0", "1", "3"]


def test_close_is_awaited_when_the_consumer_stops() -> None:
    events: list[str] = []

    async def finish(key: str, part: pa.RecordBatch) -> str:
        return key

    async def close() -> None:
        events.append("closed")

    results = drain(in_order(((str(i), rows(i)) for i in range(9)), finish, 2), close)
    assert next(results) == "0"
    results.close()
    assert events == ["closed"]


def test_units_go_on_while_the_input_stalls() -> None:
    """The second unit comes only after the first one has ended, although there is room for both."""
    first_ended = threading.Event()

    def stalling() -> Iterator[tuple[str, pa.RecordBatch]]:
        yield "0", rows(0)
        assert first_ended.wait(60)
        yield "1", rows(1)

    async def finish(key: str, part: pa.RecordBatch) -> str:
        if key == "0":
            first_ended.set()
        return key

    assert list(drain(in_order(stalling(), finish, 4, may_stall=True), closed)) == ["0", "1"]


@settings(max_examples=30, deadline=None)
@given(delays=st.lists(st.integers(0, 4), max_size=25), window=st.integers(1, 6))
def test_a_stalling_input_keeps_order_and_window(delays: list[int], window: int) -> None:
    running: list[int] = [0, 0]

    async def finish(key: str, part: pa.RecordBatch) -> int:
        running[0] += 1
        running[1] = max(running)
        for _ in range(delays[int(key)]):
            await asyncio.sleep(0)
        running[0] -= 1
        return int(key)

    units = ((str(i), rows(i)) for i in range(len(delays)))
    assert list(drain(in_order(units, finish, window, may_stall=True), closed)) == list(range(len(delays)))
    assert running[1] <= window


def test_an_error_of_a_stalling_input_is_raised() -> None:
    def broken() -> Iterator[tuple[str, pa.RecordBatch]]:
        yield "0", rows(0)
        raise ZeroDivisionError

    async def finish(key: str, part: pa.RecordBatch) -> str:
        return key

    with pytest.raises(ZeroDivisionError):
        list(drain(in_order(broken(), finish, 4, may_stall=True), closed))


# ---- keys ----


def test_equal_units_have_different_keys_however_they_are_stored() -> None:
    whole = rows(1, 2, 1, 2)
    sliced = [whole.slice(0, 2), whole.slice(2, 2), rows(3)]
    fresh = [rows(1, 2), rows(1, 2), rows(3)]
    names = [name for name, _ in keyed(iter(sliced))]
    assert names == [name for name, _ in keyed(iter(fresh))]
    assert len(set(names)) == 3
    assert names[0].removesuffix("-0") == names[1].removesuffix("-1")


def test_another_column_is_another_unit() -> None:
    renamed = pa.RecordBatch.from_pydict({"m": [1]}, schema=pa.schema([("m", pa.int64())]))
    assert next(keyed(iter([rows(1)])))[0] != next(keyed(iter([renamed])))[0]


# ---- the journal ----


def test_recorded_units_are_not_computed_again(tmp_path: Path) -> None:
    computed: list[int] = []

    async def compute(part: pa.RecordBatch) -> Result:
        (number,) = part.column("n").to_pylist()
        computed.append(number)
        return Result(rows(), [Dropped(str(number), "odd")]) if number % 2 else Result(rows(number, -number))

    def run(count: int) -> list[int]:
        journal = Journal.open(tmp_path / "j", SCHEMA, {"seed": 1})
        job = job_with(journal)
        given = iter([rows(*range(count))])
        out = [
            n
            for b in resumable(given, job, compute, closed, size=1, window=3, unit="x")
            for n in b.column("n").to_pylist()
        ]
        assert job.drops.counts == {"odd": count // 2}
        journal.close()
        return out

    assert run(5) == [0, 0, 2, -2, 4, -4]
    assert sorted(computed) == [0, 1, 2, 3, 4]
    assert run(8) == [0, 0, 2, -2, 4, -4, 6, -6]
    assert sorted(computed) == list(range(8))


def test_units_that_the_machine_failed_are_computed_again(tmp_path: Path) -> None:
    computed: list[int] = []

    async def compute(part: pa.RecordBatch) -> Result:
        (number,) = part.column("n").to_pylist()
        computed.append(number)
        failed = number == 1 and computed.count(1) == 1
        return Result(rows(), [Dropped("1", "not-run")], retry=True) if failed else Result(rows(number))

    def run() -> tuple[list[int], dict[str, int]]:
        journal = Journal.open(tmp_path / "j", SCHEMA, {"seed": 1})
        job = job_with(journal)
        parts = list(resumable(iter([rows(0, 1, 2)]), job, compute, closed, size=1, window=1, unit="x"))
        journal.close()
        return [n for part in parts for n in part.column("n").to_pylist()], dict(job.drops.counts)

    assert run() == ([0, 2], {"not-run": 1})
    assert run() == ([0, 1, 2], {})
    assert computed == [0, 1, 2, 1]


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, 10_000), garbage=st.binary(max_size=40))
def test_a_torn_end_is_truncated_and_the_rest_kept(
    tmp_path_factory: pytest.TempPathFactory, cut: int, garbage: bytes
) -> None:
    path = tmp_path_factory.mktemp("torn") / "j"
    journal = Journal.open(path, SCHEMA, {"seed": 1})
    ends = [path.stat().st_size]
    for number in range(6):
        journal.put(f"k{number}", Result(rows(number)))
        ends.append(path.stat().st_size)
    journal.close()
    data = path.read_bytes()
    cut %= len(data) + 1
    path.write_bytes(data[:cut] + garbage)
    again = Journal.open(path, SCHEMA, {"seed": 1})
    kept = max(sum(end <= cut for end in ends) - 1, 0)
    assert list(again.positions)[:kept] == [f"k{n}" for n in range(kept)]
    for number in range(kept):
        assert again.get(f"k{number}").rows.equals(rows(number))
    again.put("new", Result(rows(7)))
    again.close()
    last = Journal.open(path, SCHEMA, {"seed": 1})
    assert last.get("new").rows.equals(rows(7))
    last.close()


def test_a_flipped_bit_loses_its_record_and_those_after_it(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "j", SCHEMA, {})
    for number in range(4):
        journal.put(f"k{number}", Result(rows(number)))
    place, _ = journal.positions["k2"]
    journal.close()
    data = bytearray((tmp_path / "j").read_bytes())
    data[place + 3] ^= 4
    (tmp_path / "j").write_bytes(bytes(data))
    again = Journal.open(tmp_path / "j", SCHEMA, {})
    assert list(again.positions) == ["k0", "k1"]
    again.close()


def test_a_journal_with_other_settings_is_refused_by_name(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "j", SCHEMA, {"seed": 1, "model": "a"})
    journal.put("one", Result(pa.RecordBatch.from_pylist([], SCHEMA)))
    journal.close()
    with pytest.raises(UsageError, match=r"seed 1 \(now 2\); repeat those settings to resume it, or give --restart"):
        Journal.open(tmp_path / "j", SCHEMA, {"seed": 2, "model": "a"})
    assert struct.Struct("<II").size < (tmp_path / "j").stat().st_size


def test_keys_and_settings_survive_a_json_round_trip(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "j", SCHEMA, {"columns": ["a"], "path": None})
    journal.put("key", Result(rows(1), [Dropped("é\n", "r", json.dumps({"x": "\0"}))]))
    journal.close()
    again = Journal.open(tmp_path / "j", SCHEMA, {"columns": ["a"], "path": None})
    assert again.get("key").dropped == [Dropped("é\n", "r", json.dumps({"x": "\0"}))]
    again.close()


# ---- interrupts ----


@pytest.mark.flaky(reruns=2)
def test_an_interrupt_cancels_the_task_and_is_raised_by_run() -> None:
    events: list[str] = []

    async def work() -> None:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            await asyncio.sleep(60)
        finally:
            events.append("ended")

    async def after() -> str:
        return "after"

    began, before = time.monotonic(), signal.getsignal(signal.SIGINT)
    with AsyncRunner() as loop:
        with pytest.raises(KeyboardInterrupt):
            loop.run(work())
        assert loop.run(after()) == "after"
    assert events == ["ended"]
    assert time.monotonic() - began < 5
    assert signal.getsignal(signal.SIGINT) is before


def test_units_that_fail_together_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    async def finish(key: str, part: pa.RecordBatch) -> str:
        raise ZeroDivisionError(key)

    with pytest.raises(ZeroDivisionError):
        list(drain(in_order(((str(i), rows(i)) for i in range(9)), finish, 4), closed))
    gc.collect()
    assert caplog.text == ""


def test_of_simultaneous_errors_that_of_the_first_unit_is_raised() -> None:
    async def finish(name: str, _: pa.RecordBatch) -> str:
        raise ValueError(name)

    async def first() -> str:
        units = ((str(number), pa.RecordBatch.from_pydict({"id": [number]})) for number in range(12))
        return await anext(in_order(units, finish, 12))

    for _ in range(20):
        with pytest.raises(ValueError, match=r"^0$"):
            asyncio.run(first())


def test_all_work_of_a_thread_runs_in_it_in_order() -> None:
    async def work() -> list[int]:
        thread = WorkThread()
        try:
            return await asyncio.gather(*(thread.run(threading.get_ident) for _ in range(5)))
        finally:
            thread.close()

    (ident,) = set(asyncio.run(work()))
    assert ident != threading.get_ident()


def test_an_error_of_work_reaches_who_waits_and_the_thread_goes_on() -> None:
    async def work() -> str:
        thread = WorkThread()
        with pytest.raises(ZeroDivisionError):
            await thread.run(lambda: 1 // 0)
        return await thread.run(lambda: "after")

    assert asyncio.run(work()) == "after"


def test_a_closed_thread_ends_after_its_work() -> None:
    ended = threading.Event()

    async def work() -> threading.Thread:
        thread = WorkThread()
        running = await thread.run(threading.current_thread)
        waiting = asyncio.create_task(thread.run(ended.set))
        await asyncio.sleep(0)
        thread.close()
        await waiting
        return running

    running = asyncio.run(work())
    running.join(timeout=10)
    assert ended.is_set()
    assert not running.is_alive()
