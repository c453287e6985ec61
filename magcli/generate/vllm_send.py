"""New weights on their way to a vLLM engine: as a file in shared memory, or between GPUs by vLLM's own transfer."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from magcli.generate.fit import names_in
from magcli.generate.types import Weights
from magcli.generate.weights import shared

FILE_TRANSFER = "magcli_file"
"""What vLLM's registry knows the transfer through a file in shared memory by; see ``vllm_worker``."""

Send = Callable[[Any], Coroutine[Any, Any, None]]
"""Gives an engine (``AsyncLLM``), which is paused meanwhile, the weights that were made ready."""


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
                from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

                await engine.start_weight_update()
                await engine.update_weights(WeightTransferUpdateRequest(update_info=update))
                await engine.finish_weight_update()

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
        source = _Source(weights, names_in(weights, outline), self._device, self._dtype)

        async def send(engine: Any) -> None:
            client = _Client(engine, asyncio.get_running_loop())
            await asyncio.to_thread(self._send, client, source)

        yield send

    def _send(self, client: "_Client", source: "_Source") -> None:
        from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
        from vllm.distributed.weight_transfer.ipc_engine import IPCTrainerInitInfo

        with torch.cuda.device(self._device):
            info = IPCTrainerInitInfo(rank=0, packed=True)
            WeightTransferTrainerFactory.trainer_init(info, client=client, source=source).send_weights()


class _Source:
    """vLLM's ``WeightSource``: weights under their checkpoint's names, on the engine's GPU when they are asked for."""

    def __init__(self, weights: Weights, names: Mapping[str, str], device: torch.device, dtype: torch.dtype) -> None:
        self._weights, self._names, self._device, self._dtype = weights, names, device, dtype

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        for name, source in self._names.items():
            yield name, self._weights[source].detach().to(self._device, self._dtype).contiguous()


class _Client:
    """vLLM's ``VLLMWeightSyncClient`` for an engine in an event loop, called from a thread beside it."""

    def __init__(self, engine: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._engine, self._loop = engine, loop

    def _run(self, call: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        from vllm.distributed.weight_transfer.base import WeightTransferInitRequest

        self._run(self._engine.init_weight_transfer_engine(WeightTransferInitRequest(init_info=init_info)))

    def start_weight_update(self) -> None:
        self._run(self._engine.start_weight_update())

    def update_weights(self, update_info: Any) -> None:
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

        self._run(self._engine.update_weights(WeightTransferUpdateRequest(update_info=update_info)))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._run(self._engine.finish_weight_update(weight_version))
