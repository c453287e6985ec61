"""The trainer's end of a broadcast of weights over gloo, for engines on a CPU: what vLLM has with NCCL for GPUs."""

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

from magcli.generate.vllm_send import Client, Source

GLOO_TRANSFER = "magcli_gloo"
"""What vLLM's registry knows the engine's end by; see ``vllm_worker``."""

HOST, HERE = "127.0.0.1", "here"
dist: Any = torch.distributed
"""Without its types, which lack what is used here."""
DEADLINE = timedelta(seconds=60)
"""How long either end waits for the other in one step; one that died is noticed at once."""


class Pair:
    """Trainer (rank 0) and one engine (rank 1), who meet at a port of this machine."""

    def __init__(self, store: Any, rank: int) -> None:
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=HOST)]
        options._timeout = DEADLINE
        self._store = store
        self._group = dist.ProcessGroupGloo(store, rank, 2, options)

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Send the tensors, or receive them in place."""
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = 0, 0
        for tensor in tensors:
            self._group.broadcast([tensor], options).wait()


def join(port: int) -> Pair:
    """The engine's end."""
    store = dist.TCPStore(HOST, port, is_master=False, timeout=DEADLINE)
    store.set(HERE, "")
    return Pair(store, rank=1)


class GlooTrainer:
    """Like vLLM's trainer engine for NCCL: meets the engine when it is made, and then sends as often as asked."""

    def __init__(self, client: Client, source: Source) -> None:
        self._client, self._source = client, source
        store = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False, timeout=DEADLINE)
        with ThreadPoolExecutor(1) as beside:
            joined = beside.submit(client.init_weight_transfer_engine, {"port": store.port})
            while not (joined.done() or store.check([HERE])):
                time.sleep(0.01)
            if not joined.done():
                self._pair = Pair(store, rank=0)
            joined.result()

    def send_weights(self) -> None:
        """All phases of one update; the engine receives while this end sends."""
        self._client.start_weight_update()
        with ThreadPoolExecutor(1) as beside:
            received = beside.submit(self._client.update_weights, self._told())
            self._pair.broadcast(tensor for _, tensor in self._source)
            received.result()
        self._client.finish_weight_update()

    def _told(self) -> dict[str, Any]:
        every = self._source.metadata()
        return {
            "names": [each.name for each in every],
            "dtype_names": [str(each.dtype).removeprefix("torch.") for each in every],
            "shapes": [list(each.shape) for each in every],
        }

    def shutdown(self) -> None:
        """Nothing to break off: gloo notices by itself that the other end is gone."""


def empty(dtype_names: Iterable[str], shapes: Iterable[Iterable[int]]) -> Iterable[Tensor]:
    """Room for each tensor that is told of."""
    return (
        torch.empty(tuple(shape), dtype=getattr(torch, dtype)) for dtype, shape in zip(dtype_names, shapes, strict=True)
    )
