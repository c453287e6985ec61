"""Answers rounded as the question asks, where the ground truth has more digits."""

import re
from fractions import Fraction
from functools import lru_cache

from magcli.verify.math.latex.tree import Expr

_NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_NEAREST = {"integer": 0, "whole number": 0, "tenth": 1, "hundredth": 2, "thousandth": 3}
_ROUNDING = re.compile(
    rf"\bto\s+\$?(?P<count>\d|{'|'.join(_NUMBERS)})\$?\s+"
    r"(?:(?P<places>decimal(?: place)?s?\b)|significant (?:figure|digit)s?\b)"
    rf"|\bnearest (?P<nearest>{'|'.join(_NEAREST)})\b",
    re.IGNORECASE,
)


@lru_cache(maxsize=1024)
def _asked_rounding(question: str) -> tuple[int, bool] | None:
    """How many digits a question asks for, and whether they are decimal places; None without one such request."""
    requests = list(_ROUNDING.finditer(question))
    if len(requests) != 1:
        return None
    request = requests[0]
    if request["nearest"]:
        return _NEAREST[request["nearest"].lower()], True
    count = request["count"].lower()
    return int(_NUMBERS.get(count, count)), request["places"] is not None


def is_rounded_as_asked(answer: Expr, gold: Expr, question: str) -> bool:
    """Whether an answer is the ground truth, which has more digits, rounded to those that the question asks for."""
    if answer.op != "num" or gold.op != "num" or not gold.number:
        return False
    asked = _asked_rounding(question)
    if asked is None:
        return False
    places, are_decimals = asked
    if not are_decimals:
        places -= _num_leading_digits(gold.number)
    # In units of the last digit that is asked for, a rounded number is whole.
    scale = Fraction(10) ** places
    rounded, exact = answer.number * scale, gold.number * scale
    if exact.denominator == 1 or rounded.denominator != 1:
        return False
    return abs(rounded - exact) <= Fraction(1, 2)


def _num_leading_digits(number: Fraction) -> int:
    """The number of digits before the point; 0 or less for numbers below 1, so that it is 0 for 0.5, -1 for 0.05."""
    digits = len(str(abs(number.numerator))) - len(str(number.denominator))
    return digits + 1 if abs(number) >= Fraction(10) ** digits else digits
