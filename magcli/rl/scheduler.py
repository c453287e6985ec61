"""Which groups are generated and when they train.

``async``: generation continues while groups wait and during updates. A group is started only while fewer than (S + 1)
batches are outstanding (reserved and neither trained nor dropped); the oldest groups train first; and an update waits
for a slow group that would otherwise train more than S updates after its start. So staleness is bounded, and no group
is discarded for being late (recipe, section 3). Only if a stage of the run has smaller batches than the one before do
groups left over from that stage train later.

``sync``: the deterministic baseline, each batch sampled from one version of the weights.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from magcli.errors import Stopped
from magcli.verify.types import UNGRADED

if TYPE_CHECKING:
    from magcli.rl.curriculum import Curriculum
    from magcli.rl.ledger import Ledger
    from magcli.rl.rollouts import Group, GroupSampler
    from magcli.rl.schedule import Schedule, StageSettings
    from magcli.rl.store import RolloutStore

MAX_REJECTED_BATCHES = 50
"""Batches' worth of consecutive dropped groups after which nothing can be learned from these problems."""


def may_start(outstanding: int, running: int, *, batch: int, at_once: int, staleness: int, updates_left: int) -> bool:
    """Whether one more group may start.

    Args:
        outstanding: groups reserved and neither trained nor dropped.
        running: groups that are being generated.
        batch: groups that one update takes.
        at_once: groups that may be generated concurrently.
        staleness: S, in updates.
        updates_left: updates still to come; no group is started that could not train.
    """
    return running < at_once and outstanding < min(staleness + 1, updates_left) * batch


def choose(
    ready: Collection[int], started: Mapping[int, int], now: int, *, batch: int, staleness: int
) -> list[int] | None:
    """The numbers of the groups that train next, ascending; None while the update has to wait.

    Args:
        ready: groups that are generated and graded.
        started: the version of the weights that each running or ready group was started with.
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


class Batch(NamedTuple):
    """What was sampled for one update: the groups that train, and those that were dropped before it."""

    trained: Sequence[Group]
    dropped: Sequence[Group]


class RolloutScheduler:
    """The groups that are running, ready to train, or dropped since the last update.

    Args:
        sampler: generates and grades groups.
        curriculum: chooses their problems.
        ledger: records what happens to them.
        store: holds those that are finished; what an earlier process left there is used again.
        schedule: the sizes of the run's stages.
        synchronous: sample each batch from one version of the weights.
        staleness: S, in updates.
        updates: versions of the weights that there will be; no group is started that could not train.
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
        self.rejected_streak = 0
        """Consecutive groups dropped since the last one that could train."""
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        self._unfinished = self._restore()

    def _restore(self) -> list[int]:
        """Load the groups on disk as ready or dropped; returns those that an earlier process left unfinished."""
        for number in self.store.numbers():
            group = self.store.load(number)
            if number not in self.ledger.graded:
                self._note(group)
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
        """Those of the present stage."""
        return self.schedule.settings[self.stage]

    async def next_batch(self, stage: int) -> Batch:
        """The groups of the next update, of this stage of the run, and those dropped since the last one.

        Groups that start from here on are of the stage; those that are running train as they are.
        """
        self.stage = stage
        trained = await (self._collect_synchronous() if self.synchronous else self._collect_asynchronous())
        dropped, self.dropped = sorted(self.dropped, key=lambda group: group.number), []
        return Batch(trained, dropped)

    async def _collect_asynchronous(self) -> list[Group]:
        """The oldest groups that fill a batch, as soon as there are enough and no other would train too late."""
        self._start_admitted()
        while True:
            if self._failure is not None:
                raise self._failure
            if (numbers := self._choose()) is not None:
                return self._take(numbers)
            self._changed.clear()
            await self._changed.wait()

    async def _collect_synchronous(self) -> list[Group]:
        """A batch sampled from the present weights alone; dropped groups are replaced in further rounds."""
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
        problem = self.curriculum.next(number, self.stage)["id"]
        self.ledger.note(number, "reserved", problem=problem, version=self.version, stage=self.stage)
        return number

    def _restart(self, number: int) -> int:
        self.ledger.note(number, "again", version=self.version)
        return number

    def _start(self, number: int) -> None:
        task = self._roll_out(number)
        self.running.add(task)
        task.add_done_callback(self._ended)

    def _roll_out(self, number: int) -> asyncio.Task[Group]:
        def generated(tokens: int) -> None:
            self.ledger.note(number, "generated", tokens=tokens, version=self.version)

        problem = self.curriculum.next(number, self.stage)
        return asyncio.create_task(self.sampler.roll_out(number, problem, self.settings, generated))

    def _ended(self, task: asyncio.Task[Group]) -> None:
        """A group has ended, perhaps during an update: settle it and start the next."""
        self.running.discard(task)
        if task.cancelled():
            return
        task.exception()  # retrieved, or asyncio would log it when another group's failure has already ended the run
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
        """A finished group is ready to train, or dropped, which makes room for another."""
        group = self.store.add(group)
        self._note(group)
        if group.dropped is None:
            self.ready[group.number] = group
            self.rejected_streak = 0
            return
        self.dropped.append(group)
        self.rejected_streak += 1
        if self.rejected_streak > MAX_REJECTED_BATCHES * self.settings.batch_groups:
            streak = f"{self.rejected_streak} consecutive groups had zero advantage ({self._reasons()})"
            raise Stopped(f"rl: {streak}; {self._advice()}")

    def _note(self, group: Group) -> None:
        """Record the outcome of a group's grading."""
        graded = 0 if group.dropped in UNGRADED else len(group.rewards)
        found = {"right": sum(reward.correct for reward in group.rewards), "graded": graded}
        self.curriculum.observe(self.ledger.problems[group.number], **found)
        if group.dropped is None:
            self.ledger.note(group.number, "admitted", **found)
        else:
            self.ledger.note(group.number, "dropped", reason=group.dropped, **found)

    def _reasons(self) -> str:
        counts = Counter(group.dropped for group in self.dropped)
        return ", ".join(f"{reason} {count}" for reason, count in counts.most_common())

    def _advice(self) -> str:
        if any(len({reward.correctness for reward in group.rewards}) > 1 for group in self.dropped):
            return "no completion counts as correct, but rewards differ within groups: try --diverse-by reward"
        return "use other problems"

    def _choose(self) -> list[int] | None:
        sizes = {"batch": self.settings.batch_groups, "staleness": self.staleness}
        return choose(self.ready, self.ledger.started, self.version, **sizes)

    def _take(self, numbers: Sequence[int]) -> list[Group]:
        """Remove groups for the next update, and record it before it begins."""
        counts = {f"problems_{name}": count for name, count in self.curriculum.active()._asdict().items()}
        self.ledger.note_batch(numbers, "taken", step=self.version + 1, stage=self.stage, **counts)
        self.ledger.sync()
        return [self.ready.pop(number) for number in numbers]

    async def abandon(self, reason: str) -> None:
        """End the run early: groups that are running, or ready and too few for a batch, are dropped."""
        await self.stop()
        for number in sorted(self.ledger.outstanding):
            self.ledger.note(number, "dropped", reason=reason, right=0, graded=0)

    async def stop(self) -> None:
        """Cancel the running groups; the next process generates them again."""
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)
        self.running.clear()
