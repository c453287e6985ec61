"""How a model is computed, in training and sampling, on CPUs and GPUs: the one place that decides.

The number format that ``auto`` stands for is measured on a CPU: instruction flags lie under emulation and in virtual
machines, and bfloat16 without hardware support is up to 45 times slower than float32. On CUDA it goes by compute
capability. Threads go by the size of the matrix products.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch.nn.functional import linear

from magcli.model.plain import decoder_config

Format = Literal["bf16", "fp32"]
Purpose = Literal["training", "sampling"]

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}

ROWS = 32
"""Rows of the measured products, as many as a decode step has; more change the ratio little."""
PROBE_ROWS = 4
HOPELESS = 8.0
"""A format this many times slower on a few rows is not measured any further."""
SMALLEST = 1 << 17
"""Weights of a layer, such as 256 x 512, below which a model is computed in float32. There calls, not products, take
the time: the measured ratio of the demo's model, 128 x 384, changes from 0.9 to 1.1 within a minute."""
WIDEST = 2048
"""Widest layer that is measured; beyond it the ratio of both formats no longer changes."""
SECONDS = 0.005
"""Time given to each format."""
CALLS = 3
"""Calls of each format at least, besides the first; the shortest counts, since other work slows some."""
ADVANTAGE = 1.1
"""How much faster bf16 must be: below that its rounding is not worth it."""
SHARED = 1 << 22
"""Multiply-adds from which a matrix product gains by a second thread: 64 rows of a layer of 256 x 256."""


class Choice(NamedTuple):
    """A number format, and in one clause why."""

    format: Format
    reason: str


def choose(model: str, device: str, purpose: Purpose) -> Choice:
    """What ``auto`` comes to for a model on a device; measured once in a process.

    Args:
        model: local folder or hub id, whose layer widths are measured.
        device: torch's name of the device.
        purpose: training computes gradients too.

    Raises:
        EnvironmentFault: the model's config cannot be read.
    """
    return choose_for(*_widths(model), device, purpose)


def choose_for(hidden: int, inner: int, device: str, purpose: Purpose) -> Choice:
    """The same for layers of ``inner`` outputs and ``hidden`` inputs."""
    if device.startswith("cuda"):
        return _by_capability(device)
    if hidden * inner < SMALLEST:
        return Choice("fp32", "bf16 does not pay for layers this small")
    return _measured(device, min(hidden, WIDEST), min(inner, WIDEST), purpose)


def use_threads(model: str, rows: int) -> int:
    """Have torch compute on as many threads as pay for products of ``rows`` rows; returns how many.

    All that it has, or one. That depends on sizes alone, so that a run that goes on computes the same.
    ``OMP_NUM_THREADS`` wins.

    Raises:
        EnvironmentFault: the model's config cannot be read.
    """
    hidden, inner = _widths(model)
    if "OMP_NUM_THREADS" not in os.environ and rows * hidden * inner < SHARED:
        torch.set_num_threads(1)
    return torch.get_num_threads()


def _widths(model: str) -> tuple[int, int]:
    """The width of a model's hidden states, and that within its feed-forward networks."""
    if plain := decoder_config(Path(model)):
        return plain.hidden_size, plain.intermediate_size
    from magcli.model.load import load_config

    config = load_config(model).get_text_config()
    return config.hidden_size, getattr(config, "intermediate_size", None) or 4 * config.hidden_size


def dtype_of(name: Literal["auto", "bf16", "fp32"], model: str, device: str) -> torch.dtype:
    """The type of a sampling engine's weights by the name of an option."""
    return DTYPES[choose(model, device, "sampling").format if name == "auto" else name]


def _by_capability(device: str) -> Choice:
    major, minor = torch.cuda.get_device_capability(device)
    if major >= 8:
        return Choice("bf16", f"compute capability {major}.{minor}")
    return Choice("fp32", f"compute capability {major}.{minor}, and bf16 needs 8.0")


@cache
def _measured(device: str, hidden: int, inner: int, purpose: Purpose) -> Choice:
    def seconds(rows: int, budget: float) -> list[float]:
        return _shortest([_products(device, rows, hidden, inner, dtype, purpose) for dtype in DTYPES.values()], budget)

    with one_thread():
        bf16, fp32 = seconds(PROBE_ROWS, 0.0)
        if bf16 < HOPELESS * fp32:
            bf16, fp32 = seconds(ROWS, SECONDS)
    speed = fp32 / bf16
    if speed >= ADVANTAGE:
        return Choice("bf16", f"{speed:.1f} times as fast as fp32 here")
    return Choice("fp32", f"bf16 has {speed:.2g} times its speed here")


def _products(
    device: str, rows: int, hidden: int, inner: int, dtype: torch.dtype, purpose: Purpose
) -> Callable[[], object]:
    """The matrix products of a linear layer: its output, and in training the gradients of its weights and inputs."""
    weights = torch.randn(inner, hidden, device=device, dtype=dtype)
    inputs = torch.randn(rows, hidden, device=device, dtype=dtype)

    @torch.inference_mode()
    def compute() -> object:
        outputs = linear(inputs, weights)
        products = (outputs, outputs.T @ inputs, outputs @ weights) if purpose == "training" else (outputs,)
        return [product[0, 0].item() for product in products]

    return compute


def _shortest(works: Sequence[Callable[[], object]], budget: float) -> list[float]:
    """Seconds of the shortest of several calls of each, made in turn; the first ones, which set up, do not count."""
    for work in works:
        work()
    shortest, spent, calls = [float("inf")] * len(works), 0.0, 0
    while calls < CALLS or spent < budget * len(works):
        for number, work in enumerate(works):
            begun = time.perf_counter()
            work()
            took = time.perf_counter() - begun
            shortest[number], spent = min(shortest[number], took), spent + took
        calls += 1
    return shortest


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread: how a matrix product is shared out decides which kernel a row gets, and so its bits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
