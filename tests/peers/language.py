"""How well languages are told: MGSM's questions, and traces made of them, some with two languages in one.

MGSM (CC BY-SA 4.0) is GSM8K's first 250 test questions in several languages. A trace has a question, thoughts (four
other questions of the language, one after the other) and an answer (one more, cut to its first sentence); in a mixed
one a part or some sentences of the thoughts are in another language. Tables of accuracy, and texts told per second.
"""

import random
import re
import time
from collections import Counter
from collections.abc import Callable

from magcli.verify import language
from tests.peers.public import GithubFile, Missing

_MGSM = ("NJUNLP/SkipLayerCD", "72df5e5d6e5095c6db6e0aaad25c1fead84e8995")
DIGESTS = {
    "en": "49ce6077521f7e39efcd78f5ec607af1dd81935d97e873302c25f9e80dee3c11",
    "de": "8b332a6fd3e4727027c9ed042c27ea5ce9e0ad2fa31c1d133e4f4388e8947cd7",
    "es": "ae5044478312b1f9200607b854bdddfc88f0f351389259347ffc4c550a4e2c77",
    "fr": "385e1743719a537a9ca2247c8f74dbe34e67a1ff550cad65603af6cb03f23243",
    "ru": "fcac7fa24283f382bf57175e33f092086b69e9019830aea0bbebb8afb65a6b5a",
    "zh": "b8ae52ff1bf8a286979b710749a56293d08ec663372f3ef772ce97e851b11aa7",
}
LANGUAGES = ("en", "de", "es", "fr", "ru", "zh")
TRACES = 60
"""Traces of each kind and language."""
SHORT = 100
"""Characters of a short text."""
PASSES = 5

Trace = tuple[str, str, str]


def accuracy() -> None:
    """Print both tables and the rate."""
    try:
        questions = {code: mgsm(code) for code in LANGUAGES}
    except Missing as missing:
        print(f"language: not measured: {missing}", flush=True)
        return
    _table_of_texts(questions)
    _table_of_traces(questions)
    _rates([text for texts in questions.values() for text in texts])


def mgsm(code: str) -> list[str]:
    """The questions of one language."""
    path = f"data/mgsm/mgsm_{code}.tsv"
    text = GithubFile(*_MGSM, path, DIGESTS[code], shared=f"eval/mgsm_{code}.tsv").text()
    return [line.split("\t")[0] for line in text.splitlines()]


def _table_of_texts(questions: dict[str, list[str]]) -> None:
    print("language: questions told, %        right  undecided  mixed  wrong   (first 60 characters: right, undecided)")
    for code, texts in questions.items():
        whole = _shares(code, texts)
        cut = _shares(code, [text[:60] for text in texts])
        cells = "".join(f"{whole[name]:9.1f}" for name in ("right", "undecided", "mixed", "wrong"))
        print(f"  {code:28}{cells}   ({cut['right']:.1f}, {cut['undecided']:.1f})")


def _shares(code: str, texts: list[str]) -> dict[str, float]:
    names = {code: "right", language.UNDECIDED: "undecided", language.MIXED: "mixed"}
    counts = Counter(names.get(language.identify(text), "wrong") for text in texts)
    return {name: 100 * counts[name] / len(texts) for name in ("right", "undecided", "mixed", "wrong")}


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


def _rates(texts: list[str]) -> None:
    """Texts told per second of processor time, the best of several passes: neighbours only slow it."""
    for name, given in (("short", [text[:SHORT] for text in texts]), ("whole", texts)):
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
