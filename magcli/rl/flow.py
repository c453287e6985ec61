"""How groups flow from problems to the trainer: two schedules over the same roll-outs.

``asynchronous``: generation goes on while groups wait and across updates. A group is started only while fewer than
(S + 1) batches are outstanding, the oldest train first, and an update waits for a slow group that would otherwise
train more than S updates after its start: staleness is bounded, and nothing is thrown away for being late.
``synchronous``: the deterministic baseline, each batch sampled by one version of the weights.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from magcli.errors import Stopped
from magcli.rl.ledger import Ledger
from magcli.rl.rollouts import Group, Roller

PATIENCE = 50
"""Batches' worth of dropped groups in a row after which nothing can be learned from these problems."""


class Problems:
    """The problems in the order in which groups are made of them: each epoch all of them, shuffled by the seed."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], seed: int) -> None:
        self.rows, self.seed = rows, seed
        self._epoch, self._order = -1, np.arange(0)

    def __getitem__(self, number: int) -> Mapping[str, Any]:
        epoch, place = divmod(number, len(self.rows))
        if epoch != self._epoch:
            self._epoch, self._order = epoch, np.random.default_rng([self.seed, epoch]).permutation(len(self.rows))
        return self.rows[int(self._order[place])]


class Flow:
    """Groups under way, ready, and dropped since the last update.

    Args:
        batch_groups: groups that one update takes.
        async_groups: groups that are generated at once.
        staleness: S, in updates.
        updates: versions of the weights that there will be; nothing is started that could not train.
        next_number: the first group that was never reserved.
        again: groups that were reserved before a checkpoint and not ended; they are made again.
    """

    def __init__(
        self,
        roller: Roller,
        problems: Problems,
        ledger: Ledger,
        *,
        batch_groups: int,
        async_groups: int,
        staleness: int,
        updates: int,
        next_number: int = 0,
        again: Sequence[int] = (),
    ) -> None:
        self.roller, self.problems, self.ledger = roller, problems, ledger
        self.batch_groups, self.async_groups = batch_groups, async_groups
        self.staleness, self.updates = staleness, updates
        self.next_number = next_number
        self.again = sorted(again)
        self.running: set[asyncio.Task[Group]] = set()
        self.started: dict[int, int] = {}
        """The version of the weights that groups under way or ready were started with."""
        self.ready: dict[int, Group] = {}
        self.dropped: list[Group] = []
        self.in_vain = 0
        """Groups dropped since one was last of use."""

    async def asynchronous(self) -> list[Group]:
        """The oldest groups that fill a batch, as soon as there are enough and no other would train too late."""
        while len(self.ready) < self.batch_groups or not self._in_time():
            self._start_admitted()
            done, self.running = await asyncio.wait(self.running, return_when=asyncio.FIRST_COMPLETED)
            for group in sorted((task.result() for task in done), key=lambda group: group.number):
                self._settle(group)
        return self._take()

    async def synchronous(self) -> list[Group]:
        """A batch sampled from the present weights alone; dropped groups are made up for in further rounds."""
        while (missing := self.batch_groups - len(self.ready)) > 0:
            for group in await asyncio.gather(*(self._start() for _ in range(missing))):
                self._settle(group)
        return self._take()

    def _start_admitted(self) -> None:
        batches = min(self.staleness + 1, self.updates - self.roller.policy.version)
        limit = batches * self.batch_groups
        while len(self.running) < self.async_groups and (self.again or len(self.ledger.outstanding) < limit):
            self.running.add(self._start())

    def _start(self) -> asyncio.Task[Group]:
        """Begin the next group: one to be made again, or a new one of the next problem."""
        if self.again:
            number = self.again.pop(0)
        else:
            number, self.next_number = self.next_number, self.next_number + 1
            problem = self.problems[number]["id"]
            self.ledger.note(number, "reserved", problem=problem, version=self.roller.policy.version)
        self.started[number] = self.roller.policy.version
        return asyncio.create_task(self.roller.roll_out(number, self.problems[number]))

    def _in_time(self) -> bool:
        """Whether the groups that an update would leave can still train within S updates of their start.

        They will go oldest first, a batch at a time, so the one at ``place`` needs ``place // batch + 1`` updates more.
        """
        chosen = set(self._oldest())
        left = sorted(version for number, version in self.started.items() if number not in chosen)
        now = self.roller.policy.version
        return all(
            now + place // self.batch_groups + 1 - version <= self.staleness for place, version in enumerate(left)
        )

    def _oldest(self) -> list[int]:
        return sorted(self.ready, key=lambda number: (self.started[number], number))[: self.batch_groups]

    def _settle(self, group: Group) -> None:
        """A finished group is ready to train, or dropped; a dropped one frees its place for one other."""
        self.ledger.note(group.number, "generated", tokens=group.num_tokens, version=self.roller.policy.version)
        if group.dropped is None:
            self.ledger.note(group.number, "admitted")
            self.ready[group.number] = group
            self.in_vain = 0
            return
        self.ledger.note(group.number, "dropped", reason=group.dropped)
        del self.started[group.number]
        self.dropped.append(group)
        self.in_vain += 1
        if self.in_vain > PATIENCE * self.batch_groups:
            raise Stopped(f"rl: {self.in_vain} groups in a row taught nothing ({self._reasons()}); use other problems")

    def _reasons(self) -> str:
        counts = Counter(group.dropped for group in self.dropped)
        return ", ".join(f"{reason} {count}" for reason, count in counts.most_common())

    def _take(self) -> list[Group]:
        numbers = self._oldest()
        for number in numbers:
            del self.started[number]
        return [self.ready.pop(number) for number in sorted(numbers)]

    def take_dropped(self) -> list[Group]:
        """The groups dropped since this was last asked, oldest first."""
        dropped, self.dropped = sorted(self.dropped, key=lambda group: group.number), []
        return dropped

    async def stop(self) -> None:
        """Abandon the groups under way; a checkpoint has them made again."""
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)
        self.running.clear()
