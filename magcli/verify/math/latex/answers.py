"""Parsing a whole answer: lists, sets, tuples, intervals, relations, units, choices, words.

``parse_answer`` never raises: what the grammar cannot parse is a ``raw`` node with its text and the reason, and equals
only the same text.
"""

import re
from fractions import Fraction
from functools import lru_cache

from magcli.verify.math.latex.brackets import parse_cell, parse_group
from magcli.verify.math.latex.clock import parse_time
from magcli.verify.math.latex.commands import parse_command
from magcli.verify.math.latex.cycles import parse_cycles
from magcli.verify.math.latex.dates import parse_date
from magcli.verify.math.latex.parts import parse_list
from magcli.verify.math.latex.phrases import formalize
from magcli.verify.math.latex.spelling import normalize
from magcli.verify.math.latex.tokens import FUNCTIONS, Cursor, Token, tokenize
from magcli.verify.math.latex.tree import INFINITY, ZERO, Expr, ParseError, neg, num
from magcli.verify.math.latex.units import NUMBERS, parse_compound
from magcli.verify.math.latex.wording import NO_SOLUTION, is_letters

_ARTICLES = frozenset(("a", "an", "the"))
_PUNCTUATION = frozenset((",", ";", ".", "'", "-", "!", "?", "and", "or", ":", '"', "`"))


_PARTICLE = re.compile(r"(?<=[\u3400-\u9fff])的$")
"""The particle after a Chinese adjective, which is no part of the word."""


def only_words(tokens: tuple[Token, ...]) -> str | None:
    """The words of an answer that is only words, in lower case without articles; None for anything else."""
    if tokens[0].value == "-":
        return None
    for token in tokens:
        is_punctuation = token.kind == "op" and token.value in _PUNCTUATION
        if token.kind not in ("word", "text") and not is_punctuation:
            return None
    # Single letters are variables.
    has_word = any(map(_is_word, tokens))
    # max alone is a name of a function, not a word.
    is_function = len(tokens) == 1 and tokens[0].value in FUNCTIONS
    if not has_word or is_function:
        return None
    return tidy(" ".join(token.value for token in tokens))


def _is_word(token: Token) -> bool:
    """Whether a token is a word rather than a letter; one foreign character may be a word."""
    is_foreign = token.kind == "text" and not token.value.isascii()
    return is_foreign or (token.kind != "op" and len(token.value) > 1)


def tidy(words: str) -> str:
    """Lower case except for runs of capital letters, one space between words, without articles and a final dot."""
    spaced = re.sub(r"\s+([,;.!?'-])\s*", r"\1 ", words).split()
    kept = [word for word in spaced if word.lower() not in _ARTICLES]
    cased = [word if word.isupper() and is_letters(word) else word.lower() for word in kept]
    tidied = " ".join(cased).strip(" .,;:!?\"'`")
    return _PARTICLE.sub("", tidied) if tidied.endswith("的") else tidied


MAX_SPECIAL = 300
"""Longer texts are not a time, number in a base or choice."""
MAX_GROUPED = 1_000
"""Maximum length of a number whose digits are grouped."""
_BASES = {word: str(n) for word, n in NUMBERS.items()} | {"binary": "2", "octal": "8", "decimal": "10",
                                                            "hexadecimal": "16", "hex": "16"}  # fmt: skip
# ``1011_2``, ``1011 base 2``, ``(1011)_{two}``.
_BASE = re.compile(r"\(?((?=[A-Z]*[0-9])[0-9A-Z]{1,200})\)?\s*(?:_|\(?(?:in )?base ?)[{(]*(?:base ?)?(\d+|[a-z]+)[)}]*")
_BASE_WORD = re.compile(
    r"\(?((?=[A-Z]*[0-9])[0-9A-Z]{1,200})\)?\s*\(?(?:in )?(binary|octal|decimal|hexadecimal|hex)"
    r"(?: (?:notation|form|system))?\)?"
)
# Degrees, minutes and perhaps seconds of arc.
_ARC = re.compile(r"(\d+)\s*\^\{?\s*\\circ\s*\}?\s*(\d+(?:\.\d+)?)\s*'\s*(?:(\d+(?:\.\d+)?)\s*'')?")
# ``2 to 5 to 7``.
_WORDED_RATIO = re.compile(r"(\d+(?:\.\d+)?)((?:\s+to\s+\d+(?:\.\d+)?)+)")
# A label and nothing else: ``(C)``, ``C.``, ``option C``.
_CHOICE = re.compile(
    r"(?:(?:[Oo]ption|[Cc]hoice) )?\(([A-Za-z])\)|(?:(?:[Oo]ption|[Cc]hoice) )?([A-Z])[.):]?|\s*([A-Za-j])\)|([①-⑳])"
)
# A label and the text of its choice: ``(C) 12``.
_CHOICE_VALUE = re.compile(
    r"(?:\((?P<braced>[A-Z])\)|(?P<marked>[A-Z])[.):]|(?P<small>[a-j])\)|(?P<circled>[①-⑳]))\s*(?P<value>[^\s,;].*)",
    re.DOTALL,
)
_OTHER_SMALL_LABEL = re.compile(r"(?<![\w(])[a-j]\)|[①-⑳]")
"""A second label after a small or circled one."""
_SPACE = re.compile(r"\\(?:q?quad(?![A-Za-z])|[,;:! ])")
_OTHER_CHOICE = re.compile(
    r"""(?<![\w)\]}]) (?: \([A-J]\) | (?<!\()[A-J](?: \)(?![\w=]) | :(?!\s*[A-Z=]) | \.(?=\s) ) )
    | \b (?:and|or|not|nor|vs\.?) \s+ [A-J]\b
    | ^ \W* [A-J] \W* $
    | ^ \s* (?: [/&] | \\(?:lor|vee|land|wedge) | (?:and|or)\b )""",
    re.VERBOSE,
)
"""A second label after the first one."""
_VERDICT_ON_CHOICE = re.compile(
    r"""(?: (?:is|are|was|were) (?! \s+ (?:the\s+)? (?:correct|right|true|answer|best) )
    | isn'?t | aren'?t | cannot | can'?t | can | has | have | had | should | must | may | might | could | would | will
    | does | doesn'?t | excluded | eliminated | (?:not|wrong|incorrect)$ ) (?! [A-Za-z] )""",
    re.VERBOSE,
)
"""A statement about a label, not the text of the choice."""
_TEXT = re.compile(r"\\(?:text|textbf|mathrm|mathbf|textrm|textit|mbox|rm|bf|operatorname)\s*\{([^{}]*)\}")
# Digits grouped by commas, or by spaces.
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(\.\d+)?|[+-]?\d{1,3}(?: \d{3})+([.,]\d+)?")
# ``1.234,5``, and ``1.234.567``, whose points cannot be decimal.
_EUROPEAN = re.compile(r"([+-]?\d{1,3}(?:[. ]\d{3})+),(\d+)|([+-]?\d{1,3}(?:\.\d{3}){2,})")
_REALS = Expr("set-name", name=r"\mathbbR")
_NONZERO = Expr(r"\setminus", (_REALS, Expr("set", (ZERO,))))
_HALF_LINES = {
    **dict.fromkeys(("nonzero", "non-zero"), _NONZERO),
    "positive": Expr("tuple", (ZERO, INFINITY), "()"),
    "negative": Expr("tuple", (neg(INFINITY), ZERO), "()"),
    **dict.fromkeys(("nonnegative", "non-negative"), Expr("tuple", (ZERO, INFINITY), "[)")),
}
_NAMED = {
    **dict.fromkeys(("no solution", "no solutions", "no real solution", "no real solutions"), Expr("set")),
    **dict.fromkeys(("empty set", "null set"), Expr("set")),
    **dict.fromkeys(NO_SOLUTION, Expr("set")),
    **{
        f"{every}{kind} {reals}": region
        for every in ("", "all ")
        for reals in ("real numbers", "reals")
        for kind, region in _HALF_LINES.items()
    },
    **dict.fromkeys(("all real numbers", "all reals", "reals", "real numbers"), Expr("set-name", name=r"\mathbbR")),
    **dict.fromkeys(("undefined", "not defined", "does not exist", "dne"), Expr("text", name="does not exist")),
    **{word: num(n) for word, n in NUMBERS.items()},
}  # fmt: skip


@lru_cache(maxsize=4096)
def parse_answer(text: str) -> Expr:
    """The parse tree of an answer."""
    try:
        bare = formalize(normalize(text))
        return _special(bare) or _parse_tokens(tokenize(bare))
    except ParseError as why:
        return Expr("raw", (Expr("text", name=str(why)),), name=normalize(text))
    except (ArithmeticError, ValueError, RecursionError, IndexError):
        return Expr("raw", (Expr("text", name="unparsable"),), name=normalize(text))


@lru_cache(maxsize=1024)
def parse_as_list(text: str) -> Expr:
    """The answer with every comma as a separator: ``100,200,300`` as three numbers."""
    return parse_answer(re.sub(r",\s*", " , ", normalize(text)))


@lru_cache(maxsize=1024)
def parse_as_points(text: str) -> Expr:
    """The answer with ``C(5,2)`` and ``P(5,2)`` as points."""
    try:
        return _parse_tokens(tokenize(normalize(text)), points=True)
    except (ParseError, ArithmeticError, ValueError, RecursionError, IndexError):
        return parse_answer(text)


def ratio_in_words(text: str) -> Expr | None:
    """The ratio ``2 to 5``; None for anything else."""
    bare = normalize(text)
    if len(bare) > MAX_SPECIAL:
        return None
    match = _WORDED_RATIO.fullmatch(" ".join(_TEXT.sub(r" \1 ", bare).split()))
    if match is None:
        return None
    # The first number, then ``to`` and a number in turn.
    parts = (match[1], *match[2].split()[1::2])
    return Expr("ratio", tuple(num(Fraction(part)) for part in parts))


def _special(text: str) -> Expr | None:
    """Formats without arithmetic: grouped digits, times, numbers in a base, choices."""
    if _GROUPED.fullmatch(text):
        return num(_fraction(text.replace(" ", "").replace(",", "")))
    if european := _EUROPEAN.fullmatch(text):
        whole = re.sub("[. ]", "", european[1] or european[3])
        decimals = european[2] or "0"
        return num(_fraction(f"{whole}.{decimals}"))
    if len(text) > MAX_SPECIAL:
        return None
    plain = _TEXT.sub(r"\1", text) if "\\" in text else text
    if time := parse_time(plain.strip()):
        return time
    if cycles := parse_cycles(plain.strip()):
        return Expr("base", name=f"{cycles}_cycles")
    if date := parse_date(plain):
        return Expr("text", name=date)
    if measure := parse_compound(plain):
        amount, unit = measure
        return Expr("unit", (num(amount),), unit)
    if based := _BASE.fullmatch(plain) or _BASE_WORD.fullmatch(plain):
        digits, base = based.groups()
        # x_n with capital letters may be a symbol: A1_n.
        if base.isdigit() or base in _BASES:
            return Expr("base", name=f"{digits}_{_BASES.get(base, base)}")
    if arc := _ARC.fullmatch(plain):
        # Degrees, minutes and seconds, digits of a number in base 60.
        digits = [part or "0" for part in arc.groups()]
        return Expr("base", name=f"{':'.join(digits)}_sexagesimal")
    return _choice(plain)


def _fraction(text: str) -> Fraction:
    # The time to read digits grows with the square of their number.
    if len(text) > MAX_GROUPED:
        raise ParseError("too-long")
    return Fraction(text)


def _choice(plain: str) -> Expr | None:
    """``(C)``, ``C.``, ``c)``, ``③`` and ``(C) 12``: a label, with or without its value."""
    plain = plain.strip()
    if label := _CHOICE.fullmatch(plain):
        # Each form of a label has a group of its own.
        (letter,) = filter(None, label.groups())
        return Expr("choice", name=letter)
    spaced = _SPACE.sub(" ", plain) if "\\" in plain else plain
    labelled = _CHOICE_VALUE.fullmatch(spaced)
    if labelled is None:
        return None
    text = labelled["value"]
    if _OTHER_CHOICE.search(text) or _VERDICT_ON_CHOICE.match(text):
        return None
    small = labelled["small"] or labelled["circled"]
    if small and _OTHER_SMALL_LABEL.search(text):
        return None
    value = parse_answer(text)
    # Only after a capital letter may the text be prose, without LaTeX.
    if value.op == "raw" and (small or "\\" in text):
        return None
    return Expr("choice", (value,), labelled["braced"] or labelled["marked"] or small)


def _parse_tokens(tokens: tuple[Token, ...], *, points: bool = False) -> Expr:
    if not tokens:
        raise ParseError("empty")
    if (words := only_words(tokens)) is not None:
        return _word_answer(words)
    cursor = Cursor(tokens, parse_group, parse_command, parse_cell)
    cursor.points = points
    value = parse_list(cursor)
    if cursor.at < len(cursor.tokens):
        raise ParseError("unparsable")
    return value


def _word_answer(words: str) -> Expr:
    """Words, or a list of them separated by commas, ``and`` or ``or``."""
    if words.lower() in _NAMED:
        return _NAMED[words.lower()]
    separated = map(str.strip, re.split(r",|;|\band\b|\bor\b", words))
    parts = tuple(Expr("text", name=part) for part in separated if part)
    if len(parts) > 1:
        alternatives = "or" if re.search(r"\bor\b", words) else ""
        return Expr("list", parts, alternatives)
    return Expr("text", name=words)
