"""Long texts in one language or two, as thoughts of reasoning models are, made from public sentences.

Sources are MGSM's questions (CC BY-SA 4.0, no Italian), MMATH's problems (four of the languages), the parallel
sentences of Universal Dependencies' PUD treebanks (CC BY-SA 3.0, all seven), and short remarks with formulas and
numbers written for this project. A passage is a run of sentences that exist in all languages of their source, so that a
sentence can be replaced by its translation. Only the odd blocks of each source are used: thresholds were chosen on the
even ones.
"""

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from benchmarks.downloads import GithubFile

LANGUAGES = ("en", "fr", "es", "it", "de", "zh", "ru")

_MGSM = ("NJUNLP/SkipLayerCD", "72df5e5d6e5095c6db6e0aaad25c1fead84e8995")
MGSM_DIGESTS = {
    "en": "49ce6077521f7e39efcd78f5ec607af1dd81935d97e873302c25f9e80dee3c11",
    "de": "8b332a6fd3e4727027c9ed042c27ea5ce9e0ad2fa31c1d133e4f4388e8947cd7",
    "es": "ae5044478312b1f9200607b854bdddfc88f0f351389259347ffc4c550a4e2c77",
    "fr": "385e1743719a537a9ca2247c8f74dbe34e67a1ff550cad65603af6cb03f23243",
    "ru": "fcac7fa24283f382bf57175e33f092086b69e9019830aea0bbebb8afb65a6b5a",
    "zh": "b8ae52ff1bf8a286979b710749a56293d08ec663372f3ef772ce97e851b11aa7",
}
_MMATH = ("RUCAIBox/MMATH", "8796b04daceddf0fd4d5855455f26a16a86f1e60")
_MMATH_DIGESTS = {
    "en": "7f42894b99188d12b2603760cf4ee44a08a39769e63f6d6240f1ed807bdc1752",
    "fr": "2355f5a9b23b8aedae375c46b2bb8b85055f8ccc0a4915cfabe9f10828ea426b",
    "es": "a2d8155e8b07878c925344c6eb4a1768e91053e828e379204bc00543aa42b973",
    "zh": "f90e5eb7e7dc49ce56e9a23ac0661e0fdbc7397c3330229afef35e0c94e0738c",
}
_PUD = {
    "en": (
        "English",
        "f16eba4ae7f3d161870ed320676c5088b8fa476c",
        "c80584f2bc2b31d5bada78a1136f9feec7ac49e5e18898db02dea434b5b8f0aa",
    ),
    "fr": (
        "French",
        "c245786cfb3020d43bcfc96215ae531a1b07bcbc",
        "793540702db111d2bfe04f846edddb23e7a2a432294fe17cb612dd795fb0301f",
    ),
    "es": (
        "Spanish",
        "818a82b8628c9cbec78750c7e83ccba34b9ce22b",
        "48a7b5c7f409100b24eba90c7397e01f6fecaaf3207315a9a1bda029f77e98d3",
    ),
    "it": (
        "Italian",
        "71d932aa096368331ba2fd9bc906ec8dd853da8e",
        "ad5d302bdfd05194155d9ad43dc54c3cb915076d66b3eb6ef33eca9a11f1372a",
    ),
    "de": (
        "German",
        "ff80846ae60a0a70fc4d6251ef73e6a483a620ee",
        "a530bdb50349bbd7c13706b6a759a9d73e8f514fff41fbf27149e914b0c3e723",
    ),
    "zh": (
        "Chinese",
        "2849afd946a8c01b3e9acdf3e7afa8670cf2777d",
        "e12582af2e2bbc2e27155ca7dc12b6fc4a037dbc716e1f805d67e34ffb2596b3",
    ),
    "ru": (
        "Russian",
        "da5b3816eeaa24283c1d81a48bb1de4d062fc5d5",
        "a37e076d24f0c3cfd5d48a11bbfec36026da5dc46180b7a12dc991dc372de1ea",
    ),
}
_REMARKS = {
    "en": (
        "Okay, let me think about this. | So $x = 3$. | Wait, that is not right. | We add both sides and get "
        "$2x + 4 = 10$. | Let me check the result once more. | That gives 12 apples a day. | Now we can divide by 5: "
        "`total // 5`. | First we need the area of the triangle. | Hence the answer is 42. | Hmm, maybe there is an "
        "easier way. | By Vieta's formulas the sum of the roots is \\(-b/a\\). | Suppose that n is even. | This is a "
        "contradiction, so n must be odd. | The remaining $30 are divided among three friends."
    ),
    "fr": (
        "Bon, réfléchissons un peu. | Donc $x = 3$. | Attends, ce n'est pas correct. | On additionne les deux membres "
        "et on obtient $2x + 4 = 10$. | Vérifions encore une fois le résultat. | Cela donne 12 pommes par jour. | On "
        "peut maintenant diviser par 5 : `total // 5`. | Il nous faut d'abord l'aire du triangle. | La réponse est "
        "donc 42. | Hmm, il y a peut-être un moyen plus simple. | D'après les formules de Viète, la somme des racines "
        "vaut \\(-b/a\\). | Supposons que n soit pair. | C'est une contradiction, donc n est impair. | Les 30 $ "
        "restants sont partagés entre trois amis."
    ),
    "es": (
        "Bien, pensemos un poco. | Entonces $x = 3$. | Espera, eso no es correcto. | Sumamos ambos lados y obtenemos "
        "$2x + 4 = 10$. | Comprobemos el resultado una vez más. | Eso da 12 manzanas al día. | Ahora podemos dividir "
        "entre 5: `total // 5`. | Primero necesitamos el área del triángulo. | Por lo tanto, la respuesta es 42. | "
        "Mmm, quizá haya una forma más sencilla. | Por las fórmulas de Vieta, la suma de las raíces es \\(-b/a\\). | "
        "Supongamos que n es par. | Es una contradicción, así que n es impar. | Los 30 $ restantes se reparten entre "
        "tres amigos."
    ),
    "it": (
        "Bene, pensiamoci un attimo. | Quindi $x = 3$. | Aspetta, non è corretto. | Sommiamo i due membri e otteniamo "
        "$2x + 4 = 10$. | Controlliamo ancora una volta il risultato. | Questo dà 12 mele al giorno. | Ora possiamo "
        "dividere per 5: `total // 5`. | Prima ci serve l'area del triangolo. | Dunque la risposta è 42. | Mmm, forse "
        "c'è un modo più semplice. | Per le formule di Viète la somma delle radici è \\(-b/a\\). | Supponiamo che n "
        "sia pari. | È una contraddizione, quindi n è dispari. | I 30 $ rimasti si dividono fra tre amici."
    ),
    "de": (
        "Gut, denken wir kurz nach. | Also $x = 3$. | Moment, das stimmt nicht. | Wir addieren beide Seiten und "
        "erhalten $2x + 4 = 10$. | Prüfen wir das Ergebnis noch einmal. | Das ergibt 12 Äpfel am Tag. | Jetzt können "
        "wir durch 5 teilen: `total // 5`. | Zuerst brauchen wir die Fläche des Dreiecks. | Die Antwort ist somit 42. "
        "| Hm, vielleicht geht es auch einfacher. | Nach dem Satz von Vieta ist die Summe der Nullstellen "
        "\\(-b/a\\). | Angenommen, n ist gerade. | Das ist ein Widerspruch, also ist n ungerade. | Die übrigen 30 $ "
        "werden unter drei Freunden aufgeteilt."
    ),
    "zh": (
        "好的，我们来想一想。 | 所以 $x = 3$。 | 等等，这不对。 | 两边相加，得到 $2x + 4 = 10$。 | 再检查一遍结果。 | "
        "这样每天有12个苹果。 | 现在可以除以5：`total // 5`。 | 首先需要三角形的面积。 | 因此答案是42。 | "
        "嗯，也许有更简单的办法。 | 由韦达定理，两根之和为 \\(-b/a\\)。 | 假设n是偶数。 | 这是矛盾的，所以n是奇数。 | "
        "剩下的30美元由三个朋友平分。"
    ),
    "ru": (
        "Хорошо, давайте подумаем. | Значит, $x = 3$. | Стоп, это неверно. | Складываем обе части и получаем "
        "$2x + 4 = 10$. | Проверим результат ещё раз. | Получается 12 яблок в день. | Теперь можно разделить на 5: "
        "`total // 5`. | Сначала нам нужна площадь треугольника. | Следовательно, ответ 42. | Хм, возможно, есть "
        "способ проще. | По теореме Виета сумма корней равна \\(-b/a\\). | Пусть n чётное. | Это противоречие, значит, "
        "n нечётное. | Оставшиеся 30 $ делят между собой трое друзей."
    ),
}
_TERMS = (
    "“greedy algorithm”",
    "(proof by contradiction)",
    "`for i in range(n): total += i`",
    "“The Lord of the Rings”",
    "(least common multiple, LCM)",
    "https://example.org/how-to-solve-it",
    "New York Times",
    "$$\\text{area of the circle} = \\pi r^2$$",
    "“Harry Potter and the Goblet of Fire”",
    "Microsoft Office",
)
"""English terms that occur in texts of every language."""

Sentence = dict[str, str]
"""A sentence and its translations, by language."""


def mgsm(code: str) -> list[str]:
    """MGSM's questions in one language."""
    path = f"data/mgsm/mgsm_{code}.tsv"
    text = GithubFile(*_MGSM, path, MGSM_DIGESTS[code], shared=f"eval/mgsm_{code}.tsv").text()
    return [line.split("\t")[0] for line in text.splitlines()]


def mmath(code: str) -> list[str]:
    """MMATH's problems in one language."""
    file = GithubFile(*_MMATH, f"mmath/{code}.json", _MMATH_DIGESTS[code], shared=f"eval/mmath_{code}.json")
    return [row["question"] for row in json.loads(file.text())]


def pud(code: str) -> list[str]:
    """The thousand sentences of PUD in one language: news and Wikipedia, in one order."""
    name, commit, digest = _PUD[code]
    file = f"{code}_pud-ud-test.conllu"
    text = GithubFile(f"UniversalDependencies/UD_{name}-PUD", commit, file, digest, shared=f"eval/{file}").text()
    sentences = re.findall(r"^# sent_id = (\S+)\n(?:# .*\n)*?# text = (.*)$", text, re.MULTILINE)
    return [sentence for _, sentence in sorted(sentences)]


def remarks(code: str) -> list[str]:
    """Short sentences as in the thoughts of reasoning models, in one language."""
    return _REMARKS[code].split(" | ")


@dataclass(frozen=True)
class Source:
    """Aligned sentences in several languages, in document order."""

    name: str
    sentences: list[Sentence]
    length: int
    """Sentences or problems of a text."""


@cache
def sources() -> list[Source]:
    """The odd blocks of every source; within a block sentences are consecutive."""
    parts = (
        ("problems", {code: mgsm(code) for code in MGSM_DIGESTS}, 5),
        ("mathematics", {code: mmath(code) for code in _MMATH_DIGESTS}, 6),
        ("news", {code: pud(code) for code in _PUD}, 12),
    )
    return [Source(name, _odd_blocks(_aligned(texts)), length) for name, texts, length in parts]


def _aligned(texts: dict[str, list[str]]) -> list[Sentence]:
    return [dict(zip(texts, row, strict=True)) for row in zip(*texts.values(), strict=True)]


def _odd_blocks(rows: list[Sentence], block: int = 25) -> list[Sentence]:
    return [row for number, row in enumerate(rows) if number // block % 2]


def _remark(choose: random.Random) -> Sentence:
    number = choose.choice(range(1, len(remarks("en")), 2))
    return {code: remarks(code)[number] for code in LANGUAGES}


def passage(source: Source, choose: random.Random, *, thoughts: bool) -> list[Sentence]:
    """A run of sentences of a source, for ``thoughts`` with remarks in between."""
    start = choose.randrange(len(source.sentences) - source.length + 1)
    run = source.sentences[start : start + source.length]
    if not thoughts:
        return run
    return [part for sentence in run for part in (sentence, _remark(choose), _remark(choose))]


def pure(code: str, count: int) -> Iterator[str]:
    """Texts in one language: plain, as thoughts, and with English terms, code, URLs and brands."""
    choose, chosen = random.Random(f"pure {code} 1"), _sources_in(code)
    for number in range(count):
        run = passage(chosen[number % len(chosen)], choose, thoughts=number % 4 >= 2)
        sentences = [sentence[code] for sentence in run]
        if number % 4 in (1, 3):
            for index in sorted(choose.sample(range(len(sentences)), max(1, len(sentences) // 5))):
                sentences[index] = _inserted(sentences[index], choose.choice(_TERMS))
        yield _joined(code, sentences)


def mixed(code: str, other: str, share: float, count: int) -> Iterator[str]:
    """Texts with a share of sentences in another language, consecutive or scattered."""
    choose = random.Random(f"mixed {code} {other} {share} 1")
    chosen = [source for source in _sources_in(code) if other in source.sentences[0]]
    for number in range(count):
        run = passage(chosen[number % len(chosen)], choose, thoughts=number % 4 >= 2)
        parts = list(_in_both(run, code, other))
        foreign = max(1, round(share * len(parts)))
        start = choose.randrange(len(parts) - foreign + 1)
        consecutive = range(start, start + foreign)
        indices = set(consecutive if number % 2 else choose.sample(range(len(parts)), foreign))
        yield _joined(code, [part[other if index in indices else code] for index, part in enumerate(parts)])


def _sources_in(code: str) -> list[Source]:
    return [source for source in sources() if code in source.sentences[0]]


def _in_both(run: list[Sentence], code: str, other: str) -> Iterator[Sentence]:
    """Problems split into sentences where both languages have equally many, else whole."""
    for sentence in run:
        original, foreign = _split(sentence[code]), _split(sentence[other])
        if len(original) == len(foreign):
            yield from ({code: one, other: two} for one, two in zip(original, foreign, strict=True))
        else:
            yield {code: sentence[code], other: sentence[other]}


def _split(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.?!])\s+(?=[A-ZÀ-ÖØ-ÞА-ЯЁ¿¡])|(?<=[。？！])\s*", text) if part]


def _inserted(sentence: str, term: str) -> str:
    """A sentence with a term before its last word or, without spaces, before its last character."""
    head, space, tail = sentence.rpartition(" ")
    return f"{head} {term} {tail}" if space else f"{sentence[:-1]}{term}{sentence[-1]}"


def _joined(code: str, sentences: list[str]) -> str:
    return ("" if code == "zh" else " ").join(sentences)
