"""Values that travel between the host and a GPU without making either wait for the other.

A copy from ordinary memory, and every value that is read, lets the host wait until the GPU has done all that was asked
of it before, so that afterwards the GPU waits for the host. A micro-batch therefore only sends, and an update reads at
its end.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def moved(tensor: Tensor, device: torch.device | str) -> Tensor:
    """A tensor of the host on another device; to a GPU it goes from pinned memory, while the host goes on."""
    pinned = tensor.pin_memory() if torch.device(device).type == "cuda" else tensor
    return pinned.to(device, non_blocking=True)


def sent_back(tensor: Tensor) -> Tensor:
    """A copy of a tensor on the host, whose values are there after ``wait_for``."""
    return tensor.to("cpu", non_blocking=True)


def wait_for(device: torch.device) -> None:
    """Wait until a device has done all that it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def read_sum(losses: Sequence[Tensor]) -> float:
    """The sum of losses without dimensions, all read at once and added up in their order."""
    # In float64, in a fixed order: the same losses always have the same sum.
    total = 0.0
    for loss in torch.stack(list(losses)).tolist() if losses else []:
        total += loss
    return total
