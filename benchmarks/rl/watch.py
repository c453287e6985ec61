"""A training process watched from outside: when each line of its metrics appeared, and what memory it took."""

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

POLL_SECONDS = 0.02
END_SECONDS = 30.0
TAIL = 2000

Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Watched:
    """``lines`` of the metrics by step, ``at`` the second each was first seen, the whole run's ``seconds`` until the
    last, ``peak_mib`` of all its processes.
    """

    lines: Mapping[int, Line]
    at: Mapping[int, float]
    peak_mib: int
    seconds: float = 0.0


def watch(
    command: Sequence[str], metrics: Path, *, last: int, environment: Mapping[str, str], seconds: float
) -> Watched:
    """Run a command until its metrics have the line of step ``last``, then end it.

    What it says goes to a file beside the folder of the metrics, which the command makes itself.

    Raises:
        AssertionError: it ended before, or took longer than ``seconds``; the end of what it wrote is in the message.
    """
    said = metrics.parent.with_suffix(".txt")
    with open(said, "w") as output:
        begun = time.monotonic()
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            lines, at = _follow(process, metrics, said, last=last, until=time.monotonic() + seconds)
            return Watched(lines, at, peak_mib(process.pid), time.monotonic() - begun)
        finally:
            _end(process)


def _follow(
    process: "subprocess.Popen[bytes]", metrics: Path, said: Path, *, last: int, until: float
) -> tuple[dict[int, Line], dict[int, float]]:
    lines: dict[int, Line] = {}
    at: dict[int, float] = {}
    while last not in lines:
        running = process.poll() is None
        for line in whole_lines(metrics):
            lines[line["step"]] = line
            at.setdefault(line["step"], time.monotonic())
        late = time.monotonic() > until
        assert last in lines or (running and not late), (
            f"{'too slow' if late else f'ended with {process.returncode}'} after step {max(lines, default=None)}: "
            f"{said.read_text()[-TAIL:]}"
        )
        time.sleep(POLL_SECONDS)
    return lines, at


def whole_lines(path: Path) -> list[Line]:
    """The lines of a file of JSON that are complete; none where there is no file yet."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def peak_mib(pid: int) -> int:
    """The largest resident memory of a process and of those under it that still live, each at its own peak."""
    status = Path(f"/proc/{pid}/status")
    try:
        peaks = [int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        children = [child for task in Path(f"/proc/{pid}/task").iterdir() for child in _children(task)]
    except OSError:
        return 0
    return sum(peaks) // 1024 + sum(peak_mib(child) for child in children)


def _children(task: Path) -> list[int]:
    return [int(pid) for pid in (task / "children").read_text().split()]


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
