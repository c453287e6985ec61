"""Tensors from a trainer to all ranks of one engine over gloo, on one machine or between two."""

import socket
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

from magcli.cluster.meeting import joined_store

LOOPBACK = "127.0.0.1"
TRAINER_RANK = 0
"""The trainer's rank in a group; those of the engine follow."""
TIMEOUT = timedelta(seconds=60)
"""How long either end waits for the other in one step; a dead one is noticed at once."""

dist: Any = torch.distributed
"""Untyped: torch's types lack what is used here."""


class GlooGroup:
    """Trainer (rank 0) and the ranks of one engine (1 and up), connected from their addresses for each other.

    ``world_size`` counts the trainer. All ranks must join, or the constructor waits for ``TIMEOUT``.
    """

    def __init__(self, store: Any, address: str, rank: int, world_size: int) -> None:
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=address)]
        options._timeout = TIMEOUT
        self._store = store
        self._group = dist.ProcessGroupGloo(store, rank, world_size, options)
        self._group.barrier().wait()  # nothing is sent before all are connected

    @classmethod
    def join(cls, host: str, port: int, rank: int, world_size: int) -> "GlooGroup":
        """An engine's end; host and port are those of the trainer's store."""
        store = joined_store(host, port, timeout=TIMEOUT)
        # Said before the constructor waits for the others; see ``all_ready``.
        store.set(_ready_key(rank), "")
        return cls(store, own_address(host), rank, world_size)

    def broadcast(self, tensors: Iterable[Tensor]) -> None:
        """Send the tensors, or receive them in place."""
        for tensor in tensors:
            self.start_broadcast(tensor).wait()

    def start_broadcast(self, tensor: Tensor) -> Any:
        """Start to send a tensor, or to receive it in place; the result's ``wait`` returns when it has been."""
        options = dist.BroadcastOptions()
        # The tensor's number is its place in the list of one.
        options.rootRank, options.rootTensor = TRAINER_RANK, 0
        return self._group.broadcast([tensor], options)

    def receive(self, described: dict[str, Any]) -> Iterator[tuple[str, Tensor]]:
        """Receive tensors one by one: those with these names, types (``dtype_names``) and shapes."""
        descriptions = zip(described["names"], described["dtype_names"], described["shapes"], strict=True)
        for name, dtype, shape in descriptions:
            tensor = torch.empty(tuple(shape), dtype=getattr(torch, dtype))
            self.broadcast([tensor])
            yield name, tensor


def all_ready(store: Any, world_size: int) -> bool:
    """Whether all ranks of the engine are about to join the group."""
    keys = [_ready_key(rank) for rank in range(TRAINER_RANK + 1, world_size)]
    ready: bool = store.check(keys)
    return ready


def _ready_key(rank: int) -> str:
    return f"ready-{rank}"


def own_address(host: str) -> str:
    """This machine's address on the way to a host; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        # A datagram socket only chooses its route when it connects.
        way.connect((host, 1))
        address: str = way.getsockname()[0]
        return address
