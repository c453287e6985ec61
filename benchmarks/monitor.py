"""Runs a training process and records when each line of its metrics appears, and its peak memory."""

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POLL_SECONDS = 0.02
TERMINATE_SECONDS = 30.0
TAIL = 2000

Line = Mapping[str, Any]


class TooSlow(Exception):
    """The process did not get there in time."""


@dataclass(frozen=True, slots=True)
class Record:
    """Metrics by step, the time at which each line appeared, peak memory of all processes, and seconds of the run."""

    lines: Mapping[int, Line]
    at: Mapping[int, float]
    peak_mib: int
    seconds: float = 0.0


def monitor(
    command: Sequence[str], metrics: Path, *, last: int, environment: Mapping[str, str], seconds: float
) -> Record:
    """Run a command until its metrics have a line for step ``last``, then terminate it.

    The command creates the folder of ``metrics``; its output goes to a file next to that folder.

    Raises:
        TooSlow: it took longer than ``seconds``.
        AssertionError: it ended early. Both messages have the end of its output.
    """
    log = metrics.parent.with_suffix(".txt")
    with open(log, "w") as output:
        started = time.monotonic()
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            lines, at = _follow(process, metrics, log, last=last, until=time.monotonic() + seconds)
            return Record(lines, at, peak_mib(process.pid), time.monotonic() - started)
        finally:
            _terminate(process)


def _follow(
    process: "subprocess.Popen[bytes]", metrics: Path, log: Path, *, last: int, until: float
) -> tuple[dict[int, Line], dict[int, float]]:
    lines: dict[int, Line] = {}
    at: dict[int, float] = {}
    while last not in lines:
        running = process.poll() is None
        for line in complete_lines(metrics):
            lines[line["step"]] = line
            at.setdefault(line["step"], time.monotonic())
        if last not in lines and (not running or time.monotonic() > until):
            where = f"after step {max(lines, default=None)}: {log.read_text()[-TAIL:]}"
            if running:
                raise TooSlow(f"too slow {where}")
            raise AssertionError(f"exit code {process.returncode} {where}")
        time.sleep(POLL_SECONDS)
    return lines, at


def complete_lines(path: Path) -> list[Line]:
    """The complete lines of a JSONL file that may not exist yet."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def peak_mib(pid: int) -> int:
    """The sum of the peak resident memory of a process and its live descendants."""
    status = Path(f"/proc/{pid}/status")
    try:
        peaks = [int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        children = [child for task in Path(f"/proc/{pid}/task").iterdir() for child in _children(task)]
    except OSError:
        return 0
    return sum(peaks) // 1024 + sum(peak_mib(child) for child in children)


def _children(task: Path) -> list[int]:
    return [int(pid) for pid in (task / "children").read_text().split()]


def _terminate(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(TERMINATE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
