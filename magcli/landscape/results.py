"""The results of a landscape: tables of points and samples, figures, ``landscape.json``, ``index.html``.

The page is self-contained and drawn by the browser from embedded data. Its surfaces are linear on the same triangles as
in the figures. Every point is reachable by mouse and keyboard, and shows its statistics and stored completions.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from magcli.data import table
from magcli.data.durable import atomic_file
from magcli.landscape import plot, surface
from magcli.landscape.diagnosis import like_random_walk, step_in_gaps, summary, warnings
from magcli.landscape.pca import Plane, random_walk
from magcli.landscape.surface import Array, Interval, Regression
from magcli.landscape.visits import VISIT, Survey, column
from magcli.run.job import Job

MAX_TENSORS = 12
"""Number of tensors listed on the page."""
MAX_TEXT = 20_000
"""Prompts and completions on the page are truncated to this many characters."""
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


def write(out: Path, found: Survey, points: pa.Table, plane: Plane, fit: Regression | None, job: Job) -> None:
    """Write all files and log the main figures."""
    repeated, samples = compare_origin(found), sample_table(found)
    _figures(out, points, plane, fit)
    figures = plane_figures(plane) | {"origin_again": repeated, "regression": fit_figures(fit)}
    _table(out / "points.csv", points.drop_columns(list(PER_PROBLEM)), job)
    _table(out / "samples.arrow", samples, job)
    texts = {"name": plane.folders[-1].parent.parent.name, "facts": summary(plane) + ".", "origin": _origin(repeated)}
    write_page(out / "index.html", figures | texts, points, samples, fit)
    write_json(out / "landscape.json", figures)
    _log(out, points, repeated, job)


def write_plane(out: Path, plane: Plane, job: Job) -> None:
    """Write only the plane: ``plane.json``, and the drift of every tensor as ``tensors.csv``."""
    figures = plane_figures(plane)
    write_json(out / "plane.json", figures)
    rows = [
        {**tensor, **dict(zip(("explained_1", "explained_2"), tensor.pop("explained") or (None, None), strict=True))}
        for tensor in map(dict, figures["tensors"])
    ]
    _table(out / "tensors.csv", pa.Table.from_pylist(rows), job)


def _figures(out: Path, points: pa.Table, plane: Plane, fit: Regression | None) -> None:
    where = coordinates(points)

    def panel(column: str, title: str, label: str) -> plot.Surface:
        values = values_of(points, column)
        return plot.Surface(where, values, plane.trajectory, plane.explained, title, label)

    reward, length = panel("reward", "Mean reward", "reward"), panel("length", "Mean output length", "tokens")
    regression = plot.LengthFit(length.values, values_of(points, "raw_reward"), fit)
    plot.write(out / "reward", reward)
    plot.write(out / "length", length)
    plot.write(out / "regression", regression)
    plot.write(out / "landscape", reward, length, regression)


def _table(path: Path, rows: pa.Table, job: Job) -> None:
    with table.write(str(path), rows.schema, "") as sink:
        for batch in rows.to_batches():
            sink.write(batch)
        sink.finish(job.history(rows.num_rows))


def _origin(repeated: dict[str, Any]) -> str:
    change, low, high = (repeated[key] for key in ("difference", "difference_low", "difference_high"))
    equal = f"{repeated['equal']:,} of {repeated['completions']:,} completions equal"
    reward = f"reward {change:+.3f} [{low:+.3f}, {high:+.3f}]"
    return f"Final weights evaluated again at the end: {equal}, {reward}."


def _log(out: Path, points: pa.Table, repeated: dict[str, Any], job: Job) -> None:
    reward = values_of(points, "reward")
    best = points.slice(int(np.argmax(reward)), 1).to_pylist()[0]
    gain, low, high = (best[key] for key in ("difference", "difference_low", "difference_high"))
    job.console.say(
        f"landscape: {len(reward)} points, reward {reward.min():.3f} to {reward.max():.3f}"
        f" (best at a1 {best['a1']:+.3g}, a2 {best['a2']:+.3g}: {gain:+.3f} [{low:+.3f}, {high:+.3f}] against the final"
        f" weights); open {out / 'index.html'}",
        event="landscape",
        out=str(out),
    )
    if repeated["difference_low"] <= 0 <= repeated["difference_high"]:
        job.console.say(_origin(repeated), event="origin", **repeated)
    else:
        text = _origin(repeated) + " The engine did not return to the same weights."
        job.console.warn(text, event="origin", **repeated)


def write_page(
    path: Path, figures: Mapping[str, Any], points: pa.Table, samples: pa.Table, fit: Regression | None
) -> None:
    """Write the page. ``figures`` are those of ``landscape.json`` and the texts ``name``, ``facts`` and ``origin``."""
    data = {
        **{key: value for key, value in figures.items() if key not in ("regression", "tensors")},
        "tensors": sorted(figures["tensors"], key=lambda tensor: -tensor["variance"])[:MAX_TENSORS],
        "points": points.drop_columns(list(PER_PROBLEM)).to_pylist(),
        "triangles": surface.triangulate(coordinates(points)).get_masked_triangles().tolist(),
        "samples": [_truncated(row) for row in samples.to_pylist()],
        "fit": figures["regression"] | ({"band": _band(points, fit)} if fit else {}),
    }
    template = files("magcli.landscape").joinpath("page.html").read_text(encoding="utf-8")
    with atomic_file(path) as file:
        file.write(template.replace("@DATA@", script_json(data)).encode())


def script_json(data: Mapping[str, Any]) -> str:
    """JSON that is safe inside a script element."""
    return json.dumps(data, allow_nan=False).replace("<", "\\u003c")


def _truncated(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value[:MAX_TEXT] if isinstance(value, str) else value for key, value in row.items()}


def _band(points: pa.Table, fit: Regression) -> list[list[float]]:
    """Lengths with the bounds of the 95 % interval of the fit."""
    used = points.column("length").to_numpy()[fit.used]
    lengths = np.geomspace(used.min(), used.max(), 40)
    _, low, high = surface.confidence_band(fit, lengths)
    rows: list[list[float]] = np.stack([lengths, low, high], 1).tolist()
    return rows


def point_table(found: Survey) -> pa.Table:
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
        **_interval("reward", surface.mean_interval(reward)),
        **_interval("difference", surface.paired_difference(reward, origin)),
        **_interval("length", surface.mean_interval(length)),
        "raw_reward": float(raw.mean()),
        "correct": float(column(rows, "correct").mean()),
        "truncated": float((column(rows, "finish") == "length").mean()),
        "rewards": reward.mean(1).tolist(),
        "raw_rewards": raw.mean(1).tolist(),
        "lengths": length.mean(1).tolist(),
    }


def _interval(name: str, found: Interval) -> dict[str, float]:
    return {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}


def sample_table(found: Survey) -> pa.Table:
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
    change = surface.paired_difference(column(last, "reward"), column(first, "reward")[:, : one.shape[1]])
    return {"completions": one.size, "equal": int((one == other).sum()), **_interval("difference", change)}


def fit_length(points: pa.Table, *, shortest: float, longest: float) -> Regression | None:
    """Regress raw reward on log mean length over the points within the length limits; 0 means no limit."""
    lengths, raw = (np.array(points.column(name).to_pylist()) for name in ("lengths", "raw_rewards"))
    return surface.length_regression(lengths, raw, low=shortest or None, high=longest or None)


def values_of(points: pa.Table, name: str) -> Array:
    """A column of means, shape (points,)."""
    values: Array = points.column(name).to_numpy()
    return values


def coordinates(points: pa.Table) -> Array:
    """The coordinates of the points, shape (points, 2)."""
    return np.stack([values_of(points, "a1"), values_of(points, "a2")], 1)


def write_json(path: Path, described: Mapping[str, Any]) -> None:
    """Write figures as JSON."""
    with atomic_file(path) as file:
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
