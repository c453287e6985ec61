"""Tensors from a trainer to one engine over gloo, on one machine or between two."""

import socket
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

LOOPBACK = "127.0.0.1"
READY_KEY = "ready"
TIMEOUT = timedelta(seconds=60)
"""How long either end waits for the other in one step; a dead one is noticed at once."""

dist: Any = torch.distributed
"""Untyped: torch's types lack what is used here."""


class GlooPair:
    """Trainer (rank 0) and one engine (rank 1), connected from their addresses for each other."""

    def __init__(self, store: Any, address: str, rank: int) -> None:
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=address)]
        options._timeout = TIMEOUT
        self._store = store
        self._group = dist.ProcessGroupGloo(store, rank, 2, options)

    @classmethod
    def join(cls, host: str, port: int) -> "GlooPair":
        """The engine's end; host and port are those of the trainer's store."""
        store = dist.TCPStore(host, port, is_master=False, timeout=TIMEOUT)
        store.set(READY_KEY, "")
        return cls(store, own_address(host), rank=1)

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Send the tensors, or receive them in place."""
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = 0, 0
        for tensor in tensors:
            self._group.broadcast([tensor], options).wait()

    def receive(self, described: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
        """Receive tensors one by one: those with these names, types (``dtype_names``) and shapes."""
        descriptions = zip(described["names"], described["dtype_names"], described["shapes"], strict=True)
        for name, dtype, shape in descriptions:
            tensor = torch.empty(tuple(shape), dtype=getattr(torch, dtype))
            self.broadcast([tensor])
            yield name, tensor


def listening_store(host: str) -> Any:
    """A store at a free port of this address only; torch would listen on all of the machine's."""
    listener = socket.create_server((host, 0))
    port = listener.getsockname()[1]
    return dist.TCPStore(
        host, port, is_master=True, wait_for_workers=False, timeout=TIMEOUT, master_listen_fd=listener.detach()
    )


def own_address(host: str) -> str:
    """This machine's address on the way to a host; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.connect((host, 1))
        address: str = way.getsockname()[0]
        return address
