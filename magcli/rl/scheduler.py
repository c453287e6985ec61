"""Decide which groups are generated and when they train.

``async``: generation continues while groups wait and during updates. A group starts only while fewer than (S + 1)
batches are outstanding (reserved and neither trained nor dropped); the oldest groups train first; and an update waits
for a slow group that would otherwise train more than S updates after its start. So staleness is bounded without
discarding late groups (recipe, section 3). The exceptions are groups left from a stage with larger batches, which
may train later.

``sync``: the deterministic baseline; each batch is sampled from one version of the weights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from magcli.errors import Stopped
from magcli.rl.outcomes import GroupOutcomes
from magcli.verify.types import UNGRADED

if TYPE_CHECKING:
    from magcli.rl.curriculum import Curriculum
    from magcli.rl.ledger import Ledger
    from magcli.rl.rollouts import Group, GroupSampler
    from magcli.rl.schedule import Schedule, StageSettings
    from magcli.rl.store import RolloutStore


def may_start(outstanding: int, running: int, *, batch: int, at_once: int, staleness: int, updates_left: int) -> bool:
    """Whether one more group may start.

    Args:
        outstanding: number of groups reserved and neither trained nor dropped.
        running: number of groups being generated.
        batch: groups per update.
        at_once: maximum number of groups being generated.
        staleness: S, in updates.
        updates_left: remaining updates; groups that could not train before the end of the run are not started.
    """
    return running < at_once and outstanding < min(staleness + 1, updates_left) * batch


def choose(
    ready: Collection[int], started: Mapping[int, int], now: int, *, batch: int, staleness: int
) -> list[int] | None:
    """The numbers of the groups that train next, ascending; None while the update has to wait.

    Args:
        ready: groups that are generated and graded.
        started: the version of the weights with which each running or ready group started.
        now: the version of the weights before the update.
        batch: groups per update.
        staleness: S, in updates.
    """
    if len(ready) < batch:
        return None
    chosen = set(sorted(ready, key=lambda number: (started[number], number))[:batch])
    left = sorted(version for number, version in started.items() if number not in chosen)
    in_time = all(now + position // batch + 1 - version <= staleness for position, version in enumerate(left))
    none_running = len(ready) == len(started)
    return sorted(chosen) if in_time or none_running else None


class Batch(NamedTuple):
    """The groups of one update, and those dropped since the update before."""

    trained: Sequence[Group]
    dropped: Sequence[Group]


class RolloutScheduler:
    """The groups that are running, ready to train, or dropped since the last update.

    Args:
        sampler: generates and grades groups.
        curriculum: chooses their problems.
        ledger: records their events.
        store: holds finished groups, also those of an interrupted process.
        schedule: the sizes of the run's stages.
        synchronous: sample each batch from one version of the weights.
        staleness: S, in updates.
        updates: number of updates of the run.
    """

    def __init__(
        self,
        sampler: GroupSampler,
        curriculum: Curriculum,
        ledger: Ledger,
        store: RolloutStore,
        schedule: Schedule,
        *,
        synchronous: bool,
        staleness: int,
        updates: int,
    ) -> None:
        self.sampler, self.curriculum, self.ledger, self.store = sampler, curriculum, ledger, store
        self.schedule, self.synchronous, self.staleness, self.updates = schedule, synchronous, staleness, updates
        self.stage = 0
        self.running: set[asyncio.Task[Group]] = set()
        self.ready: dict[int, Group] = {}
        self.dropped: list[Group] = []
        self.outcomes = GroupOutcomes()
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        self._unfinished = self._restore()

    def _restore(self) -> list[int]:
        """Load the groups on disk as ready or dropped; returns those that an interrupted process left unfinished."""
        for number in self.store.numbers():
            group = self.store.load(number)
            if number not in self.ledger.graded:
                self._record_outcome(group)
            if group.dropped is not None:
                self.dropped.append(group)
            elif number in self.ledger.outstanding:
                self.ready[number] = group
        return sorted(self.ledger.outstanding - self.ready.keys())

    @property
    def version(self) -> int:
        """The version of the weights that generate the next token."""
        return self.sampler.engine.version

    @property
    def settings(self) -> StageSettings:
        """The settings of the current stage."""
        return self.schedule.settings[self.stage]

    async def next_batch(self, stage: int) -> Batch:
        """The groups of the next update, which is of this stage, and those dropped since the last one.

        Groups that start from now on have the settings of the stage; running ones keep theirs.
        """
        self.stage = stage
        trained = await (self._collect_synchronous() if self.synchronous else self._collect_asynchronous())
        dropped, self.dropped = sorted(self.dropped, key=lambda group: group.number), []
        return Batch(trained, dropped)

    async def _collect_asynchronous(self) -> list[Group]:
        """The oldest groups of a batch, once enough are ready and no slow group would exceed the staleness bound."""
        self._start_admitted()
        while True:
            if self._failure is not None:
                raise self._failure
            sizes = {"batch": self.settings.batch_groups, "staleness": self.staleness}
            if (numbers := choose(self.ready, self.ledger.started, self.version, **sizes)) is not None:
                return self._take(numbers)
            self._changed.clear()
            await self._changed.wait()

    async def _collect_synchronous(self) -> list[Group]:
        """A batch sampled from the current weights only; dropped groups are replaced in further rounds."""
        unfinished, self._unfinished = self._unfinished, []
        self._settle_all(await asyncio.gather(*map(self._roll_out, map(self._restart, unfinished))))
        while (missing := self.settings.batch_groups - len(self.ready)) > 0:
            numbers = [self._reserve() for _ in range(missing)]
            self._settle_all(await asyncio.gather(*map(self._roll_out, numbers)))
        return self._take(sorted(self.ready))

    def _start_admitted(self) -> None:
        while self._unfinished and len(self.running) < self.settings.async_groups:
            self._start(self._restart(self._unfinished.pop(0)))
        while may_start(
            len(self.ledger.outstanding),
            len(self.running),
            batch=self.settings.batch_groups,
            at_once=self.settings.async_groups,
            staleness=self.staleness,
            updates_left=self.updates - self.version,
        ):
            self._start(self._reserve())

    def _reserve(self) -> int:
        number = self.ledger.next_number
        problem = self.curriculum.problem(number, self.stage)["id"]
        self.ledger.record(number, "reserved", problem=problem, version=self.version, stage=self.stage)
        return number

    def _restart(self, number: int) -> int:
        self.ledger.record(number, "again", version=self.version)
        return number

    def _start(self, number: int) -> None:
        task = self._roll_out(number)
        self.running.add(task)
        task.add_done_callback(self._ended)

    def _roll_out(self, number: int) -> asyncio.Task[Group]:
        def generated(tokens: int) -> None:
            self.ledger.record(number, "generated", tokens=tokens, version=self.version)

        problem = self.curriculum.problem(number, self.stage)
        return asyncio.create_task(self.sampler.roll_out(number, problem, self.settings, generated))

    def _ended(self, task: asyncio.Task[Group]) -> None:
        """Store a group that has ended, perhaps during an update, and start the groups that may start now."""
        self.running.discard(task)
        if task.cancelled():
            return
        task.exception()  # else asyncio would log it if another group's failure has already ended the run
        if self._failure is not None:
            return
        try:
            self._settle(task.result())
            self._start_admitted()
        except Exception as error:
            self._failure = error
        self._changed.set()

    def _settle_all(self, groups: Sequence[Group]) -> None:
        for group in groups:
            self._settle(group)

    def _settle(self, group: Group) -> None:
        """Store a finished group as ready to train or as dropped."""
        group = self.store.add(group)
        self._record_outcome(group)
        self.outcomes.add(group)
        if group.dropped is None:
            self.ready[group.number] = group
        else:
            self.dropped.append(group)
        if reason := self.outcomes.stop_reason(self.settings.batch_groups):
            raise Stopped(f"rl: {reason}")

    def _record_outcome(self, group: Group) -> None:
        graded = 0 if group.dropped in UNGRADED else len(group.rewards)
        correct = sum(reward.correct for reward in group.rewards)
        self.curriculum.observe(self.ledger.problems[group.number], correct, graded)
        if group.dropped is None:
            self.ledger.record(group.number, "admitted", right=correct, graded=graded)
        else:
            self.ledger.record(group.number, "dropped", reason=group.dropped, right=correct, graded=graded)

    def _take(self, numbers: Sequence[int]) -> list[Group]:
        """Remove the groups of the next update from the ready ones, and record the update before it begins."""
        counts = {f"problems_{name}": count for name, count in self.curriculum.counts()._asdict().items()}
        self.ledger.record_batch(numbers, "taken", step=self.version + 1, stage=self.stage, **counts)
        self.ledger.sync()
        return [self.ready.pop(number) for number in numbers]

    async def abandon(self, reason: str) -> None:
        """End the run early and drop the outstanding groups."""
        await self.stop()
        for number in sorted(self.ledger.outstanding):
            self.ledger.record(number, "dropped", reason=reason, right=0, graded=0)

    async def stop(self) -> None:
        """Cancel the running groups; a resumed run generates them again."""
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)
        self.running.clear()
