"""Where to evaluate the landscape, and what the evaluations say: grid, bootstrap, length regression. Pure numpy.

Contract: every figure is computed from per-prompt means. Points share their prompts, so intervals resample prompts,
the same ones for all points at a time; completions of one prompt are never treated as independent evidence.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from magcli.errors import DataError, UsageError
from magcli.landscape.principal import Array

Box = tuple[tuple[float, float], tuple[float, float]]
"""The corners of a rectangle: lowest (a1, a2), highest (a1, a2)."""
RESAMPLES = 2000
COVERAGE = (2.5, 97.5)
"""Percentiles of the bootstrap distribution that bound a 95 % interval."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Regression:
    """raw reward = intercept + slope * ln(mean length), by least squares over the points that were used.

    ``slope_per_doubling`` is the reward gained when the length doubles, with its interval; ``used`` (points,) tells
    which points were inside the length limits; ``draws`` (resamples, 2) are bootstrap (intercept, slope) pairs.
    """

    slope: Interval
    intercept: Interval
    slope_per_doubling: Interval
    r2: float
    used: npt.NDArray[np.bool_]
    draws: Array

    @property
    def n_used(self) -> int:
        """Points inside the length limits."""
        return int(self.used.sum())

    @property
    def n_dropped(self) -> int:
        """Points outside the length limits."""
        return int((~self.used).sum())


def parse_box(text: str) -> Box:
    """A rectangle written as ``a1lo:a1hi,a2lo:a2hi``; w* at (0, 0) must lie inside it.

    Raises:
        UsageError: it is not written so, or does not hold the origin.
    """
    try:
        (left, right), (low, high) = ((float(end) for end in axis.split(":")) for axis in text.split(","))
    except ValueError:
        raise UsageError(f"range '{text}' is not of the form a1lo:a1hi,a2lo:a2hi, such as -2:4,-1:1") from None
    if not (-np.inf < left < 0 < right < np.inf and -np.inf < low < 0 < high < np.inf):
        raise UsageError(f"range '{text}' must hold the final weights at (0, 0) inside on both axes")
    return (left, low), (right, high)


def grid(trajectory: npt.ArrayLike, *, points: int, pad: float = 0.35, box: Box | None = None) -> Array:
    """At least ``points`` coordinates (P, 2) on staggered rows (a hex lattice) over a rectangle, or the one of ``box``.

    The rectangle holds the projected checkpoints ``trajectory`` (T, 2) and w* at (0, 0), and ``pad`` of its extent
    more on every side; each axis has its own scale. The lattice is anchored at (0, 0), which is a point exactly,
    and stretched on either side of it to end on the rectangle's edges, whose corners are points too. Rows run from
    low a2 to high, left to right.

    Raises UsageError for fewer than 4 points or a pad that is not positive, DataError for a path without extent.
    """
    if points < 4 or not pad > 0:
        raise UsageError(f"a grid needs at least 4 points and a pad above 0, not {points} and {pad}")
    low, high = (np.asarray(corner, float) for corner in (box or _padded(trajectory, pad)))
    spacing = 1.0
    while len(lattice := _lattice(low, high, spacing)) < points:
        spacing *= 0.99
    return lattice


def _padded(trajectory: npt.ArrayLike, pad: float) -> tuple[Array, Array]:
    path = np.vstack([np.asarray(trajectory, float), np.zeros(2)])
    extent = np.ptp(path, axis=0)
    if not (np.isfinite(extent).all() and (extent > 0).all()):
        raise DataError(f"the path has no extent along an axis of the plane ({extent[0]:.3g} x {extent[1]:.3g})")
    return path.min(0) - pad * extent, path.max(0) + pad * extent


def level(rewards: npt.ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """Mean of ``rewards`` (prompts, samples) with a bootstrap interval clustered by prompt."""
    per_prompt = _table(rewards).mean(1)
    draws = _weights(len(per_prompt), resamples, seed) @ per_prompt
    return _interval(float(per_prompt.mean()), draws)


def difference(
    rewards: npt.ArrayLike, reference: npt.ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Mean of ``rewards`` minus mean of ``reference``, paired by prompt; both (prompts, samples of any number).

    Shared prompts make this several times tighter than the difference of two levels.
    """
    one, other = _table(rewards).mean(1), _table(reference).mean(1)
    if len(one) != len(other):
        raise DataError(f"{len(one)} and {len(other)} prompts cannot be paired; evaluate both points on the same ones")
    return level((one - other)[:, None], resamples=resamples, seed=seed)


def length_regression(
    lengths: npt.ArrayLike,
    rewards: npt.ArrayLike,
    *,
    low: float | None = None,
    high: float | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Regression | None:
    """Regress raw reward (without length penalty) on the logarithm of mean length, a point of the landscape each.

    ``lengths`` and ``rewards`` are (points, prompts): means over each prompt's samples, lengths in tokens. Points
    with a mean length outside [``low``, ``high``] are dropped (Magistral: 1,500 to 8,000). Intervals resample the
    prompts jointly for all points; a resample in which all are equally long says nothing and is left out. None where
    fewer than 3 points remain or all are equally long.
    """
    lengths, rewards = _table(lengths), _table(rewards)
    if lengths.shape != rewards.shape:
        raise DataError(f"lengths {lengths.shape} and rewards {rewards.shape} are not the same points and prompts")
    mean = lengths.mean(1)
    used = (mean > 0) & (mean >= (low or 0)) & (mean <= (np.inf if high is None else high))
    if used.sum() < 3 or np.ptp(mean[used]) == 0:
        return None
    weights = _weights(lengths.shape[1], resamples, seed)
    drawn = np.log(np.maximum(weights @ lengths[used].T, 1e-9))
    spread = np.ptp(drawn, axis=1) > 0
    if not spread.any():
        return None
    draws = _fit(drawn[spread], (weights @ rewards[used].T)[spread])
    x, y = np.log(mean[used]), rewards[used].mean(1)
    intercept, slope = (float(value) for value in _fit(x[None], y[None])[0])
    residual = y - intercept - slope * x
    return Regression(
        slope=_interval(slope, draws[:, 1]),
        intercept=_interval(intercept, draws[:, 0]),
        slope_per_doubling=_interval(slope * np.log(2), draws[:, 1] * np.log(2)),
        r2=float(1 - residual @ residual / np.sum((y - y.mean()) ** 2)) if np.ptp(y) else 1.0,
        used=used,
        draws=draws,
    )


def band(fit: Regression, lengths: npt.ArrayLike) -> tuple[Array, Array, Array]:
    """The fitted reward at ``lengths`` (tokens) and the 95 % interval of that line, each of the same shape."""
    x = np.log(np.asarray(lengths, float))
    low, high = np.percentile(fit.draws[:, :1] + fit.draws[:, 1:] * x, COVERAGE, axis=0)
    return fit.intercept.mean + fit.slope.mean * x, low, high


def _lattice(low: Array, high: Array, spacing: float) -> Array:
    """Staggered rows, ``spacing`` of the rectangle's width apart in a row, anchored at (0, 0)."""
    columns = _ticks(low[0], high[0], spacing)
    rows = _ticks(low[1], high[1], spacing * np.sqrt(3) / 2)
    found = []
    for row in rows:
        index = columns if row % 2 == 0 else columns[:-1] + 0.5
        if row % 2 and row in (rows[0], rows[-1]):
            index = np.concatenate([columns[:1], index, columns[-1:]])
        a2 = np.full(len(index), _place(row, rows, low[1], high[1]))
        found.append(np.column_stack([_place(index, columns, low[0], high[0]), a2]))
    return np.concatenate(found)


def _ticks(low: float, high: float, spacing: float) -> Array:
    """Whole steps from the origin to either end, as many as make a step nearest to ``spacing`` of the width."""
    step = spacing * (high - low)
    return np.arange(-max(1, round(-low / step)), max(1, round(high / step)) + 1, dtype=float)


def _place(index: Array | float, ticks: Array, low: float, high: float) -> Array:
    return np.asarray(np.interp(index, [ticks[0], 0, ticks[-1]], [low, 0, high]))


def _table(values: npt.ArrayLike) -> Array:
    table = np.asarray(values, float)
    if table.ndim != 2 or not table.size or not np.isfinite(table).all():
        raise DataError(f"a table of finite numbers with two axes is needed, not one of shape {table.shape}")
    return table


def _weights(prompts: int, resamples: int, seed: int) -> Array:
    """Each row (prompts,) the shares of one bootstrap resample of the prompts."""
    return np.random.default_rng(seed).multinomial(prompts, np.full(prompts, 1 / prompts), resamples) / prompts


def _fit(x: Array, y: Array) -> Array:
    """Least squares in every row of ``x`` and ``y`` (draws, points): (draws, 2) of intercept and slope."""
    dx, dy = x - x.mean(1, keepdims=True), y - y.mean(1, keepdims=True)
    slope = (dx * dy).sum(1) / (dx * dx).sum(1)
    return np.column_stack([y.mean(1) - slope * x.mean(1), slope])


def _interval(mean: float, draws: Array) -> Interval:
    low, high = np.percentile(draws, COVERAGE)
    return Interval(float(mean), float(low), float(high))
