"""Is a math answer the ground truth? Cheap and exact first, an algebra system last (recipe, section 2).

Both sides are brought to one spelling, then the first of these that can decide does: identical text, units, exact
rational numbers, words, structure (lists, tuples, intervals, unions, compared part by part), SymPy. The order of
arguments matters little: every rule is symmetric but SymPy's on inequalities.

A wrong accept is worse than a wrong reject, so ambiguity is settled on the safe side:

- A final dot, ``\\text{..}``, ``\\dfrac``, ``\\left``, ``$..$``, a degree sign and ``1{,}000`` or ``1,000`` change
  nothing.
- ``x=5`` is ``5``, and is not ``y=5``; ``x \\in [0,1]`` is ``[0,1]``.
- ``(1,2)`` is ordered; ``1,2`` and ``\\{1,2\\}`` are not; brackets tell: ``[0,1)`` is not ``[0,1]``, ``(1,2)`` is not
  ``1,2``.
- Decimals are exact: ``0.5`` is ``1/2``, ``0.333`` is not ``1/3``, ``3.14`` is not ``\\pi``.
- A unit may be missing on one side, two units must be the same: ``5 cm`` is ``5`` and is not ``5 m``.
- A percent sign may be missing where the number is at least 1: ``50%`` is ``50``; ``3`` is not ``300%``, ``0.5%`` not
  ``0.5``.
- ``i`` is the imaginary unit. ``1\\frac{1}{2}`` is 3/2, never a product. ``1011_2`` and ``2:1`` equal only themselves.
- Words are compared as words, case ignored: ``east`` is not ``seat``. One letter is a choice or a variable: ``(C)``
  is ``C``, and ``x`` is not ``X``.
- What is too large to work out safely is equal only to the same text.
"""

import re
from functools import lru_cache

from magcli.verify import symbolic
from magcli.verify.box import last_box
from magcli.verify.normalize import normalize
from magcli.verify.rational import rational
from magcli.verify.structure import Sequence, assignment, has_relation, sequence
from magcli.verify.units import measure

MAX_CHARS = 10_000
"""A longer answer is compared as raw text only."""
MAX_UNORDERED = 12
MAX_NESTING = 6
MAX_WORDS = 8
"""A ground truth with more words is prose, not an answer."""

_WORDS = re.compile(r"[^\W\d_]{2,}(?:[ '-][^\W\d_]+)*")
_LABEL = re.compile(r"[\w .:'/()-]{1,60}")
_CHOICE = re.compile(r"^\(([A-Za-z])\)$")
_LITERAL = re.compile(r"(?=[A-Z]*\d)[0-9A-Z]+_(?:\d|\{\d+\})|\d+(?::\d+)+")
"""A number in a base, a ratio or a time: no arithmetic on these."""
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

    The ground truth may stand in a box, in ``$..$`` or after ``####``. Paths: ``text``, ``empty``, ``too-long``,
    ``unit``, ``number``, ``literal``, ``words``, ``assignment``, ``structure``, ``sympy``, ``unparsable``, or the guard
    that refused.
    """
    truth = bare_gold(gold)
    if max(len(prediction), len(truth)) > MAX_CHARS:
        return prediction.strip() == truth.strip() != "", "too-long"
    return _compare(normalize(prediction), normalize(truth), MAX_NESTING)


def bare_gold(gold: str) -> str:
    """The answer in a ground truth that may be a worked solution: after the last ``####``, or in the last box."""
    if "####" in gold:
        return gold.rpartition("####")[2].strip()
    return last_box(gold) or gold


@lru_cache(maxsize=4096)
def parsable(gold: str) -> bool:
    """Whether a ground truth is an answer that can be checked: a number, a few words, a structure or expression."""
    truth = bare_gold(gold)
    return len(truth) <= MAX_CHARS and not _is_prose(truth) and _parsable(normalize(truth), MAX_NESTING)


def last_number(text: str) -> str | None:
    """The last number written in a text, simple fractions included, for the format-free metric."""
    last = None
    for last in _NUMBER.finditer(text):  # noqa: B007
        pass
    return last[0] if last else None


def anywhere(text: str, gold: str) -> bool:
    """Whether the answer is found whatever the format: the last box, or without any box the last number."""
    found = extract(text) or last_number(text)
    return found is not None and equal(found, gold)


def _compare(left: str, gold: str, depth: int) -> tuple[bool, str]:
    """Compare two normalised answers; ``depth`` bounds structures within structures."""
    if not left or not gold or depth == 0:
        return False, "empty"
    left, gold = _choice(left), _choice(gold)
    if left == gold or _same_letters(left, gold):
        return True, "text"
    if _LITERAL.fullmatch(left) or _LITERAL.fullmatch(gold):
        return False, "literal"
    a, b = measure(left), measure(gold)
    if a.unit and b.unit and a.unit != b.unit:
        return False, "unit"
    same, path = _bodies(a.body, b.body, depth)
    if a.percent != b.percent:
        value = rational(b.body)
        return same and value is not None and abs(value) >= 1 and not (a.unit or b.unit), "percent"
    return same, path


def _bodies(left: str, gold: str, depth: int) -> tuple[bool, str]:
    """Compare two answers without their units."""
    if left == gold:
        return bool(left), "text"
    x, y = rational(left), rational(gold)
    if x is not None and y is not None:
        return x == y, "number"
    if len(left) == len(gold) == 1:
        return False, "text"
    if _WORDS.fullmatch(left) or _WORDS.fullmatch(gold):
        return left.casefold() == gold.casefold(), "words"
    (name, value), (gold_name, gold_value) = assignment(left), assignment(gold)
    if name and gold_name and name != gold_name:
        return False, "assignment"
    if (name and not has_relation(gold_value)) or (gold_name and not has_relation(value)):
        return _compare(value, gold_value, depth - 1)
    return _structures(left, gold, depth) or symbolic.equal(left, gold)


def _structures(left: str, gold: str, depth: int) -> tuple[bool, str] | None:
    """Compare part by part where one side has parts; a bare expression is a list of one. None where neither has."""
    a, b = sequence(left), sequence(gold)
    if a is None and b is None:
        return None
    a, b = a or Sequence("or", (left,)), b or Sequence("or", (gold,))
    if len(a.parts) != len(b.parts) or (a.brackets != b.brackets and {a.brackets, b.brackets} != {"or", "{}"}):
        return False, "structure"
    if a.ordered or len(a.parts) > MAX_UNORDERED or _names_one_side(a, b):
        return all(_compare(x, y, depth - 1)[0] for x, y in zip(a.parts, b.parts, strict=True)), "structure"
    return _same_in_any_order(a.parts, list(b.parts), depth - 1), "structure"


def _names_one_side(a: Sequence, b: Sequence) -> bool:
    """Whether only one side names its values (``a=1, b=2``): then the order tells which value is whose."""
    left, gold = ({assignment(part)[0] for part in side.parts} for side in (a, b))
    return (len(left) > 1 and gold == {""}) or (len(gold) > 1 and left == {""})


def _same_in_any_order(left: tuple[str, ...], gold: list[str], depth: int) -> bool:
    for part in left:
        match = next((i for i, other in enumerate(gold) if _compare(part, other, depth)[0]), None)
        if match is None:
            return False
        del gold[match]
    return True


def _choice(text: str) -> str:
    """``(C)`` as ``C``."""
    return _CHOICE.sub(r"\1", text)


def _same_letters(left: str, gold: str) -> bool:
    """Whether two answers with words in ``\\text{..}`` read the same, spaces and case left out of account."""
    if r"\text{" not in left and r"\text{" not in gold:
        return False
    a, b = ("".join(_TEXT.sub(r"\1", side).split()).casefold().rstrip(".") for side in (left, gold))
    return a == b and len(re.findall(r"[^\W\d_]", a)) > 1


def _parsable(truth: str, depth: int) -> bool:
    if not truth or depth == 0:
        return False
    body = assignment(measure(truth).body)[1]
    if rational(body) is not None or _is_label(_TEXT.sub(r"\1", truth)):
        return True
    parts = sequence(body)
    if parts is not None:
        return bool(parts.parts) and all(_parsable(part, depth - 1) for part in parts.parts)
    return symbolic.parse(body) is not None


def _is_prose(truth: str) -> bool:
    return len(_PROSE_WORD.findall(truth)) > MAX_WORDS


def _is_label(text: str) -> bool:
    """A few words, a choice, a time or a ratio: what is compared as text."""
    return bool(_LABEL.fullmatch(text)) and len(text.split()) <= 6 and bool(re.search(r"[^\W_]", text))
