"""Several generators in processes of the cluster as one ``Sampler``.

Samples wait in one queue. A process takes the next one as soon as it has room for it (``magcli.generate.dispatch``), so
all of them have the same load, and the samples of a group may come from several processes. A dead process is replaced,
and its unfinished samples are generated again first.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from magcli.cluster.runtime import Cluster
from magcli.cluster.types import Demand, Resources
from magcli.errors import EnvironmentFault, MagError
from magcli.generate import dispatch
from magcli.generate.parallel import engine_resources
from magcli.generate.remote.generator import GeneratorDied, RemoteSampler
from magcli.generate.spec import Spec
from magcli.generate.types import Digests, Rollout, Sampling, Scores, Sequences, Weights
from magcli.generate.weights.digest import check_arrival, digests
from magcli.generate.weights.matching import names_in, shared, sweep
from magcli.generate.weights.packed import pack
from magcli.generate.weights.rank_transfer import RankSource, Sent, plan_for
from magcli.run.tasks import end_all
from magcli.run.units import in_daemon_thread

if TYPE_CHECKING:
    import torch

MAX_DEATHS = 5
"""Deaths without a finished sequence in between after which generators are not replaced any more."""

MAX_FIRST_DEATHS = 2
"""The same before any sequence has finished: an engine that never worked will not work the next time either."""

REPLACEMENT = "a generator that replaces a dead one"
"""Its name in messages."""


@dataclass(eq=False, slots=True)
class PoolRequest:
    """Samples of one prompt that were asked of the pool; ``results`` are its rollouts, or what ends the request."""

    prompt: Sequence[int]
    sampling: Sampling
    seeds: Sequence[int]
    results: asyncio.Queue[Rollout | Exception]


class Fleet:
    """Generator processes that hold the same weights. Open it with ``Fleet.open``.

    A copy of the newest weights stays, in shared memory where they travel as a file, so that a replacement can take
    them while the trainer already changes its own. Of weights that trainer ranks send (``load_from_ranks``) there is no
    copy: the ranks send them to a replacement again, those that they have when they are free.
    """

    def __init__(self, cluster: Cluster, spec: Spec, say: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._spec = spec
        self._say = say
        self._members: list[RemoteSampler] = []
        self._queue: deque[tuple[PoolRequest, int]] = deque()
        """Samples that wait for a generator: their requests and their indices."""
        self._requests: dict[PoolRequest, set[asyncio.Task[None]]] = {}
        """The tasks that generate the samples of each request."""
        self._replacements: dict[RemoteSampler, asyncio.Task[None]] = {}
        """The tasks that replace dead generators."""
        self._concurrency: int | None = None
        # Holds the file of the newest weights until newer ones are there.
        self._shared_memory = ExitStack()
        self._newest: Weights | None = None
        self._ranks: RankSource | None = None
        """The trainer ranks that have sent the newest weights."""
        self.version = 0
        """The version of the weights that all members have."""
        # One replacement or load at a time: both decide which weights a member has.
        self._replacing = asyncio.Lock()
        self._deaths = 0
        self._has_worked = False
        # Totals of members that were replaced; without them the sums would fall.
        self._seconds_of_dead = 0.0
        self._load_seconds_of_dead = 0.0
        self.replaced = 0
        """Generators that died and were replaced."""

    @classmethod
    async def open(
        cls,
        cluster: Cluster,
        spec: Spec,
        size: int,
        *,
        devices: Sequence[str] = (),
        say: Callable[[str], None] = lambda told: None,
        show: Callable[[str], None] = lambda told: None,
    ) -> "Fleet":
        """Start ``size`` generators at once.

        Args:
            cluster: where they run.
            spec: the engine of each.
            size: how many.
            devices: where their engines run, in turn, each rank on a GPU of its own; without any, where ``spec`` says.
            say: told when a generator is replaced, or has started its vLLM.
            show: told several times a second what a generator does that starts vLLM.

        Raises:
            EnvironmentFault: there is no room for them, or one of them does not come up.
        """
        # Before the engines need it: killed runs may have left weights in shared memory.
        sweep()
        fleet = cls(cluster, spec, say)
        cluster.check_room([Demand("generators", size, fleet._resources)])
        specs = [spec.placed(devices, number) if devices else spec for number in range(size)]
        # All at once: an engine takes up to minutes to come up.
        starts = [fleet._start(placed, show) for placed in specs]
        started = await asyncio.gather(*starts, return_exceptions=True)
        failures = []
        for member in started:
            if isinstance(member, BaseException):
                failures.append(member)
            else:
                fleet._members.append(member)
        if failures:
            await fleet.close()
            raise failures[0]
        return fleet

    @property
    def _resources(self) -> Resources:
        """What a generator takes of its node; on this machine its device is named in its ``Spec`` instead."""
        if self._cluster.is_local:
            return Resources()
        return engine_resources(self._spec.device, self._spec.tensor_parallel)

    @property
    def sent_dtype(self) -> "torch.dtype | None":
        """The type to which weights are cast before they are sent; a file has them as they are."""
        return self._spec.torch_dtype if self._spec.transfer == "broadcast" else None

    @property
    def seconds(self) -> float:
        """Time that the engines have worked so far, on average."""
        seconds = self._seconds_of_dead + sum(member.seconds for member in self._members)
        return seconds / len(self._members)

    @property
    def load_seconds(self) -> float:
        """Time that sequences have stood still for new weights so far, on average over the engines."""
        seconds = self._load_seconds_of_dead + sum(member.load_seconds for member in self._members)
        return seconds / len(self._members)

    @property
    def num_slots(self) -> int:
        """Number of sequences that can run at once now, without those of a generator that is being replaced."""
        living = sum(member.alive for member in self._members)
        return living * self._running_per_member

    @property
    def capacity(self) -> int:
        """Number of sequences to have in flight so that no slot stays empty."""
        return self._member_capacity * len(self._members)

    @property
    def _member_capacity(self) -> int:
        """The number of sequences that each generator takes.

        Generators start everything that they have a slot for. So there is a backlog only if all slots may be used.
        """
        running = self._running_per_member
        return running if running < self._spec.slots else dispatch.capacity(running)

    @property
    def _running_per_member(self) -> int:
        """The number of sequences that may run at once in each generator."""
        if self._concurrency is None:
            return self._spec.slots
        # All members together may then run a few more, never fewer.
        rounded_up = -(-self._concurrency // len(self._members))
        return min(self._spec.slots, rounded_up)

    sleeps = False
    """Generators keep their memory."""

    async def sleep(self) -> None:
        """Do nothing."""

    def set_concurrency(self, sequences: int) -> None:
        """Set the maximum number of sequences that run at once; running ones are not interrupted."""
        self._concurrency = sequences
        self._dispatch()

    async def sample(
        self, prompt: Sequence[int], sampling: Sampling, *, seeds: Sequence[int]
    ) -> AsyncGenerator[Rollout, None]:
        """Sample one sequence a seed; those that a dead generator leaves are asked for again elsewhere.

        Raises:
            EnvironmentFault: generators die faster than they finish anything.
        """
        request = PoolRequest(prompt, sampling, seeds, asyncio.Queue())
        self._requests[request] = set()
        self._queue.extend((request, index) for index in range(len(seeds)))
        self._dispatch()
        try:
            for _ in seeds:
                result = await request.results.get()
                if isinstance(result, Exception):
                    raise result
                yield result
        finally:
            await self._abandon(request)

    async def _abandon(self, request: PoolRequest) -> None:
        """Stop generating what is left of a request."""
        if any(waiting is request for waiting, _ in self._queue):
            self._queue = deque(sample for sample in self._queue if sample[0] is not request)
        await end_all(self._requests.pop(request))

    def _dispatch(self) -> None:
        """Give waiting samples to generators that have room."""
        while self._queue and (members := self._candidates()):
            chosen = dispatch.least_busy([member.assigned for member in members], self._member_capacity)
            if chosen is None:
                return
            member = members[chosen]
            request, indices = self._next_samples(self._member_capacity - member.assigned)
            self._start_samples(member, request, indices)

    def _candidates(self) -> Sequence[RemoteSampler]:
        """The living generators; if none lives, the dead ones that are not being replaced yet, and then will be."""
        living = [member for member in self._members if member.alive]
        return living or [member for member in self._members if member not in self._replacements]

    def _next_samples(self, most: int) -> tuple[PoolRequest, list[int]]:
        """Remove the first samples from the queue, all of one request."""
        request = self._queue[0][0]
        indices: list[int] = []
        while self._queue and self._queue[0][0] is request and len(indices) < most:
            indices.append(self._queue.popleft()[1])
        return request, indices

    def _start_samples(self, member: RemoteSampler, request: PoolRequest, indices: Sequence[int]) -> None:
        member.assigned += len(indices)
        task = asyncio.create_task(self._generate(member, request, indices))
        tasks = self._requests[request]
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _generate(self, member: RemoteSampler, request: PoolRequest, indices: Sequence[int]) -> None:
        """Generate samples of a request in one process; what a dead one leaves is generated again first."""
        left = list(indices)
        stream = member.sample(request.prompt, request.sampling, seeds=[request.seeds[index] for index in indices])
        try:
            async with aclosing(stream):
                async for rollout in stream:
                    index = indices[rollout.index]
                    left.remove(index)
                    member.assigned -= 1
                    # A sequence that has ended shows that generators can work.
                    self._deaths = 0
                    self._has_worked = True
                    request.results.put_nowait(replace(rollout, index=index))
                    self._dispatch()
        except GeneratorDied as death:
            # ``extendleft`` reverses what it is given, so these come first, in their order.
            self._queue.extendleft((request, index) for index in reversed(left))
            self._start_replacement(member, death)
        except Exception as error:
            request.results.put_nowait(error)
        finally:
            # Those that ended were subtracted one by one.
            member.assigned -= len(left)
            self._dispatch()

    def _start_replacement(self, member: RemoteSampler, death: GeneratorDied) -> None:
        """Replace a dead generator, once, in a task that does not end with the request that noticed its death."""
        if member in self._members and member not in self._replacements:
            self._replacements[member] = asyncio.create_task(self._replace_or_fail(member, death))

    async def _replace_or_fail(self, member: RemoteSampler, death: GeneratorDied) -> None:
        """Replace a dead generator; if that is impossible, all requests fail."""
        try:
            await self._replace(member, death)
        except Exception as error:
            for request in self._requests:
                request.results.put_nowait(error)
        finally:
            del self._replacements[member]
        self._dispatch()

    async def score(self, sequences: Sequences) -> list[Scores]:
        """The log-probs of given tokens in each member; a member that dies meanwhile is replaced and left out."""
        members = [member for member in self._members if member.alive]
        answers = await asyncio.gather(*(member.score(sequences) for member in members), return_exceptions=True)
        for member, death in _deaths(members, answers).items():
            self._start_replacement(member, death)
        return [answer for answer in answers if not isinstance(answer, BaseException)]

    async def load(self, weights: Weights, version: int) -> list[Digests]:
        """Give all members new weights; running sequences go on with their KV cache.

        Returns the digests of the tensors as each member has received them.
        """
        memory = ExitStack()
        if self.sent_dtype is not None:
            kept: Weights = pack(weights, self.sent_dtype)  # the trainer's own go on changing
        else:
            kept = await asyncio.to_thread(memory.enter_context, shared(weights))
        # A replacement that starts meanwhile would come up with the weights before.
        async with self._replacing:
            old_memory = self._shared_memory
            self._shared_memory = memory
            before = self._newest, self.version
            self._newest, self.version = kept, version
            loads = [member.load(kept, version) for member in self._members]
            ends = await asyncio.gather(*loads, return_exceptions=True)
            # All have loaded the new weights or died, so nobody reads the file of the old ones.
            old_memory.close()
        try:
            deaths = _deaths(self._members, ends)
        except BaseException:
            # The engines refused the weights, so a replacement gets those before.
            self._newest, self.version = before
            raise
        for member, death in deaths.items():
            await self._replace(member, death)
        self._dispatch()
        return [member.arrived for member in self._members]

    async def load_from_ranks(self, ranks: RankSource) -> tuple[Digests, list[Digests]]:
        """Have trainer ranks send their weights to all members; running sequences go on with their KV cache.

        Returns the digests of what was sent, and of what has arrived in each member.

        Raises:
            EnvironmentFault: a trainer rank has died, hangs or failed.
            WeightsFault: the weights do not fit the engines.
        """
        async with self._replacing:
            self._ranks = ranks
            sent, deaths = await self._receive(ranks, self._members)
            self.version = sent.version
        for member, death in deaths.items():
            await self._replace(member, death)
        self._dispatch()
        return sent.digests, [member.arrived for member in self._members]

    async def _receive(
        self, ranks: RankSource, members: Sequence[RemoteSampler]
    ) -> tuple[Sent, dict[RemoteSampler, GeneratorDied]]:
        """Have trainer ranks send their weights to these members; returns what they sent, and which members died."""
        plan = plan_for(self._spec.model.outline, ranks.shapes, self._spec.torch_dtype)
        loop = asyncio.get_running_loop()
        started: asyncio.Future[int] = loop.create_future()
        takers = {member.meeting: member for member in members if member.alive}
        # They wait for ``started``, and then receive while the ranks send.
        takes = [asyncio.create_task(member.take_from_ranks(plan, started)) for member in members]

        def tell_start(version: int) -> None:
            loop.call_soon_threadsafe(started.set_result, version)

        try:
            sent = await in_daemon_thread(partial(ranks.send, plan, list(takers), tell_start))
            for meeting, reason in sent.failures.items():
                # The member dies of it, and so its take ends.
                takers[meeting].lacks_weights(reason)
            ends = await asyncio.gather(*takes, return_exceptions=True)
        except BaseException:
            await end_all(takes)
            raise
        return sent, _deaths(members, ends)

    async def close(self) -> None:
        """End all processes; current callers get an error."""
        self._queue.clear()
        await end_all([*chain.from_iterable(self._requests.values()), *self._replacements.values()])
        for request in self._requests:
            request.results.put_nowait(MagError("the generators have been closed"))
        await asyncio.gather(*(member.close() for member in self._members))
        self._shared_memory.close()

    async def _replace(self, member: RemoteSampler, death: GeneratorDied) -> None:
        """Put a new generator, with the newest weights, in the place of a dead one, once."""
        async with self._replacing:
            # Somebody else has noticed the same death, and replaced it.
            if member not in self._members:
                return
            self._count(death)
            new = await self._start(member.spec)
            # The sums over all engines must not fall.
            self._seconds_of_dead += member.seconds
            self._load_seconds_of_dead += member.load_seconds
            self._members[self._members.index(member)] = new
            self.replaced += 1
        await member.close()

    async def _start(self, spec: Spec, show: Callable[[str], None] = lambda told: None) -> RemoteSampler:
        """A new generator with the newest weights; one that is killed as it comes up is replaced too."""
        while True:
            try:
                new = await RemoteSampler.start(self._cluster, spec, self._resources, say=self._say, show=show)
                return await self._brought_up(new)
            except GeneratorDied as death:
                self._count(death)

    async def _brought_up(self, new: RemoteSampler) -> RemoteSampler:
        try:
            if self._ranks is not None:
                await self._receive_newest(self._ranks, new)
            elif self._newest is not None:
                arrived = await new.load(self._newest, self.version)
                outline = self._spec.model.outline
                # The tensors that the engine has read: of tied parameters one, of an adapter all.
                names = self._newest if self._spec.lora_rank else names_in(self._newest, outline).values()
                sent = await asyncio.to_thread(digests, {name: self._newest[name] for name in names})
                check_arrival(sent, arrived, self.version, REPLACEMENT)
        except BaseException:
            await new.close()
            raise
        return new

    async def _receive_newest(self, ranks: RankSource, new: RemoteSampler) -> None:
        """Have trainer ranks send a new generator their weights, which may be newer than those of the others.

        The ranks are free for it at the latest after an update, which they then send to all.
        """
        sent, deaths = await self._receive(ranks, [new])
        if new in deaths:
            raise deaths[new]
        check_arrival(sent.digests, new.arrived, sent.version, REPLACEMENT)

    def _count(self, death: GeneratorDied) -> None:
        """Say that a generator died, or, when too many did, that it is the last.

        Raises:
            EnvironmentFault: generators die faster than they finish anything.
        """
        self._deaths += 1
        # An engine that explains why it cannot start would not start the next time.
        if death.is_reported and not self._has_worked:
            raise EnvironmentFault(f"{death}; it has not finished any sequence, so it is not started again")
        limit = MAX_DEATHS if self._has_worked else min(MAX_DEATHS, MAX_FIRST_DEATHS)
        if self._deaths > limit:
            raise EnvironmentFault(f"{death}; {limit} before it too, and nothing was finished in between")
        self._say(f"{death}; starting another")


def _deaths(members: Sequence[RemoteSampler], ends: Sequence[object]) -> dict[RemoteSampler, GeneratorDied]:
    """Which members have died, by what each has returned or raised; any other error is raised."""
    deaths = {}
    for member, end in zip(members, ends, strict=True):
        if isinstance(end, GeneratorDied):
            deaths[member] = end
        elif isinstance(end, BaseException):
            raise end
    return deaths
