"""New weights from the trainer straight to a generator's vLLM: NCCL from GPU to GPU, gloo from CPU to CPU.

The trainer's end for one generator process. vLLM's own trainer engine, or our like of it for gloo, sends in a thread;
what it asks of the engine goes through the generator process, which pauses and resumes it.
"""

import asyncio
import socket
import threading
from contextlib import suppress
from typing import Protocol

import torch
from transformers import PreTrainedModel

from magcli.errors import EnvironmentFault
from magcli.generate.fit import names_in
from magcli.generate.types import Weights
from magcli.generate.vllm_gloo import GLOO_TRANSFER, HOST, GlooTrainer
from magcli.generate.vllm_send import Ask, Client, Source


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
        self._sent: asyncio.Future[None] | None = None

    async def send(self, weights: Weights) -> None:
        """Bring the engine new weights; sequences that run there go on with them.

        Raises:
            MagError: a parameter is missing or has another shape; nothing has been sent then.
            GeneratorDied: the generator died.
            Exception: whatever NCCL or gloo has to say, or that the line was cut; it is of no use any more.
        """
        self._source.take(weights, names_in(weights, self._outline))
        loop = asyncio.get_running_loop()
        sent = self._sent = loop.create_future()

        def work() -> None:
            error: Exception | None = None
            try:
                self._send(Client(self._ask, loop))
            except Exception as raised:
                error = raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_settle, sent, error)

        # A thread that nobody joins: a rendezvous with a generator that died meanwhile may never return.
        threading.Thread(target=work, name="magcli-broadcast", daemon=True).start()
        await sent

    def cut(self) -> None:
        """Break off what is under way: NCCL would wait for ever for a generator that died."""
        self._source.stop()
        if self._sent is not None:
            _settle(self._sent, ConnectionError("the line has been cut"))
        if self._transport is not None:
            threading.Thread(target=self._transport.shutdown, name="magcli-cut", daemon=True).start()

    def _send(self, client: Client) -> None:
        if self._device.type != "cuda":
            self._transport = self._transport or GlooTrainer(client, self._source)
            return self._transport.send_weights()
        with torch.cuda.device(self._device):
            self._transport = self._transport or self._meet(client)
            torch.cuda.synchronize()  # the weights may still be on their way to where they are sent from
            return self._transport.send_weights()

    def _meet(self, client: Client) -> Transport:
        from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
        from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

        info = NCCLTrainerInitInfo(rank=0, master_address=HOST, master_port=_free_port(), world_size=2)
        transport = WeightTransferTrainerFactory.trainer_init(info, client=client, source=self._source)
        if transport.model_update_group.disabled:
            raise EnvironmentFault("vLLM finds no NCCL (or VLLM_DISABLE_PYNCCL is set); use --transfer file")
        met: Transport = transport
        return met


def _settle(sent: "asyncio.Future[None]", error: Exception | None) -> None:
    if sent.done():
        return
    if error is None:
        sent.set_result(None)
    else:
        sent.set_exception(error)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        port: int = taken.getsockname()[1]
        return port
