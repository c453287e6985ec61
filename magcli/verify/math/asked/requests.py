"""The expressions that a question asks to work out, and answers that only repeat them.

An answer that repeats the expression of the question with its operations left to do is no answer where the ground truth
has another form.
"""

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

from magcli.verify.math.latex.spelling import normalize, squeeze

MAX_CHARS = 2_000
"""Longer answers and expressions are not examined."""
MAX_QUESTION = 20_000
"""Longer questions are not searched."""

# ---- what a question asks to work out ----

_VERBS = (
    r"compute|evaluate|calculate|simplify|find|determine|what is|what's|how much is|work out|solve"
    r"|convert|express|write"
    r"|rewrite|reduce|multiply|divide|add|subtract|distribute|combine|factor(?:i[sz]e)?|expand|rationali[sz]e|give|change|turn|transform|round|do|state|decompose|complete"
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
# A digit, or a letter in an operation.
_HAS_VALUE = re.compile(r"\d|[A-Za-z].*[-+*/^=<>]")


@lru_cache(maxsize=1024)
def requested_expressions(question: str) -> tuple[str, ...]:
    """The expressions that a question asks to work out or to write in another form: ``Compute 17*23+5``."""
    if len(question) > MAX_QUESTION:
        return ()
    candidates = list(_marked_formulas(question))
    # Marked formulas are blanked out at the same length, so that positions remain those of the question.
    masked = _MARKED_FORMULA.sub(lambda match: "$" * len(match[0]), question)
    for match in _PLAIN_FORMULA.finditer(masked):
        start, end, text = _trimmed(match.start(), match.end(), match[0])
        if _HAS_VALUE.search(text):
            candidates.append((start, end, text))
    requested = [text for start, end, text in candidates if _is_requested(question, start, end)]
    return tuple(requested)


def _marked_formulas(question: str) -> Iterator[tuple[int, int, str]]:
    """The formulas between ``$`` or brackets, without these: start, end and text."""
    for match in _MARKED_FORMULA.finditer(question):
        # Each kind of delimiters has a group of its own.
        (inner,) = filter(None, match.groups())
        yield match.start(), match.end(), inner


def _trimmed(start: int, end: int, text: str) -> tuple[int, int, str]:
    """A formula in running text without the spaces and punctuation around it."""
    kept = text.rstrip(" \t.,(=:")
    bare = kept.lstrip(" \t,)")
    return start + len(kept) - len(bare), start + len(kept), bare


def _is_requested(question: str, start: int, end: int) -> bool:
    # A request is near its expression; the bounds keep the time linear.
    before = question[max(0, start - 160) : start]
    after = question[end : end + 60]
    if _CONTINUED.match(after):
        return False
    stands_alone = not before.strip() and not after.strip(" .?=\n")
    if stands_alone or _EQUALS_WHAT.match(after):
        return True
    if _REQUEST.search(before.rstrip("$\\([ \n")):
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
SCIENTIFIC = re.compile(r"\d+(?:\.\d+)?\s*(?:\\times|\\cdot|×|\*)\s*10\s*\^\s*(?:\{\s*-?\d+\s*\}|\d)")


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
    # The tokens of 3\times10^6 and 10^6\times3 are the same, but only the first is in scientific notation.
    if SCIENTIFIC.fullmatch(answer.strip()) and squeeze(answer) not in squeeze(question):
        return False
    asked = [text for text in requested_expressions(question) if len(text) <= MAX_CHARS]
    return any(_tokens(text) == own for text in asked)
