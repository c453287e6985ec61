"""Paired runs: magcli and a peer do the same work in turn, so that other load on the machine slows both.

Each pair gives one ratio, the peer's seconds over magcli's. Both sides report the seconds of the work alone, without
making a model or starting a process.
"""

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

PAIRS = 5
SHORT = os.environ.get("PEERS_SHORT") == "1"
"""Whether comparisons with TRL, and ``simulation-layouts``, are shortened: one pair, fewer tokens or updates."""

Side = Callable[[], float]
"""Does the work once; returns the seconds it took."""


@dataclass(frozen=True, slots=True)
class Result:
    """The ratios of all pairs of a comparison.

    ``within`` is the largest allowed distance of each ratio from 1; ``least`` is a lower bound on their median.
    """

    name: str
    ratios: tuple[float, ...]
    within: float | None = None
    least: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether the ratios are within their bounds."""
        near = self.within is None or all(abs(ratio - 1) <= self.within for ratio in self.ratios)
        return near and median(self.ratios) >= self.least

    def line(self) -> str:
        """``peer NAME ratio=median low=smallest high=largest``."""
        return (
            f"peer {self.name} ratio={median(self.ratios):.2f} low={min(self.ratios):.2f} high={max(self.ratios):.2f}"
        )


def timed(work: Callable[[], object]) -> Side:
    """A side that times a whole call."""

    def side() -> float:
        started = time.perf_counter()
        work()
        return time.perf_counter() - started

    return side


def compare(
    name: str, magcli: Side, peer: Side, *, amount: float, unit: str, pairs: int = PAIRS, least: float = 0.0
) -> Result:
    """Run pairs of both sides, which the caller has warmed up; one run does ``amount`` of ``unit``."""
    seconds = []
    for _ in range(pairs):
        ours, theirs = magcli(), peer()
        seconds.append((ours, theirs))
        print(f"  {name}: magcli {ours:.2f} s, peer {theirs:.2f} s, ratio {theirs / ours:.2f}", flush=True)
    rates = [amount / median(column) for column in zip(*seconds, strict=True)]
    print(f"  {name}: magcli {rates[0]:.4g} {unit}/s, peer {rates[1]:.4g} {unit}/s (medians)", flush=True)
    return Result(name, tuple(theirs / ours for ours, theirs in seconds), least=least)


def machine() -> str:
    """CPU, cores available to this process, PyTorch and its threads, load average."""
    import torch

    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    return (
        f"{_processor()}, {cores} cores, torch {torch.__version__}, {torch.get_num_threads()} threads, load {load:.1f}"
    )


def _processor() -> str:
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.processor()
