r"""Lines, spans and coordinates: one set of points under several descriptions."""

from itertools import combinations

from magcli.verify.math.equality.equations import in_name_order, is_assignment
from magcli.verify.math.equality.identity import are_equal, symbols
from magcli.verify.math.equality.parameters import at_index, by_entries, is_linear, progression
from magcli.verify.math.equality.quantities import entries
from magcli.verify.math.latex.tree import ZERO, Expr, is_equation, mul, rename_symbol, sub

_COORDINATES = {"x_1": "x", "x_2": "y", "x_3": "z"}
Vector = list[Expr]
MAX_DIMENSION = 6


def same_line(a: Expr, b: Expr) -> bool:
    r"""Whether two points that move with a real parameter ``?0`` move on one line, from any point of it at any speed:
    ``(2+3t,1-2t)``, ``(5+3s,-1-2s)``.
    """
    first, second = _coordinates(a), _coordinates(b)
    if len(first) != len(second) or not 2 <= len(first) <= MAX_DIMENSION:
        return False
    if not all(map(is_linear, first + second)):
        return False
    if any(symbols(cell) - {"?0"} for cell in first + second):
        return False
    start, step = _start_and_step(first)
    other_start, other_step = _start_and_step(second)
    # Parallel lines are one if the way from a point of one to a point of the other has their direction.
    gap = list(map(sub, other_start, start))
    return not _is_zero(other_step) and _parallel(step, other_step) and _parallel(step, gap)


def _coordinates(expr: Expr) -> Vector:
    """The entries of a point, of ``(x,y)=(1,2)`` and of ``x=1, y=2``; empty for anything else."""
    if is_equation(expr):
        name, value = expr.args
        if name.op == "sym" and value.op != "sym":
            return list(entries(value))
        if name.op != value.op or len(name.args) != len(value.args):
            return []
        expr = by_entries(name, value)
    if expr.op != "list":
        return list(entries(expr))
    return in_name_order(expr.args) if all(map(is_assignment, expr.args)) else []


def _start_and_step(cells: Vector) -> tuple[Vector, Vector]:
    """The point at the parameter 0, and how far it moves to that at 1."""
    start, step = zip(*map(progression, cells), strict=True)
    return list(start), list(step)


def _is_zero(vector: Vector) -> bool:
    return all(are_equal(cell, ZERO) for cell in vector)


def _parallel(step: Vector, other: Vector) -> bool:
    """Whether all 2x2 determinants of two vectors are 0."""
    pairs = combinations(range(len(step)), 2)
    return all(are_equal(mul(step[i], other[j]), mul(step[j], other[i])) for i, j in pairs)


def is_multiple(a: Expr, b: Expr) -> bool:
    """Whether two vectors, or sets of one vector, are multiples of each other and neither is 0."""
    first, second = (list(entries(_only_element(side))) for side in (a, b))
    if len(first) != len(second) or not 2 <= len(first) <= MAX_DIMENSION:
        return False
    return not _is_zero(first) and not _is_zero(second) and _parallel(first, second)


def _only_element(expr: Expr) -> Expr:
    """The element of a set of one, as a basis of a line is written; anything else unchanged."""
    return expr.args[0] if expr.op == "set" and len(expr.args) == 1 else expr


def with_plain_coordinates(equation: Expr, other: Expr) -> Expr | None:
    r"""An equation in ``x_1, x_2, x_3`` with ``x, y, z``, if the other is in these; None for anything else."""
    if equation.op != "rel" or other.op != "rel" or is_assignment(other):
        return None
    indexed = symbols(equation)
    other_is_plain = symbols(other) <= set(_COORDINATES.values())
    if len(indexed) < 2 or not indexed <= _COORDINATES.keys() or not other_is_plain:
        return None
    for name in indexed:
        equation = rename_symbol(equation, name, _COORDINATES[name])
    return equation


def multiple_of_identity(expr: Expr) -> Expr | None:
    """The factor of ``I`` in an expression with no other letter, as -1 in ``-I``; None for anything else."""
    letters = symbols(expr)
    if len(letters) != 1:
        return None
    (name,) = letters
    if name.partition("_")[0] != "I":
        return None
    renamed = rename_symbol(expr, name, "?0")
    # With a term beside the multiple of I, the value at 0 is that term.
    if not is_linear(renamed) or not are_equal(at_index(renamed, 0), ZERO):
        return None
    return at_index(renamed, 1)
