"""The plane of a training run: top-2 principal components of its checkpoints, in two streaming reads.

Magistral (arXiv 2506.10910), section 7.1, stacks T checkpoints of W weights as X (T x W), subtracts the mean and
takes the top-2 eigenvectors of X^T X. X has rank below T, so the same plane follows from the T x T Gram matrix:

1. :func:`plane` reads every checkpoint once and forms, tensor by tensor, the Gram of the differences to the *last*
   checkpoint w* (float32 differences in small blocks, summed in float64: exact enough at any drift, where a Gram
   of raw weights is not). Centring it gives the spectrum, the path in the plane and the distance from it.
2. ``write_components`` reads them once more and writes c1 and c2 under the model's own tensor names.

Memory is bounded, whatever the model's size.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from magcli.errors import DataError
from magcli.landscape.checkpoints import Checkpoint, check_same, open_checkpoint, read_tensor
from magcli.landscape.gram import BLOCK, Sums, added
from magcli.landscape.kept import sums_of
from magcli.landscape.lanczos import lanczos, read_moments
from magcli.landscape.principal import Array, Principal, centred, principal, second_share
from magcli.model.tensors import Stored

RANK_ONE = 1e-12
"""Second eigenvalue over the first, below which the checkpoints lie on one line."""
STRAIGHT = 1e-4
"""Second eigenvalue over the first, below which a float32 Gram is too coarse and float64 is used."""


@dataclass(frozen=True, slots=True)
class TensorDrift:
    """How far one tensor moved: ``drift`` = |w_T - w_0| / |w_0|, ``changed`` = share of its weights that differ
    between the first and the last checkpoint, ``variance`` = its share of the whole run's variance, ``explained`` =
    the shares of its own variance that lie along c1 and c2 (empty where the plane was found without a Gram)."""

    name: str
    size: int
    drift: float
    changed: float
    variance: float
    explained: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Plane:
    """The principal plane through w*, the last of T checkpoints, and the run as seen in it.

    ``folders`` are the checkpoints in training order, ``storage`` the dtypes found in them, ``tensors`` the same
    figures for every tensor. ``distance`` (T,) is |x_t - w*|.
    ``explained`` (K,) are shares of variance, falling; ``sigma`` (K,) the singular values of the centred stack; K is
    T-1, or 2 where Lanczos found the plane.
    ``mixing`` (2, T) has rows that sum to 0, with c_k = sum_t mixing[k, t] (x_t - w*). ``trajectory`` (T, 2) are the
    coordinates (a1, a2) of every checkpoint relative to w*; the start lies at positive a1. ``off_plane`` (T,) is
    the part of |x_t - w*| outside the plane, as a share of it. ``drift`` and ``changed`` are as in TensorDrift.
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
        """What tells this plane from any other: it stands for every weight of every checkpoint."""
        parts = (self.mixing, self.trajectory, self.distance, np.array([self.drift, self.changed]))
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def plane(
    folders: Sequence[Path],
    *,
    block: int = BLOCK,
    method: Literal["gram", "lanczos"] = "gram",
    kept: Path | None = None,
) -> Plane:
    """Find the principal plane of the checkpoints in ``folders``, in training order.

    ``gram`` takes one read of every file, none where ``kept`` (a file) has the sums of these files from an earlier
    time, and leaves them there. ``lanczos`` takes several reads; it is there to check the other.

    Raises DataError, naming file and tensor, for fewer than three checkpoints, missing, extra, reshaped or
    quantised tensors, truncated files, NaN or infinity, two equal checkpoints, and checkpoints on one line.
    """
    if len(folders) < 3:
        raise DataError(f"{len(folders)} checkpoints span no plane; a landscape needs at least 3")
    checkpoints = [open_checkpoint(folder) for folder in folders]
    check_same(checkpoints)
    if method == "gram":
        found, parts = _by_gram(folders, checkpoints, block, kept)
    else:
        found, parts = _by_lanczos(folders, checkpoints, block)
    return _described(folders, checkpoints, found, parts)


def precision_of(second: float) -> np.dtype[Any]:
    """The dtype that resolves a second eigenvalue of ``second`` times the first."""
    return np.dtype(np.float64 if second < STRAIGHT else np.float32)


class Moved(NamedTuple):
    """What is known of one tensor: |w_0 - w*|^2, |w_0|^2, weights changed, variance, its shares along c1 and c2."""

    distance: float
    start: float
    changed: int
    variance: float
    explained: tuple[float, ...] = ()


Found = tuple[Principal, dict[str, Moved]]


def _by_gram(folders: Sequence[Path], checkpoints: Sequence[Checkpoint], block: int, kept: Path | None) -> Found:
    sums = sums_of(checkpoints, block, np.dtype(np.float32), kept)
    if precision_of(second_share(added(sums.values()).gram)) == np.float64:
        sums = sums_of(checkpoints, block, np.dtype(np.float64), kept)
    gram = added(sums.values()).gram
    _check_distinct(folders, checkpoints, gram.diagonal())
    _check_rank(folders, second_share(gram))
    found = principal(gram)
    return found, {name: _moved(part, found) for name, part in sums.items()}


def _by_lanczos(folders: Sequence[Path], checkpoints: Sequence[Checkpoint], block: int) -> Found:
    moments = read_moments(checkpoints, block)
    whole = added(moments.values())
    _check_distinct(folders, checkpoints, whole.square)
    found = lanczos(checkpoints, whole, block)
    _check_rank(folders, float(found.values[1] / found.values[0]))
    parts = {name: Moved(float(m.square[0]), m.start, m.changed, m.variance) for name, m in moments.items()}
    return found, parts


def _moved(part: Sums, found: Principal) -> Moved:
    gram = centred(part.gram)
    variance, axes = float(np.trace(gram)), found.mixing * np.sqrt(found.values[:2, None])
    along = [float(axis @ gram @ axis) / variance if variance > 0 else 0.0 for axis in axes]
    return Moved(float(part.gram[0, 0]), part.start, part.changed, variance, tuple(along))


def _described(
    folders: Sequence[Path], checkpoints: Sequence[Checkpoint], found: Principal, parts: dict[str, Moved]
) -> Plane:
    distance = np.sqrt(found.square)
    outside = np.sqrt(np.maximum(found.square - (found.trajectory**2).sum(1), 0))
    moved = list(parts.values())
    return Plane(
        folders=tuple(folders),
        storage=tuple(sorted({str(t.dtype).removeprefix("torch.") for c in checkpoints for t in c.values()})),
        sigma=np.sqrt(found.values),
        explained=found.values / found.variance,
        mixing=found.mixing,
        trajectory=found.trajectory,
        off_plane=np.divide(outside, distance, out=np.zeros_like(outside), where=distance > 0),
        distance=distance,
        drift=_ratio(sum(part.distance for part in moved), sum(part.start for part in moved)),
        changed=sum(part.changed for part in moved) / sum(t.size for t in checkpoints[-1].values()),
        tensors=tuple(_tensor_drift(checkpoints[-1][name], part, found.variance) for name, part in parts.items()),
    )


def _tensor_drift(stored: Stored, part: Moved, variance: float) -> TensorDrift:
    changed = part.changed / max(stored.size, 1)
    drift, share = _ratio(part.distance, part.start), part.variance / variance
    return TensorDrift(stored.name, stored.size, drift, changed, share, part.explained)


def _ratio(square: float, start: float) -> float:
    """How far as a share of where it began; infinite where that was at zero and has moved."""
    return float(np.sqrt(square / start)) if start > 0 else float("inf") if square > 0 else 0.0


def _check_rank(folders: Sequence[Path], second: float) -> None:
    if second < RANK_ONE:
        raise DataError(f"{folders[0]} to {folders[-1]}: the checkpoints lie on one line, so there is no second axis")


def _check_distinct(folders: Sequence[Path], checkpoints: Sequence[Checkpoint], square: Array) -> None:
    """Refuse a run that never moved, and equal checkpoints: only those as far from w* as each other are compared."""
    if not square.any():
        raise DataError(f"{folders[0]} to {folders[-1]}: no weight changed in any checkpoint, so there is no path")
    close = np.abs(square[:, None] - square) <= 1e-5 * np.maximum(square[:, None], square)
    for i, j in zip(*np.nonzero(np.triu(close, 1)), strict=True):
        if _equal(checkpoints[i], checkpoints[j]):
            raise DataError(f"{folders[i]} and {folders[j]} hold the same weights; give each checkpoint once")


def _equal(one: Checkpoint, other: Checkpoint) -> bool:
    """Whether two checkpoints hold the same values; the smallest tensors are looked at first."""
    tensors = sorted(one.values(), key=lambda stored: stored.size)
    return all(torch.equal(read_tensor(stored), read_tensor(other[stored.name])) for stored in tensors)
