"""Weights at a point of the plane: w* + a1 c1 + a2 c2, always recomputed from w*, never stepped to.

Adding and subtracting steps in bf16 does not come back to where it began, and bf16 rounding to nearest swallows most
of a small step. So the sum is formed in float32 and, where the engine runs in bf16, rounded once: with a dither that
is a fixed hash of the weight's name and index, the same at every point, so the step survives in expectation and
neighbouring points differ only where they should.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from magcli.landscape.checkpoints import Checkpoint, check_same, open_checkpoint, read_tensor
from magcli.landscape.components import COMPONENTS
from magcli.model.tensors import Stored, read_header

Rounding = Literal["none", "nearest", "dither"]
PIECE = 1 << 16
"""Elements that are hashed and rounded at a time, so that the intermediate results stay in the cache."""


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Where weights lie: projections of w - w* on c1 and c2, and the length of what is outside the plane."""

    a1: float
    a2: float
    off_plane: float


def perturbed(
    last: Path, components: Path, a1: float, a2: float, *, round: Rounding = "none"
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor of w* + a1 c1 + a2 c2 by name, one in memory at a time; a tied ``lm_head`` is not among them.

    ``last`` is the folder of w*, ``components`` the one that ``write_components`` filled. With ``round="none"``
    tensors are float32, at (0, 0) exactly w*. ``nearest`` and ``dither`` give bfloat16, at (0, 0) exactly w* rounded
    to nearest; ``dither`` then rounds the displaced weight up or down with a probability that keeps its mean.

    Raises DataError where the components are missing, damaged, or of another model.
    """
    origin, axes = _open(last, components)
    for name, stored in origin.items():
        base = read_tensor(stored).float()
        step = _step([axis[name] for axis in axes], (a1, a2)) if a1 or a2 else None
        yield name, _rounded(base, step, round, name)


def coordinates(weights: Iterable[tuple[str, torch.Tensor]], last: Path, components: Path) -> Coordinates:
    """Project ``weights``, for example those really loaded after rounding, onto the plane; summed in float64."""
    origin, axes = _open(last, components)
    along, square = np.zeros(2), 0.0
    for name, tensor in weights:
        moved = (tensor.float() - read_tensor(origin[name]).float()).flatten().double()
        along += [float(moved @ read_tensor(axis[name]).flatten().double()) for axis in axes]
        square += float(moved @ moved)
    outside = max(square - float(along @ along), 0.0)
    return Coordinates(float(along[0]), float(along[1]), outside**0.5)


def dithered(values: torch.Tensor, key: int) -> torch.Tensor:
    """Round float32 to bfloat16 up or down by a hash of ``key`` and the flat index; exact values stay exact."""
    bits = values.contiguous().numpy().view(np.uint32).reshape(-1)
    out = np.empty(bits.size, np.uint16)
    for start in range(0, bits.size, PIECE):
        piece = bits[start : start + PIECE]
        index = np.arange(start, start + piece.size, dtype=np.uint64).astype(np.uint32)
        out[start : start + PIECE] = (piece + (hashed(index ^ np.uint32(key)) >> 16)) >> 16
    return torch.from_numpy(out).view(torch.bfloat16).view(values.shape)


def hashed(values: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """The finaliser of MurmurHash3: every input bit moves every output bit with probability about one half."""
    values = (values ^ (values >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    values = (values ^ (values >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return values ^ (values >> np.uint32(16))


def _open(last: Path, components: Path) -> tuple[Checkpoint, list[Checkpoint]]:
    origin = open_checkpoint(last)
    axes: list[Checkpoint] = [{stored.name: stored for stored in read_header(components / name)} for name in COMPONENTS]
    for axis in axes:
        check_same([axis, origin])
    return origin, axes


def _step(axes: Sequence[Stored], along: Sequence[float]) -> torch.Tensor:
    """a1 c1 + a2 c2 of one tensor, in float32."""
    first, second = (read_tensor(axis).mul_(a) for axis, a in zip(axes, along, strict=True))
    return first.add_(second)


def _rounded(base: torch.Tensor, step: torch.Tensor | None, round: Rounding, name: str) -> torch.Tensor:
    if round == "none":
        return base if step is None else base.add_(step)
    if step is None:
        return base.bfloat16()
    if round == "nearest":
        return base.add_(step).bfloat16()
    return dithered(base.bfloat16().float().add_(step), zlib.crc32(name.encode()))
