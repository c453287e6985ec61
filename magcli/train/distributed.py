"""The processes that train one model together, and what they say to each other."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from magcli.cluster.meeting import joined_store, listening_store
from magcli.cluster.types import Resources
from magcli.errors import EnvironmentFault, first_line

TIMEOUT = 600.0
"""Seconds to wait for other ranks, in a collective or for the answer to a command."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """A process among those that train together.

    Weights are sharded over the last dimension of ``mesh``, and replicated over the first if it has two; it is None for
    a single process. ``timeout``: seconds to wait for other ranks in a collective.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")
    mesh: DeviceMesh | None = None
    timeout: float = TIMEOUT

    @property
    def sharing(self) -> int:
        """Number of ranks that share one copy of the weights, with successive numbers."""
        return 1 if self.mesh is None else self.mesh.size(self.mesh.ndim - 1)

    def sum(self, value: float) -> float:
        """The sum of a number over all ranks, the same on each."""
        tensor = torch.tensor(value, dtype=torch.float64)
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor.item()

    def gather(self, value: Any, group: Any = None) -> list[Any]:
        """The objects of all ranks, by rank, on rank 0; an empty list on the others. ``group``: another one of all."""
        # Of one rank this is the result already.
        gathered: list[Any] = [value] * self.size if self.rank == 0 else []
        if self.size > 1:
            # Only the receiver may name a list.
            dist.gather_object(value, gathered or None, group=group)
        return gathered

    def broadcast(self, value: Any = None) -> Any:
        """Rank 0's object, on every rank."""
        box = [value]
        if self.size > 1:
            dist.broadcast_object_list(box)
        return box[0]


def join_ranks(
    rank: int,
    size: int,
    local_rank: int,
    store: tuple[str, int],
    device: str,
    *,
    fsdp_size: int = 0,
    timeout: float = TIMEOUT,
) -> Ranks:
    """Join the other ranks.

    Weights and gradients travel between GPUs by NCCL, everything else by gloo.

    Args:
        rank: number of this rank.
        size: number of ranks.
        local_rank: number of this rank among those of its node.
        store: address and port on which the first rank holds the store, and on no other address.
        device: kind of device to train on.
        fsdp_size: number of ranks that share one copy of the weights; 0 is all.
        timeout: seconds to wait for other ranks, now and in each collective.

    Raises:
        EnvironmentFault: the others did not join in time.
    """
    on_gpu = device.startswith("cuda")
    # Of a cluster a process sees only the GPU that Ray has given it; under a local Ray it sees all.
    index = local_rank if on_gpu and torch.cuda.device_count() > 1 else 0
    own = torch.device("cuda", index) if on_gpu else torch.device(device)
    if on_gpu:
        torch.cuda.set_device(own)
    patience = timedelta(seconds=timeout)
    open_store = listening_store if rank == 0 else joined_store
    try:
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if on_gpu else "gloo",
            store=open_store(*store, timeout=patience),
            rank=rank,
            world_size=size,
            timeout=patience,
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise EnvironmentFault(f"rank {rank} could not connect to all {size} ranks: {first_line(error)}") from error
    return Ranks(rank, size, own, mesh_of(own.type, size, fsdp_size or size), timeout)


def mesh_of(device_type: str, size: int, sharing: int) -> DeviceMesh:
    """All ranks as those that share one copy of the weights or, of hybrid sharding (HSDP), as several such groups.

    All ranks call this at the same time.
    """
    if sharing == size:
        return init_device_mesh(device_type, (size,))
    # Ranks with successive numbers share a copy: they are on one node, where possible.
    return init_device_mesh(device_type, (size // sharing, sharing), mesh_dim_names=("replicate", "shard"))


def rank_resources(device: str) -> Resources:
    """What a rank takes of a node of a cluster; on this machine devices are named instead."""
    return Resources(cpus=1, gpus=1 if device.startswith("cuda") else 0)
