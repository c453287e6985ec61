"""Whether two equations or inequalities say the same: one is the other times a constant, sides swapped or not."""

from magcli.verify.equality.balls import FLOATS, digits
from magcli.verify.equality.identity import BITS, _near, _value, points, symbols
from magcli.verify.latex.tree import Expr, add, div, neg

MIN_RATIOS = 3
_DIRECTION = {"<": 1, r"\le": 1, ">": -1, r"\ge": -1}
_STRICT = ("<", ">")


def same_equation(a: Expr, b: Expr) -> bool:
    """Whether ``L=R`` is ``c(L'-R')=0`` for a constant c."""
    return constant_ratio(_difference(a.args), _difference(b.args)) is not None


def same_inequality(a: Expr, b: Expr) -> bool:
    """Whether two chains of ``<``, ``\\le``, ``\\ne`` hold together, link by link, one of them perhaps backwards."""
    first, second = _links(a), _links(b)
    if len(first) != len(second):
        return False
    return any(all(_same_link(x, y) for x, y in zip(first, order, strict=True)) for order in (second, second[::-1]))


def _difference(sides: tuple[Expr, ...]) -> Expr:
    return add([sides[0], neg(sides[1])])


def _links(relation: Expr) -> list[tuple[Expr, str]]:
    signs = relation.name.split()
    return [(_difference(relation.args[at : at + 2]), sign) for at, sign in enumerate(signs)]


def _same_link(a: tuple[Expr, str], b: tuple[Expr, str]) -> bool:
    (x, sign), (y, other) = a, b
    ratio = constant_ratio(x, y)
    if ratio is None:
        return False
    if sign in _DIRECTION and other in _DIRECTION:
        strict = (sign in _STRICT) == (other in _STRICT)
        return strict and _DIRECTION[sign] * _DIRECTION[other] * ratio > 0
    return sign == other and (sign in (r"\ne", "=") or ratio == 1)


def constant_ratio(a: Expr, b: Expr) -> float | None:
    """The ratio of two expressions where it is the same, and not zero, at every point; None where it is not."""
    names = symbols(a) | symbols(b)
    if not names or symbols(a) != symbols(b):
        return None
    quotient = div(a, b)
    ratio, seen = None, 0
    for values in points(names, frozenset()):
        quick = _value(quotient, FLOATS, values, real=True)
        if quick is None or quick == "none":
            continue
        found = _value(quotient, digits(BITS[0]), values, real=True)
        if found is None or found == "none" or isinstance(found.value, complex) or found.value == 0:
            continue
        if ratio is not None and _near(ratio, found, digits(BITS[0])) is not True:
            return None
        ratio, seen = found, seen + 1
        if seen >= MIN_RATIOS + 1:
            break
    return float(ratio.value) if ratio is not None and seen >= MIN_RATIOS else None
