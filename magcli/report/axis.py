"""Axes: from values to places in a drawing, and the round values that are written beside them."""

import math
from collections.abc import Sequence
from typing import NamedTuple

NEAR = 0.75
"""How much smaller than an even share of the axis a round step may be, as a part of that share."""
PAD = 0.06
"""What is left free above and below the values, as a share of their range."""


class Scale(NamedTuple):
    """A linear scale: the values ``low`` and ``high`` lie at ``start`` and ``end``; one value alone in the middle."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Where a value lies."""
        part = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return self.start + part * (self.end - self.start)


def bounds(values: Sequence[float]) -> tuple[float, float]:
    """The ends of an axis for values: 0 where they come near it, a little room elsewhere."""
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    if low == high:
        return (min(low, 0.0), max(high, 0.0)) if low else (0.0, 1.0)
    room = PAD * (high - low)
    if low >= 0:
        return (0.0 if low < 0.5 * high else low - room), high + room
    return low - room, (0.0 if high == 0 else high + room)


def ticks(low: float, high: float, wanted: int) -> list[float]:
    """Round values within an axis, about ``wanted`` of them: multiples of 1, 2 or 5 times a power of ten."""
    if high <= low:
        return [low]
    raw = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= NEAR * raw)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{count * step:.12g}") for count in range(first, last + 1)]
