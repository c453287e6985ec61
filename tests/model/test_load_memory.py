"""Freed memory stays with the process for reuse."""

import platform
import subprocess
import sys

import pytest
import torch

from magcli.model.compute import prepare_device

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
import torch
from magcli.model.allocator import FreedMemory, keep_freed_memory, resident_bytes
keep_freed_memory()
freed = FreedMemory()
freed.bound()
needed = resident_bytes()
large = [torch.ones(1 << 20) for _ in range(3 * needed >> 22)]
stays = torch.ones(1)
del large
print(resident_bytes() / needed)
freed.bound()
print(resident_bytes() / needed)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc_trim is glibc's")
def test_freed_memory_goes_back_to_the_system_where_it_is_more_than_what_is_needed() -> None:
    done = subprocess.run([sys.executable, "-c", KEPT], check=True, capture_output=True, text=True)
    kept, bounded = map(float, done.stdout.split())
    assert kept > 3
    assert bounded < 1.5


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
