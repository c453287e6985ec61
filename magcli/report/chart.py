"""SVG charts of metrics by update: lines with confidence bands, or stacked counts, with the tooltip text embedded.

Drawn here rather than in the browser, so the page also shows them with scripts disabled. Colours are CSS classes with a
light and a dark set.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from markupsafe import Markup

from magcli.report.formatting import number, percent

WIDTH, HEIGHT = 480, 230
LEFT = 62
RIGHT = 470
TOP = 14
BOTTOM = 196
INSET, PAD = 8, 0.06
"""Horizontal margin in pixels, and vertical margin as a fraction of the range of the values."""
MIN_STEP = 0.75
"""Smallest tick spacing, as a fraction of an even spacing."""
MARK_WIDTH, MARK_HEIGHT = 60, 14
"""Maximum size of the label of a mark; its height is reserved above the plot."""
COLOURS = 8
"""Number of colours in the style sheet; further series start over."""
MAX_DOTS = 24
"""Lines with at most this many values get a dot at each."""
MAX_BAR_WIDTH = 40.0
"""Maximum width of a stacked column."""

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Series:
    """Values by update (None: missing); ``low`` and ``high`` bound their confidence intervals."""

    name: str
    values: Values
    low: Values = ()
    high: Values = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """A labelled vertical line, such as the first update of a stage."""

    x: float
    name: str


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: title, a one-sentence description, and series over a common ``x``."""

    title: str
    description: str
    x_name: str
    x: Sequence[float]
    series: Sequence[Series]
    kind: Literal["lines", "stack"] = "lines"
    unit: Literal["number", "percent"] = "number"
    marks: Sequence[Mark] = ()

    @property
    def format(self) -> Callable[[float], str]:
        """The function that formats a value."""
        return percent if self.unit == "percent" else number


class LegendEntry(NamedTuple):
    """A line of a chart's legend: the colour, name, and first and last value of a series."""

    colour: int
    name: str
    first: str
    last: str


class Scale(NamedTuple):
    """Linear map from ``low``..``high`` to ``start``..``end``; an empty range maps to the middle."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """The coordinate of a value."""
        part = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return self.start + part * (self.end - self.start)


class Axes(NamedTuple):
    """The scales of both axes."""

    x: Scale
    y: Scale


def bounds(values: Sequence[float]) -> tuple[float, float]:
    """The limits of an axis: include 0 if the values come close to it, otherwise leave a margin."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    if low == high:
        return (min(low, 0.0), max(high, 0.0)) if low else (0.0, 1.0)
    margin = PAD * (high - low)
    if low >= 0:
        return (0.0 if low < 0.5 * high else low - margin), high + margin
    return low - margin, (0.0 if high == 0 else high + margin)


def ticks(low: float, high: float, count: int) -> list[float]:
    """About ``count`` round values within an axis: multiples of 1, 2 or 5 times a power of ten."""
    if high <= low:
        return [low]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= MIN_STEP * raw)
    # With the tolerance a limit that is a multiple itself stays inside; 15 digits turn 0.30000000000000004 into 0.3.
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{multiple * step:.15g}") for multiple in range(first, last + 1)]


def legend(chart: Chart) -> list[LegendEntry]:
    """The legend of a chart."""
    entries = []
    for index, series in enumerate(chart.series):
        values = [chart.format(value) for value in series.values if value is not None] or ["-"]
        entries.append(LegendEntry(index % COLOURS, series.name, values[0], values[-1]))
    return entries


def is_flat(chart: Chart) -> bool:
    """Whether no line of a chart of several updates changes in the digits shown; text says as much then."""
    values = [{chart.format(value) for value in series.values if value is not None} for series in chart.series]
    return chart.kind == "lines" and len(chart.x) > 1 and all(len(seen) == 1 for seen in values)


def draw(chart: Chart) -> Markup:
    """The chart as an SVG element that fills the width of its parent."""
    axes = _axes(chart)
    parts = [_grid(chart, axes), *(_mark(mark, axes) for mark in chart.marks)]
    if chart.kind == "stack":
        parts += _stack(chart, axes)
    else:
        parts += [_band(chart.x, series, index, axes) for index, series in enumerate(chart.series)]
        parts += [_line(chart.x, series, index, axes) for index, series in enumerate(chart.series)]
    parts.append(Markup(f'<line class="cursor" y1="{TOP}" y2="{BOTTOM}" x1="0" x2="0"/>'))
    body = Markup("").join(parts)
    head = '<svg class="chart" viewBox="0 0 {} {}" role="img" tabindex="0" aria-label="{}" data-points="{}">{}</svg>'
    return Markup(head).format(WIDTH, HEIGHT, _summary(chart), json.dumps(_tooltips(chart, axes)), body)


def _summary(chart: Chart) -> str:
    changes = "; ".join(f"{entry.name} from {entry.first} to {entry.last}" for entry in legend(chart))
    return f"{chart.title} by {chart.x_name}: {changes}"


def _axes(chart: Chart) -> Axes:
    inset = _column_width(chart) / 2 + 2 if chart.kind == "stack" else INSET
    x = Scale(min(chart.x), max(chart.x), LEFT + inset, RIGHT - inset)
    if chart.kind == "stack":
        low = 0.0
        high = max(map(sum, _columns(chart)), default=0.0) or 1.0
    else:
        values = [value for series in chart.series for value in (*series.values, *series.low, *series.high)]
        low, high = bounds([value for value in values if value is not None])
    return Axes(x, Scale(low, high, BOTTOM, TOP + MARK_HEIGHT if chart.marks else TOP))


def _columns(chart: Chart) -> list[list[float]]:
    """The values of a stacked chart, by update and series."""
    by_series = [[value or 0.0 for value in series.values] for series in chart.series]
    return [list(values) for values in zip(*by_series, strict=True)]


def _grid(chart: Chart, axes: Axes) -> Markup:
    parts = []
    line = Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/><text x="{}" y="{}" class="end">{}</text>')
    for value in ticks(axes.y.low, axes.y.high, 5):
        y = _rounded(axes.y.at(value))
        parts.append(line.format(LEFT, RIGHT, y, y, LEFT - 6, _rounded(y + 4), _tick(value, chart)))
    label = Markup('<text x="{}" y="{}" class="middle">{}</text>')
    for update in ticks(axes.x.low, axes.x.high, 6):
        if update == int(update):  # ticks of a short axis may lie between updates
            parts.append(label.format(_rounded(axes.x.at(update)), BOTTOM + 16, number(update)))
    parts.append(Markup('<text x="{}" y="{}" class="end soft">{}</text>').format(RIGHT, HEIGHT - 3, chart.x_name))
    return Markup("").join(parts)


def _tick(value: float, chart: Chart) -> str:
    return f"{100 * value:.4g} %" if chart.unit == "percent" else number(value)


def _mark(mark: Mark, axes: Axes) -> Markup:
    x = _rounded(axes.x.at(mark.x))
    at_end = x > RIGHT - MARK_WIDTH  # the label would not fit on the right of the line
    text = '<line class="mark" x1="{}" x2="{}" y1="{}" y2="{}"/><text class="soft{}" x="{}" y="{}">{}</text>'
    name_x = x - 3 if at_end else x + 3
    return Markup(text).format(x, x, TOP, BOTTOM, " end" if at_end else "", name_x, TOP + 10, mark.name)


def _line(x: Sequence[float], series: Series, index: int, axes: Axes) -> Markup:
    """A line through the values that are not missing, with dots if there are few."""
    points = [
        (_rounded(axes.x.at(update)), _rounded(axes.y.at(value)))
        for update, value in zip(x, series.values, strict=True)
        if value is not None
    ]
    colour = index % COLOURS
    if not points:
        return Markup("")
    path = Markup('<path class="line c{}" d="M{}"/>').format(colour, " ".join(f"{a},{b}" for a, b in points))
    if len(points) > MAX_DOTS:
        return path
    dots = [Markup('<circle class="f{}" cx="{}" cy="{}" r="2.5"/>').format(colour, *point) for point in points]
    return path + Markup("").join(dots)


def _band(x: Sequence[float], series: Series, index: int, axes: Axes) -> Markup:
    """The confidence band."""
    ends = zip(x, series.low or [None] * len(x), series.high or [None] * len(x), strict=True)
    bounded = [(update, low, high) for update, low, high in ends if low is not None and high is not None]
    if len(bounded) < 2:
        return Markup("")
    # The outline follows the upper bounds from left to right, and the lower ones back.
    above = [f"{_rounded(axes.x.at(update))},{_rounded(axes.y.at(high))}" for update, _, high in bounded]
    below = [f"{_rounded(axes.x.at(update))},{_rounded(axes.y.at(low))}" for update, low, _ in reversed(bounded)]
    return Markup('<polygon class="band f{}" points="{}"/>').format(index % COLOURS, " ".join(above + below))


def _stack(chart: Chart, axes: Axes) -> list[Markup]:
    """One column per update, series stacked in order."""
    width = _column_width(chart)
    parts = []
    rectangle = Markup('<rect class="f{}" x="{}" y="{}" width="{}" height="{}"/>')
    for update, values in zip(chart.x, _columns(chart), strict=True):
        left = axes.x.at(update) - width / 2
        below = 0.0
        for index, value in enumerate(values):
            top, bottom = axes.y.at(below + value), axes.y.at(below)
            below += value
            if value:
                box = map(_rounded, (left, top, width, bottom - top))
                parts.append(rectangle.format(index % COLOURS, *box))
    return parts


def _column_width(chart: Chart) -> float:
    return min(max(1.0, 0.8 * (RIGHT - LEFT) / len(chart.x)), MAX_BAR_WIDTH)


def _tooltips(chart: Chart, axes: Axes) -> list[tuple[float, list[str]]]:
    """The x coordinate and the tooltip lines of each update."""
    return [
        (_rounded(axes.x.at(update)), [f"{chart.x_name} {number(update)}", *_values_at(chart, index)])
        for index, update in enumerate(chart.x)
    ]


def _values_at(chart: Chart, index: int) -> list[str]:
    lines = []
    for series in chart.series:
        value = series.values[index]
        if value is None or (chart.kind == "stack" and not value):
            continue
        low, high = (ends[index] if ends else None for ends in (series.low, series.high))
        interval = f" [{chart.format(low)}, {chart.format(high)}]" if low is not None and high is not None else ""
        lines.append(f"{series.name} {chart.format(value)}{interval}")
    return lines


def _rounded(value: float) -> float:
    """A coordinate rounded to a tenth of a pixel."""
    return round(value, 1)
