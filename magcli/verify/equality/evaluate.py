"""The value of an expression at a point, with a bound on its error; see ``balls``."""

from collections.abc import Callable
from fractions import Fraction

from magcli.verify.equality.balls import MAX_BITS, MAX_STEPS, Ball, Point, Undecided, inexact, over, plus, times
from magcli.verify.equality.functions import (
    DERIVATIVES,
    MEANS,
    SPECIAL,
    absolute,
    analytic,
    general_power,
    rational_power,
    unknown,
)
from magcli.verify.latex.tree import INFINITY, Expr, function, num

MAX_TERMS = 500


def evaluate(expr: Expr, point: Point) -> Ball:
    """The value of an expression.

    Raises:
        Undecided: it has none, or none that can be told.
        NotReal: the point is real and the value would not be.
    """
    point.meter.steps += 1
    if point.meter.steps > MAX_STEPS:
        raise Undecided("too-large")
    if expr.op == "num":
        return Ball(expr.number)
    rule = _RULES.get(expr.op)
    if rule is None:
        raise Undecided(expr.op)
    try:
        return rule(expr, point)
    except (ZeroDivisionError, OverflowError, ValueError, TypeError) as error:
        raise Undecided("no-value") from error


def _symbol(expr: Expr, point: Point) -> Ball:
    if expr.name not in point.values:
        raise Undecided("symbol")
    return Ball(point.values[expr.name])


def _constant(expr: Expr, point: Point) -> Ball:
    if expr.name == "i":
        return Ball(point.field.complex(0, 1))
    if expr.name == "inf":
        raise Undecided("infinite")
    value = point.field.pi if expr.name == "pi" else point.field.e
    return Ball(value, abs(value) * point.field.epsilon)


def _sum(expr: Expr, point: Point) -> Ball:
    total = evaluate(expr.args[0], point)
    for term in expr.args[1:]:
        total = plus(total, evaluate(term, point), point)
    return total


def _product(expr: Expr, point: Point) -> Ball:
    return times(evaluate(expr.args[0], point), evaluate(expr.args[1], point), point)


def _quotient(expr: Expr, point: Point) -> Ball:
    a, b = (evaluate(arg, point) for arg in expr.args)
    return over(a, b, point)


def _power(expr: Expr, point: Point) -> Ball:
    base, exponent = (evaluate(arg, point) for arg in expr.args)
    n = exponent.value
    if isinstance(n, Fraction) and isinstance(base.value, Fraction) and n.denominator == 1:
        size = base.value.numerator.bit_length() + base.value.denominator.bit_length()
        if abs(n) * size <= MAX_BITS:
            return Ball(base.value ** int(n))
    x = inexact(base, point)
    if isinstance(n, Fraction):
        return rational_power(x, n, point)
    return general_power(x, inexact(exponent, point), point)


def _call(expr: Expr, point: Point) -> Ball:
    if expr.name == "abs":
        return absolute(evaluate(expr.args[0], point))
    arguments = [evaluate(arg, point) for arg in expr.args]
    if all(isinstance(a.value, Fraction) for a in arguments):
        exact = function(expr.name, *(num(a.value) for a in arguments))
        if exact.op == "num":
            return Ball(exact.number)
    if expr.name.startswith("?"):
        return unknown(expr.name, arguments, point)
    special = SPECIAL.get(expr.name)
    if special is not None:
        return special(arguments, point)
    name, inverted, reciprocal = MEANS.get(expr.name, (expr.name, False, False))
    if name not in DERIVATIVES:
        raise Undecided("function")
    x = over(Ball(Fraction(1)), arguments[0], point) if inverted else arguments[0]
    value = analytic(name, inexact(x, point), point)
    return over(Ball(Fraction(1)), value, point) if reciprocal else value


def _degrees(expr: Expr, point: Point) -> Ball:
    """An angle in degrees within an expression; other units have no value here."""
    if expr.name != "degree":
        raise Undecided("unit")
    value = evaluate(expr.args[0], point)
    pi = _constant(Expr("const", name="pi"), point)
    return times(over(value, Ball(Fraction(180)), point), pi, point)


def _percentage(expr: Expr, point: Point) -> Ball:
    return over(evaluate(expr.args[0], point), Ball(Fraction(100)), point)


def _samples(letter: str, body: Expr, point: Point) -> list[Ball]:
    """Terms of an infinite sum at a few places."""
    outer = point.values.get(letter)
    found = []
    for k in (5, 8, 13):
        point.values[letter] = Fraction(k)
        found.append(evaluate(body, point))
    if outer is None:
        point.values.pop(letter)
    else:
        point.values[letter] = outer
    return found


def _series(expr: Expr, point: Point) -> Ball:
    """A finite sum or product, term by term; an infinite one is an unknown function of its terms."""
    letter, low, high, body = expr.args
    if high == INFINITY:
        return unknown(f"?{expr.op}", [evaluate(low, point), *_samples(letter.name, body, point)], point)
    first, last = evaluate(low, point).value, evaluate(high, point).value
    if not (isinstance(first, Fraction) and isinstance(last, Fraction)) or first.denominator * last.denominator != 1:
        raise Undecided("bounds")
    if last - first > MAX_TERMS:
        raise Undecided("too-large")
    total = Ball(Fraction(0 if expr.op == "sum" else 1))
    outer = point.values.get(letter.name)
    for k in range(int(first), int(last) + 1):
        point.values[letter.name] = Fraction(k)
        term = evaluate(body, point)
        total = plus(total, term, point) if expr.op == "sum" else times(total, term, point)
    if outer is None:
        point.values.pop(letter.name, None)
    else:
        point.values[letter.name] = outer
    return total


_RULES: dict[str, Callable[[Expr, Point], Ball]] = {
    "sym": _symbol,
    "const": _constant,
    "+": _sum,
    "*": _product,
    "/": _quotient,
    "^": _power,
    "f": _call,
    "unit": _degrees,
    "percent": _percentage,
    "sum": _series,
    "prod": _series,
}
