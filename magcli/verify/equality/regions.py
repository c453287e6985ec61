r"""Sets of real numbers: intervals, unions, differences, inequalities and finite sets in one form.

``(1,5)``, ``1<x<5``, ``\{x \mid 1<x<5\}`` and ``]1,5[`` are one region; touching pieces are joined, order counts for
nothing. Ends are compared exactly (or to 30 digits), and put in order by their values as floats.
"""

import math
from fractions import Fraction
from typing import NamedTuple

from magcli.verify.equality.balls import FLOATS, NotReal, Point, Undecided
from magcli.verify.equality.evaluate import evaluate
from magcli.verify.equality.identity import same_value, symbols
from magcli.verify.latex.tree import INFINITY, Expr, neg, num

MAX_PIECES = 50


class Piece(NamedTuple):
    """An interval; ``left`` and ``right`` tell whether its ends belong to it."""

    low: Expr
    left: bool
    high: Expr
    right: bool


class Region(NamedTuple):
    """Pieces in order, apart from each other. ``name`` is the variable of an inequality, if one was written."""

    pieces: tuple[Piece, ...]
    name: str = ""


MINUS_INFINITY = neg(INFINITY)
EVERYTHING: tuple[Piece, ...] = (Piece(MINUS_INFINITY, False, INFINITY, False),)
_FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le", r"\ne": r"\ne", "=": "="}


def same_region(a: Region, b: Region) -> bool:
    """Whether two regions hold the same numbers; of two named variables the names must agree."""
    if len(a.pieces) != len(b.pieces) or (a.name and b.name and a.name != b.name):
        return False
    return all(
        x.left == y.left and x.right == y.right and _same(x.low, y.low) and _same(x.high, y.high)
        for x, y in zip(a.pieces, b.pieces, strict=True)
    )


def _same(a: Expr, b: Expr) -> bool:
    return a == b or same_value(a, b) is True


def region(expr: Expr) -> Region | None:
    """The region that an answer describes; None where it describes none."""
    try:
        found = _region(expr)
        return None if found is None else Region(_joined(found.pieces), found.name)
    except (Undecided, NotReal):
        return None


def is_restricted(expr: Expr) -> bool:
    r"""Whether a list holds inequalities, so that ``and`` and ``or`` make a difference."""
    return expr.op == "list" and any(part.op == "rel" and part.name not in ("=", r"\in") for part in expr.args)


def _region(expr: Expr) -> Region | None:
    if expr.op == "tuple" and len(expr.args) == 2:
        return _interval(expr)
    if expr.op == "set":
        return Region(tuple(Piece(arg, True, arg, True) for arg in expr.args if as_float(arg) < math.inf))
    if expr.op == "set-name":
        return Region(EVERYTHING) if expr.name == r"\mathbbR" else None
    if expr.op in (r"\cup", r"\setminus", r"\cap"):
        return _combined(expr)
    if expr.op == "rel":
        return _relation(expr)
    if expr.op == "builder":
        return _built(expr)
    return _alternatives(expr) if expr.op == "list" else None


def _interval(expr: Expr) -> Region | None:
    low, high = expr.args
    if as_float(low) >= as_float(high):
        return None
    return Region((Piece(low, expr.name[0] == "[", high, expr.name[1] == "]"),))


def _combined(expr: Expr) -> Region | None:
    a, b = _region(expr.args[0]), _region(expr.args[1])
    if a is None or b is None:
        return None
    if expr.op == r"\cup":
        return Region(a.pieces + b.pieces, a.name or b.name)
    return Region(
        _common(a.pieces, b.pieces if expr.op == r"\cap" else complement(_joined(b.pieces))), a.name or b.name
    )


def _relation(expr: Expr) -> Region | None:
    r"""``x>3``, ``1<x<5``, ``|x|<2``, ``x\ne 1`` and ``x \in ..``, where ``x`` is a symbol or ``f(x)``."""
    signs = expr.name.split()
    if signs == [r"\in"]:
        inner = _region(expr.args[1])
        return None if inner is None or not _is_name(expr.args[0]) else Region(inner.pieces, _shown(expr.args[0]))
    if not 1 <= len(signs) <= 2 or not set(signs) <= _FLIPPED.keys() or set(signs) == {"="}:
        return None
    middle = expr.args[1] if len(signs) == 2 else next((side for side in expr.args if symbols(side)), expr.args[0])
    subject = middle.args[0] if middle.op == "f" and middle.name == "abs" else middle
    if not _is_name(subject):
        return None
    pieces = EVERYTHING
    for at, sign in enumerate(signs):
        left, right = expr.args[at : at + 2]
        if (left == middle) == (right == middle):
            return None
        pieces = _common(pieces, _half(sign, right) if left == middle else _half(_FLIPPED[sign], left))
    return Region(_absolute(pieces) if subject is not middle else pieces, _shown(subject))


def _is_name(expr: Expr) -> bool:
    return expr.op == "sym" or (expr.op == "f" and expr.name.startswith("?"))


def _shown(expr: Expr) -> str:
    return expr.name if expr.op == "sym" else ""


def _half(sign: str, end: Expr) -> tuple[Piece, ...]:
    """The numbers in a relation to ``end``."""
    as_float(end)
    below = Piece(MINUS_INFINITY, False, end, sign == r"\le")
    above = Piece(end, sign == r"\ge", INFINITY, False)
    if sign == "=":
        return (Piece(end, True, end, True),)
    if sign == r"\ne":
        return (below, above)
    return (below,) if sign in ("<", r"\le") else (above,)


def _absolute(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """The numbers whose absolute value lies in the pieces."""
    positive = _common(pieces, (Piece(Expr("num"), True, INFINITY, False),))
    return tuple(Piece(neg(p.high), p.right, neg(p.low), p.left) for p in positive) + positive


def _built(expr: Expr) -> Region | None:
    head, *conditions = expr.args
    start = _region(head) if head.op == "rel" else Region(EVERYTHING)
    name = head.args[0] if head.op == "rel" else head
    if start is None or name.op != "sym":
        return None
    pieces = start.pieces
    for condition in conditions:
        inner = _region(condition)
        if inner is None or inner.name != name.name:
            return None
        pieces = _common(_joined(pieces), _joined(inner.pieces))
    return Region(pieces)


def _alternatives(expr: Expr) -> Region | None:
    """``x<1`` or ``x>3``, ``x>1`` and ``x<3``; a list of intervals is a list, not a union.

    Without a word between them all parts hold where they have numbers in common (``x>1, x\\ne 3``), else one of them.
    """
    parts = [_region(part) for part in expr.args if part.op == "rel"]
    if len(parts) != len(expr.args) or any(part is None for part in parts) or expr.name not in ("", "and", "or"):
        return None
    known = [part for part in parts if part is not None]
    if len({part.name for part in known}) != 1:
        return None
    common = EVERYTHING
    for part in known:
        common = _common(_joined(common), _joined(part.pieces))
    if expr.name == "and" or (common and not expr.name):
        return Region(common, known[0].name)
    return Region(tuple(piece for part in known for piece in part.pieces), known[0].name)


def as_float(expr: Expr) -> float:
    """An end as a float.

    Raises:
        Undecided, NotReal: it is no real number.
    """
    if expr == INFINITY:
        return math.inf
    if expr == MINUS_INFINITY:
        return -math.inf
    value = evaluate(expr, Point(FLOATS, {}, real=True)).value
    if isinstance(value, complex):
        raise NotReal
    return float(value)


def _joined(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """In order, with touching or overlapping pieces made one."""
    if len(pieces) > MAX_PIECES:
        raise Undecided("too-long")
    joined: list[Piece] = []
    for piece in sorted(pieces, key=lambda p: (as_float(p.low), not p.left)):
        last = joined[-1] if joined else None
        if last is None or not _touch(last, piece):
            joined.append(piece)
        elif (as_float(piece.high), piece.right) > (as_float(last.high), last.right):
            joined[-1] = Piece(last.low, last.left, piece.high, piece.right)
    return tuple(joined)


def _touch(first: Piece, second: Piece) -> bool:
    gap = as_float(second.low) - as_float(first.high)
    if _same(second.low, first.high):
        return first.right or second.left
    return gap < 0


def complement(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """The real numbers outside pieces that are in order."""
    gaps: list[Piece] = []
    low, left = MINUS_INFINITY, False
    for piece in pieces:
        if piece.low != MINUS_INFINITY:
            gaps.append(Piece(low, left, piece.low, not piece.left))
        low, left = piece.high, not piece.right
    if low != INFINITY:
        gaps.append(Piece(low, left, INFINITY, False))
    return tuple(gaps)


def _common(a: tuple[Piece, ...], b: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """What lies in a piece of both."""
    if len(a) * len(b) > MAX_PIECES**2:
        raise Undecided("too-long")
    found = []
    for x in a:
        for y in b:
            low, left = max((x.low, x.left), (y.low, y.left), key=lambda end: (as_float(end[0]), not end[1]))
            high, right = min((x.high, x.right), (y.high, y.right), key=lambda end: (as_float(end[0]), end[1]))
            if as_float(low) < as_float(high) or (as_float(low) == as_float(high) and left and right):
                found.append(Piece(low, left, high, right))
    return tuple(found)


def defines_absolute(cases: Expr, expr: Expr) -> bool:
    """Whether a piecewise function defines an expression with one absolute value, such as ``2|x-1|+3``.

    Within the bars stands a linear expression of the only letter. On the region of each row it keeps its sign, and the
    value of the row is the expression with that sign in place of the bars; the regions together are all real numbers.
    """
    bars, letters = list(_absolutes(expr)), symbols(expr)
    slope, offset = (_line(bars[0].args[0]) if len(bars) == len(letters) == 1 else None) or (Fraction(0), Fraction(0))
    if not slope:
        return False
    root, inner, (letter,) = num(-offset / slope), bars[0].args[0], letters
    right, left = (Piece(root, True, INFINITY, False),), (Piece(MINUS_INFINITY, False, root, True),)
    choices = [
        (right if slope > 0 else left, _put(expr, bars[0], inner)),
        (left if slope > 0 else right, _put(expr, bars[0], neg(inner))),
        ((Piece(root, True, root, True),), _put(expr, Expr("sym", name=letter), root)),
    ]
    covered: tuple[Piece, ...] = ()
    for value, condition in (row.args for row in cases.args if len(row.args) == 2):
        pieces = _where(condition, letter, covered)
        fitting = [given for half, given in choices if same_region(Region(_common(pieces, half)), Region(pieces))]
        if not pieces or not any(same_value(value, given) is True for given in fitting):
            return False
        covered += pieces
    return _joined(covered) == EVERYTHING


def _where(condition: Expr, letter: str, covered: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """The region of a row of a piecewise function behind rows that cover others; empty where it has none."""
    if condition.op == "text" and condition.name in ("otherwise", "else"):
        return complement(_joined(covered))
    if condition.op == "rel" and condition.name == "=" and condition.args[0] == Expr("sym", name=letter):
        return _half("=", condition.args[1])
    found = region(condition)
    return found.pieces if found and found.name == letter else ()


def _absolutes(expr: Expr) -> frozenset[Expr]:
    found = frozenset().union(*map(_absolutes, expr.args))
    return found | {expr} if expr.op == "f" and expr.name == "abs" else found


def _put(expr: Expr, old: Expr, new: Expr) -> Expr:
    return new if expr == old else expr._replace(args=tuple(_put(arg, old, new) for arg in expr.args))


def _line(expr: Expr) -> tuple[Fraction, Fraction] | None:
    """Slope and offset of a linear expression of one letter; None where it is something else."""
    if expr.op in ("num", "sym"):
        return (Fraction(0), expr.number) if expr.op == "num" else (Fraction(1), Fraction(0))
    parts = [part for part in map(_line, expr.args) if part is not None]
    if len(parts) < len(expr.args) or expr.op not in ("+", "*", "/"):
        return None
    if expr.op == "+":
        return sum((a for a, _ in parts), Fraction(0)), sum((b for _, b in parts), Fraction(0))
    (a, b), (c, d) = parts
    if expr.op == "/":
        return None if c or not d else (a / d, b / d)
    return None if a and c else (a * d + b * c, b * d)
