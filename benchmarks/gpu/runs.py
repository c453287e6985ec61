"""Short runs of ``magcli rl``: what they show about log-probs, updates in flight, speed and memory."""

import json
import math
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu import memory
from benchmarks.monitor import Line, complete_lines
from benchmarks.rl.runs import REWARD, flags
from magcli.data import table

GIB = 1 << 30
TAIL = 600
"""Characters of a failed command's output that are shown."""

KILL_SECONDS = 10.0
"""What a command that has taken too long gets to end."""

FULL = {"updates": 6, "group_size": 8, "n_batch": 128, "n_mini": 128, "n_async": 256, "max_tokens": 512}
SMALL = {
    "updates": 4, "group_size": 8, "n_batch": 16, "n_mini": 16, "n_async": 24, "max_tokens": 192, "dtype": "fp32",
    "bf16": "no",
}  # fmt: skip
COMMON = {"diverse_by": "reward", "loss_norm": "token", "language": False, "system": "none",
          "reward": REWARD, "checkpoint_every": 10**6}  # fmt: skip


class Failed(Exception):
    """A command failed; the message is the end of its output."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Where the checks run: device, model and problems, a folder for runs, TRL's interpreter.

    ``ends`` is the monotonic time at which a part has taken too long.
    """

    device: str
    small: bool
    model: str
    problems: Path
    folder: Path
    trl_python: Path
    ends: float = math.inf

    @property
    def seconds_left(self) -> float:
        """Seconds that a command of this part may take."""
        return max(1.0, self.ends - time.monotonic())

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.startswith("cuda")

    @property
    def gpu(self) -> int:
        """The number of the GPU; 0 on a CPU."""
        return int(self.device.partition(":")[2] or 0) if self.on_gpu else 0


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run shows.

    ``median`` and ``tail`` are the largest differences of the log-probs of engine and trainer over all updates, in the
    median and at the 99th percentile. ``in_flight`` is the share of completions that more than one version of the
    weights generated. ``rate`` is trained tokens a second, without the first update. ``peak`` and ``forecast`` are
    bytes; 0 is unknown.
    """

    median: float
    tail: float
    in_flight: float
    rate: float
    peak: int
    forecast: int

    def summary(self) -> str:
        """One line."""
        forecast = f"; the dry run foresees {size(self.forecast)}" if self.forecast else ""
        return (
            f"log-probs differ by {self.median:.1e} in the median, {self.tail:.1e} at p99; {self.in_flight:.0%} of "
            f"completions in flight at an update; {self.rate:,.0f} trained tokens/s; peak {size(self.peak)}{forecast}"
        )


def size(number: int) -> str:
    """Bytes in GiB, or MiB below 1 GiB."""
    return f"{number / GIB:.1f} GiB" if number >= GIB else f"{number / 2**20:.0f} MiB"


def call(arguments: Sequence[str], *, seconds: float) -> "subprocess.CompletedProcess[str]":
    """Run ``magcli`` with arguments.

    Raises:
        Failed: it failed or took too long.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", "magcli", *arguments], capture_output=True, text=True, timeout=_finite(seconds)
        )
    except subprocess.TimeoutExpired as late:
        raise Failed(_too_long(arguments, seconds, late.stderr)) from None
    if done.returncode:
        raise Failed(f"exit code {done.returncode}: {_last(done.stderr or done.stdout)}")
    return done


def _finite(seconds: float) -> float | None:
    """A limit as ``subprocess`` takes it."""
    return seconds if seconds < math.inf else None


def _too_long(arguments: Sequence[str], seconds: float, output: str | bytes | None) -> str:
    said = output.decode(errors="replace") if isinstance(output, bytes) else output or ""
    return f"magcli {arguments[0]} had {seconds:.0f} s, which were not enough: {_last(said)}"


def _last(output: str) -> str:
    """The end of an output in one line."""
    return " ".join(output[-TAIL:].split()) or "no output"


def measure(setup: Setup, name: str, **options: Any) -> Measured:
    """Train for a few updates.

    Raises:
        Failed: the run failed; magcli itself stops one whose log-probs differ too much.
    """
    run = setup.folder / name
    command = _command(setup, run, options)
    forecast = forecast_of(command, setup.seconds_left)
    peak = _run(setup, command, run)
    lines = complete_lines(run / "metrics.jsonl")
    compared = [line for line in lines if line["mismatch_tokens"]]
    if not compared:
        raise Failed("no log-probs of engine and trainer were compared")
    return Measured(
        median=max(float(line["mismatch_p50"]) for line in compared),
        tail=max(float(line["mismatch_p99"]) for line in compared),
        in_flight=in_flight(run),
        rate=rate_of(lines),
        peak=peak,
        forecast=forecast,
    )


def _command(setup: Setup, run: Path, options: Mapping[str, Any]) -> list[str]:
    sizes = SMALL if setup.small else FULL
    own = {"model": setup.model, "run": run, "device": setup.device}
    return ["rl", str(setup.problems), *flags(sizes | COMMON | own | dict(options))]


def _run(setup: Setup, command: Sequence[str], run: Path) -> int:
    """Run a command whose output goes to a file beside the run's folder; returns its peak memory."""
    log, seconds = run.with_suffix(".txt"), setup.seconds_left
    with open(log, "w") as output:
        process = subprocess.Popen([sys.executable, "-m", "magcli", *command], stdout=output, stderr=output)
        watched = memory.of_gpu(setup.gpu) if setup.on_gpu else memory.of_process(process)
        with watched as peak:
            code = _wait(process, seconds)
    if code is None:
        raise Failed(_too_long(command, seconds, log.read_text()))
    if code:
        raise Failed(f"exit code {code}: {_last(log.read_text())}")
    return peak.size


def _wait(process: "subprocess.Popen[bytes]", seconds: float) -> int | None:
    """The exit code of a process; None if it was ended because it took longer."""
    try:
        return process.wait(_finite(seconds))
    except subprocess.TimeoutExpired:
        process.terminate()
    try:
        process.wait(KILL_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return None


def forecast_of(command: Sequence[str], seconds: float) -> int:
    """The bytes of the peak that the dry run of a command foresees.

    Raises:
        Failed: it refuses the run, or says nothing about memory.
    """
    done = call([*command, "--dry-run", "--json"], seconds=seconds)
    events = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    peaks = [event["peak"] for event in events if event.get("event") == "memory"]
    if not peaks:
        raise Failed(f"the dry run has no forecast: {_last(done.stderr)}")
    return int(peaks[0])


def in_flight(run: Path) -> float:
    """The share of a run's completions that several versions of the weights generated."""
    several = total = 0
    for path in sorted((run / "rollouts").iterdir()):
        for batch in table.read(str(path)).rows:
            versions = batch.column("versions").to_pylist()
            several += sum(len(spans) > 1 for spans in versions)
            total += len(versions)
    return several / max(total, 1)


def rate_of(lines: Sequence[Line]) -> float:
    """Trained tokens a second of all updates but the first, which waits for the first completions."""
    later = lines[1:] or lines
    return sum(line["trained_tokens"] for line in later) / sum(line["seconds"] for line in later)
