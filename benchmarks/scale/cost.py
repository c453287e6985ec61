"""What a command costs: it runs in a process group of its own, under a limit of memory, and its tree is watched."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import psutil

EVERY = 0.5
"""Seconds between two looks at the tree."""


class Cost(NamedTuple):
    """Wall seconds, CPU seconds of all processes, peak resident bytes of the tree, shared pages counted anew."""

    seconds: float
    cpu: float
    peak: int


def costly(arguments: Sequence[object], limit: int) -> Cost:
    """Run ``magcli`` with its errors on this terminal; no process of it may have more than ``limit`` bytes of data.

    Raises:
        SystemExit: it failed.
    """

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    command = [sys.executable, "-m", "magcli", *map(str, arguments)]
    print(f"$ magcli {' '.join(command[3:])}", file=sys.stderr, flush=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    begun = time.monotonic()
    process = subprocess.Popen(command, preexec_fn=limited, start_new_session=True, env=environment)
    status, peak, usage = _watched(process.pid)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"error: magcli {arguments[0]} ended with {process.returncode}")
    return Cost(time.monotonic() - begun, usage.ru_utime + usage.ru_stime, max(peak, usage.ru_maxrss << 10))


def _watched(pid: int) -> tuple[int, int, resource.struct_rusage]:
    """The status of a process when it has ended, the peak of its tree, and what it and all its children used."""
    peak, tree = 0, psutil.Process(pid)
    while True:
        found, status, usage = os.wait4(pid, os.WNOHANG)
        if found:
            return status, peak, usage
        peak = max(peak, _resident(tree))
        time.sleep(EVERY)


def _resident(tree: psutil.Process) -> int:
    """Bytes of a process and all below it; those that end meanwhile count nothing."""
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
