"""How exactly decimals on stdout must be printed, inferred from the expected outputs and the statement.

A contest's checker accepts an error that its statement names (*absolute or relative error at most 1e-6*); tests that
were made by printing one solution's decimals do not say so. Integers are never compared with a tolerance.
"""

import re
from collections.abc import Iterable

USUAL = 1e-6
"""The tolerance where decimals are printed with more places than rounding them asks for."""
FULL_PRECISION = 6
"""Decimal places from which a number is printed as exactly as the machine has it, not rounded as the task asks."""
MIN_ROUNDED = 3
"""Decimals with equally many places from which these are a format."""

_DECIMAL = re.compile(r"[+-]?\d+\.(\d+)(?:[eE][+-]?\d+)?")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])|\n\s*\n")
_ABOUT_ERRORS = re.compile(r"\b(?:error|precision|accuracy|tolerance|accurate|differ|deviat)", re.IGNORECASE)
# A power of ten with a negative exponent: ``10^{-6}``, ``10<sup>-6</sup>``, ``10**-6``.
_POWER = re.compile(r"10\s*(?:\^|\*\*|<sup>)?\s*[{(]?\s*[-\u2212\u2013]\s*(\d{1,2})(?!\d)")
# A power of ten as a decimal: ``0.0001``, ``1e-4``.
_NUMBER = re.compile(r"(?<![\d.])(?:0\.0*1|1(?:\.0)?[eE]-\d{1,2})(?!\d)")
# ``exactly two decimal places``.
_EXACTLY = re.compile(r"\bexactly\s+\S+\s+(?:decimal|digit|place|fractional)", re.IGNORECASE)


def decimal_comparison(outputs: Iterable[str], statement: str = "") -> str:
    """The comparison for outputs with decimals, such as ``floats:1e-6`` or ``decimals:2``; empty if text decides.

    ``floats`` with the tolerance of the statement, else with the usual one if some decimal has full precision. If all
    have equally many places but fewer, they are rounded, and an output may be as far off as rounding
    (``decimals``) unless the statement wants exactly so many.
    """
    words = (word for output in outputs for word in output.split())
    places = [len(match[1]) for match in map(_DECIMAL.fullmatch, words) if match]
    if not places:
        return ""
    are_equally_long = len(set(places)) == 1
    stated = stated_tolerance(statement)
    if stated is not None:
        # Expected outputs may be off by half a unit of their last place themselves.
        rounding = 0.5 * 10.0 ** -places[0] if are_equally_long else 0.0
        return f"floats:{max(stated, rounding):g}"
    if max(places) >= FULL_PRECISION:
        return f"floats:{USUAL:g}"
    # Few outputs can have equally many places by chance.
    if not are_equally_long or len(places) < MIN_ROUNDED or _EXACTLY.search(statement):
        return ""
    return f"decimals:{places[0]}"


def stated_tolerance(statement: str) -> float | None:
    """The error that a statement allows: a power of ten in a sentence about errors; None without one."""
    for sentence in _SENTENCE_END.split(statement):
        if not _ABOUT_ERRORS.search(sentence):
            continue
        if power := _POWER.search(sentence):
            return float(f"1e-{power[1]}")
        if number := _NUMBER.search(sentence):
            return float(number[0])
    return None
