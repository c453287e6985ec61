r"""A unit written in bare letters, ``5\,m^2``, which are read as factors, beside one in upright type."""

from magcli.verify.latex.tree import ONE, Expr, div, mul
from magcli.verify.latex.units import SYMBOLS, written

MAX_LETTERS = 8
_LONGEST = 3
"""Letters of the longest sign, ``mol``."""


def measured(expr: Expr, unit: str) -> Expr | None:
    """The value before the letters of an expression, where these are the signs of a unit; None where they are not."""
    letters: list[tuple[str, int]] = []
    value = _parted(expr, 1, letters)
    if value is None or not 0 < len(letters) <= MAX_LETTERS:
        return None
    return value if unit in _names(tuple(letters)) else None


def _parted(expr: Expr, power: int, letters: list[tuple[str, int]]) -> Expr | None:
    """The factors that are no letters; the letters with their powers are put into a list as they come."""
    if expr.op == "sym" and (expr.name.isalpha() or expr.name in SYMBOLS):
        letters.append((expr.name, power))
        return ONE
    if expr.op == "^" and expr.args[0].op == "sym" and expr.args[1].op == "num":
        whole = expr.args[1].number.denominator == 1
        return _parted(expr.args[0], power * int(expr.args[1].number), letters) if whole else None
    if expr.op in ("*", "/"):
        first = _parted(expr.args[0], power, letters)
        second = _parted(expr.args[1], power if expr.op == "*" else -power, letters)
        return None if first is None or second is None else (mul if expr.op == "*" else div)(first, second)
    return None if _holds_letter(expr) else expr


def _holds_letter(expr: Expr) -> bool:
    return expr.op == "sym" or any(_holds_letter(arg) for arg in expr.args)


def _names(letters: tuple[tuple[str, int], ...]) -> set[str]:
    """The units that a row of letters can be: ``km`` is one of two letters, of which only the last has a power."""
    return {written(powers) for powers in _readings(letters)}


def _readings(letters: tuple[tuple[str, int], ...]) -> list[dict[str, int]]:
    if not letters:
        return [{}]
    found = []
    for size in range(1, min(_LONGEST, len(letters)) + 1):
        head, power = letters[:size], letters[size - 1][1]
        joined = all(p == 1 or (power < 0 and p == -1) for _, p in head[:-1])
        name = SYMBOLS.get("".join(letter for letter, _ in head))
        if name is None or not joined:
            continue
        for rest in _readings(letters[size:]):
            found.append(rest | {name: rest.get(name, 0) + power})
    return found
