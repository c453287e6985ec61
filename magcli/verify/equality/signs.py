"""Answers that stand for several: ``\\pm`` as two values, ``(x,y)=(1,2)`` as two assignments."""

from functools import lru_cache

from magcli.verify.latex.tree import Expr, add, div, function, mul, neg, power


@lru_cache(maxsize=4096)
def opened(expr: Expr) -> Expr:
    """The answer with every ``\\pm`` written out as a list of its two readings (all signs change together)."""
    if expr.op == "family":
        return expr
    if expr.op == "builder" and any(map(_has_sign, expr.args[1:])):
        return expr._replace(args=(expr.args[0], *(part for arg in expr.args[1:] for part in _condition(arg))))
    if expr.op in ("list", "set"):
        return expr._replace(args=tuple(value for part in expr.args for value in _readings(part)))
    if expr.op == "rel" and expr.name == "=" and _both_tuples(expr):
        pairs = zip(expr.args[0].args, expr.args[1].args, strict=True)
        return Expr("list", tuple(Expr("rel", pair, "=") for pair in pairs))
    readings = _readings(expr)
    return readings[0] if len(readings) == 1 else Expr("list", readings)


def _condition(relation: Expr) -> tuple[Expr, ...]:
    r"""What holds in a set: with ``x \ne \pm 1`` both, with other relations one or the other."""
    readings = _readings(relation)
    return readings if len(readings) == 1 or relation.name == r"\ne" else (Expr("list", readings, "or"),)


def _both_tuples(relation: Expr) -> bool:
    left, right = relation.args
    return (
        left.op == right.op == "tuple" and len(left.args) == len(right.args) and all(a.op == "sym" for a in left.args)
    )


def _readings(expr: Expr) -> tuple[Expr, ...]:
    if not _has_sign(expr):
        return (expr,)
    return tuple(_signed(expr, upper=upper) for upper in (True, False))


@lru_cache(maxsize=4096)
def _has_sign(expr: Expr) -> bool:
    return expr.op == "pm" or any(_has_sign(arg) for arg in expr.args)


def _signed(expr: Expr, *, upper: bool) -> Expr:
    """The reading with the upper or the lower signs, built anew so that numbers fold."""
    if not _has_sign(expr):
        return expr
    args = [_signed(arg, upper=upper) for arg in expr.args]
    if expr.op == "pm":
        return args[0] if (expr.name == "pm") == upper else neg(args[0])
    if expr.op == "+":
        return add(args)
    if expr.op == "f":
        return function(expr.name, *args)
    builder = {"*": mul, "/": div, "^": power}.get(expr.op)
    return builder(args[0], args[1]) if builder else expr._replace(args=tuple(args))
