"""What is left to do in an equal answer: like terms to collect, a common number to take out, an equation to solve."""

import math
from collections.abc import Iterator
from fractions import Fraction

from magcli.verify.math.equality.identity import symbols
from magcli.verify.math.latex.tree import ONE, Expr, flattened, is_whole_number, neg, parts_of


def count_uncollected(expr: Expr) -> int:
    """The number of terms and factors that could be joined with a like one: ``5x-4x``, ``y^9/y^4``, ``2x/4``."""
    inside = sum(map(count_uncollected, expr.args))
    if expr.op == "+":
        # Like terms have the same factors besides their coefficients.
        keys = [frozenset(_powers(term)) for term in flattened(expr, "+")]
        return inside + len(keys) - len(set(keys))
    if expr.op in ("*", "/"):
        return inside + (_has_like_factors(expr) or _has_number_to_cancel(expr))
    return inside


def _powers(expr: Expr) -> Iterator[tuple[Expr, Expr]]:
    """The factors of a term without its coefficient, each as base and exponent."""
    if expr.op == "*":
        for arg in expr.args:
            yield from _powers(arg)
    elif expr.op == "/":
        numerator, denominator = expr.args
        yield from _powers(numerator)
        for base, exponent in _powers(denominator):
            yield base, neg(exponent)
    elif expr.op == "^":
        yield expr.args[0], expr.args[1]
    elif expr.op != "num":
        yield expr, ONE


def _has_like_factors(expr: Expr) -> bool:
    """Whether a product has a base twice; a root may stand beside a power, as in ``x\\sqrt x``."""
    kinds = [
        (base, is_whole_number(exponent))
        for base, exponent in _powers(expr)
        if base.op != "num" and exponent.op == "num"
    ]
    return len(set(kinds)) < len(kinds)


def _has_number_to_cancel(expr: Expr) -> bool:
    """Whether the numerator and the denominator of a fraction have a whole number above 1 in common."""
    if expr.op != "/" or all(side.op == "num" for side in expr.args):
        return False
    numbers = [_content(side) for side in expr.args]
    if any(number.denominator != 1 for number in numbers):
        return False
    return math.gcd(*(number.numerator for number in numbers)) > 1


def count_numbers_to_join(expr: Expr) -> int:
    """The number of sums and products that have several numbers to add or multiply: ``2\\pi\\cdot 3``.

    A numerator and a denominator may have a number each.
    """
    if not expr.args:
        return 0
    inside = sum(map(count_numbers_to_join, expr.args))
    return inside + _has_numbers_to_join(expr)


def _has_numbers_to_join(expr: Expr) -> bool:
    """Whether a sum or product itself has several numbers, without what is inside its parts."""
    if expr.op == "+":
        numbers = [term for term in flattened(expr, "+") if term.op == "num"]
        return len(numbers) > 1
    if expr.op not in ("*", "/"):
        return False
    above, below = _number_factors(expr)
    if len(above) > 1 or len(below) > 1:
        return True
    # 2 \cdot \frac{x}{4}; a fraction by itself may have a number above and below its line.
    return expr.op == "*" and math.gcd(math.prod(above), math.prod(below)) > 1


def _number_factors(expr: Expr) -> tuple[list[int], list[int]]:
    """The numbers other than 1 that a product has above and below the line, without their signs."""
    if expr.op == "num":
        numerator, denominator = abs(expr.number.numerator), expr.number.denominator
        above = [numerator] if numerator != 1 else []
        return above, [denominator] if denominator != 1 else []
    if expr.op not in ("*", "/"):
        return [], []
    left, right = expr.args
    above, below = _number_factors(left)
    other_above, other_below = _number_factors(right)
    if expr.op == "/":
        # A divisor is turned over.
        other_above, other_below = other_below, other_above
    return above + other_above, below + other_below


def _content(expr: Expr) -> Fraction:
    """The number that could be taken out of an expression."""
    if expr.op != "+":
        return _coefficient(expr)
    coefficients = [_coefficient(term) for term in flattened(expr, "+")]
    if any(number.denominator != 1 for number in coefficients):
        return Fraction(1)
    return Fraction(math.gcd(*(number.numerator for number in coefficients)))


def count_common_numbers(expr: Expr) -> int:
    """The number of sums of which a whole number above 1 could be taken out: ``30x^2-8x+20``."""
    inside = sum(map(count_common_numbers, expr.args))
    if expr.op != "+" or not symbols(expr):
        return inside
    return inside + (_content(expr) > 1)


def _coefficient(term: Expr) -> Fraction:
    """The product of the numbers in a term; 1 without one."""
    if term.op == "num":
        return term.number
    if term.op == "*":
        return math.prod(map(_coefficient, term.args), start=Fraction(1))
    if term.op == "/" and term.args[1].op == "num" and term.args[1].number:
        return _coefficient(term.args[0]) / term.args[1].number
    return Fraction(1)


def is_unsolved(answer: Expr, gold: Expr) -> bool:
    """Whether the ground truth states the values of unknowns and the answer has an equation or inequality left."""
    stated = parts_of(gold, "list", "set")
    if not all(_is_solved(part) for part in stated):
        return False
    parts = parts_of(answer, "list", "set")
    return any(part.op == "rel" and not any(map(_is_unknown, part.args)) for part in parts)


def _is_solved(relation: Expr) -> bool:
    """Whether a relation has one unknown as a side, between numbers."""
    if relation.op != "rel":
        return False
    others = [side for side in relation.args if side.op != "sym"]
    return len(others) == len(relation.args) - 1 and not any(map(symbols, others))


def _is_unknown(side: Expr) -> bool:
    # |x| < 3 is solved for the absolute value.
    inner = side.args[0] if side.op == "f" and side.name == "abs" else side
    return inner.op == "sym"
