"""How groups flow from problems to the trainer: two schedules over the same rollouts.

``asynchronous``: generation goes on while groups wait and across updates, see ``admission`` for what may start and what
trains. A group that ends is written down and frees its place at once, also while an update is made in another thread.
``synchronous``: the deterministic baseline, each batch sampled by one version of the weights.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from magcli.errors import Stopped
from magcli.rl.admission import choose, may_start
from magcli.rl.curriculum import Curriculum
from magcli.rl.ledger import Ledger
from magcli.rl.plan import Leg
from magcli.rl.rollouts import Group, Roller
from magcli.rl.store import Store
from magcli.verify.types import UNGRADED

PATIENCE = 50
"""Batches' worth of dropped groups in a row after which nothing can be learned from these problems."""


class Flow:
    """Groups under way, ready, and dropped since the last update. What an earlier process left is taken up again.

    Args:
        roller: makes the groups.
        curriculum: chooses their problems.
        ledger: what became of them.
        store: those that are finished.
        leg: the sizes of the run's first stage.
        staleness: S, in updates.
        updates: versions of the weights that there will be; nothing is started that could not train.
    """

    def __init__(
        self,
        roller: Roller,
        curriculum: Curriculum,
        ledger: Ledger,
        store: Store,
        leg: Leg,
        *,
        staleness: int,
        updates: int,
    ) -> None:
        self.roller, self.curriculum, self.ledger, self.store = roller, curriculum, ledger, store
        self.staleness, self.updates = staleness, updates
        self.stage, self.leg = 0, leg
        self.running: set[asyncio.Task[Group]] = set()
        self.ready: dict[int, Group] = {}
        self.dropped: list[Group] = []
        self.in_vain = 0
        """Groups dropped since one was last of use."""
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        self._again = self._take_up()

    def _take_up(self) -> list[int]:
        """Groups that wait on disk are ready, or dropped; returns those that were begun and not finished."""
        for number in self.store.numbers():
            group = self.store.load(number)
            if number not in self.ledger.graded:
                self._note(group)
            if group.dropped is not None:
                self.dropped.append(group)
            elif number in self.ledger.outstanding:
                self.ready[number] = group
        return sorted(self.ledger.outstanding - self.ready.keys())

    def enter(self, stage: int, leg: Leg) -> None:
        """Begin the run's stage ``stage``: what starts from here on is of it, what is under way trains as it is."""
        self.stage, self.leg = stage, leg
        self.roller = replace(self.roller, sampling=leg.sampling, rule=leg.rule)

    @property
    def version(self) -> int:
        """The version of the weights that make the next token."""
        return self.roller.policy.version

    async def asynchronous(self) -> list[Group]:
        """The oldest groups that fill a batch, as soon as there are enough and no other would train too late."""
        self._start_admitted()
        while True:
            if self._failure is not None:
                raise self._failure
            if (numbers := self._choose()) is not None:
                return self._take(numbers)
            self._changed.clear()
            await self._changed.wait()

    async def synchronous(self) -> list[Group]:
        """A batch sampled from the present weights alone; dropped groups are made up for in further rounds."""
        again, self._again = self._again, []
        self._settle_all(await asyncio.gather(*map(self._roll_out, map(self._restart, again))))
        while (missing := self.leg.batch_groups - len(self.ready)) > 0:
            numbers = [self._reserve() for _ in range(missing)]
            self._settle_all(await asyncio.gather(*map(self._roll_out, numbers)))
        return self._take(sorted(self.ready))

    def _start_admitted(self) -> None:
        while self._again and len(self.running) < self.leg.async_groups:
            self._start(self._restart(self._again.pop(0)))
        while may_start(
            len(self.ledger.outstanding),
            len(self.running),
            batch=self.leg.batch_groups,
            at_once=self.leg.async_groups,
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

        return asyncio.create_task(self.roller.roll_out(number, self.curriculum.next(number, self.stage), generated))

    def _ended(self, task: asyncio.Task[Group]) -> None:
        """A group has ended, perhaps while an update is made: settle it and start the next."""
        self.running.discard(task)
        if task.cancelled():
            return
        task.exception()  # asked for, or asyncio would tell of it when another's failure has already ended the run
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
        """A finished group is ready to train, or dropped; a dropped one frees its place for one other."""
        group = self.store.keep(group)
        self._note(group)
        if group.dropped is None:
            self.ready[group.number] = group
            self.in_vain = 0
            return
        self.dropped.append(group)
        self.in_vain += 1
        if self.in_vain > PATIENCE * self.leg.batch_groups:
            raise Stopped(f"rl: {self.in_vain} groups in a row taught nothing ({self._reasons()}); {self._advice()}")

    def _note(self, group: Group) -> None:
        """Write down what a group's grading has shown."""
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
            return "none counts as right, but rewards differ within some: --diverse-by reward trains on these"
        return "use other problems"

    def _choose(self) -> list[int] | None:
        under_way = self.ledger.started
        return choose(self.ready, under_way, self.version, batch=self.leg.batch_groups, staleness=self.staleness)

    def _take(self, numbers: Sequence[int]) -> list[Group]:
        """Take groups out for the next update, and say so before it begins."""
        counts = {f"problems_{name}": count for name, count in self.curriculum.active()._asdict().items()}
        self.ledger.note_batch(numbers, "taken", step=self.version + 1, stage=self.stage, **counts)
        self.ledger.sync()
        return [self.ready.pop(number) for number in numbers]

    def take_dropped(self) -> list[Group]:
        """The groups dropped since this was last asked, oldest first."""
        dropped, self.dropped = sorted(self.dropped, key=lambda group: group.number), []
        return dropped

    async def abandon(self, reason: str) -> None:
        """End the run early: what is under way, or ready and too little for a batch, is dropped."""
        await self.stop()
        for number in sorted(self.ledger.outstanding):
            self.ledger.note(number, "dropped", reason=reason, right=0, graded=0)

    async def stop(self) -> None:
        """Abandon the groups under way; the next process makes them again."""
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)
        self.running.clear()
