"""Forms that a question asks for and an equal answer may lack: prime factors, lowest terms, radicals, angles.

Where the question does not ask for a form, any equal form is right.
"""

import math
import re
from collections.abc import Iterator
from functools import lru_cache

from magcli.verify.math.asked.requests import MAX_CHARS
from magcli.verify.math.asked.values import bare_value, has_work_left, is_plain_value
from magcli.verify.math.latex.spelling import normalize

_PRIME_FACTORS = re.compile(
    r"prime[\s-]factor|product of (?:its )?(?:powers of )?(?:distinct )?prime|primfaktor|facteurs premiers"
    r"|factores primos|fattori primi|fatores primos|прост\w+ множител|[质質素]因[数數子]",
    re.IGNORECASE,
)
# A whole number with its power.
_FACTOR = re.compile(r"(\d+)(?:\^\{?(\d+)\}?)?")
_TIMES = re.compile(r"\\(?:cdot|times|ast)(?![A-Za-z])|[*×·⋅]|\)\s*\(|[()]")
MAX_PRIME = 10**10


def _whole_factors(text: str) -> list[int] | None:
    """The bases of a product of powers of whole numbers; None for anything else."""
    last_side = normalize(text).split("=")[-1].replace(r"\left", "").replace(r"\right", "")
    parts = [part.strip(" {},\\") for part in _TIMES.split(last_side)]
    factors = [_FACTOR.fullmatch(part.replace(" ", "")) for part in parts if part]
    bases = [int(match[1]) for match in factors if match]
    # Fewer, if a part is no power of a whole number.
    return bases if bases and len(bases) == len(factors) else None


def _is_prime(number: int) -> bool:
    if number < 2 or number > MAX_PRIME:
        return False
    # Of two factors, one is at most the square root.
    return all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def has_composite_factor(answer: str, gold: str, question: str) -> bool:
    """Whether a question asks for prime factors and an answer has others, unlike the ground truth."""
    factors = _whole_factors(answer) if len(answer) <= MAX_CHARS else None
    if not factors or all(map(_is_prime, factors)):
        return False
    wanted = _whole_factors(gold)
    if not wanted or not all(map(_is_prime, wanted)):
        return False
    return _PRIME_FACTORS.search(question) is not None


_SIMPLEST = re.compile(
    r"\bsimplif(?:y|ied|ies)\b|\bsimplest\b|\blowest terms|\bcommon fraction|\b(?:as|to|into) (?:an? )?mixed number"
    r"|\breduced (?:fraction|form|terms)"
    r"|\breduc(?:e|ing)\b[^.?!]{0,40}\b(?:fraction|terms|form)"
    r"|\bfully reduced|\birreducible fraction|vereinfach|gekürzt|\bkürze|simplifi|irréductible|irreducible|simplific"
    r"|\bsemplific|minimi termini|упрост|сократи|несократим|最简|化简|约分",
    re.IGNORECASE,
)
# ``\frac{3}{4}``, ``\frac34`` and ``3/4``, with two groups for each.
_WHOLE_FRACTION = re.compile(
    r"\\[dtc]?frac\s*\{\s*-?(\d+)\s*\}\s*\{\s*(\d+)\s*\}|\\[dtc]?frac\s*(\d)\s*(\d)"
    r"|(?<![\d.^])(\d+)\s*/\s*(\d+)(?![\d.])"
)
_AS_FRACTION = re.compile(
    r"\b(?:as|to|into|in) (?:an? )?(?:(?:common|proper|improper|simplified|reduced|exact) )?fraction\b", re.IGNORECASE
)
_AS_MIXED = re.compile(r"\b(?:as|to|into) (?:an? )?mixed (?:number|fraction|numeral)", re.IGNORECASE)
_AS_IMPROPER = re.compile(r"\b(?:as|to|into) (?:an? )?improper fraction", re.IGNORECASE)
# A mixed number in which ``bare_value`` has written Q for the fraction.
_MIXED = re.compile(r"[+-]?\s*\d+\s*(?:\\[,; ])?\s*(?:Q|\s\d+\s*/\s*\d+)")
# A factor 1 before or after a sign of multiplication.
_FACTOR_ONE = re.compile(
    r"(?<![\d.^{])1\s*(?:\\(?:cdot|times)(?![A-Za-z])|[*×·⋅])(?!\s*10\s*\^)|(?:\\(?:cdot|times)(?![A-Za-z])|[*×·⋅])\s*1(?![\d.,/])"
)
_WHOLE_RATIO = re.compile(r"\s*(\d+)\s*:\s*(\d+)\s*")
# The degree of a root, then the number under it in braces, in brackets, or without either.
_ROOT = re.compile(r"(?:\\?sqrt\s*(?:\[\s*(\d)\s*\])?|√)\s*(?:\{\s*(\d+)\s*\}|\(\s*(\d+)\s*\)|(\d+))")
MAX_RADICAND = 10**9


@lru_cache(maxsize=1024)
def asks_for_simplest(question: str) -> bool:
    """Whether a question asks to simplify or for lowest terms."""
    return _SIMPLEST.search(question) is not None


@lru_cache(maxsize=1024)
def _asks_for_fraction(question: str) -> bool:
    return _AS_FRACTION.search(question) is not None


@lru_cache(maxsize=1024)
def _asks_for_mixed(question: str) -> tuple[bool, bool]:
    """Whether a question asks for a mixed number, and whether for an improper fraction."""
    return _AS_MIXED.search(question) is not None, _AS_IMPROPER.search(question) is not None


def _unreduced(text: str) -> int:
    """The number of fractions, ratios and roots of whole numbers in an answer that are not in lowest terms, and of
    factors 1; of an equation, on its last side.
    """
    bare = normalize(text).replace(r"\left", "").replace(r"\right", "")
    # In a list every part has a last side.
    if "," not in bare:
        bare = bare.split("=")[-1]
    pairs = list(_fractions(bare))
    if ratio := _WHOLE_RATIO.fullmatch(bare):
        pairs.append((ratio[1], ratio[2]))
    unreduced_pairs = sum(_is_unreduced(int(above), int(below)) for above, below in pairs)
    unreduced_roots = sum(map(_is_unreduced_root, _ROOT.finditer(bare)))
    factors_one = _FACTOR_ONE.findall(bare)
    return unreduced_pairs + unreduced_roots + len(factors_one)


def _is_unreduced(above: int, below: int) -> bool:
    """Whether a fraction is not in lowest terms, where a denominator 1 is left out."""
    return math.gcd(above, below) > 1 or below == 1


def _fractions(text: str) -> Iterator[tuple[str, str]]:
    """The digits of the numerators and denominators of fractions of whole numbers."""
    for fraction in _WHOLE_FRACTION.finditer(text):
        # Each notation of a fraction has two groups of its own.
        above, below = filter(None, fraction.groups())
        yield above, below


def _is_unreduced_root(root: re.Match[str]) -> bool:
    """Whether a number can be taken out of a root."""
    degree = int(root[1] or 2)
    in_brackets, bare_digits = root[2] or root[3], root[4]
    # \sqrt23 is the root of 2.
    digits = in_brackets or (bare_digits[0] if "\\" in root[0] else bare_digits)
    return _has_power_as_factor(int(digits), degree)


def _has_power_as_factor(number: int, degree: int) -> bool:
    """Whether a number above 1 to the given degree divides a number."""
    if not 1 < number <= MAX_RADICAND or not 2 <= degree <= 9:
        return False
    base = 2
    while (power := base**degree) <= number:
        if number % power == 0:
            return True
        base += 1
    return False


def is_not_simplest(answer: str, gold: str, question: str) -> bool:
    """Whether an answer has a fraction or root to reduce, a factor 1 or an operation to do, unlike the ground truth,
    though the question asks to simplify or for a fraction.
    """
    if len(answer) > MAX_CHARS:
        return False
    if _unreduced(answer) > 0 and _unreduced(gold) == 0 and asks_for_simplest(question):
        return True
    if _is_decimal_as_fraction(answer) and _unreduced(gold) == 0 and _asks_for_fraction(question):
        return True
    if not is_plain_value(gold):
        return False
    if has_work_left(answer):
        return _asks_for_fraction(question) or asks_for_simplest(question)
    return is_other_fraction(answer, gold, question)


_POWER_OF_TEN = re.compile(r"10+")


def _is_decimal_as_fraction(text: str) -> bool:
    """Whether a fraction is only a decimal over a power of ten and could be reduced: ``125/1000``."""
    return any(
        _POWER_OF_TEN.fullmatch(below) and math.gcd(int(above), int(below)) > 1
        for above, below in _fractions(normalize(text))
    )


def is_other_fraction(answer: str, gold: str, question: str) -> bool:
    """Whether an answer is a percentage where a question asks for a fraction, or a mixed number where it asks for an
    improper fraction, or the reverse; unlike the ground truth.
    """
    if "%" in answer and "%" not in gold:
        return _asks_for_fraction(question)
    value = bare_value(answer)
    is_mixed = _MIXED.fullmatch(value) is not None
    wants_mixed = _MIXED.fullmatch(bare_value(gold)) is not None
    asks_mixed, asks_improper = _asks_for_mixed(question)
    if is_mixed and not wants_mixed:
        return asks_improper and not asks_mixed
    is_fraction = value.lstrip("+- ") == "Q"
    return is_fraction and wants_mixed and asks_mixed and not asks_improper


_RATIONALIZE = re.compile(
    r"rationali[sz]|rational machen|racionali|razionalizza|освободи\w* от иррациональност|分母有理化", re.IGNORECASE
)
# In a fraction whose numerator may have braces within its own, or behind a slash.
_ROOT_BELOW = re.compile(
    r"\\[dtc]?frac\s*\{(?:[^{}]|\{[^{}]*\})*\}\s*\{[^{}]*\\sqrt|/\s*[({]?[^+\-]{0,20}(?:\\sqrt|√|sqrt)"
)


def has_root_in_denominator(answer: str, gold: str, question: str) -> bool:
    """Whether a question asks to rationalize a denominator and an answer has a root there, unlike the ground truth."""
    if len(answer) > MAX_CHARS or not ("sqrt" in answer or "√" in answer) or not _RATIONALIZE.search(question):
        return False
    return bool(_ROOT_BELOW.search(normalize(answer))) and not _ROOT_BELOW.search(normalize(gold))


# The words before a unit that say that it is asked for.
_TO = r"(?:\b(?:in|to|into|as|using|en|em|à|a|ao|в|nach|ins?|im)\s+(?:\w+\s+)?|用|[化换]为|[化换]成)"
_RADIANS = re.compile(
    rf"{_TO}(?:radian\w*|rad\b|radianti|bogenmaß|радиан\w*|弧度)|radian measure|弧度制", re.IGNORECASE
)
_DEGREES = re.compile(
    rf"{_TO}(?:degrees?\b|gradi\b|grados?\b|degrés?\b|grad\b|gradmaß|graus?\b|градус\w*|角度|度)|degree measure",
    re.IGNORECASE,
)
_DEGREE_SIGN = re.compile(r"\\circ|°|\\?degrees?\b|\bdeg\b", re.IGNORECASE)
_PI = re.compile(r"\\pi(?![A-Za-z])|π|\brad", re.IGNORECASE)


def has_other_angle_unit(answer: str, gold: str, question: str) -> bool:
    """Whether a question asks for radians and an answer is in degrees, or the reverse, unlike the ground truth."""
    if _DEGREE_SIGN.search(answer):
        return not _DEGREE_SIGN.search(gold) and _asked_angle_unit(question) == "radian"
    if _PI.search(answer):
        return not _PI.search(gold) and _asked_angle_unit(question) == "degree"
    return False


def _asked_angle_unit(question: str) -> str:
    """The one unit of angles that a question asks for; empty if it asks for neither, or has both."""
    in_radians, in_degrees = bool(_RADIANS.search(question)), bool(_DEGREES.search(question))
    if in_radians == in_degrees:
        return ""
    return "radian" if in_radians else "degree"


@lru_cache(maxsize=1024)
def asks_to_convert_angle(question: str) -> bool:
    """Whether a question asks for radians or for degrees."""
    return _asked_angle_unit(question) != ""
