r"""Sets of real numbers: intervals, unions, differences, inequalities and finite sets in a canonical form.

``(1,5)``, ``1<x<5``, ``\{x \mid 1<x<5\}`` and ``]1,5[`` are one region; adjacent intervals are merged. Ends are
compared exactly (or to 30 digits) and sorted by their values as floats.
"""

import math
from fractions import Fraction
from functools import reduce
from itertools import chain, product
from typing import NamedTuple

from magcli.verify.math.equality.evaluate import FLOAT_FIELD, NotReal, Point, Undecided, evaluate
from magcli.verify.math.equality.identity import are_equal, symbols
from magcli.verify.math.latex.tree import (
    INFINITY,
    ZERO,
    Expr,
    is_equation,
    is_unknown_function,
    neg,
    num,
    substitute,
    sym,
)

MAX_INTERVALS = 50
"""Regions of more parts are not compared as regions."""


class Interval(NamedTuple):
    """An interval; its closed ends belong to it."""

    low: Expr
    low_closed: bool
    high: Expr
    high_closed: bool


Intervals = tuple[Interval, ...]


class Region(NamedTuple):
    """Sorted, disjoint intervals. ``name`` is the variable of an inequality, if one was written."""

    intervals: Intervals
    name: str = ""


MINUS_INFINITY = neg(INFINITY)
EVERYTHING: Intervals = (Interval(MINUS_INFINITY, False, INFINITY, False),)
_FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le", r"\ne": r"\ne", "=": "="}


def same_region(a: Region, b: Region) -> bool:
    """Whether two regions contain the same numbers; the names of two named variables must agree."""
    if len(a.intervals) != len(b.intervals) or (a.name and b.name and a.name != b.name):
        return False
    return all(map(_same_interval, a.intervals, b.intervals))


def _same_interval(a: Interval, b: Interval) -> bool:
    if (a.low_closed, a.high_closed) != (b.low_closed, b.high_closed):
        return False
    return _same_end(a.low, b.low) and _same_end(a.high, b.high)


def _same_end(a: Expr, b: Expr) -> bool:
    return a == b or are_equal(a, b)


def region(expr: Expr) -> Region | None:
    """The region that an answer describes; None if it describes none."""
    try:
        described = _region(expr)
        if described is None:
            return None
        return Region(_merge(described.intervals), described.name)
    except (Undecided, NotReal):
        return None


def has_inequalities(expr: Expr) -> bool:
    r"""Whether a list contains inequalities, so that ``and`` and ``or`` differ."""
    if expr.op != "list":
        return False
    return any(part.op == "rel" and part.name not in ("=", r"\in") for part in expr.args)


def _region(expr: Expr) -> Region | None:
    if expr.op == "tuple" and len(expr.args) == 2:
        return _interval(expr)
    if expr.op == "set":
        # Undecided, so that no region is described, unless all elements are numbers.
        numbers = [arg for arg in expr.args if as_float(arg) < math.inf]
        return Region(tuple(map(_point, numbers)))
    if expr.op == "set-name":
        return Region(EVERYTHING) if expr.name == r"\mathbbR" else None
    if expr.op in (r"\cup", r"\setminus", r"\cap"):
        return _set_operation(expr)
    if expr.op == "rel":
        return _relation(expr)
    if expr.op == "builder":
        return _set_builder(expr)
    return _relations(expr) if expr.op == "list" else None


def _interval(expr: Expr) -> Region | None:
    low, high = expr.args
    # (5,1) is a point.
    if as_float(low) >= as_float(high):
        return None
    low_closed, high_closed = expr.name.startswith("["), expr.name.endswith("]")
    return Region((Interval(low, low_closed, high, high_closed),))


def _point(number: Expr) -> Interval:
    return Interval(number, True, number, True)


def _set_operation(expr: Expr) -> Region | None:
    a, b = map(_region, expr.args)
    if a is None or b is None:
        return None
    name = a.name or b.name
    if expr.op == r"\cup":
        return Region(a.intervals + b.intervals, name)
    # A difference is the intersection with the complement.
    second = b.intervals if expr.op == r"\cap" else complement(_merge(b.intervals))
    return Region(_intersect(a.intervals, second), name)


def _relation(expr: Expr) -> Region | None:
    r"""``x>3``, ``1<x<5``, ``|x|<2``, ``x\ne 1`` and ``x \in ..``, where ``x`` is a symbol or ``f(x)``."""
    signs = expr.name.split()
    if signs == [r"\in"]:
        variable, described = expr.args
        inner = _region(described)
        if inner is None or not _is_variable(variable):
            return None
        return Region(inner.intervals, _variable(variable))
    if not 1 <= len(signs) <= 2 or not set(signs) <= _FLIPPED.keys() or set(signs) == {"="}:
        return None
    middle = expr.args[1] if len(signs) == 2 else _with_letter(expr.args)
    of_absolute_value = middle.op == "f" and middle.name == "abs"
    subject = middle.args[0] if of_absolute_value else middle
    if not _is_variable(subject):
        return None
    intervals = EVERYTHING
    for at, sign in enumerate(signs):
        left, right = expr.args[at : at + 2]
        # x<x describes no half-line.
        if left == right:
            return None
        # 3<x is x>3.
        half_line = _half_line(sign, right) if left == middle else _half_line(_FLIPPED[sign], left)
        intervals = _intersect(intervals, half_line)
    if of_absolute_value:
        intervals = _preimage_of_abs(intervals)
    return Region(intervals, _variable(subject))


def _with_letter(sides: tuple[Expr, ...]) -> Expr:
    """The first side with a letter; of numbers the first one."""
    for side in sides:
        if symbols(side):
            return side
    return sides[0]


def _is_variable(expr: Expr) -> bool:
    return expr.op == "sym" or is_unknown_function(expr)


def _variable(expr: Expr) -> str:
    return expr.name if expr.op == "sym" else ""


def _half_line(sign: str, end: Expr) -> Intervals:
    """The numbers in a relation to ``end``; Undecided or NotReal unless that is real."""
    as_float(end)
    below = Interval(MINUS_INFINITY, False, end, sign == r"\le")
    above = Interval(end, sign == r"\ge", INFINITY, False)
    if sign == "=":
        return (_point(end),)
    if sign == r"\ne":
        return (below, above)
    return (below,) if sign in ("<", r"\le") else (above,)


def _preimage_of_abs(intervals: Intervals) -> Intervals:
    """The numbers whose absolute value is in the intervals."""
    positive = _intersect(intervals, _half_line(r"\ge", ZERO))
    mirrored = tuple(map(_mirrored, positive))
    return mirrored + positive


def _mirrored(interval: Interval) -> Interval:
    return Interval(neg(interval.high), interval.high_closed, neg(interval.low), interval.low_closed)


def _set_builder(expr: Expr) -> Region | None:
    head, *conditions = expr.args
    # The head may have a condition itself: {x>0 : x<1}.
    domain = _region(head) if head.op == "rel" else Region(EVERYTHING)
    letter = head.args[0] if head.op == "rel" else head
    if domain is None or letter.op != "sym":
        return None
    intervals = domain.intervals
    for condition in conditions:
        inner = _region(_with_points(condition))
        if inner is None or inner.name != letter.name:
            return None
        intervals = _common(intervals, inner.intervals)
    return Region(intervals)


def _with_points(condition: Expr) -> Expr:
    r"""A condition of a set, with ``x=1`` as ``x \in \{1\}``: in a set it is not the answer's value."""
    if condition.op == "list":
        return condition._replace(args=tuple(map(_with_points, condition.args)))
    if not is_equation(condition) or condition.args[0].op != "sym":
        return condition
    letter, value = condition.args
    return Expr("rel", (letter, Expr("set", (value,))), r"\in")


def _relations(expr: Expr) -> Region | None:
    """``x<1 or x>3``, ``x>1 and x<3``; a list of intervals is a list, not a union.

    Without a conjunction it is the intersection unless that is empty (``x>1, x\\ne 3``), else the union.
    """
    if expr.name not in ("", "and", "or"):
        return None
    regions: list[Region] = []
    for part in expr.args:
        inner = _region(part) if part.op == "rel" else None
        if inner is None:
            return None
        regions.append(inner)
    names = {described.name for described in regions}
    if len(names) != 1:
        return None
    (name,) = names
    parts = [described.intervals for described in regions]
    common = reduce(_common, parts, EVERYTHING)
    if expr.name == "and" or (common and not expr.name):
        return Region(common, name)
    return Region(tuple(chain.from_iterable(parts)), name)


def _common(a: Intervals, b: Intervals) -> Intervals:
    return _intersect(_merge(a), _merge(b))


def as_float(expr: Expr) -> float:
    """An end as a float; raises Undecided or NotReal unless it is a real number."""
    if expr == INFINITY:
        return math.inf
    if expr == MINUS_INFINITY:
        return -math.inf
    value = evaluate(expr, Point(FLOAT_FIELD, {}, real=True)).value
    if isinstance(value, complex):
        raise NotReal
    return float(value)


def _merge(intervals: Intervals) -> Intervals:
    """Sorted, with adjacent or overlapping intervals merged."""
    if len(intervals) > MAX_INTERVALS:
        raise Undecided("too-long")
    merged: list[Interval] = []
    for interval in sorted(intervals, key=_low_end):
        last = merged[-1] if merged else None
        if last is None or not _touch(last, interval):
            merged.append(interval)
        elif _high_end(interval) > _high_end(last):
            merged[-1] = last._replace(high=interval.high, high_closed=interval.high_closed)
    return tuple(merged)


def _low_end(interval: Interval) -> tuple[float, bool]:
    """A key by which intervals are sorted; of equal ends the closed one is lower, as it includes the number."""
    return as_float(interval.low), not interval.low_closed


def _high_end(interval: Interval) -> tuple[float, bool]:
    return as_float(interval.high), interval.high_closed


def _touch(first: Interval, second: Interval) -> bool:
    """Whether an interval overlaps with the next one, or meets it at a number of either."""
    gap = as_float(second.low) - as_float(first.high)
    # Exactly, as floats of different numbers may be equal.
    if _same_end(second.low, first.high):
        return first.high_closed or second.low_closed
    return gap < 0


def complement(intervals: Intervals) -> Intervals:
    """The real numbers outside sorted intervals."""
    gaps: list[Interval] = []
    low, low_closed = MINUS_INFINITY, False
    for interval in intervals:
        if interval.low != MINUS_INFINITY:
            gaps.append(Interval(low, low_closed, interval.low, not interval.low_closed))
        low, low_closed = interval.high, not interval.high_closed
    if low != INFINITY:
        gaps.append(Interval(low, low_closed, INFINITY, False))
    return tuple(gaps)


def _intersect(a: Intervals, b: Intervals) -> Intervals:
    if len(a) * len(b) > MAX_INTERVALS**2:
        raise Undecided("too-long")
    overlaps = []
    for x, y in product(a, b):
        # An overlap begins where the later one begins, and ends where the earlier one ends.
        later = max(x, y, key=_low_end)
        earlier = min(x, y, key=_high_end)
        low, low_open = _low_end(later)
        high, high_closed = _high_end(earlier)
        is_one_point = low == high and high_closed and not low_open
        if low < high or is_one_point:
            overlaps.append(Interval(later.low, later.low_closed, earlier.high, earlier.high_closed))
    return tuple(overlaps)


def defines_absolute_value(cases: Expr, expr: Expr) -> bool:
    """Whether a piecewise function equals an expression with one absolute value, such as ``2|x-1|+3``.

    The argument must be linear in the only letter. In each row it has one sign, and the row's value is the expression
    with the absolute value resolved by that sign; the regions of the rows cover the real numbers.
    """
    absolute_values, letters = _absolute_values(expr), symbols(expr)
    if not len(absolute_values) == len(letters) == 1:
        return False
    (absolute_value,), (letter,) = absolute_values, letters
    branches = _branches(expr, absolute_value, letter)
    if not branches:
        return False
    covered: Intervals = ()
    for row in cases.args:
        if len(row.args) != 2:
            continue
        value, condition = row.args
        where = _case_condition(condition, letter, covered)
        if not where:
            return False
        # The branches whose half-line, or point, contains the whole region of the row.
        region_of_row = Region(where)
        fitting = [
            branch for domain, branch in branches if same_region(Region(_intersect(where, domain)), region_of_row)
        ]
        if not any(are_equal(value, branch) for branch in fitting):
            return False
        covered += where
    return _merge(covered) == EVERYTHING


def _branches(expr: Expr, absolute_value: Expr, letter: str) -> list[tuple[Intervals, Expr]]:
    """The half-lines on which the argument of an absolute value has one sign, and its root, with the expression there;
    empty if the argument is not linear.
    """
    inner = absolute_value.args[0]
    slope, offset = _linear(inner) or (Fraction(0), Fraction(0))
    if not slope:
        return []
    root = num(-offset / slope)
    # The argument is not negative on one side of its root, and not positive on the other one.
    not_negative, not_positive = (r"\ge", r"\le") if slope > 0 else (r"\le", r"\ge")
    return [
        (_half_line(not_negative, root), substitute(expr, absolute_value, inner)),
        (_half_line(not_positive, root), substitute(expr, absolute_value, neg(inner))),
        (_half_line("=", root), substitute(expr, sym(letter), root)),
    ]


def _case_condition(condition: Expr, letter: str, covered: Intervals) -> Intervals:
    """The region of a row of a piecewise function after the rows that cover ``covered``; empty if it has none."""
    if condition.op == "text" and condition.name in ("otherwise", "else"):
        return complement(_merge(covered))
    if is_equation(condition) and condition.args[0] == sym(letter):
        return _half_line("=", condition.args[1])
    described = region(condition)
    return described.intervals if described and described.name == letter else ()


def _absolute_values(expr: Expr) -> frozenset[Expr]:
    """The different absolute values in an expression."""
    inner = frozenset().union(*map(_absolute_values, expr.args))
    return inner | {expr} if expr.op == "f" and expr.name == "abs" else inner


def _linear(expr: Expr) -> tuple[Fraction, Fraction] | None:
    """Slope and offset of a linear expression in one letter; None for anything else."""
    if expr.op == "num":
        return Fraction(0), expr.number
    if expr.op == "sym":
        return Fraction(1), Fraction(0)
    if expr.op not in ("+", "*", "/"):
        return None
    parts = [part for part in map(_linear, expr.args) if part is not None]
    if len(parts) < len(expr.args):
        return None
    if expr.op == "+":
        slopes, offsets = zip(*parts, strict=True)
        return sum(slopes, Fraction(0)), sum(offsets, Fraction(0))
    # ax+b and cx+d
    (a, b), (c, d) = parts
    if expr.op == "/":
        return None if c or not d else (a / d, b / d)
    # One factor must be a number.
    return None if a and c else (a * d + b * c, b * d)
