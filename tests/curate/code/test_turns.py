"""Turns of problems: beside each other, and alone where a compiler had not the time."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from magcli.curate.code.started import NotCompiled
from magcli.curate.code.turns import Turns


def test_work_runs_beside_other_work():
    turns, both = Turns(), threading.Barrier(2)

    def meet() -> int:
        return both.wait(timeout=10)

    with ThreadPoolExecutor(2) as crew:
        met = [crew.submit(turns.take, meet) for _ in range(2)]
        assert sorted(each.result() for each in met) == [0, 1]


def test_what_was_not_compiled_is_tried_again_while_nothing_else_runs():
    turns, busy, lock = Turns(), set(), threading.Lock()
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
                    raise NotCompiled("late")
                beside.append((number, len(busy)))
            return number
        finally:
            with lock:
                busy.discard(number)

    with ThreadPoolExecutor(6) as crew:
        assert list(crew.map(lambda number: turns.take(lambda: work(number)), range(40))) == list(range(40))
    assert {number for number, count in tries.items() if count == 2} == set(range(0, 40, 5))
    assert sorted(beside) == [(number, 1) for number in range(0, 40, 5)]


def test_a_second_failure_is_told_and_the_turn_is_over():
    turns = Turns()

    def late() -> None:
        raise NotCompiled("late")

    with pytest.raises(NotCompiled):
        turns.take(late)
    with pytest.raises(ZeroDivisionError):
        turns.take(lambda: 1 / 0)
    assert turns.take(lambda: 7) == 7
