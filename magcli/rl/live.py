"""Curves of a run on a terminal, in Braille dots: reward, length, dropped groups, staleness, throughput.

With held-out problems their accuracy is a curve of its own, of the evaluations only.

Memory is bounded: each point of a long run is the mean of several updates. ``magcli.console`` decides when to draw.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.text import Text

from magcli.run.rundir import Line

POINTS = 512
"""Maximum number of points of a curve; more than the dots across any terminal."""

MIN_WIDTH = 40
"""Minimum width of a terminal in columns for curves."""

GAP = 2
"""Columns between two curves."""

OTHER_LINES = 4
"""Lines of a terminal that curves leave free."""

DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bit of each dot of a Braille character: left and right column, from the top."""


@dataclass(frozen=True, slots=True)
class Series:
    """The name of a curve, and the functions that return its value in a line of metrics as a number and as text."""

    name: str
    value: Callable[[Line], float | None]
    text: Callable[[Line], str]


def _series(name: str, key: str, form: str) -> Series:
    return Series(name, lambda line: line.get(key), lambda line: _text(line.get(key), form))


def _text(value: float | None, form: str) -> str:
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


ACCURACY = _series("held-out accuracy", "accuracy", "{:.1%}")
"""The curve of a run that evaluates its weights; between two evaluations a line of metrics has no value."""


class Curve:
    """A series of any length as at most ``POINTS`` means of ``span`` values each; a mean of unknown values is None."""

    def __init__(self) -> None:
        self.span = 1
        self._points: list[float | None] = []
        self._pending: list[float | None] = []

    def add(self, value: float | None) -> None:
        """Append a value; one that is not finite counts as unknown."""
        is_known = value is not None and math.isfinite(value)
        self._pending.append(value if is_known else None)
        if len(self._pending) < self.span:
            return
        points = [*self._points, _mean(self._pending)]
        if len(points) == POINTS:
            # The curve is full: join its points in pairs, so that half of it is free again.
            points = [_mean(points[at : at + 2]) for at in range(0, POINTS, 2)]
            self.span *= 2
        # Replaced rather than changed, since another thread may be drawing the points.
        self._points = points
        self._pending = []

    def points(self) -> list[float | None]:
        """The means in order; the last one may be over fewer values."""
        if not self._pending:
            return self._points
        return [*self._points, _mean(self._pending)]


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None


class Curves:
    """All curves of a run, beginning with the updates of earlier processes."""

    def __init__(self, lines: Iterable[Line] = ()) -> None:
        self._curves = [Curve() for _ in SERIES]
        self._accuracy = Curve()
        self._last: Line | None = None
        self._last_evaluation: Line | None = None
        self._drawn: tuple[tuple[int, int, int], list[Text]] | None = None
        self._updates = self._evaluations = 0
        for line in lines:
            self.add_evaluation(line)
            if line["step"]:
                self.add(line)

    def add(self, line: Line) -> None:
        """Append an update."""
        for series, curve in zip(SERIES, self._curves, strict=True):
            curve.add(series.value(line))
        self._last = line
        self._updates += 1

    def add_evaluation(self, line: Line) -> None:
        """Append the accuracy on held-out problems, if the line has one."""
        if ACCURACY.value(line) is not None:
            self._accuracy.add(ACCURACY.value(line))
            self._last_evaluation = line
            self._evaluations += 1

    def draw(self, width: int, height: int) -> list[Text]:
        """The lines to show on a terminal of this size; none if it is too small or there is no update yet.

        May be called from another thread than ``add``.
        """
        # What was drawn is kept: a terminal is drawn several times a second, an update takes longer.
        key = (self._updates, self._evaluations, width)
        if self._last is None or width < MIN_WIDTH:
            return []
        if self._drawn is None or self._drawn[0] != key:
            self._drawn = key, self._rows(self._last, width)
        _, rows = self._drawn
        needed = len(rows) + OTHER_LINES
        return rows if needed <= height else []

    def _rows(self, last: Line, width: int) -> list[Text]:
        across, lines = layout(width)
        gaps = GAP * (across - 1)
        chart_width = (width - 1 - gaps) // across
        charts = []
        if self._last_evaluation is not None:
            text = ACCURACY.text(self._last_evaluation)
            charts.append(chart(ACCURACY.name, text, self._accuracy.points(), chart_width, lines))
        for series, curve in zip(SERIES, self._curves, strict=True):
            charts.append(chart(series.name, series.text(last), curve.points(), chart_width, lines))
        rows = []
        for start in range(0, len(charts), across):
            side_by_side = charts[start : start + across]
            # The first lines of these charts together, then their second lines, and so on.
            for parts in zip(*side_by_side, strict=True):
                rows.append(Text(" " * GAP).join(parts))
        for row in rows:
            row.rstrip()
        return rows


def layout(width: int) -> tuple[int, int]:
    """Number of curves side by side, and of lines per curve, for a terminal's width: nine lines in all, with titles."""
    return (3, 3) if width >= 90 else (2, 2)


def chart(name: str, text: str, points: Sequence[float | None], width: int, height: int) -> list[Text]:
    """A curve of ``width`` columns and ``height`` lines below a title: name, last value and, if it fits, the range."""
    title = Text(name, style="bold").append(f" {text}", style="not bold")
    values = [point for point in points if point is not None]
    span = f"{_short(min(values))} to {_short(max(values))}" if values else ""
    room = width - title.cell_len
    # At least two blanks before it.
    if len(span) + 2 <= room:
        title.append(span.rjust(room), style="dim not bold")
    # All lines of a chart are equally wide, so that charts can stand side by side.
    title.truncate(width, pad=True)
    curve = [Text(line, style="cyan") for line in braille(points, width, height)]
    return [title, *curve]


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def braille(points: Sequence[float | None], width: int, height: int) -> list[str]:
    """A curve as ``height`` lines of ``width`` Braille characters of 2 x 4 dots.

    Points are connected; unknown ones leave a gap.
    """
    cells = [[0] * width for _ in range(height)]
    # Two dots a column, four a line.
    levels = _levels(resample(points, 2 * width), 4 * height)
    before: int | None = None
    for x, level in enumerate(levels):
        if level is not None:
            for y in _connected(before, level):
                cells[y // 4][x // 2] |= DOTS[x % 2][y % 4]
        before = level
    # The block of Braille characters begins at U+2800; its low byte has a bit for each dot.
    return ["".join(chr(0x2800 + cell) for cell in line) for line in cells]


def resample(points: Sequence[float | None], size: int) -> list[float | None]:
    """A curve resampled to ``size`` points: by means if there are more points, else by linear interpolation."""
    if not points:
        return [None] * size
    if len(points) > size:
        edges = [len(points) * index // size for index in range(size + 1)]
        return [_mean(points[start:end]) for start, end in pairwise(edges)]
    step = (len(points) - 1) / max(size - 1, 1)
    return [_interpolated(points, index * step) for index in range(size)]


def _interpolated(points: Sequence[float | None], at: float) -> float | None:
    last = len(points) - 1
    left = min(int(at), last)
    right = min(left + 1, last)
    start, end = points[left], points[right]
    share = at - left
    # Next to a gap the nearer point counts, so that the gap keeps its width.
    if start is None or end is None:
        return start if share < 0.5 else end
    return start + (end - start) * share


def _levels(values: Sequence[float | None], size: int) -> list[int | None]:
    """The row of each value's dot: 0 at the top for the largest; a flat curve is in the middle."""
    numbers = [value for value in values if value is not None]
    low, high = min(numbers, default=0.0), max(numbers, default=0.0)
    if low == high:
        return [None if value is None else size // 2 for value in values]
    lowest_row = size - 1
    return [None if value is None else round(lowest_row * (high - value) / (high - low)) for value in values]


def _connected(before: int | None, level: int) -> range:
    """The rows of the dots of one column, including those that connect it to the column before."""
    if before is None or before == level:
        return range(level, level + 1)
    # The row of the column before has its dot already.
    if before < level:
        return range(before + 1, level + 1)
    return range(level, before)
