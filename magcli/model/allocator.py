"""Memory of the host that this process freed: kept for reuse, within bounds."""

import ctypes
import platform
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

TRIM_THRESHOLD = -1
MMAP_THRESHOLD = -3
MMAP_MAX = -4
ARENA_MAX = -8
"""Parameters of glibc's ``mallopt``, from malloc.h."""
LARGE_ALLOCATION, DEFAULT_MMAP_MAX = 1 << 20, 1 << 16
"""The bytes from which an allocation is mapped while memory is returned, and glibc's limit of such allocations."""
UNLIMITED = -1
"""Interpreted as the largest number of bytes."""


def keep_freed_memory() -> bool:
    """Let this process keep freed memory for reuse, so its memory use never shrinks; returns False without glibc.

    By default the pages of a large freed tensor go back to the system, and those of the next one are mapped and zeroed
    again one by one: a fifth of the time of a train step of 135M parameters. Threads started later share one heap.
    """
    # No allocation is mapped by itself, the heap is never trimmed, and there is one heap.
    return _set_allocator({MMAP_MAX: 0, TRIM_THRESHOLD: UNLIMITED, ARENA_MAX: 1})


@contextmanager
def freed_memory_returned(device: str) -> Iterator[None]:
    """Inside the block, large freed tensors go back to the system; afterwards they are kept again.

    For work whose memory is not needed again: kept, it would be scattered between what stays. On a GPU nothing changes.
    """
    on_cpu = not device.startswith("cuda")
    if on_cpu:
        _set_allocator({MMAP_THRESHOLD: LARGE_ALLOCATION, MMAP_MAX: DEFAULT_MMAP_MAX})
    try:
        yield
    finally:
        if on_cpu:
            keep_freed_memory()


class FreedMemory:
    """Returns freed memory to the system where a long run keeps too much of it.

    Micro-batches have ever new sizes, whose tensors do not fit into the gaps that others left, so the heap grows: that
    of RL of 135M weights from 4 to 10 GB in 28 updates, of which 3 were in use.
    """

    def __init__(self) -> None:
        self._needed = 0

    def bound(self, left: int) -> None:
        """Return it if the process keeps more than it needs, or more than the machine has ``left``; call between steps.

        It needs what it had when this was last done. ``left`` are the bytes that programs can still take.
        """
        if not has_glibc():
            return
        kept = resident_bytes() - self._needed
        # As much again as is needed, and as the machine has left, may be kept.
        if kept <= min(self._needed, left):
            return
        ctypes.CDLL(None).malloc_trim(0)
        self._needed = resident_bytes()


@cache
def has_glibc() -> bool:
    """Whether this is Linux with glibc's allocator."""
    return platform.libc_ver()[0] == "glibc"


def resident_bytes() -> int:
    """The memory of this process that is in RAM, as Linux counts it."""
    # The second field of ``statm`` is the resident set, in pages.
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _set_allocator(options: Mapping[int, int]) -> bool:
    """Set parameters of glibc's allocator; False where there is another one."""
    if not has_glibc():
        return False
    # ``None``: the C library that this process has loaded.
    set_option = ctypes.CDLL(None).mallopt
    done = [set_option(*option) for option in options.items()]
    return all(done)
