"""Equations: names of quantities (``x``, ``f(x)``, ``AB``, ``\\text{Area}``), chains of ``=``, equal equations."""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice, pairwise, starmap

from magcli.verify.math.equality.evaluate import FLOAT_FIELD, Ball, NotReal, Point, Undecided, evaluate, mp_field
from magcli.verify.math.equality.identity import BITS, agree_within_error, same_value, sample_points, symbols, value_at
from magcli.verify.math.latex.tree import ZERO, Expr, Op, div, is_equation, is_unknown_function, sub, sym, with_numbered

_OF_SEVERAL = frozenset(("gcd", "lcm", "max", "min", "det"))
_COMPOSED: frozenset[Op] = frozenset(("+", "*", "/", "^", "f"))
_COORDINATES = frozenset("xyz")
_CIRCULAR = frozenset(("sin", "cos", "tan", "cot", "sec", "csc"))
_MEASURED = frozenset(["sin", "cos", "tan", "cot", "sec", "csc", "abs"])
_COMPUTED = frozenset(("?int", "?lim"))
"""Calculations whose equation gives their value."""


def is_name(expr: Expr) -> bool:
    """Whether an expression names a quantity, so that its equation gives an answer rather than is one.

    A function does if applied to letters or numbers: ``f(x)``, ``f(2)``, but not ``f(2x)``.
    """
    if expr.op in ("sym", "text", "choice"):
        return True
    if is_unknown_function(expr):
        return expr.name in _COMPUTED or not symbols(expr) or _is_plain(expr)
    if expr.op == "f" and expr.name in _OF_SEVERAL:
        return True
    if expr.op == "f":
        # sin A, but not sin f(x)
        of_function = any(arg.op == "f" and symbols(arg) for arg in expr.args)
        return expr.name in _MEASURED and not of_function and all(map(is_name, expr.args))
    if expr.op in ("tuple", "ratio"):
        return all(map(is_name, expr.args))
    # AB/CD and dy/dx
    if expr.op == "/":
        return all(map(_is_segment, expr.args))
    return _is_segment(expr) or _is_application(expr)


def named_value(expr: Expr) -> Expr:
    """The value of a named quantity or of an equation of numbers; anything else unchanged."""
    if not is_equation(expr):
        return expr
    left, value = expr.args
    of_constants = is_constant(left) and is_constant(value)
    return value if is_name(left) or of_constants else expr


def quantity_value(equation: Expr) -> Expr | None:
    r"""The value of an equation whose left side is a compound quantity: ``a+b+c=12``, ``\sin 2\theta=1``.

    None if the equation could be solved for its only letter (``2x=10``), or is that of a curve or plane (``x+z=1``).
    """
    if not is_equation(equation):
        return None
    left, value = equation.args
    if value.op == "residue":
        return _remainder(left, value)
    if symbols(value):
        return None
    if (left.op == "f" and left.name in _CIRCULAR) or _is_call(left):
        return value
    is_composed = left.op in _COMPOSED and not left.name.startswith("?")
    # f(1)+f(2)=5 has no letters, but two unknowns.
    unknowns = symbols(left) | _values_of_functions(left)
    of_curve = unknowns <= _COORDINATES or value == ZERO
    is_quantity = is_composed and len(unknowns) > 1 and not of_curve
    return value if is_quantity else None


def _remainder(left: Expr, value: Expr) -> Expr | None:
    r"""The remainder that a congruence of numbers states, ``3^{100}\equiv 4\pmod 7``; None for anything else."""
    remainder, modulus = value.args
    if not is_constant(left) or remainder.op != "num" or modulus.op != "num":
        return None
    return remainder if 0 <= remainder.number < modulus.number else None


def _values_of_functions(expr: Expr) -> frozenset[str]:
    """Unknown functions at numbers, as ``f(3)``, each as its own name."""
    if is_unknown_function(expr):
        return frozenset() if symbols(expr) else frozenset((f"{expr.name}{expr.args}",))
    return frozenset().union(*map(_values_of_functions, expr.args))


def _is_call(expr: Expr) -> bool:
    r"""``\varphi(100)``, ``P(2)``, parsed as a product of a letter and a number in unusual order."""
    if expr.op != "*":
        return False
    # As a product, the number would be before the letter: 2P.
    letter, number = expr.args
    if letter.op != "sym" or number.op != "num":
        return False
    return letter.name[0].isupper() or letter.name[0] == "\\"


def _is_segment(expr: Expr) -> bool:
    """``AB``, ``dy``, ``m\\angle A``: letters that are one name together."""
    if expr.op == "sym":
        return expr.name[0].isupper() or expr.name[0] == "\\"
    if expr.op != "*":
        return False
    left, right = expr.args
    if _is_differential(expr) or left.name == r"\nabla":
        return True
    # m\angle A, the measure of an angle
    if left.op == "sym" and right.name.startswith(r"\angle"):
        return True
    return _is_segment(left) and _is_segment(right)


_DIFFERENTIALS = (sym("d"), sym(r"\partial"))


def _is_differential(expr: Expr) -> bool:
    r"""``dy``, ``\partial f``, ``d^2y``, ``dx^2``: with a quotient of two of them a derivative is named."""
    if expr.op != "*":
        return False
    sign, letter = map(_without_power, expr.args)
    return sign in _DIFFERENTIALS and letter.op == "sym"


def _without_power(expr: Expr) -> Expr:
    return expr.args[0] if expr.op == "^" and expr.args[1].op == "num" else expr


def _is_application(expr: Expr) -> bool:
    """``P(x)``, parsed as a product of two letters."""
    if expr.op != "*":
        return False
    function, argument = expr.args
    return function.op == argument.op == "sym" and function.name.isupper()


def name_first(relation: Expr) -> Expr:
    """``5=x`` as ``x=5``."""
    left, right = relation.args
    turned = is_name(right) and not (is_name(left) or is_function(left))
    return relation._replace(args=(right, left)) if turned else relation


def same_name(a: Expr, b: Expr) -> tuple[Expr, Expr] | None:
    """The values of two assignments to one name, with the arguments of functions renamed; None for two names.

    ``f(2x)`` is ``f(2t)``, not ``f(x)``. Words, ``y`` for ``f(x)``, and ``m`` for ``m(t)`` are not compared.
    """
    (left, x), (right, y) = a.args, b.args
    if left == right or "text" in (left.op, right.op):
        return x, y
    if is_function(left) and is_function(right):
        call, value = _numbered(left, x)
        other_call, other_value = _numbered(right, y)
        return (value, other_value) if call == other_call else None
    if not (_is_plain(left) or _is_plain(right)):
        return None
    names = {left.name, right.name}
    # The name of an unknown function begins with "?".
    letter = left.name.removeprefix("?")
    letter_and_function = names == {letter, f"?{letter}"}
    return (x, y) if letter_and_function or "y" in names else None


def is_function(expr: Expr) -> bool:
    """Whether an expression is a function of an argument: ``f(x)``, ``f(2x)``, ``P(x)``."""
    return is_unknown_function(expr) or _is_application(expr)


def _is_plain(expr: Expr) -> bool:
    """``f(x)``, ``P(x)`` and ``f(x,y)``: a function of distinct letters."""
    if not is_unknown_function(expr):
        return _is_application(expr)
    names = {arg.name for arg in expr.args if arg.op == "sym"}
    return len(names) == len(expr.args)


def _numbered(call: Expr, value: Expr) -> tuple[Expr, Expr]:
    """A function's call and value with the letters of its arguments numbered in order.

    Capital letters are events, sets or points, not variables: ``P(A)`` is not ``P(B)``.
    """
    # P(x) is parsed as a product, of which the first factor is the function.
    arguments = call.args[1:] if call.op == "*" else call.args
    letters = chain.from_iterable(map(_letters, arguments))
    variables = dict.fromkeys(letter for letter in letters if not letter[0].isupper())
    return with_numbered(call, variables), with_numbered(value, variables)


def _letters(expr: Expr) -> list[str]:
    """The letters of an expression in the order in which they are written."""
    if expr.op == "sym":
        return [expr.name]
    return list(chain.from_iterable(map(_letters, expr.args)))


def is_assignment(part: Expr) -> bool:
    """Whether an equation gives a named quantity its value."""
    return is_equation(part) and is_name(part.args[0])


def repeats_name(parts: tuple[Expr, ...]) -> bool:
    """Whether parts give one quantity several values (``x=1, x=2``), so that they are not a point."""
    names = [part.args[0] for part in parts if is_assignment(part)]
    return len(set(names)) < len(names)


def drop_indices(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The values of ``x_1=0, x_2=4`` if the other side is ``x=0, x=4`` without indices; else the parts unchanged."""
    indexed, plain = set(map(_assigned_name, a)), set(map(_assigned_name, b))
    if len(indexed) == 1:
        indexed, plain = plain, indexed
    # One side has one name only, the other one as many as values.
    if not len(plain) == 1 < len(indexed) == len(a):
        return a, b
    # A part that is no assignment has no name.
    stems = {name.partition("_")[0] for name in indexed}
    if stems != plain or plain == {""}:
        return a, b
    return assigned_values(a), assigned_values(b)


def assigned_values(assignments: Iterable[Expr]) -> tuple[Expr, ...]:
    """The values of equations for names."""
    return tuple(part.args[1] for part in assignments)


def _assigned_name(part: Expr) -> str:
    """The name to which an equation gives a value; empty for anything else."""
    return part.args[0].name if is_assignment(part) else ""


def in_name_order(parts: tuple[Expr, ...]) -> list[Expr]:
    """The values of parts; of assignments in the order of their names if these are consecutive, else as written.

    ``y=2, x=1`` is 1, 2 like the point (x, y), and so is ``x_2=2, x_1=1``; ``m=2, b=3`` is 2, 3.
    """
    names = [_assigned_name(part) for part in parts]
    values = [part.args[1] if is_assignment(part) else part for part in parts]
    positioned = zip(_name_positions(names), values, strict=True)
    # No two have the same position, so that values are never compared.
    return [value for _, value in sorted(positioned)]


def _name_positions(names: list[str]) -> list[int]:
    """The position of each name in a run of letters or indices without gaps; of other names as written."""
    as_written = list(range(len(names)))
    if not names:
        return as_written
    stems = {name.partition("_")[0] for name in names}
    # x_1, x_2 are ordered by their indices; x, y by their letters.
    keys = [name.partition("_")[2] for name in names] if len(stems) == 1 else names
    # Long indices are no numbers to count by.
    if all(key.isdecimal() and len(key) < 4 for key in keys):
        positions = [int(key) for key in keys]
    elif all(len(key) == 1 and key.isascii() and key.isalpha() for key in keys):
        positions = [ord(key) for key in keys]
    else:
        return as_written
    size = len(positions)
    distinct = len(set(positions)) == size
    without_gaps = max(positions) - min(positions) + 1 == size
    return positions if distinct and without_gaps else as_written


ARITHMETIC: frozenset[Op] = frozenset(("num", "sym", "const", "+", "*", "/", "^", "f", "sum", "prod"))
_PARTED: frozenset[Op] = frozenset(("list", "tuple", "set", "choice", "cases", "row", "family"))
_CONTRADICTION = Expr("raw", (Expr("text", name="contradiction"),))


@lru_cache(maxsize=4096)
def resolve_chains(expr: Expr) -> Expr:
    """The answer with the values of its chains; a ``raw`` node if two sides of one are different numbers."""
    if expr.op == "chain":
        relation, *sides = expr.args
        return resolve_chains(relation) if _agree(sides) else _CONTRADICTION
    if is_equation(expr):
        return expr if _agree(expr.args) else _CONTRADICTION
    if expr.op not in _PARTED:
        return expr
    parts = tuple(resolve_chains(part) for part in expr.args)
    for part in parts:
        if part.op == "raw":
            return part
    return expr._replace(args=parts)


def is_constant(expr: Expr) -> bool:
    """Whether an expression has a fixed value: no letters, no unknown functions."""
    return not symbols(expr) and not _has_unknown(expr)


def _has_unknown(expr: Expr) -> bool:
    return expr.name.startswith("?") or any(_has_unknown(arg) for arg in expr.args)


def _agree(sides: Sequence[Expr]) -> bool:
    """Whether all numeric sides are equal, those with a unit among those with the same unit."""
    first_of_unit: dict[str, Expr] = {}
    for side in sides:
        has_unit = side.op in ("unit", "percent")
        value = side.args[0] if has_unit else side
        if value.op not in ARITHMETIC or not is_constant(value):
            continue
        unit = f"{side.op} {side.name}" if has_unit else ""
        # Sides are compared with the first one of their unit.
        first = first_of_unit.setdefault(unit, value)
        if not _consistent(first, value):
            return False
    return True


def _consistent(a: Expr, b: Expr) -> bool:
    """Whether two numbers are equal, or one is the other rounded; true if undecided."""
    return same_value(a, b) is not False or _rounded(a, b) or _rounded(b, a)


def _rounded(exact: Expr, decimal: Expr) -> bool:
    """Whether a decimal is a number rounded, or after the point truncated, at its last digit."""
    unit = _last_place(decimal)
    if not unit:
        return False
    try:
        value = evaluate(exact, Point(FLOAT_FIELD, {}, real=True)).value
        real_value = math.nan if isinstance(value, complex) else float(value)
        lost = real_value - float(decimal.number)
    except (NotReal, Undecided, OverflowError):
        return True
    # The small terms here and below allow for the rounding of floats.
    if abs(lost) <= unit * (0.5 + 1e-9):
        return True
    # Truncation moves towards zero, so that the exact number is further out by less than one unit.
    further_out = lost if decimal.number > 0 else -lost
    return unit < 1 and 0 <= further_out < unit * (1 - 1e-9)


def _last_place(decimal: Expr) -> float:
    """The place value of the last non-zero digit of a decimal; 0 for other numbers."""
    if decimal.op != "num" or not decimal.number:
        return 0.0
    unit, value = 1.0, decimal.number
    # Move the point behind the last digit that is not 0; for a number that never ends, such as 1/3, stop somewhere.
    while value.denominator > 1 and unit > 1e-30:
        unit /= 10
        value *= 10
    # 1200 may be rounded to hundreds.
    while value.denominator == 1 and value.numerator % 10 == 0:
        unit *= 10
        value /= 10
    return unit if value.denominator == 1 else 0.0


MIN_RATIOS = 3
_DIRECTION = {"<": 1, r"\le": 1, ">": -1, r"\ge": -1}
_STRICT = ("<", ">")


def same_equation(a: Expr, b: Expr) -> bool:
    """Whether ``L=R`` is ``c(L'-R')=0`` for a constant c."""
    return constant_ratio(sub(*a.args), sub(*b.args)) is not None


def same_inequality(a: Expr, b: Expr) -> bool:
    """Whether two chains of ``<``, ``\\le``, ``\\ne`` are equal link by link, one of them possibly reversed."""
    first, second = _links(a), _links(b)
    if len(first) != len(second):
        return False
    backwards = second[::-1]
    return all(map(_same_link, first, second)) or all(map(_same_link, first, backwards))


def _links(relation: Expr) -> list[tuple[Expr, str]]:
    """The difference of each pair of neighbouring sides, and the sign between them."""
    differences = starmap(sub, pairwise(relation.args))
    return list(zip(differences, relation.name.split(), strict=True))


def _same_link(a: tuple[Expr, str], b: tuple[Expr, str]) -> bool:
    (x, sign), (y, other) = a, b
    ratio = constant_ratio(x, y)
    if ratio is None:
        return False
    if sign in _DIRECTION and other in _DIRECTION:
        alike = (sign in _STRICT) == (other in _STRICT)
        # A negative factor turns the sign around.
        return alike and _DIRECTION[sign] * _DIRECTION[other] * ratio > 0
    # x=0 and x\ne 0 hold for any multiple of x.
    any_multiple = sign in (r"\ne", "=")
    return sign == other and (any_multiple or ratio == 1)


def constant_difference(a: Expr, b: Expr) -> bool:
    """Whether two expressions in the same letters differ by a constant."""
    names = _common_letters(a, b)
    if not names:
        return False
    gaps = _real_values(sub(a, b), names)
    return _constant(gaps, at_least=MIN_RATIOS + 1) is not None


def constant_ratio(a: Expr, b: Expr) -> float | None:
    """The ratio of two expressions if it is constant and not zero; else None."""
    names = _common_letters(a, b)
    if not names:
        return None
    ratios = (ratio for ratio in _real_values(div(a, b), names) if ratio.value != 0)
    # One point more than needed, if there is one, is enough of them.
    ratio = _constant(islice(ratios, MIN_RATIOS + 1), at_least=MIN_RATIOS)
    return None if ratio is None else float(ratio.value)


def _common_letters(a: Expr, b: Expr) -> frozenset[str]:
    """The letters of two expressions in the same letters; empty for others."""
    names = symbols(a)
    return names if names == symbols(b) else frozenset()


def _constant(values: Iterable[Ball], at_least: int) -> Ball | None:
    """The value that so many points or more have in common; None if fewer have one, or two of them differ."""
    field = mp_field(BITS[0])
    common, count = None, 0
    for value in values:
        # To the first difference only, as each value is computed to many digits.
        if common is not None and agree_within_error(common, value, field) is not True:
            return None
        common = value
        count += 1
    return common if count >= at_least else None


def _real_values(expr: Expr, names: frozenset[str]) -> Iterator[Ball]:
    """The values of an expression at those sample points where it is real."""
    for values in sample_points(names, frozenset()):
        # Floats show fast where there is no value.
        quick = value_at(expr, FLOAT_FIELD, values, real=True)
        if quick in (None, "none"):
            continue
        ball = value_at(expr, mp_field(BITS[0]), values, real=True)
        if ball not in (None, "none") and not isinstance(ball.value, complex):
            yield ball
