"""What the samples at the points of a landscape come to: means with intervals, plots, and figures as JSON."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from magcli.data import durable
from magcli.landscape import plot, surface
from magcli.landscape.pca import Plane
from magcli.landscape.surface import Array, Regression

PER_PROBLEM = ("rewards", "raw_rewards", "lengths")

POINT = pa.schema(
    [
        pa.field("point", pa.int64()),
        *[
            pa.field(name, pa.float64())
            for name in (
                "a1",
                "a2",
                "off_plane",
                "reward",
                "reward_low",
                "reward_high",
                "raw_reward",
                "length",
                "correct",
            )
        ],
        *[pa.field(name, pa.list_(pa.float64())) for name in PER_PROBLEM],
    ]
)
"""One row a point: where it lies, means with intervals, and the means of each problem."""


class Graded(NamedTuple):
    """What the samples of all problems at one point got; each of shape (problems, samples)."""

    rewards: Array
    raw_rewards: Array
    lengths: Array
    correct: Array


def summary(graded: Graded) -> dict[str, Any]:
    """Means over a point's samples, with and without the length penalty, by problem and in all."""
    level = surface.level(graded.rewards)
    return {
        "reward": level.mean,
        "reward_low": level.low,
        "reward_high": level.high,
        "raw_reward": float(graded.raw_rewards.mean()),
        "length": float(graded.lengths.mean()),
        "correct": float(graded.correct.mean()),
        "rewards": graded.rewards.mean(1).tolist(),
        "raw_rewards": graded.raw_rewards.mean(1).tolist(),
        "lengths": graded.lengths.mean(1).tolist(),
    }


def regression(points: pa.Table, *, shortest: float, longest: float) -> Regression | None:
    """Raw reward on log mean length over the points whose mean length lies within the limits; 0 is no limit."""
    lengths, raw = (np.array(points.column(name).to_pylist()) for name in ("lengths", "raw_rewards"))
    return surface.length_regression(lengths, raw, low=shortest or None, high=longest or None)


def draw(points: pa.Table, plane: Plane, fit: Regression | None, out: Path) -> None:
    """All plots (PNG and SVG), and ``landscape.json`` with the figures behind them."""
    reward, length, raw = (mean(points, name) for name in ("reward", "length", "raw_reward"))
    where, path, explained = places(points), plane.trajectory, plane.explained
    plot.surface(out / "reward", where, reward, path, title="Mean reward", label="reward", explained=explained)
    plot.surface(out / "length", where, length, path, title="Mean output length", label="tokens", explained=explained)
    plot.regression(out / "regression", length, raw, fit)
    plot.combined(out / "landscape", where, reward, length, raw, path, fit, explained=explained)
    with durable.whole_file(out / "landscape.json") as file:
        file.write((json.dumps(figures(plane, fit), indent=1) + "\n").encode())


def mean(points: pa.Table, name: str) -> Array:
    """A column of means, shape (points,)."""
    column: Array = points.column(name).to_numpy()
    return column


def places(points: pa.Table) -> Array:
    """Where the points lie, shape (points, 2)."""
    return np.stack([mean(points, "a1"), mean(points, "a2")], 1)


def figures(plane: Plane, fit: Regression | None) -> dict[str, Any]:
    """The plane and the regression as JSON values."""
    described: dict[str, Any] = {
        "checkpoints": [folder.name for folder in plane.folders],
        "explained": plane.explained.tolist(),
        "trajectory": plane.trajectory.tolist(),
        "off_plane": plane.off_plane.tolist(),
        "drift": plane.drift,
        "changed": plane.changed,
        "storage": list(plane.storage),
    }
    if fit is not None:
        slope, doubling = fit.slope, fit.slope_per_doubling
        described["regression"] = {
            "slope": [slope.mean, slope.low, slope.high],
            "slope_per_doubling": [doubling.mean, doubling.low, doubling.high],
            "r2": fit.r2,
            "points_used": fit.n_used,
            "points_dropped": fit.n_dropped,
        }
    return described
