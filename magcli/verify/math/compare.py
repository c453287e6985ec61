"""Whether a math answer equals the ground truth (recipe, section 2).

Both sides are parsed by one grammar into trees of exact numbers, expressions and structures, then compared: identical
text, numbers, structures part by part (lists, tuples, sets, regions of the real line, relations, matrices), expressions
by their values at fixed points, an infinite series in the ground truth by its closed form. What cannot be parsed is
equal only as text. Every rule is symmetric unless it mentions the ground truth. Answers are never executed; budgets on
tokens, depth, digits, powers and steps bound the time, and larger values are equal only as the same power, factorial or
text. A false accept is worse than a false reject, so ambiguity is resolved on the safe side.

``docs/math-rules.toml`` lists the rules with answers that are equal by them and answers that are not, all of which a
test compares; the documentation shows them as a page.
"""

import re
from collections import deque
from itertools import count

from magcli.verify.format import boxed_answer
from magcli.verify.math.asked.demands import unasked
from magcli.verify.math.asked.named import by_labels, dimensions_as_list, in_asked_order
from magcli.verify.math.asked.order import chain_as_list
from magcli.verify.math.asked.puzzles import verdict_on_puzzle
from magcli.verify.math.asked.readings import (
    as_in_question,
    is_one_as_asked,
    options,
    same_as_known,
    without_asked_base,
    without_asked_scale,
)
from magcli.verify.math.asked.rounding import is_rounded_as_asked
from magcli.verify.math.equality.equations import named_value, quantity_value, resolve_chains
from magcli.verify.math.equality.evaluate import METER
from magcli.verify.math.equality.functions import same_growth, same_up_to_constant
from magcli.verify.math.equality.identity import closed_form, is_series
from magcli.verify.math.equality.lines import with_plain_coordinates
from magcli.verify.math.equality.parameters import implied_parameters
from magcli.verify.math.equality.structure import same
from magcli.verify.math.latex.answers import parse_answer, parse_as_list, parse_as_points, ratio_in_words
from magcli.verify.math.latex.polar import is_polar, verdict_of
from magcli.verify.math.latex.spelling import normalize, squeeze
from magcli.verify.math.latex.tree import Expr, is_whole_number, mul, num
from magcli.verify.math.latex.units import is_compound, is_known_unit, ratio_of_units, unit_name
from magcli.verify.math.latex.wording import plain

MAX_CHARS = 10_000
"""Longer answers are compared as raw text only."""
MAX_WORDS = 8
"""A ground truth with more words is prose, not an answer."""
MAX_LABEL_WORDS = 6
"""Words of a ground truth that is compared as text."""

_INTEGER = re.compile(r"-?[1-9][0-9]{0,300}|0")
# ``8 (kg)``, ``124 (square meters)``: the unit of a ground truth in brackets.
_UNIT_IN_BRACKETS = re.compile(r"(?P<number>[$£€]?-?[\d.,/]*\d)\s+\((?P<words>[A-Za-z][A-Za-z ]+)\)")
_OR = re.compile(r"\\text\{\s*or\s*\}|(?<!\S)or(?!\S)")
MAX_FORMS = 5
"""Forms of one value in a ground truth."""
MIN_COUNTED = 4
"""Letters of a word that is no product of variables."""
_LABEL = re.compile(r"[\w .:'/()-]{1,60}")
# ``3,5`` or ``3,5 cm``.
_COMMA_DECIMAL = re.compile(r"(?P<number>[+-]?\d+,\d+)(?P<words>(?:\s|\\,|\\)*[^\d\s,;=<>+*/][^\d,;=<>+*/]*)?")
# ``1,234``, which may also be a list.
_COMMA_GROUPS = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+")
# ``C(5,2)``: a number of combinations or permutations, or else a named point.
_CHOSEN_PAIR = re.compile(r"[CP](?:\s|\\[,;! ])*(?:\\left)?\(")
# A fraction, a number with grouped digits, or any other number, in running text.
_NUMBER = re.compile(
    r"(?<![\w)\]}])-?(?:\\[dt]?frac\{-?\d+\}\{\d+\}|\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|\d+(?:\.\d+)?(?:/\d+)?)|\d+"
)
# Nothing but digits, signs and spaces.
_PLAIN_NUMBER = re.compile(r"[-+\d.,$ ]+")
_PROSE_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_TEXT = re.compile(r"\\text\{([^{}]*)\}")


def extract(text: str) -> str | None:
    """The answer in ``\\boxed{}`` or ``\\fbox{}``; None without a box or if the last one is unclosed."""
    return boxed_answer(text)


def equal(prediction: str, gold: str) -> bool:
    """Whether a boxed answer's text equals the ground truth. Hostile input may take long: call it in a worker."""
    return compare(prediction, gold)[0]


def compare(prediction: str, gold: str, question: str = "") -> tuple[bool, str]:
    """Whether the two are equal, and which comparison decided.

    If the question is given, the answer must also be what it asks for, and may be read as it writes, see ``asked``.

    Either may be in boxes or ``$..$``, the ground truth after ``####`` too. Comparisons: ``text``, ``empty``,
    ``too-long``, ``number``, ``same``, ``numeric``, ``undecided``, ``unit``, ``percent``, ``literal``, ``ratio``,
    ``words``, ``choice``, ``structure``, ``region``, ``equation``, ``inequality``, ``relation``, ``function``,
    ``decimal-comma``, ``sympy``, ``question``, ``factors``, ``terms``, ``order``, ``value``, ``form``, ``puzzle``,
    ``unparsable``, or the exceeded budget.
    """
    left = (boxed_answer(prediction) or prediction).strip()
    truth = extract_gold(gold).strip()
    if not left or not truth:
        return False, "empty"
    decision = _decide(left, truth, question)
    if decision[0]:
        return decision
    # As it is written first, since the words in brackets may be no unit.
    for read in (_with_plain_unit, _one_form):
        other_truth = read(truth)
        if other_truth != truth:
            return _decide(left, other_truth, question)
    return decision


def _decide(left: str, truth: str, question: str) -> tuple[bool, str]:
    """Compare two answers that are not empty, within the budgets."""
    if left == truth and not question:
        return True, "text"
    if max(len(left), len(truth)) > MAX_CHARS:
        return left == truth, "text" if left == truth else "too-long"
    # Most wrong answers are other integers, for which nothing need be parsed.
    if left != truth and _INTEGER.fullmatch(left) and _INTEGER.fullmatch(truth):
        return False, "number"
    meter = METER.set(count(1))
    try:
        return _compare_asked(left, truth, question) if question else _compare(left, truth)
    except RecursionError:
        return False, "too-deep"
    except (ArithmeticError, ValueError):
        return False, "undecided"
    finally:
        METER.reset(meter)


def extract_gold(gold: str) -> str:
    """The answer in a ground truth that may be a solution: after the last ``####``, or in its box."""
    if "####" in gold:
        return gold.rpartition("####")[2].strip()
    return boxed_answer(gold) or gold


def _with_plain_unit(truth: str) -> str:
    """A ground truth with its unit after the number: ``8 (kg)`` as 8 kilograms."""
    written = _UNIT_IN_BRACKETS.fullmatch(truth) if truth.endswith(")") else None
    if written is None:
        return truth
    words = written["words"].strip()
    longest = max(map(len, words.split()))
    # 8 (ab) is a product.
    if longest < MIN_COUNTED and not is_known_unit(unit_name(words)):
        return truth
    return rf"{written['number']}\text{{ {words}}}"


def _one_form(truth: str) -> str:
    """The last form of a ground truth whose forms are equal: ``x+11 or 11+x``."""
    *others, last = _OR.split(truth)
    are_equal = 0 < len(others) < MAX_FORMS and all(_decide(form.strip(), last.strip(), "")[0] for form in others)
    return last.strip() if are_equal else truth


def _compare(left: str, truth: str) -> tuple[bool, str]:
    b = resolve_chains(parse_answer(truth))
    # Elsewhere "2 to 5" is a range.
    worded_ratio = ratio_in_words(left) if b.op == "ratio" else None
    a = worded_ratio or resolve_chains(parse_answer(left))
    if b.op == "text" and is_polar(b.name) and verdict_of(left) == plain(b.name):
        return True, "words"
    if a.op == "raw" or b.op == "raw":
        return _compare_as_text(left, truth, (a, b))
    are_same, path = same(a, b)
    if are_same:
        return True, path
    # The two differ as they are written; what follows are other readings of them.
    if rewritten := _same_when_rewritten(a, b):
        return True, rewritten
    if _same_compound(left, truth, a, b):
        return True, "unit"
    value = quantity_value(a) if b.op not in ("rel", "text", "list") else None
    if value is not None and same(value, b)[0]:
        return True, "equation"
    if _same_with_decimal_comma(left, truth, a, b):
        return True, "decimal-comma"
    if _CHOSEN_PAIR.match(left) or _CHOSEN_PAIR.match(truth):
        return same(parse_as_points(left), parse_as_points(truth))[0], "structure"
    if _COMMA_GROUPS.fullmatch(left) or _COMMA_GROUPS.fullmatch(truth):
        listed, other = (resolve_chains(parse_as_list(text)) for text in (left, truth))
        return same(listed, other)[0], "structure"
    # Commands that the grammar takes for different symbols may be fonts and spaces only.
    if "\\" in left + truth and squeeze(left) == squeeze(truth):
        return True, "text"
    # The ground truth may be a series; an answer that is one has not summed it.
    summed = None if is_series(a) else closed_form(b)
    if summed is not None:
        return same(a, summed)[0], "sympy"
    return False, path


def _same_compound(left: str, truth: str, a: Expr, b: Expr) -> bool:
    """Whether two measures of one kind are equal, at least one of which is a sum of several units."""
    if a.op != "unit" or b.op != "unit" or a.name == b.name:
        return False
    if not any(is_compound(text) for text in (left, truth)):
        return False
    ratio = ratio_of_units(a.name, b.name)
    return ratio is not None and same(mul(a.args[0], num(ratio)), b.args[0])[0]


def _same_when_rewritten(a: Expr, b: Expr) -> str:
    """The rule by which two answers are one under other names of parameters, constants or coordinates; else empty."""
    if any(same(x, y)[0] for x, y in implied_parameters(a, b)):
        return "parameter"
    if same_up_to_constant(a, b) or same_growth(a, b):
        return "function"
    for one, other in ((a, b), (b, a)):
        renamed = with_plain_coordinates(one, other)
        if renamed is not None and same(renamed, other)[0]:
            return "equation"
    return ""


def _compare_asked(left: str, truth: str, question: str) -> tuple[bool, str]:
    """Compare two answers to a question, which says how to read them and what they must be besides equal."""
    solved = verdict_on_puzzle(left, truth, question)
    if solved is not None:
        return solved, "puzzle"
    if left == truth:
        return True, "text"
    left, truth = _read_with(question, left), _read_with(question, truth)
    # Where only one of them is a chain of names, it may be their list.
    if ("<" in left) != ("<" in truth) or (">" in left) != (">" in truth):
        left, truth = chain_as_list(left, question), chain_as_list(truth, question)
    left, truth = by_labels(left, truth) or (left, truth)
    decision = _compare(left, truth)
    if decision[0]:
        fault = unasked(left, truth, question)
        return (False, fault) if fault else decision
    # Answers that differ may still be equal by what the question says.
    a, b = parse_answer(left), parse_answer(truth)
    rules = (same_as_known, is_rounded_as_asked, is_one_as_asked)
    if any(is_right(a, b, question) for is_right in rules):
        return True, "question"
    for one, other in ((left, truth), (truth, left)):
        number = without_asked_scale(one, question)
        digits = without_asked_base(one, question)
        if digits and digits == squeeze(other):
            return True, "question"
        if number and _compare(number, other)[0]:
            return True, "question"
    chosen = _is_only_option(left, truth, question) or _is_only_option(truth, left, question)
    return (True, "choice") if chosen else decision


def _read_with(question: str, text: str) -> str:
    """An answer as the question lets it be read: its numbers, dimensions, and values with names."""
    read = as_in_question(text, question)
    # Most answers, which have neither names nor dimensions.
    if _PLAIN_NUMBER.fullmatch(read):
        return read
    return in_asked_order(dimensions_as_list(read, question), question)


def _is_only_option(label: str, text: str, question: str) -> bool:
    """Whether a label is that of the only option of the question that equals a text."""
    name = parse_answer(label)
    if name.op not in ("choice", "sym", "const") or name.args:
        return False
    listed = options(question)
    if name.name not in listed or parse_answer(text).op == "choice":
        return False
    equal_options = [letter for letter, option in listed.items() if _compare(text, option)[0]]
    # Two options of one value say nothing about the label.
    return equal_options == [name.name]


def _same_with_decimal_comma(left: str, truth: str, a: Expr, b: Expr) -> bool:
    """Whether two answers, here as texts and trees, are equal if their commas are decimal commas."""
    if _is_comma_decimal(left, named_value(b)) or _is_comma_decimal(truth, named_value(a)):
        return True
    if not _are_comma_measures(left, truth):
        return False
    measure, wanted = (parse_answer(text.replace(",", ".")) for text in (left, truth))
    return same(measure, wanted)[0]


def _is_comma_decimal(text: str, other: Expr) -> bool:
    """Whether a text is the other value with a decimal comma: a non-integer number, or a number with a unit."""
    written = _with_decimal_comma(text)
    if written is None or other.op not in ("num", "unit", "percent"):
        return False
    value = parse_answer(written.string.replace(",", "."))
    if written["words"]:
        return same(value, other)[0]
    is_fraction = other.op == "num" and not is_whole_number(other)
    return is_fraction and value == num(other.number)


def _with_decimal_comma(text: str) -> re.Match[str] | None:
    """A number with a comma, perhaps before words; None for anything else, also for grouped digits: ``1,250``."""
    written = _COMMA_DECIMAL.fullmatch(normalize(text))
    is_grouped = written is not None and _COMMA_GROUPS.fullmatch(written["number"])
    return None if is_grouped else written


def _are_comma_measures(left: str, truth: str) -> bool:
    """Whether two answers are numbers with decimal commas and units: ``12,5 Euro`` and ``12,50 €``."""
    return all(written is not None and written["words"] for written in map(_with_decimal_comma, (left, truth)))


def _compare_as_text(left: str, truth: str, trees: tuple[Expr, Expr]) -> tuple[bool, str]:
    """Compare what the grammar cannot parse as text."""
    a, b = squeeze(left), squeeze(truth)
    # Fewer letters may be names, in which case matters.
    is_word = len(a) > 3 and a.isalpha()
    if (a and a == b) or (is_word and a.casefold() == b.casefold()):
        return True, "text"
    # A raw tree has the reason for which it was not parsed; a budget says more than the others.
    reasons = (tree.args[0].name for tree in trees if tree.op == "raw")
    specific = (reason for reason in reasons if reason not in ("unparsable", "matrix-shapes"))
    return False, next(specific, "unparsable")


def parsable(gold: str) -> bool:
    """Whether a ground truth is an answer that can be checked: a number, a few words, a structure or expression."""
    truth = extract_gold(gold).strip()
    if not truth or len(truth) > MAX_CHARS or len(_PROSE_WORD.findall(truth)) > MAX_WORDS:
        return False
    if parse_answer(truth).op != "raw":
        return True
    # Words, a choice, a time: compared as text.
    label = _TEXT.sub(r"\1", normalize(truth)).replace(r"\times", "x")
    has_letter_or_digit = re.search(r"[^\W_]", label) is not None
    is_short = len(label.split()) <= MAX_LABEL_WORDS
    return has_letter_or_digit and is_short and _LABEL.fullmatch(label) is not None


def last_number(text: str) -> str | None:
    """The last number in a text, including simple fractions, for the format-free metric."""
    last = deque(_NUMBER.finditer(text), maxlen=1)
    return last[0][0] if last else None


def correct_anywhere(text: str, gold: str) -> bool:
    """Whether the answer is right in any format: in its box, or without one as the last number."""
    answer = extract(text) or last_number(text)
    return answer is not None and equal(answer, gold)
