"""Comparing what is no arithmetic: choices, words, numbers in a base, ratios and times."""

from collections.abc import Callable

from magcli.verify.equality.identity import same_value
from magcli.verify.equality.naming import is_name
from magcli.verify.latex.tree import Expr, div, mul, num

Found = tuple[bool, str]
"""Whether two answers are the same, and which kind of comparison says so."""
Inner = Callable[[Expr, Expr], Found]
"""How the parts of two answers are compared."""


def values(a: Expr, b: Expr) -> Found:
    """Two expressions by their values."""
    found = same_value(a, b)
    path = "number" if a.op == b.op == "num" else "numeric" if found is not None else "undecided"
    return found is True, path


def choices(a: Expr, b: Expr, inner: Inner) -> Found:
    """``(C) 12`` is ``C`` and is ``12``; two letters must agree, and two values."""
    if a.op != "choice":
        a, b = b, a
    if b.op == "choice":
        valued = bool(a.args and b.args)
        return a.name == b.name and (not valued or inner(a.args[0], b.args[0])[0]), "choice"
    if a.args:
        return inner(a.args[0], b)
    if b.op in ("sym", "const", "*", "+", "/", "^"):
        return values(Expr("sym", name=a.name), b)
    return b.op == "set" and len(b.args) == 1 and inner(a, b.args[0])[0], "choice"


def texts(a: Expr, b: Expr, inner: Inner) -> Found:
    """Words by their letters and digits; short letters may be a product, and letters of choices a list."""
    if a.op == b.op == "text":
        x, y = ("".join(c for c in side.name if c.isalnum()) for side in (a, b))
        return x == y != "", "words"
    if a.op != "text":
        a, b = b, a
    if b.op == "list":
        letters = [
            part.name.lower() for part in b.args if part.op in ("sym", "choice", "const") and len(part.name) == 1
        ]
        return len(letters) == len(b.args) and sorted(letters) == sorted(a.name), "choice"
    if a.name.isalpha() and len(a.name) <= 4 and b.op not in ("num", "rel", "unit"):
        product = Expr("sym", name=a.name[0])
        for letter in a.name[1:]:
            product = mul(product, Expr("sym", name=letter))
        return values(product, b)
    if b.op == "rel" and is_name(b.args[0]) and b.name == "=":
        return inner(a, b.args[1])
    return False, "words"


def bases(a: Expr, b: Expr, _: Inner) -> Found:
    """Digits of a number in a base; a number without one is in base ten."""
    return _literal(a) == _literal(b) != ("?", ""), "literal"


def _literal(expr: Expr) -> tuple[str, str]:
    if expr.op == "base":
        digits, _, base = expr.name.partition("_")
        return digits.lstrip("0").lower(), base
    if expr.op == "num" and expr.number.denominator == 1:
        return str(expr.number), "10"
    return "?", ""


def ratios(a: Expr, b: Expr, inner: Inner) -> Found:
    """``2:4`` is ``1:2`` and 1/2; what may be a time of day is only itself."""
    if a.op != "ratio":
        a, b = b, a
    if b.op == "rel":
        return inner(a, b.args[1]) if b.name == "=" and is_name(b.args[0]) else (False, "literal")
    if "time" in (a.name, b.name):
        return False, "literal"
    if b.op == "ratio":
        if len(a.args) != len(b.args) or num(0) in a.args + b.args:
            return False, "literal"
        return all(
            same_value(mul(x, b.args[0]), mul(y, a.args[0])) is True for x, y in zip(a.args, b.args, strict=True)
        ), "ratio"
    fraction = b.op == "/" or (b.op == "num" and b.number.denominator > 1)
    return fraction and len(a.args) == 2 and same_value(div(*a.args), b) is True, "ratio"
