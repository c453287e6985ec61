"""What a run and its generator processes say to each other: pickled messages over a socket pair, framed by length."""

import asyncio
import pickle
import struct
from dataclasses import dataclass
from typing import Any, Literal

from magcli.generate.types import Rollout, Sampling
from magcli.model.chat import ChatTemplate

HEADER = struct.Struct("<Q")

TransferName = Literal["file", "broadcast"]
"""How new weights reach a generator: as a file in shared memory, or from the trainer by NCCL or gloo."""

TransferStep = Literal["init", "start", "update", "finish"]
"""The phases of a transfer by vLLM's interface: who takes part, once; then for each update of the weights."""


@dataclass(frozen=True, slots=True)
class Spec:
    """The engine that a generator process opens: the arguments of ``open_policy``.

    ``threads`` 0: torch's choice. ``source``: the device from which a broadcast of weights comes.
    """

    model: str
    engine: Literal["auto", "torch", "vllm"] = "torch"
    dtype: Literal["auto", "bf16", "fp32"] = "auto"
    slots: int = 64
    deterministic: bool = False
    device: str = "cpu"
    threads: int = 0
    transfer: TransferName = "file"
    source: str = "cpu"
    template: ChatTemplate | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """To a generator: sample one sequence a seed."""

    request: int
    prompt: tuple[int, ...]
    sampling: Sampling
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Abort:
    """To a generator: nobody waits for a request any more."""

    request: int


@dataclass(frozen=True, slots=True)
class Load:
    """To a generator: take the weights in this file, as this version."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Transfer:
    """To a generator: do one step of a broadcast of weights; with the last they become this version."""

    step: TransferStep
    info: Any
    version: int


@dataclass(frozen=True, slots=True)
class Ready:
    """From a generator: the engine is up."""


@dataclass(frozen=True, slots=True)
class Ended:
    """From a generator: one sequence of a request has ended; ``seconds`` is what the engine has worked so far."""

    request: int
    rollout: Rollout
    seconds: float


@dataclass(frozen=True, slots=True)
class Failed:
    """From a generator: a request cannot be answered. ``request`` None: the engine has failed, and the process ends."""

    request: int | None
    error: Exception


@dataclass(frozen=True, slots=True)
class Loaded:
    """From a generator: the weights of this version make the next token, or this step of a broadcast is done.

    ``load_seconds`` is the time that its sequences have stood still for new weights so far.
    """

    what: int | TransferStep
    load_seconds: float


@dataclass(frozen=True, slots=True)
class Beat:
    """From a generator, every so often: it is alive, and the seconds that it has worked so far."""

    seconds: float


def frame(message: object) -> bytes:
    """A message as it goes over the socket."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return HEADER.pack(len(body)) + body


async def receive(reader: asyncio.StreamReader) -> Any:
    """The next message.

    Raises:
        EOFError: the other side is gone (``asyncio.IncompleteReadError`` is one).
        ConnectionError: so it is.
    """
    (size,) = HEADER.unpack(await reader.readexactly(HEADER.size))
    return pickle.loads(await reader.readexactly(size))
