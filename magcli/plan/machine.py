"""What this machine has: its GPUs, the memory of each or of its own, and how much of that a run may use."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from magcli.errors import EnvironmentFault, UsageError

# ``24G``, ``24 GiB``, ``640M``.
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([GM])(?:i?B)?", re.IGNORECASE)
UNITS = {"G": 1 << 30, "M": 1 << 20}

VISIBLE = 0.985
"""The part of a card's nominal memory that programs see: 23.6 GiB of 24."""

CONTEXT = 640 << 20
"""Memory of a CUDA context with the kernels of PyTorch and its libraries: an estimate, never measured by us."""

UNFRAGMENTED = 0.95
"""The part of the rest that PyTorch's allocator can fill."""

LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
"""Files with a container's memory limit and its use, of both versions of control groups."""


@dataclass(frozen=True, slots=True)
class Card:
    """Memory for a run: ``total`` bytes of which ``usable`` are for its tensors. ``is_gpu`` False is this machine's."""

    name: str
    total: int
    usable: int
    is_gpu: bool = True


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is for a run on a ``device``: the ``gpus`` that PyTorch finds, and the card that it has to fit.

    ``card`` is None if PyTorch finds no such GPU.
    """

    device: str
    gpus: int
    card: Card | None

    @classmethod
    def ask(cls, device: str, named: str = "", *, planned: bool = False) -> "Machine":
        """Ask this machine; ``named`` is the size of another card, such as 24G, to check the run for.

        A run that is only ``planned`` for another card is not about this machine: its device is that card.

        Raises:
            UsageError: it is no size.
        """
        is_gpu = device.startswith("cuda")
        if named and planned:
            return cls(device if is_gpu else "cuda", 0, named_card(named))
        installed = gpus()
        if named:
            return cls(device, installed, named_card(named))
        if not is_gpu:
            return cls(device, installed, host())
        # GPUs are numbered from 0.
        has_card = gpu_number(device) < installed
        return cls(device, installed, installed_card(device) if has_card else None)

    def required_card(self) -> Card:
        """The card.

        Raises:
            EnvironmentFault: PyTorch finds no such GPU.
        """
        if self.card is None:
            text = f"--device {self.device}: PyTorch finds {self.gpus} GPUs; see magcli doctor"
            raise EnvironmentFault(f"{text}; if a cluster has them, say their memory, such as --card 80G")
        return self.card


def gpus() -> int:
    """The number of GPUs that PyTorch finds."""
    import torch

    return torch.cuda.device_count()


def gpu_number(device: str) -> int:
    """The number of a GPU by the name of its device; ``cuda`` is the first."""
    return int(device.partition(":")[2] or 0)


def named_card(text: str) -> Card:
    """A made-up card of a size such as 24G.

    Raises:
        UsageError: it is no size.
    """
    match = SIZE.fullmatch(text.strip())
    if match is None or float(match[1]) == 0:
        raise UsageError(f"--card must be a size such as 24G, not {text!r}")
    number, unit = match.groups()
    total = round(float(number) * UNITS[unit.upper()] * VISIBLE)
    return Card(f"a card of {text.strip()}", total, usable(total))


def usable(free: int) -> int:
    """The bytes that tensors may take of a card's free memory."""
    return max(0, round((free - CONTEXT) * UNFRAGMENTED))


def installed_card(device: str) -> Card:
    """A card of this machine, which PyTorch finds; memory of other processes is not usable."""
    import torch

    free, total = torch.cuda.mem_get_info(device)
    return Card(f"{torch.cuda.get_device_name(device)} ({device})", total, usable(free))


def host() -> Card:
    """This machine's memory, within a container's limit."""
    # Bytes of a page, and number of pages.
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    usable_bytes = min([_available(total), *_container_limits()])
    return Card("this machine", total, usable_bytes, is_gpu=False)


def _available(total: int) -> int:
    """The memory that programs can still take; where the system does not say, all of it."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return total
    for line in lines:
        # ``MemAvailable:   16132816 kB``, which are KiB.
        if line.startswith("MemAvailable:"):
            kibibytes = int(line.split()[1])
            return kibibytes * 1024
    return total


def _container_limits() -> list[int]:
    """What is left of the memory limits of this container."""
    left = []
    for limit_file, use_file in LIMITS:
        try:
            limit, use = int(Path(limit_file).read_text()), int(Path(use_file).read_text())
        except (OSError, ValueError):  # not this version of control groups, or its limit is the word max
            continue
        if limit > use:
            left.append(limit - use)
    return left
