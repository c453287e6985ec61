"""Comparing answers part by part: units, lists, tuples, sets, matrices, relations, choices, words.

Every rule is symmetric and returns the name of the comparison that decided: ``number``, ``numeric``, ``unit``,
``structure``, ``region``, ``equation``, ``words``, ``choice``, ``literal``.
"""

from collections.abc import Callable, Iterable, Sequence

from magcli.verify.math.equality.equations import (
    ARITHMETIC,
    drop_indices,
    in_name_order,
    is_assignment,
    is_constant,
    is_function,
    is_name,
    name_first,
    repeats_name,
    same_equation,
    same_inequality,
    same_name,
)
from magcli.verify.math.equality.identity import are_equal
from magcli.verify.math.equality.lines import multiple_of_identity, same_line
from magcli.verify.math.equality.literals import ComparePart, Decision, bases, choices, ratios, texts, values
from magcli.verify.math.equality.names import by_name, names_structure, ordered_numbers
from magcli.verify.math.equality.parameters import (
    as_family,
    bound,
    expand_signs,
    is_whole,
    matched,
    shifted,
    with_whole_parameter,
)
from magcli.verify.math.equality.quantities import entries, in_radians, is_converted, is_point, same_vector, strip_unit
from magcli.verify.math.equality.regions import defines_absolute_value, has_inequalities, region, same_region
from magcli.verify.math.latex.tree import (
    ZERO,
    Expr,
    Op,
    flattened,
    is_equation,
    is_whole_number,
    parts_of,
    rename_symbol,
)
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
    # What cannot be parsed is compared as text elsewhere.
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


def are_same(a: Expr, b: Expr, depth: int) -> bool:
    """Whether two parts of answers are the same."""
    return same(a, b, depth)[0]


def _drop_assignment(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """``x=5`` compared with a single answer is 5; ``x \\in \\{1,2\\}`` compared with a list is that set."""
    if value := _value_beside(a, b):
        return value, b
    return a, _value_beside(b, a) or b


def _value_beside(named: Expr, other: Expr) -> Expr | None:
    r"""The value of a named answer where the other one is the bare value or set; None if it is compared as written."""
    if named.op != "rel" or named.name not in ("=", r"\in"):
        return None
    if other.op in ("list", "set"):
        name, value = named.args
        is_set = value.op == "set" and (named.name == r"\in" or is_name(name))
        return value if is_set else None
    if is_equation(named) and other.op in _SINGLE:
        name, value = name_first(named).args
        return value if is_name(name) else None
    return None


def _families(a: Expr, b: Expr, depth: int) -> Decision:
    """Answers with free parameters, up to renaming."""
    a, b = as_family(a), as_family(b)
    whole = is_whole(a, b)
    real = a.name == b.name == "R"
    for x, y in matched(a, b):
        if are_same(x, y, depth) or (whole and _progressions(x, y)) or (real and same_line(x, y)):
            return True, "parameter"
    return False, "parameter"


def _progressions(a: Expr, b: Expr) -> bool:
    """Arithmetic progressions, whichever of their terms has index 0."""
    x, y = (parts_of(expand_signs(side), "list") for side in (a, b))
    return _match_all(x, y, shifted)


def _units(a: Expr, b: Expr, depth: int) -> Decision:
    """A unit may be missing on one side; two must be the same. For degrees and percentages see ``is_converted``."""
    if a.op not in ("unit", "percent"):
        a, b = b, a
    body = a.args[0]
    if b.op in ("list", "rel", "choice", "set", "tuple"):
        return _unit_with_structure(a, b, depth)
    if a.op == "unit" and b.op in ("*", "/", "^"):
        # 5m may have been read as a product with the letter m.
        value = strip_unit(b, a.name)
        if value is not None:
            return same(body, value, depth)
    # Before the names of units are compared, as these two alone are converted.
    if {a.name, b.name} == {"degree", "radian"} and a.op == b.op:
        degrees, radians = (a, b) if a.name == "degree" else (b, a)
        return are_equal(in_radians(degrees.args[0]), radians.args[0]), "unit"
    if b.op in ("unit", "percent"):
        if a.op != b.op or not compatible(a.name, b.name):
            return False, "unit"
        return same(body, b.args[0], depth)
    same_body, path = same(body, b, depth)
    if a.op == "percent":
        # 50 may be 50%, but 0.5 is not 0.5%.
        may_lack_sign = b.op != "num" or abs(b.number) >= 1
        path = "percent"
    else:
        may_lack_sign = a.name not in (PRIME, DOUBLE_PRIME)
    return (same_body and may_lack_sign) or is_converted(a, b), path


def _unit_with_structure(a: Expr, b: Expr, depth: int) -> Decision:
    """A value with a unit compared with a relation, a choice or a set of one."""
    if b.op == "rel":
        return _relations(a, b, depth)
    if b.op == "list" and a.args[0].op == "list":
        return same(a.args[0], b, depth)
    return same(a, b.args[0], depth) if len(b.args) == 1 else (False, "structure")


def _relations(a: Expr, b: Expr, depth: int) -> Decision:
    same_sign = a.op == b.op == "rel" and a.name == b.name
    if same_sign and a.name in _STRUCTURAL:
        return _structural(a, b, depth), "relation"
    if is_equation(a) and is_equation(b):
        return _equations(name_first(a), name_first(b), depth)
    for one, other in ((a, b), (b, a)):
        if is_equation(one) and (other.op != "rel" or region(other) is not None):
            return _equation_with_value(name_first(one), other, depth)
    if decision := _regions(a, b):
        return decision
    # Only after the regions: x \in (0,1) is 0<x<1.
    if r"\in" in (a.name, b.name):
        return _memberships(a, b, depth)
    if a.op == b.op == "rel":
        return same_inequality(a, b), "inequality"
    return _structures(a, b, depth) if {a.op, b.op} & _PARTED else (False, "relation")


def _regions(a: Expr, b: Expr) -> Decision | None:
    """Two answers that describe regions of the real line; None if one of them does not."""
    x, y = region(a), region(b)
    return (same_region(x, y), "region") if x is not None and y is not None else None


def _equation_with_value(equation: Expr, other: Expr, depth: int) -> Decision:
    """An equation compared with something that is none: its value decides if the left side only names it."""
    left, value = equation.args
    # 2+3=5 gives 5; 2x=6 is not 6.
    of_constants = is_constant(left) and is_constant(value)
    if is_name(left) or of_constants or names_structure(equation):
        return same(value, other, depth)
    return False, "equation"


_SYMMETRIC = frozenset((r"\iff", r"\parallel", r"\perp", r"\sim", r"\cong"))
_STRUCTURAL = _SYMMETRIC | {r"\to", r"\subseteq", r"\subset", "mid"}
"""Relations whose sides are compared as they are, not as a difference."""


def _structural(a: Expr, b: Expr, depth: int) -> bool:
    """Whether two relations of logic, sets or geometry have the same sides, of symmetric ones in any order."""
    if _in_order(a.args, b.args, depth)[0]:
        return True
    return a.name in _SYMMETRIC and _in_order(a.args[::-1], b.args, depth)[0]


def _equations(a: Expr, b: Expr, depth: int) -> Decision:
    """Assignments by name and value, other equations as a whole."""
    left, value = a.args
    other_left, other_value = b.args
    if (value.op == "residue") != (other_value.op == "residue"):
        # n=4k+1 is n \equiv 1 \pmod 4.
        return _families(with_whole_parameter(a), with_whole_parameter(b), depth)
    if all(is_name(name) or is_function(name) for name in (left, other_left)):
        named_values = same_name(a, b)
        if named_values is not None:
            return same(*named_values, depth)
    if all(side.op in ARITHMETIC for side in a.args + b.args):
        return same_equation(a, b), "equation"
    # The sides of other equations, as those of sets, cannot be subtracted.
    are_alike, _ = _in_order(a.args, b.args, depth)
    return are_alike, "equation"


def _memberships(a: Expr, b: Expr, depth: int) -> Decision:
    """``x \\in S`` is ``S``."""
    if a.op == b.op == "rel" and a.args[0] != b.args[0]:
        return False, "relation"
    x, y = (side.args[1] if side.op == "rel" and side.name == r"\in" else side for side in (a, b))
    return same(x, y, depth)


def _sets(a: Expr, b: Expr, depth: int) -> Decision:
    if decision := _regions(a, b):
        return decision
    if "rel" in (a.op, b.op):
        return _relations(a, b, depth)
    if a.op != b.op:
        return False, "region"
    if a.op in (r"\cup", r"\cap"):
        return _any_order(flattened(a, a.op), flattened(b, a.op), depth), "structure"
    if a.op == "builder" and len(a.args) == len(b.args):
        head, *conditions = bound(a).args
        other_head, *other_conditions = bound(b).args
        same_head = are_same(head, other_head, depth)
        return same_head and _any_order(conditions, other_conditions, depth), "structure"
    if a.op == r"\setminus":
        return _in_order(a.args, b.args, depth)
    return False, "region"


def _structures(a: Expr, b: Expr, depth: int) -> Decision:
    """Lists and sets in any order, tuples in order; a single answer is a one-element list."""
    ops = {a.op, b.op}
    if ops <= {"list", "set"} and _are_alternatives(a) != _are_alternatives(b):
        return False, "structure"
    if "rel" in ops:
        ordered = ordered_numbers(a) or ordered_numbers(b)
        listed = b if a.op == "rel" else a
        if ordered:
            return _in_order(ordered, listed.args, depth)
    if any(has_inequalities(side) or (side.op == "list" and side.name) for side in (a, b)):
        return _conjunctions(a, b, depth)
    if ops == {"tuple", "matrix"}:
        return _vectors(a, b, depth)
    if ops == {"tuple"}:
        return _tuples(a, b, depth)
    if "tuple" in ops and ops & _SUMS:
        return same_vector(a, b), "structure"
    if ops <= _PARTED and _only_one_side_is_named(a, b):
        return _coordinates(a, b, depth)
    if "tuple" in ops:
        return _point_with_list(a, b, depth) if a.op == "tuple" else _point_with_list(b, a, depth)
    return _collections(a, b, depth)


def _point_with_list(point: Expr, other: Expr, depth: int) -> Decision:
    """A point compared with the list of its coordinates (``x=1, y=2``), or with a list or set of one point."""
    listed = parts_of(other, "list", "set")
    if other.op == "list" and is_point(point) and not repeats_name(listed):
        return _in_order(point.args, in_name_order(listed), depth)
    if len(listed) == 1 and other.op != listed[0].op:
        return same(point, listed[0], depth)
    return False, "structure"


def _collections(a: Expr, b: Expr, depth: int) -> Decision:
    """The parts of lists and sets in any order; long ones in order, since any order takes quadratic time."""
    x, y = (parts_of(side, "list", "set") for side in (a, b))
    # {1}, {2} is not {1, 2}
    if len(x) == len(y) > 1 and _has_sets(x) != _has_sets(y):
        return False, "structure"
    x, y = _distinct_points(x), _distinct_points(y)
    if len(x) != len(y):
        return False, "structure"
    x, y = drop_indices(x, y)
    paired = by_name(x, y)
    if paired is not None:
        return _in_order(*paired, depth)
    if len(x) > MAX_UNORDERED:
        return _in_order(x, y, depth)
    return _any_order(x, y, depth), "structure"


def _has_sets(parts: tuple[Expr, ...]) -> bool:
    return any(part.op == "set" for part in parts)


def _are_alternatives(expr: Expr) -> bool:
    """Whether an answer is one label or the other, ``A or C``."""
    return expr.op == "list" and expr.name == "or" and all(part.op != "rel" for part in expr.args)


def _conjunctions(a: Expr, b: Expr, depth: int) -> Decision:
    """Relations joined by ``and`` or ``or``: the same region, or the same relations with the same conjunction.

    Inequalities without a conjunction (``x>0, y>0``) are joined by ``and``.
    """
    if decision := _regions(a, b):
        return decision
    restricted = has_inequalities(a) or has_inequalities(b)
    if a.op == b.op == "list":
        unwritten = "and" if restricted else ""
        word, other_word = a.name or unwritten, b.name or unwritten
        both_written = word != "" and other_word != ""
        if restricted or (both_written and word != other_word):
            alike = word == other_word and len(a.args) == len(b.args)
            return alike and _any_order(a.args, b.args, depth), "relation"
    elif restricted:
        return False, "relation"
    # Between equations the conjunction of one side alone says no more than a comma.
    a, b = (side._replace(name="") if side.op == "list" else side for side in (a, b))
    return _structures(a, b, depth)


def _tuples(a: Expr, b: Expr, depth: int) -> Decision:
    # (1,2,3) and [1,2,3] are one vector, but [1,2] is an interval.
    same_brackets = a.name == b.name or (is_point(a) and is_point(b))
    return _in_order(a.args, b.args, depth) if same_brackets else (False, "structure")


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
    if all(part.op != "rel" or part.args[-1].op == "tuple" for part in a.args + b.args):
        return False
    names, other_names = _assigned_letters(a), _assigned_letters(b)
    if not other_names:
        return len(names) == len(a.args) > 1
    return not names and len(other_names) == len(b.args) > 1


def _assigned_letters(side: Expr) -> set[str]:
    """The names that a list assigns values to, without their indices."""
    return {part.args[0].name.partition("_")[0] for part in side.args if is_assignment(part)}


def _coordinates(a: Expr, b: Expr, depth: int) -> Decision:
    """Named values compared with bare ones in the order of the names; ``[1,2]`` is an interval, not a point."""
    if any(side.op == "tuple" and side.name != "()" and len(side.args) == 2 for side in (a, b)):
        return False, "structure"
    return _in_order(in_name_order(a.args), in_name_order(b.args), depth)


def _in_order(a: Sequence[Expr], b: Sequence[Expr], depth: int) -> Decision:
    """Parts in pairs, in the order in which they are written."""
    if len(a) != len(b):
        return False, "structure"
    return all(are_same(x, y, depth) for x, y in zip(a, b, strict=True)), "structure"


def _any_order(a: Sequence[Expr], b: Sequence[Expr], depth: int) -> bool:
    """Whether the parts match one to one; identical ones are paired first, for speed."""
    left, rest = list(b), []
    for part in a:
        if part in left:
            left.remove(part)
        else:
            rest.append(part)
    return _match_all(rest, left, lambda x, y: are_same(x, y, depth))


def _match_all(a: Iterable[Expr], b: Iterable[Expr], equal: Callable[[Expr, Expr], bool]) -> bool:
    """Whether each part has a partner of its own, chosen greedily."""
    left = list(b)
    for part in a:
        for at, other in enumerate(left):
            if equal(part, other):
                del left[at]
                break
        else:
            return False
    return not left


def _matrices(a: Expr, b: Expr, depth: int) -> Decision:
    if a.op in ARITHMETIC or b.op in ARITHMETIC:
        matrix, expr = (a, b) if a.op == "matrix" else (b, a)
        # A matrix of one column is 2i+3j.
        is_vector = expr.op in _SUMS and same_vector(a, b)
        return is_vector or _is_identity_times(matrix, expr, depth), "structure"
    if a.op != b.op or len(a.args) != len(b.args):
        return False, "structure"
    for row, other in zip(a.args, b.args, strict=True):
        if not _in_order(row.args, other.args, depth)[0]:
            return False, "structure"
    return True, "structure"


def _is_identity_times(matrix: Expr, expr: Expr, depth: int) -> bool:
    """Whether a square matrix is a multiple of the identity ``I``."""
    factor, size = multiple_of_identity(expr), len(matrix.args)
    if factor is None or any(len(row.args) != size for row in matrix.args):
        return False
    for i, row in enumerate(matrix.args):
        wanted = [ZERO] * size
        # The other cells of the row are off the diagonal.
        wanted[i] = factor
        if not _in_order(row.args, wanted, depth)[0]:
            return False
    return True


def _cases(a: Expr, b: Expr, depth: int) -> Decision:
    """Rows of a piecewise function in any order, or an absolute value; a name may precede the brace."""
    if a.op == b.op and len(a.args) == len(b.args):
        return _any_order(a.args, b.args, depth), "structure"
    if a.op in ARITHMETIC or b.op in ARITHMETIC:
        cases, expr = (a, b) if a.op == "cases" else (b, a)
        return defines_absolute_value(cases, expr), "structure"
    return _relations(a, b, depth) if "rel" in (a.op, b.op) else (False, "structure")


def _formulas(a: Expr, b: Expr, depth: int) -> Decision:
    r"""Formulas of logic: operands of a connective in any order, bound letters under any name."""
    if a.op != b.op or len(a.args) != len(b.args):
        return False, "logic"
    if a.op in ("forall", "exists"):
        # Nested quantifiers are compared at lower depths, so that each letter has a number of its own.
        x, y = (rename_symbol(side, side.args[0].name, f"?{depth}") for side in (a, b))
        return _in_order(x.args, y.args, depth)[0], "logic"
    return _any_order(flattened(a, a.op), flattened(b, b.op), depth), "logic"


def _residues(a: Expr, b: Expr, depth: int) -> Decision:
    r"""``3 \pmod 7`` is ``-4 \pmod 7``."""
    if a.op != b.op:
        return _families(with_whole_parameter(a), with_whole_parameter(b), depth)
    if not all(map(is_whole_number, a.args + b.args)):
        # With letters: the modulus and the value, each by itself.
        are_alike, _ = _in_order(a.args[::-1], b.args[::-1], depth)
        return are_alike, "residue"
    value, modulus = (part.number for part in a.args)
    other_value, other_modulus = (part.number for part in b.args)
    # Division by 0 has no remainder.
    if abs(modulus) != abs(other_modulus) or modulus == 0:
        return False, "residue"
    is_multiple = (value - other_value) % modulus == 0
    return is_multiple, "residue"


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
