"""Which groups may start and which train next: pure functions, the same for a run and for its simulation.

A group is started only while fewer than (S + 1) batches are outstanding (reserved and not yet trained or dropped); the
oldest train first; and an update waits for a slow group that would otherwise train more than S updates after its
start. Staleness is bounded, and nothing is thrown away for being late (recipe, section 3). Only where the next stage of
a run has smaller batches do the groups of the one before train later than that: they are more batches now.
"""

from collections.abc import Collection, Mapping


def may_start(outstanding: int, running: int, *, batch: int, at_once: int, staleness: int, updates_left: int) -> bool:
    """Whether one more group may start.

    Args:
        outstanding: groups reserved and neither trained nor dropped.
        running: groups that are being generated.
        batch: groups that one update takes.
        at_once: groups that may be generated at once.
        staleness: S, in updates.
        updates_left: updates still to come; nothing is started that could not train.
    """
    return running < at_once and outstanding < min(staleness + 1, updates_left) * batch


def choose(
    ready: Collection[int], started: Mapping[int, int], now: int, *, batch: int, staleness: int
) -> list[int] | None:
    """The numbers of the groups that train next, ascending; None while the update has to wait.

    Args:
        ready: groups that are generated and graded.
        started: the version of the weights that each group under way or ready was started with.
        now: the version of the weights that the update begins with.
        batch: groups that one update takes.
        staleness: S, in updates.
    """
    if len(ready) < batch:
        return None
    chosen = set(sorted(ready, key=lambda number: (started[number], number))[:batch])
    left = sorted(version for number, version in started.items() if number not in chosen)
    in_time = all(now + place // batch + 1 - version <= staleness for place, version in enumerate(left))
    nothing_to_wait_for = len(ready) == len(started)
    return sorted(chosen) if in_time or nothing_to_wait_for else None
