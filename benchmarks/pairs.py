"""Two programs doing the same work, one after the other, several times: A B A B, and what the pairs say.

Neighbours on a shared machine slow both sides of a pair, so each pair gives one ratio, peer's seconds over magcli's,
and a comparison is the median of its ratios with the smallest and largest beside it. A side reports its own seconds,
so what does not belong to the work (making a model, starting a process) is left out.
"""

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

PAIRS = 5

Side = Callable[[], float]
"""Does the work once; returns the seconds it took."""


@dataclass(frozen=True, slots=True)
class Result:
    """Ratios (peer's seconds over magcli's) of all pairs of a comparison.

    ``within`` is how far from 1 each of them may be, where they are predicted over measured; ``least`` is what their
    median must reach.
    """

    name: str
    ratios: tuple[float, ...]
    within: float | None = None
    least: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether no ratio is farther from 1 than it may be, and their median is large enough."""
        near = self.within is None or all(abs(ratio - 1) <= self.within for ratio in self.ratios)
        return near and median(self.ratios) >= self.least

    def line(self) -> str:
        """``peer NAME ratio=median low=smallest high=largest``; above 1 magcli is faster."""
        return (
            f"peer {self.name} ratio={median(self.ratios):.2f} low={min(self.ratios):.2f} high={max(self.ratios):.2f}"
        )


def timed(work: Callable[[], object]) -> Side:
    """A side whose seconds are those of a whole call."""

    def side() -> float:
        begun = time.perf_counter()
        work()
        return time.perf_counter() - begun

    return side


def compare(name: str, magcli: Side, peer: Side, *, amount: float, unit: str, pairs: int = PAIRS) -> Result:
    """Run ``pairs`` pairs after the caller's warm-up; ``amount`` of ``unit`` is the useful work of one run."""
    seconds = []
    for _ in range(pairs):
        ours, theirs = magcli(), peer()
        seconds.append((ours, theirs))
        print(f"  {name}: magcli {ours:.2f} s, peer {theirs:.2f} s, ratio {theirs / ours:.2f}", flush=True)
    rates = [amount / median(column) for column in zip(*seconds, strict=True)]
    print(f"  {name}: magcli {rates[0]:.4g} {unit}/s, peer {rates[1]:.4g} {unit}/s (medians)", flush=True)
    return Result(name, tuple(theirs / ours for ours, theirs in seconds))


def machine() -> str:
    """CPU, cores this process may use, torch and its threads, and how busy the machine is."""
    import torch

    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    return (
        f"{_processor()}, {cores} cores, torch {torch.__version__}, {torch.get_num_threads()} threads, load {load:.1f}"
    )


def report(*comparisons: Callable[[], Result]) -> None:
    """Run a module's comparisons by themselves: the machine, every pair, and one line each at the end."""
    print(machine(), flush=True)
    for result in [comparison() for comparison in comparisons]:
        print(result.line())


def _processor() -> str:
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.processor()
