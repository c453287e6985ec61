"""Comparing what is not arithmetic: choices, words, numbers in a base, ratios, times, units as letters, vectors."""

from collections.abc import Callable

from magcli.verify.equality.equations import is_name
from magcli.verify.equality.identity import same_value, symbols
from magcli.verify.latex.tree import ONE, Expr, I, add, div, mul, num
from magcli.verify.latex.units import SYMBOLS, format_units

Decision = tuple[bool, str]
"""Whether two answers are the same, and which comparison decided."""
ComparePart = Callable[[Expr, Expr], Decision]
"""Compares parts of two answers."""


def values(a: Expr, b: Expr) -> Decision:
    """Expressions by their values."""
    found = same_value(a, b)
    path = "number" if a.op == b.op == "num" else "numeric" if found is not None else "undecided"
    return found is True, path


def choices(a: Expr, b: Expr, inner: ComparePart) -> Decision:
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


def texts(a: Expr, b: Expr, inner: ComparePart) -> Decision:
    """Words by their letters and digits; a few letters may be a product or a list of choices."""
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


MAX_LETTERS = 8
_MAX_SYMBOL_LENGTH = 3
"""Letters of the longest unit symbol, ``mol``."""


def strip_unit(expr: Expr, unit: str) -> Expr | None:
    """The value without its trailing letters if these can be read as ``unit``; else None."""
    letters: list[tuple[str, int]] = []
    value = _split_letters(expr, 1, letters)
    if value is None or not 0 < len(letters) <= MAX_LETTERS:
        return None
    return value if unit in _unit_names(tuple(letters)) else None


def _split_letters(expr: Expr, power: int, letters: list[tuple[str, int]]) -> Expr | None:
    """The factors that are not letters; the letters and their powers are appended to ``letters``."""
    if expr.op == "sym" and (expr.name.isalpha() or expr.name in SYMBOLS):
        letters.append((expr.name, power))
        return ONE
    if expr.op == "^" and expr.args[0].op == "sym" and expr.args[1].op == "num":
        whole = expr.args[1].number.denominator == 1
        return _split_letters(expr.args[0], power * int(expr.args[1].number), letters) if whole else None
    if expr.op in ("*", "/"):
        first = _split_letters(expr.args[0], power, letters)
        second = _split_letters(expr.args[1], power if expr.op == "*" else -power, letters)
        return None if first is None or second is None else (mul if expr.op == "*" else div)(first, second)
    return None if _has_letter(expr) else expr


def _has_letter(expr: Expr) -> bool:
    return expr.op == "sym" or any(_has_letter(arg) for arg in expr.args)


def _unit_names(letters: tuple[tuple[str, int], ...]) -> set[str]:
    """The units that letters can spell: ``km`` has two letters, of which only the last may have a power."""
    return {format_units(powers) for powers in _unit_readings(letters)}


def _unit_readings(letters: tuple[tuple[str, int], ...]) -> list[dict[str, int]]:
    if not letters:
        return [{}]
    found = []
    for size in range(1, min(_MAX_SYMBOL_LENGTH, len(letters)) + 1):
        head, power = letters[:size], letters[size - 1][1]
        joined = all(p == 1 or (power < 0 and p == -1) for _, p in head[:-1])
        name = SYMBOLS.get("".join(letter for letter, _ in head))
        if name is None or not joined:
            continue
        for rest in _unit_readings(letters[size:]):
            found.append(rest | {name: rest.get(name, 0) + power})
    return found


_UNIT_VECTORS = tuple(
    {Expr("sym", name=name) for name in (letter, rf"\hat {letter}", rf"\vec {letter}", rf"\hat \{letter}math")}
    | ({I} if letter == "i" else set())
    for letter in "ijk"
)


def entries(vector: Expr) -> tuple[Expr, ...]:
    """The entries of a tuple in parentheses or of a matrix with one row or column; empty for anything else."""
    if vector.op == "tuple":
        return vector.args if vector.name == "()" or (vector.name == "[]" and len(vector.args) > 2) else ()
    if vector.op != "matrix" or 1 not in (len(vector.args), len(vector.args[0].args)):
        return ()
    return tuple(cell for row in vector.args for cell in row.args)


def same_vector(a: Expr, b: Expr) -> bool:
    """Whether a vector by its entries equals a linear combination of unit vectors."""
    listed, written = (a, b) if entries(a) else (b, a)
    cells = entries(listed)
    names = [Expr("sym", name=f"?{letter}") for letter in "ijk"[: len(cells)]]
    total = _unit_vectors(written)
    if not 2 <= len(cells) <= 3 or not {"?j", "?k"} & symbols(total):
        return False
    return same_value(total, add([mul(cell, name) for cell, name in zip(cells, names, strict=True)])) is True


def _unit_vectors(expr: Expr) -> Expr:
    """The expression with canonical names of unit vectors."""
    for letter, spellings in zip("ijk", _UNIT_VECTORS, strict=True):
        if expr in spellings:
            return Expr("sym", name=f"?{letter}")
    return expr._replace(args=tuple(_unit_vectors(arg) for arg in expr.args)) if expr.args else expr
