"""A rectangle of the landscape's plane."""

from math import isfinite

from magcli.errors import UsageError

Box = tuple[tuple[float, float], tuple[float, float]]
"""The corners of a rectangle: lowest (a1, a2), highest (a1, a2)."""


def parse_box(text: str) -> Box:
    """Parse a rectangle ``a1lo:a1hi,a2lo:a2hi``, which must contain w* at (0, 0).

    Raises:
        UsageError: the format is wrong, or the origin is outside.
    """
    try:
        first, second = text.split(",")
        left, right = map(float, first.split(":"))
        low, high = map(float, second.split(":"))
    except ValueError:
        raise UsageError(f"range '{text}' is not of the form a1lo:a1hi,a2lo:a2hi, such as -2:4,-1:1") from None
    is_inside = left < 0 < right and low < 0 < high
    is_finite = all(map(isfinite, (left, right, low, high)))
    if not (is_inside and is_finite):
        raise UsageError(f"range '{text}' must contain the final weights at (0, 0) in its interior")
    return (left, low), (right, high)
