"""New weights from the trainer straight to a generator's vLLM: NCCL from GPU to GPU, gloo from CPU to CPU.

The trainer's end for one generator process. vLLM's own trainer engine, or our like of it for gloo, sends in a thread;
what it asks of the engine goes through the generator process, which pauses and resumes it.
"""

import asyncio
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from transformers import PreTrainedModel

from magcli.generate.fit import names_in
from magcli.generate.types import Weights
from magcli.generate.vllm_gloo import GLOO_TRANSFER, GlooTrainer
from magcli.generate.vllm_send import Ask, Client, Source

MASTER = "127.0.0.1"


def backend_of(device: str) -> str:
    """vLLM's name for the transfer by which an engine on this device takes part."""
    return "nccl" if device.startswith("cuda") else GLOO_TRANSFER


class Transport(Protocol):
    """vLLM's ``TrainerWeightTransferEngine``."""

    def send_weights(self) -> None: ...

    def shutdown(self) -> None: ...


class Broadcast:
    """One end of the line, opened when weights are first sent.

    Args:
        ask: has the generator do one step, and waits until it is done.
        outline: the model without its weights, for what the engine needs.
        device: of this end; on a GPU, another one than the engine's. NCCL has not been run yet: no GPU was at hand.
        dtype: of the engine's weights.
    """

    def __init__(self, ask: Ask, outline: PreTrainedModel, device: str, dtype: torch.dtype) -> None:
        self._ask, self._outline = ask, outline
        self._device = torch.device(device)
        self._source = Source(self._device, dtype)
        self._transport: Transport | None = None

    async def send(self, weights: Weights) -> None:
        """Bring the engine new weights; sequences that run there go on with them.

        Raises:
            MagError: a parameter is missing or has another shape; nothing has been sent then.
            GeneratorDied: the generator died.
            Exception: whatever NCCL or gloo has to say; the line is of no use any more.
        """
        self._source.take(weights, names_in(weights, self._outline))
        if self._transport is None:
            self._transport = await asyncio.to_thread(self._open, Client(self._ask, asyncio.get_running_loop()))
        await asyncio.to_thread(self._send, self._transport)

    def cut(self) -> None:
        """Break off what is under way: NCCL would wait for ever for a generator that died."""
        if self._transport is not None:
            threading.Thread(target=self._transport.shutdown, name="magcli-cut", daemon=True).start()

    def _open(self, client: Client) -> Transport:
        if self._device.type != "cuda":
            return GlooTrainer(client, self._source)
        from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
        from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo
        from vllm.utils.network_utils import get_open_port

        with self._on_device():
            info = NCCLTrainerInitInfo(rank=0, master_address=MASTER, master_port=get_open_port(), world_size=2)
            transport: Transport = WeightTransferTrainerFactory.trainer_init(info, client=client, source=self._source)
        return transport

    def _send(self, transport: Transport) -> None:
        with self._on_device():
            transport.send_weights()

    def _on_device(self) -> AbstractContextManager[object]:
        return torch.cuda.device(self._device) if self._device.type == "cuda" else nullcontext()
