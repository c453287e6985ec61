"""Closed forms of infinite series and products, by SymPy.

An infinite sum has no value to compare until it is summed. Only ground truths are: the policy must not control how
long SymPy takes.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from magcli.verify.latex.answers import parse_answer
from magcli.verify.latex.tree import INFINITY, Expr
from magcli.verify.loading import loading

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
    try:
        summed = _converted(expr, sympy).doit()
    except (
        Unsupported,
        RuntimeError,
        ValueError,
        TypeError,
        AttributeError,
    ):  # RuntimeError: not implemented, too deep
        return None
    if isinstance(summed, sympy.Piecewise):
        summed = summed.args[0][0]
    if summed.has(sympy.Sum, sympy.Product, sympy.Integral, sympy.oo, sympy.zoo, sympy.nan):
        return None
    found = parse_answer(sympy.latex(summed, ln_notation=True, mul_symbol="dot"))
    return None if found.op == "raw" else found


def _size(expr: Expr) -> int:
    return 1 + sum(map(_size, expr.args))


def _converted(expr: Expr, sympy: Any) -> Any:
    """The SymPy expression of a tree. Raises Unsupported if there is none."""
    rule = _RULES.get(expr.op)
    if rule is None:
        raise Unsupported(expr.op)
    return rule(expr, sympy)


def _number(expr: Expr, sympy: Any) -> Any:
    return sympy.Rational(expr.number.numerator, expr.number.denominator)


def _symbol(expr: Expr, sympy: Any) -> Any:
    return sympy.Symbol(expr.name)


def _constant(expr: Expr, sympy: Any) -> Any:
    return {"i": sympy.I, "pi": sympy.pi, "e": sympy.E, "inf": sympy.oo}[expr.name]


def _call(expr: Expr, sympy: Any) -> Any:
    if expr.name not in _FUNCTIONS:
        raise Unsupported(expr.name)
    name = _SYMPY_NAMES.get(expr.name, expr.name)
    return getattr(sympy, name)(*(_converted(arg, sympy) for arg in expr.args))


def _series(expr: Expr, sympy: Any) -> Any:
    letter, low, high, body = expr.args
    index = sympy.Symbol(letter.name, integer=True)
    term = _converted(body, sympy).subs(sympy.Symbol(letter.name), index)
    kind = sympy.Sum if expr.op == "sum" else sympy.Product
    return kind(term, (index, _converted(low, sympy), _converted(high, sympy)))


def _operation(name: str) -> Callable[[Expr, Any], Any]:
    """A rule for an operator with any number of operands."""
    return lambda expr, sympy: getattr(sympy, name)(*(_converted(arg, sympy) for arg in expr.args))


def _quotient(expr: Expr, sympy: Any) -> Any:
    top, bottom = (_converted(arg, sympy) for arg in expr.args)
    return top / bottom


_RULES: dict[str, Callable[[Expr, Any], Any]] = {
    "num": _number,
    "sym": _symbol,
    "const": _constant,
    "+": _operation("Add"),
    "*": _operation("Mul"),
    "/": _quotient,
    "^": _operation("Pow"),
    "f": _call,
    "sum": _series,
    "prod": _series,
}
