"""Drawings of a landscape as SVG: filled contours of a mean over the plane with the run's path, and reward by length.

They follow the page's light or dark colours by classes of its style sheet. Surfaces are linear on the triangles between
the evaluated points.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from markupsafe import Markup

from magcli.report.chart import Axes, Frame, Scale, Series, band, grid, path_of, points_of, rounded, ticks
from magcli.report.formatting import number, percent

FRAME = Frame(420, 330, left=58, top=26)
NUM_LEVELS = 8
"""About how many levels a surface has."""
_NEW_LINE = Markup("&#10;")
PAD = 0.04
"""Margin around the points, as a fraction of their range."""
MIN_TICK_DISTANCE = 40
"""Pixels between two lengths below the logarithmic axis, at least."""


class Corner(NamedTuple):
    """A corner of a polygon in the plane, and the value there."""

    x: float
    y: float
    value: float


@dataclass(frozen=True, slots=True)
class Level:
    """One colour of the key: its share of the scale from 0 to 1, and the values that have it."""

    share: float
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawing with its title, caption, and the key of its colours, if it has one."""

    title: str
    caption: str
    svg: Markup
    levels: Sequence[Level] = ()


Points = Sequence[Mapping[str, Any]]
"""The rows of ``points.csv``."""


# ---- surfaces ----


def surface(title: str, name: str, points: Points, figures: Mapping[str, Any]) -> Drawing:
    """A mean (``reward`` or ``length``) over the plane; ``figures`` are those of ``landscape.json``."""
    axes = _plane_axes(points, figures["trajectory"])
    values = [point[name] for point in points]
    edges = _edges(values)
    corners = [Corner(axes.x.at(point["a1"]), axes.y.at(point["a2"]), point[name]) for point in points]
    triangles = [[corners[index] for index in triangle] for triangle in figures["triangles"]]
    spots = [_spot(point, axes) for point in points]
    # The final weights are the origin of the plane.
    star = _star(axes.x.at(0), axes.y.at(0))
    # Later parts are drawn on top of earlier ones.
    parts = [
        _plane_labels(axes, figures["explained"]),
        _bands(triangles, edges),
        _path(figures["trajectory"], axes),
        *spots,
        star,
    ]
    extent = f"{number(min(values))} to {number(max(values))}"
    label = f"{title}: {extent} over {len(points)} points of the plane"
    caption = f"{extent}; the line is the run's path, the star the final weights."
    return Drawing(title, caption, _svg(label, parts), _levels(edges, values))


def _plane_axes(points: Points, path: Sequence[Sequence[float]]) -> Axes:
    across = [point["a1"] for point in points] + [a1 for a1, _ in path]
    upwards = [point["a2"] for point in points] + [a2 for _, a2 in path]
    return _axes(across, upwards)


def _axes(across: Sequence[float], upwards: Sequence[float]) -> Axes:
    """Axes with room for these coordinates."""
    x = _padded(across, FRAME.left, FRAME.right)
    y = _padded(upwards, FRAME.bottom, FRAME.top)  # pixels count downwards
    return Axes(x, y)


def _padded(values: Sequence[float], start: float, end: float) -> Scale:
    low, high = min(values), max(values)
    margin = PAD * (high - low)
    return Scale(low - margin, high + margin, start, end)


def _edges(values: Sequence[float]) -> list[float]:
    """The values between two levels: round ones, within those of the surface."""
    low, high = min(values), max(values)
    return [edge for edge in ticks(low, high, NUM_LEVELS) if low < edge < high]


def _levels(edges: Sequence[float], values: Sequence[float]) -> list[Level]:
    bounds = [min(values), *edges, max(values)]
    num_levels = len(bounds) - 1
    levels = []
    for index, (low, high) in enumerate(pairwise(bounds)):
        levels.append(Level(_share(index, num_levels), number(low), number(high)))
    return levels


def _share(index: int, count: int) -> float:
    return index / (count - 1) if count > 1 else 0.5


def _bands(triangles: Sequence[Sequence[Corner]], edges: Sequence[float]) -> Markup:
    """One path for each level: the parts of all triangles whose values are in it."""
    bounds = [-math.inf, *edges, math.inf]
    num_levels = len(bounds) - 1
    path = Markup('<path class="level" style="--share:{}%" d="{}"/>')
    parts = []
    for index, (low, high) in enumerate(pairwise(bounds)):
        outlines = []
        for triangle in triangles:
            above = clipped(triangle, low, 1)
            inside = clipped(above, high, -1)
            if len(inside) > 2:  # else it only touches the level
                outlines.append(_outline(inside))
        percentage = rounded(100 * _share(index, num_levels))
        parts.append(path.format(percentage, "".join(outlines)))
    return Markup("").join(parts)


def clipped(polygon: Sequence[Corner], limit: float, sign: int) -> list[Corner]:
    """The part of a convex polygon whose values are at least a limit (``sign`` 1), or at most (-1)."""
    if math.isinf(limit):
        return list(polygon)
    # Sutherland and Hodgman: along each edge, the crossing of the limit and the end, as far as they belong to the part.
    kept = []
    for index, end in enumerate(polygon):
        start = polygon[index - 1]  # of the first edge the last corner
        start_inside = sign * (start.value - limit) >= 0
        end_inside = sign * (end.value - limit) >= 0
        if start_inside != end_inside:
            kept.append(_between(start, end, limit))
        if end_inside:
            kept.append(end)
    return kept


def _between(one: Corner, other: Corner, value: float) -> Corner:
    """Where the value is reached on the way from one corner to the other."""
    share = (value - one.value) / (other.value - one.value)
    x = one.x + share * (other.x - one.x)
    y = one.y + share * (other.y - one.y)
    return Corner(x, y, value)


def _outline(polygon: Sequence[Corner]) -> str:
    """The data of a path: move to the first corner, lines to the others, and close it."""
    corners = [f"{rounded(corner.x)},{rounded(corner.y)}" for corner in polygon]
    return f"M{'L'.join(corners)}Z"


def _path(places: Sequence[Sequence[float]], axes: Axes) -> Markup:
    """The checkpoints of the run in their order, with the first one named."""
    pixels = [(axes.x.pixel(a1), axes.y.pixel(a2)) for a1, a2 in places]
    points = path_of(pixels)
    line = Markup('<polyline class="{}" points="{}"/>')
    dot = Markup('<circle class="stop" cx="{}" cy="{}" r="2.5"/>')
    label = Markup('<text class="over {}" x="{}" y="{}">start</text>')
    dots = [dot.format(x, y) for x, y in pixels]
    # The text is on the side of the first dot that has more room.
    x, y = pixels[0]
    is_right = x > (FRAME.left + FRAME.right) / 2
    anchor, offset = ("end", -7) if is_right else ("", 7)
    start = label.format(anchor, x + offset, y + 4)
    parts = [line.format("halo", points), line.format("way", points), *dots, start]
    return Markup("").join(parts)


def _spot(point: Mapping[str, Any], axes: Axes) -> Markup:
    """An evaluated point, which says its figures when it is pointed at."""
    lines = (
        f"a1 {number(point['a1'])}, a2 {number(point['a2'])}",
        f"reward {_with_interval(point, 'reward')}",
        f"against the final weights {point['difference']:+.3f}",
        f"length {_with_interval(point, 'length')}",
        f"truncated {percent(point['truncated'])}",
    )
    x = axes.x.pixel(point["a1"])
    y = axes.y.pixel(point["a2"])
    tip = _NEW_LINE.join(lines)
    return Markup('<circle class="spot" cx="{}" cy="{}" r="2.5" data-tip="{}"/>').format(x, y, tip)


def _with_interval(point: Mapping[str, Any], name: str) -> str:
    low, high = number(point[f"{name}_low"]), number(point[f"{name}_high"])
    return f"{number(point[name])} [{low}, {high}]"


def _star(x: float, y: float) -> Markup:
    """A star of five points around a place."""
    corners = []
    for tenth in range(10):
        angle = math.pi * tenth / 5  # tenths of a turn, clockwise from above
        radius = 8 if tenth % 2 == 0 else 3.4  # outer and inner corners alternate
        corner_x = rounded(x + radius * math.sin(angle))
        corner_y = rounded(y - radius * math.cos(angle))
        corners.append((corner_x, corner_y))
    return Markup('<polygon class="star" points="{}"/>').format(path_of(corners))


def _plane_labels(axes: Axes, explained: Sequence[float]) -> Markup:
    first, second = (percent(share) for share in explained[:2])
    return _labels(axes, ticks(axes.x.low, axes.x.high, 5), f"a1 ({first} of variance)", f"a2 ({second})")


# ---- reward by length ----


def by_length(points: Points, fit: Mapping[str, Any]) -> Drawing:
    """Raw reward against mean length on a logarithmic axis, with the regression line and its 95 % band."""
    rows = fit.get("band") or []
    log_lengths = [math.log(point["length"]) for point in points]
    rewards = [point["raw_reward"] for point in points]
    for _, low, high in rows:
        rewards += (low, high)
    axes = _axes(log_lengths, rewards)
    x_name = "mean length in tokens, logarithmic"
    y_name = "reward without length penalty"
    parts = [_labels(axes, _log_ticks(axes.x), x_name, y_name, math.log)]
    caption = "Without the length penalty; too few lengths for a line."
    if rows:
        parts.append(_fit(rows, fit, axes))
        gain, low, high = fit["slope_per_doubling"]
        caption = f"{gain:+.3f} [{low:+.3f}, {high:+.3f}] per doubling of the length, R² {fit['r2']:.2f}."
    parts += [_dot(point, axes) for point in points]
    return Drawing("Reward by length", caption, _svg(f"Reward by length: {caption}", parts))


def _fit(rows: Sequence[Sequence[float]], fit: Mapping[str, Any], axes: Axes) -> Markup:
    """The line of the fit and its band, of which each row has a length and the bounds there."""
    lengths, low, high = zip(*rows, strict=True)
    x = [math.log(length) for length in lengths]
    fitted = [fit["intercept"] + fit["slope"][0] * log_length for log_length in x]
    interval = band(x, Series("fit", fitted, low, high), 0, axes)
    return interval + Markup('<path class="line c0" d="M{}"/>').format(path_of(points_of(x, fitted, axes)))


def _dot(point: Mapping[str, Any], axes: Axes) -> Markup:
    x = axes.x.pixel(math.log(point["length"]))
    y = axes.y.pixel(point["raw_reward"])
    text = _NEW_LINE.join((f"length {number(point['length'])}", f"raw reward {number(point['raw_reward'])}"))
    return Markup('<circle class="spot" cx="{}" cy="{}" r="3" data-tip="{}"/>').format(x, y, text)


def _log_ticks(x: Scale) -> list[float]:
    """Round lengths within a logarithmic axis, no two of them close together."""
    shown: list[float] = []
    last = -math.inf  # where the last one is, in pixels
    for length in ticks(math.exp(x.low), math.exp(x.high), 8):
        pixel = x.at(math.log(length))
        if pixel - last > MIN_TICK_DISTANCE:
            shown.append(length)
            last = pixel
    return shown


# ---- parts of both ----


def _labels(
    axes: Axes, across: Sequence[float], x_name: str, y_name: str, to_scale: Callable[[float], float] = float
) -> Markup:
    """The numbers of both axes, and what they are; ``to_scale`` maps a number of the horizontal axis to its scale."""
    heights = [(axes.y.pixel(value), number(value)) for value in ticks(axes.y.low, axes.y.high, 5)]
    numbers = [(axes.x.pixel(to_scale(value)), number(value)) for value in across]
    name = Markup('<text x="2" y="14" class="soft">{}</text>').format(y_name)
    return grid(FRAME, heights, numbers, x_name) + name


def _svg(label: str, parts: Sequence[Markup]) -> Markup:
    head = '<svg class="map" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
    return Markup(head).format(FRAME.width, FRAME.height, label, Markup("").join(parts))
