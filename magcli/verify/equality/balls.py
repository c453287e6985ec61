"""Numbers with a bound on their error, and the points at which expressions are evaluated.

Values are exact fractions as long as they can be; then floats (to separate values quickly), or mpmath numbers of any
precision (to say that two agree). Every operation carries the absolute error of its operands along, so that a
difference that rounding could have made never counts as one, nor does an agreement beyond the precision.
"""

import cmath
import math
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

MAX_STEPS = 30_000
"""Of one comparison of answers, all its parts together."""
MAX_BITS = 20_000


class Undecided(Exception):
    """The value does not exist, is too large, or cannot be computed to this precision."""


class NotReal(Exception):
    """A real expression left the real numbers."""


class Ball(NamedTuple):
    """A value and the largest error it can have; a fraction is exact."""

    value: Any
    error: Any = 0


class Field(NamedTuple):
    """The arithmetic that is used where a value is not a fraction: functions of numbers, and the rounding unit."""

    real: Callable[[Fraction], Any]
    complex: Callable[[Any, Any], Any]
    functions: Mapping[str, Callable[[Any], Any]]
    epsilon: Any
    pi: Any
    e: Any


class Meter:
    """Counts the steps of one comparison, in all its parts."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps = 0


METER: ContextVar[Meter | None] = ContextVar("meter", default=None)
"""The meter of the comparison that is under way; every point has its own where there is none."""


class Point:
    """Where to evaluate: values of the symbols, the field, whether only real numbers count."""

    __slots__ = ("field", "meter", "real", "values")

    def __init__(self, field: Field, values: Mapping[str, Fraction], *, real: bool) -> None:
        self.field, self.values, self.real, self.meter = field, dict(values), real, METER.get() or Meter()


_COMPLEX_NAMES = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
}
_PLAIN = ("exp", "log", "sin", "cos", "tan", "sinh", "cosh", "tanh", *_COMPLEX_NAMES)


def _either(name: str) -> Callable[[Any], Any]:
    """The real function, or the complex one where the argument is complex or outside the real domain."""
    real, general = getattr(math, name), getattr(cmath, name)

    def apply(x: Any) -> Any:
        if isinstance(x, complex):
            return general(x)
        try:
            return real(x)
        except ValueError:
            return general(complex(x))

    return apply


FLOAT_FIELD = Field(
    float, complex, {name: _either(name) for name in _PLAIN} | {"gamma": math.gamma}, 2.0**-51, math.pi, math.e
)


@cache
def mp_field(bits: int) -> Field:
    """Numbers of so many bits, by mpmath (imported on first need)."""
    import mpmath

    mp = mpmath.mp.clone() if hasattr(mpmath.mp, "clone") else mpmath.MPContext()
    mp.prec = bits

    def real(value: Fraction) -> Any:
        return mp.mpf(value.numerator) / value.denominator

    functions = {name: getattr(mp, name) for name in _PLAIN} | {"gamma": mp.gamma}
    return Field(real, mp.mpc, functions, mp.mpf(2) ** (3 - bits), +mp.pi, +mp.e)


def to_field(ball: Ball, point: Point) -> Ball:
    """The value as a number of the field."""
    if not isinstance(ball.value, Fraction):
        return ball
    value = point.field.real(ball.value)
    return Ball(value, abs(value) * point.field.epsilon)


def rounded(value: Any, error: Any, point: Point) -> Ball:
    """A result with its rounding error; a complex one within its error of a real number is real."""
    error = error + abs(value) * point.field.epsilon
    if not is_real(value) and abs(value.imag) <= error:
        value = value.real
    if value != value or abs(value) == math.inf:
        raise Undecided("no-value")
    return Ball(value, error)


def plus(a: Ball, b: Ball, point: Point) -> Ball:
    """The sum; Undecided where one term is so small that the digits cannot hold both."""
    if isinstance(a.value, Fraction) and isinstance(b.value, Fraction):
        return Ball(check_size(a.value + b.value))
    x, y = to_field(a, point), to_field(b, point)
    small, large = (x, y) if abs(x.value) < abs(y.value) else (y, x)
    if small.error < abs(small.value) < abs(large.value) * point.field.epsilon**0.5 * 1e-3:
        raise Undecided("absorbed")
    return rounded(x.value + y.value, x.error + y.error, point)


def times(a: Ball, b: Ball, point: Point) -> Ball:
    """The product."""
    if isinstance(a.value, Fraction) and isinstance(b.value, Fraction):
        return Ball(check_size(a.value * b.value))
    x, y = to_field(a, point), to_field(b, point)
    error = abs(x.value) * y.error + abs(y.value) * x.error + x.error * y.error
    return rounded(x.value * y.value, error, point)


def divide(a: Ball, b: Ball, point: Point) -> Ball:
    """The quotient; Undecided where the divisor may be zero."""
    if isinstance(a.value, Fraction) and isinstance(b.value, Fraction):
        return Ball(check_size(a.value / b.value))
    x, y = to_field(a, point), to_field(b, point)
    if abs(y.value) <= 2 * y.error:
        raise Undecided("no-value")
    value = x.value / y.value
    return rounded(value, (x.error + abs(value) * y.error) / (abs(y.value) - y.error), point)


def check_size(value: Fraction) -> Fraction:
    """A fraction within ``MAX_BITS``, or Undecided."""
    if value.numerator.bit_length() + value.denominator.bit_length() > MAX_BITS:
        raise Undecided("too-large")
    return value


def is_real(value: Any) -> bool:
    """Whether a value is no complex number."""
    return isinstance(value, (float, Fraction)) or (not hasattr(value, "_mpc_") and not isinstance(value, complex))
