"""Values that are worked out: numbers without an operation left to do."""

import re
from functools import lru_cache

from magcli.verify.math.asked.requests import MAX_CHARS, MAX_QUESTION, SCIENTIFIC, requested_expressions
from magcli.verify.math.latex.spelling import normalize

_LETTERS = re.compile(r"[A-Za-z]")
_UNIT = re.compile(r"\\(?:text|mathrm)\s*\{[^{}]*\}|\\?%|\\?\$|\^\s*\{?\s*\\circ\s*\}?|°")
_SIMPLE_FRACTION = re.compile(
    r"\\[dtc]?frac\s*(?:\{\s*-?\d+\s*\}|\d)\s*(?:\{\s*\d+\s*\}|\d)|(?<![\d/)}])\d+\s*/\s*\d+(?![\d/(])"
)
_PLAIN_VALUE = re.compile(r"[+-]?\s*(?:\d[\d,]*(?:\.\d+)?|\.\d+|(?:\d+\s*)?Q)")
_FUNCTION = re.compile(
    r"\\?(?:gcd|lcm|det|binom|choose|max|min|log|ln|sin|cos|tan|sqrt|sum|prod|int|lim|mod|bmod|lfloor"
    r"|lceil)(?![A-Za-z])"
    r"|\b[CP]\s*\(|\\begin\{vmatrix|\d\s*!|√"
)
_SUM = re.compile(r"(?<=[\d)}Q])\s*[+\-−]")
_PRODUCT = re.compile(r"\\(?:times|cdot|div|ast)(?![A-Za-z])|[*×÷·⋅]|\)\s*\(|\d\s*\(|/")


_UPRIGHT_NAME = re.compile(r"\\(?:text|mathrm|operatorname)\s*\{\s*(gcd|lcm|gcf|hcf|det|ggT|kgV|mod|max|min)\s*\}")


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
    r"|div|left|right|begin|end|[bpvV]?matrix|sum|prod"
)
_ONLY_NUMBERS = re.compile(rf"(?:\\?(?:{_NAMES})(?![A-Za-z])|[^A-Za-z\\]|\\[,;!:\\ {{}}%])+")
# An operation in words on numbers: ``the sum of 17 and 23``.
_OPERATION = re.compile(
    r"\b(?:sum|difference|product|quotient|square root|cube root|square|cube|factorial|remainder|total"
    r"|Summe|Differenz|Produkt|Quotient|Quadratwurzel|Wurzel|somme|différence|produit|racine carrée"
    r"|suma|diferencia|producto|cociente|raíz cuadrada|somma|differenza|prodotto|quoziente|radice quadrata)\s+"
    r"(?:of|between|when|aus|von|der Zahlen|des?|entre|di|tra)\s+(?:the numbers\s+)?[\d\s.,$\\{}-]*\d[\s$]*"
    r"(?:(?:and|by|is divided by|divided by|from|und|et|y|e|,)\s*[\d\s.,$\\{}-]*\d[\s$]*)*[.?!]?\s*$"
    r"|\d[\s$]*(?:plus|minus|times|multiplied by|divided by|mal|geteilt durch|fois|por|per"
    r"|divis[oa] per|плюс|минус)\s[\s$]*\d"
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
    operations = (text for text in requested_expressions(question) if "^" in text or has_work_left(text))
    return bool(_OPERATION.search(question)) or any(map(_ONLY_NUMBERS.fullmatch, operations))


def is_not_evaluated(answer: str, gold: str, question: str) -> bool:
    """Whether an answer leaves operations that the question asks to do, and the ground truth is a plain value."""
    if max(len(answer), len(gold)) > MAX_CHARS or not is_plain_value(gold):
        return False
    if not has_work_left(answer):
        # ``70000/7`` for 10000
        return (
            bare_value(answer) == "Q" and "Q" not in bare_value(gold) and "." not in gold and asks_for_value(question)
        )
    if any(name.search(answer) and asked.search(question) for name, asked in _NAMED_FUNCTIONS):
        return True
    return not _LETTERS.search(_KNOWN_NAMES.sub("", answer)) and asks_for_value(question)
