r"""Vectors by their entries and as sums of unit vectors: ``3\mathbf{i}-\mathbf{k}`` is ``(3,0,-1)``."""

from magcli.verify.equality.identity import same_value, symbols
from magcli.verify.latex.tree import Expr, I, add, mul

_UNIT_VECTORS = tuple(
    {Expr("sym", name=name) for name in (letter, rf"\hat {letter}", rf"\vec {letter}", rf"\hat \{letter}math")}
    | ({I} if letter == "i" else set())
    for letter in "ijk"
)


def entries(vector: Expr) -> tuple[Expr, ...]:
    """The entries of a tuple in round brackets or a matrix of one row or column; none of anything else."""
    if vector.op == "tuple":
        return vector.args if vector.name == "()" or (vector.name == "[]" and len(vector.args) > 2) else ()
    if vector.op != "matrix" or 1 not in (len(vector.args), len(vector.args[0].args)):
        return ()
    return tuple(cell for row in vector.args for cell in row.args)


def same_vector(a: Expr, b: Expr) -> bool:
    """Whether one side lists the entries of a vector and the other is the sum of unit vectors with these factors."""
    listed, written = (a, b) if entries(a) else (b, a)
    cells = entries(listed)
    names = [Expr("sym", name=f"?{letter}") for letter in "ijk"[: len(cells)]]
    total = _unit_vectors(written)
    if not 2 <= len(cells) <= 3 or not {"?j", "?k"} & symbols(total):
        return False
    return same_value(total, add([mul(cell, name) for cell, name in zip(cells, names, strict=True)])) is True


def _unit_vectors(expr: Expr) -> Expr:
    """The expression with every unit vector under one name."""
    for letter, spellings in zip("ijk", _UNIT_VECTORS, strict=True):
        if expr in spellings:
            return Expr("sym", name=f"?{letter}")
    return expr._replace(args=tuple(_unit_vectors(arg) for arg in expr.args)) if expr.args else expr
