"""Judging more programs at once than there are cores gives the verdicts of one by one."""

import os
import random
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from programs import LIMITS, Known, programs

from magcli.verify.code.judge import judge
from magcli.verify.types import Verdict


def verdict_of(known: Known) -> Verdict:
    return judge(known.program, known.language, known.tests, LIMITS)


@pytest.mark.parametrize(
    "count",
    [10, pytest.param(2000, marks=[pytest.mark.faults, pytest.mark.timeout(3600)])],
    ids=lambda count: f"{count}",
)
def test_no_verdict_flips_on_a_busy_machine(count: int) -> None:
    cases = list(programs(count, seed=count))
    alone = [verdict_of(case) for case in cases]
    assert mistakes(cases, alone) == []
    with ThreadPoolExecutor(2 * len(os.sched_getaffinity(0))) as pool:
        together = list(pool.map(verdict_of, cases))
    assert mistakes(cases, together) == []
    assert [verdict.passed for verdict in together] == [verdict.passed for verdict in alone]


def mistakes(cases: list[Known], verdicts: list[Verdict]) -> list[tuple[str, Verdict, str]]:
    """The verdicts that are not what is known of the program, beside that and the program."""
    pairs = zip(cases, verdicts, strict=True)
    return [(case.reason, verdict, case.program) for case, verdict in pairs if verdict.reason != case.reason]


BUSY = Known(
    "import time\na, b = map(int, input().split())\nwhile time.process_time() < .3: pass\nprint(a + b)",
    "python",
    [{"input": f"{a} 1\n", "output": f"{a + 1}\n"} for a in range(3)],
    "accepted",
)


def children(process: int | str) -> set[int]:
    """Of all its threads."""
    found: set[int] = set()
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            found.update(map(int, (task / "children").read_text().split()))
    return found


def runners() -> set[int]:
    """The processes in sandboxes that start programs: killed, they take the program with them."""
    return {runner for sandbox in children("self") for runner in children(sandbox)}


def kill_sandboxes(judged: Future[Verdict], kills: float, choose: random.Random) -> int:
    """Kill a sandbox at a random instant, again and again; returns how many it got."""
    killed: set[int] = set()
    while len(killed) < kills and not judged.done():
        time.sleep(choose.uniform(0.0, 0.4))
        for process in runners() - killed:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
                killed.add(process)
    return len(killed)


@pytest.mark.parametrize("rounds", [2, pytest.param(50, marks=pytest.mark.faults)])
def test_a_killed_sandbox_is_replaced_and_never_changes_a_verdict(rounds: int) -> None:
    seed = int(os.environ.get("FAULT_SEED") or random.SystemRandom().randrange(10**6))
    print(f"FAULT_SEED={seed}")
    choose, got = random.Random(seed), 0
    assert verdict_of(BUSY).reason == "accepted"
    with ThreadPoolExecutor(1) as pool:
        for _ in range(rounds):
            judged = pool.submit(verdict_of, BUSY)
            got += kill_sandboxes(judged, 2, choose)
            assert judged.result() == Verdict(1.0, "accepted", "python", "3 tests", 3, 3)
        assert got >= rounds, "kills that came in time"
        judged = pool.submit(verdict_of, BUSY)
        kill_sandboxes(judged, float("inf"), choose)
        assert (judged.result().reason, judged.result().score) == ("infra-error", 0.0)
        assert verdict_of(BUSY).reason == "accepted"
