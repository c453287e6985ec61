"""Select problems for translation, and check translations (recipe, section 2).

The selection depends only on a row's id: it is stable when rows are added, removed or reordered, a larger fraction
includes a smaller one, and a new language takes its share evenly from the others.

A translation is accepted if it preserves formulas, code and numbers, is in the target language, is not truncated, and
still asks a question if the original did. The ground truth is not translated, so it must not contain words. Existing
translations, such as MGSM's of GSM8K, can be joined to the rows.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import pyarrow as pa

from magcli.curate import numerals
from magcli.curate.reading import Warn, read_lenient, read_strict
from magcli.data.columns import attach
from magcli.errors import DataError, EnvironmentFault, UsageError
from magcli.generate.types import Completion
from magcli.verify import language as languages

NAMES = {"fr": "French", "es": "Spanish", "it": "Italian", "de": "German", "zh": "Chinese", "ru": "Russian"}
"""The languages of the recipe, and their names in the instruction."""
Defect = Literal["empty", "cut", "code", "latex", "numbers", "question", "language", "length"]
"""Defects of a translation."""
Untranslatable = Literal["not-english", "too-few-words", "worded-answer", "bare-code"]
"""Why a problem is not translated."""
_LENGTHS = {"zh": (0.15, 0.9)}
_LENGTH = (0.55, 2.2)
"""Ratio of letters in translation and original; MGSM has 0.64 to 1.5, in Chinese 0.25 to 0.63."""
_SLACK = 12
"""Tolerance in letters: *What is* may become *Quelle est la valeur de*."""
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]{1,400}`|\[asy\].*?(?:\[/asy\]|\Z)|\b[a-z]{3,6}://\S+", re.DOTALL)
_FORMULA = re.compile(
    r"\\begin\{(?P<of>\w+\*?)\}.*?(?:\\end\{(?P=of)\}|\Z)|\$\$[^$]*\$\$"
    r"|(?<!\d)\$(?=[^\s.,;:!?)]|\.\d)[^$\n]{1,400}(?<=\S)\$(?!\d)"
    r"|\\\[.*?(?:\\\]|\Z)|\\\(.*?(?:\\\)|\Z)|\\[A-Za-z]+(?:\{[^{}]*\})*",
    re.DOTALL,
)
"""Dollar signs as in ``magcli.verify.language``; a price before its sign, *0,10 $.*, does not open a formula."""
_BOUNDS = re.compile(r"\A(?:\$\$?|\\\[|\\\()|(?:\$\$?|\\\]|\\\))\Z")
_WORDS_INSIDE = re.compile(r"\\(?:text|textbf|textit|emph|textrm|mbox|mathrm|operatorname)\s*\{[^{}\d$]*\}")
_BARE = re.compile(r"^(?:def \w+\(|class \w+\s*[:({]|#include\b|from \w+ import\b|import \w+$)", re.MULTILINE)
_PLACEHOLDER = "{language}"
_ENGLISH = frozenset((
    "the", "there", "how", "does", "each", "and", "of", "with", "which", "many", "much", "what", "their", "they", "who",
    "were", "if", "when", "did", "every", "more", "than",
))  # fmt: skip
"""English words that no language in ``NAMES`` has; one of them reveals a half-translated text, which a language
classifier misses. Among the human translations in MGSM and MMATH one contains such a word, by mistake."""
_QUESTION = re.compile(r"[?？]")
_MATHEMATICAL = re.compile(r"sqrt|pi|(?:arc|a)?(?:sin|cos|tan)|cot|sec|csc|log|ln|exp|frac|inf|infty|infinity|oo|mod")
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
EXISTING = "existing_translation"
"""The column that holds an existing translation until it is checked."""
By = Literal["id", "position"]
Texts = dict[tuple[str, str], str]
"""(id or number of the row, language) -> text."""


class LanguageChoice(NamedTuple):
    """The fraction of rows to translate, and the target languages."""

    fraction: float
    languages: Sequence[str]

    def of(self, id: str) -> str | None:
        """The target language of a row; None if it is not translated."""
        if _hash(id, "") >= self.fraction:
            return None
        return max(self.languages, key=lambda language: _hash(id, language))


def _hash(id: str, language: str) -> float:
    """A number in [0, 1) for a row and a language (rendezvous hashing)."""
    digest = hashlib.sha256(f"translate\0{id}\0{language}".encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:7], "big") / 2**56


def instruction(path: Path | None) -> str:
    """The instruction for the model with the placeholder ``{language}``, from a file or the default.

    Raises:
        EnvironmentFault: the file cannot be read.
        UsageError: it lacks the placeholder.
    """
    source = files("magcli.curate").joinpath("translate.txt") if path is None else path
    try:
        text = source.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise EnvironmentFault(f"cannot read the instruction {path}: {error.strerror}") from error
    if _PLACEHOLDER not in text:
        raise UsageError(f"{path} lacks the placeholder {_PLACEHOLDER} for the target language")
    return text


def messages(text: str, language: str, instruction: str) -> list[dict[str, str]]:
    """The chat that requests a translation."""
    system = instruction.replace(_PLACEHOLDER, NAMES[language])
    return [{"role": "system", "content": system}, {"role": "user", "content": text}]


def translated(completion: Completion) -> str:
    """The translation in a completion, without reasoning and surrounding whitespace."""
    return _THOUGHT.sub("", completion.text).strip()


def untranslatable(prompt: str, answer: str) -> Untranslatable | None:
    """Why a problem cannot be translated; None if it can."""
    if _BARE.search(_CODE.sub(" ", prompt)):
        return "bare-code"
    detected = languages.detect(prompt)
    if detected.label == languages.UNDECIDED:
        return "too-few-words"
    if "en" not in detected.candidates():
        return "not-english"
    if any(
        not _MATHEMATICAL.fullmatch(word.lower()) for word in languages.prose_words(answer).split() if len(word) > 1
    ):
        return "worded-answer"
    return None


def defect(original: str, text: str, language: str) -> Defect | None:
    """The first defect of a translation; None if it is accepted."""
    if not text:
        return "empty"
    if _spans(_CODE, original) != _spans(_CODE, text):
        return "code"
    before, after = _CODE.sub(" ", original), _CODE.sub(" ", text)
    if _spans(_FORMULA, before) != _spans(_FORMULA, after):
        return "latex"
    if not numerals.preserved(_FORMULA.sub(" ", before), _FORMULA.sub(" ", after), language):
        return "numbers"
    if _QUESTION.search(before) and not _QUESTION.search(after):
        return "question"
    if language not in languages.detect(text).candidates() or not _ENGLISH.isdisjoint(
        languages.prose_words(after).lower().split()
    ):
        return "language"
    low, high = _LENGTHS.get(language, _LENGTH)
    letters = _letters(before)
    return None if low * letters - _SLACK <= _letters(after) <= high * letters + _SLACK else "length"


def _spans(pattern: re.Pattern[str], text: str) -> Counter[str]:
    """All spans that must be preserved.

    Blanks, the delimiters of a formula, punctuation inside them, and words in a formula may differ.
    """
    found = (_BOUNDS.sub("", _WORDS_INSIDE.sub("", "".join(span[0].split()))) for span in pattern.finditer(text))
    return Counter(span.rstrip(".,;:，。") for span in found if span)


def _letters(text: str) -> int:
    return len(languages.prose_words(text))


if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from magcli.curate.translation import LanguageChoice
    from magcli.data.source import Rows


def read_translations(path: Path, by: By, languages: Sequence[str], warn: Warn) -> Texts:
    """Read a table with columns ``prompt``, ``id`` or ``position``, and ``language`` if there are several.

    Raises:
        DataError: a column is missing, the language of several is unknown, or a line is unreadable and lines count.
    """
    source = read_lenient(path, warn) if by == "id" else read_strict(path)
    names = source.schema.names
    missing = [name for name in ("prompt", *(("id",) if by == "id" else ())) if name not in names]
    if missing:
        raise DataError(f"{path} lacks column {missing[0]}; it has: {', '.join(names)}")
    if "language" not in names and len(languages) > 1:
        raise DataError(f"{path} has no column language, so --languages must name one, not {','.join(languages)}")
    found: Texts = {}
    for number, row in enumerate(row for batch in source.rows for row in batch.to_pylist()):
        key = row["id"] if by == "id" else row.get("position", number)
        found.setdefault((str(key), row.get("language") or languages[0]), row["prompt"])
    return found


def with_translations(rows: Rows, texts: Mapping[tuple[str, str], str], by: By, choice: LanguageChoice) -> Rows:
    """Add the existing translation into the selected language to each row."""
    before = 0
    for batch in rows:
        ids = batch.column("id").to_pylist()
        keys = ids if by == "id" else map(str, range(before, before + len(ids)))
        column = [texts.get((key, choice.of(id) or "")) for key, id in zip(keys, ids, strict=True)]
        yield attach(batch, pa.RecordBatch.from_pydict({EXISTING: pa.array(column, pa.string())}))
        before += batch.num_rows
