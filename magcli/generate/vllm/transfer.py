"""Transfer of new weights to a vLLM engine, with vLLM's own weight-transfer interface.

* ``FileSender``: a safetensors file in shared memory, for an engine of this process on CPUs or on several GPUs.
* ``IpcSender``: a handle for each of a few buffers on the engine's GPU, for an engine of this process on one GPU.
* ``Broadcast``: from the trainer straight to all ranks of the engine of a generator process, by NCCL between GPUs or by
  gloo between CPUs, where ``GlooTrainer`` does what vLLM's trainer engine does for NCCL.

The engine's end of each is in ``magcli.generate.vllm.worker``, or part of vLLM. All but NCCL's arrive while
sequences run, which only stand still while arrived weights are loaded.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from magcli.cluster.meeting import listening_store
from magcli.generate.types import Digests, RunStep, TransferStep, Weights
from magcli.generate.weights.digest import merged, renamed
from magcli.generate.weights.gloo import LOOPBACK, TIMEOUT, TRAINER_RANK, GlooGroup, all_ready
from magcli.generate.weights.matching import names_in, shared
from magcli.generate.weights.packed import handle_of, pack

FILE_TRANSFER, GLOO_TRANSFER = "magcli_file", "magcli_gloo"
NCCL_TRANSFER, IPC_TRANSFER = "magcli_nccl", "magcli_ipc"
"""The names of our transfers in vLLM's registry; see ``magcli.generate.vllm.worker``."""

TEXT_LOADER = "magcli_text"
"""The name of our loader (``magcli.generate.vllm.worker``) in vLLM's registry, for a text model inside a larger one."""

POLL_SECONDS = 0.01
"""How often an engine is asked, between two of its steps, whether new weights have arrived."""

Pause = Callable[[], Awaitable[None]]
"""Stops an engine between two steps, with its weights in place; sequences go on once it is resumed."""

Send = Callable[[Any, Pause], Coroutine[Any, Any, Digests]]
"""Gives an engine (``AsyncLLM``) the prepared weights, and pauses it before it loads them; returns their digests as
they arrived."""


class Sender(Protocol):
    """A way to send weights to an engine of this process. ``backend`` is its name in vLLM's registry."""

    backend: str

    @property
    def lora_request(self) -> Any:
        """vLLM's request for the LoRA adapter to sample with; None samples from the engine's weights alone."""

    def ready(self, weights: Weights, outline: PreTrainedModel) -> AbstractContextManager[Send]:
        """Prepare a transfer while the engine still generates. ``outline`` has the engine's parameters.

        Raises:
            MagError: a parameter is missing or has another shape.
        """


def sender_for(device: str, dtype: torch.dtype, *, ranks: int = 1) -> Sender:
    """The sender for an engine on this device with weights of this type.

    The memory of one GPU is no help to an engine of several ``ranks``, whose workers read one file.
    """
    on_one_gpu = device.startswith("cuda") and ranks == 1
    return IpcSender(device, dtype) if on_one_gpu else FileSender(dtype)


def broadcast_backend(device: str) -> str:
    """vLLM's name for the broadcast to an engine on this device."""
    return NCCL_TRANSFER if device.startswith("cuda") else GLOO_TRANSFER


class FileSender:
    """A safetensors file in shared memory; a ``WeightFile`` is one already."""

    backend = FILE_TRANSFER
    lora_request = None

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    @contextmanager
    def ready(self, weights: Weights, outline: PreTrainedModel) -> Iterator[Send]:
        """Write the file, which exists for the duration of the block; EnvironmentFault if shared memory is full."""
        # Refused before anything is written.
        names_in(weights, outline)
        with shared(weights, dtype=self._dtype) as file:
            names = names_in(file, outline)
            update = {"path": str(file.path), "names": names}

            yield partial(_send, update=update)


class IpcSender:
    """Buffers on the engine's device, opened by the engine's process: one handle each, without a copy.

    Weights elsewhere, on another GPU or in a file, are copied to buffers there. On a CPU they are in shared memory.
    """

    backend = IPC_TRANSFER
    lora_request = None

    def __init__(self, device: str, dtype: torch.dtype) -> None:
        self._device, self._dtype = torch.device(device), dtype

    @contextmanager
    def ready(self, weights: Weights, outline: PreTrainedModel) -> Iterator[Send]:
        """Pack the weights, unless they are; errors as in ``Sender``."""
        names_in(weights, outline)
        packed = pack(weights, self._dtype, self._device)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # another process reads them, on another stream
        yield partial(
            _send,
            update={
                "names": names_in(packed, outline),
                "handles": [handle_of(buffer) for buffer in packed.buffers],
                "places": packed.described(),
            },
        )
        del packed
        if self._device.type == "cuda":
            torch.cuda.ipc_collect()  # type: ignore[no-untyped-call]  # what the engine has closed


async def _send(engine: Any, pause: Pause, *, update: dict[str, Any]) -> Digests:
    """Let weights arrive while sequences run, and load them; their digests have the names that the sender has."""
    await run_step(engine, "start", None)
    await run_step(engine, "update", update)
    await pause()
    await run_step(engine, "finish", None)
    return renamed(await arrived_digests(engine), update["names"])


async def arrived_digests(engine: Any) -> Digests:
    """The digests of an engine's newest weights, as they arrived in all its ranks, under the names of the sender."""
    return merged(await engine.collective_rpc("arrived_digests"))


async def run_step(engine: Any, step: TransferStep, info: Any) -> None:
    """Run one step of a transfer in an engine (``AsyncLLM``) of this process; ``info`` is specific to the backend.

    After ``update`` all has arrived that the engine does not load at once; it has gone on generating meanwhile.
    """
    from vllm.distributed.weight_transfer.base import WeightTransferInitRequest, WeightTransferUpdateRequest

    match step:
        case "init":
            await engine.init_weight_transfer_engine(WeightTransferInitRequest(init_info=info))
        case "start":
            await engine.start_weight_update()
        case "update":
            await engine.update_weights(WeightTransferUpdateRequest(update_info=info))
            # Polled, since a call that waited would keep the engine from generating.
            while not all(await engine.collective_rpc("weights_have_arrived")):
                await asyncio.sleep(POLL_SECONDS)
        case "finish":
            await engine.finish_weight_update(None)


class Parameter(NamedTuple):
    """A parameter's description, sent before it: vLLM's ``ParamMeta``."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


class Source:
    """vLLM's ``WeightSource``: weights under their checkpoint's names, on a device and of a type.

    It serves update after update: ``set_weights`` gives it the weights of the next.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype
        self._weights: Weights = {}
        self._names: Mapping[str, str] = {}
        self._stopped = False

    def set_weights(self, weights: Weights, names: Mapping[str, str]) -> None:
        """Yield these weights from now on. ``names``: name in the checkpoint -> name in the weights."""
        self._weights, self._names = pack(weights, self._dtype, self._device), names

    def stop(self) -> None:
        """Yield nothing more; a running iteration raises."""
        self._stopped = True

    def metadata(self) -> list[Parameter]:
        """What iteration will yield."""
        shapes = {name: tuple(self._weights[source].shape) for name, source in self._names.items()}
        return [Parameter(name, self._dtype, shape) for name, shape in shapes.items()]

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        for name, source in self._names.items():
            # A transfer cannot be interrupted inside a tensor.
            if self._stopped:
                raise ConnectionError("the weight transfer has been stopped")
            yield name, self._weights[source]


class Client:
    """vLLM's ``VLLMWeightSyncClient``, called from a thread: each call runs in the event loop of another thread."""

    def __init__(self, run: RunStep, loop: asyncio.AbstractEventLoop) -> None:
        self._run_step, self._loop = run, loop

    def _run(self, step: TransferStep, info: Any = None) -> None:
        async def run() -> None:
            await self._run_step(step, info)

        # The engine belongs to the event loop, this call to the thread that sends.
        asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Connect the engine."""
        self._run("init", init_info)

    def start_weight_update(self) -> None:
        """Announce new weights."""
        self._run("start")

    def update_weights(self, update_info: Any) -> None:
        """Receive new weights."""
        self._run("update", update_info)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Finish the update; the version is set elsewhere."""
        self._run("finish")


class TrainerTransport(Protocol):
    """vLLM's ``TrainerWeightTransferEngine``."""

    def send_weights(self) -> None: ...

    def shutdown(self) -> None: ...


class Broadcast:
    """The trainer's end of the broadcast to one generator process, connected when weights are first sent.

    The transport sends in a thread; its calls to the engine go through ``run_step``, which runs one step in the
    generator process, where the engine is paused and resumed. ``outline`` is the model without its weights, ``device``
    that of this end: on a GPU, another one than the engine's. ``host`` is this machine's address, ``ranks`` the number
    of the engine's ranks. NCCL has not been tested on GPUs.
    """

    def __init__(
        self,
        run_step: RunStep,
        outline: PreTrainedModel,
        device: str,
        dtype: torch.dtype,
        host: str = LOOPBACK,
        *,
        ranks: int = 1,
    ) -> None:
        self._run_step = run_step
        self._outline = outline
        self._host = host
        self._world_size = 1 + ranks
        self._device = torch.device(device)
        self._source = Source(self._device, dtype)
        self._transport: TrainerTransport | None = None
        self._sent: asyncio.Future[None] | None = None

    async def send(self, weights: Weights) -> Mapping[str, str]:
        """Send the engine new weights; its running sequences continue with them.

        Returns the names under which they are sent, with those that they have in ``weights``.

        Raises:
            WeightsFault: a parameter is missing or has another shape; nothing has been sent.
            GeneratorDied: the generator died.
            Exception: an error of NCCL or gloo, or a transfer that was aborted; the broadcast is unusable afterwards.
        """
        names = names_in(weights, self._outline)
        self._source.set_weights(weights, names)
        loop = asyncio.get_running_loop()
        sent = self._sent = loop.create_future()

        def work() -> None:
            error: Exception | None = None
            try:
                self._send(Client(self._run_step, loop))
            except Exception as raised:
                error = raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_settle, sent, error)

        # A thread that nobody joins: connecting to a generator that died meanwhile may never return.
        threading.Thread(target=work, name="magcli-broadcast", daemon=True).start()
        await sent
        return names

    def abort(self) -> None:
        """Abort a running transfer: NCCL would wait forever for a generator that died."""
        self._source.stop()
        if self._sent is not None:
            _settle(self._sent, ConnectionError("the weight transfer has been aborted"))
        if self._transport is not None:
            threading.Thread(target=self._transport.shutdown, name="magcli-abort", daemon=True).start()

    def _send(self, client: Client) -> None:
        if self._device.type != "cuda":
            self._transport = self._transport or GlooTrainer(client, self._source, self._host, self._world_size)
            return self._transport.send_weights()
        with torch.cuda.device(self._device):
            self._transport = self._transport or self._connect_nccl(client)
            torch.cuda.synchronize()  # the weights may still be on their way to where they are sent from
            return self._transport.send_weights()

    def _connect_nccl(self, client: Client) -> TrainerTransport:
        from magcli.generate.vllm import nccl

        transport: TrainerTransport = nccl.connected(client, self._source, self._host, self._world_size)
        return transport


def _settle(sent: "asyncio.Future[None]", error: Exception | None) -> None:
    if sent.done():
        return
    if error is None:
        sent.set_result(None)
    else:
        sent.set_exception(error)


class GlooTrainer:
    """The gloo equivalent of vLLM's trainer engine for NCCL: connects when it is created, then sends repeatedly.

    ``world_size`` counts this end and the ranks of the engine.
    """

    def __init__(self, client: Client, source: Source, host: str, world_size: int) -> None:
        self._client, self._source = client, source
        store = listening_store(host, timeout=TIMEOUT)
        info = {"host": host, "port": store.port, "rank_offset": TRAINER_RANK + 1, "world_size": world_size}
        with ThreadPoolExecutor(1) as executor:
            # Both ends have to be there at once: the group comes about when all its ranks join.
            joined = executor.submit(client.init_weight_transfer_engine, info)
            # An engine that failed to join is done, and must not be waited for in the group.
            while not (joined.done() or all_ready(store, world_size)):
                time.sleep(0.01)
            if not joined.done():
                self._group = GlooGroup(store, host, TRAINER_RANK, world_size)
            joined.result()

    def send_weights(self) -> None:
        """All steps of one update; the engine receives while this end sends."""
        self._client.start_weight_update()
        with ThreadPoolExecutor(1) as executor:
            # The engine receives in the meantime: a broadcast ends when all ranks have taken part.
            received = executor.submit(self._client.update_weights, self._update_info())
            self._group.broadcast(tensor for _, tensor in self._source)
            received.result()
        self._client.finish_weight_update()

    def _update_info(self) -> dict[str, Any]:
        parameters = self._source.metadata()
        return {
            "names": [parameter.name for parameter in parameters],
            "dtype_names": [str(parameter.dtype).removeprefix("torch.") for parameter in parameters],
            "shapes": [list(parameter.shape) for parameter in parameters],
        }

    def shutdown(self) -> None:
        """Nothing to abort: gloo notices by itself that the other end is gone."""
