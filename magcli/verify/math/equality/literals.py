"""Comparing answers that are literal rather than calculated: choices, words, numbers in a base, ratios and times."""

from collections.abc import Callable
from functools import reduce

from magcli.verify.math.equality.equations import is_name
from magcli.verify.math.equality.identity import same_value
from magcli.verify.math.latex.clock import same_time
from magcli.verify.math.latex.dates import abbreviates
from magcli.verify.math.latex.tree import E, Expr, I, div, mul, num
from magcli.verify.math.latex.wording import is_letters

LABELS = frozenset("ABCDEFGHIJ")
"""Capital letters that name options of a multiple-choice problem."""
Decision = tuple[bool, str]
"""Whether two answers are the same, and which comparison decided."""
ComparePart = Callable[[Expr, Expr], Decision]
"""Compares parts of two answers."""


def values(a: Expr, b: Expr) -> Decision:
    """Expressions by their values."""
    are_equal = same_value(a, b)
    path = "undecided" if are_equal is None else "numeric"
    if a.op == b.op == "num":
        path = "number"
    return are_equal is True, path


def choices(a: Expr, b: Expr, inner: ComparePart) -> Decision:
    """``(C) 12`` is ``C`` and is ``12``; two letters must agree, and two values. ``A: 3, B`` names two options."""
    if a.op != "choice":
        a, b = b, a
    if any(_lists_a_label(argument) for argument in a.args):
        return False, "choice"
    if b.op == "choice":
        return a.name == b.name and (not (a.args and b.args) or inner(a.args[0], b.args[0])[0]), "choice"
    if a.args and b.op in ("sym", "const") and a.name == b.name:
        return True, "choice"
    if a.args:
        return inner(a.args[0], b)
    if b.op in ("sym", "const", "*", "+", "/", "^"):
        return values(Expr("sym", name=a.name), b)
    if b.op == "matrix":
        return inner(Expr("sym", name=a.name), b)
    return b.op == "set" and len(b.args) == 1 and inner(a, b.args[0])[0], "choice"


def _lists_a_label(value: Expr) -> bool:
    """Whether the value of a choice is a list with a capital letter in it."""
    return value.op == "list" and any(part.op in ("sym", "const") and part.name in LABELS for part in value.args)


def texts(a: Expr, b: Expr, inner: ComparePart) -> Decision:
    """Words by their letters and digits; a few letters may be a product or a list of choices."""
    if a.op == b.op == "text":
        x, y = ("".join(c for c in side.name if c.isalnum()) for side in (a, b))
        if abbreviates(x, y) or abbreviates(y, x):
            return True, "words"
        return x == y != "" or (
            x.lower() == y.lower() != "" and not (is_letters(a.name) and is_letters(b.name))
        ), "words"
    if a.op != "text":
        a, b = b, a
    if b.op == "list":
        return b.name != "or" and sorted(part.name for part in b.args if part.name in LABELS) == sorted(
            a.name
        ), "choice"
    if a.name.isalpha() and a.name.isascii() and len(a.name) <= 4 and b.op not in ("num", "rel", "unit"):
        return values(reduce(mul, map(_letter, a.name)), b)
    return inner(a, b.args[1]) if b.op == "rel" and is_name(b.args[0]) and b.name == "=" else (False, "words")


def _letter(name: str) -> Expr:
    return {"i": I, "e": E}.get(name, Expr("sym", name=name))


def bases(a: Expr, b: Expr, _: ComparePart) -> Decision:
    """Numbers in a base by their digits; the default is base ten."""
    return _literal(a) == _literal(b) != ("?", ""), "literal"


def _literal(expr: Expr) -> tuple[str, str]:
    if expr.op == "base":
        digits, _, base = expr.name.partition("_")
        return digits.lstrip("0").lower(), base
    if expr.op == "num" and expr.number.denominator == 1:
        return str(expr.number), "10"
    return "?", ""


def ratios(a: Expr, b: Expr, inner: ComparePart) -> Decision:
    """``2:4`` is ``1:2`` and 1/2; a possible time of day is only itself."""
    if a.op != "ratio":
        a, b = b, a
    if b.op == "rel":
        return inner(a, b.args[1]) if b.name == "=" and is_name(b.args[0]) else (False, "literal")
    if {"time", "clock"} & {a.name, b.name}:
        return a.op == b.op and "clock" in (a.name, b.name) and same_time(a, b), "literal"
    if b.op == "ratio":
        if len(a.args) != len(b.args) or num(0) in a.args + b.args:
            return False, "literal"
        return all(
            same_value(mul(x, b.args[0]), mul(y, a.args[0])) is True for x, y in zip(a.args, b.args, strict=True)
        ), "ratio"
    fraction = b.op == "/" or (b.op == "num" and b.number.denominator > 1)
    return fraction and len(a.args) == 2 and same_value(div(*a.args), b) is True, "ratio"
