"""The plane of a training run: top-2 principal components of its checkpoints, in two passes over the files.

Magistral (arXiv 2506.10910), section 7.1, stacks T checkpoints of W weights as X (T x W), subtracts the mean and
takes the top-2 eigenvectors of X^T X. X has rank below T, so the same plane follows from the T x T Gram matrix:

1. :func:`plane` reads every checkpoint once and accumulates, tensor by tensor, the Gram matrix of the differences to
   the *last* checkpoint w* (float32 differences in small chunks, summed in float64: accurate at any drift, unlike a
   Gram matrix of raw weights). Centring it gives the spectrum, the path in the plane and the distance from it.
2. ``write_components`` reads them again and writes c1 and c2 under the model's own tensor names.

The paper names Lanczos iteration, which finds the same plane in several passes (``tests/landscape/test_lanczos.py``).

How to interpret a plane: a random walk in very many dimensions shows 60.8 / 15.2 / 6.8 % of variance and arcs
(Antognini and Sohl-Dickstein, arXiv 1806.08805). bf16 weights on a perfectly straight path show the same if most steps
are smaller than the gap between neighbouring values: each weight then stays or jumps by one gap.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from magcli.errors import DataError
from magcli.landscape.checkpoints import (
    Checkpoint,
    check_same,
    have_sums,
    open_checkpoint,
    piece_buffer,
    read_tensor,
)
from magcli.landscape.gram import (
    BLOCK,
    Array,
    Sums,
    gram_sums,
    total,
)
from magcli.model.weights.tensors import Stored

RANK_ONE = 1e-12
"""Ratio of the second to the first eigenvalue below which the checkpoints lie on one line."""
STRAIGHT = 1e-4
"""Ratio of the second to the first eigenvalue below which a float32 Gram matrix is too coarse and float64 is used."""

WALK_TOLERANCE = 0.03
"""Maximum difference of the first three shares of variance from those of a random walk."""
ONE_GAP = 1.5
"""Mean step of the changed weights, in gaps of the number format, up to which rounding alone explains it."""
RMS_GAP = 0.65
"""RMS gap of Gaussian weights, relative to the format's epsilon times their RMS."""


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
    """Eigenvalues (K,) of the centred Gram matrix, descending; ``variance``, their sum; and the first two components.

    Component k is c_k = sum_t mixing[k, t] (x_t - w*) with ``mixing`` (2, T), whose rows sum to 0; ``trajectory``
    (T, 2) are the checkpoints' coordinates relative to w*, ``square`` (T,) their squared distances to it.
    """

    values: Array
    variance: float
    mixing: Array
    trajectory: Array
    square: Array

    def oriented(self) -> "Principal":
        """Fix the signs: the start has positive a1, as in the paper, and c2's largest coefficient is positive."""
        first = -1 if self.trajectory[0, 0] < 0 else 1
        coefficients = self.mixing[1]
        largest = np.abs(coefficients).argmax()
        second = -1 if coefficients[largest] < 0 else 1
        signs = np.array([first, second])
        return replace(self, mixing=self.mixing * signs[:, None], trajectory=self.trajectory * signs)


class TensorSums(NamedTuple):
    """Sums over one tensor: |w_0 - w*|^2, |w_0|^2, number of changed weights, variance, its shares along c1 and c2."""

    distance: float
    start: float
    changed: int
    variance: float
    explained: tuple[float, ...] = ()


Decomposition = tuple[Principal, dict[str, TensorSums]]
"""The principal components of a run, and the sums over each of its tensors."""


def plane(folders: Sequence[Path], *, block: int = BLOCK, cache: Path | None = None) -> Plane:
    """Find the principal plane of the checkpoints in ``folders``, in training order.

    It reads every file once, or not at all if the file ``cache`` has their sums from an earlier call; it saves them
    there.

    Raises:
        DataError: fewer than three checkpoints, missing, extra, reshaped or quantised tensors, truncated files, NaN or
            infinity, two equal checkpoints, or checkpoints on one line.
    """
    if len(folders) < 3:
        raise DataError(f"a landscape needs at least 3 checkpoints, got {len(folders)}")
    checkpoints = [open_checkpoint(folder) for folder in folders]
    check_same(checkpoints)
    principal, parts = _by_gram(folders, checkpoints, block, cache)
    return _described(folders, checkpoints, principal, parts)


def precision_of(second: float) -> np.dtype[Any]:
    """The dtype that resolves a second eigenvalue of ``second`` times the first."""
    return np.dtype(np.float64 if second < STRAIGHT else np.float32)


def random_walk(count: int) -> Array:
    """Explained variance (count-1,) of a random walk of ``count`` checkpoints in very many dimensions.

    Antognini and Sohl-Dickstein (arXiv 1806.08805): 1 / (2 - 2 cos(pi k / T)), in the limit 6 / (pi k)^2, that is
    60.8, 15.2, 6.8 %. bf16 rounding of a perfectly straight path gives the same spectrum.
    """
    k = np.arange(1, count)
    values = 1 / (2 - 2 * np.cos(np.pi * k / count))
    return np.asarray(values / values.sum())


def _by_gram(
    folders: Sequence[Path], checkpoints: Sequence[Checkpoint], block: int, cache: Path | None
) -> Decomposition:
    sums = gram_sums(checkpoints, block, np.dtype(np.float32), cache)
    gram = total(sums.values()).gram
    # Whether float32 is too coarse follows from the result, even a coarse one.
    precision = precision_of(_second_share(gram))
    if precision == np.float64:
        sums = gram_sums(checkpoints, block, precision, cache)
        gram = total(sums.values()).gram
    _check_distinct(folders, checkpoints, gram.diagonal())
    if _second_share(gram) < RANK_ONE:
        raise DataError(f"{folders[0]} to {folders[-1]}: the checkpoints lie on one line, not in a plane")
    principal = _principal(gram)
    sums_by_tensor = {name: _tensor_sums(part, principal) for name, part in sums.items()}
    return principal, sums_by_tensor


def _principal(gram: Array) -> Principal:
    """All T-1 eigenvalues and the first two components, from the Gram matrix (T, T) of differences to w*."""
    ascending, vectors = np.linalg.eigh(_centred(gram))
    # Descending, without the smallest, which is zero as the points are centred. Rounding may make others negative.
    values = np.maximum(ascending[:0:-1], 0)
    leading = vectors[:, :-3:-1]  # (T, 2)
    # c = X^T v / sqrt(lambda) has unit norm if v is a unit eigenvector of X X^T.
    mixing = leading.T / np.sqrt(values[:2, None])
    mixing -= mixing.mean(1, keepdims=True)
    principal = Principal(
        values=values,
        variance=float(values.sum()),
        mixing=mixing,
        trajectory=gram @ mixing.T,
        square=gram.diagonal().copy(),
    )
    return principal.oriented()


def _centred(gram: Array) -> Array:
    """The Gram matrix of the same points around their mean."""
    # (a - m)(b - m) = ab - am - bm + mm, where m is the mean of the points.
    return np.asarray(gram - gram.mean(0) - gram.mean(1, keepdims=True) + gram.mean())


def _second_share(gram: Array) -> float:
    """The second eigenvalue divided by the first; 0 if nothing moves."""
    values = np.linalg.eigvalsh(_centred(gram))
    return float(values[-2] / values[-1]) if values[-1] > 0 else 0.0


def _tensor_sums(part: Sums, principal: Principal) -> TensorSums:
    gram = _centred(part.gram)
    variance = float(np.trace(gram))
    explained: tuple[float, ...] = (0.0, 0.0)
    if variance > 0:
        axes = principal.mixing * np.sqrt(principal.values[:2, None])  # the unit eigenvectors, (2, T)
        explained = tuple(float(axis @ gram @ axis) / variance for axis in axes)
    distance = float(part.gram[0, 0])  # of the first checkpoint to the last, squared
    return TensorSums(distance, part.start, part.changed, variance, explained)


def _described(
    folders: Sequence[Path], checkpoints: Sequence[Checkpoint], principal: Principal, parts: dict[str, TensorSums]
) -> Plane:
    last = checkpoints[-1]
    distance = np.sqrt(principal.square)
    inside_square = (principal.trajectory**2).sum(1)
    outside = np.sqrt(np.maximum(principal.square - inside_square, 0))  # rounding may make it negative
    sums = list(parts.values())
    drift = _ratio(sum(part.distance for part in sums), sum(part.start for part in sums))
    num_changed = sum(part.changed for part in sums)
    num_weights = sum(stored.size for stored in last.values())
    dtypes = {stored.dtype for checkpoint in checkpoints for stored in checkpoint.values()}
    storage = sorted(str(dtype).removeprefix("torch.") for dtype in dtypes)
    return Plane(
        folders=tuple(folders),
        storage=tuple(storage),
        sigma=np.sqrt(principal.values),
        explained=principal.values / principal.variance,
        mixing=principal.mixing,
        trajectory=principal.trajectory,
        off_plane=np.divide(outside, distance, out=np.zeros_like(outside), where=distance > 0),
        distance=distance,
        drift=drift,
        changed=num_changed / num_weights,
        tensors=tuple(_tensor_drift(last[name], part, principal.variance) for name, part in parts.items()),
    )


def _tensor_drift(stored: Stored, part: TensorSums, variance: float) -> TensorDrift:
    changed = part.changed / max(stored.size, 1)
    drift = _ratio(part.distance, part.start)
    share = part.variance / variance
    return TensorDrift(stored.name, stored.size, drift, changed, share, part.explained)


def _ratio(square: float, start: float) -> float:
    """The relative distance; infinite for a tensor that moved away from zero."""
    if start > 0:
        return float(np.sqrt(square / start))
    return float("inf") if square > 0 else 0.0


def _check_distinct(folders: Sequence[Path], checkpoints: Sequence[Checkpoint], square: Array) -> None:
    """Refuse a run that never moved, and equal checkpoints; only those equally far from w* are compared."""
    if not square.any():
        raise DataError(f"{folders[0]} to {folders[-1]}: no weight changed in any checkpoint, so there is no plane")
    column = square[:, None]
    gap = np.abs(column - square)  # (T, T), as the following
    tolerance = 1e-5 * np.maximum(column, square)  # for the rounding of sums
    close = gap <= tolerance
    pairs = np.argwhere(np.triu(close, 1))  # each pair once, as row and column
    for one, other in pairs:
        if _equal(checkpoints[one], checkpoints[other]):
            raise DataError(f"{folders[one]} and {folders[other]} have the same weights; list each checkpoint once")


def _equal(one: Checkpoint, other: Checkpoint) -> bool:
    """Whether two checkpoints have the same weights, comparing the smallest tensors first."""
    tensors = sorted(one.values(), key=lambda stored: stored.size)
    return all(torch.equal(read_tensor(stored), read_tensor(other[stored.name])) for stored in tensors)


def cost(checkpoints: Sequence[Checkpoint]) -> str:
    """The cost of computing the plane: bytes read and written, and memory beyond the imports.

    All is read for the plane, for its components, and before that for the checksums, if there are some.
    """
    count = len(checkpoints)
    last = checkpoints[-1]
    size = sum(stored.size for stored in last.values())
    read = 0  # bytes
    for checkpoint in checkpoints:
        read += sum(stored.size * stored.dtype.itemsize for stored in checkpoint.values())
    reads = 3 if have_sums(checkpoints) else 2
    written = 2 * 4 * size  # two components in float32
    buffers = torch.get_num_threads() * len(piece_buffer(count))
    grams = 8 * len(last) * count**2  # float64, one of each tensor
    memory = buffers + grams
    return (
        f"{count} checkpoints of {_short(size)} weights: {reads} x {_short(read)}B read, {_short(written)}B written,"
        f" about {_short(memory)}B of memory"
    )


def summary(plane: Plane) -> str:
    """One line: storage, drift, changed weights, and the spectrum next to that of a random walk."""
    walk = percent(random_walk(len(plane.folders)))
    return (
        f"{len(plane.folders)} checkpoints in {', '.join(plane.storage)}, drift {plane.drift:.2e}, {plane.changed:.1%}"
        f" of the weights changed, explained variance {percent(plane.explained)} (random walk {walk})"
    )


def details(plane: Plane) -> list[str]:
    """Further lines: the distance of each checkpoint from the plane, and the tensors that moved most."""
    # Without the last one, which is the origin of the plane.
    shares = zip(plane.folders[:-1], plane.off_plane[:-1], strict=True)
    outside = [f"{folder.name} {share:.0%}" for folder, share in shares]
    largest_first = sorted(plane.tensors, key=lambda tensor: -tensor.variance)
    moved = [f"{tensor.name} {tensor.variance:.0%} (drift {tensor.drift:.1e})" for tensor in largest_first[:3]]
    return [
        "fraction of each checkpoint's displacement outside the plane: " + ", ".join(outside),
        "tensors with the most variance: " + ", ".join(moved),
    ]


def warnings(plane: Plane) -> list[str]:
    """Caveats for readers of the plot, one sentence each."""
    texts = _rounding(plane)
    if like_random_walk(plane):
        texts.append(f"explained variance {percent(plane.explained)} is that of a random walk or of rounding")
    if plane.sigma[0] < 1.1 * plane.sigma[1]:
        texts.append("the first two singular values are within 10 %: the plane is well defined, its axes are not")
    if plane.explained[1] < STRAIGHT:
        texts.append(f"the path is straight: the second component explains {plane.explained[1]:.1e} of the variance")
    return texts


def _rounding(plane: Plane) -> list[str]:
    gaps = step_in_gaps(plane)
    if gaps is None:
        return []
    text = f"checkpoints are stored in {', '.join(plane.storage)} and {plane.changed:.0%} of the weights changed"
    if gaps < ONE_GAP:
        text += f", by {gaps:.1f} gaps between neighbouring values: rounding alone would bend a straight path like this"
    else:
        text += ": rounding may bend a straight path"
    return [text + "; store float32 checkpoints for a landscape"]


def like_random_walk(plane: Plane) -> bool:
    """Whether the first shares of variance match those of a random walk with as many checkpoints."""
    shares = plane.explained[:3]
    walk = random_walk(len(plane.folders))[: len(shares)]
    return bool(np.abs(shares - walk).max() < WALK_TOLERANCE)


def step_in_gaps(plane: Plane) -> float | None:
    """The RMS step of the changed weights from the first checkpoint to the last, in gaps.

    A gap is the distance of neighbouring values in the coarsest storage format. None for float32, whose gaps are far
    smaller than any training step.
    """
    coarse = [dtype for dtype in plane.storage if dtype != "float32"]
    if not coarse or not plane.changed:
        return None
    epsilon = max(torch.finfo(getattr(torch, dtype)).eps for dtype in coarse)
    # Both relative to the RMS of the weights. Only a part of the weights made the whole step.
    step = plane.drift / np.sqrt(plane.changed)
    gap = RMS_GAP * epsilon
    return float(step / gap)


def percent(shares: Array) -> str:
    """The first three shares as ``60.8 / 15.2 / 6.8 %``."""
    return " / ".join(f"{100 * share:.1f}" for share in shares[:3]) + " %"


def _short(number: float) -> str:
    """A number with three digits and an SI prefix, such as ``4.82 T``."""
    prefixes = ("", "k", "M", "G", "T")
    num_digits = len(f"{number:.0f}")
    power = min((num_digits - 1) // 3, len(prefixes) - 1)
    return f"{number / 1000**power:.3g} {prefixes[power]}"
