"""Triangles between the evaluated points: what surfaces are linear on, and where to look more closely."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.tri import Triangulation

from magcli.landscape.principal import Array

Indices = npt.NDArray[np.intp]
SLIVER = 0.1
"""A triangle's area as a share of the largest for the squares of its sides, below which it is left out."""


def triangulate(points: npt.ArrayLike) -> Triangulation:
    """Delaunay triangles of ``points`` (P, 2), found with each axis scaled to the unit interval, slivers masked.

    Axes of the plane may differ a hundredfold in scale, and unscaled coordinates would then give other triangles.
    """
    points = np.asarray(points, float)
    scaled = _scaled(points)
    return Triangulation(*points.T, triangles=scaled.triangles, mask=scaled.mask)


def refined(points: npt.ArrayLike, rewards: npt.ArrayLike, count: int) -> Array:
    """The centres (K, 2) of the ``count`` triangles where a further point would tell the most.

    ``rewards`` (P, prompts) are means over each prompt's samples. A triangle counts by the difference between its
    best and its worst corner times its area, over the standard error of that difference (paired by prompt, as the
    corners share their prompts; never below that of half a prompt that changes sides).
    """
    points, rewards = np.asarray(points, float), np.asarray(rewards, float)
    scaled = _scaled(points)
    corners = scaled.get_masked_triangles()
    means, prompts = rewards.mean(1)[corners], rewards.shape[1]
    rows = np.arange(len(corners))
    best, worst = corners[rows, means.argmax(1)], corners[rows, means.argmin(1)]
    apart = rewards[best] - rewards[worst]
    error = np.maximum(apart.std(1, ddof=1 if prompts > 1 else 0) / np.sqrt(prompts), 0.5 / prompts)
    score = np.ptp(means, axis=1) * _areas(scaled, corners) / error
    chosen = np.argsort(-score, kind="stable")[:count]
    return np.asarray(points[corners[chosen]].mean(1))


def near_best_and_path(points: npt.ArrayLike, reward: npt.ArrayLike, trajectory: npt.ArrayLike) -> Indices:
    """The points whose triangles hold a checkpoint's projection, or touch the point of the best mean reward (P,)."""
    points, reward = np.asarray(points, float), np.asarray(reward, float)
    scaled = _scaled(points)
    corners = scaled.get_masked_triangles()
    inside = scaled.get_trifinder()(*_frame(points).scale(np.asarray(trajectory, float)).T)
    held = scaled.triangles[inside[inside >= 0]]
    touching = corners[(corners == reward.argmax()).any(1)]
    return np.unique(np.concatenate([held.ravel(), touching.ravel()]))


class _Frame(NamedTuple):
    low: Array
    extent: Array

    def scale(self, points: Array) -> Array:
        return np.asarray((points - self.low) / self.extent)


def _frame(points: Array) -> _Frame:
    return _Frame(points.min(0), np.ptp(points, axis=0))


def _scaled(points: Array) -> Triangulation:
    found = Triangulation(*_frame(points).scale(points).T)
    sides = np.stack([found.x, found.y], -1)[found.triangles]
    squares = ((sides - np.roll(sides, 1, axis=1)) ** 2).sum((1, 2))
    found.set_mask(4 * np.sqrt(3) * _areas(found, found.triangles) < SLIVER * squares)
    return found


def _areas(scaled: Triangulation, corners: Indices) -> Array:
    first, second, third = np.stack([scaled.x, scaled.y], -1)[corners].swapaxes(0, 1)
    one, other = second - first, third - first
    return np.asarray(np.abs(one[:, 0] * other[:, 1] - one[:, 1] * other[:, 0]) / 2)
