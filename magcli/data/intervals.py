"""Intervals of months, days and nanoseconds, and durations, as text of ISO 8601: ``P1M2DT3H``, ``PT0.5S``."""

import re
from typing import Any, cast

import numpy as np
import pyarrow as pa

from magcli.data.rebuild import validity

SECOND, MINUTE, HOUR, DAY = 10**9, 60 * 10**9, 3600 * 10**9, 86400 * 10**9
"""In nanoseconds."""
UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
"""Nanoseconds of each unit of Arrow."""
# An interval as it is stored, in Parquet without signs.
IN_PARQUET = np.dtype([("months", "<u4"), ("days", "<u4"), ("ms", "<u4")])
IN_ARROW = np.dtype([("months", "<i4"), ("days", "<i4"), ("ns", "<i8")])
# Years, months, days, hours, minutes; then the sign, the whole number and the decimals of the seconds.
TEXT = re.compile(
    r"P(?:(-?\d+)Y)?(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?)(\d+)(?:\.(\d{1,9}))?S)?)?"
)


def interval_text(months: int, days: int, nanoseconds: int) -> str:
    """An interval as text; each part has its own sign."""
    years, months = _divided(months, 12)
    hours, rest = _divided(nanoseconds, HOUR)
    minutes, rest = _divided(rest, MINUTE)
    date = _parts((years, "Y"), (months, "M"), (days, "D"))
    time = _parts((hours, "H"), (minutes, "M"))
    # Less than a minute is left: seconds and their decimals, with one sign.
    if rest:
        sign = "-" if rest < 0 else ""
        whole, fraction = divmod(abs(rest), SECOND)
        decimals = f".{fraction:09}".rstrip("0") if fraction else ""
        time += f"{sign}{whole}{decimals}S"
    if time:
        return f"P{date}T{time}"
    return f"P{date}" if date else "PT0S"


def _parts(*counts: tuple[int, str]) -> str:
    """The counts that are not 0, each with its unit."""
    return "".join(f"{count}{unit}" for count, unit in counts if count)


def _divided(value: int, size: int) -> tuple[int, int]:
    """Quotient and rest of the same sign."""
    sign = -1 if value < 0 else 1
    quotient, rest = divmod(abs(value), size)
    return sign * quotient, sign * rest


def interval_of(text: str) -> pa.MonthDayNano:
    """The inverse of ``interval_text``.

    Raises:
        ValueError: it is not such a text.
    """
    match = TEXT.fullmatch(text)
    # ``P`` and ``PT`` match, but say nothing.
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is not an interval such as P1M2DT3S")
    # The sign of the seconds is also that of their decimals.
    *counts, sign, whole, decimals = match.groups(default="")
    years, months, days, hours, minutes = (int(count or 0) for count in counts)
    seconds_in_ns = int(whole or 0) * SECOND + int(decimals.ljust(9, "0"))
    if sign:
        seconds_in_ns = -seconds_in_ns
    nanoseconds = hours * HOUR + minutes * MINUTE + seconds_in_ns
    return pa.MonthDayNano([years * 12 + months, days, nanoseconds])


def interval_texts(array: pa.Array) -> pa.Array:
    """An array of intervals as text."""
    texts = [None if value is None else interval_text(*value) for value in array.to_pylist()]
    return pa.array(texts, pa.string())


def intervals_of(texts: pa.Array) -> pa.Array:
    """The inverse of ``interval_texts``.

    Raises:
        ValueError: a text is no interval.
    """
    values = [None if text is None else interval_of(text) for text in texts.to_pylist()]
    return pa.array(values, pa.month_day_nano_interval())


def duration_texts(array: pa.Array) -> pa.Array:
    """An array of durations as text, exact in any unit."""
    unit = UNITS[array.type.unit]
    counts = array.cast(pa.int64()).to_pylist()
    return pa.array([_duration(count, unit) for count in counts], pa.string())


def _duration(count: int | None, unit: int) -> str | None:
    """A number of units, each of so many nanoseconds, as text; null is null."""
    if count is None:
        return None
    days, rest = _divided(count * unit, DAY)
    return interval_text(0, days, rest)


def parquet_intervals(array: pa.Array) -> pa.Array:
    """Parquet's intervals, 12 bytes of months, days and milliseconds each, as Arrow's."""
    # A null takes as many bytes as a value.
    values = cast(list[Any], array.to_pylist())
    data = b"".join(value or bytes(IN_PARQUET.itemsize) for value in values)
    stored = np.frombuffer(data, IN_PARQUET)
    intervals = np.zeros(len(array), IN_ARROW)
    for part in ("months", "days"):
        intervals[part] = stored[part].astype(np.int32)
    intervals["ns"] = stored["ms"].astype(np.int64) * UNITS["ms"]
    buffers = [validity(array), pa.py_buffer(intervals.tobytes())]
    return pa.Array.from_buffers(pa.month_day_nano_interval(), len(array), buffers)
