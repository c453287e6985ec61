"""Long runs as few points: neighbouring updates as one, their values as means."""

from collections.abc import Mapping, Sequence
from typing import Any

POINTS = 240
"""Points of a chart, at most."""

Line = Mapping[str, Any]
LAST = ("step", "stage")
"""What of several updates is told as it was at the last of them."""


def thinned(lines: Sequence[Line], most: int = POINTS) -> tuple[list[dict[str, Any]], int]:
    """Lines of metrics as at most ``most``, and how many updates each of them stands for; the last may be of fewer.

    Numbers become their means, those called ``_max`` the largest, counts by name means by name; what is not there is
    left out of the mean.
    """
    every = -(-len(lines) // most) or 1
    if every == 1:
        return [dict(line) for line in lines], 1
    return [_joined(lines[first : first + every]) for first in range(0, len(lines), every)], every


def _joined(lines: Sequence[Line]) -> dict[str, Any]:
    names = dict.fromkeys(name for line in lines for name in line)
    return {name: _join(name, [line[name] for line in lines if line.get(name) is not None]) for name in names}


def _join(name: str, values: Sequence[Any]) -> Any:
    if not values or name in LAST:
        return values[-1] if values else None
    if isinstance(values[0], Mapping):
        counts = dict.fromkeys(key for value in values for key in value)
        return {key: sum(value.get(key, 0) for value in values) / len(values) for key in counts}
    if not all(isinstance(value, int | float) for value in values):
        return values[-1]
    return max(values) if name.endswith("_max") else sum(values) / len(values)
