"""Charts of values by update as SVG: lines with intervals, or stacked counts. What hovering tells is in the drawing.

Drawn here and not in the browser, so that a page without scripts has them too; colours are classes of the page's
style, which has a light and a dark set.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from markupsafe import Markup

from magcli.report.axis import Scale, bounds, ticks
from magcli.report.wording import number, share

WIDTH, HEIGHT = 480, 230
LEFT, RIGHT, TOP, BOTTOM = 62, 470, 14, 196
INSET = 8
"""What is left free beside the first and the last value."""
MARK_ROOM = 14
"""Height of the line of names above a drawing that has marks."""
MARK_NAME = 60
"""Width that the name of a mark may take."""
COLOURS = 8
"""Series that the style has colours for; more begin anew."""
DOTS = 24
"""Values of a line up to which each is a dot."""
WIDEST = 40.0
"""Width of a column of a stack, at most."""

Values = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Series:
    """Values by update, None where there is none; ``low`` and ``high`` are the ends of their intervals."""

    name: str
    values: Values
    low: Values = ()
    high: Values = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """An update at which something began, and what."""

    x: float
    name: str


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: its title, a sentence on how to read it, and series over the same ``x``."""

    title: str
    told: str
    x_name: str
    x: Sequence[float]
    series: Sequence[Series]
    form: Literal["lines", "stack"] = "lines"
    unit: Literal["number", "share"] = "number"
    marks: Sequence[Mark] = ()

    @property
    def tell(self) -> Callable[[float], str]:
        """How a value is told."""
        return share if self.unit == "share" else number


class Key(NamedTuple):
    """A line of a chart's key: the series' number, name, and its first and last value."""

    number: int
    name: str
    first: str
    last: str


class Frame(NamedTuple):
    """Where values lie in a drawing; above ``y.end`` there is room for the names of marks."""

    x: Scale
    y: Scale


def keys(chart: Chart) -> list[Key]:
    """The key of a chart."""
    told = [[chart.tell(value) for value in series.values if value is not None] for series in chart.series]
    return [
        Key(number % COLOURS, series.name, values[0] if values else "-", values[-1] if values else "-")
        for number, (series, values) in enumerate(zip(chart.series, told, strict=True))
    ]


def draw(chart: Chart) -> Markup:
    """The chart as an SVG element, as wide as its place."""
    frame = _frame(chart)
    parts = [_axes(chart, frame), *(_mark(mark, frame) for mark in chart.marks)]
    if chart.form == "stack":
        parts += _stack(chart, frame)
    else:
        parts += [_interval(chart.x, series, number, frame) for number, series in enumerate(chart.series)]
        parts += [_line(chart.x, series, number, frame) for number, series in enumerate(chart.series)]
    parts.append(Markup(f'<line class="cursor" y1="{TOP}" y2="{BOTTOM}" x1="0" x2="0"/>'))
    body = Markup("").join(parts)
    head = '<svg class="chart" viewBox="0 0 {} {}" role="img" tabindex="0" aria-label="{}" data-told="{}">{}</svg>'
    return Markup(head).format(WIDTH, HEIGHT, _summary(chart), json.dumps(_hover(chart, frame)), body)


def _summary(chart: Chart) -> str:
    told = "; ".join(f"{key.name} from {key.first} to {key.last}" for key in keys(chart))
    return f"{chart.title} by {chart.x_name}: {told}"


def _frame(chart: Chart) -> Frame:
    inset = _column_width(chart) / 2 + 2 if chart.form == "stack" else INSET
    x = Scale(min(chart.x), max(chart.x), LEFT + inset, RIGHT - inset)
    if chart.form == "stack":
        low, high = 0.0, max(map(sum, _columns(chart)), default=0.0) or 1.0
    else:
        low, high = bounds([v for s in chart.series for v in (*s.values, *s.low, *s.high) if v is not None])
    return Frame(x, Scale(low, high, BOTTOM, TOP + MARK_ROOM if chart.marks else TOP))


def _columns(chart: Chart) -> list[list[float]]:
    """The values of a stack, by update and series."""
    return [list(values) for values in zip(*[[v or 0.0 for v in s.values] for s in chart.series], strict=True)]


def _axes(chart: Chart, frame: Frame) -> Markup:
    parts = [
        Markup('<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/><text x="{}" y="{}" class="end">{}</text>').format(
            LEFT, RIGHT, at, at, LEFT - 6, _place(at + 4), _tick(value, chart)
        )
        for value, at in ((value, _place(frame.y.at(value))) for value in ticks(frame.y.low, frame.y.high, 5))
    ]
    parts += [
        Markup('<text x="{}" y="{}" class="middle">{}</text>').format(_place(frame.x.at(v)), BOTTOM + 16, number(v))
        for v in ticks(frame.x.low, frame.x.high, 6)
        if v == int(v)
    ]
    parts.append(Markup('<text x="{}" y="{}" class="end soft">{}</text>').format(RIGHT, HEIGHT - 3, chart.x_name))
    return Markup("").join(parts)


def _tick(value: float, chart: Chart) -> str:
    return f"{100 * value:.4g} %" if chart.unit == "share" else number(value)


def _mark(mark: Mark, frame: Frame) -> Markup:
    at = _place(frame.x.at(mark.x))
    end = at > RIGHT - MARK_NAME
    text = '<line class="mark" x1="{}" x2="{}" y1="{}" y2="{}"/><text class="soft{}" x="{}" y="{}">{}</text>'
    name_at = at - 3 if end else at + 3
    return Markup(text).format(at, at, TOP, BOTTOM, " end" if end else "", name_at, TOP + 10, mark.name)


def _line(x: Sequence[float], series: Series, number: int, frame: Frame) -> Markup:
    """A line through the values that are there, which are dots too where they are few."""
    known = [
        (_place(frame.x.at(place)), _place(frame.y.at(value)))
        for place, value in zip(x, series.values, strict=True)
        if value is not None
    ]
    colour = number % COLOURS
    path = Markup('<path class="line c{}" d="M{}"/>').format(colour, " ".join(f"{a},{b}" for a, b in known))
    few = known if len(known) <= DOTS else []
    dots = [Markup('<circle class="f{}" cx="{}" cy="{}" r="2.5"/>').format(colour, *place) for place in few]
    return path + Markup("").join(dots)


def _interval(x: Sequence[float], series: Series, number: int, frame: Frame) -> Markup:
    """The band between the ends of the intervals."""
    ends = zip(x, series.low or [None] * len(x), series.high or [None] * len(x), strict=True)
    known = [(place, low, high) for place, low, high in ends if low is not None and high is not None]
    if len(known) < 2:
        return Markup("")
    above = [f"{_place(frame.x.at(place))},{_place(frame.y.at(high))}" for place, _, high in known]
    below = [f"{_place(frame.x.at(place))},{_place(frame.y.at(low))}" for place, low, _ in reversed(known)]
    return Markup('<polygon class="band f{}" points="{}"/>').format(number % COLOURS, " ".join(above + below))


def _stack(chart: Chart, frame: Frame) -> list[Markup]:
    """A column an update; series lie on each other in their order."""
    width = _column_width(chart)
    parts = []
    for place, values in zip(chart.x, _columns(chart), strict=True):
        left, below = frame.x.at(place) - width / 2, 0.0
        for series, value in enumerate(values):
            top, bottom = frame.y.at(below + value), frame.y.at(below)
            below += value
            parts += [_box(series, left, top, width, bottom - top)] if value else []
    return parts


def _column_width(chart: Chart) -> float:
    return min(max(1.0, 0.8 * (RIGHT - LEFT) / len(chart.x)), WIDEST)


def _box(number: int, left: float, top: float, width: float, height: float) -> Markup:
    return Markup('<rect class="f{}" x="{}" y="{}" width="{}" height="{}"/>').format(
        number % COLOURS, _place(left), _place(top), _place(width), _place(height)
    )


def _hover(chart: Chart, frame: Frame) -> list[tuple[float, list[str]]]:
    """What is told at each update: where it lies, and the lines of text."""
    return [
        (_place(frame.x.at(place)), [f"{chart.x_name} {number(place)}", *_told_at(chart, index)])
        for index, place in enumerate(chart.x)
    ]


def _told_at(chart: Chart, index: int) -> list[str]:
    told = []
    for series in chart.series:
        value = series.values[index]
        if value is None or (chart.form == "stack" and not value):
            continue
        low, high = (ends[index] if ends else None for ends in (series.low, series.high))
        within = f" [{chart.tell(low)}, {chart.tell(high)}]" if low is not None and high is not None else ""
        told.append(f"{series.name} {chart.tell(value)}{within}")
    return told


def _place(value: float) -> float:
    """A coordinate; a tenth of a unit is below what is seen."""
    return round(value, 1)
