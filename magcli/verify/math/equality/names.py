r"""Names before structures and in lists: ``A\cap B=\{1\}``, ``A^2=-I``, ``quotient: 14, remainder: 2``."""

from magcli.verify.math.equality.equations import assigned_values, is_assignment, is_constant
from magcli.verify.math.equality.evaluate import NotReal, Undecided
from magcli.verify.math.equality.identity import symbols
from magcli.verify.math.equality.lines import multiple_of_identity
from magcli.verify.math.equality.regions import as_float
from magcli.verify.math.latex.tree import Expr, Op

_OF_SETS: frozenset[Op] = frozenset((r"\cup", r"\cap", r"\setminus", "+", "*", "^", "sym", "num"))
"""Operations whose result is a set or matrix if their operands are."""
_STRUCTURES: frozenset[Op] = frozenset(("set", "matrix", r"\cup", r"\cap", r"\setminus", "set-name"))
Parts = tuple[Expr, ...]


def names_structure(equation: Expr) -> bool:
    r"""Whether the left side of an equation only says which structure is on the right: an operation on capital letters
    before a set or matrix (``A\cap B=..``, ``A^2=-I``), anything before a piecewise function (``|x|=..``).
    """
    left, value = equation.args
    if value.op == "cases":
        return True
    # An equation for 2A could be solved for its letter.
    if left.op in ("*", "+") and len(symbols(left)) == 1:
        return False
    is_structure = value.op in _STRUCTURES or multiple_of_identity(value) is not None
    return is_structure and _is_operation(left)


def _is_operation(expr: Expr) -> bool:
    """Whether an expression consists of operations on letters of sets or matrices."""
    if expr.op == "sym":
        return expr.name[0].isupper()
    if expr.op == "num":
        return True
    return expr.op in _OF_SETS and bool(symbols(expr)) and all(map(_is_operation, expr.args))


def by_name(a: Parts, b: Parts) -> tuple[Parts, Parts] | None:
    """The values of two lists in pairs, if each value has a name and words are among the names; else None.

    Values belong together if their names are the same, or each letter begins one of the words (``q`` and ``quotient``);
    else they are in the order in which they are written.
    """
    if len(a) < 2 or len(a) != len(b) or not all(map(is_assignment, a + b)):
        return None
    if not any(part.args[0].op == "text" for part in a + b):
        return None
    values, other_values = assigned_values(a), assigned_values(b)
    for key in (_name, _initial):
        value_of = dict(zip(map(key, a), values, strict=True))
        other_value_of = dict(zip(map(key, b), other_values, strict=True))
        # Of two equal keys, one is lost.
        unambiguous = len(value_of) == len(a)
        if unambiguous and value_of.keys() == other_value_of.keys():
            in_same_order = (other_value_of[name] for name in value_of)
            return values, tuple(in_same_order)
    return values, other_values


def _name(part: Expr) -> str:
    return part.args[0].name.lower()


def _initial(part: Expr) -> str:
    return _name(part).removeprefix("?")[:1]


def ordered_numbers(chain: Expr) -> Parts:
    """The numbers of a chain that is true and has one direction, ``1<2<3``, in its order; empty for anything else."""
    if chain.op != "rel":
        return ()
    signs = set(chain.name.split())
    if signs not in ({"<"}, {">"}, {r"\le"}, {r"\ge"}):
        return ()
    if not all(map(is_constant, chain.args)):
        return ()
    try:
        values = [as_float(side) for side in chain.args]
    except (Undecided, NotReal, OverflowError):
        return ()
    (sign,) = signs
    in_order = values == sorted(values, reverse=sign in (">", r"\ge"))
    repeats_number = len(set(values)) < len(values)
    is_true = in_order and not (repeats_number and sign in ("<", ">"))
    return chain.args if is_true else ()
