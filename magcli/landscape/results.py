"""Aggregate the samples at the points of a landscape: means with intervals, and figures as JSON."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from magcli.data import durable
from magcli.landscape import surface
from magcli.landscape.diagnosis import like_random_walk, step_in_gaps, warnings
from magcli.landscape.pca import Plane, random_walk
from magcli.landscape.surface import Array, Interval, Regression
from magcli.landscape.visits import VISIT, Survey, column

PER_PROBLEM = ("rewards", "raw_rewards", "lengths")
MEANS = ("a1", "a2", "off_plane", "reward", "reward_low", "reward_high", "difference", "difference_low",
         "difference_high", "raw_reward", "length", "length_low", "length_high", "correct", "truncated")  # fmt: skip

POINT = pa.schema(
    [
        pa.field("point", pa.int64()),
        pa.field("phase", pa.string()),
        pa.field("samples", pa.int64()),
        *[pa.field(name, pa.float64()) for name in MEANS],
        *[pa.field(name, pa.list_(pa.float64())) for name in PER_PROBLEM],
    ]
)
"""One row per point: phase (``grid`` or ``refined``), samples per problem, coordinates, means with 95 % intervals, and
per-problem means. ``difference`` is the reward minus that at w*, paired by problem; ``truncated`` the fraction of
completions that reached the maximum length."""

SAMPLE = pa.schema([pa.field("point", pa.int64()), *[each for each in VISIT if each.name != "digest"]])
"""One row per completion whose text is stored."""


def points(found: Survey) -> pa.Table:
    """One row per point, in the order of the first visits."""
    origin = column(found.rows[found.points.index((0.0, 0.0))], "reward")
    rows = [_point(number, found, origin) for number in range(len(found.points))]
    return pa.Table.from_pylist(rows, POINT)


def _point(number: int, found: Survey, origin: Array) -> dict[str, Any]:
    rows = found.rows[number]
    reward, length, penalty = (column(rows, name) for name in ("reward", "num_tokens", "reward_length"))
    raw = reward - penalty
    where = {name: rows.column(name)[0].as_py() for name in ("a1", "a2", "off_plane")}
    return {
        "point": number,
        "phase": "grid" if found.grid[number] else "refined",
        "samples": reward.shape[1],
        **where,
        **_interval("reward", surface.level(reward)),
        **_interval("difference", surface.difference(reward, origin)),
        **_interval("length", surface.level(length)),
        "raw_reward": float(raw.mean()),
        "correct": float(column(rows, "correct").mean()),
        "truncated": float((column(rows, "finish") == "length").mean()),
        "rewards": reward.mean(1).tolist(),
        "raw_rewards": raw.mean(1).tolist(),
        "lengths": length.mean(1).tolist(),
    }


def _interval(name: str, found: Interval) -> dict[str, float]:
    return {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}


def samples(found: Survey) -> pa.Table:
    """The completions whose texts are stored, with the number of their point."""
    parts = []
    for number, rows in enumerate(found.rows):
        kept = rows.filter(rows.column("completion").is_valid())
        columns = [pa.array([number] * kept.num_rows, pa.int64()), *[kept.column(name) for name in SAMPLE.names[1:]]]
        parts.append(pa.RecordBatch.from_arrays(columns, schema=SAMPLE))
    return pa.Table.from_batches(parts, SAMPLE)


def compare_origin(found: Survey) -> dict[str, Any]:
    """Compare the evaluations of the final weights at start and end: equal completions and difference of the reward."""
    assert found.repeated_origin is not None
    first, last = found.rows[found.points.index((0.0, 0.0))], found.repeated_origin
    one, other = column(first, "digest")[:, : column(last, "digest").shape[1]], column(last, "digest")
    change = surface.difference(column(last, "reward"), column(first, "reward")[:, : one.shape[1]])
    return {"completions": one.size, "equal": int((one == other).sum()), **_interval("difference", change)}


def regression(points: pa.Table, *, shortest: float, longest: float) -> Regression | None:
    """Regress raw reward on log mean length over the points within the length limits; 0 means no limit."""
    lengths, raw = (np.array(points.column(name).to_pylist()) for name in ("lengths", "raw_rewards"))
    return surface.length_regression(lengths, raw, low=shortest or None, high=longest or None)


def mean(points: pa.Table, name: str) -> Array:
    """A column of means, shape (points,)."""
    column: Array = points.column(name).to_numpy()
    return column


def coordinates(points: pa.Table) -> Array:
    """The coordinates of the points, shape (points, 2)."""
    return np.stack([mean(points, "a1"), mean(points, "a2")], 1)


def write(path: Path, described: Mapping[str, Any]) -> None:
    """Write figures as JSON."""
    with durable.atomic_file(path) as file:
        file.write((json.dumps(described, indent=1) + "\n").encode())


def plane_figures(plane: Plane) -> dict[str, Any]:
    """The plane as JSON values, including every tensor and the warnings."""
    return {
        "checkpoints": [folder.name for folder in plane.folders],
        "explained": plane.explained.tolist(),
        "random_walk": random_walk(len(plane.folders)).tolist(),
        "like_random_walk": like_random_walk(plane),
        "trajectory": plane.trajectory.tolist(),
        "off_plane": plane.off_plane.tolist(),
        "distance": plane.distance.tolist(),
        "drift": plane.drift,
        "changed": plane.changed,
        "storage": list(plane.storage),
        "step_in_gaps": step_in_gaps(plane),
        "warnings": warnings(plane),
        "tensors": [_finite(asdict(tensor)) for tensor in plane.tensors],
    }


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity, which is the drift of a tensor that started at zero."""
    return {key: None if value == float("inf") else value for key, value in values.items()}


def fit_figures(fit: Regression | None) -> dict[str, Any]:
    """The regression as JSON values; empty without a fit."""
    if fit is None:
        return {}
    slope, doubling = fit.slope, fit.slope_per_doubling
    return {
        "slope": [slope.mean, slope.low, slope.high],
        "slope_per_doubling": [doubling.mean, doubling.low, doubling.high],
        "intercept": fit.intercept.mean,
        "r2": fit.r2,
        "points_used": fit.n_used,
        "points_dropped": fit.n_dropped,
    }
