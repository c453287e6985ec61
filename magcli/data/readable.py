"""The values of columns as JSON, CSV and `show` have them: the shortest numbers, times as text, maps as objects."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from magcli.data.intervals import duration_texts
from magcli.data.rebuild import changed_type, rebuilt

OUT_OF_RANGE = "<value out of range"
"""How Arrow writes a time whose year has more than four digits."""


def readable_values(column: pa.Array) -> list[Any]:
    """The values of a column of a plain type as Python objects.

    A float32 or float16 is the double with the shortest text that reads back in its type: 0.1, not 0.10000000149011612.
    Durations, and times that Python cannot represent, are text; maps of texts are dictionaries unless a key repeats.
    """
    readable = rebuilt(column, changed_type(column.type, _readable), _readable_part)
    try:
        return _objects(readable)
    except (ValueError, OverflowError):  # a time that Python cannot represent
        return _objects(rebuilt(readable, changed_type(readable.type, _without_times), _readable_part))


def readable_numbers(column: pa.Array) -> pa.Array:
    """A column of floats as doubles with the shortest text that reads back in its own type."""
    if pa.types.is_float16(column.type):
        # Arrow writes a float16 with all digits of the double.
        values = column.fill_null(0).to_numpy(zero_copy_only=False).astype("U").astype(np.float64)
        return pa.array(values, mask=column.is_null().to_numpy(zero_copy_only=False))
    # Arrow writes a float32 with the fewest digits that read back.
    return column.cast(pa.string()).cast(pa.float64())


def _objects(column: pa.Array) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist(maps_as_pydicts="strict" if _has_text_maps(column.type) else None)
    except KeyError:  # a map has a key twice, which a dictionary would lose
        values = column.to_pylist()
    return values


def _has_text_maps(kind: pa.DataType) -> bool:
    """Whether a type has maps, all of them with keys that are text."""
    maps = [part for part in nested_types(kind) if pa.types.is_map(part)]
    return bool(maps) and all(pa.types.is_string(part.key_type) for part in maps)


def nested_types(kind: pa.DataType) -> list[pa.DataType]:
    """A type and all types within it."""
    kinds = [kind]
    if pa.types.is_nested(kind):
        for index in range(kind.num_fields):
            kinds += nested_types(kind.field(index).type)
    return kinds


def is_short_float(kind: pa.DataType) -> bool:
    """Whether a type is a float of fewer bits than Python's."""
    return bool(pa.types.is_float32(kind) or pa.types.is_float16(kind))


def is_in_nanoseconds(kind: pa.DataType) -> bool:
    """Whether a type has times in nanoseconds, of which Python's times have only the microseconds."""
    return pa.types.is_temporal(kind) and getattr(kind, "unit", "") == "ns"


def _readable(kind: pa.DataType) -> pa.DataType | None:
    if is_short_float(kind):
        return pa.float64()
    return pa.string() if is_in_nanoseconds(kind) or pa.types.is_duration(kind) else None


def _without_times(kind: pa.DataType) -> pa.DataType | None:
    return pa.string() if pa.types.is_temporal(kind) else None


def _readable_part(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_float64(kind):
        return readable_numbers(array)
    return time_texts(array) if pa.types.is_temporal(array.type) else array.cast(kind)


def time_texts(array: pa.Array) -> pa.Array:
    """Times, dates or durations as text, also those of years beyond 9999."""
    if pa.types.is_duration(array.type):
        return duration_texts(array)
    texts = array.cast(pa.string())
    is_far = pc.starts_with(texts, OUT_OF_RANGE)
    if not pc.any(is_far).as_py():
        return texts
    # Arrow counts days, or a type's units (milliseconds in a date64), from 1970 on, as numpy does.
    is_days = pa.types.is_date32(array.type)
    unit = "D" if is_days else getattr(array.type, "unit", "ms")
    stored = pa.int32() if is_days else pa.int64()
    counts = array.cast(stored).fill_null(0)
    times = counts.to_numpy(zero_copy_only=False).astype(np.int64).astype(f"datetime64[{unit}]")
    zone = "Z" if getattr(array.type, "tz", None) else ""
    far = [str(time).replace("T", " ") + zone for time in times]
    return pc.if_else(is_far, pa.array(far, pa.string()), texts)
