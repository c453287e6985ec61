"""The names of comparisons, which ``magcli.verify.code.outputs`` describes and makes."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from magcli.errors import DataError

Mode = Literal["tokens", "tokens-case", "floats", "decimals", "lines", "unordered-lines", "exact"]

HALF_A_UNIT = 0.5 + 1e-6
"""What rounding to a place changes, in units of that place, with the error of the comparison itself."""
# Of bounded length, as a program may write any number of digits.
DECIMAL = re.compile(rb"[+-]?(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][+-]?\d{1,5})?")


@dataclass(frozen=True, slots=True)
class Comparison:
    """A mode and its tolerance: of ``floats`` absolute or relative, of ``decimals`` absolute."""

    mode: Mode = "tokens"
    tolerance: float = 1e-6


@lru_cache(maxsize=64)
def comparison(name: str) -> Comparison:
    """The comparison named ``name``, such as ``tokens`` or ``floats:1e-4``. Raises DataError if there is none."""
    mode, colon, tolerance = name.partition(":")
    for plain_mode in get_args(Mode):
        if mode == plain_mode != "decimals" and not colon:
            return Comparison(plain_mode)
    # The number of decimals, without which the mode has no meaning.
    if mode == "decimals" and tolerance.isdecimal() and len(tolerance) < 3:
        unit = 10.0 ** -int(tolerance)
        return Comparison("decimals", HALF_A_UNIT * unit)
    if mode == "floats" and DECIMAL.fullmatch(tolerance.encode()) and float(tolerance) >= 0:
        return Comparison("floats", float(tolerance))
    raise DataError(f"unknown comparison {name!r}; choose from {', '.join(get_args(Mode))}, floats:1e-4, decimals:2")
