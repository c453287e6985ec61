"""Equal values that a question does not ask for: in another unit, as a percentage, not factored."""

import re
from collections.abc import Iterator
from functools import lru_cache

from magcli.verify.math.equality.identity import symbols
from magcli.verify.math.latex.answers import parse_answer
from magcli.verify.math.latex.spelling import normalize
from magcli.verify.math.latex.tree import Expr
from magcli.verify.math.latex.units import compatible, is_known_unit, unit_name
from magcli.verify.math.latex.wording import is_counted

_ASKED_UNIT = re.compile(
    r"(?<!\w)(?:(?P<amount>how many|number of|nearest|wie viele?|combien de|cu[aá]nt[oa]s|quant[ie]|сколько)|in|en|в)"
    r"\s+"
    r"(?P<words>\S[^,;:?!]{0,60})",
    re.IGNORECASE,
)
_ASKED_IN_CHINESE = re.compile(r"(?:多少|几|幾)\s*(?P<unit>[\u3400-\u9fff]{1,2})")
MAX_UNIT_WORDS = 4
_MARKUP = re.compile(r"\\(?:text|mathrm|textrm)\b|[${}\\]")
_PERCENT_WORD = r"(?:\\?%|(?:percent|per cent|prozent|pour ?cent|por ?cent|per cento|процент)\w*)"
_GIVEN_PERCENT = re.compile(rf"\d[\s$\\,}}]*{_PERCENT_WORD}", re.IGNORECASE)
_ANY_PERCENT = re.compile(rf"{_PERCENT_WORD}|percent|百分", re.IGNORECASE)
_FACTOR = re.compile(
    r"\bfactor(?:i[sz]e|i[sz]ing|i[sz]ation)\b|\bfactor(?=\s+(?:completely|fully|the|over|into|each|\$|\\|\d|\w+\^))"
    r"|faktorisier|faktorzerleg|primfaktor|factoris|factoriz|factorice|scompon|scomposiz|fattorizz|разлож|множител"
    r"|因式|分解",
    re.IGNORECASE,
)
_BARE_NUMBER = re.compile(r"[+-]?\d+")


def unasked(answer: str, gold: str, question: str) -> str:
    """Why an answer that equals the ground truth is not what the question asks for; empty if it may be.

    ``words``: it counts something else; ``unit``: the question asks for another unit; ``percent``: the question has
    percentages but does not ask for one; ``factors``: it asks for factors.
    """
    tree, truth = parse_answer(answer), parse_answer(gold)
    if any(not is_known_unit(words) and not is_counted(words, f"{question} {gold}") for words in _units(tree)):
        return "words"
    if _has_other_unit(tree, truth, question):
        return "unit"
    if _contains(tree, "percent") and not _contains(truth, "percent") and _only_gives_percentages(question):
        return "percent"
    return "factors" if _FACTOR.search(question) and _is_less_factored(answer, gold) else ""


def _units(expr: Expr) -> Iterator[str]:
    """The words after numbers anywhere in an answer."""
    if expr.op == "unit":
        yield expr.name
    for arg in expr.args:
        yield from _units(arg)


def _contains(expr: Expr, op: str) -> bool:
    return expr.op == op or any(_contains(arg, op) for arg in expr.args)


def _has_other_unit(tree: Expr, truth: Expr, question: str) -> bool:
    """Whether an answer has a unit that neither the ground truth nor the question has, though that asks for one."""
    named = [name for name in _units(tree) if name and is_known_unit(name)]
    if not named or any(_units(truth)):
        return False
    asked = asked_units(question)
    return bool(asked) and not any(_is_one_unit(name, unit) for name in named for unit in asked)


def _is_one_unit(a: str, b: str) -> bool:
    """Whether two units may be the same; a pound may be one of money."""
    return compatible(a, b) or a.split()[0] == b.split()[0]


@lru_cache(maxsize=1024)
def asked_units(question: str) -> frozenset[str]:
    """The units in which a question wants its answer: after ``in``, ``how many``, ``to the nearest``.

    After ``in`` a singular is no unit: ``in second place``, ``in year 5``.
    """
    asked = set()
    for lead in _ASKED_UNIT.finditer(question):
        words = _MARKUP.sub(" ", lead["words"]).split()[:MAX_UNIT_WORDS]
        unit = _leading_unit(words)
        singular = len(words) > 0 and len(words[0]) > 3 and words[0].lower() == unit
        if unit and (lead["amount"] or not singular):
            asked.add(unit)
    for chinese in _ASKED_IN_CHINESE.finditer(question):
        asked.add(_leading_unit([chinese["unit"]]) or _leading_unit([chinese["unit"][0]]))
    return frozenset(asked - {""})


_ARTICLES = frozenset(("a", "an", "the", "per", "each"))


def _leading_unit(words: list[str]) -> str:
    """The longest unit with which words begin; empty without one."""
    if not words or words[0].lower() in _ARTICLES:
        return ""
    for size in range(len(words), 0, -1):
        name = unit_name(" ".join(words[:size]).rstrip("."))
        if name and is_known_unit(name):
            return name
    return ""


def _only_gives_percentages(question: str) -> bool:
    """Whether a question has percentages only as given numbers, as in ``What is 20% of 350?``."""
    rest = _GIVEN_PERCENT.sub(" ", question)
    return rest != question and not _ANY_PERCENT.search(rest)


def _is_less_factored(answer: str, gold: str) -> bool:
    """Whether an answer has fewer factors with letters than the ground truth, or is a number and that a product."""
    bare, product = normalize(answer), normalize(gold)
    if _BARE_NUMBER.fullmatch(bare):
        return not _BARE_NUMBER.fullmatch(product)
    wanted = _count_factors(_value(parse_answer(gold)))
    return wanted > 1 and _count_factors(_value(parse_answer(answer))) < wanted


def _value(expr: Expr) -> Expr:
    """The last side of an equation."""
    return expr.args[-1] if expr.op == "rel" and expr.name == "=" else expr


def _count_factors(expr: Expr) -> int:
    """The number of factors with letters, with their powers."""
    if not symbols(expr):
        return 0
    if expr.op in ("*", "/"):
        return sum(map(_count_factors, expr.args))
    if expr.op == "^" and expr.args[1].op == "num" and expr.args[1].number.denominator == 1:
        return _count_factors(expr.args[0]) * abs(int(expr.args[1].number))
    return 1
