"""The output folder of a landscape: figures (PNG, SVG, PDF), tables (CSV, Arrow), ``landscape.json``, ``index.html``.

The page is self-contained and drawn by the browser from embedded data. Its surfaces are linear on the same triangles as
in the figures. Every point is reachable by mouse and keyboard, and shows its statistics and stored completions.
"""

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from magcli.data import table
from magcli.data.durable import atomic_file
from magcli.landscape import plot, results
from magcli.landscape.diagnosis import summary
from magcli.landscape.pca import Plane
from magcli.landscape.surface import Regression, band, triangulate
from magcli.landscape.visits import Survey
from magcli.run.job import Job

MAX_TENSORS = 12
"""Number of tensors listed on the page."""
MAX_TEXT = 20_000
"""Prompts and completions on the page are truncated to this many characters."""


def write(out: Path, found: Survey, points: pa.Table, plane: Plane, fit: Regression | None, job: Job) -> None:
    """Write all files and log the main figures."""
    repeated, samples = results.compare_origin(found), results.samples(found)
    _figures(out, points, plane, fit)
    figures = results.plane_figures(plane) | {"origin_again": repeated, "regression": results.fit_figures(fit)}
    _table(out / "points.csv", points.drop_columns(list(results.PER_PROBLEM)), job)
    _table(out / "samples.arrow", samples, job)
    texts = {"name": plane.folders[-1].parent.parent.name, "facts": summary(plane) + ".", "origin": _origin(repeated)}
    write_page(out / "index.html", figures | texts, points, samples, fit)
    results.write(out / "landscape.json", figures)
    _log(out, points, repeated, job)


def write_plane(out: Path, plane: Plane, job: Job) -> None:
    """Write only the plane: ``plane.json``, and the drift of every tensor as ``tensors.csv``."""
    figures = results.plane_figures(plane)
    results.write(out / "plane.json", figures)
    rows = [
        {**tensor, **dict(zip(("explained_1", "explained_2"), tensor.pop("explained"), strict=True))}
        for tensor in map(dict, figures["tensors"])
    ]
    _table(out / "tensors.csv", pa.Table.from_pylist(rows), job)


def _figures(out: Path, points: pa.Table, plane: Plane, fit: Regression | None) -> None:
    where = results.coordinates(points)

    def surface(column: str, title: str, label: str) -> plot.Surface:
        values = results.mean(points, column)
        return plot.Surface(where, values, plane.trajectory, plane.explained, title, label)

    reward, length = surface("reward", "Mean reward", "reward"), surface("length", "Mean output length", "tokens")
    regression = plot.LengthFit(length.values, results.mean(points, "raw_reward"), fit)
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
    difference, low, high = (repeated[key] for key in ("difference", "difference_low", "difference_high"))
    equal = f"{repeated['equal']:,} of {repeated['completions']:,} completions equal"
    reward = f"reward {difference:+.3f} [{low:+.3f}, {high:+.3f}]"
    return f"Final weights evaluated again at the end: {equal}, {reward}."


def _log(out: Path, points: pa.Table, repeated: dict[str, Any], job: Job) -> None:
    reward = results.mean(points, "reward")
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
        "points": points.drop_columns(list(results.PER_PROBLEM)).to_pylist(),
        "triangles": triangulate(results.coordinates(points)).get_masked_triangles().tolist(),
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
    _, low, high = band(fit, lengths)
    rows: list[list[float]] = np.stack([lengths, low, high], 1).tolist()
    return rows
