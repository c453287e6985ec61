"""How groups flow from problems to the trainer: two schedules over the same roll-outs.

``asynchronous``: generation goes on while groups wait and across updates; a group is started only while fewer than
(S + 1) batches are outstanding, so staleness is bounded by admission and nothing is thrown away for being late. The
oldest groups train first. ``synchronous``: the deterministic baseline, each batch sampled by one version of the
weights.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from magcli.errors import DataError, Stopped
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
        next_number: int = 0,
        again: Sequence[int] = (),
    ) -> None:
        self.roller, self.problems, self.ledger = roller, problems, ledger
        self.batch_groups, self.async_groups, self.staleness = batch_groups, async_groups, staleness
        self.next_number = next_number
        self.again = sorted(again)
        self.running: set[asyncio.Task[Group]] = set()
        self.ready: dict[int, Group] = {}
        self.dropped: list[Group] = []

    async def asynchronous(self) -> list[Group]:
        """The oldest groups that fill a batch, as soon as there are enough."""
        while len(self.ready) < self.batch_groups:
            self._start_admitted()
            done, self.running = await asyncio.wait(self.running, return_when=asyncio.FIRST_COMPLETED)
            for group in sorted((task.result() for task in done), key=lambda group: group.number):
                self._settle(group)
        return self._take()

    def _start_admitted(self) -> None:
        limit = (self.staleness + 1) * self.batch_groups
        while len(self.running) < self.async_groups and (self.again or len(self.ledger.outstanding) < limit):
            self.running.add(asyncio.create_task(self._roll_out(self._reserve())))

    async def synchronous(self) -> list[Group]:
        """A batch sampled from the present weights alone; dropped groups are made up for in further rounds."""
        while (missing := self.batch_groups - len(self.ready)) > 0:
            numbers = [self._reserve() for _ in range(missing)]
            for group in await asyncio.gather(*(self._roll_out(number) for number in numbers)):
                self._settle(group)
        return self._take()

    def _reserve(self) -> int:
        if self.again:
            return self.again.pop(0)
        number, self.next_number = self.next_number, self.next_number + 1
        self.ledger.note(number, "reserved", problem=self.problems[number]["id"], version=self.roller.policy.version)
        return number

    async def _roll_out(self, number: int) -> Group:
        problem = self.problems[number]
        try:
            return await self.roller.roll_out(number, problem)
        except DataError:
            return Group(number, problem, (), (), (), (), "prompt-too-long")

    def _settle(self, group: Group) -> None:
        """A finished group is ready to train, or dropped; a dropped one frees its place for one other."""
        self.ledger.note(group.number, "generated", tokens=group.num_tokens, version=self.roller.policy.version)
        if group.dropped is None:
            self.ledger.note(group.number, "admitted")
            self.ready[group.number] = group
            return
        self.ledger.note(group.number, "dropped", reason=group.dropped)
        self.dropped.append(group)
        if len(self.dropped) > PATIENCE * self.batch_groups:
            reasons = ", ".join(f"{why} {n}" for why, n in Counter(g.dropped for g in self.dropped).most_common())
            raise Stopped(f"rl: {len(self.dropped)} groups in a row taught nothing ({reasons}); use other problems")

    def _take(self) -> list[Group]:
        numbers = sorted(self.ready)[: self.batch_groups]
        return [self.ready.pop(number) for number in numbers]

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

    def close(self) -> None:
        """The run is over: what is still outstanding will not train."""
        for number in sorted(self.ledger.outstanding):
            self.ledger.note(number, "dropped", reason="run-ended")
        self.ledger.sync()
