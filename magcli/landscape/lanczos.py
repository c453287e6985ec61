"""The principal plane by Lanczos iteration, an independent check of the Gram: it never forms one.

Magistral names Lanczos-Arnoldi on X^T X, whose vectors are as long as the model. Its dual works in the T dimensions
of the checkpoints: a step is one fused read, which multiplies every block's differences D with a vector of length T,
and D with the result. Everything is summed in float64; about T reads at most, 5 to 10 as a rule.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from magcli.landscape.checkpoints import Checkpoint, pieces
from magcli.landscape.gram import added, bits_of, check_finite, over_blocks
from magcli.landscape.kernels import differing
from magcli.landscape.principal import Array, Principal, oriented

TOLERANCE = 1e-9
"""Residual of either eigenvector, as a share of the first eigenvalue, at which the iteration ends."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Additive over blocks: |x_t - w*|^2 (T,), |sum_t (x_t - w*)|^2, |w_0|^2, and how many weights changed."""

    square: Array
    mean: float
    start: float
    changed: int

    def __add__(self, other: "Moments") -> "Moments":
        return Moments(
            self.square + other.square, self.mean + other.mean, self.start + other.start, self.changed + other.changed
        )

    @property
    def variance(self) -> float:
        """The sum of squared distances to the mean of the checkpoints."""
        return float(self.square.sum() - self.mean / len(self.square))


def read_moments(checkpoints: Sequence[Checkpoint], block: int) -> dict[str, Moments]:
    """One read: the moments of every tensor. Raises DataError for NaN and infinity, by name."""
    moments = {name: Moments(np.zeros(len(checkpoints)), 0.0, 0.0, 0) for name in checkpoints[-1]}

    def work(name: str, start: int, length: int, buffer: torch.Tensor) -> tuple[str, Moments]:
        return name, added(map(_moments, pieces([c[name] for c in checkpoints], start, length, buffer)))

    for name, part in over_blocks(work, checkpoints, block):
        moments[name] = moments[name] + part
    for name, part in moments.items():
        check_finite(part.square, [c[name] for c in checkpoints])
    return moments


def lanczos(checkpoints: Sequence[Checkpoint], moments: Moments, block: int) -> Principal:
    """The first two components, one read a step; the basis is kept orthogonal in full, as T is small."""
    count = len(checkpoints)
    start = np.random.default_rng(0).normal(size=count)
    basis, products = _orthonormal(start, np.empty((0, count))), np.empty((0, count))
    while True:
        products = np.vstack([products, _product(checkpoints, basis[-1], block)])
        inside = basis @ _centred(products).T
        values, vectors = np.linalg.eigh((inside + inside.T) / 2)
        values, vectors = values[::-1], vectors[:, ::-1]
        pair, along = vectors.T[:2] @ basis, vectors.T[:2] @ products
        residual = np.linalg.norm(_centred(along) - values[:2, None] * pair, axis=1)
        if len(basis) == count - 1 or (len(basis) > 2 and residual.max() <= TOLERANCE * values[0]):
            break
        basis = np.vstack([basis, _orthonormal(_centred(products)[-1], basis)])
    scale = np.sqrt(np.maximum(values[:2, None], np.finfo(float).tiny))
    return oriented(Principal(values[:2], moments.variance, pair / scale, (along / scale).T, moments.square))


def _product(checkpoints: Sequence[Checkpoint], vector: Array, block: int) -> Array:
    """D (D^T vector) with D (T, W) the differences to w*: one read."""
    along = torch.from_numpy(vector)

    def work(name: str, start: int, length: int, buffer: torch.Tensor) -> torch.Tensor:
        read = pieces([c[name] for c in checkpoints], start, length, buffer)
        return added(moved @ (along @ moved) for moved in map(_differences, read))

    parts = over_blocks(work, checkpoints, block)
    return np.asarray(sum((part.numpy() for part in parts), np.zeros(len(vector))))


def _moments(rows: torch.Tensor) -> Moments:
    moved, first, bits = _differences(rows), rows[0].double(), bits_of(rows)
    square, middle = moved.square().sum(1).numpy(), moved.sum(0)
    return Moments(square, float(middle @ middle), float(first @ first), differing(bits[0], bits[-1]))


def _differences(rows: torch.Tensor) -> torch.Tensor:
    """Rows (T, n) less the last one, in float64, formed without the Gram's kernels."""
    return rows.double() - rows[-1].double()


def _centred(rows: Array) -> Array:
    return np.asarray(rows - rows.mean(1, keepdims=True))


def _orthonormal(vector: Array, basis: Array) -> Array:
    """``vector`` (T,) without its mean and its part in ``basis``, of length 1, as (1, T)."""
    for _ in range(2):
        vector = vector - vector.mean()
        vector = vector - (basis @ vector) @ basis
    return np.asarray(vector / np.linalg.norm(vector))[None]
