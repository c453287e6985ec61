"""When a run evaluates its weights on held-out problems, and what its lines of metrics have of it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from magcli.run.rundir import HELD_OUT, Line

Measure = Callable[[], Awaitable[Line]]
"""Measures the newest weights of the run's engines: the metrics ``HELD_OUT``."""


@dataclass(frozen=True, slots=True)
class EvaluationTimes:
    """Before the first update, after each ``every``-th (0: never), and after the last: that of ``updates``, or an
    earlier one with which the run ends."""

    every: int = 0
    updates: int = 0

    def is_due(self, step: int, *, ends: bool = False) -> bool:
        """Whether the weights of a step are evaluated; ``ends``: the run ends with it."""
        if self.every == 0:
            return False
        # Step 0, before the first update, is due, too.
        return ends or step % self.every == 0 or step == self.updates

    def is_missing(self, line: Line, *, ends: bool = False) -> bool:
        """Whether an evaluation is due that a line of metrics lacks: the process ended before it was done."""
        return self.is_due(line["step"], ends=ends) and line.get(HELD_OUT[0]) is None


def text(values: Line) -> str:
    """An evaluation as people read it."""
    accuracy, low, high, tokens = (values[name] for name in HELD_OUT)
    interval = ""
    if low is not None and high is not None:
        interval = f" (95 % interval {low:.1%} to {high:.1%})"
    return f"held-out accuracy {accuracy:.1%}{interval}, {tokens:,.0f} tokens per completion"
