"""A generator: an engine in a process of the cluster, which answers messages and takes new weights between two steps.

What it is sent and what it answers is in ``magcli.generate.remote.wire``; ``magcli.generate.remote.generator`` is the
other end.
"""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

import torch

from magcli.cluster.mailbox import Outbox
from magcli.console import Console, Waiting
from magcli.errors import EnvironmentFault, MagError
from magcli.generate.open import open_policy
from magcli.generate.remote.wire import (
    Abort,
    Beat,
    Ended,
    Failed,
    Load,
    Loaded,
    SampleRequest,
    Scored,
    ScoreRequest,
    Starting,
    Transfer,
)
from magcli.generate.spec import Spec
from magcli.generate.types import LocalPolicy, TransferStep
from magcli.generate.weights.matching import WeightFile
from magcli.plan.engines import policy_engine

BEAT_SECONDS = 1.0


class EngineEndpoint:
    """An engine behind a mailbox, and its running requests."""

    def __init__(self, policy: LocalPolicy, outbox: Outbox) -> None:
        self._policy, self._outbox = policy, outbox
        self._requests: dict[int, asyncio.Task[None]] = {}
        # Kept, since an event loop holds its tasks only weakly.
        self._beat = asyncio.create_task(self._send_beats())

    async def handle(self, message: Any) -> None:
        """Start a request, end one, or take new weights."""
        match message:
            case SampleRequest(request):
                self._requests[request] = asyncio.create_task(self._sample(message))
            case ScoreRequest(request):
                self._requests[request] = asyncio.create_task(self._score(message))
            case Abort(request):
                if request in self._requests:
                    self._requests[request].cancel()
            case Load() | Transfer():
                await self._load(message)
            case _:
                raise TypeError(f"an engine does not know the message {message!r}")

    async def _sample(self, message: SampleRequest) -> None:
        with self._answering(message.request):
            stream = self._policy.sample(message.prompt, message.sampling, seeds=message.seeds)
            async with aclosing(stream):
                async for rollout in stream:
                    self._outbox.put(Ended(message.request, rollout, self._policy.seconds))

    async def _score(self, message: ScoreRequest) -> None:
        with self._answering(message.request):
            (scores,) = await self._policy.score(message.sequences)
            self._outbox.put(Scored(message.request, scores))

    @contextmanager
    def _answering(self, request: int) -> Iterator[None]:
        """Answer with an error of this request, or report that the engine has failed if it is the engine's."""
        try:
            yield
        # That the engine is broken concerns all requests, not only this one.
        except EnvironmentFault as error:
            self._report_failure(error)
        except MagError as error:
            self._outbox.put(Failed(request, error))
        except Exception as error:
            self._report_failure(error)
        finally:
            self._requests.pop(request, None)

    async def _load(self, message: Load | Transfer) -> None:
        what: int | TransferStep
        try:
            if isinstance(message, Load):
                what = message.version
                file = WeightFile(Path(message.path))
                (arrived,) = await self._policy.load(file, message.version)
            else:
                what = message.step
                arrived = await self._policy.transfer(message.step, message.info, message.version)
            self._outbox.put(Loaded(what, self._policy.load_seconds, arrived))
        except Exception as error:
            self._report_failure(error)

    def _report_failure(self, error: Exception) -> None:
        """Say that the engine has failed; the other end then ends this process."""
        is_explained = isinstance(error, MagError)
        explained = error if is_explained else EnvironmentFault(f"{type(error).__name__}: {error}")
        self._outbox.put(Failed(None, explained))

    async def _send_beats(self) -> None:
        while True:
            self._outbox.put(Beat(self._policy.seconds))
            await asyncio.sleep(BEAT_SECONDS)


class OutboxConsole(Console):
    """What a starting engine says, put into the outbox of the event loop in which this is made, from any thread."""

    def __init__(self, outbox: Outbox) -> None:
        super().__init__()
        self._outbox, self._loop = outbox, asyncio.get_running_loop()

    def say(self, text: str, **event: Any) -> None:
        """One line."""
        self.put(Starting(text, lasts=True))

    def waiting(self) -> Waiting:
        """What is being waited for."""
        return OutboxWaiting(self)

    def put(self, message: Starting) -> None:
        """Add a message."""
        self._loop.call_soon_threadsafe(self._outbox.put, message)


class OutboxWaiting(Waiting):
    """The same for what is being waited for; where it is shown is for the process that hears it to say."""

    def __init__(self, console: OutboxConsole) -> None:
        super().__init__(console)
        self._put = console.put

    def show(self, text: str) -> None:
        """Say it."""
        self._put(Starting(text, lasts=False))


async def open_endpoint(spec: Spec, outbox: Outbox) -> EngineEndpoint:
    """Open the engine of ``spec`` in this process; a starting vLLM says meanwhile what it does."""
    if spec.threads:
        torch.set_num_threads(spec.threads)
    # The embedded engine opens in this thread, where it will run; vLLM's start would block the event loop.
    if policy_engine(spec.engine, spec.device, deterministic=spec.deterministic) == "torch":
        return EngineEndpoint(open_policy(spec), outbox)
    return EngineEndpoint(await asyncio.to_thread(open_policy, spec, OutboxConsole(outbox)), outbox)
