"""Dtype and number of threads of a model in training and sampling, on CPUs and GPUs.

On a CPU the dtype that ``auto`` stands for is measured: CPU flags are unreliable under emulation and in virtual
machines, and bfloat16 without hardware support is up to 45 times slower than float32. On CUDA it depends on the compute
capability. The number of threads depends on the size of the matrix products.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from statistics import median
from typing import Literal, NamedTuple

import torch
from torch.nn.functional import linear

from magcli.choices import Format
from magcli.model.model import Model

Purpose = Literal["training", "sampling"]

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}

ROWS = 32
"""Rows of the measured products, as in a decode step; with more the ratio hardly changes."""
PROBE_ROWS = 4
TOO_SLOW = 8.0
"""If bf16 is this many times slower on a few rows, it is not measured any further."""
MIN_WEIGHTS = 1 << 17
"""Layers with fewer weights, such as 256 x 512, are computed in float32: call overhead dominates there, and the ratio
measured for the demo's model, 128 x 384, changes from 0.9 to 1.1 within a minute."""
MAX_WIDTH = 2048
"""Widest layer that is measured; beyond it the ratio no longer changes."""
REPEATS = 9
"""How often the formats are compared; the median counts, since other work on the machine can slow down one of them."""
SECONDS = 0.001
"""Measuring time of a comparison for each format."""
CALLS = 3
"""Minimum number of calls for each format in a comparison after the first; the shortest counts."""
MIN_SPEEDUP = 1.1
"""How much faster bf16 must be to be worth its rounding."""
TWO_THREADS = 1 << 22
"""Multiply-adds from which a matrix product benefits from a second thread: 64 rows of a layer of 256 x 256."""


class Choice(NamedTuple):
    """A dtype and the reason for it."""

    format: Format
    reason: str


def choose(model: Model, device: str, purpose: Purpose) -> Choice:
    """The dtype that ``auto`` stands for, for a model on a device; measured once per process.

    The model's config determines the layer sizes. For training, the products of the backward pass are measured too.
    """
    return choose_for(*model.widths, device, purpose)


def choose_for(hidden: int, inner: int, device: str, purpose: Purpose) -> Choice:
    """The same for layers of ``inner`` outputs and ``hidden`` inputs."""
    if device.startswith("cuda"):
        return _choice_for_gpu(device)
    if hidden * inner < MIN_WEIGHTS:
        return Choice("fp32", "layers are too small for bf16 to be faster")
    return _measured(device, min(hidden, MAX_WIDTH), min(inner, MAX_WIDTH), purpose)


def _choice_for_gpu(device: str) -> Choice:
    """The dtype for a GPU; bf16 where this machine has none, since the processes of a run may be on other machines."""
    try:
        major, minor = torch.cuda.get_device_capability(device)
    except (RuntimeError, AssertionError):  # no driver, or (AssertionError) no CUDA in this build
        return Choice("bf16", "this machine has no GPU to ask")
    capability = f"compute capability {major}.{minor}"
    return Choice("bf16", capability) if major >= 8 else Choice("fp32", f"{capability}, and bf16 needs 8.0")


def use_threads(model: Model, rows: int) -> int:
    """Set the number of torch's threads, all or one, for matrix products of ``rows`` rows; returns it.

    It depends on sizes alone, so that a resumed run computes the same. ``OMP_NUM_THREADS`` takes precedence.
    """
    hidden, inner = model.widths
    if "OMP_NUM_THREADS" not in os.environ and rows * hidden * inner < TWO_THREADS:
        torch.set_num_threads(1)
    return torch.get_num_threads()


@cache
def _measured(device: str, hidden: int, inner: int, purpose: Purpose) -> Choice:
    def works(rows: int) -> list[Callable[[], object]]:
        return [_products(device, rows, hidden, inner, dtype, purpose) for dtype in DTYPES.values()]

    with one_thread():
        speed = _speedup(works(PROBE_ROWS), 1, 0.0)
        if speed > 1 / TOO_SLOW:  # else the longer measurement would take very long
            speed = _speedup(works(ROWS), REPEATS, SECONDS)
    if speed >= MIN_SPEEDUP:
        return Choice("bf16", f"{speed:.1f} times as fast as fp32 here")
    return Choice("fp32", f"bf16 is {speed:.2g} times as fast here")


def _products(
    device: str, rows: int, hidden: int, inner: int, dtype: torch.dtype, purpose: Purpose
) -> Callable[[], object]:
    """The matrix products of a linear layer: its output, and in training the gradients of its weights and inputs."""
    weights = torch.randn(inner, hidden, device=device, dtype=dtype)
    inputs = torch.randn(rows, hidden, device=device, dtype=dtype)

    @torch.inference_mode()
    def compute() -> object:
        outputs = linear(inputs, weights)
        products = [outputs]
        if purpose == "training":
            products += [outputs.T @ inputs, outputs @ weights]
        return [product[0, 0].item() for product in products]  # waits for the device

    return compute


def _speedup(works: Sequence[Callable[[], object]], repeats: int, budget: float) -> float:
    """How many times as fast the first of two functions is as the second: the median of several comparisons."""
    speeds = []
    for _ in range(repeats):
        bf16, fp32 = _shortest(works, budget)
        speeds.append(fp32 / bf16)
    return median(speeds)


def _shortest(works: Sequence[Callable[[], object]], budget: float) -> list[float]:
    """Seconds of the shortest call of each function, called in turn; the first, warm-up calls do not count."""
    for work in works:
        work()
    shortest = [float("inf")] * len(works)
    spent = 0.0
    calls = 0
    while calls < CALLS or spent < budget * len(works):
        for number, work in enumerate(works):
            start = time.perf_counter()
            work()
            took = time.perf_counter() - start
            shortest[number] = min(shortest[number], took)
            spent += took
        calls += 1
    return shortest


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread: the split over threads decides which kernel computes a row, and so its rounding."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
