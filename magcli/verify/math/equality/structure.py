"""Comparing answers part by part: units, lists, tuples, sets, matrices, relations, choices, words.

Every rule is symmetric and returns the name of the comparison that decided: ``number``, ``numeric``, ``unit``,
``structure``, ``region``, ``equation``, ``words``, ``choice``, ``literal``.
"""

from collections.abc import Callable, Iterable

from magcli.verify.math.equality.equations import (
    ARITHMETIC,
    drop_indices,
    in_name_order,
    is_assignment,
    is_constant,
    is_function,
    is_name,
    repeats_name,
    same_equation,
    same_inequality,
    same_name,
)
from magcli.verify.math.equality.identity import same_value, symbols
from magcli.verify.math.equality.lines import multiple_of_identity, same_line
from magcli.verify.math.equality.literals import ComparePart, Decision, bases, choices, ratios, texts, values
from magcli.verify.math.equality.names import by_name, names_structure, ordered_numbers
from magcli.verify.math.equality.parameters import WHOLE, bound, expand_signs, is_whole, matched, shifted
from magcli.verify.math.equality.quantities import entries, same_vector, strip_unit
from magcli.verify.math.equality.regions import defines_absolute_value, has_inequalities, region, same_region
from magcli.verify.math.latex.tree import PI, Expr, Op, add, div, mul, num, rename_symbol
from magcli.verify.math.latex.units import DOUBLE_PRIME, PRIME, compatible

MAX_NESTING = 8
MAX_UNORDERED = 60
"""Longer lists are compared in order."""
Compare = Callable[[Expr, Expr, int], Decision]
_SETS: frozenset[Op] = frozenset((r"\cup", r"\cap", r"\setminus", "builder", "set-name"))
_SINGLE: frozenset[Op] = frozenset(("choice", "base", "text", "unit", "percent", "ratio", "num", "const"))
_SUMS: frozenset[Op] = frozenset(("+", "*"))
_PARTED: frozenset[Op] = frozenset(("list", "set", "tuple"))


def same(a: Expr, b: Expr, depth: int = MAX_NESTING) -> Decision:
    """Whether two answers are the same, and which comparison decided."""
    if a == b:
        return a.op != "raw", "number" if a.op == "num" else "same"
    if depth == 0:
        return False, "too-deep"
    a, b = _drop_assignment(expand_signs(a), expand_signs(b))
    if a == b:
        return True, "same"
    ops = {a.op, b.op}
    for kinds, rule in _RULES:
        if ops & kinds:
            return rule(a, b, depth - 1)
    return values(a, b)


def _drop_assignment(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """``x=5`` compared with a single answer is 5; ``x \\in \\{1,2\\}`` compared with a list is that set."""
    for one, other in ((a, b), (b, a)):
        if one.op == "rel" and one.name == r"\in" and one.args[1].op == "set" and other.op in ("list", "set"):
            return (one.args[1], other) if other is b else (other, one.args[1])
        if _names_set(one) and other.op in ("list", "set"):
            return (one.args[1], other) if other is b else (other, one.args[1])
        if one.op == "rel" and one.name == "=" and other.op in _SINGLE:
            one = _name_first(one)
            if is_name(one.args[0]):
                return (one.args[1], other) if other is b else (other, one.args[1])
    return a, b


def _names_set(expr: Expr) -> bool:
    r"""Whether an answer is a name and its set: ``L=\{1,2\}``."""
    return expr.op == "rel" and expr.name == "=" and expr.args[1].op == "set" and is_name(expr.args[0])


def _families(a: Expr, b: Expr, depth: int) -> Decision:
    """Answers with free parameters, up to renaming."""
    a, b = _as_family(a), _as_family(b)
    whole, real = is_whole(a, b), a.name == b.name == "R"
    return any(
        same(x, y, depth)[0] or (whole and _progressions(x, y)) or (real and same_line(x, y)) for x, y in matched(a, b)
    ), "parameter"


def _progressions(a: Expr, b: Expr) -> bool:
    """Arithmetic progressions, whichever of their terms has index 0."""
    x, y = (side.args if side.op == "list" else (side,) for side in (expand_signs(a), expand_signs(b)))
    return _match_all(x, y, shifted)


def _units(a: Expr, b: Expr, depth: int) -> Decision:
    """A unit may be missing on one side; two must be the same. For degrees and percentages see ``_converted``."""
    if a.op not in ("unit", "percent"):
        a, b = b, a
    if b.op in ("list", "rel", "choice", "set", "tuple"):
        return _unit_with_structure(a, b, depth)
    if a.op == "unit" and b.op in ("*", "/", "^") and (value := strip_unit(b, a.name)):
        return same(a.args[0], value, depth)
    if {a.name, b.name} == {"degree", "radian"} and a.op == b.op:
        degrees, radians = (a, b) if a.name == "degree" else (b, a)
        return same_value(_in_radians(degrees.args[0]), radians.args[0]) is True, "unit"
    if b.op in ("unit", "percent"):
        alike = a.op == b.op and compatible(a.name, b.name)
        return same(a.args[0], b.args[0], depth) if alike else (False, "unit")
    omissible = a.name not in (PRIME, DOUBLE_PRIME) if a.op == "unit" else b.op != "num" or abs(b.number) >= 1
    same_body, path = same(a.args[0], b, depth)
    return (same_body and omissible) or _converted(a, b), "percent" if a.op == "percent" else path


def _unit_with_structure(a: Expr, b: Expr, depth: int) -> Decision:
    """A value with a unit compared with a relation, a choice or a set of one."""
    if b.op == "rel":
        return _relations(a, b, depth)
    if b.op == "list" and a.args[0].op == "list":
        return same(a.args[0], b, depth)
    return same(a, b.args[0], depth) if len(b.args) == 1 else (False, "structure")


def _converted(a: Expr, b: Expr) -> bool:
    """``50%`` is 1/2 and ``90^\\circ`` is ``\\pi/2``; ``300%`` is not 3, which may be a percentage itself."""
    if a.op == "percent":
        value = div(a.args[0], num(100))
        fits = b.op != "num" or b.number.denominator > 1 or abs(b.number) <= 1
        return fits and same_value(value, b) is True
    turned = a.name == "degree" and b.op != "num" and not symbols(b)
    return turned and same_value(_in_radians(a.args[0]), b) is True


def _in_radians(degrees: Expr) -> Expr:
    return mul(degrees, div(PI, num(180)))


def _relations(a: Expr, b: Expr, depth: int) -> Decision:
    if a.op == b.op == "rel" and a.name == b.name and a.name in _STRUCTURAL:
        return _structural(a, b, depth), "relation"
    if a.op == b.op == "rel" and a.name == b.name == "=":
        return _equations(_name_first(a), _name_first(b), depth)
    for one, other in ((a, b), (b, a)):
        if one.op == "rel" and one.name == "=":
            one = _name_first(one)
            if other.op != "rel" or region(other) is not None:
                named = is_name(one.args[0]) or all(map(is_constant, one.args)) or names_structure(one)
                return same(one.args[1], other, depth) if named else (False, "equation")
    x, y = region(a), region(b)
    if x is not None and y is not None:
        return same_region(x, y), "region"
    if r"\in" in (a.name, b.name):
        return _memberships(a, b, depth)
    if a.op == b.op == "rel":
        return same_inequality(a, b), "inequality"
    return _structures(a, b, depth) if {a.op, b.op} & _PARTED else (False, "relation")


_SYMMETRIC = frozenset((r"\iff", r"\parallel", r"\perp", r"\sim", r"\cong"))
_STRUCTURAL = _SYMMETRIC | {r"\to", r"\subseteq", r"\subset", "mid"}
"""Relations whose sides are compared as they are, not as a difference."""


def _structural(a: Expr, b: Expr, depth: int) -> bool:
    """Whether two relations of logic, sets or geometry have the same sides, of symmetric ones in any order."""
    if _in_order(a.args, b.args, depth)[0]:
        return True
    return a.name in _SYMMETRIC and _in_order(a.args[::-1], b.args, depth)[0]


def _name_first(relation: Expr) -> Expr:
    """``5=x`` as ``x=5``."""
    left, right = relation.args
    turned = is_name(right) and not (is_name(left) or is_function(left))
    return relation._replace(args=(right, left)) if turned else relation


def _equations(a: Expr, b: Expr, depth: int) -> Decision:
    """Assignments by name and value, other equations as a whole."""
    if (a.args[1].op == "residue") != (b.args[1].op == "residue"):
        return _families(_with_whole_parameter(a), _with_whole_parameter(b), depth)
    if all(is_name(side.args[0]) or is_function(side.args[0]) for side in (a, b)):
        rename_symbol = same_name(a, b)
        if rename_symbol is not None:
            return same(rename_symbol[0], rename_symbol[1], depth)
    if any(side.op not in ARITHMETIC for relation in (a, b) for side in relation.args):
        pairs = zip(a.args, b.args, strict=True)
        return all(same(x, y, depth)[0] for x, y in pairs), "equation"
    return same_equation(a, b), "equation"


def _memberships(a: Expr, b: Expr, depth: int) -> Decision:
    """``x \\in S`` is ``S``."""
    if a.op == b.op == "rel" and a.args[0] != b.args[0]:
        return False, "relation"
    x, y = (side.args[1] if side.op == "rel" and side.name == r"\in" else side for side in (a, b))
    return same(x, y, depth)


def _sets(a: Expr, b: Expr, depth: int) -> Decision:
    x, y = region(a), region(b)
    if x is not None and y is not None:
        return same_region(x, y), "region"
    if a.op == b.op and a.op in (r"\cup", r"\cap"):
        return _any_order(_flatten(a, a.op), _flatten(b, a.op), depth), "structure"
    if a.op == b.op == "builder" and len(a.args) == len(b.args):
        head, *conditions = bound(a).args
        other, *others = bound(b).args
        return same(head, other, depth)[0] and _any_order(tuple(conditions), tuple(others), depth), "structure"
    if a.op == b.op and a.op == r"\setminus":
        return all(same(p, q, depth)[0] for p, q in zip(a.args, b.args, strict=True)), "structure"
    if "rel" in (a.op, b.op):
        return _relations(a, b, depth)
    return False, "region"


def _flatten(expr: Expr, op: Op) -> tuple[Expr, ...]:
    return tuple(p for arg in expr.args for p in _flatten(arg, op)) if expr.op == op else (expr,)


def _structures(a: Expr, b: Expr, depth: int) -> Decision:
    """Lists and sets in any order, tuples in order; a single answer is a one-element list."""
    if {a.op, b.op} <= {"list", "set"} and _are_alternatives(a) != _are_alternatives(b):
        return False, "structure"
    if "rel" in (a.op, b.op) and (ordered := ordered_numbers(a) or ordered_numbers(b)):
        return _in_order(ordered, (b if a.op == "rel" else a).args, depth)
    if any(has_inequalities(side) or (side.op == "list" and side.name) for side in (a, b)):
        return _conjunctions(a, b, depth)
    if {a.op, b.op} == {"tuple", "matrix"}:
        return _vectors(a, b, depth)
    if a.op == b.op == "tuple":
        return _tuples(a, b, depth)
    if "tuple" in (a.op, b.op) and {a.op, b.op} & _SUMS:
        return same_vector(a, b), "structure"
    if {a.op, b.op} <= _PARTED and _only_one_side_is_named(a, b):
        return _coordinates(a, b, depth)
    if "tuple" in (a.op, b.op):
        one, other = (a, b) if a.op == "tuple" else (b, a)
        single = other.args if other.op in ("list", "set") else (other,)
        is_ordered = one.name == "()" or (one.name == "[]" and len(one.args) > 2)  # [0,1] may be an interval
        if other.op == "list" and is_ordered and not repeats_name(other.args):
            return _in_order(one.args, in_name_order(other.args), depth)
        return same(one, single[0], depth) if len(single) == 1 and other.op != single[0].op else (False, "structure")
    x, y = (side.args if side.op in ("list", "set") else (side,) for side in (a, b))
    if len(x) == len(y) > 1 and any(part.op == "set" for part in x) != any(part.op == "set" for part in y):
        return False, "structure"  # {1}, {2} is not {1, 2}
    x, y = _distinct_points(x), _distinct_points(y)
    if len(x) != len(y):
        return False, "structure"
    x, y = drop_indices(x, y)
    if (paired := by_name(x, y)) is not None:
        return _in_order(*paired, depth)
    return (_in_order(x, y, depth)[0] if len(x) > MAX_UNORDERED else _any_order(x, y, depth)), "structure"


def _are_alternatives(expr: Expr) -> bool:
    """Whether an answer is one label or the other, ``A or C``."""
    return expr.op == "list" and expr.name == "or" and all(part.op != "rel" for part in expr.args)


def _conjunctions(a: Expr, b: Expr, depth: int) -> Decision:
    """Relations joined by ``and`` or ``or``: the same region, or the same relations with the same conjunction.

    Inequalities without a conjunction (``x>0, y>0``) are joined by ``and``.
    """
    x, y = region(a), region(b)
    if x is not None and y is not None:
        return same_region(x, y), "region"
    if a.op == b.op == "list":
        restricted = has_inequalities(a) or has_inequalities(b)
        words = [side.name or "and" * restricted for side in (a, b)]
        if restricted or (all(words) and words[0] != words[1]):
            alike = words[0] == words[1] and len(a.args) == len(b.args)
            return alike and _any_order(a.args, b.args, depth), "relation"
    elif has_inequalities(a) or has_inequalities(b):
        return False, "relation"
    bare = [side._replace(name="") if side.op == "list" else side for side in (a, b)]
    return _structures(bare[0], bare[1], depth)


def _tuples(a: Expr, b: Expr, depth: int) -> Decision:
    long = len(a.args) > 2 and a.name[0] + b.name[0] in ("([", "[(") and {a.name, b.name} == {"()", "[]"}
    if len(a.args) != len(b.args) or (a.name != b.name and not long):
        return False, "structure"
    return _in_order(a.args, b.args, depth)


def _vectors(a: Expr, b: Expr, depth: int) -> Decision:
    """A matrix of one row or column compared with a tuple, unless ``[a,b]`` is an interval."""
    x, y = entries(a), entries(b)
    return bool(x and y) and _in_order(x, y, depth)[0], "structure"


def _distinct_points(parts: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """The parts, once each if all are points."""
    return tuple(dict.fromkeys(parts)) if all(part.op == "tuple" for part in parts) else parts


def _only_one_side_is_named(a: Expr, b: Expr) -> bool:
    """Whether only one side names its values (``a=1, b=2``), so that the order of the others matters.

    Values of one letter (``x_1=1, x_2=2``) and named points (``A(1,2), B(3,4)``) may be in any order.
    """
    named = [_assigned_letters(a), _assigned_letters(b)]
    if all(part.op != "rel" or part.args[-1].op == "tuple" for side in (a, b) for part in side.args):
        return False
    full = [len(names) == len(side.args) > 1 for names, side in zip(named, (a, b), strict=True)]
    return (full[0] and not named[1]) or (full[1] and not named[0])


def _assigned_letters(side: Expr) -> set[str]:
    """The names that a list assigns values to, without their indices."""
    return {part.args[0].name.partition("_")[0] for part in side.args if is_assignment(part)}


def _coordinates(a: Expr, b: Expr, depth: int) -> Decision:
    """Named values compared with bare ones in the order of the names; ``[1,2]`` is an interval, not a point."""
    if any(side.op == "tuple" and side.name != "()" and len(side.args) == 2 for side in (a, b)):
        return False, "structure"
    return _in_order(in_name_order(a.args), in_name_order(b.args), depth)


def _in_order(a: "tuple[Expr, ...] | list[Expr]", b: "tuple[Expr, ...] | list[Expr]", depth: int) -> Decision:
    return len(a) == len(b) and all(same(x, y, depth)[0] for x, y in zip(a, b, strict=True)), "structure"


def _any_order(a: tuple[Expr, ...], b: tuple[Expr, ...], depth: int) -> bool:
    """Whether the parts match one to one; identical ones are paired first, for speed."""
    left, rest = list(b), []
    for part in a:
        if part in left:
            left.remove(part)
        else:
            rest.append(part)
    return _match_all(rest, left, lambda x, y: same(x, y, depth)[0])


def _match_all(a: Iterable[Expr], b: Iterable[Expr], equal: Callable[[Expr, Expr], bool]) -> bool:
    """Whether each part has a partner of its own, chosen greedily."""
    left = list(b)
    for part in a:
        match = next((at for at, other in enumerate(left) if equal(part, other)), None)
        if match is None:
            return False
        del left[match]
    return not left


def _matrices(a: Expr, b: Expr, depth: int) -> Decision:
    if a.op in ARITHMETIC or b.op in ARITHMETIC:
        matrix, expr = (a, b) if a.op == "matrix" else (b, a)
        return _is_identity_times(matrix, expr, depth) or (expr.op in _SUMS and same_vector(a, b)), "structure"
    alike = a.op == b.op and len(a.args) == len(b.args)
    return alike and all(_in_order(x.args, y.args, depth)[0] for x, y in zip(a.args, b.args, strict=True)), "structure"


def _is_identity_times(matrix: Expr, expr: Expr, depth: int) -> bool:
    """Whether a square matrix is a multiple of the identity ``I``."""
    factor, size = multiple_of_identity(expr), len(matrix.args)
    if factor is None or any(len(row.args) != size for row in matrix.args):
        return False
    rows = [Expr("row", tuple(factor if i == j else num(0) for j in range(size))) for i in range(size)]
    return _matrices(matrix, Expr("matrix", tuple(rows)), depth)[0]


def _cases(a: Expr, b: Expr, depth: int) -> Decision:
    """Rows of a piecewise function in any order, or an absolute value; a name may precede the brace."""
    if a.op == b.op and len(a.args) == len(b.args):
        return _any_order(a.args, b.args, depth), "structure"
    if a.op in ARITHMETIC or b.op in ARITHMETIC:
        return defines_absolute_value(*((a, b) if a.op == "cases" else (b, a))), "structure"
    return (False, "structure") if "rel" not in (a.op, b.op) else _relations(a, b, depth)


def _formulas(a: Expr, b: Expr, depth: int) -> Decision:
    r"""Formulas of logic: operands of a connective in any order, bound letters under any name."""
    if a.op != b.op or len(a.args) != len(b.args):
        return False, "logic"
    if a.op in ("forall", "exists"):
        x, y = (rename_symbol(side, side.args[0].name, f"?{depth}") for side in (a, b))
        return all(same(p, q, depth)[0] for p, q in zip(x.args, y.args, strict=True)), "logic"
    return _any_order(_flatten(a, a.op), _flatten(b, b.op), depth), "logic"


def _residues(a: Expr, b: Expr, depth: int) -> Decision:
    r"""``3 \pmod 7`` is ``-4 \pmod 7``."""
    if a.op != b.op:
        return _families(_with_whole_parameter(a), _with_whole_parameter(b), depth)
    (x, modulus), (y, other) = a.args, b.args
    if all(side.op == "num" and side.number.denominator == 1 for side in (x, y, modulus, other)):
        size = abs(modulus.number)
        return size == abs(other.number) != 0 and (x.number - y.number) % size == 0, "residue"
    return same(modulus, other, depth)[0] and same(x, y, depth)[0], "residue"


def _as_family(expr: Expr) -> Expr:
    r"""``n \equiv 3 \pmod 7`` as ``n=3+7r, r \in \mathbb{Z}``; anything else unchanged."""
    residue = expr.args[1] if expr.op == "rel" and expr.name == "=" else expr
    if residue.op != "residue":
        return expr
    letter = Expr("sym", name="?r")
    value = add([residue.args[0], mul(residue.args[1], letter)])
    body = value if residue is expr else expr._replace(args=(expr.args[0], value))
    return Expr("family", (body, letter), "Z")


def _with_whole_parameter(expr: Expr) -> Expr:
    """``n=4k+1`` as a family of the integers ``k`` if that is its only letter; anything else unchanged."""
    letters = symbols(expr.args[1] if expr.op == "rel" else expr)
    if expr.op in ("family", "residue") or len(letters) != 1 or not letters <= WHOLE:
        return expr
    return Expr("family", (expr, Expr("sym", name=next(iter(letters)))), "Z")


def _rows(a: Expr, b: Expr, depth: int) -> Decision:
    return _in_order(a.args, b.args, depth) if a.op == b.op else (False, "structure")


def _with_compare(rule: Callable[[Expr, Expr, ComparePart], Decision]) -> Compare:
    """A rule that receives a comparison of parts instead of the depth."""
    return lambda a, b, depth: rule(a, b, lambda x, y: same(x, y, depth))


_RULES: tuple[tuple[frozenset[Op], Compare], ...] = (
    (frozenset(("raw",)), lambda a, b, _: (False, "unparsable")),
    (frozenset(("family",)), _families),
    (frozenset(("and", "or", "xor", "not", "forall", "exists")), _formulas),
    (frozenset(("choice",)), _with_compare(choices)),
    (frozenset(("base",)), _with_compare(bases)),
    (frozenset(("text",)), _with_compare(texts)),
    (frozenset(("unit", "percent")), _units),
    (frozenset(("cases",)), _cases),
    (frozenset(("list",)), _structures),
    (_SETS, _sets),
    (frozenset(("rel",)), _relations),
    (frozenset(("set", "tuple")), _structures),
    (frozenset(("matrix",)), _matrices),
    (frozenset(("row",)), _rows),
    (frozenset(("residue",)), _residues),
    (frozenset(("ratio",)), _with_compare(ratios)),
)
