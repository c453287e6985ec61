"""The results of a landscape: tables of points and samples, figures, ``landscape.json``, ``index.html``.

The page is self-contained and drawn by the browser from embedded data. Every point is reachable by mouse and keyboard,
and shows its statistics and stored completions. The figures, as PNG, SVG and PDF, are surfaces over the plane, the path
of the run, and reward against length. Surfaces are linear on the triangles of the evaluated points, drawn at their
actual coordinates. Equal input gives figures of equal bytes (no dates, no random ids) for one version of matplotlib; no
global state is changed, and no display is needed.
"""

import io
import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from magcli.data import table
from magcli.data.durable import atomic_file
from magcli.data.html import CONTENT_POLICY, script_json
from magcli.landscape import surface
from magcli.landscape.pca import Plane, like_random_walk, random_walk, step_in_gaps, summary, warnings
from magcli.landscape.surface import (
    Array,
    Interval,
    Regression,
    confidence_band,
    difference_text,
    origin_text,
    triangulate,
)
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
    {
        "point": pa.int64(),
        "phase": pa.string(),
        "samples": pa.int64(),
        **dict.fromkeys(MEANS, pa.float64()),
        **dict.fromkeys(PER_PROBLEM, pa.list_(pa.float64())),
    }
)
"""One row per point: phase (``grid`` or ``refined``), samples per problem, coordinates, means with 95 % intervals, and
per-problem means. ``difference`` is the reward minus that at w*, paired by problem; ``truncated`` the fraction of
completions that reached the maximum length."""

SAMPLE = pa.schema([("point", pa.int64()), *[field for field in VISIT if field.name != "digest"]])
"""One row per completion whose text is stored."""

STYLE = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.labelsize": 10,
    "font.family": "DejaVu Sans",
    "figure.constrained_layout.wspace": 0.05,
    "svg.hashsalt": "magcli",
    "svg.fonttype": "path",
}
SINGLE, WIDE = (6.4, 5.2), (17.5, 5.2)
"""Sizes of figures with one and with three panels, in inches."""
STAR: dict[str, Any] = {"marker": "*", "linestyle": "", "color": "white", "markeredgecolor": "black"}
LEGEND: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "frameon": False, "fontsize": 9}
FORMATS = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}}
"""Formats and the metadata that they omit, such as dates."""


def write(out: Path, survey: Survey, points: pa.Table, plane: Plane, fit: Regression | None, job: Job) -> None:
    """Write all files and log the main figures."""
    repeated = compare_origin(survey)
    samples = sample_table(survey)
    _figures(out, points, plane, fit)
    figures = plane_figures(plane) | drawn_figures(points, fit) | {"origin_again": repeated}
    _table(out / "points.csv", points.drop_columns(list(PER_PROBLEM)), job)
    _table(out / "samples.arrow", samples, job)
    run_folder = plane.folders[-1].parent.parent  # RUN/trajectory/step-000100
    texts = {"name": run_folder.name, "facts": f"{summary(plane)}.", "origin": f"{origin_text(repeated)}."}
    write_page(out / "index.html", figures | texts, points, samples)
    write_json(out / "landscape.json", figures)
    _log(out, points, repeated, job)


def write_plane(out: Path, plane: Plane, job: Job) -> None:
    """Write only the plane: ``plane.json``, and the drift of every tensor as ``tensors.csv``."""
    figures = plane_figures(plane)
    write_json(out / "plane.json", figures)
    rows = []
    for tensor in map(dict, figures["tensors"]):
        first, second = tensor.pop("explained")
        rows.append({**tensor, "explained_1": first, "explained_2": second})
    _table(out / "tensors.csv", pa.Table.from_pylist(rows), job)


def _figures(out: Path, points: pa.Table, plane: Plane, fit: Regression | None) -> None:
    where = coordinates(points)

    def panel(column: str, title: str, label: str) -> Surface:
        values = values_of(points, column)
        return Surface(where, values, plane.trajectory, plane.explained, title, label)

    reward = panel("reward", "Mean reward", "reward")
    length = panel("length", "Mean output length", "tokens")
    regression = LengthFit(length.values, values_of(points, "raw_reward"), fit)
    write_figure(out / "reward", reward)
    write_figure(out / "length", length)
    write_figure(out / "regression", regression)
    write_figure(out / "landscape", reward, length, regression)


def _table(path: Path, rows: pa.Table, job: Job) -> None:
    with table.write(str(path), rows.schema, "") as sink:
        for batch in rows.to_batches():
            sink.write(batch)
        sink.finish(job.history(rows.num_rows))


def _log(out: Path, points: pa.Table, repeated: dict[str, Any], job: Job) -> None:
    reward = values_of(points, "reward")
    (best,) = points.slice(int(np.argmax(reward)), 1).to_pylist()
    job.console.say(
        f"landscape: {len(reward)} points, reward {reward.min():.3f} to {reward.max():.3f}"
        f" (best at a1 {best['a1']:+.3g}, a2 {best['a2']:+.3g}: {difference_text(best)} against the final"
        f" weights); open {out / 'index.html'}",
        event="landscape",
        out=str(out),
    )
    origin = f"{origin_text(repeated)}."
    # The interval of the difference contains 0.
    returned = repeated["difference_low"] <= 0 <= repeated["difference_high"]
    if returned:
        job.console.say(origin, event="origin", **repeated)
    else:
        text = f"{origin} The engine did not return to the same weights."
        job.console.warn(text, event="origin", **repeated)


def write_page(path: Path, figures: Mapping[str, Any], points: pa.Table, samples: pa.Table) -> None:
    """Write the page. ``figures`` are those of ``landscape.json`` and the texts ``name``, ``facts`` and ``origin``."""
    # A large model has hundreds of tensors; the page lists those that explain most.
    most_variance_first = sorted(figures["tensors"], key=lambda tensor: -tensor["variance"])
    data = {
        **{key: value for key, value in figures.items() if key not in ("regression", "tensors")},
        "tensors": most_variance_first[:MAX_TENSORS],
        "points": points.drop_columns(list(PER_PROBLEM)).to_pylist(),
        "samples": [_truncated(row) for row in samples.to_pylist()],
        "fit": figures["regression"],
    }
    template = files("magcli.landscape").joinpath("page.html").read_text(encoding="utf-8")
    page = template.replace("@POLICY@", CONTENT_POLICY).replace("@DATA@", script_json(data))
    with atomic_file(path) as file:
        file.write(page.encode())


def _truncated(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value[:MAX_TEXT] if isinstance(value, str) else value for key, value in row.items()}


def _band(points: pa.Table, fit: Regression) -> list[list[float]]:
    """Lengths with the bounds of the 95 % interval of the fit."""
    used = points.column("length").to_numpy()[fit.used]
    lengths = np.geomspace(used.min(), used.max(), 40)
    _, low, high = surface.confidence_band(fit, lengths)
    rows: list[list[float]] = np.stack([lengths, low, high], 1).tolist()
    return rows


def point_table(survey: Survey) -> pa.Table:
    """One row per point, in the order of the first visits."""
    origin = column(survey.rows[survey.points.index((0.0, 0.0))], "reward")
    rows = [_point(number, survey, origin) for number in range(len(survey.points))]
    return pa.Table.from_pylist(rows, POINT)


def _point(number: int, survey: Survey, origin: Array) -> dict[str, Any]:
    rows = survey.rows[number]
    reward, length, penalty = (column(rows, name) for name in ("reward", "num_tokens", "reward_length"))
    raw = reward - penalty  # without the part of the reward that is for length
    where = {name: rows.column(name)[0].as_py() for name in ("a1", "a2", "off_plane")}
    return {
        "point": number,
        "phase": "grid" if survey.grid[number] else "refined",
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


def _interval(name: str, interval: Interval) -> dict[str, float]:
    return {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}


def sample_table(survey: Survey) -> pa.Table:
    """The completions whose texts are stored, with the number of their point."""
    parts = []
    for number, rows in enumerate(survey.rows):
        kept = rows.filter(rows.column("completion").is_valid())
        points = pa.array([number] * kept.num_rows, pa.int64())
        columns = [points, *[kept.column(name) for name in SAMPLE.names[1:]]]
        parts.append(pa.RecordBatch.from_arrays(columns, schema=SAMPLE))
    return pa.Table.from_batches(parts, SAMPLE)


def compare_origin(survey: Survey) -> dict[str, Any]:
    """Compare the evaluations of the final weights at start and end: equal completions and difference of the reward."""
    assert survey.repeated_origin is not None
    first = survey.rows[survey.points.index((0.0, 0.0))]
    last = survey.repeated_origin
    last_digests = column(last, "digest")  # (problems, samples)
    # The origin may have extra samples, which are not repeated.
    num_samples = last_digests.shape[1]
    first_digests = column(first, "digest")[:, :num_samples]
    first_rewards = column(first, "reward")[:, :num_samples]
    change = surface.paired_difference(column(last, "reward"), first_rewards)
    num_equal = int((first_digests == last_digests).sum())
    return {"completions": first_digests.size, "equal": num_equal, **_interval("difference", change)}


def fit_length(points: pa.Table, *, shortest: float, longest: float) -> Regression | None:
    """Regress raw reward on log mean length over the points within the length limits; 0 means no limit."""
    lengths = np.array(points.column("lengths").to_pylist())  # (points, problems), as the rewards
    raw = np.array(points.column("raw_rewards").to_pylist())
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


def drawn_figures(points: pa.Table, fit: Regression | None) -> dict[str, Any]:
    """What a page needs to draw the points: the triangles between them, and the regression with its band."""
    triangles = triangulate(coordinates(points)).get_masked_triangles()  # (triangles, 3), indices of points
    regression = fit_figures(fit)
    if fit is not None:
        regression["band"] = _band(points, fit)
    return {"triangles": triangles.tolist(), "regression": regression}


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


class Surface(NamedTuple):
    """Filled contours of ``values`` (P,) at ``points`` (P, 2), and the ``path`` (T, 2), which ends at w*.

    ``explained`` are the shares of variance of the axes.
    """

    points: Array
    values: Array
    path: Array
    explained: Array
    title: str
    label: str

    def draw(self, axes: Axes) -> None:
        """Evaluated points in black, the path as arrows, and a star at w*."""
        triangles = triangulate(self.points)
        filled = axes.tricontourf(triangles, self.values, levels=_levels(self.values), cmap="viridis")
        axes.figure.colorbar(filled, ax=axes, label=self.label, ticks=MaxNLocator(6))
        axes.plot(*self.points.T, "k.", markersize=4, zorder=2)
        _draw_path(axes, self.path)
        first, second = (f"{100 * value:.1f} % of variance" for value in self.explained[:2])
        axes.set(title=self.title, xlabel=f"$a_1$ along $c_1$ ({first})", ylabel=f"$a_2$ along $c_2$ ({second})")
        axes.ticklabel_format(style="sci", scilimits=(-3, 4), useMathText=True)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        # Contours would stick to the edge, without the margin.
        axes.use_sticky_edges = False
        axes.margins(0.03)
        black: dict[str, Any] = {"color": "black", "linestyle": ""}
        symbols = [
            Line2D([], [], marker=".", label="evaluated", **black),
            Line2D([], [], marker=r"$\rightarrow$", markersize=14, label="checkpoints, projected", **black),
            Line2D([], [], **STAR, markersize=13, label="final weights"),
        ]
        axes.legend(handles=symbols, ncols=3, **LEGEND)


class LengthFit(NamedTuple):
    """Raw reward against mean length, (P,) each, with the fitted line and its 95 % band."""

    lengths: Array
    rewards: Array
    fit: Regression | None

    def draw(self, axes: Axes) -> None:
        """Points in the fit in black, points outside the length limits hollow."""
        lengths, rewards, fit = self
        used = np.zeros(len(lengths), bool) if fit is None else fit.used  # (P,)
        axes.set_xscale("log")
        if not used.all():
            label = "outside the length limits" if fit else "evaluated"
            hollow: dict[str, Any] = {"color": "0.45", "fillstyle": "none", "markersize": 5}
            axes.plot(lengths[~used], rewards[~used], "o", label=label, **hollow)
        title = "Raw reward against output length"
        axes.set_title(title if fit else f"{title} (too few lengths for a line)")
        if fit is not None:
            axes.plot(lengths[used], rewards[used], "ko", markersize=4, label=f"evaluated, {fit.n_used} points")
            _draw_fit(axes, lengths[used], fit)
        axes.set(xlabel="mean output length (tokens, log scale)", ylabel="raw reward (no length penalty)")
        _plain_log_ticks(axes, lengths)
        axes.legend(ncols=2, **LEGEND)


def write_figure(path_stem: Path, *panels: Surface | LengthFit) -> list[Path]:
    """Write panels side by side to ``path_stem``.png, .svg and .pdf, each atomically; return the paths."""
    written = []
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=WIDE if len(panels) > 1 else SINGLE, layout="constrained")
        FigureCanvasAgg(figure)  # registers itself with the figure
        row_of_axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, panel in zip(row_of_axes, panels, strict=True):
            panel.draw(axes)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # else every format is laid out again, which takes longer than drawing
        for kind, metadata in FORMATS.items():
            image = io.BytesIO()
            figure.savefig(image, format=kind, dpi=150, metadata=metadata)
            path = path_stem.with_name(f"{path_stem.name}.{kind}")
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(path) as file:
                file.write(image.getvalue())
            written.append(path)
    return written


def _draw_path(axes: Axes, path: Array) -> None:
    """Arrows from checkpoint to checkpoint, on top of the points."""
    steps = np.diff(path, axis=0)
    scale = {"angles": "xy", "scale_units": "xy", "scale": 1, "width": 0.006}
    head = {"headwidth": 4, "headlength": 5, "headaxislength": 4.5}
    axes.quiver(*path[:-1].T, *steps.T, color="black", zorder=3, **scale, **head)
    axes.plot(*path[-1], **STAR, markersize=15, zorder=4)


def _draw_fit(axes: Axes, lengths: Array, fit: Regression) -> None:
    x = np.geomspace(lengths.min(), lengths.max(), 100)
    y, low, high = confidence_band(fit, x)
    axes.fill_between(x, low, high, color="#0072B2", alpha=0.25, linewidth=0, label="95 % interval of the line")
    gain = fit.slope_per_doubling
    text = f"{gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}] per doubling, $R^2$ = {fit.r2:.2f}"
    axes.plot(x, y, color="#0072B2", linewidth=2, label=text)


def _plain_log_ticks(axes: Axes, lengths: Array) -> None:
    """About five round numbers of tokens, evenly spaced on the logarithmic axis."""
    ticks = _round_lengths(float(lengths.min()), float(lengths.max()))
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.xaxis.set_minor_locator(NullLocator())


def _round_lengths(low: float, high: float) -> list[float]:
    """``low`` to ``high`` in four equal ratios, with the fewest digits that keep at least four values distinct."""
    spread = np.geomspace(low, high, 5)
    for digits in range(1, 6):
        ticks = sorted({float(f"{value:.{digits}e}") for value in spread})
        if len(ticks) >= 4:
            break
    return ticks


def _levels(values: Array) -> Array:
    """Round contour levels over the range of ``values``, about 12 of them."""
    low, high = float(values.min()), float(values.max())
    is_flat = high - low <= 1e-9 * max(abs(low), abs(high), 1e-9)
    if is_flat:
        margin = max(abs(low), 1.0) * 1e-3
        low, high = low - margin, high + margin
    return np.asarray(MaxNLocator(12).tick_values(low, high))
