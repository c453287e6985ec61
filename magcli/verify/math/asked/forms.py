"""Forms that a question asks for and an equal answer may lack: a value that is worked out, prime factors, lowest terms.

An answer that repeats the expression of the question with its operations left to do is no answer where the ground truth
has another form. Where the question does not ask for a form, any equal form is right.
"""

import math
import re
from collections import Counter
from functools import lru_cache

from magcli.verify.math.latex.spelling import normalize, squeeze

MAX_CHARS = 2_000
"""Longer answers and expressions are not examined."""
MAX_QUESTION = 20_000

# ---- what a question asks to work out ----

_VERBS = (
    r"compute|evaluate|calculate|simplify|find|determine|what is|what's|how much is|work out|solve"
    r"|convert|express|write"
    r"|rewrite|reduce|multiply|divide|add|subtract|distribute|combine|factor(?:i[sz]e)?|expand|rationali[sz]e|give|change|turn|transform|round|do|state|decompose"
    r"|berechnen?|vereinfachen?|bestimmen?|was (?:ist|ergibt)|wie ?viel ist|wandlen?|wandeln?|schreiben?|kürzen?"
    r"|faktorisieren?|ermitteln?|löse"
    r"|calcule[rz]?|simplifie[rz]?|évalue[rz]?|détermine[rz]?|que vaut|combien (?:font|fait)|convertis(?:sez)?"
    r"|convertir|exprime[rz]?|écri(?:s|re|vez)|réduire|réduis(?:ez)?|factorise[rz]?|développe[rz]?"
    r"|calcula|simplifica|halla|evalúa|determina|cuánto es|convierte|expresa|escribe|reduce|factoriza"
    r"|calcola(?:re)?|semplifica(?:re)?|quanto (?:fa|vale|è)|converti|esprimi|scrivi|riduci|valuta|scomponi"
    r"|calcule|simplifique|quanto é|converta|escreva|reduza"
    r"|вычисли(?:те)?|упрости(?:те)?|найди(?:те)?|чему равн[оаы]?|сколько будет|переведи(?:те)?|вырази(?:те)?"
    r"|сократи(?:те)?|представь(?:те)?|запиши(?:те)?|разложи(?:те)?|计算|化简|求|约分|[将把]"
)
# Words between the verb and its expression; those that begin another clause end them.
_CLAUSES = (
    r"if|when|where|with|given|for|such|that|from|between|has|have|who|whose|which|than|until|so|wenn"
    r"|falls|mit|für|si|avec"
    r"|pour|con|para|se|per|если|для|若|当|已知"
)
_WORDS = rf"(?:[\s:,$\"“「]*(?!(?:{_CLAUSES})\b)[^\W\d_]{{2,}}|[\s:,]*\ba\b){{0,12}}"
_REQUEST = re.compile(rf"(?:\b|(?<=[\u3400-\u9fff]))(?:{_VERBS}){_WORDS}[\s:,\"“「*]*$", re.IGNORECASE)
# What follows an expression that is one of several things, or part of a longer clause.
_CONTINUED = re.compile(r"\s*(?:,|or\b|and\b(?!\s+(?:write|express|give|round|simplify|leave)))\s*[\s$\\({]*[\d\\]")
_EQUALS_WHAT = re.compile(r"\s*(?:=|等于|equals?)\s*(?:\?|_|what|$|\\underline|多少|[(（]\s*[)）])", re.IGNORECASE)
_VERB_AFTER = re.compile(
    r"[^.?!。\d]{0,30}?(?:化简|化为|化成|等于|是多少|的值|约分|vereinfachen|berechnen|umwandeln|umrechnen)",
    re.IGNORECASE,
)
_MARKED_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$([^$]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_WORDED_FUNCTIONS = r"gcd|lcm|gcf|hcf|sqrt|log|ln|sin|cos|tan|det|mod|exp|binom|choose|degrees?"
_PLAIN_FORMULA = re.compile(
    rf"(?:\\[A-Za-z]+|[\d.,+\-−–*/^(){{}}\[\]!%=×÷·⋅√<>≤≥|°]|(?:{_WORDED_FUNCTIONS})\b|\b[A-Za-z]\b"
    rf"|(?<=\d)[A-Za-z]\b|[ \t])+"
)


@lru_cache(maxsize=1024)
def requested_expressions(question: str) -> tuple[str, ...]:
    """The expressions that a question asks to work out or to write in another form: ``Compute 17*23+5``."""
    if len(question) > MAX_QUESTION:
        return ()
    marked = [(match.start(), match.end(), next(filter(None, match.groups()))) for match in _iter_marked(question)]
    masked = _MARKED_FORMULA.sub(lambda match: "$" * len(match[0]), question)
    plain = [(match.start(), match.end(), match[0]) for match in _PLAIN_FORMULA.finditer(masked)]
    trimmed = (_trimmed(*formula) for formula in plain)
    candidates = [*marked, *(formula for formula in trimmed if re.search(r"\d|[A-Za-z].*[-+*/^=<>]", formula[2]))]
    return tuple(text for start, end, text in candidates if _is_requested(question, start, end))


def _iter_marked(question: str) -> list[re.Match[str]]:
    return [match for match in _MARKED_FORMULA.finditer(question) if any(match.groups())]


def _trimmed(start: int, end: int, text: str) -> tuple[int, int, str]:
    """A formula in running text without the spaces and punctuation around it."""
    kept = text.rstrip(" \t.,(=:")
    bare = kept.lstrip(" \t,)")
    return start + len(kept) - len(bare), start + len(kept), bare


def _is_requested(question: str, start: int, end: int) -> bool:
    before, after = question[max(0, start - 160) : start], question[end : end + 60]
    if _CONTINUED.match(after):
        return False
    alone = not before.strip() and not after.strip(" .?=\n")
    if alone or _EQUALS_WHAT.match(after) or _REQUEST.search(before.rstrip("$\\([ \n")):
        return True
    return bool(_VERB_AFTER.match(after))


# ---- what an answer consists of ----

_IGNORED = re.compile(
    r"\\(?:left|right|big|Big|bigg|displaystyle|textstyle|limits|operatorname|text|mathrm|mathbf|quad"
    r"|qquad|[,;:! ])(?![A-Za-z])"
)
_SHORT_FRACTION = re.compile(r"\\[dtc]?frac\s*(\d)\s*(\d)")
_SAME_SIGNS = (
    (re.compile(r"\\[dtc]?frac|\\div|÷|/|:"), " / "),
    (re.compile(r"\\(?:cdot|times|ast|bullet)(?![A-Za-z])|[*×·⋅]"), " "),
    (re.compile(r"−|–"), "-"),
    (re.compile(r"√|\\?sqrt"), " sqrt "),
    (re.compile(r"\^\s*\{?\s*\\circ\s*\}?|°|\\?degrees?\b"), " degree "),
    (re.compile(r"\*\*"), "^"),
)
_TOKEN = re.compile(
    rf"\d+(?:\.\d+)?|\.\d+|\\[A-Za-z]+|(?:{_WORDED_FUNCTIONS}|degree)(?![A-Za-z])|[A-Za-z]|[^\s\w{{}}()\[\]$\\]"
)
_LETTERS = re.compile(r"[A-Za-z]")


@lru_cache(maxsize=4096)
def _tokens(text: str) -> Counter[str]:
    """The numbers, names and signs of an expression, however it is set; products have no sign."""
    bare = _SHORT_FRACTION.sub(r"\\frac{\1}{\2}", _IGNORED.sub(" ", normalize(text)))
    for pattern, sign in _SAME_SIGNS:
        bare = pattern.sub(sign, bare)
    return Counter(token.lstrip("\\") for token in _TOKEN.findall(bare))


def _may_repeat(tokens: Counter[str], question: str) -> bool:
    """Whether all numbers of an expression are in a question, which is cheaper to see than its expressions."""
    return all(token in question for token in tokens if token[0].isdigit())


def repeats_question(answer: str, gold: str, question: str) -> bool:
    """Whether an answer is an expression that the question asks to work out, and the ground truth is not."""
    if max(len(answer), len(gold)) > MAX_CHARS:
        return False
    own = _tokens(answer)
    if own == _tokens(gold) or not _may_repeat(own, question):
        return False
    if _SCIENTIFIC.fullmatch(answer.strip()) and squeeze(answer) not in squeeze(question):
        return False  # ``3\times10^6`` for ``10^6\times3``
    return any(len(asked) <= MAX_CHARS and _tokens(asked) == own for asked in requested_expressions(question))


# ---- values ----

_UNIT = re.compile(r"\\(?:text|mathrm)\s*\{[^{}]*\}|\\?%|\\?\$|\^\s*\{?\s*\\circ\s*\}?|°")
_SIMPLE_FRACTION = re.compile(
    r"\\[dtc]?frac\s*(?:\{\s*-?\d+\s*\}|\d)\s*(?:\{\s*\d+\s*\}|\d)|(?<![\d/)}])\d+\s*/\s*\d+(?![\d/(])"
)
_PLAIN_VALUE = re.compile(r"[+-]?\s*(?:\d[\d,]*(?:\.\d+)?|\.\d+|(?:\d+\s*)?Q)")
_SCIENTIFIC = re.compile(r"\d+(?:\.\d+)?\s*(?:\\times|\\cdot|×|\*)\s*10\s*\^\s*(?:\{\s*-?\d+\s*\}|\d)")
_FUNCTION = re.compile(
    r"\\?(?:gcd|lcm|det|binom|choose|max|min|log|ln|sin|cos|tan|sqrt|sum|prod|int|lim|mod|bmod|lfloor"
    r"|lceil)(?![A-Za-z])"
    r"|\b[CP]\s*\(|\\begin\{vmatrix|\d\s*!|√"
)
_SUM = re.compile(r"(?<=[\d)}Q])\s*[+\-−]")
_PRODUCT = re.compile(r"\\(?:times|cdot|div|ast)(?![A-Za-z])|[*×÷·⋅]|\)\s*\(|\d\s*\(|/")


_UPRIGHT_NAME = re.compile(r"\\(?:text|mathrm|operatorname)\s*\{\s*(gcd|lcm|gcf|hcf|det|ggT|kgV|mod|max|min)\s*\}")


def _bare_value(text: str) -> str:
    """The last side of an answer without its unit; ``Q`` for each fraction of two whole numbers."""
    last = _UPRIGHT_NAME.sub(r"\1", normalize(text)).split("=")[-1].split(r"\approx")[-1]
    return _SIMPLE_FRACTION.sub(" Q ", _UNIT.sub("", last)).strip(" {}")


def is_plain_value(text: str) -> bool:
    """Whether an answer is a whole number, a decimal, a fraction or a mixed number, perhaps with a unit."""
    return _PLAIN_VALUE.fullmatch(_bare_value(text)) is not None


def has_work_left(text: str) -> bool:
    """Whether an answer in numbers has a sum, a product or a function to work out, unlike powers."""
    bare = _SCIENTIFIC.sub("1", _bare_value(text))
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
            _bare_value(answer) == "Q" and "Q" not in _bare_value(gold) and "." not in gold and asks_for_value(question)
        )
    if any(name.search(answer) and asked.search(question) for name, asked in _NAMED_FUNCTIONS):
        return True
    return not _LETTERS.search(_KNOWN_NAMES.sub("", answer)) and asks_for_value(question)


# ---- factors, lowest terms, radicals, angles ----

_PRIME_FACTORS = re.compile(
    r"prime[\s-]factor|product of (?:its )?(?:powers of )?(?:distinct )?prime|primfaktor|facteurs premiers"
    r"|factores primos|fattori primi|fatores primos|прост\w+ множител|[质質素]因[数數子]",
    re.IGNORECASE,
)
_FACTOR = re.compile(r"(\d+)(?:\^\{?(\d+)\}?)?")
_TIMES = re.compile(r"\\(?:cdot|times|ast)(?![A-Za-z])|[*×·⋅]|\)\s*\(|[()]")
MAX_PRIME = 10**10


def _whole_factors(text: str) -> list[int] | None:
    """The bases of a product of powers of whole numbers; None for anything else."""
    last = normalize(text).split("=")[-1].replace(r"\left", "").replace(r"\right", "")
    parts = [part.strip(" {},\\") for part in _TIMES.split(last)]
    factors = [_FACTOR.fullmatch(part.replace(" ", "")) for part in parts if part]
    return [int(match[1]) for match in factors if match] if factors and all(factors) else None


def _is_prime(number: int) -> bool:
    if number < 2 or number > MAX_PRIME:
        return False
    return all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def has_composite_factor(answer: str, gold: str, question: str) -> bool:
    """Whether a question asks for prime factors and an answer has others, unlike the ground truth."""
    factors = _whole_factors(answer) if len(answer) <= MAX_CHARS else None
    if not factors or all(map(_is_prime, factors)):
        return False
    wanted = _whole_factors(gold)
    return bool(wanted and all(map(_is_prime, wanted)) and _PRIME_FACTORS.search(question))


_SIMPLEST = re.compile(
    r"\bsimplif(?:y|ied|ies)\b|\bsimplest\b|\blowest terms|\breduced (?:fraction|form|terms)"
    r"|\breduc(?:e|ing)\b[^.?!]{0,40}\b(?:fraction|terms|form)"
    r"|\bfully reduced|\birreducible fraction|vereinfach|gekürzt|\bkürze|simplifi|irréductible|irreducible|simplific"
    r"|\bsemplific|minimi termini|упрост|сократи|несократим|最简|化简|约分",
    re.IGNORECASE,
)
_WHOLE_FRACTION = re.compile(
    r"\\[dtc]?frac\s*\{\s*-?(\d+)\s*\}\s*\{\s*(\d+)\s*\}|\\[dtc]?frac\s*(\d)\s*(\d)"
    r"|(?<![\d.^])(\d+)\s*/\s*(\d+)(?![\d.])"
)
_AS_FRACTION = re.compile(
    r"\b(?:as|to|into|in) (?:an? )?(?:(?:common|proper|improper|simplified|reduced|exact) )?fraction\b", re.IGNORECASE
)
_AS_MIXED = re.compile(r"\b(?:as|to|into) (?:an? )?mixed (?:number|fraction|numeral)", re.IGNORECASE)
_AS_IMPROPER = re.compile(r"\b(?:as|to|into) (?:an? )?improper fraction", re.IGNORECASE)
_MIXED = re.compile(r"[+-]?\s*\d+\s*(?:\\[,; ])?\s*(?:Q|\s\d+\s*/\s*\d+)")
# A factor 1 before or after a sign of multiplication.
_FACTOR_ONE = re.compile(
    r"(?<![\d.^{])1\s*(?:\\(?:cdot|times)(?![A-Za-z])|[*×·⋅])(?!\s*10\s*\^)|(?:\\(?:cdot|times)(?![A-Za-z])|[*×·⋅])\s*1(?![\d.,/])"
)
_WHOLE_RATIO = re.compile(r"\s*(\d+)\s*:\s*(\d+)\s*")
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
    whole = normalize(text).replace(r"\left", "").replace(r"\right", "")
    bare = whole if "," in whole else whole.split("=")[-1]
    pairs = [tuple(map(int, filter(None, match.groups()))) for match in _WHOLE_FRACTION.finditer(bare)]
    if ratio := _WHOLE_RATIO.fullmatch(bare):
        pairs.append((int(ratio[1]), int(ratio[2])))
    fractions = sum(len(pair) == 2 and (math.gcd(*pair) > 1 or pair[1] == 1) for pair in pairs)
    roots = len(_FACTOR_ONE.findall(bare))
    for root in _ROOT.finditer(bare):
        degree, written = int(root[1] or 2), root[2] or root[3] or root[4]
        # ``\sqrt23`` is the root of 2.
        radicand = int(written[0] if root[4] and "\\" in root[0] else written)
        roots += _has_power_as_factor(radicand, degree)
    return fractions + roots


def _has_power_as_factor(number: int, degree: int) -> bool:
    """Whether a number above 1 to the given degree divides a number."""
    if not 1 < number <= MAX_RADICAND or not 2 <= degree <= 9:
        return False
    base = 2
    while base**degree <= number:
        if number % base**degree == 0:
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
    if not is_plain_value(gold):
        return False
    if has_work_left(answer):
        return _asks_for_fraction(question) or asks_for_simplest(question)
    return is_other_fraction(answer, gold, question)


def is_other_fraction(answer: str, gold: str, question: str) -> bool:
    """Whether an answer is a percentage where a question asks for a fraction, or a mixed number where it asks for an
    improper fraction, or the reverse; unlike the ground truth.
    """
    if "%" in answer and "%" not in gold:
        return _asks_for_fraction(question)
    value, wanted = _bare_value(answer), _bare_value(gold)
    asks_mixed, asks_improper = _asks_for_mixed(question)
    if _MIXED.fullmatch(value) and not _MIXED.fullmatch(wanted):
        return asks_improper and not asks_mixed
    return value.lstrip("+- ") == "Q" and _MIXED.fullmatch(wanted) is not None and asks_mixed and not asks_improper


_RATIONALIZE = re.compile(
    r"rationali[sz]|rational machen|racionali|razionalizza|освободи\w* от иррациональност|分母有理化", re.IGNORECASE
)
_ROOT_BELOW = re.compile(
    r"\\[dtc]?frac\s*\{(?:[^{}]|\{[^{}]*\})*\}\s*\{[^{}]*\\sqrt|/\s*[({]?[^+\-]{0,20}(?:\\sqrt|√|sqrt)"
)


def has_root_in_denominator(answer: str, gold: str, question: str) -> bool:
    """Whether a question asks to rationalize a denominator and an answer has a root there, unlike the ground truth."""
    if len(answer) > MAX_CHARS or not ("sqrt" in answer or "√" in answer) or not _RATIONALIZE.search(question):
        return False
    return bool(_ROOT_BELOW.search(normalize(answer))) and not _ROOT_BELOW.search(normalize(gold))


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
        return not _DEGREE_SIGN.search(gold) and bool(_RADIANS.search(question)) and not _DEGREES.search(question)
    if _PI.search(answer):
        return not _PI.search(gold) and bool(_DEGREES.search(question)) and not _RADIANS.search(question)
    return False
