"""Which problems are translated into which language, and what a translation must keep (recipe, section 2).

The choice depends on a row's id alone: it stays when rows are added, left out or reordered, a larger fraction holds the
smaller one, and another language takes its share evenly from the others.

A translation is good when formulas, code and numbers are those of the original, it is in the language asked for, is
not cut, and still asks what the original asked. The ground truth is not translated, so it must not be in words.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Literal, NamedTuple

from magcli.curate.language import numerals
from magcli.errors import EnvironmentFault, UsageError
from magcli.generate.types import Completion
from magcli.verify import language as languages
from magcli.verify import prose

NAMES = {"fr": "French", "es": "Spanish", "it": "Italian", "de": "German", "zh": "Chinese", "ru": "Russian"}
"""The languages of the recipe, and how the instruction calls them."""

Fault = Literal["empty", "cut", "code", "latex", "numbers", "question", "language", "length"]
"""What is wrong with a translation."""

Unfit = Literal["not-english", "too-few-words", "worded-answer", "bare-code"]
"""Why a problem is not translated at all."""

_LENGTHS = {"zh": (0.15, 0.9)}
_LENGTH = (0.55, 2.2)
"""Letters of a translation for each letter of the original; those of MGSM have 0.64 to 1.5, in Chinese 0.25 to 0.63."""
_SLACK = 12
"""Letters more or less that say nothing: *What is* is *Quelle est la valeur de*."""

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]{1,400}`|\[asy\].*?(?:\[/asy\]|\Z)|\b[a-z]{3,6}://\S+", re.DOTALL)
_FORMULA = re.compile(
    r"\\begin\{(?P<of>\w+\*?)\}.*?(?:\\end\{(?P=of)\}|\Z)|\$\$[^$]*\$\$"
    r"|(?<!\d)\$(?=[^\s.,;:!?)]|\.\d)[^$\n]{1,400}(?<=\S)\$(?!\d)"
    r"|\\\[.*?(?:\\\]|\Z)|\\\(.*?(?:\\\)|\Z)|\\[A-Za-z]+(?:\{[^{}]*\})*",
    re.DOTALL,
)
"""Dollar signs as in ``magcli.verify.prose``, and a price in front of its sign, *0,10 $.*, opens no formula."""
_BOUNDS = re.compile(r"\A(?:\$\$?|\\\[|\\\()|(?:\$\$?|\\\]|\\\))\Z")
_WORDS_INSIDE = re.compile(r"\\(?:text|textbf|textit|emph|textrm|mbox|mathrm|operatorname)\s*\{[^{}\d$]*\}")
_BARE = re.compile(r"^(?:def \w+\(|class \w+\s*[:({]|#include\b|from \w+ import\b|import \w+$)", re.MULTILINE)
_PLACEHOLDER = "{language}"
_ENGLISH = frozenset((
    "the", "there", "how", "does", "each", "and", "of", "with", "which", "many", "much", "what", "their", "they", "who",
    "were", "if", "when", "did", "every", "more", "than",
))  # fmt: skip
"""English words that none of ``NAMES`` has: one of them shows a half-translated text, which a classifier of languages
takes for the other half's. Of the human translations in MGSM and MMATH one holds such a word, and it is a slip."""
_QUESTION = re.compile(r"[?？]")
_MATHEMATICAL = re.compile(r"sqrt|pi|(?:arc|a)?(?:sin|cos|tan)|cot|sec|csc|log|ln|exp|frac|inf|infty|infinity|oo|mod")
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)


class Choice(NamedTuple):
    """The share of the rows that is translated, and into what."""

    fraction: float
    languages: Sequence[str]

    def of(self, id: str) -> str | None:
        """The language that a row is translated into; None for a row that stays as it is."""
        if _lot(id, "") >= self.fraction:
            return None
        return max(self.languages, key=lambda language: _lot(id, language))


def _lot(id: str, language: str) -> float:
    """A number in [0, 1) for a row and a language: rendezvous hashing, independent of all else."""
    digest = hashlib.sha256(f"translate\0{id}\0{language}".encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:7], "big") / 2**56


def instruction(path: Path | None) -> str:
    """What a model is told, with ``{language}`` for the language's name: a file, or the one that comes with magcli.

    Raises:
        EnvironmentFault: the file cannot be read.
        UsageError: it does not say which language.
    """
    source = files("magcli.curate.language").joinpath("translate.txt") if path is None else path
    try:
        text = source.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise EnvironmentFault(f"cannot read the instruction {path}: {error.strerror}") from error
    if _PLACEHOLDER not in text:
        raise UsageError(f"{path} does not hold {_PLACEHOLDER}, which stands for the name of the language to write in")
    return text


def messages(text: str, language: str, told: str) -> list[dict[str, str]]:
    """The chat that asks for a translation."""
    system = told.replace(_PLACEHOLDER, NAMES[language])
    return [{"role": "system", "content": system}, {"role": "user", "content": text}]


def translated(completion: Completion) -> str:
    """The translation in what a model wrote: without its thoughts and without blanks around."""
    return _THOUGHT.sub("", completion.text).strip()


def unfit(prompt: str, answer: str) -> Unfit | None:
    """Why a problem cannot be translated; None where it can."""
    if _BARE.search(_CODE.sub(" ", prompt)):
        return "bare-code"
    told = languages.tell(prompt)
    if told.label == languages.UNDECIDED:
        return "too-few-words"
    if "en" not in told.meant():
        return "not-english"
    if any(not _MATHEMATICAL.fullmatch(word.lower()) for word in prose.words(answer).split() if len(word) > 1):
        return "worded-answer"
    return None


def fault(original: str, text: str, language: str) -> Fault | None:
    """The first thing that is wrong with a translation; None where it is good."""
    if not text:
        return "empty"
    if _spans(_CODE, original) != _spans(_CODE, text):
        return "code"
    before, after = _CODE.sub(" ", original), _CODE.sub(" ", text)
    if _spans(_FORMULA, before) != _spans(_FORMULA, after):
        return "latex"
    if not numerals.kept(_FORMULA.sub(" ", before), _FORMULA.sub(" ", after), language):
        return "numbers"
    if _QUESTION.search(before) and not _QUESTION.search(after):
        return "question"
    if language not in languages.tell(text).meant() or not _ENGLISH.isdisjoint(prose.words(after).lower().split()):
        return "language"
    low, high = _LENGTHS.get(language, _LENGTH)
    letters = _letters(before)
    return None if low * letters - _SLACK <= _letters(after) <= high * letters + _SLACK else "length"


def _spans(pattern: re.Pattern[str], text: str) -> Counter[str]:
    """All that must come back as it was.

    What may differ: blanks, the signs around a formula, a full stop or comma inside them, and words in a formula.
    """
    found = (_BOUNDS.sub("", _WORDS_INSIDE.sub("", "".join(span[0].split()))) for span in pattern.finditer(text))
    return Counter(span.rstrip(".,;:，。") for span in found if span)


def _letters(text: str) -> int:
    return len(prose.words(text))
