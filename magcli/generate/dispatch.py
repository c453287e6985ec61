"""Which engine generates the next completion, and how many completions an engine takes.

An engine takes as many completions as it has slots, and a small backlog. So a slot that becomes free is refilled in the
next decode step, without waiting for the process that admits completions.
"""

from collections.abc import Sequence

BACKLOG_SHARE = 16
"""An engine's backlog is one completion for this many slots: more than end in the decode steps of one round trip."""


def capacity(slots: int) -> int:
    """The number of completions that an engine takes: those in its slots and its backlog."""
    return slots + max(1, slots // BACKLOG_SHARE)


def least_busy(loads: Sequence[int], capacity: int) -> int | None:
    """The index of the engine that takes the next completion; None if all are full.

    Args:
        loads: number of completions that each engine has.
        capacity: number of completions that each engine takes.
    """
    # The first of several that have equally many.
    index = min(range(len(loads)), key=loads.__getitem__)
    return index if loads[index] < capacity else None
