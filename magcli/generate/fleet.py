"""Several generator processes as one ``Sampler``: the least busy one takes the next group, a dead one is replaced."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import replace

from magcli.errors import EnvironmentFault
from magcli.generate.remote import GeneratorDied, RemoteSampler
from magcli.generate.types import Rollout, Sampling, Weights
from magcli.generate.weights import copied, shared, sweep
from magcli.generate.wire import Spec
from magcli.model.compute import dtype_of

MAX_DEATHS = 5
"""Deaths without a finished sequence in between after which generators are not replaced any more."""


class Fleet:
    """Generator processes that hold the same weights. Open it with ``Fleet.open``.

    A copy of the newest weights stays, in shared memory where they travel as a file, so that a replacement can take
    them while the trainer already changes its own.
    """

    def __init__(self, spec: Spec, say: Callable[[str], None]) -> None:
        self._spec, self._say = spec, say
        self._members: list[RemoteSampler] = []
        self._held = ExitStack()
        self._newest: Weights | None = None
        self._version = 0
        self._replacing = asyncio.Lock()
        self._deaths = 0
        self._seconds_of_dead = 0.0
        self.replaced = 0
        """Generators that died and were replaced."""

    @classmethod
    async def open(
        cls,
        spec: Spec,
        size: int,
        *,
        devices: Sequence[str] = (),
        say: Callable[[str], None] = lambda told: None,
    ) -> "Fleet":
        """Start ``size`` generators at once.

        Args:
            spec: the engine of each.
            size: how many.
            devices: where their engines run, in turn; without any, all where ``spec`` says.
            say: told when a generator is replaced.

        Raises:
            EnvironmentFault: one of them does not come up.
        """
        sweep()
        fleet = cls(spec, say)
        places = [devices[number % len(devices)] if devices else spec.device for number in range(size)]
        starts = [fleet._start(replace(spec, device=place)) for place in places]
        done = await asyncio.gather(*starts, return_exceptions=True)
        fleet._members = [member for member in done if isinstance(member, RemoteSampler)]
        if failures := [failure for failure in done if isinstance(failure, BaseException)]:
            await fleet.close()
            raise failures[0]
        return fleet

    @property
    def version(self) -> int:
        """The version of the weights that all members have."""
        return self._version

    @property
    def seconds(self) -> float:
        """Time that the engines have worked so far, on average."""
        return (self._seconds_of_dead + sum(member.seconds for member in self._members)) / len(self._members)

    @property
    def num_running(self) -> int:
        """Sequences in slots."""
        return sum(member.num_running for member in self._members)

    async def sample(
        self, prompt: Sequence[int], sampling: Sampling, *, seeds: Sequence[int]
    ) -> AsyncGenerator[Rollout, None]:
        """Sample one sequence a seed; those that a dead generator leaves are asked for again elsewhere.

        Raises:
            EnvironmentFault: generators die faster than they finish anything.
        """
        left = dict(enumerate(seeds))
        while left:
            member, order = self._least_busy(), list(left)
            stream = member.sample(prompt, sampling, seeds=[left[index] for index in order])
            try:
                async with aclosing(stream):
                    async for rollout in stream:
                        index = order[rollout.index]
                        del left[index]
                        self._deaths = 0
                        yield replace(rollout, index=index)
            except GeneratorDied as death:
                await self._replace(member, death)

    def _least_busy(self) -> RemoteSampler:
        """The living member with the fewest requests; a dead one, which is then replaced, where none lives."""
        living = [member for member in self._members if member.alive]
        return min(living or self._members, key=lambda member: member.num_waiting)

    async def load(self, weights: Weights, version: int) -> None:
        """Give all members new weights; running sequences go on with their KV cache."""
        held = ExitStack()
        if self._spec.transfer == "broadcast":
            kept: Weights = copied(weights, dtype=dtype_of(self._spec.dtype, self._spec.model, self._spec.device))
        else:
            kept = await asyncio.to_thread(held.enter_context, shared(weights))
        async with self._replacing:
            self._held, old = held, self._held
            before = self._newest, self._version
            self._newest, self._version = kept, version
            loads = [member.load(kept, version) for member in self._members]
            ends = await asyncio.gather(*loads, return_exceptions=True)
            old.close()
        for member, end in zip(list(self._members), ends, strict=True):
            if isinstance(end, GeneratorDied):
                await self._replace(member, end)
            elif end is not None:
                self._newest, self._version = before
                raise end

    async def close(self) -> None:
        """End all processes."""
        await asyncio.gather(*(member.close() for member in self._members))
        self._held.close()

    async def _replace(self, member: RemoteSampler, death: GeneratorDied) -> None:
        """Put a new generator, with the newest weights, in the place of a dead one, once."""
        async with self._replacing:
            if member not in self._members:
                return
            self._count(death)
            new = await self._start(member.spec)
            self._seconds_of_dead += member.seconds
            self._members[self._members.index(member)] = new
            self.replaced += 1
        await member.close()

    async def _start(self, spec: Spec) -> RemoteSampler:
        """A new generator with the newest weights; one that is killed as it comes up is replaced too."""
        while True:
            try:
                new = await RemoteSampler.start(spec)
                return await self._brought_up(new)
            except GeneratorDied as death:
                self._count(death)

    async def _brought_up(self, new: RemoteSampler) -> RemoteSampler:
        try:
            if self._newest is not None:
                await new.load(self._newest, self._version)
        except BaseException:
            await new.close()
            raise
        return new

    def _count(self, death: GeneratorDied) -> None:
        """Say that a generator died, or, when too many did, that it is the last.

        Raises:
            EnvironmentFault: generators die faster than they finish anything.
        """
        self._deaths += 1
        if self._deaths > MAX_DEATHS:
            raise EnvironmentFault(f"{death}; {MAX_DEATHS} before it too, and nothing was finished in between")
        self._say(f"{death}; starting another")
