import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from magcli.errors import DataError, EnvironmentFault
from magcli.verify.pool import START_TIMEOUT, Job, Pool, WorkerProcess
from magcli.verify.reward import Reward, RewardRule, reward
from magcli.verify.worker import LOADING

RULE = RewardRule(penalty_end=1000, use_language=False)
ENDLESS = f"{Path(__file__).with_name('hanging.py')}:endless"


def job(answer: str, gold: str = "5", kind: str = "math") -> Job:
    return f"<think>a</think>\\boxed{{{answer}}}", 10, {"prompt": "?", "answer": gold, "kind": kind}, RULE


HANG = job("hang")
"""Never ends where the reward is ``ENDLESS``."""


def workers() -> set[int]:
    """The running children of this process."""
    files = Path("/proc/self/task").glob("*/children")
    return {int(pid) for file in files for pid in file.read_text().split()}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool(1)
    yield pool
    pool.shutdown()


def test_the_pool_grades_as_this_process_does(pool: Pool) -> None:
    jobs = [job(str(n % 7)) for n in range(300)] + [job(r"\sqrt{25}"), ("", 0, {"answer": "5"}, RULE)]
    assert pool.rewards(jobs) == [reward(*each) for each in jobs] == Pool(0).rewards(jobs)


def test_asyncio_and_threads_share_a_pool(pool: Pool) -> None:
    async def many() -> int:
        futures = pool.submit([job(str(n)) for n in range(50)])
        return sum(graded.correct for graded in await asyncio.gather(*map(asyncio.wrap_future, futures)))

    counts: list[int] = []
    threads = [threading.Thread(target=lambda: counts.append(asyncio.run(many()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [1] * 4


def test_a_job_over_the_deadline_is_killed_and_the_others_are_graded() -> None:
    pool = Pool(1, deadline=1.0, function=ENDLESS)
    try:
        pool.rewards([job("5")])
        before = workers()
        start = time.monotonic()
        graded = pool.rewards([job("5"), HANG, job("6"), job("5")])
        assert [each.reason for each in graded] == ["correct", "timeout", "wrong", "correct"]
        assert not graded[1].trainable
        assert time.monotonic() - start < 100
        assert not before <= workers()
    finally:
        pool.shutdown()


@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
def test_a_worker_lost_from_outside_is_replaced(sent: signal.Signals) -> None:
    before = workers()
    pool = Pool(1, deadline=1.0)
    try:
        pool.rewards([job("5")])
        (pid,) = workers() - before
        os.kill(pid, sent)
        assert pool.rewards([job("5"), job("6")])[0].reason == "correct"
        assert not alive(pid)
    finally:
        pool.shutdown()


SLOW = ("<think>a</think>\\boxed{5}" + "{}" * 150_000, 10, {"answer": "5"}, RULE)
"""Braces that take some tenths of a second to match."""


def disturb(pool_workers: Callable[[], set[int]], times: int, choose: random.Random) -> None:
    """Do to a worker what an administrator or the system may do, at random instants."""
    for _ in range(times):
        time.sleep(choose.uniform(0.1, 0.8))
        for pid in choose.sample(sorted(pool_workers()), k=min(1, len(pool_workers()))):
            with contextlib.suppress(ProcessLookupError):
                sent = choose.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
                os.kill(pid, sent)
                if sent == signal.SIGSTOP and choose.random() < 0.5:
                    time.sleep(0.3)
                    os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("times", [6, pytest.param(100, marks=pytest.mark.faults)])
def test_verdicts_survive_killed_and_stopped_workers(times: int) -> None:
    seed = int(os.environ.get("FAULT_SEED") or random.SystemRandom().randrange(10**6))
    print(f"FAULT_SEED={seed}")
    jobs = [job(str(n % 7), "5") for n in range(60)] + [SLOW, job(r"\sqrt{25}"), job("", "5"), job("5", r"\frac{")]
    clean, before = [reward(*each) for each in jobs], workers()
    pool = Pool(2, deadline=60.0)
    killer = threading.Thread(target=disturb, args=(lambda: workers() - before, times, random.Random(seed)))
    killer.start()
    try:
        while killer.is_alive():
            assert pool.rewards(jobs) == clean
        assert pool.rewards(jobs) == clean
    finally:
        killer.join()
        pool.shutdown()
    assert workers() == before


def test_a_spare_worker_takes_over_at_once() -> None:
    before = workers()
    pool = Pool(1, deadline=1.0)
    try:
        pool.rewards([job("5")])
        (first,) = workers() - before
        until(lambda: pool._spare is not None)
        os.kill(first, signal.SIGKILL)
        spare = pool._spare
        assert pool.rewards([job("5")])[0].correct
        assert spare in pool._live, "no worker had to begin"
        assert pool._spare is not spare
    finally:
        pool.shutdown()
    assert workers() == before


@pytest.mark.flaky(reruns=2)
def test_a_stopped_worker_is_not_a_slow_answer() -> None:
    before = workers()
    pool = Pool(1, deadline=60.0)
    try:
        pool.rewards([job("5")])
        (pid,) = workers() - before
        os.kill(pid, signal.SIGSTOP)
        begun = time.monotonic()
        assert pool.rewards([SLOW])[0] == reward(*SLOW)
        assert time.monotonic() - begun < 30
    finally:
        pool.shutdown()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_job_that_loses_every_worker_is_an_infra_error() -> None:
    before = workers()
    pool = Pool(1, deadline=60, function=ENDLESS)
    done = threading.Event()
    pool.rewards([job("5")])
    busy = max(map(cpu_seconds, workers() - before)) + 0.4

    def kill_busy_workers() -> None:
        while not done.wait(0.05):
            for pid in workers() - before:
                with contextlib.suppress(OSError):
                    if cpu_seconds(pid) > busy:
                        os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_busy_workers)
    killer.start()
    try:
        graded = pool.rewards([HANG])[0]
        assert (graded.reason, graded.total, graded.trainable) == ("infra-error", 0, False)
    finally:
        done.set()
        killer.join()
        pool.shutdown()


def test_sigint_is_left_to_the_parent(pool: Pool) -> None:
    before = workers()
    pool.rewards([job("5")])
    for pid in workers():
        os.kill(pid, signal.SIGINT)
    assert pool.rewards([job("5")])[0].correct
    assert workers() >= before


@pytest.mark.flaky(reruns=2)
def test_close_leaves_no_process_and_fails_what_waits() -> None:
    before = workers()

    async def run() -> float:
        pool = Pool(2, deadline=60, function=ENDLESS)
        await asyncio.wrap_future(pool.submit([job("5")])[0])
        waiting = [asyncio.wrap_future(future) for future in pool.submit([HANG] * 3)]
        await asyncio.sleep(0.3)
        start = time.monotonic()
        await asyncio.to_thread(pool.shutdown)
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(outcome, EnvironmentFault) for outcome in outcomes)
        with pytest.raises(EnvironmentFault, match="closed"):
            await asyncio.wrap_future(pool.submit([job("5")])[0])
        return time.monotonic() - start

    assert asyncio.run(run()) < 3
    assert workers() == before


def test_no_worker_outlives_a_killed_parent() -> None:
    program = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); from test_verify_pool import *\n"
        "pool = Pool(2, deadline=60, function=ENDLESS); pool.rewards([job('5')] * 200)\n"
        "pool.submit([HANG, HANG]); until(lambda: len(workers()) >= 2)\n"
        "print(*workers(), flush=True); time.sleep(60)"
    )
    args = [sys.executable, "-c", program, str(Path(__file__).parent)]
    with subprocess.Popen(args, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) >= 2
        assert all(map(alive, pids))
        parent.kill()
    until(lambda: not any(map(alive, pids)))


def test_errors_in_a_row_reach_the_caller(pool: Pool) -> None:
    with pytest.raises(DataError, match="cannot be graded"):
        pool.rewards([job("5", kind="proof")])
    assert pool.rewards([job("5")])[0].correct


def test_a_row_that_cannot_be_pickled_is_an_infra_error(pool: Pool) -> None:
    text, length, row, rule = job("5")
    (found,) = pool.rewards([(text, length, {**row, "answer": lambda: 5}, rule)])
    assert (found.reason, found.trainable) == ("infra-error", False)
    assert "pickle" in found.detail
    assert pool.rewards([job("5")])[0].correct


def test_a_memory_bomb_costs_one_job() -> None:
    pool = Pool(1, memory=400 << 20)
    try:
        huge = ("<think>" + "a" * (200 << 20) + "</think>\\boxed{5}", 10, {"answer": "5"}, RULE)
        first, second = pool.rewards([huge, job("5")])
        assert not first.trainable
        assert second.correct
    finally:
        pool.shutdown()


def hostile(canary: Path) -> dict[str, tuple[str, str]]:
    code = f"__import__('os').system('touch {canary}')"
    return {
        "tower": ("9^{9^{9}}", "5"),
        "tower in the ground truth": ("5", "9^{9^{9^{9}}}"),
        "two towers": ("9^{9^{9^{9}}}", "9^{9^{9^{8}}}"),
        "star tower": ("9**9**9**9", "5"),
        "product in an exponent": (r"999^{999\cdot999\cdot999}", "1"),
        "factorial": ("100000!", "5"),
        "nested factorial": ("((9!)!)!", "5"),
        "binomial": (r"\binom{10^9}{10^8}", "5"),
        "big integer": ("9" * 100_000, "9" * 99_999 + "8"),
        "huge exponent in the ground truth": ("5", "10^{1000000000}"),
        "huge scientific": ("1e999999999", "1e-999999999"),
        "braces": ("{" * 500_000 + "}" * 500_000, "5"),
        "brackets": ("(" * 3000 + "1" + ")" * 3000, "5"),
        "fractions": (r"\frac{1}{" * 800 + "2" + "}" * 800, "5"),
        "roots": (r"\sqrt{" * 400 + "2" + "}" * 400, "5"),
        "blanks": (" " * 200_000 + "5" + " " * 200_000 + "x", "5"),
        "unclosed text": (r"\text{" * 20_000, "5"),
        "list": (",".join(map(str, range(20_000))), "5"),
        "sum": ("+".join(["x"] * 20_000), "5"),
        "series": (r"\sum_{i=1}^{10^{12}} i", "5"),
        "expansion": ("(a+b+c+d+e+f)^{60}", "(a+b+c+d+e+g)^{60}"),
        "equation": (r"(x+1)^{60}(y+2)^{60}=(z+3)^{60}\Re(w)", r"(x+1)^{60}(y+2)^{60}=(z+4)^{60}\Re(w)"),
        "code": (code, "5"),
        "code in both": (code, f"1+{code}"),
        "code in latex": (rf"\text{{{code}}}+\sqrt{{2}}", r"\sqrt{2}"),
        "f-string": (f"f'{{{code}}}'", "x+1"),
        "NUL": ("5\x00", "5"),
        "surrogate": ("\ud800\udfff", "5"),
        "names of algebra systems": ("zoo+nan+N+Q+S+E+I+O", "oo"),
        "division by zero": (r"\frac{1}{0}", r"\frac{2}{0}"),
    }


NAMES = list(hostile(Path("canary")))


@pytest.fixture(scope="module")
def hostile_pool() -> Iterator[Pool]:
    pool = Pool(1, deadline=2.0)
    yield pool
    pool.shutdown()


@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize("name", NAMES)
def test_hostile_answers_are_wrong_in_time_and_run_nothing(name: str, hostile_pool: Pool, tmp_path: Path) -> None:
    answer, gold = hostile(tmp_path / "canary")[name]
    hostile_pool.rewards([job("5")])
    start = time.monotonic()
    graded = hostile_pool.rewards([job(answer, gold)])[0]
    assert time.monotonic() - start < 20
    assert graded.reason in ("wrong", "timeout", "bad-gold", "unclosed-box")
    assert graded.total <= 0.1
    assert list(tmp_path.iterdir()) == []
    assert hostile_pool.rewards([job("5")])[0].correct


def test_a_worker_loads_the_language_classifier_when_a_job_needs_it_and_says_so() -> None:
    spoken = (
        "<think>We add the numbers one by one and find the sum.</think>The sum is \\boxed{5}, as we have seen above.",
        10,
        {"prompt": "What is the sum of these two numbers?", "answer": "5", "kind": "math"},
        RewardRule(penalty_end=1000),
    )
    remote = WorkerProcess(2 << 30)
    try:
        assert remote.ready()
        remote.send([job("5"), spoken, spoken])
        said = [remote._message(60.0) for _ in range(5)]
    finally:
        remote.kill()
    assert said[1] == LOADING
    assert said[2][1] is None
    assert said[2][0] > said[0][0]
    assert [type(said[place][1]) for place in (0, 3, 4)] == [Reward] * 3


def test_the_deadline_restarts_when_a_tool_has_been_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = WorkerProcess(2 << 30)
    asked: list[float] = []
    said = iter([LOADING, (0.5, None), LOADING, (0.7, None), (0.8, "verdict")])

    def message(_: WorkerProcess, seconds: float) -> object:
        asked.append(seconds)
        return next(said)

    monkeypatch.setattr(WorkerProcess, "_message", message)
    try:
        assert remote.answer(2.0) == "verdict"
    finally:
        remote.kill()
    assert asked == [2.0, START_TIMEOUT, 2.0, START_TIMEOUT, 2.0]
    assert remote._cpu == 0.8
