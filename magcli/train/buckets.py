"""Weights of a sharded model, whole on rank 0 a few tensors at a time: they are gathered bucket by bucket.

The parts travel in a process group of their own. In FSDP's group a gather could meet a collective of training on
another rank, and both would wait for ever.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from magcli.train.distributed import Ranks
from magcli.train.moving import wait_for

BUCKET_BYTES = 256 * 2**20
"""Bytes of the tensors that are gathered at a time; a larger tensor is gathered alone."""

dist: Any = torch.distributed
"""Untyped: torch's types lack what is used here."""


def split_into_buckets(sizes: Mapping[str, int], limit: int) -> list[list[str]]:
    """Names of tensors in their order, in buckets of at most ``limit`` bytes; a larger tensor has its own.

    ``sizes`` are the bytes of each.
    """
    buckets: list[list[str]] = []
    bytes_in_last = 0
    for name, size in sizes.items():
        if buckets and bytes_in_last + size <= limit:
            buckets[-1].append(name)
            bytes_in_last += size
        else:
            buckets.append([name])
            bytes_in_last = size
    return buckets


def open_gather_group(ranks: Ranks) -> Any:
    """The group in which weights are gathered: rank 0 and those that share one copy of the weights with it.

    All ranks call this at the same time; those that have another copy get None.
    """
    group = dist.new_group(list(range(ranks.sharing)), timeout=timedelta(seconds=ranks.timeout))
    if ranks.rank >= ranks.sharing:
        return None
    wait_for_all(ranks, group)
    return group


def wait_for_all(ranks: Ranks, group: Any) -> None:
    """Wait until all ranks of the group have come here.

    On GPUs this also connects them: NCCL does so in the first collective.
    """
    dist.all_reduce(torch.zeros(1, device=ranks.device), group=group)
    wait_for(ranks.device)


def gathered_buckets(
    tensors: Mapping[str, Tensor], ranks: Ranks, group: Any, *, dtype: torch.dtype, limit: int = BUCKET_BYTES
) -> Iterator[dict[str, Tensor]]:
    """Gather tensors on rank 0, bucket by bucket, each rank's part already cast to ``dtype``.

    All ranks of the group iterate to the end, with the same tensors in the same order. Rank 0 gets the whole tensors of
    a bucket, the others an empty dict. A bucket is emptied before the next one is gathered, so the caller keeps no
    tensor of it.
    """
    sizes = {name: tensor.numel() * dtype.itemsize for name, tensor in tensors.items()}
    for names in split_into_buckets(sizes, limit):
        bucket = _gathered({name: tensors[name].detach() for name in names}, ranks, group, dtype)
        yield bucket
        # Else this generator would keep the tensors while the next ones are gathered.
        bucket.clear()


def _gathered(tensors: Mapping[str, Tensor], ranks: Ranks, group: Any, dtype: torch.dtype) -> dict[str, Tensor]:
    """The whole tensors on rank 0, an empty dict on the others."""
    # All are started before the first is waited for.
    gathers = {name: _start_gather(tensor, ranks, group, dtype) for name, tensor in tensors.items()}
    bucket = {}
    for name, gather in gathers.items():
        whole = gather.result()
        if whole is not None:
            bucket[name] = whole
    return bucket


@dataclass(slots=True)
class Gather:
    """A tensor on its way to rank 0.

    ``sent`` is this rank's part, ``received`` on rank 0 the parts of all ranks of the group.
    """

    shape: torch.Size
    sent: Tensor
    received: Tensor | None
    work: Any

    def result(self) -> Tensor | None:
        """The whole tensor on rank 0, None on the others. The padding is at its end, where it is cut off."""
        if self.work is not None:
            self.work.wait()
        if self.received is None:
            return None
        return self.received[: self.shape.numel()].view(self.shape)


def _start_gather(tensor: Tensor, ranks: Ranks, group: Any, dtype: torch.dtype) -> Gather:
    """Start to gather a tensor, in bytes: not every backend has every type."""
    is_receiver = ranks.rank == 0
    if not isinstance(tensor, DTensor):  # every rank has the whole tensor
        whole = tensor.to(dtype).flatten()
        return Gather(tensor.shape, sent=whole, received=whole if is_receiver else None, work=None)
    part = _padded_part(tensor, ranks, dtype)
    received, receivers = None, None
    if is_receiver:
        # The parts lie one after another, as the rows of the whole tensor do.
        received = part.new_empty(ranks.sharing * part.numel())
        receivers = list(received.view(torch.uint8).chunk(ranks.sharing))
    work = dist.gather(part.view(torch.uint8), receivers, dst=0, group=group, async_op=True)
    return Gather(tensor.shape, part, received, work)


def _padded_part(tensor: DTensor, ranks: Ranks, dtype: torch.dtype) -> Tensor:
    """This rank's rows of a tensor, flat, with as many values as those of any other rank.

    FSDP splits rows as ``torch.chunk`` does: the last ranks may have fewer rows, or none.
    """
    own = tensor.to_local().to(dtype).flatten()
    rows = tensor.shape[0]
    rows_per_rank = -(-rows // ranks.sharing)
    row_size = tensor.numel() // rows
    most_values = rows_per_rank * row_size
    if own.numel() == most_values:
        return own
    padded = own.new_zeros(most_values)
    padded[: own.numel()] = own
    return padded
