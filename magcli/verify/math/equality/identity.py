"""Whether two expressions are equal: exactly if both are rational, else by their values at fixed points.

They differ if they differ at one point by more than rounding can explain. They are equal if they agree wherever both
have a value: exactly, or to 30 digits of 50, at ``MIN_AGREEMENTS`` points or more. Symbols are real (without ``i``), of
either sign: ``\\sqrt{x^2}`` is not ``x``, and ``\\ln|x|`` is not ``\\ln x``, as an absolute value on one side alone
shows where the other has no value. Symbols that count (bounds of sums, factorials, exponents of negative numbers) are
positive integers.
"""

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import count
from random import Random
from typing import Any

from magcli.verify.loading import loading
from magcli.verify.math.equality.evaluate import (
    FLOAT_FIELD,
    Ball,
    Field,
    NotReal,
    Point,
    Undecided,
    evaluate,
    is_real,
    mp_field,
)
from magcli.verify.math.latex.answers import parse_answer
from magcli.verify.math.latex.tree import INFINITY, Expr, Op, is_whole_number

NUM_POINTS = 8
MAX_POINTS = 20
"""As many if fewer than ``MIN_AGREEMENTS`` have a value, as those of ``\\sqrt{x-2}``."""
MIN_AGREEMENTS = 3
BITS = (170, 700)
AGREEMENT = Fraction(1, 10**30)
MIN_DIGITS = 10
"""Significant digits from which a decimal equals a value that it rounds."""
MIN_DECIMALS, MAX_DECIMALS = 6, 59
"""Digits after the point of a decimal that may round a value."""
_STEPS = ("floor", "ceil")
_COUNTING = frozenset(("factorial", "binom", "perm", "gcd", "lcm", "mod"))


def same_value(a: Expr, b: Expr) -> bool | None:
    """Whether two expressions are equal; None if no point decides."""
    if a == b:
        return True
    if a.op == b.op == "num":
        return a.number == b.number or rounds_to(a, b) or rounds_to(b, a)
    if contains(a, "inf") or contains(b, "inf"):
        return False
    names = symbols(a) | symbols(b)
    agree = _agreements(a, b, names)
    if agree is False and not names:
        # 3.14159265359 for pi
        return rounds_to(a, b) or rounds_to(b, a)
    return agree


def are_equal(a: Expr, b: Expr) -> bool:
    """Whether two expressions are surely equal."""
    return same_value(a, b) is True


def _agreements(a: Expr, b: Expr, names: frozenset[str]) -> bool | None:
    """Whether two expressions agree at enough points; None if too few of them decide."""
    real = bool(names) and not (contains(a, "i") or contains(b, "i"))
    abs_on_one_side = contains(a, "abs") != contains(b, "abs")
    # Steps agree at most points also if they differ, so that few points of their own do not decide.
    steps = any(contains(side, name) for side in (a, b) for name in _STEPS)
    points = NUM_POINTS if steps else MAX_POINTS
    counting = _counting(a) | _counting(b)
    agreed = 0
    for index, values in enumerate(sample_points(names, counting, points)):
        if index >= NUM_POINTS and agreed >= MIN_AGREEMENTS:
            break
        agrees = _agree(a, b, values, real=real, thorough=agreed < MIN_AGREEMENTS)
        if agrees is False:
            return False
        if agrees is None and abs_on_one_side and _ends(a, b, values):
            return False
        if agrees:
            agreed += 1
    # An expression without symbols has one point.
    needed = MIN_AGREEMENTS if names else 1
    return True if agreed >= needed else None


def _ends(a: Expr, b: Expr, values: Mapping[str, Fraction]) -> bool:
    """Whether exactly one of two expressions is real at a point."""
    x, y = (value_at(side, FLOAT_FIELD, values, real=True) for side in (a, b))
    return (x is None) != (y is None)


def _agree(a: Expr, b: Expr, values: Mapping[str, Fraction], *, real: bool, thorough: bool) -> bool | None:
    """Whether two expressions agree at a point; None if one has no value there, or both are not real."""
    quick = _compare(a, b, FLOAT_FIELD, values, real=real)
    if quick is not None or not thorough:
        return quick
    # Floats can separate two values, but only many digits can confirm that they agree.
    for bits in BITS:
        agrees = _compare(a, b, mp_field(bits), values, real=real)
        if agrees is not None:
            return agrees
    return None


def _compare(a: Expr, b: Expr, field: Field, values: Mapping[str, Fraction], *, real: bool) -> bool | None:
    x, y = (value_at(side, field, values, real=real) for side in (a, b))
    if x in (None, "none") or y in (None, "none"):
        return None
    return agree_within_error(x, y, field)


def value_at(expr: Expr, field: Field, values: Mapping[str, Fraction], *, real: bool) -> Any:
    """The value; None if it is not real, ``none`` if it has none."""
    try:
        return evaluate(expr, Point(field, values, real=real))
    except NotReal:
        return None
    except Undecided:
        return "none"


def agree_within_error(x: Ball, y: Ball, field: Field) -> bool | None:
    """Whether two values are equal; None if their errors leave it open."""
    if isinstance(x.value, Fraction) and isinstance(y.value, Fraction):
        return x.value == y.value
    try:
        a, b = _in_field(x, field), _in_field(y, field)
    except OverflowError:
        return None
    size = max(abs(a), abs(b))
    error = x.error + y.error + size * field.epsilon
    # The factor is a margin, as the bounds are rounded themselves.
    if abs(a - b) > 4 * error:
        return False
    if field is FLOAT_FIELD:
        return None
    limit = field.real(AGREEMENT)
    small_relative_error = error <= limit * size
    both_zero = size <= error <= limit
    return True if small_relative_error or both_zero else None


def _in_field(ball: Ball, field: Field) -> Any:
    return field.real(ball.value) if isinstance(ball.value, Fraction) else ball.value


def rounds_to(decimal: Expr, exact: Expr) -> bool:
    """Whether a decimal of at least ``MIN_DIGITS`` digits is a non-terminating exact value rounded."""
    decimals = _num_decimals(decimal)
    if not decimals or _num_decimals(exact) or is_whole_number(exact):
        return False
    field = mp_field(BITS[0])
    ball = value_at(exact, field, {}, real=False)
    if ball in (None, "none") or not is_real(ball.value):
        return False
    # One unit of the last digit to either side, as the decimal may also be truncated.
    unit = Fraction(1, 10**decimals)
    low, high = (field.real(decimal.number + gap) for gap in (-unit, unit))
    return bool(low < _in_field(ball, field) < high)


def _num_decimals(expr: Expr) -> int:
    """The number of decimals of a long decimal; 0 for other numbers."""
    if expr.op != "num" or is_whole_number(expr):
        return 0
    bottom = expr.number.denominator
    # A decimal with n digits after the point has a denominator that divides 10^n.
    if 10**MAX_DECIMALS % bottom:
        return 0
    decimals = next(n for n in count(1) if 10**n % bottom == 0)
    if decimals < MIN_DECIMALS:
        return 0
    significant_digits = str(abs(expr.number.numerator) * 10**decimals // bottom)
    return decimals if len(significant_digits) >= MIN_DIGITS else 0


@lru_cache(maxsize=4096)
def symbols(expr: Expr) -> frozenset[str]:
    """Names of the symbols that an expression depends on."""
    if expr.op == "sym":
        return frozenset((expr.name,))
    if expr.op in ("num", "const"):
        return frozenset()
    names = frozenset().union(*map(symbols, expr.args))
    # The index of a sum is bound in it.
    return names - {expr.args[0].name} if expr.op in ("sum", "prod") else names


def contains(expr: Expr, constant: str) -> bool:
    """Whether a constant or function of this name occurs in an expression."""
    if expr.op in ("const", "f") and expr.name == constant:
        return True
    args = expr.args
    if expr.op in ("sum", "prod"):
        _, low, _, body = args
        args = (low, body)  # an infinite sum may be finite
    return any(contains(arg, constant) for arg in args)


def _counting(expr: Expr) -> frozenset[str]:
    """Symbols that are positive integers."""
    names = frozenset().union(*map(_counting, expr.args))
    if expr.op in ("sum", "prod"):
        _, low, high, _ = expr.args
        return names | symbols(low) | symbols(high)
    if expr.op == "f" and expr.name in _COUNTING:
        return names | symbols(expr)
    if expr.op == "^":
        # (-1)^n is meant for whole n, where it is a sign.
        base, exponent = expr.args
        if base.op == "num" and base.number < 0:
            return names | symbols(exponent)
    return names


def sample_points(
    names: frozenset[str], counting: frozenset[str], points: int = NUM_POINTS
) -> Iterator[dict[str, Fraction]]:
    """Fixed points for the symbols: positive, negative, mixed signs, small, large; one empty point without symbols."""
    ordered = sorted(names)
    for index in range(points if names else 1):
        # A seed for each point: the points of as many letters are always the same.
        random = Random(index * 1_000 + len(names))
        yield {name: _coordinate(random, index, counting=name in counting) for name in ordered}


def _coordinate(random: Random, index: int, *, counting: bool) -> Fraction:
    if counting:
        # Later points are larger, so that they differ from the first ones.
        return Fraction(random.randint(2 + index, 9 + index))
    # The denominator decides the size, as all numerators have three digits; primes hardly occur in answers.
    usual = 331 if index < NUM_POINTS else 53
    denominator = {3: 1009, 4: 1013, 6: 83}.get(index, usual)
    size = Fraction(random.randint(101, 997), denominator)
    if index >= NUM_POINTS:
        # Larger ones, mostly positive, where roots and logarithms have values.
        return -size if index % 3 == 0 else size
    negative = index == 1 or (index in (2, 5, 7) and random.random() < 0.5)
    return -size if negative else size


MAX_NODES = 40
"""Maximum size of a series that is summed."""
_FUNCTIONS = frozenset((
    "abs", "arctan", "binom", "cos", "cosh", "cot", "coth", "csc", "exp", "factorial", "ln", "sec", "sin", "sinh",
    "tan", "tanh",
))  # fmt: skip
_SYMPY_NAMES = {"abs": "Abs", "arctan": "atan", "binom": "binomial", "ln": "log"}


class Unsupported(Exception):
    """An expression without a counterpart in SymPy."""


def is_series(expr: Expr) -> bool:
    """Whether an expression contains an infinite sum or product."""
    if expr.op in ("sum", "prod") and expr.args[2] == INFINITY:
        return True
    return any(map(is_series, expr.args))


@lru_cache(maxsize=1024)
def closed_form(expr: Expr) -> Expr | None:
    """An expression with its series summed; None if it has none, is too large, or SymPy finds no closed form.

    A power series is summed where it converges.
    """
    if not is_series(expr) or _size(expr) > MAX_NODES:
        return None
    with loading():
        import sympy
    # RuntimeError covers both NotImplementedError and RecursionError.
    try:
        summed = _to_sympy(expr, sympy).doit()
    except (Unsupported, RuntimeError, ValueError, TypeError, AttributeError):
        return None
    if isinstance(summed, sympy.Piecewise):
        # The first case is that of convergence.
        summed = summed.args[0][0]
    if summed.has(sympy.Sum, sympy.Product, sympy.Integral, sympy.oo, sympy.zoo, sympy.nan):
        return None
    # Back through LaTeX, so that the sum is read as if it were an answer.
    parsed = parse_answer(sympy.latex(summed, ln_notation=True, mul_symbol="dot"))
    return None if parsed.op == "raw" else parsed


def _size(expr: Expr) -> int:
    return 1 + sum(map(_size, expr.args))


def _to_sympy(expr: Expr, sympy: Any) -> Any:
    """The SymPy expression of a tree. Raises Unsupported if there is none."""
    rule = _SYMPY_RULES.get(expr.op)
    if rule is None:
        raise Unsupported(expr.op)
    return rule(expr, sympy)


def _sympy_call(expr: Expr, sympy: Any) -> Any:
    if expr.name not in _FUNCTIONS:
        raise Unsupported(expr.name)
    name = _SYMPY_NAMES.get(expr.name, expr.name)
    return getattr(sympy, name)(*(_to_sympy(arg, sympy) for arg in expr.args))


def _sympy_series(expr: Expr, sympy: Any) -> Any:
    letter, low, high, body = expr.args
    # SymPy sums more series if it knows that the index is an integer.
    index = sympy.Symbol(letter.name, integer=True)
    term = _to_sympy(body, sympy).subs(sympy.Symbol(letter.name), index)
    kind = sympy.Sum if expr.op == "sum" else sympy.Product
    return kind(term, (index, _to_sympy(low, sympy), _to_sympy(high, sympy)))


def _sympy_operation(name: str) -> Callable[[Expr, Any], Any]:
    """A rule for an operator with any number of operands."""
    return lambda expr, sympy: getattr(sympy, name)(*(_to_sympy(arg, sympy) for arg in expr.args))


_SYMPY_RULES: dict[Op, Callable[[Expr, Any], Any]] = {
    "num": lambda expr, sympy: sympy.Rational(expr.number.numerator, expr.number.denominator),
    "sym": lambda expr, sympy: sympy.Symbol(expr.name),
    "const": lambda expr, sympy: {"i": sympy.I, "pi": sympy.pi, "e": sympy.E, "inf": sympy.oo}[expr.name],
    "+": _sympy_operation("Add"),
    "*": _sympy_operation("Mul"),
    "/": lambda expr, sympy: _to_sympy(expr.args[0], sympy) / _to_sympy(expr.args[1], sympy),
    "^": _sympy_operation("Pow"),
    "f": _sympy_call,
    "sum": _sympy_series,
    "prod": _sympy_series,
}
