"""Runs a command under a memory limit and measures time, CPU time and peak memory of its process tree."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import psutil

POLL_SECONDS = 0.5


class Cost(NamedTuple):
    """Wall seconds, CPU seconds and peak resident bytes of all processes; shared pages count once per process."""

    seconds: float
    cpu: float
    peak: int


def run_limited(arguments: Sequence[object], limit: int) -> Cost:
    """Run ``magcli`` with at most ``limit`` bytes of data per process.

    Raises:
        SystemExit: it failed.
    """

    def set_limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    command = [sys.executable, "-m", "magcli", *map(str, arguments)]
    print(f"$ magcli {' '.join(command[3:])}", file=sys.stderr, flush=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = time.monotonic()
    process = subprocess.Popen(command, preexec_fn=set_limit, start_new_session=True, env=environment)
    status, peak, usage = _measure(process.pid)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"error: magcli {arguments[0]} failed with exit code {process.returncode}")
    return Cost(time.monotonic() - started, usage.ru_utime + usage.ru_stime, max(peak, usage.ru_maxrss << 10))


def _measure(pid: int) -> tuple[int, int, resource.struct_rusage]:
    """Exit status, peak resident bytes of the process tree, and resource usage."""
    peak, tree = 0, psutil.Process(pid)
    while True:
        exited, status, usage = os.wait4(pid, os.WNOHANG)
        if exited:
            return status, peak, usage
        peak = max(peak, _resident(tree))
        time.sleep(POLL_SECONDS)


def _resident(tree: psutil.Process) -> int:
    """Bytes of a process and its descendants; those that have exited count 0."""
    total = 0
    try:
        processes = [tree, *tree.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for process in processes:
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total
