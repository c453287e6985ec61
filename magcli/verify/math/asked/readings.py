"""How a question lets its answer be read: its options, its way to write numbers, and what it has already said."""

import re
from functools import lru_cache

from magcli.verify import language
from magcli.verify.math.asked.requests import MAX_QUESTION
from magcli.verify.math.equality.equations import is_function
from magcli.verify.math.equality.identity import symbols
from magcli.verify.math.equality.lines import is_multiple
from magcli.verify.math.equality.structure import same
from magcli.verify.math.latex.spelling import normalize, squeeze
from magcli.verify.math.latex.tree import Expr, is_equation, rename_symbol
from magcli.verify.math.latex.units import SYMBOLS, scaled
from magcli.verify.math.latex.wording import plain, states_value

_POINT_LANGUAGES = frozenset(("de", "es", "it", "pt", "nl"))
"""Languages that group digits by points and write decimals with a comma."""
# ``15.000``: three digits after one point.
_POINT_GROUPS = re.compile(r"(?<![\d.,])([1-9]\d{0,2})\.(\d{3})(?![\d.,])")
# A decimal comma; a pair or interval has brackets around its comma.
_COMMA_DECIMAL = re.compile(r"(?<![\d.,(\[{])\d+(?:,|\{,\})\d{1,2}(?![\d.,)\]}])")
# A point that cannot group digits: other than three follow it.
_POINT_DECIMAL = re.compile(r"(?<![\d.,])\d+\.(?:\d{1,2}|\d{4,})(?![\d.,])")
# A number and one letter, apart from it: ``4.58 m``.
_LETTER_UNIT = re.compile(r"(?P<number>[\d.,]*\d)(?:\s|\\[,; ]|~)+(?P<unit>[A-Za-z])")
# A letter, to be filled in, before a sign of a relation or operation.
_VARIABLE = r"(?<![A-Za-z\\]){}\s*(?:[=<>+^]|\\(?:in|le|ge|ne)(?![a-z]))"
# A letter, to be filled in, behind a number.
_MEASURED = r"\d\$?(?:\s|\\[,; ]|~)*(?:\\(?:text|mathrm)\s*\{{\s*)?{}(?![A-Za-z(=])"


def as_in_question(text: str, question: str) -> str:
    """An answer with its number and unit as the question writes them: ``15.000`` as 15000, ``4.58 m`` as metres."""
    if _POINT_GROUPS.search(text) and _groups_by_points(text, question):
        text = _POINT_GROUPS.sub(r"\1\2", text)
    measured = _LETTER_UNIT.fullmatch(text)
    if measured and measured["unit"] in SYMBOLS and _measures_in(measured["unit"], question):
        return rf"{measured['number']}\text{{ {measured['unit']}}}"
    return text


def _groups_by_points(text: str, question: str) -> bool:
    """Whether a question in a language with decimal commas makes a point between digits one that groups them: it has
    a decimal comma and no decimal point, or the digits after each point are zeros.
    """
    has_only_zeros = all(group[2] == "000" for group in _POINT_GROUPS.finditer(text))
    writes_commas = _COMMA_DECIMAL.search(question) is not None and not _POINT_DECIMAL.search(question)
    return (has_only_zeros or writes_commas) and language.identify(question) in _POINT_LANGUAGES


def _measures_in(letter: str, question: str) -> bool:
    """Whether a letter follows numbers of the question, or its unit is in it, and it is none of its variables."""
    is_measured = re.search(_MEASURED.format(letter), question) or _names_unit(SYMBOLS[letter], question)
    is_variable = re.search(_VARIABLE.format(letter), question)
    return bool(is_measured) and not is_variable


def _names_unit(unit: str, question: str) -> bool:
    """Whether a question has the name of a unit: ``liters``, ``metres``."""
    spelling = re.sub("er$", "(?:er|re)", unit)
    return re.search(rf"\b{spelling}s?\b", question, re.IGNORECASE) is not None


# The label of an option at the start of a line or after white space: ``(A)``, ``b)``, ``③``.
_LABEL = re.compile(
    r"(?:(?<=[\s。？：；，])|^)(?:\(\s*(?P<braced>[A-Ja-j])\s*\)|(?P<marked>[A-Ja-j])\s*[.):．、]{1,2}|(?P<circled>[①-⑳]))\s*"
)
_BOLD_LABEL = re.compile(r"\\(?:textbf|mathbf|text|mathrm|textrm|rm|bf)\s*\{\s*(\(?[A-J][.)])\s*\}")
# Asymptote code, whose labels of points are no options.
_DRAWING = re.compile(r"\[asy\].*?(?:\[/asy\]|\Z)", re.DOTALL)
_SPACES = re.compile(r"\\q?quad|~|\\[ ,;:!]|\\hspace\{[^{}]*\}")
MIN_OPTIONS = 3
_SEQUENCES = ("ABCDEFGHIJ", "abcdefghij", "①②③④⑤⑥⑦⑧⑨⑩")


@lru_cache(maxsize=1024)
def options(question: str) -> dict[str, str]:
    """The options that a question lists after their labels; empty for fewer than ``MIN_OPTIONS``."""
    if len(question) > MAX_QUESTION:
        return {}
    text = _DRAWING.sub(" ", question)
    text = _BOLD_LABEL.sub(r" \1 ", text)
    text = _SPACES.sub(" ", text)
    labels = list(_LABEL.finditer(text))
    for sequence in _SEQUENCES:
        run = _run_of_labels(labels, sequence)
        if len(run) < MIN_OPTIONS:
            continue
        # An option lasts from the end of its label to the start of the next one.
        starts = [label.end() for label in run]
        stops = [*(label.start() for label in run[1:]), len(text)]
        texts = [text[start:stop] for start, stop in zip(starts, stops, strict=True)]
        return dict(zip(sequence, map(_first_paragraph, texts), strict=False))
    return {}


def _first_paragraph(text: str) -> str:
    """An option without what follows it: an empty line, or the bullet of the next one."""
    return re.split(r"\n\s*\n|\$?\\bullet", text.strip(), maxsplit=1)[0].strip(" \n\t,;.")


def _run_of_labels(labels: list[re.Match[str]], sequence: str) -> list[re.Match[str]]:
    """The last run of labels in the order of a sequence."""
    run: list[re.Match[str]] = []
    for label in labels:
        # Each form of a label has a group of its own.
        (letter,) = filter(None, label.groups())
        if letter == sequence[0]:
            run = [label]
        elif run and len(run) < len(sequence) and letter == sequence[len(run)]:
            run.append(label)
    return run


def without_asked_scale(text: str, question: str) -> str:
    """The number before a multiplier that the question asks for (``how many million``); empty for anything else."""
    written = _SCALED.fullmatch(normalize(text))
    if written is None:
        return ""
    words = _TEXT_COMMAND.sub(r"\1", written["words"]).split()
    scale, _ = scaled(words[0])
    if scale == 1:
        return ""
    asked = re.search(_ASKED_SCALE.format(re.escape(plain(" ".join(words)))), plain(question))
    return written["number"] if asked else ""


_IN_BASE = re.compile(r"\(?(?P<digits>[0-9A-F]+)\)?_\{?(?P<base>\d{1,2})\}?")
_BASE_WORDS = {"2": "binary", "8": "octal", "16": "hexadecimal"}


def without_asked_base(text: str, question: str) -> str:
    """The digits of a number in the base that the question asks for (``Write 22 in base 2``); else empty."""
    written = _IN_BASE.fullmatch(squeeze(text)) if "_" in text else None
    if written is None:
        return ""
    base = written["base"]
    asked = rf"\b(?:in|to|into)\s+(?:base[\s$-]*{base}\b|{_BASE_WORDS.get(base, f'base {base}')})"
    return written["digits"] if re.search(asked, question, re.IGNORECASE) else ""


# A number and the words after it.
_SCALED = re.compile(r"(?P<number>[\d.,]*\d)(?:\s|\\[,; ]|~)*(?P<words>[^\W\d_].*|\\text\{.*)")
_TEXT_COMMAND = re.compile(r"\\(?:text|mathrm)\s*\{([^{}]*)\}")
_ASKED_SCALE = r"(?:how many|wie viele?|combien de|cuant[oa]s|quant[ie]|сколько|多少|几)\s*{}"
_DATED = re.compile(r"(?P<year>\d{4})-(?P<day>\d\d-\d\d)")


def same_as_known(a: Expr, b: Expr, question: str) -> bool:
    """Whether two answers differ only in what the question has said (the year of a date, a noun after an adjective) or
    leaves open (the name of a constant, the length of an eigenvector).
    """
    if a.op == b.op == "text":
        return _says_more(a.name, b.name, question) or _says_more(b.name, a.name, question)
    return _same_constant(a, b, question) or (_asks_for_direction(question) and is_multiple(a, b))


def _says_more(longer: str, text: str, question: str) -> bool:
    """Whether words are others together with what the question has said."""
    rules = (_same_date, _with_noun, _states_word)
    return any(says_more(longer, text, question) for says_more in rules)


def _same_date(dated: str, day: str, question: str) -> bool:
    """``2024-05-01`` for ``05-01``, if the question has the year."""
    date = _DATED.fullmatch(dated)
    return date is not None and date["day"] == day and date["year"] in question


MIN_NOUN = 4


def _with_noun(longer: str, word: str, question: str) -> bool:
    """``isosceles triangle`` for ``isosceles``, if the question has the noun."""
    noun = longer.removeprefix(f"{word} ")
    if noun == longer or " " in noun or len(noun) < MIN_NOUN:
        return False
    return re.search(rf"(?<!\w){re.escape(plain(noun))}(?!\w)", plain(question)) is not None


_STATING = re.compile(r"(?P<subject>(?:[\w-]+ ){1,3})(?:is|are|was|must be)")
_PRONOUNS = frozenset(("it", "this", "that", "they", "these", "he", "she", "answer", "result"))


def _states_word(sentence: str, word: str, question: str) -> bool:
    """``it is odd`` or ``function is odd`` for ``odd``, if the question has the noun."""
    lead = sentence.removesuffix(f" {word}")
    stating = _STATING.fullmatch(lead) if lead != sentence else None
    if stating is None or not states_value(lead):
        return False
    words_of_question = set(re.findall(r"[^\W_]+", plain(question)))
    subject = stating["subject"].split()
    return word not in subject and (_PRONOUNS | words_of_question).issuperset(subject)


# Only one of several right values is asked for.
_ONE_OF = re.compile(
    r"\b(?:enter|give|write|state|submit|name|provide)\b[^.?!$]{0,80}\bone of (?:the|them|these|those)\b[^.?!$]{0,80}"
    r"\bnot (?:both|all)\b",
    re.IGNORECASE,
)


def is_one_as_asked(answer: Expr, gold: Expr, question: str) -> bool:
    """Whether an answer is one of the values of the ground truth, if the question asks for one of them."""
    if gold.op != "list" or answer.op == "list" or not _ONE_OF.search(question[:MAX_QUESTION]):
        return False
    return any(same(answer, value)[0] for value in gold.args)


_FIND = (
    r"\b(?:find|give|determine|compute|calculate|state|write(?: down)?|bestimmen?|finden?|gib|berechnen?|ermittle"
    r"|trouve[rz]?|donne[rz]?|détermine[rz]?|calcule[rz]?|halla[r]?|encuentra|calcula[r]?|determina[r]?|da|dar|trova(?:re)?"
    r"|calcola(?:re)?|scrivi)"
)
_DIRECTIONS = (
    r"an? (?:\w+ )?(?:eigenvector|normal vector|direction vector|vector (?:normal|perpendicular|parallel)|basis)"
    r"|eine?n? (?:eigenvektor|normalenvektor|richtungsvektor|basis)|un vecteur (?:propre|normal|directeur)"
    r"|un (?:autovector|vector (?:propio|normal|director)|autovettore|vettore (?:normale|direttore))|un[ae] base"
)
# One vector of many, which the indefinite article shows.
_DIRECTION = re.compile(
    rf"{_FIND} (?:{_DIRECTIONS})\b|(?:найдите|укажите) (?:собственный вектор|вектор нормали|направляющий вектор)"
    "|求[^。，]{0,20}的一个(?:特征向量|法向量|方向向量)",
    re.IGNORECASE,
)
# A length that is asked for, so that not every multiple is right.
_LENGTH = re.compile(
    r"\bunit|normali[sz]|normiert|einheits|unita|orthonorm|length|magnitude|единичн|单位|模", re.IGNORECASE
)


def _asks_for_direction(question: str) -> bool:
    """Whether a question asks for any vector of a direction: an eigenvector, a normal, a basis; not one of a length."""
    return _DIRECTION.search(question) is not None and not _LENGTH.search(question)


def _has_letter(question: str, name: str) -> bool:
    """Whether a name occurs in a question other than within a word or command."""
    return re.search(rf"(?<![A-Za-z\\]){re.escape(name)}(?![A-Za-z])", question) is not None


def _same_constant(a: Expr, b: Expr, question: str) -> bool:
    r"""``f(x)=cx`` and ``f(x)=kx``, if the question has neither letter: then each answer has named a constant."""
    constants, other_constants = _constants(a), _constants(b)
    if len(constants) != 1 or len(other_constants) != 1 or constants == other_constants:
        return False
    (name,), (other_name,) = constants, other_constants
    if _has_letter(question, name) or _has_letter(question, other_name):
        return False
    return same(rename_symbol(a, name, "?0"), rename_symbol(b, other_name, "?0"))[0]


def _constants(equation: Expr) -> frozenset[str]:
    """The letters in the value of a function that are not its arguments; empty for anything else."""
    if not is_equation(equation):
        return frozenset()
    function, value = equation.args
    return symbols(value) - symbols(function) if is_function(function) else frozenset()
