"""Freed memory stays with the process for reuse."""

import platform
import subprocess
import sys

import pytest
import torch

from magcli.model.load import prepare_device

FAULTS = """
import resource, sys
import torch
if sys.argv[1] == "keep":
    from magcli.model.allocator import keep_freed_memory
    assert keep_freed_memory()
def touch(size):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.zeros(size)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
touch(1 << 24)
print(touch(1 << 23))
"""


def faults_of_the_second(how):
    """Page faults of a tensor half as large as the previous one: one of the same size may just not fit."""
    done = subprocess.run([sys.executable, "-c", FAULTS, how], check=True, capture_output=True, text=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_a_large_tensor_reuses_the_pages_of_a_freed_one():
    assert faults_of_the_second("plain") > 10 * max(faults_of_the_second("keep"), 10)


KEPT = """
import sys
import torch
from magcli.model.allocator import FreedMemory, keep_freed_memory, resident_bytes
keep_freed_memory()
freed = FreedMemory()
freed.bound(1 << 40)
needed = resident_bytes()
times_needed, left = float(sys.argv[1]), int(sys.argv[2])
large = [torch.ones(1 << 20) for _ in range(int(times_needed * needed) >> 22)]
stays = torch.ones(1)
del large
print(resident_bytes() / needed)
freed.bound(left)
print(resident_bytes() / needed)
"""


def kept_and_bounded(times_needed: float, left: int) -> tuple[float, float]:
    """The memory of a process, over what it needs, that frees so much more of it: before and after it is bounded."""
    command = [sys.executable, "-c", KEPT, str(times_needed), str(left)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    kept, bounded = map(float, done.stdout.split())
    return kept, bounded


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc_trim is glibc's")
def test_freed_memory_goes_back_to_the_system_where_it_is_more_than_what_is_needed() -> None:
    kept, bounded = kept_and_bounded(3, left=1 << 40)
    assert kept > 3
    assert bounded < 1.5


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc_trim is glibc's")
def test_freed_memory_is_kept_only_where_the_machine_has_as_much_left() -> None:
    kept, bounded = kept_and_bounded(0.7, left=1 << 40)
    assert min(kept, bounded) > 1.5
    kept, bounded = kept_and_bounded(0.7, left=1 << 20)
    assert kept > 1.5
    assert bounded < 1.3


def test_attention_does_without_cudnn_on_a_gpu() -> None:
    before = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        torch.backends.cuda.enable_cudnn_sdp(True)
        prepare_device("cpu")
        assert torch.backends.cuda.cudnn_sdp_enabled()
        prepare_device("cuda:1")
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
