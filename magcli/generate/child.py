"""A generator process: one engine that answers requests over a socket, and takes new weights between two steps.

Started through ``magcli.run.orphan``, so that it dies with its parent, with the socket's number as its argument; the
first message is the ``Spec`` of the engine. It also dies when its engine fails.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

from magcli.errors import EnvironmentFault, MagError
from magcli.generate.open import open_policy
from magcli.generate.types import Policy
from magcli.generate.weights import WeightFile
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
    frame,
    receive,
)

BEAT_SECONDS = 1.0


class Served:
    """The engine, the socket, and the requests under way."""

    def __init__(self, policy: Policy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.policy, self.reader, self.writer = policy, reader, writer
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.broken = asyncio.Event()

    async def serve(self) -> None:
        """Answer until the parent is gone or the engine has failed."""
        self.tell(Ready())
        ends = [asyncio.create_task(work) for work in (self._listen(), self._beat(), self.broken.wait())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        await self.writer.drain()

    def tell(self, message: object) -> None:
        """Send a message to the parent."""
        self.writer.write(frame(message))

    async def _listen(self) -> None:
        while True:
            match await receive(self.reader):
                case SampleRequest() as asked:
                    self.tasks[asked.request] = asyncio.create_task(self._answer(asked))
                case Abort(request):
                    if request in self.tasks:
                        self.tasks[request].cancel()
                case ScoreRequest() as asked:
                    self.tasks[asked.request] = asyncio.create_task(self._score(asked))
                case Load() | Transfer() as asked:
                    await self._load(asked)

    async def _answer(self, asked: SampleRequest) -> None:
        with self._answering(asked.request):
            async with aclosing(self.policy.sample(asked.prompt, asked.sampling, seeds=asked.seeds)) as stream:
                async for rollout in stream:
                    self.tell(Ended(asked.request, rollout, self.policy.seconds))

    async def _score(self, asked: ScoreRequest) -> None:
        with self._answering(asked.request):
            (scores,) = await self.policy.score(asked.sequences)
            self.tell(Scored(asked.request, scores))

    @contextmanager
    def _answering(self, request: int) -> Iterator[None]:
        """Tell the parent of an error in this request, or break if it is the engine's."""
        try:
            yield
        except EnvironmentFault as error:
            self._break(error)
        except MagError as error:
            self.tell(Failed(request, error))
        except Exception as error:
            self._break(error)
        finally:
            self.tasks.pop(request, None)

    async def _load(self, asked: Load | Transfer) -> None:
        try:
            if isinstance(asked, Load):
                (arrived,) = await self.policy.load(WeightFile(Path(asked.path)), asked.version)
                self.tell(Loaded(asked.version, self.policy.load_seconds, arrived))
            else:
                from magcli.generate.vllm import VllmPolicy

                assert isinstance(self.policy, VllmPolicy), "no other engine takes part in a broadcast"
                arrived = await self.policy.transfer(asked.step, asked.info, asked.version)
                self.tell(Loaded(asked.step, self.policy.load_seconds, arrived))
        except Exception as error:
            self._break(error)

    def _break(self, error: Exception) -> None:
        told = error if isinstance(error, MagError) else EnvironmentFault(f"{type(error).__name__}: {error}")
        self.tell(Failed(None, told))
        self.broken.set()

    async def _beat(self) -> None:
        while True:
            self.tell(Beat(self.policy.seconds))
            await asyncio.sleep(BEAT_SECONDS)


async def main(sock: socket.socket) -> None:
    """Open the engine that the parent asks for and serve it."""
    reader, writer = await asyncio.open_connection(sock=sock)
    try:
        spec = await receive(reader)
        policy = _open(spec)
    except MagError as error:
        writer.write(frame(Failed(None, error)))
        await writer.drain()
        return
    await Served(policy, reader, writer).serve()


def _open(spec: Spec) -> Policy:
    import torch

    if spec.threads:
        torch.set_num_threads(spec.threads)
    return open_policy(spec)


if __name__ == "__main__":
    try:
        asyncio.run(main(socket.socket(fileno=int(sys.argv[1]))))
    except (EOFError, ConnectionError):
        os._exit(0)
    os._exit(1)
