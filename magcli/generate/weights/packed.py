"""The weights of an update in a few large buffers, of which each tensor is a view.

They are cast and copied once, on their device, and digested there in a few passes. What a transfer hands over are the
buffers: a handle each, however many tensors there are.
"""

import base64
import pickle
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from math import prod
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.multiprocessing.reductions import rebuild_cuda_tensor, reduce_tensor

from magcli.generate.types import Digests, Weights
from magcli.generate.weights.digest import ROW_BYTES, row_digests, rows_of, sent_type
from magcli.generate.weights.matching import untied

BUFFER_BYTES = 1 << 30
"""Bytes of a buffer at most; a larger tensor has its own. They fit into what an update has freed in between."""

DEVICE = 6
"""The position of the device among the arguments of ``rebuild_cuda_tensor``."""


class Place(NamedTuple):
    """Where a tensor is: the number of its buffer, its first byte there, the name of its type in torch, its shape."""

    buffer: int
    start: int
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Its bytes."""
        itemsize: int = getattr(torch, self.dtype).itemsize
        return prod(self.shape) * itemsize


class PackedWeights(Mapping[str, Tensor]):
    """Weights by name, as views of buffers of bytes (uint8) in which each begins at a row of ``digest``."""

    def __init__(self, buffers: Sequence[Tensor], places: Mapping[str, Place]) -> None:
        self.buffers, self.places = buffers, places

    def __getitem__(self, name: str) -> Tensor:
        where = self.places[name]
        data = self.buffers[where.buffer][where.start : where.start + where.size]
        return data.view(getattr(torch, where.dtype)).view(where.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def described(self) -> dict[str, list[Any]]:
        """The places as plain data, of which ``PackedWeights.opened`` makes the same again in another process."""
        return {name: list(where) for name, where in self.places.items()}

    @classmethod
    def opened(cls, buffers: Sequence[Tensor], described: Mapping[str, Sequence[Any]]) -> "PackedWeights":
        """The weights in these buffers, of which another process has ``described`` the places."""
        places = {}
        for name, (buffer, start, dtype, shape) in described.items():
            places[name] = Place(buffer, start, dtype, tuple(shape))  # a JSON list, if it came as text
        return cls(buffers, places)

    def digests(self) -> Digests:
        """The digest of each tensor, by name; the host waits for the device once a buffer."""
        digests: dict[str, int] = {}
        # The places of a buffer follow one another, as ``groupby`` and ``row_digests`` need them.
        for buffer, names in groupby(self.places, lambda name: self.places[name].buffer):
            sizes = {name: self.places[name].size for name in names}
            digests |= row_digests(self.buffers[buffer], sizes)
        return digests


@torch.no_grad()
def pack(
    weights: Weights, dtype: torch.dtype, device: torch.device | None = None, *, limit: int = BUFFER_BYTES
) -> PackedWeights:
    """The weights in buffers on a device, by default that of the weights; what is packed already is not copied again.

    Args:
        weights: parameters by name; of tied ones the first name stays.
        dtype: the type of floating-point parameters in the buffers; others keep theirs.
        limit: bytes of a buffer at most.
    """
    once = weights if isinstance(weights, PackedWeights) else untied(weights)
    tensors = [tensor.detach() for tensor in once.values()]
    if device is None:
        device = tensors[0].device if tensors else torch.device("cpu")
    types = [sent_type(tensor, dtype) for tensor in tensors]
    is_cast = all(tensor.dtype == sent for tensor, sent in zip(tensors, types, strict=True))
    # On the same device ``to`` copies nothing.
    if isinstance(once, PackedWeights) and is_cast:
        return PackedWeights([buffer.to(device) for buffer in once.buffers], once.places)

    layout = {}
    for name, tensor, sent in zip(once, tensors, types, strict=True):
        layout[name] = (sent, tuple(tensor.shape))
    places = placed(layout, limit)
    buffers = [torch.zeros(size, dtype=torch.uint8, device=device) for size in _sizes(places)]
    packed = PackedWeights(buffers, places)
    if tensors:  # all are cast and copied in a few kernels
        torch._foreach_copy_(list(packed.values()), tensors)
    return packed


def placed(tensors: Mapping[str, tuple[torch.dtype, tuple[int, ...]]], limit: int) -> dict[str, Place]:
    """The places of tensors with these types and shapes, one after another in buffers of at most ``limit`` bytes."""
    places: dict[str, Place] = {}
    buffer = end = 0
    for name, (dtype, shape) in tensors.items():
        # Every tensor begins at a row, since it is digested by rows.
        size = rows_of(prod(shape) * dtype.itemsize) * ROW_BYTES
        is_full = end > 0 and end + size > limit
        if is_full:
            buffer += 1
            end = 0
        type_name = str(dtype).removeprefix("torch.")
        places[name] = Place(buffer, start=end, dtype=type_name, shape=shape)
        end += size
    return places


def _sizes(places: Mapping[str, Place]) -> list[int]:
    """The bytes of each buffer: the end of its last tensor."""
    ends: dict[int, int] = {}
    for where in places.values():
        ends[where.buffer] = where.start + rows_of(where.size) * ROW_BYTES
    return list(ends.values())


def handle_of(buffer: Tensor) -> str:
    """A handle by which another process of this machine opens a buffer, as long as this one keeps it.

    To the memory of a GPU it is CUDA's; memory of a CPU is moved to shared memory, unless it is there.
    """
    return base64.b64encode(ForkingPickler.dumps(reduce_tensor(buffer))).decode()  # type: ignore[no-untyped-call]


def open_handle(handle: str, device: torch.device) -> Tensor:
    """The buffer of a handle. ``device``: the name that its GPU has in this process."""
    rebuild, arguments = pickle.loads(base64.b64decode(handle))
    if rebuild is rebuild_cuda_tensor:  # its arguments have the number that the GPU has in the other process
        arguments = (*arguments[:DEVICE], device.index, *arguments[DEVICE + 1 :])
    buffer: Tensor = rebuild(*arguments)
    return buffer
