"""SVG charts of metrics by update: lines with confidence bands, or stacked counts, with the tooltip text embedded.

Drawn here rather than in the browser, so the page also shows them with scripts disabled. Colours are CSS classes with a
light and a dark set.
"""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from markupsafe import Markup

from magcli.report.formatting import number, percent

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
Label = tuple[float, str]
"""Where a number of an axis is, in pixels along it, and its text."""


class Frame(NamedTuple):
    """The size of a drawing, and the edges of the plot in it, in pixels; labels of axes are outside of the plot."""

    width: float
    height: float
    left: float
    top: float

    @property
    def right(self) -> float:
        """The right edge of the plot."""
        return self.width - 10

    @property
    def bottom(self) -> float:
        """The bottom edge of the plot; below it are the numbers of the axis and its name."""
        return self.height - 34

    @property
    def num_ticks(self) -> int:
        """About how many ticks the vertical axis has room for."""
        return max(3, round((self.bottom - self.top) / 36))


LARGE = Frame(420, 205, left=58, top=14)
SMALL = Frame(320, 160, left=56, top=10)


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


Unit = Literal["number", "percent"]
"""How the values of an axis are written."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: title, a one-sentence description, and series over a common ``x``."""

    title: str
    description: str
    x_name: str
    x: Sequence[float]
    series: Sequence[Series]
    kind: Literal["lines", "stack"] = "lines"
    unit: Unit = "number"
    marks: Sequence[Mark] = ()
    group: str = ""
    """The heading under which it stands, beside charts of equal size."""
    is_large: bool = True

    @property
    def frame(self) -> Frame:
        """Its size."""
        return LARGE if self.is_large else SMALL

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
        share = 0.5
        if self.high > self.low:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def pixel(self, value: float) -> float:
        """The coordinate of a value to a tenth of a pixel."""
        return rounded(self.at(value))


class Axes(NamedTuple):
    """The scales of both axes."""

    x: Scale
    y: Scale


def bounds(values: Sequence[float]) -> tuple[float, float]:
    """The limits of an axis: include 0 if the values come close to it, otherwise leave a margin."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    # An axis needs an extent: of zeros only up to 1, else from the only value to 0.
    if low == high == 0:
        return 0.0, 1.0
    if low == high:
        return min(low, 0.0), max(high, 0.0)
    margin = PAD * (high - low)
    if low >= 0:
        # From 0 on, an axis shows proportions; far from it, changes would be invisible.
        is_close_to_zero = low < 0.5 * high
        return (0.0 if is_close_to_zero else low - margin), high + margin
    return low - margin, (0.0 if high == 0 else high + margin)


def ticks(low: float, high: float, count: int) -> list[float]:
    """About ``count`` round values within an axis: multiples of 1, 2 or 5 times a power of ten."""
    if high <= low:
        return [low]
    even_step = (high - low) / count
    power = 10.0 ** math.floor(math.log10(even_step))
    round_steps = [size * power for size in (1, 2, 5, 10)]
    step = min(size for size in round_steps if size >= MIN_STEP * even_step)
    # With the tolerance a limit that is a multiple itself stays inside.
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    # 15 digits turn 0.30000000000000004 into 0.3.
    return [float(f"{multiple * step:.15g}") for multiple in range(first, last + 1)]


def legend(chart: Chart) -> list[LegendEntry]:
    """The legend of a chart."""
    entries = []
    for index, series in enumerate(chart.series):
        values = [chart.format(value) for value in series.values if value is not None] or ["-"]
        # After the last colour they start over.
        entries.append(LegendEntry(index % COLOURS, series.name, values[0], values[-1]))
    return entries


def is_flat(chart: Chart) -> bool:
    """Whether no line of a chart of several updates changes in the digits shown; text says as much then."""
    if chart.kind != "lines" or len(chart.x) <= 1:
        return False
    for series in chart.series:
        texts = {chart.format(value) for value in series.values if value is not None}
        if len(texts) != 1:
            return False
    return True


def grouped(charts: Iterable[Chart]) -> list[tuple[str, list[Chart]]]:
    """The charts by group, in the order of the first of each."""
    groups: dict[str, list[Chart]] = {}
    for chart in charts:
        groups.setdefault(chart.group, []).append(chart)
    return list(groups.items())


def draw(chart: Chart) -> Markup:
    """The chart as an SVG element that fills the width of its parent."""
    axes = _axes(chart)
    frame = chart.frame
    # Later parts are drawn on top of earlier ones, so all bands are below all lines.
    parts = [_grid(chart, axes)]
    parts += [_mark(mark, axes, frame) for mark in chart.marks]
    if chart.kind == "stack":
        parts += _stack(chart, axes)
    else:
        parts += [band(chart.x, series, index, axes) for index, series in enumerate(chart.series)]
        parts += [_line(chart.x, series, index, axes) for index, series in enumerate(chart.series)]
    parts.append(Markup(f'<line class="cursor" y1="{frame.top}" y2="{frame.bottom}" x1="0" x2="0"/>'))
    body = Markup("").join(parts)
    tooltips = json.dumps(_tooltips(chart, axes))
    svg = '<svg class="chart" viewBox="0 0 {} {}" role="img" tabindex="0" aria-label="{}" data-points="{}">{}</svg>'
    return Markup(svg).format(frame.width, frame.height, _summary(chart), tooltips, body)


def _summary(chart: Chart) -> str:
    changes = "; ".join(f"{entry.name} from {entry.first} to {entry.last}" for entry in legend(chart))
    return f"{chart.title} by {chart.x_name}: {changes}"


def _axes(chart: Chart) -> Axes:
    frame = chart.frame
    if chart.kind == "stack":
        inset = _column_width(chart) / 2 + 2
        low = 0.0
        heights = [sum(column) for column in _columns(chart)]
        high = max(heights, default=0.0) or 1.0  # an axis of its own where all are empty
    else:
        inset = INSET
        values: list[float | None] = []
        for series in chart.series:
            values += (*series.values, *series.low, *series.high)
        low, high = bounds([value for value in values if value is not None])
    top = frame.top + MARK_HEIGHT if chart.marks else frame.top
    x = Scale(min(chart.x), max(chart.x), frame.left + inset, frame.right - inset)
    y = Scale(low, high, frame.bottom, top)  # upwards, though pixels count downwards
    return Axes(x, y)


def _columns(chart: Chart) -> list[list[float]]:
    """The values of a stacked chart, by update and series."""
    by_series = [[value or 0.0 for value in series.values] for series in chart.series]
    return [list(values) for values in zip(*by_series, strict=True)]


def _grid(chart: Chart, axes: Axes) -> Markup:
    """The horizontal lines with their values, the numbers of updates below the plot, and the name of that axis."""
    values = ticks(axes.y.low, axes.y.high, chart.frame.num_ticks)
    heights = [(axes.y.pixel(value), _tick(value, chart)) for value in values]
    # Ticks of a short axis may lie between updates.
    updates = [update for update in ticks(axes.x.low, axes.x.high, 6) if update == int(update)]
    numbers = [(axes.x.pixel(update), number(update)) for update in updates]
    return grid(chart.frame, heights, numbers, chart.x_name)


def grid(frame: Frame, heights: Iterable[Label], numbers: Iterable[Label], x_name: str) -> Markup:
    """Horizontal lines with their labels, the labels below the plot, and the name of the horizontal axis."""
    line = Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/>')
    beside = Markup('<text x="{}" y="{}" class="end">{}</text>')
    parts = []
    for y, text in heights:
        parts.append(line.format(frame.left, frame.right, y, y))
        parts.append(beside.format(frame.left - 6, rounded(y + 4), text))
    below = Markup('<text x="{}" y="{}" class="middle">{}</text>')
    parts += [below.format(x, frame.bottom + 16, text) for x, text in numbers]
    name = Markup('<text x="{}" y="{}" class="end soft">{}</text>')
    parts.append(name.format(frame.right, frame.height - 3, x_name))
    return Markup("").join(parts)


def _tick(value: float, chart: Chart) -> str:
    return f"{100 * value:.4g} %" if chart.unit == "percent" else number(value)


def _mark(mark: Mark, axes: Axes, frame: Frame) -> Markup:
    x = axes.x.pixel(mark.x)
    line = Markup('<line class="mark" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(x, x, frame.top, frame.bottom)
    label = Markup('<text class="soft{}" x="{}" y="{}">{}</text>')
    fits_on_right = x <= frame.right - MARK_WIDTH
    if fits_on_right:
        return line + label.format("", x + 3, frame.top + 10, mark.name)
    return line + label.format(" end", x - 3, frame.top + 10, mark.name)


def _line(x: Sequence[float], series: Series, index: int, axes: Axes) -> Markup:
    """A line through the values that are not missing, with dots if there are few."""
    points = points_of(x, series.values, axes)
    colour = index % COLOURS
    if not points:
        return Markup("")
    path = Markup('<path class="line c{}" d="M{}"/>').format(colour, path_of(points))
    if len(points) > MAX_DOTS:
        return path
    dots = [Markup('<circle class="f{}" cx="{}" cy="{}" r="2.5"/>').format(colour, *point) for point in points]
    return path + Markup("").join(dots)


def band(x: Sequence[float], series: Series, index: int, axes: Axes) -> Markup:
    """The confidence band: an outline along the upper bounds from left to right, and back along the lower ones."""
    above = points_of(x, series.high, axes)
    below = points_of(x, series.low, axes)
    if min(len(above), len(below)) < 2:
        return Markup("")
    outline = path_of(above + below[::-1])
    return Markup('<polygon class="band f{}" points="{}"/>').format(index % COLOURS, outline)


def points_of(x: Sequence[float], values: Values, axes: Axes) -> list[tuple[float, float]]:
    """The coordinates of the values that are not missing; none where a series has no such values."""
    return [
        (axes.x.pixel(update), axes.y.pixel(value))
        # A series without an interval has no bounds at all.
        for update, value in zip(x, values, strict=False)
        if value is not None
    ]


def path_of(points: Iterable[tuple[float, float]]) -> str:
    """Points as SVG writes them."""
    return " ".join(f"{x},{y}" for x, y in points)


def _stack(chart: Chart, axes: Axes) -> list[Markup]:
    """One column per update, series stacked in order."""
    width = _column_width(chart)
    parts = []
    rectangle = Markup('<rect class="f{}" x="{}" y="{}" width="{}" height="{}"/>')
    for update, values in zip(chart.x, _columns(chart), strict=True):
        left = axes.x.at(update) - width / 2
        below = 0.0
        for index, value in enumerate(values):
            if not value:
                continue
            bottom = axes.y.at(below)
            below += value
            top = axes.y.at(below)
            height = bottom - top  # pixels count downwards
            box = [rounded(length) for length in (left, top, width, height)]
            parts.append(rectangle.format(index % COLOURS, *box))
    return parts


def _column_width(chart: Chart) -> float:
    plot_width = chart.frame.right - chart.frame.left
    # A fifth of the place of each column is the gap to the next one.
    width = 0.8 * plot_width / len(chart.x)
    return min(max(1.0, width), MAX_BAR_WIDTH)


def _tooltips(chart: Chart, axes: Axes) -> list[tuple[float, list[str]]]:
    """The x coordinate and the tooltip lines of each update."""
    tooltips = []
    for index, update in enumerate(chart.x):
        lines = [f"{chart.x_name} {number(update)}", *_values_at(chart, index)]
        tooltips.append((axes.x.pixel(update), lines))
    return tooltips


def _values_at(chart: Chart, index: int) -> list[str]:
    lines = []
    for series in chart.series:
        value = series.values[index]
        if value is None:
            continue
        # Of counts only those that occurred: there may be many reasons.
        if value == 0 and chart.kind == "stack":
            continue
        text = f"{series.name} {chart.format(value)}"
        low = series.low[index] if series.low else None
        high = series.high[index] if series.high else None
        if low is not None and high is not None:
            text += f" [{chart.format(low)}, {chart.format(high)}]"
        lines.append(text)
    return lines


def rounded(value: float) -> float:
    """A coordinate rounded to a tenth of a pixel."""
    return round(value, 1)
