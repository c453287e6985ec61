"""What may stand before ``=`` as the name of an answer: ``x``, ``f(x)``, ``AB``, ``\\angle C``, ``\\text{Area}``."""

from magcli.verify.equality.identity import symbols
from magcli.verify.latex.tree import Expr, num, renamed

_OF_SEVERAL = frozenset(("gcd", "lcm", "max", "min", "det"))
_COMPOSED = frozenset(("+", "*", "/", "^", "f"))
_COORDINATES = frozenset("xyz")
_CIRCULAR = frozenset(("sin", "cos", "tan", "cot", "sec", "csc"))
_MEASURED = frozenset(["sin", "cos", "tan", "cot", "sec", "csc", "abs"])
_WORKED_OUT = frozenset(("?int", "?lim"))
"""Calculations whose equation gives their value."""


def is_name(expr: Expr) -> bool:
    """Whether an expression names a quantity, so that its equation gives an answer rather than is one.

    A function does at letters or numbers: ``f(x)``, ``f(2)``; ``f(2x)`` names no answer.
    """
    if expr.op in ("sym", "text", "choice"):
        return True
    if expr.op == "f":
        if expr.name.startswith("?"):
            return expr.name in _WORKED_OUT or not symbols(expr) or _is_plain(expr)
        measured = expr.name in _MEASURED and all(is_name(arg) and not _varies(arg) for arg in expr.args)
        return measured or expr.name in _OF_SEVERAL
    if expr.op in ("tuple", "ratio"):
        return all(is_name(arg) for arg in expr.args)
    if expr.op == "/":
        return all(_is_segment(arg) for arg in expr.args)
    return _is_segment(expr) or _is_application(expr)


def _varies(expr: Expr) -> bool:
    return expr.op == "f" and bool(symbols(expr))


def given_value(equation: Expr) -> Expr | None:
    r"""The number of an equation whose left side is a compound quantity: ``a+b+c=12``, ``\sin 2\theta=1``.

    Nothing where the equation could be solved for its only letter (``2x=10``), or is one of a curve or plane
    (``x+z=1``), whose letters are coordinates.
    """
    if equation.op != "rel" or equation.name != "=":
        return None
    left, value = equation.args
    called = (left.op == "f" and left.name in _CIRCULAR) or _is_call(left)
    composed = left.op in _COMPOSED and not left.name.startswith("?")
    parts = symbols(left) | _values_of_functions(left)
    several = composed and len(parts) > 1 and not parts <= _COORDINATES and value != num(0)
    return value if not symbols(value) and (called or several) else None


def _values_of_functions(expr: Expr) -> frozenset[str]:
    """Unknown functions at numbers, as ``f(3)``, each with a name of its own."""
    if expr.op == "f" and expr.name.startswith("?"):
        return frozenset() if symbols(expr) else frozenset((f"{expr.name}{expr.args}",))
    return frozenset().union(*(_values_of_functions(arg) for arg in expr.args)) if expr.args else frozenset()


def _is_call(expr: Expr) -> bool:
    r"""``\varphi(100)``, ``P(2)``: read as a product of a letter and a number, which come the other way round."""
    if expr.op != "*" or expr.args[0].op != "sym" or expr.args[1].op != "num":
        return False
    return expr.args[0].name[0].isupper() or expr.args[0].name[0] == "\\"


def _is_segment(expr: Expr) -> bool:
    """``AB``, ``dy``, ``m\\angle A``: letters that are one name together."""
    if expr.op == "sym":
        return expr.name[0].isupper() or expr.name[0] == "\\"
    if expr.op != "*":
        return False
    left, right = expr.args
    differential = left == Expr("sym", name="d") and right.op == "sym"
    return (
        differential
        or left.name == r"\nabla"
        or (_is_segment(left) and _is_segment(right))
        or (left.op == "sym" and right.name.startswith(r"\angle"))
    )


def _is_application(expr: Expr) -> bool:
    """``P(x)``, read as a product of two letters."""
    return expr.op == "*" and all(a.op == "sym" for a in expr.args) and expr.args[0].name.isupper()


def same_name(a: Expr, b: Expr) -> tuple[Expr, Expr] | None:
    """The values of two assignments to one name, with the arguments of functions renamed alike; None for two names.

    ``f(2x)`` is ``f(2t)`` and not ``f(x)``. Words and ``y`` for ``f(x)`` are not held against each other.
    """
    (left, x), (right, y) = a.args, b.args
    if left == right or "text" in (left.op, right.op):
        return x, y
    if is_function(left) and is_function(right):
        (head, value), (other, other_value) = (_numbered(*side.args) for side in (a, b))
        return (value, other_value) if head == other else None
    names = {left.name, right.name}
    return (x, y) if "y" in names and any(_is_plain(side) for side in (left, right)) else None


def is_function(expr: Expr) -> bool:
    """Whether an expression is a function of an argument: ``f(x)``, ``f(2x)``, ``P(x)``."""
    return (expr.op == "f" and expr.name.startswith("?")) or _is_application(expr)


def _is_plain(expr: Expr) -> bool:
    """``f(x)``, ``P(x)`` and ``f(x,y)``: a function of letters, each another one."""
    if _is_application(expr):
        return True
    names = [arg.name for arg in expr.args if arg.op == "sym"]
    return expr.op == "f" and expr.name.startswith("?") and len(set(names)) == len(names) == len(expr.args)


def _numbered(call: Expr, value: Expr) -> tuple[Expr, Expr]:
    """A function's call and value with the letters of its arguments numbered in their order.

    Capital letters are no variables but events, sets, points: ``P(A)`` is not ``P(B)``.
    """
    arguments = call.args[1:] if call.op == "*" else call.args
    letters = dict.fromkeys(letter for arg in arguments for letter in _letters(arg) if not letter[0].isupper())
    for at, name in enumerate(letters):
        call, value = renamed(call, name, f"?{at}"), renamed(value, name, f"?{at}")
    return call, value


def _letters(expr: Expr) -> list[str]:
    return [expr.name] if expr.op == "sym" else [name for arg in expr.args for name in _letters(arg)]


def is_assignment(part: Expr) -> bool:
    """Whether an equation gives a named quantity its value."""
    return part.op == "rel" and part.name == "=" and is_name(part.args[0])


def repeats_name(parts: tuple[Expr, ...]) -> bool:
    """Whether parts give one quantity several values: ``x=1, x=2``, which is no point."""
    names = [part.args[0] for part in parts if is_assignment(part)]
    return len(set(names)) < len(names)


def without_indices(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The bare values of ``x_1=0, x_2=4`` beside ``x=0, x=4``, which numbers nothing; else the parts as they are."""
    stems, plain = ({part.args[0].name if is_assignment(part) else "" for part in side} for side in (a, b))
    if len(stems) == 1:
        stems, plain = plain, stems
    numbered = len(plain) == 1 < len(stems) == len(a) and {name.partition("_")[0] for name in stems} == plain != {""}
    return (tuple(x.args[1] for x in a), tuple(y.args[1] for y in b)) if numbered else (a, b)


def in_name_order(parts: tuple[Expr, ...]) -> list[Expr]:
    """The values of parts; of assignments in the order of their names where these follow each other, else as written.

    ``y=2, x=1`` is 1, 2 as the point (x, y) is, and so is ``x_2=2, x_1=1``; ``m=2, b=3`` is 2, 3.
    """
    values = [part.args[1] if is_assignment(part) else part for part in parts]
    names = [part.args[0].name if is_assignment(part) else "" for part in parts]
    places = _places(names)
    return [value for _, value in sorted(zip(places, values, strict=True), key=lambda pair: pair[0])]


def _places(names: list[str]) -> list[int]:
    """Where each name stands among letters or indices without a gap; as they come where the names are no such run."""
    stems = {name.partition("_")[0] for name in names}
    keys = [name.partition("_")[2] for name in names] if len(stems) == 1 else names
    if all(key.isdecimal() and len(key) < 4 for key in keys):
        places = [int(key) for key in keys]
    else:
        places = [ord(key) if len(key) == 1 and key.isascii() and key.isalpha() else -1 for key in keys]
    run = len(set(places)) == len(places) == max(places) - min(places) + 1 and min(places) >= 0
    return places if run else list(range(len(names)))
