"""Admission: which groups start, and which groups the next update trains.

**Slots stay full.** The next group starts as soon as the engines have room for one of its completions. A slot that
becomes free thus takes the next completion at once: first the rest of a group that has started, then the next group.

**Staleness stays bounded.** A group trains at most S updates after it was started, and no group is discarded for being
stale. Two rules ensure this. A group starts only while fewer than S + 1 batches of groups are outstanding, so even if
all of these train before it, S updates are enough. And an update waits for a slow group that would otherwise be left
with more batches before it than it has updates left.

**Data get no older than necessary.** While two batches of generated groups wait for verdicts or for the trainer, no
group starts: where verifiers or the trainer set the pace, more groups would only become older. Where generation and
training take turns on one device, one batch is enough.

A completion takes several updates at the recipe's sizes: with lengths up to 32k tokens, a mean of 9k and two batches
in flight, the longest ones take seven. So S has to be about 8 for full slots; see docs/rl.md.

``magcli.rl.scheduler`` applies these rules to a run, and the package ``magcli_simulate`` to a simulated one.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

WaitsFor = Literal["generation", "verifier"]
"""What the next update waits for: completions, or only verdicts on completions."""


def choose(
    ready: Collection[int], started: Mapping[int, int], now: int, *, batch: int, staleness: int
) -> list[int] | None:
    """The numbers of the groups that train next, ascending; None while the update has to wait.

    Args:
        ready: groups that are generated and graded.
        started: the version of the weights with which each outstanding group started.
        now: the version of the weights before the update.
        batch: groups per update.
        staleness: S, in updates.
    """
    if len(ready) < batch:
        return None
    oldest_first = sorted(ready, key=lambda number: (started[number], number))
    # Ties by number, so that the choice does not depend on which group ended first.
    chosen = set(oldest_first[:batch])
    if len(ready) == len(started):
        # There is no slow group to wait for.
        return sorted(chosen)
    versions_left = sorted(version for number, version in started.items() if number not in chosen)
    for position, version in enumerate(versions_left):
        # Oldest first, `batch` groups at a time, this group trains after so many more updates at the latest.
        updates_before = position // batch
        staleness_then = now + 1 + updates_before - version
        if staleness_then > staleness:
            return None
    return sorted(chosen)


@dataclass
class Admission:
    """The outstanding groups of a run: those that have started and were neither trained nor dropped.

    Args:
        group_size: completions of a group.
        staleness: S, in updates.
        updates: number of updates of the run.
        max_queued: batches of generated groups that may wait while others start: one for the next update, and where
            generation and training overlap one more, so that slots stay full if generation is at times the faster side.
        batch: groups per update; it may change between two updates.
        version: the version of the weights that generate the next token: the number of completed updates.
    """

    group_size: int
    staleness: int
    updates: int
    max_queued: int = 2
    batch: int = 1
    version: int = 0
    started: dict[int, int] = field(default_factory=dict)
    """The version of the weights with which each outstanding group started."""
    generating: dict[int, int] = field(default_factory=dict)
    """The number of completions that have not ended, of each group that is being generated."""
    grading: set[int] = field(default_factory=set)
    """Groups whose completions have all ended, but not all verdicts are there."""
    ready: set[int] = field(default_factory=set)
    """Groups that can train."""
    training: set[int] = field(default_factory=set)
    """The groups of the update that the trainer works on."""
    in_flight: int = 0
    """Completions that are running or wait for a slot; without episodes whose environment has the turn."""

    def may_start(self, capacity: int) -> bool:
        """Whether one more group may start; ``capacity`` is the number of completions that the engines take.

        Groups that could not train before the end of the run are not started.
        """
        if self.in_flight >= capacity:
            return False
        # With S + 1 batches outstanding a new group trains after at most S updates (``choose``).
        batches = min(self.staleness + 1, self.updates - self.version)
        within_bound = len(self.started) < batches * self.batch
        return within_bound and not self._generation_is_ahead()

    def _generation_is_ahead(self) -> bool:
        """Whether enough generated groups wait for verdicts or the trainer, and no update for a slow group."""
        generated = self.ready | self.grading
        if len(generated) < self.max_queued * self.batch:
            return False
        # While the next update waits for a slow group, further groups may start.
        return bool(self.training) or self._choose_from(generated) is not None

    def start(self, number: int) -> None:
        """Start a group: all its completions wait for slots. A group of an interrupted process is started again."""
        self.started[number] = self.version
        self.generating[number] = self.group_size
        self.in_flight += self.group_size

    def completion_ended(self, number: int) -> bool:
        """Count a completion of a group that has ended; returns whether it was the last one."""
        self.in_flight -= 1
        self.generating[number] -= 1
        if self.generating[number]:
            return False
        del self.generating[number]
        self.grading.add(number)
        return True

    def admit(self, number: int) -> None:
        """A graded group can train."""
        self.grading.discard(number)
        self.ready.add(number)

    def drop(self, number: int) -> None:
        """A graded group does not train."""
        self.grading.discard(number)
        del self.started[number]

    @property
    def has_batch(self) -> bool:
        """Whether the outstanding groups are enough for an update, if none of them is dropped."""
        return len(self.started) >= self.batch

    def choose(self) -> list[int] | None:
        """The numbers of the groups that train next, ascending; None while the update has to wait."""
        return self._choose_from(self.ready)

    def _choose_from(self, groups: Collection[int]) -> list[int] | None:
        return choose(groups, self.started, self.version, batch=self.batch, staleness=self.staleness)

    def take(self, numbers: Collection[int]) -> None:
        """Remove the groups of an update from the ready ones; they are outstanding until it is done."""
        self.ready.difference_update(numbers)
        self.training = set(numbers)

    def trained(self, numbers: Collection[int]) -> None:
        """The groups of an update are trained, and the engines have its weights."""
        for number in numbers:
            del self.started[number]
        self.training = set()
        self.version += 1

    def waits_for(self) -> WaitsFor:
        """What the next update waits for: verdicts, if it could begin once the groups being graded were ready."""
        return "generation" if self._choose_from(self.ready | self.grading) is None else "verifier"
