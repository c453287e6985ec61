"""Whether the sides of an answer such as ``x=2+3=5`` or ``\\sqrt2 \\approx 1.41`` agree, so that it has one value."""

import math
from functools import lru_cache

from magcli.verify.equality.balls import FLOATS, NotReal, Point, Undecided
from magcli.verify.equality.evaluate import evaluate
from magcli.verify.equality.identity import same_value, symbols
from magcli.verify.latex.tree import Expr

ARITHMETIC = frozenset(("num", "sym", "const", "+", "*", "/", "^", "f", "sum", "prod"))
_PARTED = frozenset(("list", "tuple", "set", "choice", "cases", "row", "family"))
_CONTRADICTION = Expr("raw", (Expr("text", name="contradiction"),))


@lru_cache(maxsize=4096)
def settled(expr: Expr) -> Expr:
    """The answer with every chain as its value; a ``raw`` node where two of its sides are different numbers."""
    if expr.op == "chain":
        return settled(expr.args[0]) if _agree(expr.args[1:]) else _CONTRADICTION
    if expr.op == "rel" and expr.name == "=":
        return expr if _agree(expr.args) else _CONTRADICTION
    if expr.op not in _PARTED:
        return expr
    parts = tuple(settled(part) for part in expr.args)
    return next((part for part in parts if part.op == "raw"), expr._replace(args=parts))


def is_constant(expr: Expr) -> bool:
    """Whether an expression has a value of its own: no letters, no unknown functions."""
    return not symbols(expr) and not _has_unknown(expr)


def _has_unknown(expr: Expr) -> bool:
    return expr.name.startswith("?") or any(_has_unknown(arg) for arg in expr.args)


def _agree(sides: tuple[Expr, ...]) -> bool:
    """Whether all sides that are numbers are one, those in a unit beside those in the same unit."""
    first: dict[str, Expr] = {}
    for side in sides:
        value = side.args[0] if side.op in ("unit", "percent") else side
        if value.op in ARITHMETIC and is_constant(value):
            kind = f"{side.op} {side.name}" if value is not side else ""
            if not _consistent(first.setdefault(kind, value), value):
                return False
    return True


def _consistent(a: Expr, b: Expr) -> bool:
    """Whether two numbers are the same, or one is the other rounded; where nothing tells they may be."""
    return same_value(a, b) is not False or _rounded(a, b) or _rounded(b, a)


def _rounded(exact: Expr, decimal: Expr) -> bool:
    """Whether a decimal is what a number comes to at its last digit, which after the point may have been cut off."""
    unit = _last_place(decimal)
    if not unit:
        return False
    try:
        value = evaluate(exact, Point(FLOATS, {}, real=True)).value
        lost = (math.nan if isinstance(value, complex) else float(value)) - float(decimal.number)
    except (NotReal, Undecided, OverflowError):
        return True
    return abs(lost) <= unit * (0.5 + 1e-9) or (
        unit < 1 and 0 <= lost * (1 if decimal.number > 0 else -1) < unit * (1 - 1e-9)
    )


def _last_place(decimal: Expr) -> float:
    """What the last digit of a decimal counts that is not zero; 0 for other numbers."""
    if decimal.op != "num" or not decimal.number:
        return 0.0
    unit, value = 1.0, decimal.number
    while value.denominator > 1 and unit > 1e-30:
        unit, value = unit / 10, value * 10
    while value.denominator == 1 and value.numerator % 10 == 0:
        unit, value = unit * 10, value / 10
    return unit if value.denominator == 1 else 0.0
