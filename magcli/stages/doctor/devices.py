"""The checks of `magcli doctor` that need PyTorch: the device, its speed, and the way of weights to generators."""

import re
import shutil
import time
from pathlib import Path
from typing import get_args

import torch
from torch.backends import cuda

from magcli.errors import EnvironmentFault
from magcli.generate.weights.matching import SHARED_MEMORY
from magcli.model import compute
from magcli.model.load import prepare_device

DRIVER = Path("/proc/driver/nvidia/version")

LAYER = (576, 1536)
"""Hidden and intermediate size of the layers on which number formats are timed: those of a model of 135M."""

SPEED_SECONDS = 0.3
"""How long matrix products are timed for each dtype."""


def description(device: str) -> str:
    """A device, and the number formats that `auto` stands for on it."""
    name = _gpu(device) if device.startswith("cuda") else f"cpu, {torch.get_num_threads()} threads"
    descriptions = []
    for purpose in get_args(compute.Purpose):
        choice = compute.choose_for(*LAYER, device, purpose)
        descriptions.append(f"{purpose} in {choice.format} ({choice.reason})")
    return f"{name}; auto is {', '.join(descriptions)}"


def _gpu(device: str) -> str:
    """A GPU: name, compute capability, memory, driver, CUDA, and the kernel that computes attention."""
    if not torch.cuda.is_available():
        raise EnvironmentFault(f"PyTorch {torch.__version__} finds no GPU; see docs/gpu.md for driver and installation")
    free, total = torch.cuda.mem_get_info(device)
    major, minor = torch.cuda.get_device_capability(device)
    parts = [
        torch.cuda.get_device_name(device),
        f"compute capability {major}.{minor}",
        f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free",
        f"driver {_driver()}",
        f"CUDA {torch.version.cuda}",
        f"attention by {_attention_kernel(device)}",
    ]
    return ", ".join(parts)


def _driver(file: Path = DRIVER) -> str:
    """The version of NVIDIA's driver."""
    try:
        match = re.search(r"\b(\d+\.\d+(?:\.\d+)?)\b", file.read_text())
    except OSError:
        return "unknown"
    return match[1] if match else "unknown"


def _attention_kernel(device: str) -> str:
    """PyTorch's kernel for causal attention with grouped heads in bf16."""
    prepare_device(device)
    # (batch, heads, tokens, head size).
    query = torch.zeros(1, 8, 64, 64, dtype=torch.bfloat16, device=device)
    # Two heads of keys for eight of queries.
    key = query[:, :2]
    # Without a mask or dropout, causal, with grouped heads.
    params = cuda.SDPAParams(query, key, key, None, 0.0, True, True)
    if cuda.can_use_flash_attention(params):
        return "FlashAttention"
    return "the memory-efficient kernel" if cuda.can_use_efficient_attention(params) else "the quadratic kernel"


def shared_memory() -> str:
    """The space for weights on their way to generators; containers have little of it by default."""
    if not SHARED_MEMORY.is_dir():
        return "none; weights for generators go through the folder for temporary files"
    # Docker gives a container 64 MiB unless it is told otherwise.
    free = shutil.disk_usage(SHARED_MEMORY).free / 2**30
    hint = "; weights for generators need it: docker run --ipc=host, or --shm-size" if free < 1 else ""
    return f"{free:.1f} GiB free in {SHARED_MEMORY}{hint}"


def speed(device: str) -> str:
    """The speed of matrix products in each number format."""
    float32 = _multiply_speed(device, torch.float32)
    bf16 = _multiply_speed(device, torch.bfloat16)
    return f"float32 {float32:,.0f} GFLOP/s, bf16 {bf16:,.0f} GFLOP/s"


def _multiply_speed(device: str, dtype: torch.dtype) -> float:
    """GFLOP/s of square matrix products, large enough to fill the device."""
    size = 8192 if device.startswith("cuda") else 1024
    matrix = torch.randn(size, size, device=device, dtype=dtype)
    (matrix @ matrix).sum().item()  # the first product also loads kernels
    start = time.monotonic()
    products = 0
    while time.monotonic() - start < SPEED_SECONDS:
        (matrix @ matrix).sum().item()  # waits for the device
        products += 1
    seconds = time.monotonic() - start
    operations = 2 * size**3 * products  # a multiplication and an addition each
    return operations / seconds / 1e9
