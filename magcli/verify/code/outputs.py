"""Whether what a program gives is as expected: its output by rules of contest judges, or a function's value.

===================  ==================================================================================================
``tokens``           the words separated by blanks are equal, ignoring case (the ICPC default)
``tokens-case``      the same, but case-sensitive
``floats``           as ``tokens``, with decimals within an absolute or relative tolerance: ``floats`` is 1e-6,
                     ``floats:1e-4`` another
``decimals:2``       as ``tokens``, with decimals off by at most half a unit of the second place
``lines``            line by line, ignoring blanks at the end of a line, empty lines at the end and ``\\r``
``unordered-lines``  the lines, each as in ``tokens``, in any order, ignoring empty lines
``exact``            every byte
===================  ==================================================================================================

A tolerance applies only if the expected token is a decimal (``2.50``, ``1e-9``): 1000001 is not 1000000. An expected
integer equals a decimal within the absolute tolerance (``3`` and ``3.0000000``), but no other integer. Comparison is
lazy and stops at the first difference, so a flood of output costs no memory.
"""

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import zip_longest

from magcli.verify.code.comparison import DECIMAL, Comparison, Mode, comparison
from magcli.verify.code.tolerance import decimal_comparison
from magcli.verify.code.values import (
    DECODERS,
    MAX_EXCERPT,
    NotPlain,
    Other,
    Plain,
    close,
    decode,
    in_any_order,
    same,
    shortened,
    shown,
)

__all__ = [
    "DECODERS",
    "MAX_EXCERPT",
    "Comparison",
    "Mode",
    "NotPlain",
    "Other",
    "Plain",
    "close",
    "comparison",
    "decode",
    "difference",
    "in_any_order",
    "infer_comparison",
    "same",
    "shortened",
    "shown",
]

MAX_READ = 100_000
"""Characters of a test that are considered when inferring the comparison."""

_VERDICTS = frozenset(("yes", "no", "true", "false"))
# Camel case, which no output has by chance.
_CAPITAL_INSIDE = re.compile(r"[a-z][A-Z]")
_TOKEN = re.compile(rb"\S+")
# Of bounded length, as a program may write any number of digits.
_INTEGER = re.compile(rb"[+-]?\d{1,400}")


def infer_comparison(tests: Iterable[tuple[str, str]], statement: str = "") -> str:
    """The default comparison: ``tokens``, unless the tests show that case, layout or a tolerance matters.

    ``lines`` if every output begins with blanks; ``tokens-case`` if letter case is significant: a word of an output
    differs only in case from one of its input or of another output, or has a capital after a small letter. Yes, no,
    true and false are ignored, which contests write in any case. Decimals are compared by the tolerance of
    ``tolerance.decimal_comparison``.
    """
    tests = list(tests)
    blanks: list[bool] = []
    spelled: dict[str, str] = {}
    case_matters = False
    for stdin, output in tests:
        if len(stdin) + len(output) > MAX_READ:
            continue
        blanks.append(output[:1] in (" ", "\t") and not output.isspace())
        inputs = set(stdin.split())
        lower_inputs = {word.lower() for word in inputs}
        # Once for each word: outputs repeat them.
        for word in set(output.split()):
            lower = word.lower()
            if case_matters or lower in _VERDICTS:
                continue
            differs_from_input = word not in inputs and lower in lower_inputs
            # The first spelling stays, with which later ones are compared.
            differs_from_output = spelled.setdefault(lower, word) != word
            if differs_from_input or differs_from_output or _CAPITAL_INSIDE.search(word):
                case_matters = True
    if blanks and all(blanks):
        return "lines"
    if case_matters:
        return "tokens-case"
    short_outputs = (output for _, output in tests if len(output) <= MAX_READ)
    return decimal_comparison(short_outputs, statement) or "tokens"


def difference(expected: bytes, actual: bytes, rule: Comparison) -> str | None:
    """The first difference of two outputs, with short excerpts; None if the output is right."""
    if expected == actual:
        return None
    match rule.mode:
        case "exact":
            # Lines with their ends: a missing end of the last one differs, too.
            return _first(_whole_lines(expected), _whole_lines(actual), "line") or "differs"
        case "lines":
            return _first(_lines(expected), _lines(actual), "line")
        case "unordered-lines":
            return _other_lines(expected, actual)
    tolerance = rule.tolerance if rule.mode in ("floats", "decimals") else None
    fold = rule.mode != "tokens-case"
    absolute = rule.mode == "decimals"
    return _first(_tokens(expected), _tokens(actual), "token", fold=fold, tolerance=tolerance, absolute=absolute)


def _first(
    expected: Iterable[bytes],
    actual: Iterable[bytes],
    part: str,
    *,
    fold: bool = False,
    tolerance: float | None = None,
    absolute: bool = False,
) -> str | None:
    """The first difference of two sequences; the shorter one ends with None."""
    for number, (want, got) in enumerate(zip_longest(expected, actual), 1):
        if want == got:
            continue
        if want is not None and got is not None:
            if fold and want.lower() == got.lower():
                continue
            if tolerance is not None and _near(want, got, tolerance, absolute=absolute):
                continue
        return f"{part} {number}: expected {_shown(want)}, got {_shown(got)}"
    return None


def _near(expected: bytes, actual: bytes, tolerance: float, *, absolute: bool) -> bool:
    if not DECIMAL.fullmatch(expected) or not DECIMAL.fullmatch(actual):
        return False
    wanted, got = float(expected), float(actual)
    # Two integers are near only if they are equal.
    if _INTEGER.fullmatch(expected):
        return not _INTEGER.fullmatch(actual) and abs(wanted - got) <= tolerance
    return abs(wanted - got) <= tolerance if absolute else close(wanted, got, tolerance)


def _tokens(output: bytes) -> Iterator[bytes]:
    return (match[0] for match in _TOKEN.finditer(output))


def _lines(output: bytes) -> Iterator[bytes]:
    return (line.rstrip() for line in io.BytesIO(output.rstrip()))


def _whole_lines(output: bytes) -> Iterator[bytes]:
    return iter(io.BytesIO(output))


def _other_lines(expected: bytes, actual: bytes) -> str | None:
    # How often each expected line is still missing; one that is not expected counts as 0.
    missing = Counter(_normal_lines(expected))
    for number, line in enumerate(_normal_lines(actual), 1):
        if not missing[line]:
            return f"line {number}: {_shown(line)} is not expected{' again' if line in missing else ''}"
        missing[line] -= 1
    left = next(missing.elements(), None)
    return None if left is None else f"line {_shown(left)} is missing"


def _normal_lines(output: bytes) -> Iterator[bytes]:
    return (b" ".join(line.lower().split()) for line in io.BytesIO(output) if not line.isspace())


def _shown(part: bytes | None) -> str:
    if part is None:
        return "the end"
    # One byte more than is shown, so that it is seen whether there is more.
    return repr(shortened(part[: MAX_EXCERPT + 1].decode(errors="backslashreplace")))
