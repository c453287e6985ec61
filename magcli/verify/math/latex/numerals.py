r"""Decimals that repeat without end: ``0.1\overline{6}``, ``0.\dot{1}\dot{6}``, ``0.4545\ldots``."""

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
    repeated = Fraction(int(cycle), 10 ** len(cycle) - 1)  # 0.(12) is 12/99
    return num((int(whole + fixed or "0") + repeated) / scale)
