"""Notations that a question asks for by name, where an equal answer in another one is wrong: interval notation, a
decimal, a percentage, scientific notation.
"""

import re
from functools import lru_cache

from magcli.verify.math.asked.values import bare_value, is_plain_value
from magcli.verify.math.equality.identity import are_equal
from magcli.verify.math.latex.tree import Expr


def _only_kind(patterns: dict[str, re.Pattern[str]], question: str) -> str:
    """The only kind of notation that a question asks for; empty without one or with several."""
    kinds = [kind for kind, pattern in patterns.items() if pattern.search(question)]
    return kinds[0] if len(kinds) == 1 else ""


# ---- regions of the real line ----

_REGIONS = {
    "interval": re.compile(
        r"\binterval (?:notation|form)|\b(?:as|in the form of) (?:an? )?(?:open |closed |union of )*intervals?\b"
        r"|Intervall(?:schreibweise|notation|form)|als Intervall|(?:sous forme|notation) d['’]intervalle"
        r"|notación de intervalo|forma de intervalo|como (?:un )?intervalo"
        r"|notazione (?:di |a )?intervall|forma di intervall|come intervallo|в виде (?:промежутка|интервала)"
        r"|区间(?:表示|形式|记号)",
        re.IGNORECASE,
    ),
    "builder": re.compile(r"\bset[- ]builder\b", re.IGNORECASE),
    "inequality": re.compile(
        r"\binequality (?:notation|form)|\b(?:as|or|and) (?:an?|one) (?:\w+ )?inequality|als Ungleichung", re.IGNORECASE
    ),
}


def _kind_of_region(expr: Expr) -> str:
    """How a region is written; empty for anything else. ``x \\in (0,1)`` is an interval."""
    if expr.op == "builder":
        return "builder"
    if expr.op == "tuple":
        return "interval"
    if expr.op == "rel" and any(sign in expr.name for sign in ("<", ">", "le", "ge", "≤", "≥")):
        return "inequality"
    kinds = set(map(_kind_of_region, expr.args))
    # The outermost notation first: a set builder contains inequalities.
    return next((kind for kind in ("builder", "inequality", "interval") if kind in kinds), "")


def is_other_region(tree: Expr, truth: Expr, question: str) -> bool:
    """Whether an answer is a region in another notation than the one asked for, in which the ground truth is."""
    kind, wanted = _kind_of_region(tree), _kind_of_region(truth)
    return kind != "" and wanted not in ("", kind) and _only_kind(_REGIONS, question) == wanted


# ---- numbers ----

_AS = r"\b(?:as|to|into|in)\s+(?:an?\s+)?"
_NUMBERS = {
    "fraction": re.compile(
        rf"{_AS}(?:(?:common|proper|improper|simplified|reduced|exact|single)\s+)?fraction\b|\bfraction(?:al)? form",
        re.IGNORECASE,
    ),
    "decimal": re.compile(
        rf"{_AS}(?:\w+\s+)?decimal\b(?!\s+(?:places?|points?))|\bdecimal (?:form|notation)", re.IGNORECASE
    ),
    "percent": re.compile(
        rf"{_AS}percent(?:age)?\b|\b(?:what|which) percent|percent(?:age)? form"
        r"|\bpercent(?:age)? (?:increase|decrease|change|error|gain|loss|growth|difference)\b"
        r"|wie ?viel Prozent|als Prozent|in Prozent|quel pourcentage|en pourcentage|qué porcentaje|como porcentaje"
        r"|che percentuale|in percentuale|сколько процентов|в процентах|百分之几|百分数表示",
        re.IGNORECASE,
    ),
    "words": re.compile(rf"{_AS}(?:mixed (?:number|numeral)|whole number|integer)", re.IGNORECASE),
}


def _kind_of_number(text: str) -> str:
    """How a plain number is written; empty for whole numbers and anything else."""
    if "%" in text:
        return "percent"
    if not is_plain_value(text):
        return ""
    bare = bare_value(text)
    if "Q" in bare:
        return "fraction"
    return "decimal" if "." in bare else ""


def is_other_number(answer: str, gold: str, question: str) -> bool:
    """Whether an answer is a fraction, decimal or percentage, and the question and the ground truth have another."""
    kind = _kind_of_number(answer)
    wanted = _kind_of_number(gold) if kind else ""
    return wanted in ("fraction", "decimal") and kind != wanted and _only_kind(_NUMBERS, question) == wanted


def lacks_percentage(tree: Expr, truth: Expr, question: str) -> bool:
    """Whether a question asks for a percentage and an answer is the hundredth part of it, ``0.35`` for 35%."""
    if truth.op != "percent" or tree.op == "percent" or _only_kind(_NUMBERS, question) != "percent":
        return False
    return not are_equal(tree, truth.args[0])


_SCIENTIFIC = re.compile(
    r"\bscientific (?:notation|form)|notation scientifique|notación científica|notazione scientifica"
    r"|wissenschaftliche\w* (?:schreibweise|notation)|экспоненциальн|стандартном виде|科学[记计]数法",
    re.IGNORECASE,
)
_POWER_OF_TEN = re.compile(
    r"[+-]?\s*(?:(?P<mantissa>\d+(?:\.\d+)?)\s*(?:\\times|\\cdot|×|·|\*)\s*)?10\s*\^\s*\{?\s*[+-]?\d+\s*\}?"
    r"|[+-]?(?P<float>\d+(?:\.\d+)?)[eE][+-]?\d+"
)


def _is_scientific(text: str) -> bool:
    """Whether a number has a power of ten and one digit that is not 0 before its point."""
    written = _POWER_OF_TEN.fullmatch(bare_value(text).replace("−", "-"))
    if written is None:
        return False
    mantissa = written["mantissa"] or written["float"] or "1"
    return 1 <= float(mantissa) < 10


def is_not_scientific(answer: str, gold: str, question: str) -> bool:
    """Whether a question asks for scientific notation and an answer has none, unlike the ground truth."""
    if "10" not in gold and "e" not in gold.lower():
        return False
    return bool(_SCIENTIFIC.search(question)) and _is_scientific(gold) and not _is_scientific(answer)


# ---- percent signs ----

_PERCENT_WORD = r"(?:\\?%|(?:percent|per cent|prozent|pour ?cent|por ?cent|per cento|процент)\w*)"
# A percentage that the question states: ``15%``.
_GIVEN_PERCENT = re.compile(rf"\d[\s$\\,}}]*{_PERCENT_WORD}", re.IGNORECASE)
_ANY_PERCENT = re.compile(rf"{_PERCENT_WORD}|percent|百分", re.IGNORECASE)
# What is usually given as a percentage.
_RATE = re.compile(
    r"\brates?\b|probab|\bchances?\b|likelihood|\bodds\b|\bproportion|\bdiscount|\bconcentration|\bhumidity"
    r"|\befficiency|\bpurity|\binterest\b|\bmargin|\byields?\b|\bmark-?up|\bsaturation"
    r"|wahrscheinlich|zinssatz|anteil|rabatt|\btaux\b|\btasas?\b|\btasso\b|\btipo de interés|вероятн|ставк|скидк"
    r"|概率|几率|折扣|率",
    re.IGNORECASE,
)
_ASKING_SENTENCE = re.compile(r"[^.?!。？！]*[?？]")


@lru_cache(maxsize=1024)
def _may_ask_for_percentage(question: str) -> bool:
    """Whether a question may have a percentage as its answer, other than those that it states."""
    if _ANY_PERCENT.search(_GIVEN_PERCENT.sub(" ", question)):
        return True
    asking = " ".join(_ASKING_SENTENCE.findall(question)) or question
    return _RATE.search(asking) is not None


def adds_percent_sign(tree: Expr, truth: Expr, question: str) -> bool:
    """Whether an answer is the number of the ground truth and a percent sign that the question does not ask for."""
    if tree.op != "percent" or not are_equal(tree.args[0], truth):
        return False
    return not _may_ask_for_percentage(question)


# ---- operations of sets ----

_SET_OPERATIONS = (r"\cap", r"\cup", r"\setminus")


def leaves_set_operation(tree: Expr, truth: Expr) -> bool:
    """Whether an answer is an intersection, union or difference of listed sets, and the ground truth a listed set."""
    of_listed_sets = tree.op in _SET_OPERATIONS and any(arg.op == "set" for arg in tree.args)
    return truth.op == "set" and of_listed_sets
