"""The curves of a run on a terminal, in Braille dots: reward, length, groups dropped, staleness, speed of both sides.

What is kept is bounded: a long run's updates are told by means of equally many. Drawing is pure; when to draw is the
console's business (``magcli.console``).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from rich.text import Text

Line = Mapping[str, Any]

POINTS = 512
"""Points of a curve at most; more than twice the dots of the widest."""

NARROWEST = 40
"""Columns of a terminal below which curves say nothing."""

GAP = 2
"""Columns between two curves."""

DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bit of each dot of a Braille character: left and right, from the top."""


@dataclass(frozen=True, slots=True)
class Series:
    """One curve: its name, its value in an update's line of metrics, and the last one as people read it."""

    name: str
    value: Callable[[Line], float | None]
    told: Callable[[Line], str]


def _series(name: str, key: str, form: str) -> Series:
    return Series(name, lambda line: line.get(key), lambda line: _told(line.get(key), form))


def _told(value: float | None, form: str) -> str:
    return "unknown" if value is None else form.format(value)


def _dropped(line: Line) -> int:
    return sum(line["groups_dropped"].values())


SERIES = (
    _series("reward", "reward", "{:.3f}"),
    _series("length", "length_mean", "{:,.0f} tokens"),
    Series("dropped groups", _dropped, lambda line: f"{_dropped(line)}, {line['groups_trained']} kept"),
    _series("staleness", "staleness_mean", "{:.2f} updates"),
    _series("generated", "generate_tokens_per_s", "{:,.0f} tokens/s"),
    _series("trained", "train_tokens_per_s", "{:,.0f} tokens/s"),
)


class Curve:
    """A series of any length as at most ``POINTS`` means, each over ``span`` values; None where none is known."""

    def __init__(self) -> None:
        self.span = 1
        self._points: list[float | None] = []
        self._open: list[float | None] = []

    def add(self, value: float | None) -> None:
        """Append a value; one that is no finite number counts as not known."""
        self._open.append(value if value is not None and math.isfinite(value) else None)
        if len(self._open) < self.span:
            return
        points = [*self._points, _mean(self._open)]
        if len(points) == POINTS:
            points = [_mean(points[at : at + 2]) for at in range(0, POINTS, 2)]
            self.span *= 2
        self._points, self._open = points, []

    def points(self) -> list[float | None]:
        """The means from the first value to the last; that of the newest values may be over fewer."""
        return [*self._points, _mean(self._open)] if self._open else self._points


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


class Curves:
    """All curves of a run, begun with the lines of metrics that an earlier process has left."""

    def __init__(self, lines: Iterable[Line] = ()) -> None:
        self._curves = [Curve() for _ in SERIES]
        self._last: Line | None = None
        self._drawn: tuple[tuple[int, int], list[Text]] | None = None
        self._updates = 0
        for line in lines:
            self.add(line)

    def add(self, line: Line) -> None:
        """Append an update's line of metrics."""
        for series, curve in zip(SERIES, self._curves, strict=True):
            curve.add(series.value(line))
        self._last = line
        self._updates += 1

    def draw(self, width: int, height: int) -> list[Text]:
        """The curves for a terminal of so many columns and lines; none where it is too small or nothing is known.

        May be called on another thread than ``add``.
        """
        key = (self._updates, width)
        if self._last is None or width < NARROWEST:
            return []
        if self._drawn is None or self._drawn[0] != key:
            self._drawn = key, self._rows(self._last, width)
        return self._drawn[1] if len(self._drawn[1]) + 4 <= height else []

    def _rows(self, last: Line, width: int) -> list[Text]:
        across, lines = layout(width)
        room = (width - 1 - GAP * (across - 1)) // across
        pairs = zip(SERIES, self._curves, strict=True)
        charts = [chart(series.name, series.told(last), curve.points(), room, lines) for series, curve in pairs]
        rows = []
        for start in range(0, len(charts), across):
            rows += [Text(" " * GAP).join(parts) for parts in zip(*charts[start : start + across], strict=True)]
        for row in rows:
            row.rstrip()
        return rows


def layout(width: int) -> tuple[int, int]:
    """Curves side by side, and the lines of each, on a terminal of so many columns: nine lines with their titles."""
    return (3, 3) if width >= 90 else (2, 2)


def chart(name: str, told: str, points: Sequence[float | None], width: int, height: int) -> list[Text]:
    """A curve of ``width`` columns and ``height`` lines below its title: name, last value and, with room, its range."""
    title = Text(name, style="bold").append(f" {told}", style="not bold")
    known = [point for point in points if point is not None]
    span = f"{_short(min(known))} to {_short(max(known))}" if known else ""
    if title.cell_len + 2 + len(span) <= width:
        title.append(span.rjust(width - title.cell_len), style="dim not bold")
    title.truncate(width, pad=True)
    return [title, *(Text(line, style="cyan") for line in braille(points, width, height))]


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def braille(points: Sequence[float | None], width: int, height: int) -> list[str]:
    """A curve as ``height`` lines of ``width`` Braille characters of 2 x 4 dots; the extremes reach top and bottom.

    Points are joined; where none is known, nothing is drawn.
    """
    cells = [[0] * width for _ in range(height)]
    before: int | None = None
    for x, level in enumerate(_levels(stretch(points, 2 * width), 4 * height)):
        if level is not None:
            for y in _joined(before, level):
                cells[y // 4][x // 2] |= DOTS[x % 2][y % 4]
        before = level
    return ["".join(chr(0x2800 + cell) for cell in line) for line in cells]


def stretch(points: Sequence[float | None], size: int) -> list[float | None]:
    """A curve at ``size`` places: means where there are more points than places, else on straight lines between."""
    if not points:
        return [None] * size
    if len(points) > size:
        edges = [len(points) * place // size for place in range(size + 1)]
        return [_mean(points[start:end]) for start, end in pairwise(edges)]
    step = (len(points) - 1) / max(size - 1, 1)
    return [_between(points, place * step) for place in range(size)]


def _between(points: Sequence[float | None], at: float) -> float | None:
    left = min(int(at), len(points) - 1)
    start, end = points[left], points[min(left + 1, len(points) - 1)]
    if start is None or end is None:
        return start if at - left < 0.5 else end
    return start + (end - start) * (at - left)


def _levels(values: Sequence[float | None], size: int) -> list[int | None]:
    """Values as rows of dots from the top, the largest in row 0; those of a flat curve in the middle."""
    known = [value for value in values if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    if low == high:
        return [None if value is None else size // 2 for value in values]
    return [None if v is None else round((size - 1) * (high - v) / (high - low)) for v in values]


def _joined(before: int | None, level: int) -> range:
    """The rows of one column of dots: its own, and those on the way from the column before."""
    if before is None or before == level:
        return range(level, level + 1)
    return range(before + 1, level + 1) if before < level else range(level, before)
