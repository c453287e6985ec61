"""A custom reward that starts processes: none of them is left when its worker has ended, however that ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from magcli.verify.pool import Pool
from magcli.verify.reward import RewardRule

SOURCE = '''
import os, pathlib, subprocess, sys, time

LOG = pathlib.Path(__file__).with_name("pids")

def note(pid):
    with LOG.open("a") as file:
        file.write(f"{pid}\\n")

def starting(completion, row):
    """A copy, a command in a session of its own, one without an environment, and a copy whose parent has gone."""
    if os.fork() == 0:
        note(os.getpid())
        time.sleep(1000)
    note(subprocess.Popen(["sleep", "1000"], start_new_session=True).pid)
    note(subprocess.Popen(["sleep", "1000"], env={}).pid)
    middle = os.fork()
    if middle == 0:
        os.setsid()
        if os.fork() == 0:
            note(os.getpid())
            time.sleep(1000)
        os._exit(0)
    os.waitpid(middle, 0)
    while len(LOG.read_text().splitlines()) < 4:
        time.sleep(0.01)
    time.sleep(row["seconds"])
    return 1.0

def doubled(completion, row):
    os.fork()
    return float(row["value"])
'''
RULE = RewardRule()
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "forking_reward.py"
    path.write_text(SOURCE)
    return path


def started(source: Path) -> list[int]:
    """The processes that the reward has started."""
    log = source.with_name("pids")
    return list(map(int, log.read_text().split())) if log.exists() else []


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_they_end_when_the_pool_is_shut_down(source: Path) -> None:
    pool = Pool(1, deadline=60.0, function=f"{source}:starting")
    (reward,) = pool.rewards([("", 0, {"seconds": 0}, RULE)])
    assert reward.total == 1.0
    pids = started(source)
    assert len(pids) == 4
    assert any(map(alive, pids))
    pool.shutdown()
    until(lambda: not any(map(alive, pids)))


def test_they_end_when_the_worker_is_killed_at_its_deadline(source: Path) -> None:
    pool = Pool(1, deadline=3.0, function=f"{source}:starting")
    try:
        (reward,) = pool.rewards([("", 0, {"seconds": 1000}, RULE)])
        assert reward.reason == "timeout"
        pids = started(source)
        assert len(pids) == 4
        until(lambda: not any(map(alive, pids)))
    finally:
        pool.shutdown()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_they_end_when_the_command_is_killed(source: Path, tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "?", "answer": "1", "completion": "x", "seconds": 1000}\n')
    command = [sys.executable, "-m", "magcli", "grade", "rows.jsonl", "--reward", f"{source}:starting"]
    command += ["--verify-deadline", "500", "-o", "out.arrow"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE) as process:
        until(lambda: len(started(source)) == 4)
        pids = started(source)
        assert all(map(alive, pids))
        os.kill(process.pid, number)
        process.communicate()
    until(lambda: not any(map(alive, pids)))


def test_a_forked_copy_answers_no_jobs(source: Path) -> None:
    """Both copies return from the function, or from its module, and only the worker's results count."""
    source.write_text(SOURCE + "os.fork()\n")
    pool = Pool(1, deadline=60.0, function=f"{source}:doubled")
    try:
        rewards = pool.rewards([("", 0, {"value": number}, RULE) for number in range(40)])
        assert [reward.total for reward in rewards] == list(range(40))
    finally:
        pool.shutdown()
