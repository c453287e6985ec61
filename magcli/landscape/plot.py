"""Figures as PNG, SVG and PDF: surfaces over the plane, the path of the run, reward against length.

Equal input gives equal bytes (no dates, no random ids) for one version of matplotlib; no global state is changed, and
no display is needed. Surfaces are linear on the triangles of the evaluated points, drawn at their actual coordinates.
"""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from magcli.data.durable import atomic_file
from magcli.landscape.surface import Array, Regression, band, triangulate

STYLE = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.labelsize": 10,
    "font.family": "DejaVu Sans",
    "figure.constrained_layout.wspace": 0.05,
    "svg.hashsalt": "magcli",
    "svg.fonttype": "path",
}
COLORMAP = "viridis"
FORMATS = ("png", "svg", "pdf")
NO_DATE = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}}


def surface(
    path_stem: Path,
    points: npt.ArrayLike,
    values: npt.ArrayLike,
    trajectory: npt.ArrayLike,
    *,
    title: str,
    label: str,
    explained: npt.ArrayLike,
) -> list[Path]:
    """Write the surface of ``values`` (P,) at ``points`` (P, 2) to ``path_stem``.png, .svg and .pdf; return the paths.

    ``trajectory`` (T, 2) ends at w*; ``explained`` are the shares of variance of the axes.
    """
    with _figure(6.4, 5.2) as figure:
        draw_surface(figure.add_subplot(), points, values, trajectory, title=title, label=label, explained=explained)
        return _save(figure, path_stem)


def regression(path_stem: Path, lengths: npt.ArrayLike, rewards: npt.ArrayLike, fit: Regression | None) -> list[Path]:
    """Write raw reward against mean length, (P,) each, with the fitted line and its 95 % band."""
    with _figure(6.4, 5.2) as figure:
        draw_regression(figure.add_subplot(), lengths, rewards, fit)
        return _save(figure, path_stem)


def combined(
    path_stem: Path,
    points: npt.ArrayLike,
    rewards: npt.ArrayLike,
    lengths: npt.ArrayLike,
    raw_rewards: npt.ArrayLike,
    trajectory: npt.ArrayLike,
    fit: Regression | None,
    *,
    explained: npt.ArrayLike,
) -> list[Path]:
    """Write mean reward, mean output length and the regression side by side."""
    with _figure(17.5, 5.2) as figure:
        left, middle, right = figure.subplots(1, 3)
        draw_surface(left, points, rewards, trajectory, title="Mean reward", label="reward", explained=explained)
        draw_surface(
            middle, points, lengths, trajectory, title="Mean output length", label="tokens", explained=explained
        )
        draw_regression(right, lengths, raw_rewards, fit)
        return _save(figure, path_stem)


def draw_surface(
    axes: Axes,
    points: npt.ArrayLike,
    values: npt.ArrayLike,
    trajectory: npt.ArrayLike,
    *,
    title: str,
    label: str,
    explained: npt.ArrayLike,
) -> None:
    """Filled contours, evaluated points in black, the path as arrows, and a star at w*."""
    points, values, path = (np.asarray(x, float) for x in (points, values, trajectory))
    filled = axes.tricontourf(triangulate(points), values, levels=_levels(values), cmap=COLORMAP)
    axes.figure.colorbar(filled, ax=axes, label=label, ticks=MaxNLocator(6))
    axes.plot(*points.T, "k.", markersize=4, zorder=2)
    _draw_path(axes, path)
    share = [f" ({100 * value:.1f} % of variance)" for value in np.asarray(explained, float)[:2]]
    axes.set(title=title, xlabel="$a_1$ along $c_1$" + share[0], ylabel="$a_2$ along $c_2$" + share[1])
    axes.ticklabel_format(style="sci", scilimits=(-3, 4), useMathText=True)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.use_sticky_edges = False
    axes.margins(0.03)
    axes.legend(handles=_symbols(), loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3, frameon=False, fontsize=9)


def draw_regression(axes: Axes, lengths: npt.ArrayLike, rewards: npt.ArrayLike, fit: Regression | None) -> None:
    """Points in the fit in black, points outside the length limits hollow, the line and its 95 % band."""
    lengths, rewards = np.asarray(lengths, float), np.asarray(rewards, float)
    used = np.zeros(len(lengths), bool) if fit is None else fit.used
    axes.set_xscale("log")
    if not used.all():
        axes.plot(
            lengths[~used],
            rewards[~used],
            "o",
            color="0.45",
            fillstyle="none",
            markersize=5,
            label="outside the length limits" if fit else "evaluated",
        )
    if fit is None:
        axes.set_title("Raw reward against output length (too few lengths for a line)")
    else:
        axes.set_title("Raw reward against output length")
        axes.plot(lengths[used], rewards[used], "ko", markersize=4, label=f"evaluated, {fit.n_used} points")
        _draw_fit(axes, lengths[used], fit)
    axes.set(xlabel="mean output length (tokens, log scale)", ylabel="raw reward (no length penalty)")
    _plain_log_ticks(axes, lengths)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, frameon=False, fontsize=9)


def _symbols() -> list[Line2D]:
    """Legend handles of a surface."""
    return [
        Line2D([], [], color="black", marker=".", linestyle="", label="evaluated"),
        Line2D(
            [], [], color="black", marker=r"$\rightarrow$", markersize=14, linestyle="", label="checkpoints, projected"
        ),
        Line2D(
            [],
            [],
            color="white",
            marker="*",
            markeredgecolor="black",
            markersize=13,
            linestyle="",
            label="final weights",
        ),
    ]


def _draw_path(axes: Axes, path: Array) -> None:
    """Arrows from checkpoint to checkpoint, on top of the points."""
    steps = np.diff(path, axis=0)
    axes.quiver(
        *path[:-1].T,
        *steps.T,
        angles="xy",
        scale_units="xy",
        scale=1,
        color="black",
        width=0.006,
        headwidth=4,
        headlength=5,
        headaxislength=4.5,
        zorder=3,
    )
    axes.plot(*path[-1], "*", color="white", markeredgecolor="black", markersize=15, zorder=4)


def _draw_fit(axes: Axes, lengths: Array, fit: Regression) -> None:
    x = np.geomspace(lengths.min(), lengths.max(), 100)
    y, low, high = band(fit, x)
    axes.fill_between(x, low, high, color="#0072B2", alpha=0.25, linewidth=0, label="95 % interval of the line")
    gain = fit.slope_per_doubling
    text = f"{gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}] per doubling, $R^2$ = {fit.r2:.2f}"
    axes.plot(x, y, color="#0072B2", linewidth=2, label=text)


def _plain_log_ticks(axes: Axes, lengths: Array) -> None:
    """About five round numbers of tokens, evenly spaced on the logarithmic axis."""
    axes.xaxis.set_major_locator(FixedLocator(_round_lengths(float(lengths.min()), float(lengths.max()))))
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
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-9):
        margin = max(abs(low), 1.0) * 1e-3
        low, high = low - margin, high + margin
    return np.asarray(MaxNLocator(12).tick_values(low, high))


@contextlib.contextmanager
def _figure(width: float, height: float) -> Iterator[Figure]:
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure


def _save(figure: Figure, path_stem: Path) -> list[Path]:
    """Write the figure in all formats, each file atomically."""
    written = []
    for kind in FORMATS:
        image = io.BytesIO()
        figure.savefig(image, format=kind, dpi=150, metadata=NO_DATE[kind])
        path = path_stem.with_name(f"{path_stem.name}.{kind}")
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            file.write(image.getvalue())
        written.append(path)
    return written
