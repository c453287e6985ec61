"""The folder of a landscape: figures (PNG, SVG, PDF), tables (CSV, Arrow), ``landscape.json`` and ``index.html``."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from magcli.data import table
from magcli.landscape import plot, results
from magcli.landscape.diagnosis import summary
from magcli.landscape.page import write_page
from magcli.landscape.pca import Plane
from magcli.landscape.surface import Regression
from magcli.landscape.visits import Survey
from magcli.run.job import Job


def write(out: Path, found: Survey, points: pa.Table, plane: Plane, fit: Regression | None, job: Job) -> None:
    """Write all of it and tell people the main figures."""
    again, samples = results.origin_again(found), results.samples(found)
    _figures(out, points, plane, fit)
    told = results.plane_figures(plane) | {"origin_again": again, "regression": results.fit_figures(fit)}
    _table(out / "points.csv", points.drop_columns(list(results.PER_PROBLEM)), job)
    _table(out / "samples.arrow", samples, job)
    words = {"name": plane.folders[-1].parent.parent.name, "facts": summary(plane) + ".", "origin": _origin(again)}
    write_page(out / "index.html", told | words, points, samples, fit)
    results.write(out / "landscape.json", told)
    _tell(out, points, again, job)


def write_plane(out: Path, plane: Plane, job: Job) -> None:
    """The plane alone: ``plane.json``, and how every tensor moved as ``tensors.csv``."""
    figures = results.plane_figures(plane)
    results.write(out / "plane.json", figures)
    rows = [
        {**tensor, **dict(zip(("explained_1", "explained_2"), tensor.pop("explained") or (None, None), strict=True))}
        for tensor in map(dict, figures["tensors"])
    ]
    _table(out / "tensors.csv", pa.Table.from_pylist(rows), job)


def _figures(out: Path, points: pa.Table, plane: Plane, fit: Regression | None) -> None:
    reward, length, raw = (results.mean(points, name) for name in ("reward", "length", "raw_reward"))
    where, path, explained = results.places(points), plane.trajectory, plane.explained
    plot.surface(out / "reward", where, reward, path, title="Mean reward", label="reward", explained=explained)
    plot.surface(out / "length", where, length, path, title="Mean output length", label="tokens", explained=explained)
    plot.regression(out / "regression", length, raw, fit)
    plot.combined(out / "landscape", where, reward, length, raw, path, fit, explained=explained)


def _table(path: Path, rows: pa.Table, job: Job) -> None:
    with table.write(str(path), rows.schema, "") as sink:
        for batch in rows.to_batches():
            sink.write(batch)
        sink.finish(job.history(rows.num_rows))


def _origin(again: dict[str, Any]) -> str:
    difference, low, high = (again[key] for key in ("difference", "difference_low", "difference_high"))
    return (
        f"The final weights again at the end: {again['equal']:,} of {again['completions']:,} completions equal, "
        f"reward {difference:+.3f} [{low:+.3f}, {high:+.3f}]."
    )


def _tell(out: Path, points: pa.Table, again: dict[str, Any], job: Job) -> None:
    reward = results.mean(points, "reward")
    best = points.slice(int(np.argmax(reward)), 1).to_pylist()[0]
    gain, low, high = (best[key] for key in ("difference", "difference_low", "difference_high"))
    job.console.say(
        f"landscape: {len(reward)} points, reward {reward.min():.3f} to {reward.max():.3f} (best at"
        f" a1 {best['a1']:+.3g}, a2 {best['a2']:+.3g}: {gain:+.3f} [{low:+.3f}, {high:+.3f}] beside the final weights);"
        f" look at {out / 'index.html'}",
        event="landscape",
        out=str(out),
    )
    if again["difference_low"] <= 0 <= again["difference_high"]:
        job.console.say(_origin(again), event="origin", **again)
    else:
        job.console.warn(_origin(again) + " The engine did not come back to the same weights.", event="origin", **again)
