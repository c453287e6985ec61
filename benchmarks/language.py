"""Accuracy and speed of language identification on MGSM's questions, and on traces and texts made from such sentences.

MGSM (CC BY-SA 4.0) is GSM8K's first 250 test questions in several languages. A trace has a question, thoughts (four
other questions of the language) and an answer (the first sentence of one more); in a mixed one the answer, the thoughts
or some of their sentences are in another language.
"""

import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable

from benchmarks import language_texts as texts
from magcli.verify import language

LANGUAGES = ("en", "de", "es", "fr", "ru", "zh")
TRACES = 60
"""Traces per kind and language."""
SHORT = 100
"""Characters of a short text."""
PASSES = 5
COUNT = 300
"""Texts per kind and language."""
SHARES = {"no foreign sentences": 0.0, "a tenth": 0.1, "a fifth": 0.2, "a third": 1 / 3}
"""Shares of foreign sentences in a text."""

Trace = tuple[str, str, str]


def accuracy() -> None:
    """Print the accuracy on questions and traces, and the speed."""
    questions = {code: texts.mgsm(code) for code in LANGUAGES}
    _print_questions(questions)
    _print_traces(questions)
    _print_speed([text for sample in questions.values() for text in sample])


def mixed() -> None:
    """Print how many texts with foreign sentences, and without, are labelled as mixed.

    Foreign sentences are English; in English texts they are of the other languages in turn.
    """
    print(f"language: texts labelled mixed, % of {COUNT}        " + "".join(f"{code:>8}" for code in texts.LANGUAGES))
    for name, share in SHARES.items():
        cells = [_percent(_with_foreign(code, share), language.MIXED) for code in texts.LANGUAGES]
        print(f"  {name:38}" + "".join(f"{cell:8.1f}" for cell in cells), flush=True)
    wrong = [100 - _percent(texts.pure(code, COUNT), code) for code in texts.LANGUAGES]
    print(f"  {'no foreign sentences, wrong label':38}" + "".join(f"{share:8.1f}" for share in wrong), flush=True)


def _with_foreign(code: str, share: float) -> Iterable[str]:
    if not share:
        return texts.pure(code, COUNT)
    foreign = ["en"] if code != "en" else [other for other in texts.LANGUAGES if other != "en"]
    count = COUNT // len(foreign)
    return [text for other in foreign for text in texts.mixed(code, other, share, count)]


def _percent(sample: Iterable[str], label: str) -> float:
    """Percentage of texts that get a label."""
    labels = [language.identify(text) for text in sample]
    return 100 * labels.count(label) / len(labels)


def _print_questions(questions: dict[str, list[str]]) -> None:
    print("language: questions, %             right  undecided  mixed  wrong   (first 60 characters: right, undecided)")
    for code, sample in questions.items():
        whole = _shares(code, sample)
        cut = _shares(code, [text[:60] for text in sample])
        cells = "".join(f"{whole[name]:9.1f}" for name in ("right", "undecided", "mixed", "wrong"))
        print(f"  {code:28}{cells}   ({cut['right']:.1f}, {cut['undecided']:.1f})")


def _shares(code: str, sample: list[str]) -> dict[str, float]:
    names = {code: "right", language.UNDECIDED: "undecided", language.MIXED: "mixed"}
    counts = Counter(names.get(language.identify(text), "wrong") for text in sample)
    return {name: 100 * counts[name] / len(sample) for name in ("right", "undecided", "mixed", "wrong")}


def _print_traces(questions: dict[str, list[str]]) -> None:
    """A trace in one language must be consistent; one in two languages may be undecided, which earns no reward."""
    print("language: traces, % correct         " + "".join(f"{code:>8}" for code in LANGUAGES))
    for name, make in KINDS.items():
        cells = []
        for code in LANGUAGES:
            choose = random.Random(f"{name} {code}")
            traces = [make(questions, code, choose) for _ in range(TRACES)]
            consistent = sum(language.consistent(*trace) is True for trace in traces)
            cells.append(100 * (consistent if name in ONE_LANGUAGE else TRACES - consistent) / TRACES)
        print(f"  {name:34}" + "".join(f"{cell:8.1f}" for cell in cells), flush=True)


def _plain(questions: dict[str, list[str]], code: str, choose: random.Random) -> Trace:
    question, *thoughts, answer = choose.sample(questions[code], 6)
    return question, " ".join(thoughts), _sentence(answer) + r" \boxed{18}"


def _formulas(questions: dict[str, list[str]], code: str, choose: random.Random) -> Trace:
    question, thoughts, answer = _plain(questions, code, choose)
    formula = r" $x_1 + \frac{a}{b} = 3$ \[ \sum_{i=1}^{n} i \] \begin{align} a &= b \end{align} `print(x)` "
    return question, formula.join(_sentences(thoughts)), answer


def _other(code: str, choose: random.Random) -> str:
    return choose.choice([other for other in LANGUAGES if other != code])


def _foreign_answer(questions: dict[str, list[str]], code: str, choose: random.Random) -> Trace:
    question, thoughts, _ = _plain(questions, code, choose)
    return question, thoughts, _plain(questions, _other(code, choose), choose)[2]


def _foreign_thoughts(questions: dict[str, list[str]], code: str, choose: random.Random) -> Trace:
    question, _, answer = _plain(questions, code, choose)
    return question, _plain(questions, _other(code, choose), choose)[1], answer


def _foreign_share(share: float) -> Callable[[dict[str, list[str]], str, random.Random], Trace]:
    def make(questions: dict[str, list[str]], code: str, choose: random.Random) -> Trace:
        question, thoughts, answer = _plain(questions, code, choose)
        sentences = _sentences(thoughts)
        foreign = _sentences(_plain(questions, _other(code, choose), choose)[1])
        count = max(1, round(share * len(sentences)))
        start = choose.randrange(len(sentences) - count + 1)
        return question, " ".join([*sentences[:start], *foreign[:count], *sentences[start + count :]]), answer

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
ONE_LANGUAGE = ("one language", "one language, formulas and code")


def _sentences(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.?!。？！])\s*", text) if part]


def _sentence(text: str) -> str:
    return _sentences(text)[0]


def _print_speed(questions: list[str]) -> None:
    """Texts identified per CPU second, the best of several passes."""
    for name, sample in (("short", [text[:SHORT] for text in questions]), ("whole", questions)):
        seconds = []
        for _ in range(PASSES):
            started = time.process_time()
            for text in sample:
                language.identify(text)
            seconds.append(time.process_time() - started)
        mean = sum(map(len, sample)) / len(sample)
        print(f"language: {len(sample) / min(seconds):,.0f} {name} texts per CPU second ({mean:.0f} characters)")
