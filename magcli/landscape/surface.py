"""The geometry and statistics of the landscape: grid, triangulation and refinement, bootstrap, length regression.

Every figure is computed from per-prompt means. Points share their prompts, so intervals resample prompts, the same ones
for all points; completions of one prompt are never treated as independent evidence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from magcli.errors import DataError, UsageError
from magcli.landscape.box import Box

if TYPE_CHECKING:
    from matplotlib.tri import Triangulation

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
RESAMPLES = 2000
COVERAGE = (2.5, 97.5)
"""Percentiles of the bootstrap distribution that bound a 95 % interval."""
SLIVER = 0.1
"""Triangles whose area is below this fraction of the maximum for their squared side lengths are masked."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Regression:
    """Least squares fit: raw reward = intercept + slope * ln(mean length).

    ``slope_per_doubling`` is the reward gained when the length doubles; ``used`` (points,) marks the points inside the
    length limits; ``draws`` (resamples, 2) are bootstrap samples of (intercept, slope).
    """

    slope: Interval
    intercept: Interval
    slope_per_doubling: Interval
    r2: float
    used: npt.NDArray[np.bool_]
    draws: Array

    @property
    def n_used(self) -> int:
        """Number of points inside the length limits."""
        return int(self.used.sum())

    @property
    def n_dropped(self) -> int:
        """Number of points outside the length limits."""
        return int((~self.used).sum())


def grid(trajectory: npt.ArrayLike, *, points: int, pad: float = 0.35, box: Box | None = None) -> Array:
    """A hex lattice of at least ``points`` coordinates (P, 2) over a rectangle (``box`` or computed).

    The computed rectangle is the bounding box of the projected checkpoints ``trajectory`` (T, 2) and w* at (0, 0),
    extended by ``pad`` times its size on every side. The lattice includes (0, 0) exactly and is stretched on either
    side of it to include the corners of the rectangle. Rows run from low to high a2, left to right.

    Raises:
        UsageError: fewer than 4 points, or a pad that is not positive.
        DataError: the path has no extent.
    """
    if points < 4 or not pad > 0:
        raise UsageError(f"a grid needs at least 4 points and a positive pad, got {points} and {pad}")
    low, high = (np.asarray(corner, float) for corner in (box or _padded(trajectory, pad)))
    # Rows and columns are whole numbers, so the spacing for a number of points is found by trying.
    spacing = 1.0
    lattice = _lattice(low, high, spacing)
    while len(lattice) < points:
        spacing *= 0.99
        lattice = _lattice(low, high, spacing)
    return lattice


def _padded(trajectory: npt.ArrayLike, pad: float) -> tuple[Array, Array]:
    """The lower and the upper corner of a box around a path ``[checkpoints, 2]`` and the origin.

    On each side it is larger by the share ``pad`` of the path's extent.
    """
    origin = np.zeros(2)
    path = np.vstack([np.asarray(trajectory, float), origin])
    extent = np.ptp(path, axis=0)
    has_area = np.isfinite(extent).all() and (extent > 0).all()
    if not has_area:
        width, height = extent
        raise DataError(f"the path has no extent along an axis of the plane ({width:.3g} x {height:.3g})")
    margin = pad * extent
    return path.min(0) - margin, path.max(0) + margin


def triangulate(points: npt.ArrayLike) -> Triangulation:
    """Delaunay triangulation of ``points`` (P, 2), computed with both axes scaled to [0, 1], slivers masked.

    The scales of the axes may differ a hundredfold, so unscaled coordinates would give other triangles.
    """
    points = np.asarray(points, float)
    scaled = _scaled(points)
    return _triangulation(points, triangles=scaled.triangles, mask=scaled.mask)


def refinement_points(points: npt.ArrayLike, rewards: npt.ArrayLike, count: int) -> Array:
    """The centres (K, 2) of the ``count`` triangles where another point is most informative.

    ``rewards`` (P, prompts) are means over each prompt's samples. The score of a triangle is the difference between
    its best and worst corner times its area, divided by the standard error of that difference (paired by prompt, at
    least that of half a prompt changing sides).
    """
    points = np.asarray(points, float)
    rewards = np.asarray(rewards, float)
    scaled = _scaled(points)
    corners = scaled.get_masked_triangles()  # (triangles, 3), indices of points
    means = rewards.mean(1)[corners]  # (triangles, 3)
    num_prompts = rewards.shape[1]
    rows = np.arange(len(corners))
    best = corners[rows, means.argmax(1)]
    worst = corners[rows, means.argmin(1)]
    gaps = rewards[best] - rewards[worst]  # (triangles, prompts)
    deviation = gaps.std(1, ddof=1 if num_prompts > 1 else 0)
    half_a_prompt = 0.5 / num_prompts
    error = np.maximum(deviation / np.sqrt(num_prompts), half_a_prompt)
    difference = np.ptp(means, axis=1)  # of best and worst corner
    score = difference * _areas(scaled, corners) / error
    chosen = np.argsort(-score, kind="stable")[:count]
    centres = points[corners[chosen]].mean(1)
    return np.asarray(centres)


def near_best_and_path(points: npt.ArrayLike, reward: npt.ArrayLike, trajectory: npt.ArrayLike) -> Indices:
    """Corners of the triangles that contain a checkpoint's projection or touch the point with the best ``reward``."""
    points = np.asarray(points, float)
    reward = np.asarray(reward, float)
    scaled = _scaled(points)
    path = _frame(points).scale(np.asarray(trajectory, float))  # (checkpoints, 2)
    triangle_at = scaled.get_trifinder()
    triangles = triangle_at(path[:, 0], path[:, 1])  # -1 outside of all triangles
    containing = scaled.triangles[triangles[triangles >= 0]]
    corners = scaled.get_masked_triangles()  # (triangles, 3), indices of points
    touches_best = (corners == reward.argmax()).any(1)
    touching = corners[touches_best]
    return np.unique(np.concatenate([containing.ravel(), touching.ravel()]))


class _Frame(NamedTuple):
    low: Array
    extent: Array

    def scale(self, points: Array) -> Array:
        return np.asarray((points - self.low) / self.extent)


def _frame(points: Array) -> _Frame:
    return _Frame(points.min(0), np.ptp(points, axis=0))


def _scaled(points: Array) -> Triangulation:
    scaled = _triangulation(_frame(points).scale(points))
    corners = np.stack([scaled.x, scaled.y], -1)[scaled.triangles]  # (triangles, 3, 2)
    sides = corners - np.roll(corners, 1, axis=1)
    squares = (sides**2).sum((1, 2))  # of all three sides together
    # The largest area for given squared sides is that of an equilateral triangle: their sum / (4 sqrt 3).
    is_sliver = 4 * np.sqrt(3) * _areas(scaled, scaled.triangles) < SLIVER * squares
    scaled.set_mask(is_sliver)
    return scaled


def _triangulation(points: Array, **options: Array) -> Triangulation:
    from matplotlib.tri import Triangulation  # slow, and no report needs it

    return Triangulation(*points.T, **options)


def _areas(scaled: Triangulation, corners: Indices) -> Array:
    points = np.stack([scaled.x, scaled.y], -1)
    first, second, third = points[corners].swapaxes(0, 1)  # (triangles, 2) each
    one, other = second - first, third - first
    # Half of the parallelogram of two sides, whose area is their cross product.
    cross = one[:, 0] * other[:, 1] - one[:, 1] * other[:, 0]
    return np.asarray(np.abs(cross) / 2)


def mean_interval(rewards: npt.ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """Mean of ``rewards`` (prompts, samples) with a bootstrap interval clustered by prompt."""
    per_prompt = _table(rewards).mean(1)
    draws = _weights(len(per_prompt), resamples, seed) @ per_prompt
    return _interval(float(per_prompt.mean()), draws)


def paired_difference(
    rewards: npt.ArrayLike, reference: npt.ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Mean of ``rewards`` minus mean of ``reference``, paired by prompt; both (prompts, samples of any number).

    Shared prompts make this several times tighter than the difference of two levels.
    """
    one, other = _table(rewards).mean(1), _table(reference).mean(1)
    if len(one) != len(other):
        raise DataError(f"{len(one)} and {len(other)} prompts cannot be paired; evaluate both points on the same ones")
    return mean_interval((one - other)[:, None], resamples=resamples, seed=seed)


def length_regression(
    lengths: npt.ArrayLike,
    rewards: npt.ArrayLike,
    *,
    low: float | None = None,
    high: float | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Regression | None:
    """Regress raw reward (without length penalty) on the logarithm of mean length over the points of the landscape.

    ``lengths`` and ``rewards`` are (points, prompts): means over each prompt's samples, lengths in tokens. Points with
    a mean length outside [``low``, ``high``] are dropped (Magistral: 1,500 to 8,000). Intervals resample the prompts
    jointly for all points; resamples with equal lengths are skipped. None if fewer than 3 points remain or all have the
    same length.
    """
    lengths, rewards = _table(lengths), _table(rewards)
    if lengths.shape != rewards.shape:
        raise DataError(f"lengths {lengths.shape} and rewards {rewards.shape} are not the same points and prompts")
    mean = lengths.mean(1)
    used = mean > 0
    if low is not None:
        used &= mean >= low
    if high is not None:
        used &= mean <= high
    if used.sum() < 3 or np.ptp(mean[used]) == 0:
        return None
    # The same prompts for lengths and rewards, so that a draw is a whole evaluation.
    weights = _weights(lengths.shape[1], resamples, seed)
    # Both (resamples, points). A resample may have empty completions only.
    drawn_x = np.log(np.maximum(weights @ lengths[used].T, 1e-9))
    drawn_y = weights @ rewards[used].T
    has_slope = np.ptp(drawn_x, axis=1) > 0
    if not has_slope.any():
        return None
    draws = _fit(drawn_x[has_slope], drawn_y[has_slope])
    intercepts, slopes = draws.T
    x, y = np.log(mean[used]), rewards[used].mean(1)
    intercept, slope = (float(value) for value in _fit(x[None], y[None])[0])
    r2 = 1.0  # equal rewards are fitted exactly, but have no variance to explain
    if np.ptp(y):
        residual = y - intercept - slope * x
        r2 = float(1 - residual @ residual / np.sum((y - y.mean()) ** 2))
    return Regression(
        slope=_interval(slope, slopes),
        intercept=_interval(intercept, intercepts),
        slope_per_doubling=_interval(slope * np.log(2), slopes * np.log(2)),
        r2=r2,
        used=used,
        draws=draws,
    )


def confidence_band(fit: Regression, lengths: npt.ArrayLike) -> tuple[Array, Array, Array]:
    """The fitted reward at ``lengths`` (tokens) and the bounds of its 95 % interval."""
    x = np.log(np.asarray(lengths, float))
    lines = fit.draws[:, :1] + fit.draws[:, 1:] * x  # (draws, lengths)
    low, high = np.percentile(lines, COVERAGE, axis=0)
    return fit.intercept.mean + fit.slope.mean * x, low, high


def _lattice(low: Array, high: Array, spacing: float) -> Array:
    """Staggered rows anchored at (0, 0); ``spacing`` is relative to the width of the rectangle."""
    columns = _ticks(low[0], high[0], spacing)
    rows = _ticks(low[1], high[1], spacing * np.sqrt(3) / 2)  # the height of equilateral triangles
    parts = []
    for row in rows:
        is_staggered = row % 2 == 1
        places = columns[:-1] + 0.5 if is_staggered else columns
        if is_staggered and row in (rows[0], rows[-1]):  # with the corners of the rectangle
            places = np.concatenate([columns[:1], places, columns[-1:]])
        a1 = _stretched(places, columns, low[0], high[0])
        a2 = np.full(len(places), _stretched(row, rows, low[1], high[1]))
        parts.append(np.column_stack([a1, a2]))
    return np.concatenate(parts)


def _ticks(low: float, high: float, spacing: float) -> Array:
    """Integer steps from the origin to both ends, with a step of about ``spacing`` of the width."""
    step = spacing * (high - low)
    num_below = max(1, round(-low / step))
    num_above = max(1, round(high / step))
    return np.arange(-num_below, num_above + 1, dtype=float)


def _stretched(places: Array | float, ticks: Array, low: float, high: float) -> Array:
    """Places among the ticks as coordinates: linear on either side of the origin, which stays 0."""
    return np.asarray(np.interp(places, [ticks[0], 0, ticks[-1]], [low, 0, high]))


def _table(values: npt.ArrayLike) -> Array:
    table = np.asarray(values, float)
    if table.ndim != 2 or not table.size or not np.isfinite(table).all():
        raise DataError(f"expected a two-dimensional table of finite numbers, got shape {table.shape}")
    return table


def _weights(prompts: int, resamples: int, seed: int) -> Array:
    """Bootstrap resamples of the prompts as weights (resamples, prompts), which are 1 in sum for each resample."""
    random = np.random.default_rng(seed)
    times_drawn = random.multinomial(prompts, np.full(prompts, 1 / prompts), resamples)
    return times_drawn / prompts


def _fit(x: Array, y: Array) -> Array:
    """Least squares for every row of ``x`` and ``y`` (draws, points): (draws, 2) of intercept and slope."""
    dx = x - x.mean(1, keepdims=True)
    dy = y - y.mean(1, keepdims=True)
    slope = (dx * dy).sum(1) / (dx * dx).sum(1)
    intercept = y.mean(1) - slope * x.mean(1)
    return np.column_stack([intercept, slope])


def _interval(mean: float, draws: Array) -> Interval:
    low, high = np.percentile(draws, COVERAGE)
    return Interval(float(mean), float(low), float(high))


def difference_text(row: Mapping[str, Any]) -> str:
    """A difference of rewards with its interval, of a row or of ``compare_origin``."""
    low, high = row["difference_low"], row["difference_high"]
    return f"{row['difference']:+.3f} [{low:+.3f}, {high:+.3f}]"


def origin_text(repeated: Mapping[str, Any]) -> str:
    """What the second evaluation of the final weights says, as of ``compare_origin``."""
    equal = f"{repeated['equal']:,} of {repeated['completions']:,} completions equal"
    return f"Final weights evaluated again at the end: {equal}, reward {difference_text(repeated)}"
