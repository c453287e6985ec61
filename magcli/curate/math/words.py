"""The words and the mathematics of a statement, without its layout: what duplicates are compared by."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

# A LaTeX command, a number, a CJK character, or a word of letters.
TOKEN = re.compile(r"\\[A-Za-z]+|\d+(?:[.,]\d+)*|[\u3400-\u9fff\u3040-\u30ff\uac00-\ud7af]|[^\W\d_]+")
# A token, a sign that is no punctuation, or the space between the strokes of a drawing.
_PART = re.compile(rf"{TOKEN.pattern}|[^\w\s$.,;:?。，；：？、]|(?<=[#@*|_/\\])\s{{2,}}(?=[#@*|_/\\])")
_LAYOUT_COMMANDS = re.compile(
    r"\\(?:left|right|big|Big|bigg|Bigg|bigl|bigr|displaystyle|textstyle|text|textbf|textit|textrm|mathrm|mathbf|rm|bf|quad|qquad"
    r"|hspace|vspace|begin|end|item|noindent|limits)(?![A-Za-z])"
)
# \dfrac, \tfrac and \cfrac
_SIZED = re.compile(r"\\[dtc]frac(?![A-Za-z])")
# LaTeX commands, digits and operators, but no hyphens.
_SIGNS = re.compile(r"\\[A-Za-z]+|\d|[+*/=<>^!|~−×÷≤≥±√π]|-(?![A-Za-z])")
NUMBER_WORDS = {
    word: digit
    for digit, word in enumerate(
        ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
    )
}
_NUMBER_WORD = re.compile(rf"\b(?:{'|'.join(NUMBER_WORDS)})\b")
# The separator of thousands in 1,000, 1\,000, 1{,}000 and 1,\!000.
THOUSANDS = re.compile(r"(?<=\d)(?:,|\\,|\{,\}|,\\!)(?=\d{3}(?!\d))")


def tokens_of(statement: str) -> list[str]:
    """Words, numbers and LaTeX commands in lower case; each CJK character is a word."""
    return TOKEN.findall(without_layout(statement.lower()))


def mathematics_of(statement: str) -> str:
    """Digits, operators and LaTeX commands in order, which differ between different problems.

    Number words count as digits; ``\\dfrac`` is ``\\frac``, and ``\\frac12`` is ``\\frac{1}{2}``.
    """
    text = THOUSANDS.sub("", without_layout(statement.lower()))
    text = _NUMBER_WORD.sub(lambda word: str(NUMBER_WORDS[word[0]]), text)
    return "".join(_SIGNS.findall(text))


def plain_text(statement: str) -> str:
    """The words, numbers, commands and other signs, without spaces, dollar signs, punctuation and the words' case."""
    parts = _PART.findall(THOUSANDS.sub("", without_layout(statement)))
    # Letters and commands are symbols, whose case counts.
    return " ".join(part.lower() if len(part) > 1 and part[0] != "\\" else part for part in parts)


def shingles_of(statement: str) -> frozenset[str]:
    """Words and bigrams, for the similarity of two statements."""
    words = tokens_of(statement)
    return frozenset(words) | frozenset(f"{a} {b}" for a, b in pairwise(words))


def jaccard(one: frozenset[Any], other: frozenset[Any]) -> float:
    """Jaccard similarity; 1 for two empty sets."""
    common = len(one & other)
    union = len(one) + len(other) - common
    return common / union if union else 1.0


def hashed_ngrams(words: Sequence[str], n: int) -> frozenset[int]:
    """Hashes of all runs of ``n`` words; fewer words are one run."""
    num_ngrams = max(1, len(words) - n + 1)
    # Hashes of texts differ between processes, so these are never stored.
    return frozenset(hash(tuple(words[start : start + n])) for start in range(num_ngrams))


def without_layout(statement: str) -> str:
    """The statement without commands that only set its type; its letters keep their case."""
    if "\\" not in statement:
        return statement
    return _SIZED.sub(r"\\frac", _LAYOUT_COMMANDS.sub(" ", statement))
