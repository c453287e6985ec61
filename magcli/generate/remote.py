"""A generator process as a ``Sampler``: requests and weights go over a socket, rollouts come back."""

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from magcli.errors import EnvironmentFault, MagError, first_line
from magcli.generate.digest import WeightsFault, renamed
from magcli.generate.types import Digests, Rollout, Sampling, Scores, Sequences, Weights
from magcli.generate.weights import shared
from magcli.generate.wire import (
    Abort,
    Beat,
    Ended,
    Failed,
    Load,
    Loaded,
    Ready,
    SampleRequest,
    Scored,
    ScoreRequest,
    Spec,
    Transfer,
    TransferStep,
    frame,
    receive,
)
from magcli.run import orphan
from magcli.run.limits import exhausted

if TYPE_CHECKING:
    from magcli.generate.vllm_transfer import Broadcast, RunStep

START_SECONDS = 600.0
"""How long an engine may take to come up: a big model is read from a slow disk."""
LOAD_SECONDS = 600.0
SILENT_SECONDS = 120.0
"""A process without a sign of life for so long is taken for dead: one decode step never takes that long."""

SECOND_LOOK = 1.0
"""Seconds in which what such a process has sent is surely read."""


class GeneratorDied(EnvironmentFault):
    """A generator process is gone; whatever it worked on has to be asked for again.

    ``is_reported``: its engine said why before it ended, instead of being killed.
    """

    is_reported = False


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
        self._waiting: dict[int, asyncio.Queue[Rollout | Scores | Exception]] = {}
        self._loading: dict[int | TransferStep, asyncio.Future[Digests]] = {}
        self._broadcast = _broadcast_to(spec, self.ask_step) if spec.transfer == "broadcast" else None
        self._coming = 0
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._death: MagError | None = None
        self._listener = asyncio.create_task(self._listen())
        self.assigned = 0
        """Number of samples that the pool has given it and that have not ended."""
        self.version = 0
        self.arrived: Digests = {}
        """The digests of its newest weights, as they arrived."""
        self.seconds = 0.0
        """Time that the engine has worked so far."""
        self.load_seconds = 0.0
        """Time that its sequences have stood still for new weights so far."""

    @classmethod
    async def start(cls, spec: Spec) -> "RemoteSampler":
        """Start a process and wait until its engine is up.

        Raises:
            EnvironmentFault: the engine cannot be opened, or does not come up in time.
        """
        try:
            ours, process = _start_process(spec)
        except OSError as error:
            reason = exhausted(error) or first_line(error)
            raise EnvironmentFault(f"a generator cannot be started: {reason}") from error
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
                assert isinstance(item, Rollout)
                left -= 1
                yield item
        finally:
            del self._waiting[request]
            if left and self.alive:
                self._tell(Abort(request))

    async def score(self, sequences: Sequences) -> Scores:
        """The log-probs of tokens after their contexts, at temperature 1; errors as ``sample``."""
        request = next(self._requests)
        waiting = self._waiting[request] = asyncio.Queue()
        try:
            self._tell(ScoreRequest(request, sequences))
            answer = await waiting.get()
        finally:
            del self._waiting[request]
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, list)
        return answer

    async def load(self, weights: Weights, version: int) -> Digests:
        """Replace the weights between two decode steps; running sequences go on with their KV cache.

        Returns their digests as they arrived.

        Raises:
            WeightsFault: the weights do not fit the engine.
            GeneratorDied: the process is gone or does not take them in time.
        """
        if self._broadcast is None:
            with shared(weights) as file:
                self.arrived = await self._ask(Load(str(file.path), version), version)
        else:
            self._coming = version
            names = await self._send(self._broadcast, weights)
            self.arrived = renamed(self.arrived, names)
        self.version = version
        return self.arrived

    async def ask_step(self, step: TransferStep, info: Any) -> None:
        """Have the generator do one step of a broadcast; with the last, the weights that come are in use."""
        self.arrived = await self._ask(Transfer(step, info, self._coming), step)

    async def _send(self, broadcast: "Broadcast", weights: Weights) -> Mapping[str, str]:
        """Broadcast weights; returns the names in ``weights`` of the names under which they are sent."""
        try:
            return await broadcast.send(weights)
        except MagError:
            raise
        except Exception as error:  # whatever NCCL or gloo says, the generator cannot be trusted to have its weights
            self._die(f"new weights did not reach it: {type(error).__name__}: {error}")
            raise self._dead() from error

    async def _ask(self, message: Load | Transfer, awaited: int | TransferStep) -> Digests:
        done = self._loading[awaited] = asyncio.get_running_loop().create_future()
        try:
            self._tell(message)
            async with asyncio.timeout(LOAD_SECONDS):
                digests: Digests = await done
                return digests
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
            case Scored(request, scores):
                if waiting := self._waiting.get(request):
                    waiting.put_nowait(scores)
            case Beat(seconds):
                self.seconds = seconds
            case Loaded(what, load_seconds, arrived):
                self.load_seconds = load_seconds
                if done := self._loading.get(what):
                    done.set_result(arrived)
            case Ready():
                self._ready.set_result(None)

    def _die(self, reason: str, error: MagError | None = None) -> None:
        """Kill the process, once, and tell everyone who waits."""
        if self._death is not None:
            return
        self.process.kill()
        status = self.process.wait()
        how = reason or (f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}")
        # An engine that cannot start, or that weights do not fit, would fail again in a replacement.
        is_final = error is not None and (not self._ready.done() or isinstance(error, WeightsFault))
        self._death = error if is_final else GeneratorDied(f"generator process {self.process.pid} died: {how}")
        if isinstance(self._death, GeneratorDied):
            self._death.is_reported = error is not None
        self._writer.close()
        if self._broadcast is not None:
            self._broadcast.abort()
        for waiting in self._waiting.values():
            waiting.put_nowait(self._dead())
        futures: list[asyncio.Future[Any]] = [self._ready, *self._loading.values()]
        for future in futures:
            if not future.done():
                future.set_exception(self._dead())
                future.exception()

    def _dead(self) -> MagError:
        assert self._death is not None
        return self._death


def _start_process(spec: Spec) -> "tuple[socket.socket, subprocess.Popen[bytes]]":
    """A new process, and our end of the socket to it."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            orphan.command("magcli.generate.child", theirs.fileno()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env=_environment(spec.threads),
        )
    return ours, process


def _environment(threads: int) -> dict[str, str]:
    return {**os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {})}


def _broadcast_to(spec: Spec, run_step: "RunStep") -> "Broadcast":
    from magcli.generate.vllm_transfer import Broadcast

    return Broadcast(run_step, spec.model.outline, spec.source, spec.torch_dtype)
