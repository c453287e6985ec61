"""A machine that gives a program too little of its time is not the program's fault."""

from collections.abc import Callable
from dataclasses import replace

from magcli.verify.sandbox import Limits, Outcome

LONGER = 4
"""How much more wall time a run gets that was ended by the clock while it computed."""
IDLE = 0.02
"""Share of a core below which a program waits rather than computes."""


def patiently(run: Callable[[Limits], Outcome], limits: Limits) -> Outcome:
    """Run within limits; once more with a later clock, but the same CPU time, where the machine was merely busy.

    A program that sleeps or waits uses no CPU time and is not run again.
    """
    outcome = run(limits)
    if outcome.status != "wall-limit" or outcome.cpu < IDLE * limits.wall:
        return outcome
    outcome = run(replace(limits, cpu=LONGER * limits.cpu))
    return replace(outcome, status="cpu-limit") if outcome.cpu > limits.cpu else outcome
