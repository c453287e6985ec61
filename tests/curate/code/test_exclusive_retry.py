"""Problems run concurrently, and again alone if the compiler timed out."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from magcli.curate.code.execution import CompilerFailed, ExclusiveRetry


def test_work_runs_concurrently():
    retry, both = ExclusiveRetry(), threading.Barrier(2)

    def meet() -> int:
        return both.wait(timeout=400)

    with ThreadPoolExecutor(2) as crew:
        met = [crew.submit(retry.run, meet) for _ in range(2)]
        assert sorted(each.result() for each in met) == [0, 1]


def test_a_failed_compilation_is_retried_while_nothing_else_runs():
    retry, busy, lock = ExclusiveRetry(), set(), threading.Lock()
    beside: list[tuple[int, int]] = []
    tries: dict[int, int] = {}

    def work(number: int) -> int:
        with lock:
            busy.add(number)
            tries[number] = tries.get(number, 0) + 1
        try:
            threading.Event().wait(0.002)
            if number % 5 == 0:
                if tries[number] == 1:
                    raise CompilerFailed("late")
                beside.append((number, len(busy)))
            return number
        finally:
            with lock:
                busy.discard(number)

    with ThreadPoolExecutor(6) as crew:
        assert list(crew.map(lambda number: retry.run(lambda: work(number)), range(40))) == list(range(40))
    assert {number for number, count in tries.items() if count == 2} == set(range(0, 40, 5))
    assert sorted(beside) == [(number, 1) for number in range(0, 40, 5)]


def test_a_second_failure_is_raised_and_releases_the_lock():
    retry = ExclusiveRetry()

    def late() -> None:
        raise CompilerFailed("late")

    with pytest.raises(CompilerFailed):
        retry.run(late)
    with pytest.raises(ZeroDivisionError):
        retry.run(lambda: 1 / 0)
    assert retry.run(lambda: 7) == 7
