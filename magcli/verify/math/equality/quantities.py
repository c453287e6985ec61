"""Conversions, units written as letters, and vectors: the parts of quantities besides their numbers."""

from magcli.verify.math.equality.identity import are_equal, symbols
from magcli.verify.math.latex.tree import ONE, PI, Expr, I, add, div, is_whole_number, mul, num, sym
from magcli.verify.math.latex.units import SYMBOLS, format_units

MAX_UNIT_LETTERS = 8
_MAX_SYMBOL_LENGTH = 3
"""Letters of the longest unit symbol, ``mol``."""


def is_converted(a: Expr, b: Expr) -> bool:
    """Whether a percentage or angle is the other value: ``50%`` is 1/2, ``90^\\circ`` is ``\\pi/2``.

    ``300%`` is not 3, which may be a percentage itself.
    """
    if a.op == "percent":
        may_be_share = b.op != "num" or b.number.denominator > 1 or abs(b.number) <= 1
        return may_be_share and are_equal(div(a.args[0], num(100)), b)
    if a.name != "degree" or b.op == "num" or symbols(b):
        return False
    return are_equal(in_radians(a.args[0]), b)


def in_radians(degrees: Expr) -> Expr:
    """An angle in radians."""
    return mul(degrees, div(PI, num(180)))


def strip_unit(expr: Expr, unit: str) -> Expr | None:
    """The value without its trailing letters if these can be read as ``unit``; else None.

    ``km`` has two letters, of which only the last may have a power.
    """
    letters: list[tuple[str, int]] = []
    value = _split_letters(expr, 1, letters)
    if value is None or not 0 < len(letters) <= MAX_UNIT_LETTERS:
        return None
    return value if unit in map(format_units, _unit_readings(tuple(letters))) else None


def _split_letters(expr: Expr, power: int, letters: list[tuple[str, int]]) -> Expr | None:
    """The factors that are not letters; the letters and their powers are appended to ``letters``."""
    if expr.op == "sym" and (expr.name.isalpha() or expr.name in SYMBOLS):
        letters.append((expr.name, power))
        return ONE
    if expr.op == "^" and expr.args[0].op == "sym" and expr.args[1].op == "num":
        letter, exponent = expr.args
        # No unit has a root.
        if not is_whole_number(exponent):
            return None
        return _split_letters(letter, power * int(exponent.number), letters)
    if expr.op in ("*", "/"):
        left, right = expr.args
        is_product = expr.op == "*"
        first = _split_letters(left, power, letters)
        # Letters below a fraction bar have the opposite power.
        second = _split_letters(right, power if is_product else -power, letters)
        if first is None or second is None:
            return None
        return mul(first, second) if is_product else div(first, second)
    return None if _has_letter(expr) else expr


def _has_letter(expr: Expr) -> bool:
    return expr.op == "sym" or any(_has_letter(arg) for arg in expr.args)


def _unit_readings(letters: tuple[tuple[str, int], ...]) -> list[dict[str, int]]:
    """All ways to read letters and their powers as units: the power of each unit by its name."""
    if not letters:
        return [{}]
    readings = []
    # Every length that the symbol at the front may have, with every reading of the letters after it.
    for size in range(1, min(_MAX_SYMBOL_LENGTH, len(letters)) + 1):
        symbol = letters[:size]
        name = SYMBOLS.get("".join(letter for letter, _ in symbol))
        if not name:
            continue
        # The power of a symbol stands at its last letter; below a fraction bar the other letters have -1.
        *before, power = (exponent for _, exponent in symbol)
        if any(exponent != 1 and not (exponent == -1 and power < 0) for exponent in before):
            continue
        for rest in _unit_readings(letters[size:]):
            readings.append(rest | {name: rest.get(name, 0) + power})
    return readings


def _unit_vector(letter: str) -> set[Expr]:
    """All spellings of a unit vector; a bare ``i`` is parsed as the imaginary unit."""
    names = (letter, rf"\hat {letter}", rf"\vec {letter}", rf"\hat \{letter}math")
    spellings = {sym(name) for name in names}
    return spellings | {I} if letter == "i" else spellings


_UNIT_VECTORS = tuple(map(_unit_vector, "ijk"))


def is_point(group: Expr) -> bool:
    """Whether a tuple has the brackets of a point or vector; ``[a,b]`` is an interval."""
    return group.name == "()" or (group.name == "[]" and len(group.args) > 2)


def entries(vector: Expr) -> tuple[Expr, ...]:
    """The entries of a tuple in parentheses or of a matrix with one row or column; empty for anything else."""
    if vector.op == "tuple":
        return vector.args if is_point(vector) else ()
    if vector.op != "matrix" or 1 not in (len(vector.args), len(vector.args[0].args)):
        return ()
    return tuple(cell for row in vector.args for cell in row.args)


def same_vector(a: Expr, b: Expr) -> bool:
    """Whether a vector by its entries equals a linear combination of unit vectors."""
    listed, combined = (a, b) if entries(a) else (b, a)
    cells = entries(listed)
    if not 2 <= len(cells) <= 3:
        return False
    total = _unit_vectors(combined)
    # i alone may be the imaginary unit.
    if not ({"?j", "?k"} & symbols(total) or _has_unit_vector(combined)):
        return False
    # A vector of two entries has no k.
    terms = [mul(cell, sym(f"?{letter}")) for cell, letter in zip(cells, "ijk", strict=False)]
    return are_equal(total, add(terms))


def _has_unit_vector(expr: Expr) -> bool:
    r"""Whether ``\hat{\imath}`` or ``\vec{i}`` occurs, which unlike a bare ``i`` cannot be the imaginary unit."""
    return any(name.startswith((r"\hat ", r"\vec ")) for name in symbols(expr))


def _unit_vectors(expr: Expr) -> Expr:
    """The expression with canonical names of unit vectors."""
    for letter, spellings in zip("ijk", _UNIT_VECTORS, strict=True):
        if expr in spellings:
            return sym(f"?{letter}")
    return expr._replace(args=tuple(map(_unit_vectors, expr.args)))
