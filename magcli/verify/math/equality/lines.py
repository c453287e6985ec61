r"""Lines, spans and coordinates: one set of points under several descriptions."""

from magcli.verify.math.equality.equations import in_name_order, is_assignment
from magcli.verify.math.equality.identity import same_value, symbols
from magcli.verify.math.equality.parameters import at_index, is_linear
from magcli.verify.math.equality.quantities import entries
from magcli.verify.math.latex.tree import Expr, add, mul, neg, num, rename_symbol

_COORDINATES = {"x_1": "x", "x_2": "y", "x_3": "z"}
Vector = list[Expr]
MAX_DIMENSION = 6


def same_line(a: Expr, b: Expr) -> bool:
    r"""Whether two points that move with a real parameter ``?0`` move on one line, from any point of it at any speed:
    ``(2+3t,1-2t)``, ``(5+3s,-1-2s)``.
    """
    first, second = _coordinates(a), _coordinates(b)
    if len(first) != len(second) or not 2 <= len(first) <= MAX_DIMENSION or not all(map(is_linear, first + second)):
        return False
    if any(symbols(cell) - {"?0"} for cell in first + second):
        return False
    (start, step) = _start_and_step(first)
    (other, other_step) = _start_and_step(second)
    gap = [add([q, neg(p)]) for p, q in zip(start, other, strict=True)]
    moves = not all(same_value(cell, num(0)) is True for cell in other_step)
    return moves and _parallel(step, other_step) and _parallel(step, gap)


def _coordinates(expr: Expr) -> Vector:
    """The entries of a point, of ``(x,y)=(1,2)`` and of ``x=1, y=2``; empty for anything else."""
    if expr.op == "rel" and expr.name == "=":
        left, right = expr.args
        if left.op != right.op or len(left.args) != len(right.args):
            return list(entries(right)) if left.op == "sym" else []
        expr = Expr("list", tuple(Expr("rel", pair, "=") for pair in zip(left.args, right.args, strict=True)))
    if expr.op == "list":
        return in_name_order(expr.args) if all(map(is_assignment, expr.args)) else []
    return list(entries(expr))


def _start_and_step(cells: Vector) -> tuple[Vector, Vector]:
    start = [at_index(cell, 0) for cell in cells]
    return start, [add([at_index(cell, 1), neg(first)]) for cell, first in zip(cells, start, strict=True)]


def _parallel(step: Vector, other: Vector) -> bool:
    """Whether all 2x2 determinants of two vectors are 0."""
    size = len(step)
    return all(
        same_value(mul(step[i], other[j]), mul(step[j], other[i])) is True for i in range(size) for j in range(i)
    )


def is_multiple(a: Expr, b: Expr) -> bool:
    """Whether two vectors, or sets of one vector, are multiples of each other and neither is 0."""
    sides = (side.args[0] if side.op == "set" and len(side.args) == 1 else side for side in (a, b))
    first, second = map(entries, sides)
    if len(first) != len(second) or not 2 <= len(first) <= MAX_DIMENSION:
        return False
    vectors = (list(first), list(second))
    if any(all(same_value(cell, num(0)) is True for cell in vector) for vector in vectors):
        return False
    return _parallel(*vectors)


def with_plain_coordinates(equation: Expr, other: Expr) -> Expr | None:
    r"""An equation in ``x_1, x_2, x_3`` with ``x, y, z``, if the other is in these; None for anything else."""
    if equation.op != "rel" or other.op != "rel" or is_assignment(other):
        return None
    indexed = symbols(equation)
    if len(indexed) < 2 or not indexed <= _COORDINATES.keys() or not symbols(other) <= set(_COORDINATES.values()):
        return None
    for name in indexed:
        equation = rename_symbol(equation, name, _COORDINATES[name])
    return equation


def multiple_of_identity(expr: Expr) -> Expr | None:
    """The factor of ``I`` in an expression with no other letter, as -1 in ``-I``; None for anything else."""
    (name, *more) = symbols(expr) or ("",)
    if more or name.partition("_")[0] != "I":
        return None
    letter = Expr("sym", name=name)
    renamed = rename_symbol(expr, name, "?0") if expr != letter else Expr("sym", name="?0")
    factor, nothing = at_index(renamed, 1), at_index(renamed, 0)
    linear = is_linear(renamed) and same_value(nothing, num(0)) is True
    return factor if linear else None
