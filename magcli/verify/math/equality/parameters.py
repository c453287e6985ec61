r"""Free parameters, whose names are arbitrary: ``k\pi, k\in\mathbb{Z}``, ``(1+t,2t)``, constants of integration.

A parameter is free if its domain is written on at least one side. Without a domain only these are free: integer
multiples of a period (``\pi k``, ``360^\circ n``), the parameter of a point on a line, and constants of integration.
``2n+1`` is not ``2k+1``, as ``n`` may be given. New names are unused ones, so that a parameter is never confused with
another letter.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, permutations

from magcli.verify.math.equality.evaluate import NotReal, Undecided
from magcli.verify.math.equality.identity import are_equal, symbols
from magcli.verify.math.equality.regions import as_float
from magcli.verify.math.latex.tree import (
    PI,
    Expr,
    add,
    div,
    equals,
    function,
    is_equation,
    mul,
    neg,
    num,
    parts_of,
    power,
    right_side,
    sub,
    substitute,
    sym,
    with_numbered,
)

MAX_PARAMETERS = 3
Pair = tuple[Expr, Expr]
WHOLE = frozenset("kmnlj")
_REAL = frozenset(("t", "s", "u", "v", "r", r"\lambda", r"\mu", r"\tau"))
_LETTERS = {"Z": WHOLE, "N": WHOLE, "R": _REAL | {"k"}, "C": _REAL | {"k"}}
"""Names of parameters in each domain if the domain is missing."""
_VARIABLES = frozenset(("x", "y", "z", "t", "u", "v", "s", "w", r"\theta", r"\phi"))
_CONSTANTS = frozenset(("C", "c", "constant", "const"))
_OTHER_CONSTANTS = frozenset("KkABD")
_NEIGHBOURS = frozenset("abdBD")
"""Letters next to which ``c`` is one of several coefficients."""


def matched(a: Expr, b: Expr) -> Iterator[Pair]:
    """Two answers, at least one a family, without domains and with common names of parameters."""
    if a.op != "family":
        a, b = b, a
    value = a.args[0]
    mine = [parameter.name for parameter in a.args[1:]]
    if b.op == "family":
        # The name of a family has one letter for the domain of each parameter.
        theirs = [parameter.name for parameter in b.args[1:]]
        domain_of = dict(zip(theirs, b.name, strict=True))
        for order in permutations(domain_of):
            domains = [domain_of[name] for name in order]
            if domains == list(a.name):
                yield _aligned(value, mine, b.args[0], order)
        return
    # The other side has no domains: its parameters are the letters that the family calls so, and the usual ones.
    own = symbols(value)
    used = [name for name in mine if name in own]
    usual_of_domains = (_LETTERS.get(domain, frozenset()) for domain in a.name)
    usual = frozenset().union(*usual_of_domains) - own
    free = []
    for name in sorted(symbols(b)):
        is_usual = name in usual and not _is_counted(b, name)
        if name in mine or is_usual:
            free.append(name)
    if len(free) != len(used):
        return
    # Periods are counted in whole steps: with a real parameter on one side, k\pi on the other is another set.
    if set("ZN").issuperset(a.name) or not _is_periodic(b) or set(free) <= _REAL:
        for order in permutations(free):
            yield _aligned(value, used, b, order)


def bound(builder: Expr) -> Expr:
    r"""A set builder with its bound letters numbered, as their names are arbitrary."""
    head = builder.args[0]
    if head.op == "rel":
        # {x \in \mathbb{R} : ...}
        head = head.args[0]
    letters = parts_of(head, "tuple")
    if any(letter.op != "sym" for letter in letters):
        return builder
    return with_numbered(builder, (letter.name for letter in letters))


def implied_parameters(a: Expr, b: Expr) -> Iterator[Pair]:
    """Two answers without domains, with a common name for what can only be the same free parameter."""
    x, y = _letters(a), _letters(b)
    if not x or not y:
        return
    only_in_a, only_in_b = x - y, y - x
    if len(only_in_a) == len(only_in_b) == 1:
        (name,), (other_name,) = only_in_a, only_in_b
        names = {name, other_name}
        counts_periods = names <= WHOLE and _is_periodic(a) and _is_periodic(b)
        moves_point = names <= _REAL and _moves(a, name) and _moves(b, other_name)
        if counts_periods or moves_point:
            yield _aligned(a, only_in_a, b, only_in_b)
    mine, theirs = _integration_constants(x, y), _integration_constants(y, x)
    if not 0 < len(mine) == len(theirs) <= MAX_PARAMETERS:
        return
    common = x.difference(mine) & y.difference(theirs)
    # The constant must be added to a function of something, and not be one of its coefficients.
    if common & _VARIABLES and not common & _NEIGHBOURS:
        for order in permutations(theirs):
            yield _aligned(a, mine, b, order)


def _letters(expr: Expr) -> frozenset[str]:
    """The letters of the values of an answer, without the names before them."""
    if is_equation(expr) and expr.args[0].op in ("sym", "tuple"):
        return symbols(expr.args[1])
    if expr.op == "list":
        return frozenset().union(*map(_letters, expr.args))
    return symbols(expr)


def _is_counted(expr: Expr, letter: str) -> bool:
    """Whether an answer is a formula for a sequence, ``a_n=2n+1``, in which the letter is given."""
    if expr.op != "rel":
        return False
    name = expr.args[0]
    return name.op == "sym" and name.name.endswith(f"_{letter}")


def _aligned(a: Expr, mine: Iterable[str], b: Expr, theirs: Iterable[str]) -> Pair:
    """Two answers whose parameters, in these orders, have common names that no answer has."""
    return with_numbered(a, mine), with_numbered(b, theirs)


def _is_periodic(expr: Expr) -> bool:
    r"""Whether ``\pi`` or degrees occur, so that an integer may count periods."""
    in_degrees = expr.op == "unit" and expr.name == "degree"
    return expr == PI or in_degrees or any(map(_is_periodic, expr.args))


def _moves(expr: Expr, parameter: str) -> bool:
    """Whether an answer has coordinates, at least two of which depend on the parameter and none on another letter."""
    if expr.op == "rel":
        return is_equation(expr) and _moves(expr.args[1], parameter)
    if expr.op not in ("tuple", "matrix", "list"):
        return False
    coordinates = expr.args
    # x=1+t, y=2t
    if expr.op == "list" and all(part.op == "rel" and part.args[0].op == "sym" for part in expr.args):
        coordinates = tuple(part.args[-1] for part in expr.args)
    letters_of_moving = list(filter(None, map(symbols, coordinates)))
    # With one moving coordinate the parameter would be the unknown: (x, 2).
    return len(letters_of_moving) > 1 and set().union(*letters_of_moving) == {parameter}


def shifted(a: Expr, b: Expr) -> bool:
    r"""Whether two expressions in one integer parameter have the same values: ``\pi/2+k\pi``, ``-\pi/2+k\pi``."""
    both_equations = is_equation(a) and is_equation(b)
    if both_equations and a.args[0] == b.args[0]:
        return shifted(a.args[1], b.args[1])
    if (a.op == "rel") != (b.op == "rel"):
        a, b = right_side(a), right_side(b)
    if "?0" not in symbols(a) & symbols(b):
        return False
    first, step = progression(a)
    other_first, other_step = progression(b)
    if not are_equal(other_step, step) and not are_equal(other_step, neg(step)):
        return False
    # The progressions meet if their first terms are a whole number of steps apart.
    gap = sub(other_first, first)
    try:
        steps = round(as_float(div(gap, step)))
    except (Undecided, NotReal, OverflowError):
        return False
    is_whole_number_of_steps = are_equal(gap, mul(num(steps), step))
    return is_whole_number_of_steps and is_linear(a) and is_linear(b)


def progression(expr: Expr) -> tuple[Expr, Expr]:
    """The value at 0 and the step."""
    first, second = at_index(expr, 0), at_index(expr, 1)
    return first, sub(second, first)


def is_linear(expr: Expr) -> bool:
    """Whether an expression is linear in its parameter ``?0``, or does not depend on it."""
    first, step = progression(expr)
    # A line through the values at 0 and 1; two more points rule out the usual curves.
    for n in (2, 7):
        on_line = add([first, mul(num(n), step)])
        if not are_equal(at_index(expr, n), on_line):
            return False
    return True


def at_index(expr: Expr, n: int) -> Expr:
    """The expression at a value of its parameter."""
    return substitute(expr, sym("?0"), num(n))


def is_whole(a: Expr, b: Expr) -> bool:
    """Whether the one parameter of two families is any integer; if one side has no domain, of a period."""
    sides = (a, b)
    domains = {side.name for side in sides if side.op == "family"}
    return domains == {"Z"} and all(side.op == "family" or _is_periodic(side) for side in sides)


def as_family(expr: Expr) -> Expr:
    r"""``n \equiv 3 \pmod 7`` as ``n=3+7r, r \in \mathbb{Z}``; anything else unchanged."""
    residue = right_side(expr)
    if residue.op != "residue":
        return expr
    remainder, modulus = residue.args
    letter = sym("?r")
    value = add([remainder, mul(modulus, letter)])
    body = value if residue is expr else equals(expr.args[0], value)
    return Expr("family", (body, letter), "Z")


def with_whole_parameter(expr: Expr) -> Expr:
    """``n=4k+1`` as a family of the integers ``k`` if that is its only letter; anything else unchanged."""
    letters = symbols(expr.args[1] if expr.op == "rel" else expr)
    if expr.op in ("family", "residue") or len(letters) != 1 or not letters <= WHOLE:
        return expr
    (letter,) = letters
    return Expr("family", (expr, sym(letter)), "Z")


def _integration_constants(own: frozenset[str], other: frozenset[str]) -> list[str]:
    """The symbols of one side that are constants of integration, given that the other side has such constants."""
    usual = [name for name in sorted(own) if is_constant_name(name)]
    if usual:
        return usual
    # Other letters stand for a constant only if the other side has C or C_1, as c may be a coefficient.
    explicit = any(name == "C" or "_" in name for name in other if is_constant_name(name))
    if not explicit:
        return []
    return sorted((own - other) & _OTHER_CONSTANTS)


def is_constant_name(name: str) -> bool:
    """Whether a letter is usually a constant of integration: ``C``, ``c``, ``C_1``."""
    stem, _, index = name.partition("_")
    return name in _CONSTANTS or (stem in ("C", "c") and index.isdecimal())


@lru_cache(maxsize=4096)
def expand_signs(expr: Expr) -> Expr:
    """The answer with every ``\\pm`` expanded to a list of both readings (all signs change together)."""
    if expr.op == "family":
        return expr
    if expr.op == "builder" and any(map(_has_sign, expr.args[1:])):
        head, *relations = expr.args
        conditions = chain.from_iterable(map(_conditions, relations))
        return expr._replace(args=(head, *conditions))
    if expr.op in ("list", "set"):
        values = chain.from_iterable(map(_readings, expr.args))
        return expr._replace(args=tuple(values))
    if is_equation(expr) and _both_tuples(expr):
        return by_entries(*expr.args)
    readings = _readings(expr)
    return readings[0] if len(readings) == 1 else Expr("list", readings)


def by_entries(names: Expr, values: Expr) -> Expr:
    """Two tuples of one size as equations for their entries: ``(x,y)=(1,2)`` is ``x=1, y=2``."""
    return Expr("list", tuple(map(equals, names.args, values.args)))


def _conditions(relation: Expr) -> tuple[Expr, ...]:
    r"""The conditions of a set: ``x \ne \pm 1`` excludes both; other relations hold for either sign."""
    readings = _readings(relation)
    if len(readings) == 1 or relation.name == r"\ne":
        return readings
    return (Expr("list", readings, "or"),)


def _both_tuples(relation: Expr) -> bool:
    """Whether an equation gives letters their values by position, ``(x,y)=(1,2)``."""
    left, right = relation.args
    if not left.op == right.op == "tuple" or len(left.args) != len(right.args):
        return False
    return all(name.op == "sym" for name in left.args)


def _readings(expr: Expr) -> tuple[Expr, ...]:
    r"""An expression with the upper signs of its ``\pm`` and with the lower ones; without any, itself."""
    if not _has_sign(expr):
        return (expr,)
    return tuple(_signed(expr, upper=upper) for upper in (True, False))


@lru_cache(maxsize=4096)
def _has_sign(expr: Expr) -> bool:
    return expr.op == "pm" or any(map(_has_sign, expr.args))


def _signed(expr: Expr, *, upper: bool) -> Expr:
    """The reading with the upper or the lower signs, rebuilt so that numbers are evaluated."""
    if not _has_sign(expr):
        return expr
    args = [_signed(arg, upper=upper) for arg in expr.args]
    if expr.op == "pm":
        # The upper sign of \pm is +, that of \mp is -.
        is_plus = (expr.name == "pm") == upper
        return args[0] if is_plus else neg(args[0])
    if expr.op == "+":
        return add(args)
    if expr.op == "f":
        return function(expr.name, *args)
    builder = {"*": mul, "/": div, "^": power}.get(expr.op)
    return builder(args[0], args[1]) if builder else expr._replace(args=tuple(args))
