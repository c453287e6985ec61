"""New weights on their way to a vLLM engine: as a file in shared memory, or by vLLM's own transfer through a GPU."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from math import prod
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from magcli.generate.fit import names_in
from magcli.generate.types import Weights
from magcli.generate.weights import shared
from magcli.generate.wire import TransferStep

FILE_TRANSFER = "magcli_file"
"""What vLLM's registry knows the transfer through a file in shared memory by; see ``vllm_worker``."""

Send = Callable[[Any], Coroutine[Any, Any, None]]
"""Gives an engine (``AsyncLLM``), which is paused meanwhile, the weights that were made ready."""


Ask = Callable[[TransferStep, Any], Awaitable[None]]
"""Has an engine, wherever it is, do one step of a transfer."""


class Sender(Protocol):
    """A way for weights to reach the engine. ``backend`` is its name in vLLM's registry."""

    backend: str

    def ready(self, weights: Weights, outline: PreTrainedModel) -> AbstractContextManager[Send]:
        """Do what can be done while the engine still generates. ``outline`` tells the parameters that it needs.

        Raises:
            MagError: a parameter is missing or has another shape.
        """
        ...


def sender_for(device: str, dtype: torch.dtype) -> Sender:
    """The sender for an engine on this device, whose weights are of this type."""
    return IpcSender(device, dtype) if device.startswith("cuda") else FileSender(dtype)


class FileSender:
    """Through a safetensors file in shared memory, which a ``WeightFile`` is already."""

    backend = FILE_TRANSFER

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    @contextmanager
    def ready(self, weights: Weights, outline: PreTrainedModel) -> Iterator[Send]:
        """Write the file, which is there while the block lasts.

        Raises:
            MagError: a parameter is missing or has another shape.
            EnvironmentFault: there is no room in shared memory.
        """
        names_in(weights, outline)
        with shared(weights, dtype=self._dtype) as file:
            update = {"path": str(file.path), "names": names_in(file, outline)}

            async def send(engine: Any) -> None:
                await take_step(engine, "start", None)
                await take_step(engine, "update", update)
                await take_step(engine, "finish", None)

            yield send


class IpcSender:
    """Through handles to memory of the engine's GPU: vLLM's own ``ipc`` transfer, in chunks of bounded size.

    Weights that lie elsewhere, on another GPU or in a file, are copied to the engine's GPU one by one. Written to
    vLLM's interface and not run yet: no GPU was at hand.
    """

    backend = "ipc"

    def __init__(self, device: str, dtype: torch.dtype) -> None:
        self._device, self._dtype = torch.device(device), dtype
        os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"  # handles to GPU memory are Python objects

    @contextmanager
    def ready(self, weights: Weights, outline: PreTrainedModel) -> Iterator[Send]:
        """Check that the weights fit; errors as in ``Sender``."""
        source = Source(self._device, self._dtype)
        source.take(weights, names_in(weights, outline))

        async def send(engine: Any) -> None:
            client = Client(lambda step, info: take_step(engine, step, info), asyncio.get_running_loop())
            await asyncio.to_thread(self._send, client, source)

        yield send

    def _send(self, client: "Client", source: "Source") -> None:
        from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
        from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo
        from vllm.distributed.weight_transfer.packed_tensor import DEFAULT_PACKED_BUFFER_SIZE_BYTES

        with torch.cuda.device(self._device):
            chunk = max(DEFAULT_PACKED_BUFFER_SIZE_BYTES, source.largest)
            info = IPCTrainerInitInfo(rank=0, packed=True, packed_buffer_size_bytes=chunk)
            WeightTransferTrainerFactory.trainer_init(info, client=client, source=source).send_weights()


async def take_step(engine: Any, step: TransferStep, info: Any) -> None:
    """Have an engine (``AsyncLLM``) of this process do one step of a transfer; ``info`` is the backend's own."""
    from vllm.distributed.weight_transfer.base import WeightTransferInitRequest, WeightTransferUpdateRequest

    match step:
        case "init":
            await engine.init_weight_transfer_engine(WeightTransferInitRequest(init_info=info))
        case "start":
            await engine.start_weight_update()
        case "update":
            await engine.update_weights(WeightTransferUpdateRequest(update_info=info))
        case "finish":
            await engine.finish_weight_update(None)


class Parameter(NamedTuple):
    """What an engine is told of a parameter before it comes: vLLM's ``ParamMeta``."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


class Source:
    """vLLM's ``WeightSource``: weights under their checkpoint's names, on a device and of a type as they are asked for.

    The same one serves update after update: ``take`` gives it the weights of the next.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype
        self._weights: Weights = {}
        self._names: Mapping[str, str] = {}
        self._stopped = False

    def take(self, weights: Weights, names: Mapping[str, str]) -> None:
        """Give these out from now on. ``names``: name in the checkpoint -> name in the weights."""
        self._weights, self._names = weights, names

    def stop(self) -> None:
        """Give out nothing more; whoever is at it gets an error."""
        self._stopped = True

    @property
    def largest(self) -> int:
        """Bytes of the largest parameter."""
        return max(prod(each.shape) * each.dtype.itemsize for each in self.metadata())

    def metadata(self) -> list[Parameter]:
        """What iteration will yield."""
        return [
            Parameter(name, self._dtype, tuple(self._weights[source].shape)) for name, source in self._names.items()
        ]

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        for name, source in self._names.items():
            if self._stopped:
                raise ConnectionError("there is nobody to send weights to any more")
            yield name, self._weights[source].detach().to(self._device, self._dtype).contiguous()


class Client:
    """vLLM's ``VLLMWeightSyncClient``, called from a thread: each question is asked in an event loop beside it."""

    def __init__(self, ask: Ask, loop: asyncio.AbstractEventLoop) -> None:
        self._ask, self._loop = ask, loop

    def _run(self, step: TransferStep, info: Any = None) -> None:
        async def asked() -> None:
            await self._ask(step, info)

        asyncio.run_coroutine_threadsafe(asked(), self._loop).result()

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Who takes part."""
        self._run("init", init_info)

    def start_weight_update(self) -> None:
        """New weights are about to come."""
        self._run("start")

    def update_weights(self, update_info: Any) -> None:
        """These come now."""
        self._run("update", update_info)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """All have come; their version is told elsewhere."""
        self._run("finish")
