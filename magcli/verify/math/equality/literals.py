"""Comparing answers that are literal rather than calculated: choices, words, numbers in a base, ratios and times."""

from collections.abc import Callable
from functools import reduce

from magcli.verify.math.equality.equations import is_assignment
from magcli.verify.math.equality.identity import are_equal, same_value
from magcli.verify.math.latex.clock import same_time
from magcli.verify.math.latex.dates import abbreviates
from magcli.verify.math.latex.tree import ZERO, Expr, div, is_whole_number, letter_value, mul, sym
from magcli.verify.math.latex.wording import is_letters

LABELS = frozenset("ABCDEFGHIJ")
"""Capital letters that name options of a multiple-choice problem."""
MAX_FACTORS = 4
"""Longer words are not a product of letters."""
Decision = tuple[bool, str]
"""Whether two answers are the same, and which comparison decided."""
ComparePart = Callable[[Expr, Expr], Decision]
"""Compares parts of two answers."""


def values(a: Expr, b: Expr) -> Decision:
    """Expressions by their values."""
    agree = same_value(a, b)
    path = "undecided" if agree is None else "numeric"
    if a.op == b.op == "num":
        path = "number"
    return agree is True, path


def choices(a: Expr, b: Expr, inner: ComparePart) -> Decision:
    """``(C) 12`` is ``C`` and is ``12``; two letters must agree, and two values. ``A: 3, B`` names two options."""
    if a.op != "choice":
        a, b = b, a
    if any(map(_lists_a_label, a.args)):
        return False, "choice"
    if b.op == "choice":
        if a.name != b.name:
            return False, "choice"
        both_have_values = bool(a.args and b.args)
        return not both_have_values or inner(a.args[0], b.args[0])[0], "choice"
    if a.args:
        is_label = b.op in ("sym", "const") and a.name == b.name
        return (True, "choice") if is_label else inner(a.args[0], b)
    # A letter alone may be a variable too.
    letter = sym(a.name)
    if b.op in ("sym", "const", "*", "+", "/", "^"):
        return values(letter, b)
    if b.op == "matrix":
        # I may be the identity.
        return inner(letter, b)
    is_singleton = b.op == "set" and len(b.args) == 1
    return is_singleton and inner(a, b.args[0])[0], "choice"


def _lists_a_label(value: Expr) -> bool:
    """Whether the value of a choice is a list with a capital letter in it."""
    letters = {part.name for part in value.args if part.op in ("sym", "const")}
    return value.op == "list" and not LABELS.isdisjoint(letters)


def texts(a: Expr, b: Expr, inner: ComparePart) -> Decision:
    """Words by their letters and digits; a few letters may be a product or a list of choices."""
    if a.op == b.op == "text":
        return _same_words(a.name, b.name), "words"
    if a.op != "text":
        a, b = b, a
    if b.op == "list":
        # ACD is A, C, D.
        labels = [part.name for part in b.args if part.name in LABELS]
        return b.name != "or" and sorted(labels) == sorted(a.name), "choice"
    few_letters = a.name.isalpha() and a.name.isascii() and len(a.name) <= MAX_FACTORS
    if few_letters and b.op not in ("num", "rel", "unit"):
        product = reduce(mul, map(letter_value, a.name))
        return values(product, b)
    if is_assignment(b):
        return inner(a, b.args[1])
    return False, "words"


def _same_words(name: str, other: str) -> bool:
    """Whether two texts have the same letters and digits; of runs of letters such as ``CD`` also in the same case."""
    words = "".join(filter(str.isalnum, name))
    other_words = "".join(filter(str.isalnum, other))
    if abbreviates(words, other_words) or abbreviates(other_words, words):
        return True
    if not words or not other_words:
        return False
    if is_letters(name) and is_letters(other):
        return words == other_words
    return words.lower() == other_words.lower()


def bases(a: Expr, b: Expr, _: ComparePart) -> Decision:
    """Numbers in a base by their digits; the default is base ten."""
    number, other = _digits_and_base(a), _digits_and_base(b)
    return number is not None and number == other, "literal"


def _digits_and_base(expr: Expr) -> tuple[str, str] | None:
    """The digits and the base of a whole number; None for anything else."""
    if expr.op == "base":
        digits, _, base = expr.name.partition("_")
        return digits.lstrip("0").lower(), base
    if is_whole_number(expr):
        return str(expr.number), "10"
    return None


def _are_proportional(terms: tuple[Expr, ...], others: tuple[Expr, ...]) -> bool:
    """Whether two ratios of equally many terms are equal: ``x : first`` is ``y : other_first`` for every pair."""
    first, other_first = terms[0], others[0]
    pairs = zip(terms, others, strict=True)
    return all(are_equal(mul(x, other_first), mul(y, first)) for x, y in pairs)


def ratios(a: Expr, b: Expr, inner: ComparePart) -> Decision:
    """``2:4`` is ``1:2`` and 1/2; a possible time of day is only itself."""
    if a.op != "ratio":
        a, b = b, a
    if b.op == "rel":
        return inner(a, b.args[1]) if is_assignment(b) else (False, "literal")
    names = {a.name, b.name}
    if names & {"time", "clock"}:
        # Two equal times in one notation are one tree, which is not compared again.
        return a.op == b.op and "clock" in names and same_time(a, b), "literal"
    if b.op == "ratio":
        # With a term 0 the cross products would be equal whatever the other terms are.
        if len(a.args) != len(b.args) or ZERO in a.args + b.args:
            return False, "literal"
        return _are_proportional(a.args, b.args), "ratio"
    is_fraction = b.op == "/" or (b.op == "num" and b.number.denominator > 1)
    if not is_fraction or len(a.args) != 2:
        return False, "ratio"
    return are_equal(div(*a.args), b), "ratio"
