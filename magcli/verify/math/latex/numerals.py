r"""Mixed numbers, and decimals that repeat without end: ``0.1\overline{6}``, ``0.\dot{1}\dot{6}``, ``0.4545\ldots``."""

import re
from fractions import Fraction

from magcli.verify.math.latex.tokens import Cursor
from magcli.verify.math.latex.tree import Expr, ParseError, num

MAX_DIGITS = 4_000
CYCLE_MARKS = (r"\overline", r"\dot", r"\bar")
MIN_SHOWN = 3
"""How often a block of digits is written before an ellipsis that repeats it."""
MAX_SHOWN = 60
"""Longer decimals before an ellipsis are not searched for a cycle."""
_SHOWN_CYCLE = re.compile(rf"(?P<fixed>\d*?)(?P<cycle>\d{{1,12}}?)(?P=cycle){{{MIN_SHOWN - 1},}}")


def repeating(cursor: Cursor, head: str) -> Expr:
    """The number with the digits ``head`` and a marked cycle at the cursor."""
    cycle = ""
    # Dots may stand above each digit of the cycle: 0.\dot{1}\dot{6}.
    while cursor.peek().value in CYCLE_MARKS:
        braced = cursor.peek(1).value == "{"
        cycle += cursor.peek(1 + braced).value
        cursor.at += 2 + braced
        if braced:
            cursor.expect("}")
    whole, _, fixed = head.partition(".")
    if not cycle.isdigit() or len(cycle) > MAX_DIGITS:
        raise ParseError("unparsable")
    return _with_cycle(whole, fixed, cycle)


def continued(text: str) -> Expr | None:
    """The number whose digits before an ellipsis end with a block written ``MIN_SHOWN`` times; None for others."""
    whole, _, places = text.partition(".")
    shown = _SHOWN_CYCLE.fullmatch(places) if len(places) <= MAX_SHOWN else None
    if shown is None:
        return None
    return _with_cycle(whole, shown["fixed"], shown["cycle"])


def _with_cycle(whole: str, fixed: str, cycle: str) -> Expr:
    scale = 10 ** len(fixed)
    # 0.(12) is 12/99
    repeated = Fraction(int(cycle), 10 ** len(cycle) - 1)
    return num((int(whole + fixed or "0") + repeated) / scale)


def mixed_number(cursor: Cursor) -> Expr | None:
    """``1\\frac{1}{2}`` and ``1 1/2``: digits and a proper fraction of digits."""
    whole = cursor.peek()
    if whole.kind != "num" or not whole.value.isdigit() or len(whole.value) > 9:
        return None
    top, bottom, size = _plain_fraction(cursor)
    if not (top.isdigit() and bottom.isdigit()) or len(top + bottom) > 20:
        return None
    # An improper fraction is a factor.
    if not 0 < int(top) < int(bottom):
        return None
    # 2 \frac{1}{2}^2 is a product.
    if cursor.peek(1 + size).value in ("^", "!", r"\circ"):
        return None
    cursor.at += 1 + size
    return num(int(whole.value) + Fraction(int(top), int(bottom)))


def _plain_fraction(cursor: Cursor) -> tuple[str, str, int]:
    """Numerator, denominator and number of tokens of the fraction after the next token; empty if there is none."""
    first = cursor.peek(1)
    ahead = [cursor.peek(i).value for i in range(2, 8)]
    if first.kind == "num" and first.spaced and ahead[0] == "/":
        return first.value, ahead[1], 3
    if first.value != r"\frac":
        return "", "", 0
    # \frac{1}{2}
    if ahead[0] == "{" and ahead[2:4] == ["}", "{"] and ahead[5] == "}":
        return ahead[1], ahead[4], 7
    top = ahead[0]
    # \frac12, whose digits are one token
    if top.isdigit() and len(top) == 2:
        return top[0], top[1], 2
    # \frac1{2}
    if top.isdigit() and len(top) == 1 and ahead[1] == "{" and ahead[3] == "}":
        return top, ahead[2], 5
    # \frac 1 2
    if len(top) == len(ahead[1]) == 1:
        return top, ahead[1], 3
    return "", "", 0
