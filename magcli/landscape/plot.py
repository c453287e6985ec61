"""Figures as PNG, SVG and PDF: surfaces over the plane, the path of the run, reward against length.

Equal input gives equal bytes (no dates, no random ids) for one version of matplotlib; no global state is changed, and
no display is needed. Surfaces are linear on the triangles of the evaluated points, drawn at their actual coordinates.
"""

import io
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from magcli.data.durable import atomic_file
from magcli.landscape.surface import Array, Regression, confidence_band, triangulate

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
        filled = axes.tricontourf(triangulate(self.points), self.values, levels=_levels(self.values), cmap="viridis")
        axes.figure.colorbar(filled, ax=axes, label=self.label, ticks=MaxNLocator(6))
        axes.plot(*self.points.T, "k.", markersize=4, zorder=2)
        _draw_path(axes, self.path)
        first, second = (f"{100 * value:.1f} % of variance" for value in self.explained[:2])
        axes.set(title=self.title, xlabel=f"$a_1$ along $c_1$ ({first})", ylabel=f"$a_2$ along $c_2$ ({second})")
        axes.ticklabel_format(style="sci", scilimits=(-3, 4), useMathText=True)
        axes.xaxis.set_major_locator(MaxNLocator(5))
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
        used = np.zeros(len(lengths), bool) if fit is None else fit.used
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


def write(path_stem: Path, *panels: Surface | LengthFit) -> list[Path]:
    """Write panels side by side to ``path_stem``.png, .svg and .pdf, each atomically; return the paths."""
    written = []
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=WIDE if len(panels) > 1 else SINGLE, layout="constrained")
        FigureCanvasAgg(figure)
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            panel.draw(axes)
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
