r"""Whether a math answer equals the ground truth (recipe, section 2).

Both sides are parsed by one grammar into trees of exact numbers, expressions and structures, then compared: identical
text, numbers, structures part by part (lists, tuples, sets, regions of the real line, relations, matrices), expressions
by their values at fixed points, an infinite series in the ground truth by its closed form. What cannot be parsed is
equal only as text. Every rule is symmetric unless it mentions the ground truth. Answers are never executed; budgets on
tokens, depth, digits, powers and steps bound the time, and larger values are equal only as the same power, factorial or
text. A false accept is worse than a false reject, so ambiguity is resolved on the safe side:

- A final dot, ``\text{..}``, ``\dfrac``, ``\left``, ``$..$``, bold, colour and Unicode are ignored; so are ``1{,}000``,
  ``1,000`` and ``1\,000``, but ``1, 000`` is two numbers. ``1,5`` is 1.5 only if compared with a decimal ``1.5``.
- ``x=5`` is ``5``, not ``y=5``; the last value of ``x=2+3=5`` counts; ``2x=10`` is not ``10``. A chain of different
  numbers (``5=6=5``, ``5 \approx 6``) has no value, unless one is another rounded at its last digit.
- ``f(x)=x^2`` is ``f(t)=t^2``, ``y=x^2`` and ``x^2``; with another argument (``f(2x)=``, ``f(x+1)=``) only itself.
  Words for a name are ignored: ``\text{Area}=5`` is ``A=5``. Compound quantities count as names: ``\gcd(a,b)=6`` and
  ``E[X]=6`` are ``6``, but not each other. For the ground truth ``12``, ``a+b+c=12`` is right, but not the other way
  round, as the equation may be asked for. ``x+z=1`` is the equation of a curve and never ``1``.
- Equations are equal up to a constant factor; inequalities too, with their direction. ``x>3``, ``(3,\infty)``,
  ``\{x\mid x>3\}`` and ``all reals greater than 3`` are one region; so are adjacent intervals and their union.
  Relations in a brace are joined by ``and``, never ``or``: ``x<1 and x>3`` is the empty set. Without a conjunction
  relations are joined by ``and`` if they can hold together (``x>1, x<3``), else by ``or``. Equations for one name are
  its values.
- ``(1,2)`` is ordered; ``1,2`` and ``\{1,2\}`` are not. Brackets matter: ``[0,1)`` is not ``[0,1]``, ``(1,2)`` is not
  ``\{1,2\}``, but the parentheses of a tuple may be missing: ``1,2`` is ``(1,2)``, ``2,1`` is not. A matrix with one
  row or column is the tuple of its entries; a row is not a column. ``[[1,2],[3,4]]`` is a matrix, ``2i-j`` is
  ``(2,-1)``. ``P(1,2)`` is ``(1,2)``, not ``Q(1,2)``; ``y=2, x=1`` is ``(1,2)``, in alphabetical order if the letters
  are consecutive. ``a\pm b`` is two answers; a list of another length is wrong.
- Decimals are exact: ``0.5`` is ``1/2``, ``0.333`` is not ``1/3``, ``3.14`` is not ``\pi``. Only a decimal of at least
  ten significant digits equals the non-terminating value that it rounds: ``0.33333333333``. After an exact value,
  ``\approx`` and its rounding are ignored.
- A unit may be missing on one side, two units must be the same: ``5 cm`` is ``5``, not ``5 m`` or ``50 mm``; only
  compound measures are added up: ``3 hours and 20 minutes`` is ``200 minutes``. Units are multiplied out but not
  converted: ``km h^{-1}`` is ``km/h``. Italic letters are a unit only if compared with an upright one: ``5m^2`` is
  ``5\text{ m}^2``, not ``5``. A degree sign may be missing; ``90^\circ`` is also ``\pi/2``. Primes (minutes, feet) may
  not: ``30'`` is not ``30``.
- A number may be followed by any noun as the thing counted (``12 apples``, ``12 яблок``, ``12个``) and by fillers (``in
  total``); with a question, only by one that is in it, is general (``ways``) or a unit. Words that change the value
  (see ``latex.units`` and ``latex.wording``) make another answer in seven languages: ``12 squared``, ``12 oder mehr``,
  ``12 out of 20`` and ``12 percent of x`` are not ``12``. Ambiguous ones change it (``12 quarters``, ``12 gross``), but
  ``12 times``, ``12 pairs`` and ``12 more apples`` are ``12``. Number words multiply: ``5 million`` is 5,000,000, ``2
  Dutzend`` 24. Letters for thousands are not supported.
- A sentence that only states a value (``there are 42 such triples``) is the value; quotes and marks around are ignored.
- Formulas of logic are equal up to the order of operands. ``n \equiv 3 \pmod 7`` is ``n=7k-4``; ``4 \mid n`` is ``n
  \equiv 0 \pmod 4``. A factor of a vector is multiplied out. ``A or C`` is not ``A, C``, but ``2 or 3`` is ``2, 3``.
- A percent sign may be missing if the number is at least 1: ``50%`` is ``50`` and ``0.5``; ``0.5%`` is not ``0.5``, and
  ``300%`` is not ``3``.
- ``i`` is the imaginary unit, ``e`` Euler's number, ``\log`` has base 10. ``1\frac{1}{2}`` and ``1 1/2`` are 3/2, not
  products. ``(-8)^{1/3}`` is -2. Expressions are compared where both are real: ``2\ln x`` is ``\ln x^2``, but
  ``\ln|x|`` is not ``\ln x``. ``|x-1|`` is its definition by cases. ``\mathbb{R}^+`` is ``(0,\infty)``.
- ``1011_2`` is ``1011 base 2`` and ``1011 in binary``, not ``1011_3``, ``11`` or ``1011``, which is in base ten.
- ``2:4`` is ``1:2`` and ``1/2``, but a possible time of day, with two digits of minutes (``4:30``, ``2:05``), is only
  itself. ``2 to 5`` is ``2:5`` if that is the ground truth.
- The domain of a free parameter (``\pi k, k\in\mathbb{Z}``) may be missing on one side, two domains must be the same,
  and all other conditions are required. The parameter may have any unused name; without a domain only the ``k`` of a
  period, the ``t`` of a line and constants of integration may be renamed, and ``2n+1`` is not ``2k+1``. Infinite sums,
  integrals and limits are not evaluated: they are equal if their terms, integrands and bounds are.
- Words are compared without case, spaces and articles: ``east`` is not ``seat``; short runs of letters with case:
  ``CD`` is not ``cd``. ``(C)`` is ``C``; ``(C) 12`` is ``C``
  and ``12``; ``x`` is not ``X``. An answer with two labels is neither, and a statement about a label (``(C) is wrong``)
  is not ``C``; ``(C) false`` is, as ``false`` may be the text of the choice. An ellipsis is part of what it follows.
"""

import re
from collections.abc import Iterator

from magcli.verify.format import joined_boxes, last_box
from magcli.verify.math.equality.equations import quantity_value, resolve_chains
from magcli.verify.math.equality.evaluate import METER, Meter
from magcli.verify.math.equality.identity import closed_form, is_series
from magcli.verify.math.equality.parameters import implied_parameters
from magcli.verify.math.equality.structure import same
from magcli.verify.math.latex.answers import parse_answer, parse_as_list, parse_as_points, ratio_in_words
from magcli.verify.math.latex.spelling import normalize, squeeze
from magcli.verify.math.latex.tree import Expr, num
from magcli.verify.math.latex.units import is_known_unit
from magcli.verify.math.latex.wording import is_counted

MAX_CHARS = 10_000
"""Longer answers are compared as raw text only."""
MAX_WORDS = 8
"""A ground truth with more words is prose, not an answer."""

_INTEGER = re.compile(r"-?[1-9][0-9]{0,300}|0")
_LABEL = re.compile(r"[\w .:'/()-]{1,60}")
_COMMA_DECIMAL = re.compile(r"(?P<number>[+-]?\d+,\d+)(?P<words>(?:\s|\\,|\\)*[^\d\s,;=<>+*/][^\d,;=<>+*/]*)?")
_COMMA_GROUPS = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+")
_CHOSEN_PAIR = re.compile(r"[CP](?:\s|\\[,;! ])*(?:\\left)?\(")
_NUMBER = re.compile(
    r"(?<![\w)\]}])-?(?:\\[dt]?frac\{-?\d+\}\{\d+\}|\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|\d+(?:\.\d+)?(?:/\d+)?)|\d+"
)
_PROSE_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_TEXT = re.compile(r"\\text\{([^{}]*)\}")


def extract(text: str) -> str | None:
    """The content of the last ``\\boxed{}`` or ``\\fbox{}``; None without one or if its brace is never closed."""
    return last_box(text)


def equal(prediction: str, gold: str) -> bool:
    """Whether a boxed answer's text equals the ground truth. Hostile input may take long: call it in a worker."""
    return compare(prediction, gold)[0]


def compare(prediction: str, gold: str, question: str = "") -> tuple[bool, str]:
    """Whether the two are equal, and which comparison decided.

    If the question is given, words after a number that are neither a unit nor what it counts make another answer.

    Either may be in boxes or ``$..$``, the ground truth after ``####`` too. Comparisons: ``text``, ``empty``,
    ``too-long``, ``number``, ``same``, ``numeric``, ``undecided``, ``unit``, ``percent``, ``literal``, ``ratio``,
    ``words``, ``choice``, ``structure``, ``region``, ``equation``, ``inequality``, ``relation``, ``decimal-comma``,
    ``sympy``, ``unparsable``, or the exceeded budget.
    """
    left, truth = (joined_boxes(prediction) or prediction).strip(), extract_gold(gold).strip()
    if left == truth or not left or not truth:
        return left == truth != "", "text" if left and truth else "empty"
    if max(len(left), len(truth)) > MAX_CHARS:
        return False, "too-long"
    if _INTEGER.fullmatch(left) and _INTEGER.fullmatch(truth):
        return False, "number"
    meter = METER.set(Meter())
    try:
        decision = _compare(left, truth)
        if decision[0] and question and _counts_something_else(left, truth, question):
            return False, "words"
        return decision
    except RecursionError:
        return False, "too-deep"
    except (ArithmeticError, ValueError):
        return False, "undecided"
    finally:
        METER.reset(meter)


def extract_gold(gold: str) -> str:
    """The answer in a ground truth that may be a solution: after the last ``####``, or in the last box.

    Boxes separated only by commas, ``and`` or ``or`` (``\\boxed{1}, \\boxed{2}``) are one answer.
    """
    if "####" in gold:
        return gold.rpartition("####")[2].strip()
    return joined_boxes(gold) or gold


def _compare(left: str, truth: str) -> tuple[bool, str]:
    b = resolve_chains(parse_answer(truth))
    a = (ratio_in_words(left) if b.op == "ratio" else None) or resolve_chains(parse_answer(left))
    if a.op == "raw" or b.op == "raw":
        return _compare_as_text(left, truth, (a, b))
    found, path = same(a, b)
    if found:
        return True, path
    if any(same(x, y)[0] for x, y in implied_parameters(a, b)):
        return True, "parameter"
    value = quantity_value(a) if b.op not in ("rel", "text", "list") else None
    if value is not None and same(value, b)[0]:
        return True, "equation"
    if _is_comma_decimal(left, b) or _is_comma_decimal(truth, a):
        return True, "decimal-comma"
    if _CHOSEN_PAIR.match(left) or _CHOSEN_PAIR.match(truth):
        return same(parse_as_points(left), parse_as_points(truth))[0], "structure"
    if _COMMA_GROUPS.fullmatch(left) or _COMMA_GROUPS.fullmatch(truth):
        return same(resolve_chains(parse_as_list(left)), resolve_chains(parse_as_list(truth)))[0], "structure"
    if "\\" in left + truth and squeeze(left) == squeeze(truth):
        return True, "text"
    summed = None if is_series(a) else closed_form(b)
    if summed is not None:
        return same(a, summed)[0], "sympy"
    return False, path


def _counts_something_else(left: str, truth: str, question: str) -> bool:
    """Whether words after a number are no unit, and neither in the question nor in the ground truth."""
    return any(
        not is_known_unit(words) and not is_counted(words, f"{question} {truth}")
        for words in _units(parse_answer(left))
    )


def _units(expr: Expr) -> Iterator[str]:
    """The words after numbers anywhere in an answer."""
    if expr.op == "unit":
        yield expr.name
    for arg in expr.args:
        yield from _units(arg)


def _is_comma_decimal(text: str, other: Expr) -> bool:
    """Whether a text is the other value with a decimal comma: a non-integer number, or a number with a unit."""
    bare = normalize(text)
    found = _COMMA_DECIMAL.fullmatch(bare)
    if found is None or other.op not in ("num", "unit", "percent") or _COMMA_GROUPS.fullmatch(found["number"]):
        return False
    if not found["words"]:
        whole = other.op != "num" or other.number.denominator == 1
        return not whole and parse_answer(bare.replace(",", ".")) == num(other.number)
    return same(parse_answer(bare.replace(",", ".")), other)[0]


def _compare_as_text(left: str, truth: str, trees: tuple[Expr, Expr]) -> tuple[bool, str]:
    """Compare what the grammar cannot parse as text."""
    a, b = squeeze(left), squeeze(truth)
    if a == b != "" or (len(a) > 3 and a.isalpha() and a.casefold() == b.casefold()):
        return True, "text"
    reasons = [tree.args[0].name for tree in trees if tree.op == "raw"]
    return False, next((reason for reason in reasons if reason not in ("unparsable", "matrix-shapes")), "unparsable")


def parsable(gold: str) -> bool:
    """Whether a ground truth is an answer that can be checked: a number, a few words, a structure or expression."""
    truth = extract_gold(gold).strip()
    if not truth or len(truth) > MAX_CHARS or len(_PROSE_WORD.findall(truth)) > MAX_WORDS:
        return False
    if parse_answer(truth).op != "raw":
        return True
    label = _TEXT.sub(r"\1", normalize(truth)).replace(r"\times", "x")  # words, a choice, a time: compared as text
    return bool(_LABEL.fullmatch(label)) and len(label.split()) <= 6 and bool(re.search(r"[^\W_]", label))


def last_number(text: str) -> str | None:
    """The last number in a text, including simple fractions, for the format-free metric."""
    last = None
    for last in _NUMBER.finditer(text):  # noqa: B007
        pass
    return last[0] if last else None


def correct_anywhere(text: str, gold: str) -> bool:
    """Whether the answer is right in any format: in the last box, or without a box as the last number."""
    found = extract(text) or last_number(text)
    return found is not None and equal(found, gold)
