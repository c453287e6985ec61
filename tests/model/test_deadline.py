"""Endless work is interrupted in any thread, and nothing is raised after work that ended."""

import contextlib
import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from magcli.model import deadline
from magcli.model.deadline import Deadline


def loop() -> None:
    while True:
        pass


def busy(seconds: float) -> float:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return seconds


def stubborn() -> None:
    while True:
        with contextlib.suppress(Exception):
            loop()


def swallows() -> str:
    try:
        loop()
    except BaseException:
        return "swallowed"


def test_work_in_time_returns_its_result() -> None:
    few = Deadline(5.0)
    assert few.run(lambda: 3) == 3
    with pytest.raises(KeyError, match="x"):
        few.run(lambda: {}["x"])


@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize("work", [loop, stubborn, swallows])
def test_endless_work_is_interrupted_in_any_thread(work) -> None:
    few = Deadline(0.3)
    started = time.thread_time()
    with pytest.raises(TimeoutError, match=r"not finished in 0\.3 s of CPU time"):
        few.run(work)
    assert 0.3 < time.thread_time() - started < 5
    with ThreadPoolExecutor(3) as pool:
        late, idle, done = pool.submit(few.run, work), pool.submit(few.run, lambda: time.sleep(1)), 0
        while not late.done():
            done += few.run(lambda: 1)
        with pytest.raises(TimeoutError):
            late.result()
        assert idle.result() is None, "only CPU time counts"
    assert done > 10


@pytest.mark.flaky(reruns=2)
def test_nothing_is_raised_after_the_work_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    raise_in = deadline._raise_in

    def slowly(thread: int, kind: type[BaseException] | None) -> None:
        time.sleep(0.002 if kind else 0.0)  # in which the work may end
        raise_in(thread, kind)

    monkeypatch.setattr(deadline, "_raise_in", slowly)
    monkeypatch.setattr(deadline, "POLL_SECONDS", 1e-4)
    few, in_time = Deadline(0.005), []

    def rounds(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(200):
            try:
                few.run(lambda: busy(draw.uniform(0.0, 0.015)))
                in_time.append(True)
            except TimeoutError:
                in_time.append(False)
            busy(0.003)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(rounds, seed) for seed in range(2)]:
            done.result()
    assert 50 < sum(in_time) < 350, "some in time and some not"
