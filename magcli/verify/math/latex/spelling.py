"""One spelling of an answer: without boxes, quotes, marks and delimiters around it, with one form of each sign."""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

from magcli.verify.math.latex.tokens import ascii_math
from magcli.verify.math.latex.units import SYMBOLS

# What separates groups of three digits: ``1{,}250``, ``1\,250``, ``1~250``.
_GROUPING = re.compile(r"(?<=\d)(?:\{,\}\s?|,?\\!\s?|,\s?\\!\s?|\\[,;: ]|~)(?=\d{3}(?!\d))")
_BRACED_SIGN = re.compile(r"(?<=\d)\{([:.])\}(?=\d)")
"""A colon or point in braces, which LaTeX sets without the space after punctuation."""
_DECIMAL_COMMA = re.compile(r"(?<=\d)\{,\}(?=\d)")
# ``1,250,000``, not the start or end of a longer list.
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
# A backslash that was escaped once too often, as in JSON within JSON: ``\\frac``.
_DOUBLE_BACKSLASH = re.compile(r"\\\\(?=[A-Za-z,;!{}%])")
# ``3 x 10^5``.
_TIMES_X = re.compile(r"(?<=\d)\s*x\s*(?=10\s*\^)")
# ``\mathbb R`` without braces.
_SET_NAME = re.compile(r"\\mathbb\s*([A-Z])(?![A-Za-z])")
# ``The final answer is: ``, also as ``\text{Answer:}``.
_PREFIX = re.compile(
    r"^(?P<text>\\text\s*\{)?\s*(?:the\s+)?(?:final\s+)?answer\s*(?:is|:|=)[\s:]*(?(text)\})\s*(?=\S)", re.IGNORECASE
)
_IS_THE_ANSWER = re.compile(r"\s*(?:\\text\s*\{)?\s+is\s+the\s+(?:final\s+|correct\s+)?answer\.?\s*\}?$")
_QUAD = re.compile(r"\\q?quad")
# ``{}^5C_2`` and ``_5C_2``, binomial coefficients.
_CHOOSE = re.compile(r"(?<![\w}])(?:\{\})?[_^]\s*\{?(\d+|[nm])\}?\s*(?:C|\\mathrm\{C\})_\s*\{?(\d+|[rk])\}?")
# An upright unit whose powers have braces of their own: ``\mathrm{m^{2}}``.
_UPRIGHT = re.compile(r"\\(?:mathrm|text|textrm)\s*\{\s*([A-Za-z]+)(?![A-Za-z])(?:[^{}]|\^\{-?\d\})*\}")
_EMPTY_GROUP = re.compile(r"(?<![\\\w}])\{\}(?=\s*\^)")
"""The base of an index before a letter: ``{}^\\circ C``."""
# ``\left{``, whose brace lacks its backslash.
_SIZED_BRACE = re.compile(r"\\(left|right)\s*(?=[{}])")
# A number in a base within sized brackets: ``\left(1011\right)_2``.
_SIZED_DIGITS = re.compile(r"\\left\s*\(\s*([0-9A-F]+)\s*\\right\s*\)(?=\s*\}?\s*_)")
# A letter or number in braces of its own before an index: ``{a}_1``.
_BRACED_STEM = re.compile(r"(?<![^{(\[<>=+\-*/,|$])\{\s*([A-Za-z]|\([0-9A-F]+\))\s*\}(?=\s*_)")
# A repeating decimal with its cycle in brackets: ``0.1(6)``.
_CYCLE = re.compile(r"(?<![\w.])(0?\.\d*)\((\d+)\)")
_WRAPPER = re.compile(
    r"\\(?:text(?:bf|it|rm|normal|sf|tt)?|math(?:rm|bf|it|sf|tt)|boldsymbol|bm|f?box(?:ed)?|ensuremath|mbox)\s*\{"
)
_RAISED_SIGN = re.compile(r"\^\s*\{\s*(\\circ|\\prime)\s*\}")
MAX_PASSES = 10
Rewrite = tuple[str, re.Pattern[str], str | Callable[[re.Match[str]], str]]
_US_DOLLAR = re.compile(r"\bUS\\?\$")
_MICRO = re.compile(
    r"(?<=[\d\s},;:~])(?:\\(?:text|mathrm)\s*\{\s*\\?mu\s*|\\mu\s*(?:\\(?:text|mathrm)\s*\{)?\s*)([mgsAVWJNFCLTH]|Pa|mol)(?![A-Za-z])\}?"
)
r"""The prefix of a unit after a number: ``5\,\mu\text{F}``, ``\mathrm{\mu F}``."""
# All ways to write ``\pmod{5}``.
_MODULUS = re.compile(
    r"(?:\s|\\[,;:! ]|\\q?quad)*\(?\s*(?:\\[bp]?mod|\\(?:text|mathrm|operatorname)\s*\{\s*mod\s*\}|\bmod\b)\s*\{?\s*"
    r"(\d+|[a-z])\s*\}?\s*\)?"
)
# Two bars between names of lines: ``AB || CD``.
_PARALLEL = re.compile(r"(?<![A-Za-z])(?<=[A-Z])\s*\\\|\s*(?=[A-Z])|(?<=[A-Z][A-Z])\s*(?:\\\||\|\|)\s*(?=[A-Z]{2})")
# One bar between two terms, which is no absolute value: ``3 | n``.
_DIVIDES = re.compile(r"^\s*(\d+|[a-z])\s*\|\s*(\d*[a-z](?:\^\{?\d\}?)?(?:[+-]\d+)?|\([^|()]*\)|\d+)\s*$")
_DOLLAR = re.compile(r"(?<!\\)\$+")
_FACTORIAL_EQUALS = re.compile(r"(?<![\w_])(\d+)!=(?=\s*[\d\\(-])")
"""``5!=120``: an answer never says that two numbers differ, so the sign belongs to the number."""
_COMMA_CYCLE = re.compile(r"(?<![\d.,])(\d+),(?=\d*\\(?:overline|dot|bar)\s*\{?\d)")
"""Only decimals have repeating digits, so the comma before them is a decimal comma."""


@lru_cache(maxsize=8192)
def normalize(text: str) -> str:
    """The answer without box, ``$``, bold and a final dot around it; grouped digits are one number."""
    text = ascii_math(_unmark(text.strip())).strip()
    # Layers may be in any order, as a box in dollars or dollars in a box, so until nothing changes.
    for _ in range(MAX_PASSES):
        bare = _unify_spelling(_unwrap(_unmark(text)))
        if bare == text:
            break
        text = bare
    return text


def _rewritten(text: str, rules: Iterable[Rewrite]) -> str:
    """The text after rules, each of which is a sign that its pattern needs, the pattern, and what replaces it.

    The sign is looked for before the pattern, since most answers need none of them.
    """
    for sign, pattern, replacement in rules:
        if sign in text:
            text = pattern.sub(replacement, text)
    return text


def _unify_spelling(text: str) -> str:
    """One spelling of grouped digits, decimal commas, repeating decimals, combinations, sets and indices."""
    text = _rewritten(text, _SIGNS)
    # In a table two backslashes end a row.
    if "\\\\" in text and r"\begin" not in text:
        text = _DOUBLE_BACKSLASH.sub(r"\\", text)
    text = _rewritten(text, _BRACES)
    text = _unify_digits(text)
    # Wide spaces separate equations: x=1 \quad y=2.
    if "quad" in text and text.count("=") > 1 and r"\begin" not in text:
        text = _QUAD.sub(",", text)
    text = _rewritten(text, _GROUPS)
    # In brackets a comma separates entries.
    if "," in text and "(" not in text and "[" not in text and "\\{" not in text:
        text = _join_digits(text)
    return _TIMES_X.sub(r"\\times ", text) if "x" in text else text


def _unify_digits(text: str) -> str:
    """One spelling of points, commas, colons and factorial signs next to digits."""
    if "\\" in text or "~" in text or "{,}" in text:
        # A comma in braces that groups no digits is a decimal comma.
        text = _GROUPING.sub("", text)
        text = _DECIMAL_COMMA.sub(".", text)
    return _rewritten(text, _NEXT_TO_DIGITS)


def _bare_powers(match: re.Match[str]) -> str:
    """An upright unit without braces around its powers, so that it is one text token."""
    if match[1] not in SYMBOLS:
        return match[0]
    return match[0].replace("^{", "^").replace("}", "") + "}"


_SIGNS: tuple[Rewrite, ...] = (
    ("\\", _SET_NAME, r"\\mathbb{\1}"),
    ("$", _US_DOLLAR, r"\\$"),
    ("mu", _MICRO, r"\\text{ micro\1}"),
    # Elsewhere mod is an operation.
    ("equiv", _MODULUS, r"\\pmod{\1}"),
    ("|", _PARALLEL, r"\\parallel "),
    ("|", _DIVIDES, r"\1\\mid \2"),
)
_BRACES: tuple[Rewrite, ...] = (
    ("\\left", _SIZED_BRACE, r"\\\1\\"),
    ("\\left", _SIZED_DIGITS, r"(\1)"),
    ("_", _BRACED_STEM, r"\1"),
)
_NEXT_TO_DIGITS: tuple[Rewrite, ...] = (
    ("{", _BRACED_SIGN, r"\1"),
    ("!=", _FACTORIAL_EQUALS, r"\1! ="),
    (",", _COMMA_CYCLE, r"\1."),
)
_GROUPS: tuple[Rewrite, ...] = (
    ("C", _CHOOSE, r"\\binom{\1}{\2}"),
    ("^{", _UPRIGHT, _bare_powers),
    ("{}", _EMPTY_GROUP, ""),
    ("(", _CYCLE, r"\1\\overline{\2}"),
)


def _join_digits(text: str) -> str:
    """Join grouped digits as in ``x=1,250`` if there is no other comma, and more than the number."""
    bare = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), text)
    # The number alone may be a list too, of which both readings are compared.
    return text if "," in bare or bare.isdigit() else bare


_MARKS = re.compile(
    r"(?:\s|\\[ ,;:!]|\\q?quad|\$)*(?:[✓✔✅☑🎉■□∎◼◻▪\ufe0f]"
    r"|\\(?:checkmark|blacksquare|square|Box|qed|blacktriangle|bigstar)"
    r"(?![A-Za-z]))+(\$?)\s*$"
)
"""Marks after an answer that say that it is done or checked."""
_MARK_SIGNS = frozenset("✓✔✅☑🎉■□∎◼◻▪\ufe0f")
_MARK_COMMANDS = tuple(rf"\{name}" for name in ("checkmark", "blacksquare", "square", "Box", "qed", "bigstar"))
_QUOTES = dict(zip('"“”„«»‘`「『‹', '"””“»«’`」』›', strict=True))
"""Opening quotes and those that close them, in the ways of several languages."""


def _unmark(text: str) -> str:
    """Without marks at the end and quotes around the whole."""
    bare = text.rstrip(" $")
    if bare[-1:] in _MARK_SIGNS or bare.endswith(_MARK_COMMANDS):
        text = _MARKS.sub(r"\1", text) or text
    opening = text[:1]
    closing = _QUOTES.get(opening)
    # Any quote may be closed by the usual one.
    if closing is None or len(text) <= 2 or not text.endswith((closing, "”")):
        return text
    inner = text[1:-1]
    # "A" and "B" are two quotations.
    has_quotes_inside = opening in inner or closing in inner
    return text if has_quotes_inside else inner.strip()


def _unwrap(text: str) -> str:
    """Without one layer of punctuation, words, delimiters, a command or a brace around the whole."""
    text = text.removesuffix(r"\text{.}")
    ends_with_mark = text.endswith((".", ",", ";", "。", ":"))
    if ends_with_mark and not text.endswith(("..", r"\.", "\\,", "\\;", "\\:")):
        text = text[:-1].rstrip()
    # The backslash of a space at the end, "5\ ", is left when the space is stripped.
    while text.endswith("\\") and not text.endswith("\\\\"):
        text = text[:-1].rstrip()
    if "nswer" in text:
        text = _IS_THE_ANSWER.sub("", _PREFIX.sub("", text))
    if text[:1] in "\\=":
        text = text.removeprefix(r"\approx").removeprefix("=").strip()
    if text.startswith("**") and text.endswith("**") and len(text) > 4:
        return text[2:-2].strip()
    if "$" in text or text.startswith(("\\(", "\\[")):
        text = _strip_delimiters(text)
    if not text.endswith("}"):
        return text
    # The start of the content, if a command or brace around the whole opens there.
    start = 1 if text.startswith("{") else 0
    if text.startswith("\\") and (wrapper := _WRAPPER.match(text)):
        start = wrapper.end()
    # {1}{2} is not one group.
    if not start or not _closes_last(text, start):
        return text
    return text[start:-1].strip()


def _strip_delimiters(text: str) -> str:
    """Without delimiters of formulas; a lone ``$`` before a number is money."""
    if text.startswith(("\\(", "\\[")) and text.endswith(("\\)", "\\]")):
        return text[2:-2].strip()
    marks = _DOLLAR.findall(text)
    are_paired = len(marks) % 2 == 0
    if marks and are_paired:
        return _DOLLAR.sub(" ", text).strip()
    return text


def _closes_last(text: str, start: int) -> bool:
    """Whether the brace opened just before ``start`` closes with the last character."""
    depth = 1
    # A backslash is read with what it escapes, so that \{ and \} do not count.
    for match in re.finditer(r"\\.|[{}]", text[start:], re.DOTALL):
        depth += (match[0] == "{") - (match[0] == "}")
        if depth == 0:
            return start + match.end() == len(text)
    return False


@lru_cache(maxsize=8192)
def squeeze(text: str) -> str:
    """Letters and signs without fonts and spaces, to compare what cannot be parsed."""
    text = re.sub(r"\\(?:left|right|displaystyle|[,;:! ]|q?quad)(?![A-Za-z])", "", normalize(text))
    text = re.sub(r"\\(?:text|textbf|textit|mathrm|mathbf|textrm|operatorname|mbox)\s*\{([^{}]*)\}", r"\1", text)
    text = text.replace(r"\dfrac", r"\frac").replace(r"\tfrac", r"\frac")
    if "^" in text:
        text = _RAISED_SIGN.sub(r"^\1", text).replace(r"^\prime", "'")
    # Spaces between digits separate numbers.
    text = re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", text)
    return text if text.endswith("..") else text.removesuffix(".")
