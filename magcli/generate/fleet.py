"""Engines in generator processes: one process as a ``Sampler``, and several as one.

The least busy process takes the next group; a dead one is replaced.
"""

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from magcli.errors import EnvironmentFault, MagError
from magcli.generate.types import Rollout, Sampling, Weights
from magcli.generate.weights import copied, shared, sweep
from magcli.generate.wire import (
    Abort,
    Beat,
    Ended,
    Failed,
    Load,
    Loaded,
    Ready,
    SampleRequest,
    Spec,
    Transfer,
    TransferStep,
    frame,
    receive,
)
from magcli.run import orphan

if TYPE_CHECKING:
    from magcli.generate.vllm_transfer import Broadcast, RunStep

START_SECONDS = 600.0
"""How long an engine may take to come up: a big model is read from a slow disk."""
LOAD_SECONDS = 600.0
SILENT_SECONDS = 120.0
"""A process without a sign of life for so long is taken for dead: one decode step never takes that long."""

SECOND_LOOK = 1.0
"""Seconds in which what such a process has sent is surely read."""
MAX_DEATHS = 5
"""Deaths without a finished sequence in between after which generators are not replaced any more."""


class GeneratorDied(EnvironmentFault):
    """A generator process is gone; whatever it worked on has to be asked for again."""


class RemoteSampler:
    """A generator process and the requests it works on. Open it with ``RemoteSampler.start``."""

    def __init__(
        self,
        spec: Spec,
        process: "subprocess.Popen[bytes]",
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.spec, self.process, self._reader, self._writer = spec, process, reader, writer
        self._requests = count()
        self._waiting: dict[int, asyncio.Queue[Rollout | Exception]] = {}
        self._loading: dict[int | TransferStep, asyncio.Future[None]] = {}
        self._broadcast = _broadcast_to(spec, self.ask_step) if spec.transfer == "broadcast" else None
        self._coming = 0
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._death: MagError | None = None
        self._listener = asyncio.create_task(self._listen())
        self.version = 0
        self.seconds = 0.0
        """Time that the engine has worked so far."""
        self.num_running = 0

    @classmethod
    async def start(cls, spec: Spec) -> "RemoteSampler":
        """Start a process and wait until its engine is up.

        Raises:
            EnvironmentFault: the engine cannot be opened, or does not come up in time.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                orphan.command("magcli.generate.child", theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=_environment(spec.threads),
            )
        policy = cls(spec, process, *await asyncio.open_connection(sock=ours))
        policy._tell(spec)
        try:
            async with asyncio.timeout(START_SECONDS):
                await policy._ready
        except TimeoutError:
            policy._die(f"its engine did not come up in {START_SECONDS:g} s")
            raise EnvironmentFault(str(policy._dead())) from None
        except BaseException:
            policy._die("not waited for")
            raise
        return policy

    @property
    def alive(self) -> bool:
        """Whether requests can be sent."""
        return self._death is None

    @property
    def num_waiting(self) -> int:
        """Requests that wait for an answer."""
        return len(self._waiting)

    async def sample(
        self, prompt: Sequence[int], sampling: Sampling, *, seeds: Sequence[int]
    ) -> AsyncGenerator[Rollout, None]:
        """Sample one sequence a seed, yielded as each one ends; closing the iterator frees the group's slots.

        Raises:
            GeneratorDied: the process is gone; what was yielded before is good.
            MagError: what the engine says of the request.
        """
        request = next(self._requests)
        waiting = self._waiting[request] = asyncio.Queue()
        left = len(seeds)
        try:
            self._tell(SampleRequest(request, tuple(prompt), sampling, tuple(seeds)))
            while left:
                item = await waiting.get()
                if isinstance(item, Exception):
                    raise item
                left -= 1
                yield item
        finally:
            del self._waiting[request]
            if left and self.alive:
                self._tell(Abort(request))

    async def load(self, weights: Weights, version: int) -> None:
        """Replace the weights between two decode steps; running sequences go on with their KV cache.

        Raises:
            MagError: the weights do not fit a broadcast's engine.
            GeneratorDied: the process is gone or does not take them in time.
        """
        if self._broadcast is None:
            with shared(weights) as file:
                await self._ask(Load(str(file.path), version), version)
        else:
            self._coming = version
            await self._send(self._broadcast, weights)
        self.version = version

    async def ask_step(self, step: TransferStep, info: Any) -> None:
        """Have the generator do one step of a broadcast; with the last, the weights that come are in use."""
        await self._ask(Transfer(step, info, self._coming), step)

    async def _send(self, broadcast: "Broadcast", weights: Weights) -> None:
        try:
            await broadcast.send(weights)
        except MagError:
            raise
        except Exception as error:  # whatever NCCL or gloo says, the generator cannot be trusted to have its weights
            self._die(f"new weights did not reach it: {type(error).__name__}: {error}")
            raise self._dead() from error

    async def _ask(self, message: Load | Transfer, awaited: int | TransferStep) -> None:
        done = self._loading[awaited] = asyncio.get_running_loop().create_future()
        try:
            self._tell(message)
            async with asyncio.timeout(LOAD_SECONDS):
                await done
        except TimeoutError:
            self._die(f"it did not take new weights in {LOAD_SECONDS:g} s")
            raise self._dead() from None
        finally:
            self._loading.pop(awaited, None)

    async def close(self) -> None:
        """End the process."""
        self._die("it has been closed")
        self._listener.cancel()
        await asyncio.gather(self._listener, return_exceptions=True)
        await asyncio.to_thread(self.process.wait)

    def _tell(self, message: object) -> None:
        if self._death is not None:
            raise self._dead()
        self._writer.write(frame(message))

    async def _listen(self) -> None:
        try:
            while self.alive:
                self._take(await self._next())
        except TimeoutError:
            self._die(f"no sign of life in {SILENT_SECONDS:g} s")
        except (EOFError, ConnectionError):
            self._die("")

    async def _next(self) -> Any:
        """The next message. Raises TimeoutError after too long a silence.

        Asked for twice: to an event loop that was kept busy the time is up and the message there at the same moment.
        """
        coming = asyncio.ensure_future(receive(self._reader))
        try:
            for patience in (SILENT_SECONDS if self._ready.done() else None, SECOND_LOOK):
                if (await asyncio.wait({coming}, timeout=patience))[0]:
                    return coming.result()
            raise TimeoutError
        finally:
            coming.cancel()

    def _take(self, message: Any) -> None:
        match message:
            case Ended(request, rollout, seconds):
                self.seconds = seconds
                if waiting := self._waiting.get(request):
                    waiting.put_nowait(rollout)
            case Failed(None, error):
                self._die(str(error), error if isinstance(error, MagError) else None)
            case Failed(int(request), error):
                if waiting := self._waiting.get(request):
                    waiting.put_nowait(error)
            case Beat(seconds, running):
                self.seconds, self.num_running = seconds, running
            case Loaded(what):
                if done := self._loading.get(what):
                    done.set_result(None)
            case Ready():
                self._ready.set_result(None)

    def _die(self, reason: str, error: MagError | None = None) -> None:
        """Kill the process, once, and tell everyone who waits."""
        if self._death is not None:
            return
        self.process.kill()
        status = self.process.wait()
        how = reason or (f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}")
        self._death = (
            error
            if error and not self._ready.done()
            else GeneratorDied(f"generator process {self.process.pid} died: {how}")
        )
        self._writer.close()
        if self._broadcast is not None:
            self._broadcast.abort()
        for waiting in self._waiting.values():
            waiting.put_nowait(self._dead())
        for future in [self._ready, *self._loading.values()]:
            if not future.done():
                future.set_exception(self._dead())
                future.exception()

    def _dead(self) -> MagError:
        assert self._death is not None
        return self._death


def _environment(threads: int) -> dict[str, str]:
    return {**os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {})}


def _broadcast_to(spec: Spec, run_step: "RunStep") -> "Broadcast":
    from magcli.generate.vllm_transfer import Broadcast

    return Broadcast(run_step, spec.model.outline, spec.source, spec.torch_dtype)


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
            kept: Weights = copied(weights, dtype=self._spec.torch_dtype)
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
