"""Values that are worked out: numbers without an operation left to do."""

import re
from functools import lru_cache

from magcli.verify.math.asked.requests import MAX_CHARS, MAX_QUESTION, SCIENTIFIC, requested_expressions
from magcli.verify.math.latex.spelling import normalize

_LETTERS = re.compile(r"[A-Za-z]")
# Upright words, and the signs of percentages, dollars and degrees.
_UNIT = re.compile(r"\\(?:text|mathrm)\s*\{[^{}]*\}|\\?%|\\?\$|\^\s*\{?\s*\\circ\s*\}?|°")
# A fraction of two whole numbers, which is a value, not a quotient left to do.
_SIMPLE_FRACTION = re.compile(
    r"\\[dtc]?frac\s*(?:\{\s*-?\d+\s*\}|\d)\s*(?:\{\s*-?\d+\s*\}|\d)|(?<![\d./)}])\d+\s*/\s*\d+(?![\d/(]|\.\d)"
)
# A number, a fraction (Q) or a mixed number.
_PLAIN_VALUE = re.compile(r"[+-]?\s*(?:\d[\d,]*(?:\.\d+)?|\.\d+|(?:\d+\s*)?Q)")
_FUNCTION = re.compile(
    r"\\?(?:gcd|lcm|det|binom|choose|max|min|log|ln|sin|cos|tan|sqrt|sum|prod|int|lim|mod|bmod|lfloor"
    r"|lceil)(?![A-Za-z])"
    r"|\b[CP]\s*\(|\\begin\{vmatrix|\d\s*!|√"
)
# A sign behind a number; at the start it is that of the value.
_SUM = re.compile(r"(?<=[\d)}Q])\s*[+\-−]")
# A product, also without a sign before a bracket, or a quotient.
_PRODUCT = re.compile(r"\\(?:times|cdot|div|ast)(?![A-Za-z])|[*×÷·⋅]|\)\s*\(|\d\s*\(|/")


# Names of functions, which are no units.
_UPRIGHT_NAME = re.compile(r"\\(?:text|mathrm|operatorname)\s*\{\s*(gcd|lcm|gcf|hcf|det|ggT|kgV|mod|max|min)\s*\}")


@lru_cache(maxsize=4096)
def bare_value(text: str) -> str:
    """The last side of an answer without its unit; ``Q`` for each fraction of two whole numbers."""
    last = _UPRIGHT_NAME.sub(r"\1", normalize(text)).split("=")[-1].split(r"\approx")[-1]
    return _SIMPLE_FRACTION.sub(" Q ", _UNIT.sub("", last)).strip(" {}")


def is_plain_value(text: str) -> bool:
    """Whether an answer is a whole number, a decimal, a fraction or a mixed number, perhaps with a unit."""
    return _PLAIN_VALUE.fullmatch(bare_value(text)) is not None


def has_work_left(text: str) -> bool:
    """Whether an answer in numbers has a sum, a product or a function to work out, unlike powers."""
    bare = SCIENTIFIC.sub("1", bare_value(text))
    if _FUNCTION.search(bare) or _SUM.search(bare):
        return True
    return _PRODUCT.search(bare) is not None and "^" not in bare


_NAMES = (
    r"gcd|lcm|gcf|hcf|sqrt|log|ln|sin|cos|tan|det|bmod|mod|pmod|binom|choose|frac|dfrac|cdot|times"
    r"|div|left|right|begin|end|[bpvV]?matrix|sum|prod|pi|circ"
)
# Nothing but names of functions, and what is neither a letter nor a command.
_ONLY_NUMBERS = re.compile(rf"(?:\\?(?:{_NAMES})(?![A-Za-z])|[^A-Za-z\\]|\\[,;!:\\ {{}}%])+")
# ``f(3)``, a definite integral, a sum or a limit: the value of a formula with letters.
_VALUE_OF_FUNCTION = re.compile(
    r"^\s*[A-Za-z](?:_\w)?\s*(?:\\left)?\(\s*-?[\d./]+\s*(?:\\right)?\)\s*$|\\int\s*(?:\\limits)?\s*_|\\(?:sum|prod|lim)(?![a-z])"
)
# An operation in words on numbers: ``the sum of 17 and 23``.
_OPERATION = re.compile(
    r"\b(?:sum|difference|product|quotient|square root|cube root|square|cube|factorial|remainder|total"
    r"|Summe|Differenz|Produkt|Quotient|Quadratwurzel|Wurzel|somme|différence|produit|racine carrée"
    r"|suma|diferencia|producto|cociente|raíz cuadrada|somma|differenza|prodotto|quoziente|radice quadrata)\s+"
    r"(?:of|between|when|aus|von|der Zahlen|des?|entre|di|tra)\s+(?:the numbers\s+)?[\d\s.,$\\{}-]*\d[\s$]*"
    r"(?:(?:and|by|is divided by|divided by|from|und|et|y|e|,)\s*[\d\s.,$\\{}-]*\d[\s$]*)*[.?!]?\s*$"
    r"|\d[\s$]*(?:plus|minus|times|multiplied by|divided by|mal|geteilt durch|fois|por|per"
    r"|divis[oa] per|плюс|минус)\s[\s$]*\d"
    r"|\d[\s$]*(?:to the power|raised to|squared\b|cubed\b|hoch\s[\s$]*\d)"
    r"|\b(?:multiply|divide|add|subtract)\s+\$?(?:\\[dt]?frac(?![a-z])|\d)",
    re.IGNORECASE,
)  # fmt: skip
_NAMED_FUNCTIONS = tuple(
    (re.compile(of_answer), re.compile(of_question, re.IGNORECASE))
    for of_answer, of_question in (
        (
            r"gcd|gcf|hcf|ggT|pgcd|mcd|MCD",
            r"\bgcd|\bgcf|\bhcf|greatest common|highest common|\bggT|größte[rn]? gemeinsame|\bpgcd"
            r"|plus grand (?:commun )?div"
            r"|\bmcd\b|máximo común|massimo comun|\bНОД\b|наибольший общий|最大公",
        ),
        (
            r"lcm|kgV|ppcm|mcm",
            r"\blcm|least common multiple|lowest common multiple|\bkgV|kleinste[sn]? gemeinsame"
            r"|\bppcm|plus petit (?:commun )?mult"
            r"|\bmcm\b|mínimo común|minimo comune|\bНОК\b|наименьшее общее|最小公倍",
        ),
        (
            r"^(?!.*(?:equiv|≡)).*(?:[\^!+*]|\\cdot|\\times).*(?<!p)mod",
            r"\bremainder|\bmod|\bRest\b|\breste\b|\bresto\b|остат|余数|餘數",
        ),
        (r"\\?det(?![a-z])|vmatrix", r"determinant|\bdet\b|\\det|vmatrix|Determinante|déterminant|определител|行列式"),
    )
)


_KNOWN_NAMES = re.compile(rf"\\?(?:{_NAMES})(?![A-Za-z])|\\(?:text|mathrm|operatorname)(?![A-Za-z])|[CP](?=[\s_(\d])")


@lru_cache(maxsize=1024)
def asks_for_value(question: str) -> bool:
    """Whether a question asks for the value of an expression of numbers, in signs or in words."""
    if len(question) > MAX_QUESTION:
        return False
    requested = requested_expressions(question)
    if _OPERATION.search(question) or any(map(_VALUE_OF_FUNCTION.search, requested)):
        return True
    to_evaluate = [text for text in requested if "^" in text or has_work_left(text)]
    return any(map(_ONLY_NUMBERS.fullmatch, to_evaluate))


def _asks_in_words(question: str) -> bool:
    """Whether a question asks in words for an operation, a common divisor or multiple, a remainder or determinant."""
    if _OPERATION.search(question):
        return True
    return any(asked.search(question) for _, asked in _NAMED_FUNCTIONS)


def _has_power(text: str) -> bool:
    """Whether a value in numbers has a power other than one of ten in scientific notation."""
    bare = SCIENTIFIC.sub("1", bare_value(text))
    return "^" in bare and not _LETTERS.search(_KNOWN_NAMES.sub("", bare))


_ROOT_SIGN = re.compile(r"sqrt|√")


def is_not_evaluated(answer: str, gold: str, question: str) -> bool:
    """Whether an answer leaves operations that the question asks to do, and the ground truth is a plain value.

    Sums, products and quotients of plain numbers are always to be done.
    """
    if max(len(answer), len(gold)) > MAX_CHARS:
        return False
    if leaves_arithmetic(answer) and not leaves_arithmetic(gold) and _has_only_plain_values(gold):
        return True
    if not is_plain_value(gold):
        return False
    if not has_work_left(answer):
        # 70000/7 for 10000
        if bare_value(answer) == "Q" and _is_whole(gold):
            return True
        return "^" in answer and _has_power(answer) and _asks_in_words(question)
    has_letters = _LETTERS.search(_KNOWN_NAMES.sub("", answer)) is not None
    # As the ground truth is a plain value, the root is that of a square.
    if _ROOT_SIGN.search(answer) and not has_letters:
        return True
    if any(name.search(answer) and asked.search(question) for name, asked in _NAMED_FUNCTIONS):
        return True
    return not has_letters and asks_for_value(question)


# ---- arithmetic of plain numbers ----

_SEPARATOR = re.compile(r"[,;]|\band\b|\bor\b")
_RELATION = re.compile(r"[=<>≤≥≈]|\\(?:leq?|geq?|lt|gt|approx|in|cup)(?![A-Za-z])")
_EQUALITY = re.compile(r"[=≈]|\\approx(?![A-Za-z])")
# A unit behind a value, which is not the Q of a fraction.
_WORDS_AFTER = re.compile(r"(?<=[\d\s}])\s*(?!Q)[A-Za-z][A-Za-z .]*$")
_BRACKETS = " ()[]{}$\\"
_NUMBER = r"(?:\d[\d.]*|\.\d+|Q)"
# Two numbers with a sign or a bracket between them, or a fraction that is not one of two whole numbers.
_ARITHMETIC = re.compile(
    rf"{_NUMBER}[\s)}}]*(?:[+\-−–*/×÷·⋅]|\\(?:cdot|times|div|ast)(?![A-Za-z]))[\s({{+\-−]*{_NUMBER}"
    rf"|{_NUMBER}\s*\(\s*-?{_NUMBER}|\)\s*\(\s*-?{_NUMBER}"
    r"|\\[dtc]?frac\s*\{[^{}A-Za-z\\]*\d[^{}A-Za-z\\]*\}\s*\{[^{}A-Za-z\\]*\d[^{}A-Za-z\\]*\}"
)
# A quick look for such arithmetic in an answer as it is written, which most answers lack.
_OPERATION_SIGN = re.compile(
    r"[\d)}](?:\s|\\[,;! ])*(?:[+\-−–*/×÷·⋅(]|\\(?:cdot|times|div|ast))|frac\s*\{[^{}]*[^\d{}-]|\)\s*\("
)
# A power, factorial or function of numbers is a closed form, which may be the usual one.
_CLOSED_FORM = re.compile(rf"\^|!|{_FUNCTION.pattern}|\\pi(?![A-Za-z])|π")


def leaves_arithmetic(text: str) -> bool:
    """Whether a value of an answer is a sum, product or quotient of plain numbers, and not worked out beside it."""
    if not _OPERATION_SIGN.search(text):
        return False
    parts = _SEPARATOR.split(_without_units(text))
    return any(_leaves_arithmetic(part) for part in parts)


def _without_units(text: str) -> str:
    bare = normalize(text).replace(r"\left", "").replace(r"\right", "")
    bare = re.sub(r"\\text\s*\{\s*(and|or)\s*\}", r" \1 ", bare)
    bare = _UNIT.sub(" ", bare)
    bare = _SIMPLE_FRACTION.sub(" Q ", bare)
    return SCIENTIFIC.sub("1", bare)


def _leaves_arithmetic(part: str) -> bool:
    """Whether one value has arithmetic of plain numbers."""
    if _states_plain_value(part):
        return False
    # Sides that are closed forms, such as 2^{10}-1, may stay as they are.
    open_sides = [side for side in _RELATION.split(part) if not _CLOSED_FORM.search(side)]
    return any(map(_ARITHMETIC.search, open_sides))


def _states_plain_value(part: str) -> bool:
    """Whether a value is an equation with a plain number as a side: ``36=3\\cdot 12``."""
    sides = [side.strip(_BRACKETS) for side in _RELATION.split(part)]
    # Every sign between the sides is one of equality.
    is_equation = len(sides) > 1 and len(_EQUALITY.findall(part)) == len(sides) - 1
    return is_equation and any(map(_PLAIN_VALUE.fullmatch, sides))


def _has_only_plain_values(text: str) -> bool:
    """Whether every value of an answer is a plain number, with or without a name, a unit and brackets."""
    for part in _SEPARATOR.split(_without_units(text)):
        last = _RELATION.split(part)[-1].strip(_BRACKETS)
        if not _PLAIN_VALUE.fullmatch(_WORDS_AFTER.sub("", last).strip()):
            return False
    return True


def _is_whole(text: str) -> bool:
    """Whether a plain value is a whole number and no percentage."""
    bare = bare_value(text)
    return "Q" not in bare and "." not in bare and "%" not in text


_PRODUCT_SIGN = re.compile(r"\\(?:cdot|times|ast)|[*×·⋅]")
# Of which the second number has no power or factorial, so that the product can be worked out.
_PRODUCT_OF_NUMBERS = re.compile(
    rf"{_NUMBER}\s*(?:\\(?:cdot|times|ast)(?![A-Za-z])|[*×·⋅])\s*{_NUMBER}(?![\d.]*\s*[\^!])"
)


# A root of a sum or product: ``\\sqrt{5^2+12^2}``.
_WORK_IN_ROOT = re.compile(
    rf"(?:sqrt|√)\s*(?:\[\d+\]\s*)?[{{(](?:[^{{}}A-Za-z\\]|\{{\d+\}})*\d\}}?\s*"
    rf"(?:[+\-−*×·⋅]|\\(?:cdot|times)(?![A-Za-z]))\s*{_NUMBER}"
)


def leaves_work_in_root(answer: str, gold: str) -> bool:
    """Whether an answer has the root of a sum or product of numbers, unlike the ground truth."""
    if max(len(answer), len(gold)) > MAX_CHARS or not _ROOT_SIGN.search(answer):
        return False
    if _WORK_IN_ROOT.search(normalize(gold)):
        return False
    for part in _SEPARATOR.split(normalize(answer)):
        last_side = _RELATION.split(part)[-1]
        if _WORK_IN_ROOT.search(last_side) and not _states_plain_value(part):
            return True
    return False


def leaves_product(answer: str, gold: str) -> bool:
    """Whether a closed form has a product of two numbers, unlike the ground truth: ``2\\cdot 3\\sqrt2``."""
    if max(len(answer), len(gold)) > MAX_CHARS or not _PRODUCT_SIGN.search(normalize(answer)):
        return False
    if _PRODUCT_OF_NUMBERS.search(_without_units(gold)):
        return False
    parts = _SEPARATOR.split(_without_units(answer))
    not_worked_out = [part for part in parts if not _states_plain_value(part)]
    return any(map(_PRODUCT_OF_NUMBERS.search, not_worked_out))
