"""Parse trees of answers, with exact arithmetic while they are built.

An ``Expr`` is a number, a symbol, an operation or a structure (tuple, set, relation ..) over its ``args``. The builders
evaluate rational values within budgets; larger ones stay trees and are never evaluated.
"""

import math
from collections.abc import Iterable
from fractions import Fraction
from itertools import chain
from typing import Literal, NamedTuple

MAX_BITS = 1 << 16
"""Maximum size of an evaluated power."""
MAX_SUM_BITS = 1 << 17
"""Maximum size of the parts of an evaluated sum or product, together."""
MAX_FACTORIAL, MAX_BITS_OF_ARGUMENT = 2_000, 64_000
MAX_DEGREE, MAX_RADICAND_BITS = 64, 4096
"""Roots beyond these are not searched for an exact value."""
MAX_DIVIDED = 100
"""From this many numbers on, their common divisor or multiple is not evaluated."""
MAX_MATRIX_SIZE = 400
"""Maximum rows of one matrix times rows of the other in an evaluated product."""


class ParseError(Exception):
    """The text is not an answer in the grammar, or exceeds a budget, as the message says."""


Op = Literal[
    "num", "sym", "const", "+", "*", "/", "^", "f", "pm", "percent", "unit", "base", "sum", "prod",
    "tuple", "list", "set", "row", "matrix", "set-name", "builder", "\\cup", "\\cap", "\\setminus",
    "rel", "chain", "cases", "residue", "ratio", "family",
    "not", "and", "or", "xor", "forall", "exists", "text", "choice", "raw",
]  # fmt: skip
"""The kinds of nodes: expressions; structures and sets; relations; formulas of logic, and words."""


class Expr(NamedTuple):
    """``op`` names the node: ``num`` (``number``), ``sym`` (``name``), ``+ * / ^``, ``f`` (function ``name``), .."""

    op: Op
    args: tuple["Expr", ...] = ()
    name: str = ""
    number: Fraction = Fraction(0)


def num(value: Fraction | int) -> Expr:
    """A rational number."""
    return Expr("num", number=Fraction(value))


def is_whole_number(expr: Expr) -> bool:
    """Whether a node is an integer."""
    return expr.op == "num" and expr.number.denominator == 1


def sym(name: str) -> Expr:
    """A letter, or another name without parts."""
    return Expr("sym", name=name)


def equals(left: Expr, right: Expr) -> Expr:
    """An equation."""
    return Expr("rel", (left, right), "=")


def is_equation(expr: Expr) -> bool:
    """Whether a node is one ``=`` between two sides; chains of several are other nodes."""
    return expr.op == "rel" and expr.name == "="


def right_side(expr: Expr) -> Expr:
    """The right side of an equation; anything else unchanged."""
    return expr.args[1] if is_equation(expr) else expr


def parts_of(expr: Expr, *kinds: Op) -> tuple[Expr, ...]:
    """The parts of a structure of one of these kinds; anything else is the only part."""
    return expr.args if expr.op in kinds else (expr,)


def flattened(expr: Expr, op: Op) -> tuple[Expr, ...]:
    """The operands of nested operations of one kind, ``A \\cup (B \\cup C)``."""
    if expr.op != op:
        return (expr,)
    return tuple(chain.from_iterable(flattened(arg, op) for arg in expr.args))


_TRANSPOSED = frozenset(map(sym, ("T", r"\top", r"\intercal")))
ZERO, ONE, MINUS_ONE = map(num, (0, 1, -1))
I, PI, E, INFINITY = (Expr("const", name=name) for name in ("i", "pi", "e", "inf"))  # noqa: E741


def letter_value(letter: str) -> Expr:
    """The constant ``e`` or ``i``, or else the letter as a symbol."""
    return {"i": I, "e": E}.get(letter) or sym(letter)


def add(terms: list[Expr]) -> Expr:
    """A sum."""
    if len(terms) == 1:
        return terms[0]
    if all(term.op == "num" for term in terms) and _fit(*terms):
        return num(sum((term.number for term in terms), Fraction(0)))
    return _add_matrices(terms) or _set_difference(terms) or _add_points(terms) or Expr("+", tuple(terms))


def mul(a: Expr, b: Expr) -> Expr:
    """A product; distributed over matrices."""
    if a.op == b.op == "num" and _fit(a, b):
        return num(a.number * b.number)
    if a.op == "matrix" or b.op == "matrix":
        return _matrix_product(a, b)
    if a.op in _UNUSUAL or b.op in _UNUSUAL:
        return _scaled_point(a, b) or _set_power(a, b) or Expr("*", (a, b))
    return Expr("*", (a, b))


def neg(a: Expr) -> Expr:
    """The negative; of a value with a unit inside the unit."""
    if a.op == "unit":
        return a._replace(args=(neg(a.args[0]),))
    return mul(MINUS_ONE, a)


def sub(a: Expr, b: Expr) -> Expr:
    """A difference, as the sum with the negative."""
    return add([a, neg(b)])


def div(a: Expr, b: Expr) -> Expr:
    """A quotient; division by zero stays a tree without value."""
    if a.op == b.op == "num" and b.number and _fit(a, b):
        return num(a.number / b.number)
    if a.op == "matrix":
        return _matrix_product(a, div(ONE, b))
    if a.op == "tuple":
        return _scaled_point(a, div(ONE, b)) or Expr("/", (a, b))
    return Expr("/", (a, b))


def power(base: Expr, exponent: Expr) -> Expr:
    """A power, evaluated if it is rational and within the budget, as ``4^{1/2}``.

    ``A^T`` is a transposed matrix, ``(1,2)^T`` a column.
    """
    if exponent in _TRANSPOSED:
        # (a,b] is an interval, not a vector.
        if base.op == "tuple" and base.name in ("()", "[]"):
            return _matrix((part,) for part in base.args)
        if base.op == "matrix":
            return _matrix(_columns(base))
    if base.op == exponent.op == "num":
        value = _rational_power(base.number, exponent.number)
        return value or Expr("^", _smallest_base(base.number, exponent.number))
    return Expr("^", (base, exponent))


def function(name: str, *args: Expr) -> Expr:
    """A function application, evaluated if exact on rational arguments."""
    if args and all(a.op == "num" for a in args):
        value = _fold_function(name, [a.number for a in args])
        if value is not None:
            return num(value)
    return Expr("f", args, name)


def is_unknown_function(expr: Expr) -> bool:
    """Whether an expression is a function that is only a letter: ``f(x)``, but not ``P(x)``, which is a product."""
    return expr.op == "f" and expr.name.startswith("?")


def rename_symbol(expr: Expr, name: str, new: str) -> Expr:
    """The expression with a symbol renamed."""
    return substitute(expr, sym(name), sym(new))


def with_numbered(expr: Expr, letters: Iterable[str]) -> Expr:
    """The expression with ``?0``, ``?1``, .. for its letters, whose names are arbitrary."""
    for at, letter in enumerate(letters):
        expr = rename_symbol(expr, letter, f"?{at}")
    return expr


def substitute(expr: Expr, old: Expr, new: Expr) -> Expr:
    """The expression with all occurrences of ``old`` replaced."""
    if expr == old:
        return new
    if not expr.args:
        return expr
    return expr._replace(args=tuple(substitute(arg, old, new) for arg in expr.args))


def _fit(*numbers: Expr) -> bool:
    """Whether numbers are within the budget of a sum or product."""
    return sum(num_bits(part.number) for part in numbers) < MAX_SUM_BITS


def num_bits(value: Fraction) -> int:
    """The size of a fraction in memory."""
    return value.numerator.bit_length() + value.denominator.bit_length()


def _rational_power(base: Fraction, exponent: Fraction) -> Expr | None:
    """A power if it is rational; None for others and for those beyond the budget."""
    top, degree = exponent.numerator, exponent.denominator
    if top < 0 and not base:
        return None
    if degree > 1:
        if degree > MAX_DEGREE or num_bits(base) > MAX_RADICAND_BITS:
            return None
        root = _root(base, degree)
        return None if root is None else _rational_power(root, Fraction(top))
    # Powers of 0 and of 1 with any sign are evaluated whatever their exponent is.
    if base in (0, 1):
        return num(base if top else 1)
    if base == -1:
        return num(-1 if top % 2 else 1)
    return num(base**top) if abs(top) * num_bits(base) <= MAX_BITS else None


def _root(value: Fraction, degree: int) -> Fraction | None:
    """The exact real root, if it is rational; odd roots of negative numbers are negative."""
    if value < 0:
        positive = _root(-value, degree) if degree % 2 else None
        return None if positive is None else -positive
    # The fraction is in lowest terms, so both parts must have a root.
    top, bottom = (_integer_root(n, degree) for n in (value.numerator, value.denominator))
    return None if top is None or bottom is None else Fraction(top, bottom)


def _integer_root(n: int, degree: int) -> int | None:
    """The exact root of an integer that is not negative; None if it is irrational."""
    if degree == 2:
        root = math.isqrt(n)
        return root if root * root == n else None
    # Bisection for the largest integer whose power is at most n; it is below 2^(bits of n / degree + 1).
    low, high = 0, 1 << (n.bit_length() // degree + 1)
    while low < high:
        middle = (low + high + 1) // 2
        if middle**degree <= n:
            low = middle
        else:
            high = middle - 1
    return low if low**degree == n else None


def _smallest_base(base: Fraction, exponent: Fraction) -> tuple[Expr, Expr]:
    """A power too large to evaluate on its smallest base: ``4^n`` as ``2^{2n}``, so that equal powers are the same."""
    if base.denominator == 1 and base > 1 and num_bits(base) < 128 and exponent.denominator == 1:
        # From the highest degree, whose root is the smallest.
        for degree in range(base.numerator.bit_length(), 1, -1):
            root = _integer_root(base.numerator, degree)
            if root is not None:
                return num(root), num(exponent * degree)
    return num(base), num(exponent)


def _fold_function(name: str, values: list[Fraction]) -> Fraction | None:
    """Integer functions within the budget, and rational values of others."""
    if name == "abs":
        return abs(values[0])
    if name == "floor":
        return Fraction(math.floor(values[0]))
    if name == "ceil":
        return Fraction(math.ceil(values[0]))
    if name in ("max", "min"):
        return max(values) if name == "max" else min(values)
    if any(value.denominator != 1 or num_bits(value) > MAX_BITS_OF_ARGUMENT for value in values):
        return None
    result = _fold_integer_function(name, [value.numerator for value in values])
    return None if result is None else Fraction(result)


def _fold_integer_function(name: str, values: list[int]) -> int | None:
    """Functions of integers; None for others and beyond the budget."""
    if name == "factorial":
        return math.factorial(values[0]) if 0 <= values[0] <= MAX_FACTORIAL else None
    if name in ("gcd", "lcm") and len(values) < MAX_DIVIDED:
        return math.gcd(*values) if name == "gcd" else math.lcm(*values)
    if name not in ("binom", "perm", "mod"):
        return None
    first, second = values
    if name == "mod":
        return first % second if second else None
    is_evaluated = 0 <= second <= first <= MAX_FACTORIAL
    choose = math.comb if name == "binom" else math.perm
    return choose(first, second) if is_evaluated else None


def _set_difference(terms: list[Expr]) -> Expr | None:
    """``\\mathbb{R} - \\{0\\}``; None for anything else."""
    if len(terms) != 2 or terms[0].op not in ("set-name", "tuple") or terms[1].op != "*":
        return None
    # The parser builds a - b as a + (-1) b.
    sign, removed = terms[1].args
    if sign != MINUS_ONE or removed.op not in ("set", "tuple"):
        return None
    return Expr(r"\setminus", (terms[0], removed))


def _add_matrices(terms: list[Expr]) -> Expr | None:
    """The sum of matrices of equal shape; None for anything else."""
    if any(term.op != "matrix" for term in terms):
        return None
    shapes = {tuple(len(row.args) for row in term.args) for term in terms}
    if len(shapes) != 1:
        return None
    rows_at_one_height = zip(*(term.args for term in terms), strict=True)
    return _matrix(_sums(row.args for row in rows) for rows in rows_at_one_height)


def _sums(vectors: Iterable[tuple[Expr, ...]]) -> tuple[Expr, ...]:
    """The sum of vectors, entry by entry."""
    return tuple(add(list(entries)) for entries in zip(*vectors, strict=True))


def _add_points(terms: list[Expr]) -> Expr | None:
    """The sum of points and their multiples, ``(1,2)+t(3,4)``; None for anything else."""
    points = [_entries(term) for term in terms]
    dimensions = {len(entries) for entries in points}
    if len(dimensions) != 1 or not points[0]:
        return None
    return Expr("tuple", _sums(points), "()")


def _entries(term: Expr) -> tuple[Expr, ...]:
    """The entries of a point or of a multiple of one; empty for anything else."""
    if term.op == "tuple" and term.name == "()":
        return term.args
    if term.op != "*":
        return ()
    factor, point = term.args
    return tuple(mul(factor, entry) for entry in _entries(point))


_FACTORS: frozenset[Op] = frozenset(("num", "sym", "const", "+", "*", "/", "^", "f"))
_UNUSUAL: frozenset[Op] = frozenset(("tuple", "set-name", "^"))
"""Factors that may be a point or a power of a set."""


def _scaled_point(a: Expr, b: Expr) -> Expr | None:
    """A factor times a point or vector, by entries; None for anything else."""
    point, factor = (a, b) if a.op == "tuple" else (b, a)
    if point.op != "tuple" or point.name != "()" or len(point.args) < 2 or factor.op not in _FACTORS:
        return None
    if factor == MINUS_ONE and len(point.args) == 2:
        return None  # an interval that a difference removes
    return point._replace(args=tuple(mul(factor, entry) for entry in point.args))


def _set_power(a: Expr, b: Expr) -> Expr | None:
    r"""``\mathbb{R}\times\mathbb{R}`` as ``\mathbb{R}^2``; None for anything else."""
    is_power = a.op == "^" and a.args[0].op == "set-name"
    base, degree = a.args if is_power else (a, ONE)
    if base.op != "set-name" or b != base or degree.op != "num":
        return None
    return Expr("^", (base, add([degree, ONE])))


def _matrix_product(a: Expr, b: Expr) -> Expr:
    if b.op != "matrix":
        return _scaled_matrix(a, b)
    if a.op != "matrix":
        return _scaled_matrix(b, a)
    width = len(a.args[0].args)
    is_large = len(a.args) * len(b.args) > MAX_MATRIX_SIZE
    if width != len(b.args) or is_large:
        raise ParseError("matrix-shapes")
    columns = _columns(b)
    return _matrix(tuple(_dot_product(row.args, column) for column in columns) for row in a.args)


def _scaled_matrix(matrix: Expr, factor: Expr) -> Expr:
    return _matrix(tuple(mul(factor, cell) for cell in row.args) for row in matrix.args)


def _dot_product(row: tuple[Expr, ...], column: tuple[Expr, ...]) -> Expr:
    return add([mul(x, y) for x, y in zip(row, column, strict=True)])


def _columns(matrix: Expr) -> list[tuple[Expr, ...]]:
    return list(zip(*(row.args for row in matrix.args), strict=True))


def _matrix(rows: Iterable[tuple[Expr, ...]]) -> Expr:
    return Expr("matrix", tuple(Expr("row", cells) for cells in rows))
