"""Equal values that a question does not ask for: in another unit or order, as a percentage, not worked out."""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import product, starmap, takewhile

from magcli.verify.math.asked import forms, notations
from magcli.verify.math.asked.named import asks_for_named
from magcli.verify.math.asked.order import asks_for_order, is_out_of_order
from magcli.verify.math.asked.requests import repeats_question
from magcli.verify.math.asked.terms import (
    count_common_numbers,
    count_numbers_to_join,
    count_uncollected,
    is_unsolved,
)
from magcli.verify.math.asked.values import is_not_evaluated, leaves_product, leaves_work_in_root
from magcli.verify.math.equality.functions import same_up_to_constant
from magcli.verify.math.equality.identity import same_value, symbols
from magcli.verify.math.latex.answers import parse_answer
from magcli.verify.math.latex.spelling import normalize, squeeze
from magcli.verify.math.latex.tree import Expr, is_whole_number, right_side
from magcli.verify.math.latex.units import compatible, is_known_unit, is_unit, unit_name
from magcli.verify.math.latex.wording import is_counted

# What a question asks for: ``how many apples``, ``in centimeters``.
_ASKED_UNIT = re.compile(
    r"(?<!\w)(?:(?P<amount>how many|number of|wie viele?|combien de|cu[aá]nt[oa]s|quant[ie]|сколько)|in|en|в"
    r"|(?:convert|change|express)\b(?:[^.?!]|\.\d){0,60}?\b(?:to|into))"
    r"\s+"
    r"(?P<words>\S[^,;:?!]{0,60})",
    re.IGNORECASE,
)
_ASKED_IN_CHINESE = re.compile(r"(?:多少|几|幾)\s*(?P<unit>[\u3400-\u9fff]{1,2})")
MAX_UNIT_WORDS = 4
_MARKUP = re.compile(r"\\(?:text|mathrm|textrm)\b|[${}\\]")
_FACTOR = re.compile(
    r"\bfactor(?:i[sz]e|i[sz]ing|i[sz]ation)\b|\bfactor(?=\s+(?:completely|fully|the|over|into|each|\$|\\|\d|\w+\^))"
    r"|faktorisier|faktorzerleg|primfaktor|factoris|factoriz|factorice|scompon|scomposiz|fattorizz|разлож|множител"
    r"|\bfactored form|因式|分解",
    re.IGNORECASE,
)
_EXPAND = re.compile(
    r"\bexpand\b|\bdistribute(?=[\s:]*[$\\(\d])|\bmultiply (?:it )?out\b"
    r"|ausmultiplizier|multipliziere[^.?!]{0,60}\baus\b"
    r"|\bdéveloppe[rz]?\b|\bdesarroll[ae]r?\b|\bsvilupp(?:a|are)\b|раскр(?:ойте|ыть) скобки|展开",
    re.IGNORECASE,
)
_SQUARE = re.compile(
    r"\b(?:by )?complet(?:e|ing) the square|\bvertex form|quadratische Ergänzung|Scheitelpunktform|forme canonique"
    r"|complet(?:a|ar|ando|are) (?:el cuadrado|il quadrato)|配方|顶点式",
    re.IGNORECASE,
)
_SOLVE = re.compile(
    r"\bsolv(?:e|ing)\b|\bsolutions?\b|\bvalues? (?:of|for)\b|\bfind (?:all )?(?:real )?\$?[a-z]\$?(?!\w)"
    r"|\b(?:lös|résou|résol|resuelv|resolv|risolv|soluc|soluz|soluç)|реши|значени|解|求|取值范围|的值",
    re.IGNORECASE,
)
# What has an equation as its answer.
_OF_FIGURE = re.compile(
    r"\bequations? (?:of|for)\b|\blines?\b|\basymptote|\baxis\b|\bdirectrix|\bplane\b"
    r"|gerade|droite|recta|retta|прям|直线|方程为",
    re.IGNORECASE,
)
# A number with a sign of multiplication or a power: ``2^3\cdot 5``.
_PRODUCT = re.compile(r"\d\}?\s*(?:\\cdot|\\times|\*|\^)")
_BARE_NUMBER = re.compile(r"[+-]?\d+")


def unasked(answer: str, gold: str, question: str) -> str:
    """Why an answer that equals the ground truth is not what the question asks for; empty if it may be.

    ``words``: it counts something else; ``unit``: the question asks for another unit; ``percent``: it asks for no
    percentage, or for one that the answer is not; ``factors``: it asks for factors, or for prime ones; ``terms``: it
    asks to expand; ``function``: it says what ``C`` is; ``order``: it asks for another order; ``value``: the answer
    has operations left to do; ``form``: it asks to simplify or for another notation.
    """
    # Nobody can be asked for another form than that of the ground truth.
    if squeeze(answer) == squeeze(gold):
        return ""
    tree, truth = parse_answer(answer), parse_answer(gold)
    things = [words for words in _units(tree) if not is_known_unit(words)]
    if not all(is_counted(words, f"{question} {gold}") for words in things):
        return "words"
    if _has_other_unit(tree, truth, question) or forms.has_other_angle_unit(answer, gold, question):
        return "unit"
    bare, bare_truth = right_side(tree), right_side(truth)
    if any(demand(bare, bare_truth, question) for demand in (notations.adds_percent_sign, notations.lacks_percentage)):
        return "percent"
    if "C" in question and _is_given_constant(tree, truth, question):
        return "function"
    if (_is_less_factored(answer, gold) or _has_common_number(tree, truth)) and asks_to_factor(question):
        return "factors"
    if is_out_of_order(tree, truth) and (asks_for_order(question) or asks_for_named(question, truth)):
        return "order"
    if notations.is_other_region(tree, truth, question):
        return "form"
    if notations.leaves_set_operation(bare, bare_truth) or _has_numbers_to_join(answer, gold, question):
        return "value"
    return _other_form(answer, gold, question) or _not_worked_out(tree, truth, question)


def _other_form(answer: str, gold: str, question: str) -> str:
    """Why an equal answer has not the form that the question asks for."""
    if forms.has_composite_factor(answer, gold, question):
        return "factors"
    if repeats_question(answer, gold, question) or is_not_evaluated(answer, gold, question):
        return "value"
    demands = (
        forms.is_not_simplest,
        forms.has_root_in_denominator,
        notations.is_other_number,
        notations.is_not_scientific,
    )
    return "form" if any(is_other(answer, gold, question) for is_other in demands) else ""


def _has_numbers_to_join(answer: str, gold: str, question: str) -> bool:
    """Whether an answer has numbers to add, multiply or cancel, unlike the ground truth.

    Beside letters they may stay unless the question asks to simplify.
    """
    tree, truth = right_side(parse_answer(answer)), right_side(parse_answer(gold))
    if tree.op == "raw":
        return False
    if symbols(tree):
        is_to_simplify = forms.asks_for_simplest(question) or asks_to_expand(question)
        return is_to_simplify and leaves_product(answer, gold)
    if leaves_product(answer, gold) or leaves_work_in_root(answer, gold):
        return True
    return count_numbers_to_join(tree) > 0 and count_numbers_to_join(truth) == 0


def _not_worked_out(tree: Expr, truth: Expr, question: str) -> str:
    """``terms`` if the question asks to expand and the answer has a product of sums that the ground truth lacks;
    ``form`` if it asks to expand or simplify and the answer has like terms, ``value`` if it asks to solve and the
    answer has an unknown to isolate, again unlike the ground truth.
    """
    bare, bare_truth = right_side(tree), right_side(truth)
    has_product = _has_product_of_sums(bare)
    wants_product = _has_product_of_sums(bare_truth)
    if has_product and not wants_product and asks_to_expand(question):
        return "terms"
    if wants_product and not has_product and asks_for_square(question):
        return "form"
    if count_uncollected(bare) and not count_uncollected(bare_truth):
        requests = (forms.asks_for_simplest, asks_to_expand, forms.asks_to_convert_angle)
        return "form" if any(asks_for(question) for asks_for in requests) else ""
    return "value" if is_unsolved(tree, truth) and _asks_to_solve(question) else ""


@lru_cache(maxsize=1024)
def asks_to_factor(question: str) -> bool:
    """Whether a question asks for a product."""
    return _FACTOR.search(question) is not None


@lru_cache(maxsize=1024)
def asks_to_expand(question: str) -> bool:
    """Whether a question asks for a sum without brackets."""
    return _EXPAND.search(question) is not None


@lru_cache(maxsize=1024)
def asks_for_square(question: str) -> bool:
    """Whether a question asks to complete the square."""
    return _SQUARE.search(question) is not None


def _asks_to_solve(question: str) -> bool:
    """Whether a question asks for values of unknowns, and not for the equation of a line or plane."""
    return _SOLVE.search(question) is not None and not _OF_FIGURE.search(question)


def _has_common_number(tree: Expr, truth: Expr) -> bool:
    """Whether an answer has a sum of which a number can be taken out, unlike the ground truth."""
    return count_common_numbers(right_side(tree)) > 0 and count_common_numbers(right_side(truth)) == 0


def _units(expr: Expr) -> Iterator[str]:
    """The words after numbers anywhere in an answer."""
    if expr.op == "unit":
        yield expr.name
    for arg in expr.args:
        yield from _units(arg)


# ``C`` as a letter of its own.
_GIVEN_CONSTANT = re.compile(r"(?<![A-Za-z\\])C(?![A-Za-z])")
_INTEGRATION = re.compile(
    r"\\int(?![a-z])|∫|integra|antideriv|primitiv|stammfunktion|первообразн|интеграл|积分|const", re.IGNORECASE
)


def _is_given_constant(answer: Expr, gold: Expr, question: str) -> bool:
    """Whether answers differ by a constant next to a ``C`` that is a quantity of the question, not of integration."""
    if not _GIVEN_CONSTANT.search(question) or _INTEGRATION.search(question):
        return False
    return same_up_to_constant(answer, gold) and same_value(right_side(answer), right_side(gold)) is False


def _has_other_unit(tree: Expr, truth: Expr, question: str) -> bool:
    """Whether an answer has a unit that neither the ground truth nor the question has, though that asks for one."""
    units = [unit for unit in _units(tree) if unit and is_known_unit(unit)]
    if not units or any(_units(truth)):
        return False
    asked = asked_units(question)
    if not asked:
        return False
    return not any(starmap(_is_one_unit, product(units, asked)))


def _is_one_unit(a: str, b: str) -> bool:
    """Whether two units may be the same; a pound may be one of money."""
    return compatible(a, b) or a.split()[0] == b.split()[0]


@lru_cache(maxsize=1024)
def asked_units(question: str) -> frozenset[str]:
    """The units in which a question wants its answer: after ``in`` and ``how many``.

    After ``in`` a singular or a single letter is no unit: ``in second place``, ``in year 5``, ``in C``.
    """
    asked = set()
    for request in _ASKED_UNIT.finditer(question):
        words = _MARKUP.sub("", request["words"]).split()[:MAX_UNIT_WORDS]
        unit = _leading_unit(words)
        if not unit:
            continue
        first = words[0]
        # Units have their singular as their name; short ones are abbreviations.
        is_singular = len(first) > 3 and first.lower() == unit
        if request["amount"] or not (is_singular or len(first) == 1):
            asked.add(unit)
    for request in _ASKED_IN_CHINESE.finditer(question):
        characters = request["unit"]
        # The second character may begin the next word.
        if unit := _leading_unit([characters]) or _leading_unit([characters[0]]):
            asked.add(unit)
    return frozenset(asked)


def _leading_unit(words: list[str]) -> str:
    """The unit with which words begin, as long as each of them belongs to one; empty without one."""
    parts = list(takewhile(_is_part_of_unit, words))
    # The longest unit first: kilometers per hour before kilometers.
    for size in range(len(parts), 0, -1):
        name = unit_name(" ".join(parts[:size]).rstrip("."))
        if name and is_known_unit(name):
            return name
    return ""


def _is_part_of_unit(word: str) -> bool:
    """Whether a word may stand in the name of a unit; ``in`` is no inch there."""
    if word.lower() == "in":
        return False
    return word.lower() in ("per", "/") or "/" in word or is_unit(word.rstrip(".").partition("^")[0])


def _is_less_factored(answer: str, gold: str) -> bool:
    """Whether an answer has fewer factors with letters than the ground truth, or is a number and that a product."""
    bare, product = normalize(answer), normalize(gold)
    if _BARE_NUMBER.fullmatch(bare):
        return _PRODUCT.search(product) is not None
    factors, wanted = (_count_factors(right_side(parse_answer(text))) for text in (answer, gold))
    return wanted > 1 and factors < wanted


def _has_product_of_sums(expr: Expr) -> bool:
    """Whether an expression has a sum with letters as a factor or base, and so is not expanded."""
    if expr.op == "+":
        return any(map(_has_product_of_sums, expr.args))
    if expr.op not in ("*", "^"):
        return False
    has_sum = any(part.op == "+" and symbols(part) for part in expr.args)
    return has_sum or any(map(_has_product_of_sums, expr.args))


def _count_factors(expr: Expr) -> int:
    """The number of factors with letters, with their powers."""
    if not symbols(expr):
        return 0
    if expr.op in ("*", "/"):
        return sum(map(_count_factors, expr.args))
    if expr.op == "^":
        base, exponent = expr.args
        if is_whole_number(exponent):
            return _count_factors(base) * abs(int(exponent.number))
    return 1
