"""Select problems for translation, and check translations (recipe, section 2).

The selection depends only on a row's id: it is stable when rows are added, removed or reordered, a larger fraction
includes a smaller one, and a new language takes its share evenly from the others.

A translation is accepted if it preserves formulas, code and numbers, is in the target language, is not truncated, and
still asks a question if the original did. The ground truth is not translated, so it must not contain words. Existing
translations, such as MGSM's of GSM8K, can be joined to the rows.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Literal, NamedTuple

import pyarrow as pa

from magcli.curate.instruction import NAMES, PLACEHOLDER
from magcli.curate.tables import read_lenient, read_strict
from magcli.data.schema import with_columns
from magcli.data.source import Rows
from magcli.data.values import to_rows
from magcli.errors import DataError
from magcli.generate.types import Completion
from magcli.model.chat.thoughts import THINK, ThoughtForm
from magcli.verify import language as languages

Defect = Literal["empty", "cut", "code", "latex", "numbers", "question", "language", "length"]
"""Defects of a translation."""
Untranslatable = Literal["not-english", "too-few-words", "worded-answer", "bare-code"]
"""Why a problem is not translated."""
_LENGTH_RATIO = (0.55, 2.2)
_LENGTH_RATIOS = {"zh": (0.15, 0.9)}
"""Ratio of letters in translation and original; MGSM has 0.64 to 1.5, in Chinese 0.25 to 0.63."""
_SLACK = 12
"""Tolerance in letters: *What is* may become *Quelle est la valeur de*."""
# Code in fences or backticks, figures in Asymptote, and links: all of it stays as it is.
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]{1,400}`|\[asy\].*?(?:\[/asy\]|\Z)|\b[a-z]{3,6}://\S+", re.DOTALL)
_FORMULA = re.compile(
    r"\\begin\{(?P<of>\w+\*?)\}.*?(?:\\end\{(?P=of)\}|\Z)|\$\$[^$]*\$\$"
    r"|(?<!\d)\$(?=[^\s.,;:!?)]|\.\d)[^$\n]{1,400}(?<=\S)\$(?!\d)"
    r"|\\\[.*?(?:\\\]|\Z)|\\\(.*?(?:\\\)|\Z)|\\[A-Za-z]+(?:\{[^{}]*\})*",
    re.DOTALL,
)
"""Dollar signs as in ``magcli.verify.language``; a price before its sign, *0,10 $.*, does not open a formula."""
# $..$ may become \(..\).
_DELIMITERS = re.compile(r"\A(?:\$\$?|\\\[|\\\()|(?:\$\$?|\\\]|\\\))\Z")
# Words in a formula are translated; with digits they count as mathematics.
_TEXT_IN_FORMULA = re.compile(r"\\(?:text|textbf|textit|emph|textrm|mbox|mathrm|operatorname)\s*\{[^{}\d$]*\}")
# Lines that begin as Python or C do.
_UNFENCED_CODE = re.compile(r"^(?:def \w+\(|class \w+\s*[:({]|#include\b|from \w+ import\b|import \w+$)", re.MULTILINE)
_ENGLISH_WORDS = frozenset((
    "the", "there", "how", "does", "each", "and", "of", "with", "which", "many", "much", "what", "their", "they", "who",
    "were", "if", "when", "did", "every", "more", "than",
))  # fmt: skip
"""English words that no language in ``NAMES`` has; one of them reveals a half-translated text, which a language
classifier misses. Among the human translations in MGSM and MMATH one contains such a word, by mistake."""
_QUESTION = re.compile(r"[?？]")
# Words of an answer that are mathematics: functions, and what is left of LaTeX commands.
_MATHEMATICAL = re.compile(r"sqrt|pi|(?:arc|a)?(?:sin|cos|tan)|cot|sec|csc|log|ln|exp|frac|inf|infty|infinity|oo|mod")
EXISTING = "existing_translation"
"""The column with an existing translation until it is checked."""
By = Literal["id", "position"]
Texts = dict[tuple[str, str], str]
"""(id or number of the row, language) -> text."""


class LanguageChoice(NamedTuple):
    """The fraction of rows to translate, and the target languages."""

    fraction: float
    languages: Sequence[str]

    def of(self, id: str) -> str | None:
        """The target language of a row; None if it is not translated."""
        # The empty language decides whether, the others into which one.
        if _hash(id, "") >= self.fraction:
            return None
        return max(self.languages, key=lambda language: _hash(id, language))


def _hash(id: str, language: str) -> float:
    """A number in [0, 1) for a row and a language (rendezvous hashing)."""
    digest = hashlib.sha256(f"translate\0{id}\0{language}".encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:7], "big") / 2**56


def messages(text: str, language: str, instruction: str) -> list[dict[str, str]]:
    """The chat that requests a translation."""
    system = instruction.replace(PLACEHOLDER, NAMES[language])
    return [{"role": "system", "content": system}, {"role": "user", "content": text}]


def translated(completion: Completion, thoughts: ThoughtForm = THINK) -> str:
    """The translation in a completion, without thoughts and surrounding whitespace."""
    text = completion.text
    return thoughts.split(text)[1].strip() if thoughts.opens(text) else text.strip()


def untranslatable(prompt: str, answer: str) -> Untranslatable | None:
    """Why a problem cannot be translated; None if it can."""
    # Code without marks would be translated like prose.
    if _UNFENCED_CODE.search(_CODE.sub(" ", prompt)):
        return "bare-code"
    detected = languages.detect(prompt)
    if detected.label == languages.UNDECIDED:
        return "too-few-words"
    if "en" not in detected.candidates():
        return "not-english"
    words = [word.lower() for word in languages.prose_words(answer).split() if len(word) > 1]
    is_mathematical = all(map(_MATHEMATICAL.fullmatch, words))
    return None if is_mathematical else "worded-answer"


def defect(original: str, text: str, language: str) -> Defect | None:
    """The first defect of a translation; None if it is accepted."""
    if not text:
        return "empty"
    if _spans(_CODE, original) != _spans(_CODE, text):
        return "code"
    # Code is compared already, and its signs are no formulas or numbers.
    before, after = _CODE.sub(" ", original), _CODE.sub(" ", text)
    if _spans(_FORMULA, before) != _spans(_FORMULA, after):
        return "latex"
    if not preserves_numbers(_FORMULA.sub(" ", before), _FORMULA.sub(" ", after), language):
        return "numbers"
    if _QUESTION.search(before) and not _QUESTION.search(after):
        return "question"
    words = languages.prose_words(after)
    if language not in languages.detect(text).candidates():
        return "language"
    if not _ENGLISH_WORDS.isdisjoint(words.lower().split()):
        return "language"
    low, high = _LENGTH_RATIOS.get(language, _LENGTH_RATIO)
    num_letters = len(languages.prose_words(before))
    # The slack is in letters, so that it only matters for short texts.
    is_plausible = low * num_letters - _SLACK <= len(words) <= high * num_letters + _SLACK
    return None if is_plausible else "length"


def _spans(pattern: re.Pattern[str], text: str) -> Counter[str]:
    """All spans that must be preserved.

    Spaces, the delimiters of a formula, punctuation at its end, and words in it may differ.
    """
    unspaced = ("".join(match[0].split()) for match in pattern.finditer(text))
    bare = (_DELIMITERS.sub("", _TEXT_IN_FORMULA.sub("", span)) for span in unspaced)
    return Counter(span.rstrip(".,;:，。") for span in bare if span)


def read_translations(path: Path, by: By, languages: Sequence[str], warn: Callable[[str], None]) -> Texts:
    """Read a table with columns ``prompt``, ``id`` or ``position``, and ``language`` if there are several.

    Raises:
        DataError: a column is missing, the language of several is unknown, a line is unreadable and lines count, or two
            texts are for one row.
    """
    source = read_lenient(path, warn) if by == "id" else read_strict(path)
    names = source.schema.names
    required = ("prompt", "id") if by == "id" else ("prompt",)
    missing = [name for name in required if name not in names]
    if missing:
        raise DataError(f"{path} lacks column {missing[0]}; it has: {', '.join(names)}")
    if "language" not in names and len(languages) > 1:
        raise DataError(
            f"{path} has no column language, so give a single language in --languages, not {','.join(languages)}"
        )
    texts: Texts = {}
    rows = chain.from_iterable(map(to_rows, source.rows))
    for number, row in enumerate(rows):
        # A table without positions counts its lines.
        key = row["id"] if by == "id" else row.get("position", number)
        text = row["prompt"]
        # Without a key it belongs to no row, and without a text it says nothing.
        if key is None or text is None:
            continue
        language = row.get("language") or languages[0]
        if texts.setdefault((str(key), language), text) != text:
            raise DataError(f"{path} has two different translations into {language} for {by} {key}; remove one of them")
    return texts


def with_translations(
    rows: Rows, texts: Mapping[tuple[str, str], str], by: By, choice: LanguageChoice, where: str
) -> Rows:
    """Add the existing translation into the selected language to each row; ``where`` names their table.

    Raises:
        DataError: two different problems have the id of one translation.
    """
    before = 0
    stated: dict[str, str] = {}
    for batch in rows:
        ids = batch.column("id").to_pylist()
        keys = ids if by == "id" else map(str, range(before, before + len(ids)))
        column = [texts.get((key, choice.of(id) or "")) for key, id in zip(keys, ids, strict=True)]
        if by == "id":
            _check_statements(batch, column, stated, where)
        yield with_columns(batch, pa.RecordBatch.from_pydict({EXISTING: pa.array(column, pa.string())}))
        before += batch.num_rows


def _check_statements(batch: pa.RecordBatch, texts: Sequence[str | None], stated: dict[str, str], where: str) -> None:
    """Check that a translation is that of one problem; ``stated`` has the statement of each id so far.

    Rows of one id in several languages are no conflict, as only the English one is translated.
    """
    for id, prompt, text in zip(batch.column("id").to_pylist(), batch.column("prompt").to_pylist(), texts, strict=True):
        if text is None:
            continue
        first = stated.setdefault(id, prompt)
        if first == prompt or untranslatable(prompt, "") is not None:
            continue
        if untranslatable(first, "") is None:
            raise DataError(
                f"translate: id {id!r} belongs to two different problems, of which {where} translates one; make the "
                "ids unique, or match rows by their number: --by position"
            )
        stated[id] = prompt


# ---- numbers ----

_SPACES = "\u00a0\u202f\u2009"
# 1,000.5, 1 000,5, .5
_NUMBER = re.compile(rf"\d+(?:[.,'’ {_SPACES}]\d{{3}}(?!\d))*(?:[.,]\d+)?|(?<![\w.])\.\d+")
_SEPARATORS = rf"['’ {_SPACES}]"
# 5 PM, 5:30 p.m., and the 3 of "3 to 5 pm"
_CLOCK = re.compile(
    r"\b(\d{1,2})(?:[:.](\d\d))?(?=(?:\s*(?:to|and|until|-|–)\s*\d{1,2}(?:[:.]\d\d)?)?\s*([ap])\.?\s?m\b)",
    re.IGNORECASE,
)
# The minutes of 17:00 or 17.00, but not of 17.00 %
_FULL_HOUR = re.compile(r"(?<=\d)[:.]00\b(?!\s*%)")
_UNITS, _TENS, _MONTHS, _ORDINALS = map(str.split, (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen",
    "twenty thirty forty fifty sixty seventy eighty ninety",
    "january february march april may june july august september october november december",
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth",
))  # fmt: skip
_NUMBER_WORDS: dict[str, tuple[float, ...]] = {
    **{word: (value,) for value, word in enumerate(_UNITS)},
    **{word + plural: (value,) for value, word in enumerate(_ORDINALS, 1) for plural in ("", "s")},
    **{word: (value,) for value, word in enumerate(_MONTHS, 1)},
    **{word: (10 * value,) for value, word in enumerate(_TENS, 2)},
    **dict.fromkeys(("half", "halves"), (0.5, 1, 2, 50)),
    **dict.fromkeys(("quarter", "quarters"), (0.25, 4, 25)),
    **dict.fromkeys(("twice", "double", "doubled", "doubles", "both", "pair", "couple"), (2,)),
    **dict.fromkeys(("thrice", "triple", "tripled", "triples"), (3,)),
    **dict.fromkeys(("dozen", "dozens"), (12,)),
    **dict.fromkeys(("hundred", "hundreds"), (100,)),
    **dict.fromkeys(("thousand", "thousands"), (1000,)),
    "million": (1e6,),
}
_TARGET_WORDS = {
    "fr": "une?|premi deux|second trois|tiers|troisi quatr|quart cinq six sept huit neuf|neuvi dix onze douze",
    "es": "un[ao]?|primer|únic dos|segund tres|tercer cuatro|cuart cinco|quint seis|sext siete|séptim ocho|octav "
    "nueve|noven diez|décim once doce",
    "it": "un[ao]?|prim due|second tre|terz quattro|quart cinque|quint sei|sest sette|settim otto|ottav nove|non[ao] "
    "dieci|decim undici dodici",
    "de": "ein|erst zwei drei|dritt vier fünf sechs|sechst sieb acht neun zehn elf|elft zwölf",
    "ru": "один|одн|перв два|две|двух|двум|втор три|трех|трёх|трем|трём|трет четыр|четвёрт|четверт пят шест "
    "семь|семи|седьм восьм|восем девят десят одиннадцат двенадцат",
    "zh": "一|单|首|每 二|两|双 三 四 五 六 七 八 九 十 十一 十二",
}
"""Prefixes of the cardinal and ordinal words for one to twelve, by language."""


def preserves_numbers(original: str, translated: str, language: str) -> bool:
    """Whether the translation of an English text has the same numbers.

    Each number in digits must reappear equally often, and no other may appear, except for what good translators do:
    separators change (1,000.5 becomes 1.000,5 or 1 000,5), a number from one to twelve may become a word, a number word
    (*twice*, *a third*, *May*) digits, and times may use 24 hours (*5:00 PM* becomes *17 Uhr*).
    """
    lost, added = _unmatched(original, translated)
    if lost or added:
        lost, added = _unmatched(_as_24_hours(original), _FULL_HOUR.sub("", translated))
    # What is lost in digits must be a word of the translation, beside those that were words before.
    words = number_words(original)
    for value in lost:
        if not _in_words(value, lost.count(value) + words[value], translated, language):
            return False
    # A number that only the translation has in digits must be spelled out in the original; 1 is an article as well.
    return all(any(words[reading] or reading == 1 for reading in readings) for readings in added)


def _unmatched(original: str, translated: str) -> tuple[list[float], list[frozenset[float]]]:
    """Numbers in digits only in the original, and possible readings of those only in the translation."""
    lost = [_english(text) for text in _NUMBER.findall(original)]
    added = []
    # Unambiguous numerals first, so that an ambiguous one does not take their value.
    for readings in sorted(map(_readings, _NUMBER.findall(translated)), key=len):
        equal = next((value for value in lost if value in readings), None)
        if equal is None:
            added.append(readings)
        else:
            lost.remove(equal)
    return lost, added


def _english(text: str) -> float:
    """Parse an English numeral: commas and spaces as thousands separators, decimal point."""
    if text.count(".") > 1:
        text = text.replace(".", "")
    return float(re.sub(f"{_SEPARATORS}|,", "", text))


def _readings(text: str) -> frozenset[float]:
    """Possible values of a numeral in the target languages."""
    plain = re.sub(_SEPARATORS, "", text)
    # A comma or a point may separate thousands or decimals, so both readings count.
    numerals = (plain.replace(",", ""), plain.replace(".", "").replace(",", "."))
    return frozenset(float(numeral) for numeral in numerals if numeral.count(".") < 2 and numeral != ".")


def _as_24_hours(text: str) -> str:
    """The text with times of day in 24-hour format, full hours without minutes."""

    def hour(clock: re.Match[str]) -> str:
        number = int(clock[1])
        if number <= 12:
            # 12 am is hour 0, and 12 pm hour 12.
            number = number % 12 + 12 * (clock[3].lower() == "p")
        return f"{number}:{clock[2]}" if clock[2] and clock[2] != "00" else str(number)

    return _CLOCK.sub(hour, text)


def number_words(text: str) -> Counter[float]:
    """The numbers spelled out in an English text with their counts; *thirty-five* counts as 35, 30 and 5."""
    return Counter(_values_of(re.findall(r"[a-z]+", text.lower())))


def _values_of(words: list[str]) -> Iterator[float]:
    # The last word has no following one.
    for word, following in pairwise([*words, ""]):
        yield from _NUMBER_WORDS.get(word, ())
        if word in _TENS and following in _UNITS[1:10]:
            yield _NUMBER_WORDS[word][0] + _NUMBER_WORDS[following][0]
        if following in ("hundred", "thousand", "million") and word in _NUMBER_WORDS:
            yield _NUMBER_WORDS[word][0] * _NUMBER_WORDS[following][0]


def _in_words(value: float, times: int, translated: str, language: str) -> bool:
    """Whether a small number occurs that often as a word in the translation; 1 needs to occur only once (article)."""
    if value not in range(1, 13):
        return False
    prefixes = _TARGET_WORDS[language].split()[int(value) - 1]
    # Chinese does not separate words.
    boundary = "" if language == "zh" else r"\b"
    words = re.findall(f"{boundary}(?:{prefixes})", translated, re.IGNORECASE)
    min_times = 1 if value == 1 else times
    return len(words) >= min_times
