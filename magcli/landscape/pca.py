"""The plane of a training run: top-2 principal components of its checkpoints, in two passes over the files.

Magistral (arXiv 2506.10910), section 7.1, stacks T checkpoints of W weights as X (T x W), subtracts the mean and
takes the top-2 eigenvectors of X^T X. X has rank below T, so the same plane follows from the T x T Gram matrix:

1. :func:`plane` reads every checkpoint once and accumulates, tensor by tensor, the Gram matrix of the differences to
   the *last* checkpoint w* (float32 differences in small chunks, summed in float64: accurate at any drift, unlike a
   Gram matrix of raw weights). Centring it gives the spectrum, the path in the plane and the distance from it.
2. ``write_components`` reads them again and writes c1 and c2 under the model's own tensor names.

Memory is bounded for any model size.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from magcli.errors import DataError
from magcli.landscape.checkpoints import Checkpoint, check_same, open_checkpoint, read_tensor
from magcli.landscape.gram import BLOCK, Sums, gram_sums, total
from magcli.landscape.kernels import Array
from magcli.model.tensors import Stored

RANK_ONE = 1e-12
"""Ratio of the second to the first eigenvalue below which the checkpoints lie on one line."""
STRAIGHT = 1e-4
"""Ratio of the second to the first eigenvalue below which a float32 Gram matrix is too coarse and float64 is used."""


@dataclass(frozen=True, slots=True)
class TensorDrift:
    """How far one tensor moved: ``drift`` = |w_T - w_0| / |w_0|, ``changed`` = fraction of its weights that differ
    between the first and the last checkpoint, ``variance`` = its share of the whole run's variance, ``explained`` =
    the shares of its own variance that lie along c1 and c2."""

    name: str
    size: int
    drift: float
    changed: float
    variance: float
    explained: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Plane:
    """The principal plane through w*, the last of T checkpoints, and the run projected onto it.

    ``folders`` are the checkpoints in training order, ``storage`` the dtypes found in them, ``tensors`` the figures for
    every tensor. ``distance`` (T,) is |x_t - w*|. ``explained`` (K,) are shares of variance, descending; ``sigma`` (K,)
    the singular values of the centred stack; K is T-1. ``mixing`` (2, T) has rows that sum to 0, with
    c_k = sum_t mixing[k, t] (x_t - w*). ``trajectory`` (T, 2) are the coordinates (a1, a2) of every checkpoint relative
    to w*; the start has positive a1. ``off_plane`` (T,) is the fraction of |x_t - w*| outside the plane. ``drift`` and
    ``changed`` are as in TensorDrift.
    """

    folders: tuple[Path, ...]
    storage: tuple[str, ...]
    sigma: Array
    explained: Array
    mixing: Array
    trajectory: Array
    off_plane: Array
    distance: Array
    drift: float
    changed: float
    tensors: tuple[TensorDrift, ...]

    @property
    def digest(self) -> str:
        """A digest that identifies this plane and thereby the weights of all checkpoints."""
        parts = (self.mixing, self.trajectory, self.distance, np.array([self.drift, self.changed]))
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


@dataclass(frozen=True, slots=True)
class Principal:
    """Eigenvalues (K,) of the centred Gram matrix, descending, and the first two components: ``mixing`` as in Plane."""

    values: Array
    mixing: Array


def plane(folders: Sequence[Path], *, block: int = BLOCK, cache: Path | None = None) -> Plane:
    """Find the principal plane of the checkpoints in ``folders``, in training order.

    Every file is read once, or not at all if the file ``cache`` has their sums from an earlier call; they are saved
    there.

    Raises:
        DataError: fewer than three checkpoints, missing, extra, reshaped or quantised tensors, truncated files, NaN or
            infinity, two equal checkpoints, or checkpoints on one line.
    """
    if len(folders) < 3:
        raise DataError(f"a landscape needs at least 3 checkpoints, got {len(folders)}")
    checkpoints = [open_checkpoint(folder) for folder in folders]
    check_same(checkpoints)
    sums = gram_sums(checkpoints, block, np.dtype(np.float32), cache)
    if precision_of(_second_share(total(sums.values()).gram)) == np.float64:
        sums = gram_sums(checkpoints, block, np.dtype(np.float64), cache)
    whole = total(sums.values())
    _check_distinct(folders, checkpoints, whole.gram.diagonal())
    if _second_share(whole.gram) < RANK_ONE:
        raise DataError(f"{folders[0]} to {folders[-1]}: the checkpoints lie on one line, not in a plane")
    found = _principal(whole.gram)
    trajectory, square = whole.gram @ found.mixing.T, whole.gram.diagonal().copy()
    distance, outside = np.sqrt(square), np.sqrt(np.maximum(square - (trajectory**2).sum(1), 0))
    variance = float(found.values.sum())
    return Plane(
        folders=tuple(folders),
        storage=tuple(sorted({str(t.dtype).removeprefix("torch.") for c in checkpoints for t in c.values()})),
        sigma=np.sqrt(found.values),
        explained=found.values / variance,
        mixing=found.mixing,
        trajectory=trajectory,
        off_plane=np.divide(outside, distance, out=np.zeros_like(outside), where=distance > 0),
        distance=distance,
        drift=_ratio(square[0], whole.start),
        changed=whole.changed / sum(t.size for t in checkpoints[-1].values()),
        tensors=tuple(_tensor_drift(checkpoints[-1][name], part, found, variance) for name, part in sums.items()),
    )


def precision_of(second: float) -> np.dtype[Any]:
    """The dtype that resolves a second eigenvalue of ``second`` times the first."""
    return np.dtype(np.float64 if second < STRAIGHT else np.float32)


def random_walk(count: int) -> Array:
    """Explained variance (count-1,) of a random walk of ``count`` checkpoints in very many dimensions.

    Antognini and Sohl-Dickstein (arXiv 1806.08805): 1 / (2 - 2 cos(pi k / T)), in the limit 6 / (pi k)^2, that is
    60.8, 15.2, 6.8 %. bf16 rounding of a perfectly straight path gives the same spectrum.
    """
    values = 1 / (2 - 2 * np.cos(np.pi * np.arange(1, count) / count))
    return np.asarray(values / values.sum())


def _principal(gram: Array) -> Principal:
    """All T-1 eigenvalues and the first two components, from the Gram matrix (T, T) of differences to w*.

    Signs are fixed: the start has positive a1, as in the paper, and c2's largest coefficient is positive.
    """
    values, vectors = np.linalg.eigh(_centred(gram))
    values, vectors = np.maximum(values[:0:-1], 0), vectors[:, :0:-1]
    mixing = vectors[:, :2].T / np.sqrt(values[:2, None])
    mixing -= mixing.mean(1, keepdims=True)
    first = -1 if gram[0] @ mixing[0] < 0 else 1
    second = -1 if mixing[1][np.abs(mixing[1]).argmax()] < 0 else 1
    return Principal(values, mixing * np.array([first, second])[:, None])


def _centred(gram: Array) -> Array:
    """The Gram matrix of the same points around their mean."""
    return np.asarray(gram - gram.mean(0) - gram.mean(1, keepdims=True) + gram.mean())


def _second_share(gram: Array) -> float:
    """The second eigenvalue divided by the first; 0 if nothing moves."""
    values = np.linalg.eigvalsh(_centred(gram))
    return float(values[-2] / values[-1]) if values[-1] > 0 else 0.0


def _tensor_drift(stored: Stored, part: Sums, found: Principal, variance: float) -> TensorDrift:
    gram = _centred(part.gram)
    own, axes = float(np.trace(gram)), found.mixing * np.sqrt(found.values[:2, None])
    along = tuple(float(axis @ gram @ axis) / own if own > 0 else 0.0 for axis in axes)
    changed, drift = part.changed / max(stored.size, 1), _ratio(float(part.gram[0, 0]), part.start)
    return TensorDrift(stored.name, stored.size, drift, changed, own / variance, along)


def _ratio(square: float, start: float) -> float:
    """The relative distance; infinite for a tensor that moved away from zero."""
    return float(np.sqrt(square / start)) if start > 0 else float("inf") if square > 0 else 0.0


def _check_distinct(folders: Sequence[Path], checkpoints: Sequence[Checkpoint], square: Array) -> None:
    """Refuse a run that never moved, and equal checkpoints; only those equally far from w* are compared."""
    if not square.any():
        raise DataError(f"{folders[0]} to {folders[-1]}: no weight changed in any checkpoint, so there is no plane")
    close = np.abs(square[:, None] - square) <= 1e-5 * np.maximum(square[:, None], square)
    for i, j in zip(*np.nonzero(np.triu(close, 1)), strict=True):
        if _equal(checkpoints[i], checkpoints[j]):
            raise DataError(f"{folders[i]} and {folders[j]} have the same weights; list each checkpoint once")


def _equal(one: Checkpoint, other: Checkpoint) -> bool:
    """Whether two checkpoints have the same weights, comparing the smallest tensors first."""
    tensors = sorted(one.values(), key=lambda stored: stored.size)
    return all(torch.equal(read_tensor(stored), read_tensor(other[stored.name])) for stored in tensors)
