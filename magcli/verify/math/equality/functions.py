"""Answers that stand for many functions: antiderivatives up to a constant, and orders of growth."""

from magcli.verify.math.equality.equations import constant_difference, constant_ratio, is_assignment, same_name
from magcli.verify.math.equality.identity import contains, symbols
from magcli.verify.math.equality.parameters import is_constant_name
from magcli.verify.math.latex.tree import MINUS_ONE, Expr, add, sym

_COEFFICIENTS = frozenset("abdABD")
"""Letters next to which ``c`` is a coefficient rather than a constant of integration."""
_GROWTH = frozenset(sym(name) for name in ("O", r"\Theta", r"\Omega", "o", r"\omega"))


def same_up_to_constant(a: Expr, b: Expr) -> bool:
    r"""Whether two answers with a constant of integration have the same derivative: ``\sin^2 x+C``, ``-\cos^2 x+C``."""
    if is_assignment(a) and is_assignment(b) and same_name(a, b) is None:
        return False
    first, second = _without_constant(_assigned_value(a)), _without_constant(_assigned_value(b))
    if first is None or second is None:
        return False
    # ln|x| and ln x agree where both have a value, but are two answers.
    return contains(first, "abs") == contains(second, "abs") and constant_difference(first, second)


def _assigned_value(expr: Expr) -> Expr:
    """The value of ``f(x)=..``; anything else unchanged."""
    return expr.args[1] if is_assignment(expr) else expr


def _without_constant(expr: Expr) -> Expr | None:
    """A sum without the constant of integration at its end; None without one."""
    if expr.op != "+" or not _is_integration_constant(expr.args[-1]):
        return None
    rest = list(expr.args[:-1])
    others = frozenset().union(*map(symbols, rest))
    if others & _COEFFICIENTS or any(map(is_constant_name, others)):
        return None
    return add(rest)


def _is_integration_constant(term: Expr) -> bool:
    letter = term.args[1] if term.op == "*" and term.args[0] == MINUS_ONE else term
    return letter.op == "sym" and is_constant_name(letter.name)


def same_growth(a: Expr, b: Expr) -> bool:
    r"""Whether two answers are one order of growth: ``O(\log n)`` is ``O(\log_2 n)``, as a constant factor does not
    count.
    """
    first, second = _assigned_value(a), _assigned_value(b)
    # O(n) is parsed as a product of two letters.
    if first.op != "*" or second.op != "*":
        return False
    (order, bound), (other_order, other_bound) = first.args, second.args
    if order not in _GROWTH or order != other_order:
        return False
    if any(size.op == "sym" and size.name.isupper() for size in (bound, other_bound)):
        # OA is a segment.
        return False
    ratio = constant_ratio(bound, other_bound)
    return ratio is not None and ratio > 0
