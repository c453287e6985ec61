r"""Whether a math answer equals the ground truth (recipe, section 2).

Both sides are parsed by one grammar into trees of exact numbers, expressions and structures, then compared: identical
text, numbers, structure (lists, tuples, sets, regions of the real line, relations, matrices, part by part), expressions
by their values at fixed points, a ground truth that is an infinite series by its closed form. What the grammar cannot
parse is equal only as text. Every rule is symmetric except where this docstring names the ground truth. Nothing that is
written in an answer is ever executed; budgets on tokens, depth, digits, powers and steps bound the time, and no value
beyond them is evaluated.

A wrong accept is worse than a wrong reject, so ambiguity is settled on the safe side:

- A final dot, ``\text{..}``, ``\dfrac``, ``\left``, ``$..$``, bold, colour and Unicode change nothing; nor do
  ``1{,}000``, ``1,000`` and ``1\,000``, but ``1, 000`` is two numbers. ``1,5`` is 1.5 only next to a decimal ``1.5``.
- ``x=5`` is ``5``, and is not ``y=5``; the last value of ``x=2+3=5`` counts; ``2x=10`` is not ``10``. A chain whose
  numbers differ (``5=6=5``, ``5 \approx 6``) has no value; a side may be another one rounded at its last digit.
- ``f(x)=x^2`` is ``f(t)=t^2``, ``y=x^2`` and ``x^2``; with another argument (``f(2x)=``, ``f(x+1)=``) it is the same
  statement only. Words for a name are not compared: ``\text{Area}=5`` is ``A=5``. A quantity is
  named by more than letters: ``\gcd(a,b)=6`` and ``E[X]=6`` are ``6``, and not each other. Where the ground truth is
  the bare ``12``, ``a+b+c=12`` is right; ``12`` is no right answer where it is that equation, for it may be asked for.
  ``x+z=1`` is the equation of a curve and never ``1``.
- Equations are equal when one is the other times a constant; inequalities too, with their direction. ``x>3``,
  ``(3,\infty)``, ``\{x\mid x>3\}`` and ``all reals greater than 3`` are one region; so are touching intervals and
  their union. A brace before several relations, or around them, joins them by ``and``, which is never ``or``: ``x<1
  and x>3`` is the empty set. Without a word they hold together where they can (``x>1, x<3``), else by turns. Equations
  for one name are its values, whichever word stands between them.
- ``(1,2)`` is ordered; ``1,2`` and ``\{1,2\}`` are not; brackets tell: ``[0,1)`` is not ``[0,1]``, ``(1,2)`` is not
  ``\{1,2\}``, but a tuple may have lost its round brackets: ``1,2`` is ``(1,2)``, ``2,1`` is not. A matrix of one row
  or column is the tuple of its entries; a row is not a column. ``[[1,2],[3,4]]`` is a matrix, ``2i-j`` the vector
  ``(2,-1)``. ``P(1,2)`` is ``(1,2)`` and is not ``Q(1,2)``; ``y=2, x=1`` is ``(1,2)``, in the order of the letters and
  not as written, as far as they follow each other in the alphabet. ``a\pm b`` is two answers, and a list that is
  shorter or longer is wrong.
- Decimals are exact: ``0.5`` is ``1/2``, ``0.333`` is not ``1/3``, ``3.14`` is not ``\pi``. Only a decimal of ten or
  more significant digits that is the rounding of an exact value without end is equal to it: ``0.33333333333``. After
  ``\approx`` nothing counts where an exact value stands before it, as far as it is that value rounded.
- A unit may be missing on one side, two units must be the same: ``5 cm`` is ``5`` and is not ``5 m``, nor ``50 mm``;
  only what is written in several is taken together: ``3 hours and 20 minutes`` is ``200 minutes``. Units are
  multiplied out, never converted: ``km h^{-1}`` is ``km/h``. Bare letters are a unit beside the same unit in upright
  type only: ``5m^2`` is ``5\text{ m}^2`` and is not ``5``. A degree sign may be missing; ``90^\circ`` is also
  ``\pi/2``; primes (minutes, seconds, feet, inches) may not: ``30'`` is not ``30``, and ``12^\circ 30'`` only itself.
- Any noun may follow a number as the thing counted (``12 apples``, ``12 ways to choose``), and what says nothing (``in
  total``, ``only``). Words of the closed classes of ``latex.units`` make another value of it: operations, numbers,
  fractions, comparisons without a noun, conditions, doubt, denial. So ``12 squared``, ``12 or more``, ``12 out of 20``,
  ``12 of them`` and ``12 percent of x`` are not ``12``. Where such a word may also be counted it still changes
  the value (``12 quarters``, ``12 gross``), but ``12 times``, ``12 pairs`` and ``12 more apples`` are ``12``. Number
  words multiply: ``5 million`` is 5,000,000, ``2 dozen`` 24, ``3 lakh`` 300,000. Letters for thousands are not read.
- A percent sign may be missing where the number is at least 1: ``50%`` is ``50`` and also ``0.5``; ``0.5%`` is not
  ``0.5``, and ``300%`` is not ``3``.
- ``i`` is the imaginary unit, ``e`` Euler's number, ``\log`` has base 10. ``1\frac{1}{2}`` and ``1 1/2`` are 3/2, never
  a product. ``(-8)^{1/3}`` is -2. Expressions are compared where both are real: ``2\ln x`` is ``\ln x^2``,
  but ``\ln|x|`` is not ``\ln x``. ``|x-1|`` is its definition by cases. ``\mathbb{R}^+`` is ``(0,\infty)``.
- ``1011_2`` is ``1011 base 2`` and ``1011 in binary``, not ``1011_3`` and not ``11``, nor ``1011``: a number without a
  base is in base ten.
- ``2:4`` is ``1:2`` and ``1/2``, but what may be a time of day, with two digits of minutes (``4:30``, ``2:05``), is
  only itself: no ratio, no fraction, not ``2:5``. ``2 to 5`` is ``2:5`` where that is the ground truth, and nothing
  else.
- The domain of a free parameter (``\pi k, k\in\mathbb{Z}``) may be missing on one side, two domains must be the same,
  and every other condition must be there. The parameter may have any name that stands for nothing else; without a
  domain only the ``k`` of a period, the ``t`` of a line and constants of integration may, and ``2n+1`` is not ``2k+1``.
  The constant itself may not be missing. Endless sums, integrals and limits are never evaluated: they are equal where
  their terms, integrands and bounds are.
- Words are compared as words, case, spaces and articles left out: ``east`` is not ``seat``. ``(C)`` is ``C``;
  ``(C) 12`` is ``C`` and is ``12``; ``x`` is not ``X``. An answer with a second label, joined by whatever sign, is
  neither, and one with something said of the label (``(C) is wrong``) is not ``C``; ``(C) false`` is, for ``false`` may
  be what stands beside it. An ellipsis is part of what it follows.
- What is too large to evaluate is equal only to the same power, factorial or text.
"""

import re
from functools import lru_cache

from magcli.verify.equality.equations import quantity_value, resolve_chains
from magcli.verify.equality.evaluate import METER, Meter
from magcli.verify.equality.parameters import implied_parameters
from magcli.verify.equality.series import closed_form, is_series
from magcli.verify.equality.structure import same
from magcli.verify.format import joined_boxes, last_box
from magcli.verify.latex.answers import normalize, parse_answer, parse_as_list, parse_as_points, ratio_in_words, squeeze
from magcli.verify.latex.tree import Expr, num

MAX_CHARS = 10_000
"""A longer answer is compared as raw text only."""
MAX_WORDS = 8
"""A ground truth with more words is prose, not an answer."""

_INTEGER = re.compile(r"-?[1-9][0-9]{0,300}|0")
_LABEL = re.compile(r"[\w .:'/()-]{1,60}")
_COMMA_DECIMAL = re.compile(r"[+-]?\d+,\d+")
_COMMA_GROUPS = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+")
_CHOSEN_PAIR = re.compile(r"[CP](?:\s|\\[,;! ])*(?:\\left)?\(")
_NUMBER = re.compile(
    r"(?<![\w)\]}])-?(?:\\[dt]?frac\{-?\d+\}\{\d+\}|\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|\d+(?:\.\d+)?(?:/\d+)?)|\d+"
)
_PROSE_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_TEXT = re.compile(r"\\text\{([^{}]*)\}")


def extract(text: str) -> str | None:
    """The content of the last ``\\boxed{}`` or ``\\fbox{}``; None without one or when its brace is never closed."""
    return last_box(text)


def equal(prediction: str, gold: str) -> bool:
    """Whether a boxed answer's text is the ground truth. May take long on hostile input: call it in the pool."""
    return compare(prediction, gold)[0]


def compare(prediction: str, gold: str) -> tuple[bool, str]:
    """Whether the two are equal, and which path decided.

    Either may stand in boxes or ``$..$``, the ground truth after ``####`` too. Paths: ``text``, ``empty``,
    ``too-long``, ``number``, ``same``, ``numeric``, ``undecided``, ``unit``, ``percent``, ``literal``, ``ratio``,
    ``words``, ``choice``, ``structure``, ``region``, ``equation``, ``inequality``, ``relation``, ``decimal-comma``,
    ``sympy``, ``unparsable``, or the budget that was exceeded.
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
        return _compare(left, truth)
    except RecursionError:
        return False, "too-deep"
    except (ArithmeticError, ValueError):
        return False, "undecided"
    finally:
        METER.reset(meter)


def extract_gold(gold: str) -> str:
    """The answer in a ground truth that may be a worked solution: after the last ``####``, or in the last box.

    Of boxes that only commas, ``and`` or ``or`` part (``\\boxed{1}, \\boxed{2}``) all are the answer.
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


def _is_comma_decimal(text: str, other: Expr) -> bool:
    """Whether a text is the European spelling of a number that is no integer."""
    bare = normalize(text)
    if other.op != "num" or other.number.denominator == 1 or not _COMMA_DECIMAL.fullmatch(bare):
        return False
    if _COMMA_GROUPS.fullmatch(bare):
        return False
    return parse_answer(bare.replace(",", ".")) == num(other.number)


def _compare_as_text(left: str, truth: str, trees: tuple[Expr, Expr]) -> tuple[bool, str]:
    """Compare as text what the grammar could not parse."""
    a, b = squeeze(left), squeeze(truth)
    if a == b != "" or (len(a) > 3 and a.isalpha() and a.casefold() == b.casefold()):
        return True, "text"
    reasons = [tree.args[0].name for tree in trees if tree.op == "raw"]
    return False, next((reason for reason in reasons if reason not in ("unparsable", "matrix-shapes")), "unparsable")


@lru_cache(maxsize=4096)
def parsable(gold: str) -> bool:
    """Whether a ground truth is an answer that can be checked: a number, a few words, a structure or expression."""
    truth = extract_gold(gold).strip()
    if not truth or len(truth) > MAX_CHARS or _is_prose(truth, MAX_WORDS):
        return False
    return parse_answer(truth).op != "raw" or _is_label(_TEXT.sub(r"\1", normalize(truth)).replace(r"\times", "x"))


def last_number(text: str) -> str | None:
    """The last number written in a text, simple fractions included, for the format-free metric."""
    last = None
    for last in _NUMBER.finditer(text):  # noqa: B007
        pass
    return last[0] if last else None


def correct_anywhere(text: str, gold: str) -> bool:
    """Whether the answer is found whatever the format: the last box, or without any box the last number."""
    found = extract(text) or last_number(text)
    return found is not None and equal(found, gold)


def _is_prose(truth: str, most: int) -> bool:
    return len(_PROSE_WORD.findall(truth)) > most


def _is_label(text: str) -> bool:
    """A few words, a choice, a time or a ratio: what is compared as text."""
    return bool(_LABEL.fullmatch(text)) and len(text.split()) <= 6 and bool(re.search(r"[^\W_]", text))
