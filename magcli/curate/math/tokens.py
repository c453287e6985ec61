"""A statement as words for comparison: layout, case and dressing of formulas left out, its mathematics kept apart."""

import re
from itertools import pairwise

_TOKEN = re.compile(r"\\[A-Za-z]+|\d+(?:[.,]\d+)*|[\u3400-\u9fff\u3040-\u30ff\uac00-\ud7af]|[^\W\d_]+")
_DRESSING = re.compile(
    r"\\(?:left|right|big|Big|bigg|Bigg|bigl|bigr|displaystyle|textstyle|text|textbf|textit|textrm|mathrm|mathbf|rm|bf|quad|qquad"
    r"|hspace|vspace|begin|end|item|noindent|limits)(?![A-Za-z])"
)
_SIZED = re.compile(r"\\[dtc]frac(?![A-Za-z])")
_SIGNS = re.compile(r"\\[A-Za-z]+|\d|[+*/=<>^!|~−×÷≤≥±√π]|-(?![A-Za-z])")
_NUMBER_WORDS = {
    word: digit
    for digit, words in enumerate(
        ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    )
    for word in (words,)
}
_NUMBER_WORD = re.compile(rf"\b(?:{'|'.join(_NUMBER_WORDS)})\b")
_GROUPED = re.compile(r"(?<=\d)(?:,|\\,|\{,\}|,\\!)(?=\d{3}(?!\d))")


def tokens_of(statement: str) -> list[str]:
    """Words, numbers and LaTeX commands in order, lower case; a character of Chinese, Japanese or Korean is a word."""
    return _TOKEN.findall(_undressed(statement))


def mathematics_of(statement: str) -> str:
    """Digits, operators and LaTeX commands in order: two problems that differ in them are two problems.

    Number words count as digits; ``\\dfrac`` is ``\\frac``, and ``\\frac12`` is ``\\frac{1}{2}``.
    """
    text = _GROUPED.sub("", _undressed(statement))
    return "".join(_SIGNS.findall(_NUMBER_WORD.sub(lambda word: str(_NUMBER_WORDS[word[0]]), text)))


def shingles_of(statement: str) -> frozenset[str]:
    """Words and pairs of neighbours, whose overlap measures how alike two statements are."""
    words = tokens_of(statement)
    return frozenset(words) | frozenset(f"{a} {b}" for a, b in pairwise(words))


def _undressed(statement: str) -> str:
    text = statement.lower()
    return _SIZED.sub(r"\\frac", _DRESSING.sub(" ", text)) if "\\" in text else text
