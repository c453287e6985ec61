"""Values of expressions at points, with bounds on their errors (ball arithmetic).

Values are exact fractions as long as possible, then floats (to separate values quickly) or mpmath numbers of any
precision (to confirm that two agree). Every operation propagates absolute errors, so a difference that rounding could
explain never counts as one, and neither does agreement beyond the precision.
"""

import cmath
import math
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from fractions import Fraction
from functools import cache, partial
from itertools import count
from typing import Any, NamedTuple

from magcli.verify.math.latex.tree import INFINITY, PI, Expr, Op, function, num, num_bits

MAX_STEPS = 30_000
"""Evaluation steps of one comparison, over all its parts."""
MAX_TERMS = 500
"""Longer sums and products have no value."""
MAX_LOG = 1e5
"""Larger powers of e are not evaluated."""
MAX_BITS = 20_000
"""Maximum size of an exact value."""


class Undecided(Exception):
    """The value does not exist, is too large, or cannot be computed to this precision."""


class NotReal(Exception):
    """The value of a real expression is not real."""


class Ball(NamedTuple):
    """A value and a bound on its absolute error; fractions are exact."""

    value: Any
    error: Any = 0


class Field(NamedTuple):
    """The arithmetic of values other than fractions: functions, and the rounding unit."""

    real: Callable[[Fraction], Any]
    complex: Callable[[Any, Any], Any]
    functions: Mapping[str, Callable[[Any], Any]]
    epsilon: Any
    pi: Any
    e: Any


METER: ContextVar[Iterator[int] | None] = ContextVar("meter", default=None)
"""Counts the evaluation steps of the current comparison, over all its parts; without it, every point has its own."""


class Point:
    """Where to evaluate: values of the symbols, the field, and whether values must be real."""

    __slots__ = ("field", "meter", "real", "values")

    def __init__(self, field: Field, values: Mapping[str, Fraction], *, real: bool) -> None:
        self.field, self.real = field, real
        self.values = dict(values)
        self.meter = METER.get() or count(1)


_PLAIN = ("exp", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh")


def _either(name: str) -> Callable[[Any], Any]:
    """The real function, or the complex one for arguments that are complex or outside the real domain."""
    real, general = getattr(math, name), getattr(cmath, name)

    def apply(x: Any) -> Any:
        if isinstance(x, complex):
            return general(x)
        try:
            return real(x)
        except ValueError:
            return general(complex(x))

    return apply


_FLOAT_FUNCTIONS = {name: _either(name) for name in _PLAIN} | {"gamma": math.gamma}
# The epsilon is four times the rounding unit, as functions of the C library may be off by more than that.
FLOAT_FIELD = Field(float, complex, _FLOAT_FUNCTIONS, 2.0**-51, math.pi, math.e)


@cache
def mp_field(bits: int) -> Field:
    """mpmath numbers of the given precision (imported on first use)."""
    import mpmath

    # A context of its own, as the precision of the global one may be changed by others.
    mp = mpmath.mp.clone()
    mp.prec = bits

    def real(value: Fraction) -> Any:
        return mp.mpf(value.numerator) / value.denominator

    functions = {name: getattr(mp, name) for name in (*_PLAIN, "gamma")}
    # The signs make numbers of the constants, which else are evaluated at each use.
    return Field(real, mp.mpc, functions, mp.mpf(2) ** (3 - bits), +mp.pi, +mp.e)


def to_field(ball: Ball, point: Point) -> Ball:
    """The value in the point's field."""
    if not isinstance(ball.value, Fraction):
        return ball
    value = point.field.real(ball.value)
    return Ball(value, abs(value) * point.field.epsilon)


def rounded(value: Any, error: Any, point: Point) -> Ball:
    """A result with its rounding error; real if its imaginary part is within the error."""
    error = error + abs(value) * point.field.epsilon
    if not is_real(value) and abs(value.imag) <= error:
        value = value.real
    # Only NaN differs from itself, in either field.
    if value != value or abs(value) == math.inf:
        raise Undecided("no-value")
    return Ball(value, error)


def are_exact(a: Ball, b: Ball) -> bool:
    """Whether two values are fractions, with which operations have no error."""
    return isinstance(a.value, Fraction) and isinstance(b.value, Fraction)


def plus(a: Ball, b: Ball, point: Point) -> Ball:
    """The sum; raises Undecided if the smaller term is lost in rounding."""
    if are_exact(a, b):
        return Ball(check_size(a.value + b.value))
    x, y = to_field(a, point), to_field(b, point)
    small, large = (x, y) if abs(x.value) < abs(y.value) else (y, x)
    size = abs(small.value)
    # Beyond this ratio more than half of the digits of the smaller term would be lost.
    lost_below = abs(large.value) * point.field.epsilon**0.5 * 1e-3
    # A term within its own error may be 0, of which nothing is lost.
    if small.error < size < lost_below:
        raise Undecided("absorbed")
    return rounded(x.value + y.value, x.error + y.error, point)


def times(a: Ball, b: Ball, point: Point) -> Ball:
    """The product."""
    if are_exact(a, b):
        return Ball(check_size(a.value * b.value))
    x, y = to_field(a, point), to_field(b, point)
    # From (x + dx)(y + dy) - xy, with the errors dx and dy.
    error = abs(x.value) * y.error + abs(y.value) * x.error + x.error * y.error
    return rounded(x.value * y.value, error, point)


def divide(a: Ball, b: Ball, point: Point) -> Ball:
    """The quotient; raises Undecided if the divisor may be zero."""
    if are_exact(a, b):
        return Ball(check_size(a.value / b.value))
    x, y = to_field(a, point), to_field(b, point)
    # Twice, so that the smallest divisor below is at least half of this one.
    if abs(y.value) <= 2 * y.error:
        raise Undecided("no-value")
    value = x.value / y.value
    # The divisor may be as small as this.
    smallest_divisor = abs(y.value) - y.error
    error = (x.error + abs(value) * y.error) / smallest_divisor
    return rounded(value, error, point)


def check_size(value: Fraction) -> Fraction:
    """The fraction; raises Undecided beyond ``MAX_BITS``."""
    if num_bits(value) > MAX_BITS:
        raise Undecided("too-large")
    return value


def is_real(value: Any) -> bool:
    """Whether a value is real."""
    if isinstance(value, (float, Fraction)):
        return True
    is_mpmath_complex = hasattr(value, "_mpc_")
    return not is_mpmath_complex and not isinstance(value, complex)


def evaluate(expr: Expr, point: Point) -> Ball:
    """The value of an expression.

    Raises:
        Undecided: it does not exist or cannot be computed.
        NotReal: the point is real and the value is not.
    """
    if next(point.meter) > MAX_STEPS:
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


def _power(expr: Expr, point: Point) -> Ball:
    base, exponent = (evaluate(arg, point) for arg in expr.args)
    n = exponent.value
    if are_exact(base, exponent) and n.denominator == 1:
        bits = num_bits(base.value)
        if abs(n) * bits <= MAX_BITS:
            return Ball(base.value ** int(n))
    x = to_field(base, point)
    if isinstance(n, Fraction):
        return rational_power(x, n, point)
    return general_power(x, to_field(exponent, point), point)


def _call(expr: Expr, point: Point) -> Ball:
    if expr.name == "abs":
        x = evaluate(expr.args[0], point)
        return Ball(abs(x.value), x.error)
    arguments = [evaluate(arg, point) for arg in expr.args]
    # gcd and floor of letters are not evaluated when the tree is built.
    if all(isinstance(a.value, Fraction) for a in arguments):
        exact = function(expr.name, *(num(a.value) for a in arguments))
        if exact.op == "num":
            return Ball(exact.number)
    if expr.name.startswith("?"):
        return uninterpreted(expr.name, arguments, point)
    special = SPECIAL.get(expr.name)
    if special is not None:
        return special(arguments, point)
    reciprocal, of_reciprocal = _RECIPROCALS.get(expr.name), _OF_RECIPROCALS.get(expr.name)
    name = reciprocal or of_reciprocal or _SYNONYMS.get(expr.name, expr.name)
    if name not in DERIVATIVES:
        raise Undecided("function")
    one = Ball(Fraction(1))
    argument = divide(one, arguments[0], point) if of_reciprocal else arguments[0]
    value = analytic(name, to_field(argument, point), point)
    return divide(one, value, point) if reciprocal else value


def _degrees(expr: Expr, point: Point) -> Ball:
    """An angle in degrees within an expression; other units have no value here."""
    if expr.name != "degree":
        raise Undecided("unit")
    turned = divide(evaluate(expr.args[0], point), Ball(Fraction(180)), point)
    return times(turned, _constant(PI, point), point)


def _series(expr: Expr, point: Point) -> Ball:
    """A finite sum or product, term by term; an infinite one is an uninterpreted function of a few of its terms."""
    letter, low, high, body = expr.args
    # Two infinite series with these terms and the lower bound in common are taken for one.
    if high == INFINITY:
        samples = [_term(body, letter.name, k, point) for k in (5, 8, 13)]
        return uninterpreted(f"?{expr.op}", [evaluate(low, point), *samples], point)
    first, last = evaluate(low, point).value, evaluate(high, point).value
    if not all(isinstance(bound, Fraction) and bound.denominator == 1 for bound in (first, last)):
        raise Undecided("bounds")
    if last - first > MAX_TERMS:
        raise Undecided("too-large")
    is_sum = expr.op == "sum"
    combine = plus if is_sum else times
    total = Ball(Fraction(0 if is_sum else 1))
    for k in range(int(first), int(last) + 1):
        total = combine(total, _term(body, letter.name, k, point), point)
    return total


def _term(body: Expr, letter: str, k: int, point: Point) -> Ball:
    """The value of a term; the letter may be that of a sum around this one, whose value is restored."""
    outer = point.values.get(letter)
    point.values[letter] = Fraction(k)
    term = evaluate(body, point)
    if outer is None:
        del point.values[letter]
    else:
        point.values[letter] = outer
    return term


_RULES: dict[Op, Callable[[Expr, Point], Ball]] = {
    "sym": _symbol,
    "const": _constant,
    "+": _sum,
    "*": lambda expr, point: times(evaluate(expr.args[0], point), evaluate(expr.args[1], point), point),
    "/": lambda expr, point: divide(evaluate(expr.args[0], point), evaluate(expr.args[1], point), point),
    "^": _power,
    "f": _call,
    "unit": _degrees,
    "percent": lambda expr, point: divide(evaluate(expr.args[0], point), Ball(Fraction(100)), point),
    "sum": _series,
    "prod": _series,
}


def rational_power(x: Ball, n: Fraction, point: Point) -> Ball:
    """A rational power; odd roots of negative numbers are real, even ones are not."""
    may_be_zero = abs(x.value) <= x.error
    if may_be_zero:
        if n <= 0:
            raise Undecided("no-value")
        return Ball(x.value * 0, (abs(x.value) + x.error) ** float(n))
    if n.denominator == 1:
        if abs(n) * abs(_log_size(x.value)) > MAX_LOG:
            raise Undecided("too-large")
        value = x.value ** int(n)
        # That of the base times n, doubled for the terms of higher order.
        relative_error = 2 * abs(int(n)) * (x.error / abs(x.value) + point.field.epsilon)
        return rounded(value, abs(value) * relative_error, point)
    is_negative = is_real(x.value) and x.value < 0
    has_even_root = n.denominator % 2 == 0
    if is_negative and has_even_root and point.real:
        raise NotReal
    exponent = to_field(Ball(n), point)
    if not is_negative:
        return general_power(x, exponent, point)
    size = general_power(Ball(-x.value, x.error), exponent, point)
    if has_even_root:
        # The principal value of (-|x|)^n is |x|^n e^(i pi n).
        field = point.field
        turn = field.functions["exp"](field.complex(0, 1) * field.pi * field.real(n))
        return times(size, rounded(turn, field.epsilon * 8, point), point)
    # An odd root is negative, and so is its odd power.
    return size if n.numerator % 2 == 0 else Ball(-size.value, size.error)


def general_power(x: Ball, n: Ball, point: Point) -> Ball:
    """``exp(n log x)``."""
    if abs(x.value) <= x.error:
        raise Undecided("no-value")
    if point.real and x.value < 0:
        raise NotReal
    functions = point.field.functions
    logarithm = functions["log"](x.value)
    log_of_power = n.value * logarithm
    if abs(log_of_power) > MAX_LOG:
        raise Undecided("too-large")
    value = functions["exp"](log_of_power)
    # The error of n log x is the relative error of the power, here doubled for the terms of higher order.
    size = abs(n.value)
    error_by_base = size * x.error / abs(x.value)
    error_by_exponent = abs(logarithm) * (n.error + size * point.field.epsilon)
    relative_error = 2 * (error_by_base + error_by_exponent)
    return rounded(value, abs(value) * relative_error, point)


def _log_size(value: Any) -> float:
    size = abs(value)
    return math.log(size) if isinstance(value, (float, complex)) else float(size.context.log(size))


def _slope_of_sine(x: Any, _: Any) -> Any:
    """At most 1 on the real line; with the imaginary part it grows as e to its power."""
    return 1 if is_real(x) else 1 + abs(x) + 9 ** abs(x.imag)


DERIVATIVES: dict[str, Callable[[Any, Any], Any]] = {
    "exp": lambda _, v: abs(v),
    "log": lambda x, _: 1 / abs(x),
    **dict.fromkeys(("sin", "cos"), _slope_of_sine),
    **dict.fromkeys(("tan", "tanh"), lambda _, v: 1 + abs(v) ** 2),
    **dict.fromkeys(("sinh", "cosh"), lambda _, v: 1 + abs(v)),
    **dict.fromkeys(("asin", "acos", "acosh"), lambda x, _: 1 / abs(1 - x * x) ** 0.5),
    "asinh": lambda x, _: 1 / abs(1 + x * x) ** 0.5,
    "atan": lambda x, _: 1 / abs(1 + x * x),
    "atanh": lambda x, _: 1 / abs(1 - x * x),
}
"""Of the argument ``x`` and the value ``v``: a bound on the size of the derivative."""
# The other functions in terms of these: sec x = 1/cos x, arcsec x = acos(1/x).
_RECIPROCALS = {"sec": "cos", "csc": "sin", "cot": "tan", "sech": "cosh", "csch": "sinh", "coth": "tanh"}
_OF_RECIPROCALS = {"arcsec": "acos", "arccsc": "asin", "arccot": "atan"}
_SYNONYMS = {"ln": "log"} | {f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")}


def analytic(name: str, x: Ball, point: Point) -> Ball:
    """A differentiable function; the size of its derivative bounds the growth of the error.

    Raises:
        NotReal: the point is real and the argument outside the real domain.
        Undecided: the value is too large.
    """
    if point.real:
        if name == "log" and x.value < 0:
            raise NotReal
        if name in ("asin", "acos") and abs(x.value) > 1:
            raise NotReal
    if name == "exp" and abs(x.value) > MAX_LOG:
        raise Undecided("too-large")
    if name in ("sinh", "cosh") and abs(x.value) > 1000:
        raise Undecided("too-large")
    value = point.field.functions[name](x.value)
    try:
        slope = DERIVATIVES[name](x.value, value)
    except ZeroDivisionError:
        # At an end of their domain, where the slope is infinite, asin, acos and acosh behave as square roots.
        return rounded(value, x.error**0.5 * 4, point)
    # With margins, as the slope is that at one point, and functions are rounded less well than operations.
    error_by_argument = 2 * slope * x.error
    rounding_error = 4 * abs(value) * point.field.epsilon
    return rounded(value, error_by_argument + rounding_error, point)


def _integer_part(name: str, arguments: list[Ball], point: Point) -> Ball:
    x = to_field(arguments[0], point)
    low, high = (Fraction(_floor(x.value + gap)) for gap in (-x.error, x.error))
    # An integer within the error leaves the value open; without one, ceil is floor + 1.
    if low != high:
        raise Undecided("absorbed")
    return Ball(low if name == "floor" else low + 1)


def _floor(value: Any) -> int:
    return math.floor(value) if isinstance(value, float) else int(value.context.floor(value))


def _extreme(name: str, arguments: list[Ball], point: Point) -> Ball:
    balls = [to_field(argument, point) for argument in arguments]
    choose = max if name == "max" else min
    return choose(balls, key=lambda ball: ball.value)


def _factorial(arguments: list[Ball], point: Point) -> Ball:
    x = to_field(arguments[0], point)
    if not is_real(x.value) or not -20 < x.value < 200:
        raise Undecided("too-large")
    value = point.field.functions["gamma"](x.value + 1)
    # The logarithmic derivative of gamma is below 6 for these arguments, except near its poles.
    relative_error = x.error * 100 + point.field.epsilon * 100
    return rounded(value, abs(value) * relative_error, point)


def _binomial(arguments: list[Ball], point: Point) -> Ball:
    """``n! / (k! (n-k)!)``."""
    n, k = arguments
    top = _factorial([n], point)
    bottom = times(_factorial([k], point), _factorial([_difference(n, k, point)], point), point)
    return divide(top, bottom, point)


def _permutations(arguments: list[Ball], point: Point) -> Ball:
    """``n! / (n-k)!``."""
    n, k = arguments
    return divide(_factorial([n], point), _factorial([_difference(n, k, point)], point), point)


def _difference(a: Ball, b: Ball, point: Point) -> Ball:
    return plus(a, times(Ball(Fraction(-1)), b, point), point)


def uninterpreted(name: str, arguments: list[Ball], point: Point) -> Ball:
    """A smooth function that depends on the name: almost never equal for different arguments."""
    # A sum of 4 sin(c x) with a frequency c for each argument; that of the name shifts it.
    shift = sum(map(ord, name)) % 97
    total = Ball(Fraction(shift, 97))
    last_letter = ord(name[-1])
    for at, argument in enumerate(arguments, 2):
        frequency = Ball(Fraction(at * 7 + last_letter, 7))
        phase = times(to_field(argument, point), frequency, point)
        wave = times(analytic("sin", phase, point), Ball(Fraction(4)), point)
        # The factor makes the order of the arguments matter.
        factor = Ball(Fraction(at, 3))
        total = times(plus(total, wave, point), factor, point)
    return total


SPECIAL: dict[str, Callable[[list[Ball], Point], Ball]] = {
    **{name: partial(_integer_part, name) for name in ("floor", "ceil")},
    **{name: partial(_extreme, name) for name in ("max", "min")},
    "factorial": _factorial,
    "binom": _binomial,
    "perm": _permutations,
}
