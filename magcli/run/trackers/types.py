"""What every tracker gets: a run, its metrics, and some of its completions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

PROJECT = "magcli"
"""Default project of runs."""
FINISH_TIMEOUT = 60.0
"""Seconds that a tracker has to receive the rest of a finished run."""


class Sample(NamedTuple):
    """A completion of an update, with its verdict."""

    prompt: str
    completion: str
    reward: float
    reason: str


SAMPLES = "samples"
"""The name of an update's completions in trackers."""


def sample_table(samples: Sequence[Sample], table: Callable[..., Any]) -> dict[str, Any]:
    """The completions of an update as a tracker's table, under their name; empty without any."""
    rows = [list(sample) for sample in samples]
    return {SAMPLES: table(columns=list(Sample._fields), data=rows)} if rows else {}


@dataclass(frozen=True, slots=True)
class Run:
    """The run in a tracker; ``id`` is unique in a project and stays the same when the run resumes."""

    id: str
    folder: Path
    config: Mapping[str, Any]


class Tracker(Protocol):
    """One run in a tracker.

    ``last_step`` is the last update that the tracker had when it was opened (-1: none), ``location`` is where to view
    the run. ``log`` may buffer; ``finish`` blocks until everything is written. ``amend`` adds metrics to the newest
    update, which the tracker has.
    """

    last_step: int
    location: str

    def log(self, step: int, values: Mapping[str, float], samples: Sequence[Sample]) -> None: ...
    def amend(self, step: int, values: Mapping[str, float]) -> None: ...
    def finish(self, *, completed: bool) -> None: ...
