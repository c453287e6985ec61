"""Work in shards, each a task of Ray that runs where there is room, and again elsewhere when its process is lost.

What a shard has finished must be on storage that all nodes share, so that the next attempt goes on from there. What it
says meanwhile, such as how many rows are done, comes through one small actor on the node of the driver.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from magcli.cluster.errors import MemberLost
from magcli.cluster.mailbox import Outbox, end_actor
from magcli.cluster.ray_errors import as_magcli_error
from magcli.cluster.runtime import Cluster
from magcli.cluster.service import enter
from magcli.cluster.types import Demand, Resources, Surroundings
from magcli.errors import EnvironmentFault
from magcli.run.tasks import end_all, run_all

MAX_LOSSES = 3
"""How many processes in a row may be lost with a shard without having said that they got on."""

END = 0
"""In place of the number of a shard: all have ended."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """Which shard a task works on, from 1, and how many processes have been lost with it."""

    shard: int
    losses: int

    def __str__(self) -> str:
        return f"{self.shard}-{self.losses}"


Say = Callable[[Any], None]
"""Sends what a shard says to the driver; it does not wait."""

WorkOnShard = Callable[[Attempt, Say], None]
"""Works on a shard in the process of a task. Errors of magcli reach the driver as they are."""


class Reports:
    """The actor that collects what shards say."""

    def __init__(self) -> None:
        self._outbox = Outbox()

    async def put(self, shard: int, said: Any) -> None:
        """Add what a shard says."""
        self._outbox.put((shard, said))

    async def next_reports(self) -> list[tuple[int, Any]]:
        """What shards have said since the last call, with the number of each; an empty list about once a second."""
        return await self._outbox.next_messages()


async def map_shards(
    cluster: Cluster,
    work: WorkOnShard,
    shards: Sequence[int],
    resources: Resources,
    *,
    surroundings: Surroundings,
    said: Callable[[int, Any], bool],
    ended: Callable[[int], None],
    lost: Callable[[Attempt, MemberLost], None],
) -> None:
    """Work on shards until all are done.

    Args:
        cluster: where.
        work: what to do; Ray sends it to the tasks.
        shards: the numbers of the shards, the first to be started first.
        resources: what each task takes of its node.
        surroundings: the working directory and variables of the tasks.
        said: told the number of a shard and what it says; returns whether that shows that the shard gets on.
        ended: told the number of a shard that is done.
        lost: told of a process that was lost; its shard is tried again.

    Raises:
        EnvironmentFault: no node has room for a task.
        MemberLost: too many processes in a row were lost with one shard.
        MagError: what ``work`` raised in one of the shards, after the others were ended.
    """
    cluster.check_room([Demand("shards", 1, resources)])
    tasks = _Tasks(work, resources, surroundings, said, lost)
    listening = asyncio.create_task(tasks.listen())
    working = asyncio.create_task(run_all(tasks.finish(shard, ended) for shard in shards))
    try:
        # The listener ends first only by an error, after which nobody would know how shards get on.
        await asyncio.wait([listening, working], return_when=asyncio.FIRST_COMPLETED)
        if listening.done():
            await listening  # raises: it ends only after ``tell_end``
        await working
        await tasks.tell_end()
        await listening
    finally:
        await end_all([listening, working])
        tasks.close()


class _Tasks:
    """The tasks of Ray, and the actor that they report to."""

    def __init__(
        self,
        work: WorkOnShard,
        resources: Resources,
        surroundings: Surroundings,
        said: Callable[[int, Any], bool],
        lost: Callable[[Attempt, MemberLost], None],
    ) -> None:
        self._work = work
        self._surroundings = surroundings
        self._said, self._lost = said, lost
        self._losses: dict[int, int] = {}
        actor_class: Any = ray.remote(Reports)
        self._reports = actor_class.options(
            num_cpus=0, max_concurrency=10_000, scheduling_strategy=_on_this_node()
        ).remote()
        # No retry by Ray: it would not tell, and would not know whether a shard gets on.
        self._task: Any = ray.remote(_work_on_shard).options(
            num_cpus=resources.cpus, num_gpus=resources.gpus, max_retries=0, scheduling_strategy="SPREAD"
        )

    async def listen(self) -> None:
        """Hand on what shards say until their end is told."""
        while True:
            try:
                reports = await self._reports.next_reports.remote()
            except Exception as error:
                raise as_magcli_error(error, "the process that collects the progress of shards") from error
            for shard, said in reports:
                if shard == END:
                    return
                if self._said(shard, said):
                    self._losses[shard] = 0

    async def tell_end(self) -> None:
        """Say that all shards are done, after what they have said."""
        await self._reports.put.remote(END, None)

    async def finish(self, shard: int, ended: Callable[[int], None]) -> None:
        """Run the task of a shard, again as long as its process is lost and it got on meanwhile."""
        # Unlike losses in a row these only grow, so each attempt has a name of its own.
        attempts = 0
        while True:
            attempt = Attempt(shard, attempts)
            try:
                await self._run(attempt)
            except MemberLost as error:
                # Losses in a row: what shows that the shard gets on sets them to 0 in ``listen``.
                self._losses[shard] = self._losses.get(shard, 0) + 1
                if self._losses[shard] >= MAX_LOSSES:
                    raise
                attempts += 1
                self._lost(attempt, error)
            else:
                ended(shard)
                return

    async def _run(self, attempt: Attempt) -> None:
        reference = self._task.remote(self._work, attempt, self._surroundings, self._reports)
        try:
            await reference
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):  # its node is gone, or Ray is shut down
                ray.cancel(reference, force=True)
            raise
        except Exception as error:
            raise as_magcli_error(error, f"the process of shard {attempt.shard}") from error

    def close(self) -> None:
        """End the actor."""
        end_actor(self._reports)


def _on_this_node() -> Any:
    """Places an actor on the node of this process."""
    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)


def _work_on_shard(work: WorkOnShard, attempt: Attempt, surroundings: Surroundings, reports: Any) -> None:
    """The task of Ray.

    Raises:
        EnvironmentFault: this node does not have the driver's working directory.
    """
    enter(surroundings)
    # ``enter`` ignores a folder that this machine lacks.
    if os.getcwd() != os.path.realpath(surroundings.folder):
        raise EnvironmentFault(
            f"{socket.gethostname()} has no folder {surroundings.folder}; the working directory must be on storage "
            "that all nodes share"
        )

    sent: list[Any] = []

    def say(said: Any) -> None:
        # Each replaces the one before: calls of one process to an actor arrive in their order.
        sent[:] = [reports.put.remote(attempt.shard, said)]

    work(attempt, say)
    ray.get(sent)  # the last has arrived, and so have all
