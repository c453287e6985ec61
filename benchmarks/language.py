"""How well languages are told: MGSM's questions, and traces made of them, some with two languages in one.

MGSM (CC BY-SA 4.0) is GSM8K's first 250 test questions in several languages. A trace has a question, thoughts (four
other questions of the language, one after the other) and an answer (one more, cut to its first sentence); in a mixed
one a part or some sentences of the thoughts are in another language. Tables of accuracy, and texts told per second.
"""

import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable

from benchmarks import language_texts as texts
from benchmarks.public import Missing
from magcli.verify import language

LANGUAGES = ("en", "de", "es", "fr", "ru", "zh")
TRACES = 60
"""Traces of each kind and language."""
SHORT = 100
"""Characters of a short text."""
PASSES = 5
FINAL, COUNT = 1, 300
"""The half of the sources that figures are made of, and how many texts of each kind and language."""
SHARES = {"a tenth": 0.1, "a fifth": 0.2, "a third": 1 / 3}
"""Of the sentences of a text."""

Trace = tuple[str, str, str]


def accuracy() -> None:
    """Print both tables and the rate."""
    try:
        questions = {code: texts.mgsm(code) for code in LANGUAGES}
    except Missing as missing:
        print(f"language: not measured: {missing}", flush=True)
        return
    _table_of_texts(questions)
    _table_of_traces(questions)
    _rates([text for given in questions.values() for text in given])


def mixed() -> None:
    """Print how often texts in two languages, and in one, are said to be mixed."""
    try:
        _table_of_shares()
    except Missing as missing:
        print(f"language: not measured: {missing}", flush=True)


def _table_of_shares() -> None:
    """English takes a share of the sentences of the other languages, each of them in turn those of English texts."""
    print(f"language: texts said to be mixed, % of {COUNT}      " + "".join(f"{code:>8}" for code in texts.LANGUAGES))
    rows = [("none of the sentences foreign", lambda code: _mixed_of(texts.pure(code, FINAL, COUNT)))]
    for name, share in SHARES.items():
        rows.append((name, lambda code, share=share: _mixed_of(_with_foreign(code, share))))
    for name, row in rows:
        print(f"  {name:38}" + "".join(f"{row(code):8.1f}" for code in texts.LANGUAGES), flush=True)
    wrong = [100 - _share_of(texts.pure(code, FINAL, COUNT), code) for code in texts.LANGUAGES]
    print(f"  {'pure, and not told right':38}" + "".join(f"{share:8.1f}" for share in wrong), flush=True)


def _with_foreign(code: str, share: float) -> list[str]:
    foreign = ["en"] if code != "en" else [other for other in texts.LANGUAGES if other != "en"]
    count = COUNT // len(foreign)
    return [text for other in foreign for text in texts.mixed(code, other, share, FINAL, count)]


def _mixed_of(given: Iterable[str]) -> float:
    return _share_of(given, language.MIXED)


def _share_of(given: Iterable[str], label: str) -> float:
    labels = [language.identify(text) for text in given]
    return 100 * labels.count(label) / len(labels)


def _table_of_texts(questions: dict[str, list[str]]) -> None:
    print("language: questions told, %        right  undecided  mixed  wrong   (first 60 characters: right, undecided)")
    for code, given in questions.items():
        whole = _shares(code, given)
        cut = _shares(code, [text[:60] for text in given])
        cells = "".join(f"{whole[name]:9.1f}" for name in ("right", "undecided", "mixed", "wrong"))
        print(f"  {code:28}{cells}   ({cut['right']:.1f}, {cut['undecided']:.1f})")


def _shares(code: str, given: list[str]) -> dict[str, float]:
    names = {code: "right", language.UNDECIDED: "undecided", language.MIXED: "mixed"}
    counts = Counter(names.get(language.identify(text), "wrong") for text in given)
    return {name: 100 * counts[name] / len(given) for name in ("right", "undecided", "mixed", "wrong")}


def _table_of_traces(questions: dict[str, list[str]]) -> None:
    """One language is to be consistent, two are not; undecided earns no bonus, so it is right for two."""
    print("language: traces, % judged rightly  " + "".join(f"{code:>8}" for code in LANGUAGES))
    for name, make in KINDS.items():
        cells = []
        for code in LANGUAGES:
            choose = random.Random(f"{name} {code}")
            made = [make(questions, code, choose) for _ in range(TRACES)]
            same = sum(language.consistent(*trace) is True for trace in made)
            cells.append(100 * (same if name in ALIKE else TRACES - same) / TRACES)
        print(f"  {name:34}" + "".join(f"{cell:8.1f}" for cell in cells), flush=True)


def _plain(questions: dict[str, list[str]], code: str, choose: random.Random) -> Trace:
    question, *thoughts, answer = choose.sample(questions[code], 6)
    return question, " ".join(thoughts), _sentence(answer) + r" \boxed{18}"


def _formulas(questions: dict[str, list[str]], code: str, choose: random.Random) -> Trace:
    question, thoughts, answer = _plain(questions, code, choose)
    formula = r" $x_1 + \frac{a}{b} = 3$ \[ \sum_{i=1}^{n} i \] \begin{align} a &= b \end{align} `print(x)` "
    return question, formula.join(_sentences(thoughts)), answer


def _other(code: str, choose: random.Random) -> str:
    return choose.choice([each for each in LANGUAGES if each != code])


def _foreign_answer(questions: dict[str, list[str]], code: str, choose: random.Random) -> Trace:
    question, thoughts, _ = _plain(questions, code, choose)
    return question, thoughts, _plain(questions, _other(code, choose), choose)[2]


def _foreign_thoughts(questions: dict[str, list[str]], code: str, choose: random.Random) -> Trace:
    question, _, answer = _plain(questions, code, choose)
    return question, _plain(questions, _other(code, choose), choose)[1], answer


def _foreign_share(share: float) -> Callable[[dict[str, list[str]], str, random.Random], Trace]:
    def make(questions: dict[str, list[str]], code: str, choose: random.Random) -> Trace:
        question, thoughts, answer = _plain(questions, code, choose)
        own = _sentences(thoughts)
        foreign = _sentences(_plain(questions, _other(code, choose), choose)[1])
        count = max(1, round(share * len(own)))
        start = choose.randrange(len(own) - count + 1)
        return question, " ".join([*own[:start], *foreign[:count], *own[start + count :]]), answer

    return make


KINDS: dict[str, Callable[[dict[str, list[str]], str, random.Random], Trace]] = {
    "one language": _plain,
    "one language, formulas and code": _formulas,
    "answer in another": _foreign_answer,
    "thoughts in another": _foreign_thoughts,
    "half of the thoughts in another": _foreign_share(0.5),
    "a quarter": _foreign_share(0.25),
    "a tenth": _foreign_share(0.1),
}
ALIKE = ("one language", "one language, formulas and code")


def _sentences(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.?!。？！])\s*", text) if part]


def _sentence(text: str) -> str:
    return _sentences(text)[0]


def _rates(questions: list[str]) -> None:
    """Texts told per second of processor time, the best of several passes: neighbours only slow it."""
    for name, given in (("short", [text[:SHORT] for text in questions]), ("whole", questions)):
        seconds = []
        for _ in range(PASSES):
            begun = time.process_time()
            for text in given:
                language.identify(text)
            seconds.append(time.process_time() - begun)
        mean = sum(map(len, given)) / len(given)
        print(f"language: {len(given) / min(seconds):,.0f} {name} texts a second and core ({mean:.0f} characters)")


if __name__ == "__main__":
    accuracy()
