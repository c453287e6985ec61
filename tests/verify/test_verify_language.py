import itertools
import random
import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.verify.language import LOG_SWITCH, MIXED, UNDECIDED, _viterbi, consistent, detect, identify

TEXTS = {
    "en": "Janet sells the remaining eggs at the market, so she earns $18 every day.",
    "fr": "La somme des deux nombres est égale à dix, donc la réponse est \\boxed{10}.",
    "de": "Die Summe der beiden Zahlen ist zehn, also lautet die Antwort \\boxed{10}.",
    "es": "La suma de los dos números es diez, por lo tanto la respuesta es \\boxed{10}.",
    "it": "La somma dei due numeri è dieci, quindi la risposta è \\boxed{10}.",
    "zh": "两个数的和是十，所以答案是 \\boxed{10}。",
    "ru": "Сумма двух чисел равна десяти, поэтому ответ равен \\boxed{10}.",
    "ja": "二つの数の和は十ですから、答えは \\boxed{10} です。",
    "ko": "두 수의 합은 열이므로 답은 \\boxed{10} 입니다.",
    "pt": "A soma dos dois números é dez, portanto a resposta é \\boxed{10}.",
}
LONGER = {
    "en": "First we look at what is given. The farmer has forty apples and gives a quarter of them to his neighbour. "
    "Then he sells half of what is left, and in the evening his children eat three more of them. ",
    "de": "Zuerst schauen wir an, was gegeben ist. Der Bauer hat vierzig Äpfel und schenkt ein Viertel davon seinem "
    "Nachbarn. Danach verkauft er die Hälfte vom Rest, und am Abend essen die Kinder noch drei davon. ",
    "fr": "Regardons d'abord ce qui est donné. Le fermier a quarante pommes et en donne un quart à son voisin. Ensuite "
    "il vend la moitié de ce qui reste, et le soir ses enfants en mangent encore trois. ",
    "zh": "我们先看已知条件。农夫有四十个苹果，他把其中的四分之一送给邻居。然后他卖掉剩下的一半，晚上孩子们又吃了三个。"
    "最后我们把剩下的苹果加起来，就得到所求的结果。",
    "ru": "Сначала посмотрим, что дано. У фермера сорок яблок, и четверть из них он отдаёт соседу. Затем он продаёт "
    "половину остатка, а вечером дети съедают ещё три яблока. ",
}


@pytest.mark.parametrize(("language", "text"), TEXTS.items())
def test_short_texts(language: str, text: str) -> None:
    assert identify(text) == language


@pytest.mark.parametrize(("language", "text"), LONGER.items())
def test_longer_texts_with_formulas_between(language: str, text: str) -> None:
    formulas = "$$x^2 + y^2 = z^2$$ \\begin{align} a &= b \\end{align} `print(x)` "
    assert identify(text) == identify(3 * text) == identify(3 * (text + formulas)) == language


CODE = "```python\nprint('hello world')\n```"


@pytest.mark.parametrize(
    "text", ["", "3+4=7", r"$x^2 + y^2 = z^2$", r"\boxed{5}", "x = y", "\ud800", CODE, "Thus $x$", "所以", "ok " * 2]
)
def test_too_little_text_is_undecided(text: str) -> None:
    assert identify(text) == UNDECIDED


PAIRS = [(one, other) for one in LONGER for other in LONGER if one != other]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_a_change_of_language_inside_a_text_is_detected(one: str, other: str) -> None:
    assert identify(LONGER[one] + LONGER[other]) == MIXED
    assert identify(3 * LONGER[one] + LONGER[other] + LONGER[one]) == MIXED


def test_single_words_of_another_script_are_detected() -> None:
    assert identify("We add 然后 the two 数字 and get 所以 the result 因此 which is right.") == MIXED
    assert identify("We add the two numbers и получаем the result, потому что it is right.") == MIXED


def test_names_and_brands_do_not_change_the_language() -> None:
    assert identify("珍妮特在 Facebook 上有十二个朋友，她的姐姐在 Facebook 上的朋友是她的三倍。") == "zh"
    assert identify("У Анны на Facebook двенадцать друзей, а у её сестры на Facebook втрое больше.") == "ru"


def test_consistent() -> None:
    assert consistent(TEXTS["en"], LONGER["en"], "The answer is \\boxed{18}.") is True
    assert consistent(TEXTS["en"], TEXTS["fr"], TEXTS["en"]) is False
    assert consistent(TEXTS["fr"], TEXTS["fr"], TEXTS["en"]) is False
    assert consistent(TEXTS["en"], LONGER["en"] + LONGER["zh"], TEXTS["en"]) is False
    assert consistent(TEXTS["en"], TEXTS["en"], "\\boxed{18}") is None


def test_a_related_language_does_not_count_if_the_classifier_is_unsure() -> None:
    unsure = detect("Sejam números reais tais que Encontre valor máximo de")
    assert "pt" in unsure.candidates()
    assert consistent(TEXTS["pt"], TEXTS["pt"], "Encontre o máximo divisor comum de ambos") is True
    assert consistent(TEXTS["es"], TEXTS["es"], TEXTS["pt"]) is False


def test_formulas_do_not_change_the_language() -> None:
    assert identify(TEXTS["de"] + " $" + "a + b = c, " * 30 + "$ \\begin{align} x &= y \\end{align}") == "de"


SENTENCES = {
    "en": (
        "First we write down what is known about the two trains.",
        "The slower one needs three hours for the whole way.",
        "So we multiply the speed by the time and get 240.",
        "That is more than the other train covers.",
        "Now the difference must be divided by two.",
    ),
    "fr": (
        "Écrivons d'abord les données connues sur les deux trains.",
        "Le plus lent met trois heures pour tout le trajet.",
        "Nous multiplions donc la vitesse par la durée, ce qui donne 240.",
        "Cela fait davantage de chemin que pour l'autre train.",
        "Il faut maintenant diviser la différence par deux.",
    ),
    "es": (
        "Primero anotamos lo que se sabe de los dos trenes.",
        "El más lento necesita tres horas para todo el camino.",
        "Entonces multiplicamos la velocidad por el tiempo y obtenemos 240.",
        "Es más de lo que recorre el otro tren.",
        "Ahora hay que dividir la diferencia entre dos.",
    ),
    "it": (
        "Scriviamo prima che cosa si sa dei due treni.",
        "Il più lento impiega tre ore per tutto il percorso.",
        "Quindi moltiplichiamo la velocità per il tempo e otteniamo 240.",
        "È più di quanto percorre l'altro treno.",
        "Ora bisogna dividere la differenza per due.",
    ),
    "de": (
        "Zuerst schreiben wir auf, was über die beiden Züge bekannt ist.",
        "Der langsamere braucht drei Stunden für den ganzen Weg.",
        "Also nehmen wir die Geschwindigkeit mal die Zeit und erhalten 240.",
        "Das ist mehr, als der andere Zug zurücklegt.",
        "Nun muss der Unterschied durch zwei geteilt werden.",
    ),
    "zh": (
        "首先写下关于这两列火车的已知条件。",
        "较慢的那列走完全程需要三个小时。",
        "所以用速度乘以时间，得到240。",
        "这比另一列火车走的路程要多。",
        "现在要把差除以二。",
    ),
    "ru": (
        "Сначала запишем, что известно о двух поездах.",
        "Более медленному нужно три часа на весь путь.",
        "Значит, умножаем скорость на время и получаем 240.",
        "Это больше, чем проезжает другой поезд.",
        "Теперь разность надо разделить на два.",
    ),
}
BOTH = [(one, other) for one in SENTENCES for other in SENTENCES if one != other]


@pytest.mark.parametrize(("own", "foreign"), BOTH)
@pytest.mark.parametrize("place", range(5))
def test_one_sentence_of_five_in_another_language_is_detected(own: str, foreign: str, place: int) -> None:
    sentences = list(SENTENCES[own])
    assert identify(" ".join(sentences)) == own
    sentences[place] = SENTENCES[foreign][place]
    assert identify(" ".join(sentences)) == MIXED
    assert identify("\n".join(sentences)) == MIXED


@pytest.mark.parametrize("language", SENTENCES)
@pytest.mark.parametrize("term", ["“greedy algorithm”", "Manchester United", "(least common multiple)", "`for i in n`"])
def test_terms_and_names_do_not_change_the_language_of_a_sentence(language: str, term: str) -> None:
    sentences = SENTENCES[language] * 2
    for place, sentence in enumerate(sentences):
        changed = [*sentences[:place], f"{sentence[:-1]} {term}{sentence[-1]}", *sentences[place + 1 :]]
        assert identify(" ".join(changed)) == language


def test_a_change_of_language_late_in_long_thoughts_is_detected() -> None:
    german, english = " ".join(SENTENCES["de"]), " ".join(SENTENCES["en"])
    assert identify(german * 280) == "de"
    assert identify(german * 220 + english * 60) == MIXED


ROWS = st.lists(st.lists(st.integers(-40, 0).map(float), min_size=3, max_size=3), min_size=1, max_size=5)


@given(ROWS)
def test_the_chain_is_the_likeliest_of_all(rows: list[list[float]]) -> None:
    def likelihood(chain: tuple[int, ...]) -> float:
        changes = sum(one != two for one, two in itertools.pairwise(chain))
        return LOG_SWITCH * changes + sum(row[state] for row, state in zip(rows, chain, strict=True))

    best = max(map(likelihood, itertools.product(range(3), repeat=len(rows))))
    assert likelihood(tuple(_viterbi(rows))) == best


@given(st.text(max_size=200))
def test_any_text_has_a_language_or_is_undecided(text: str) -> None:
    assert identify(text)


PIECES = ["a ", "$", "\\[", "\\(", "`", "```", "<", "\\begin{align}", "数", "https://", "\\boxed{", "é", "  "]


@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize("piece", PIECES)
def test_a_megabyte_takes_linear_time(piece: str) -> None:
    begun = time.thread_time()
    identify(piece * (1_000_000 // len(piece)))
    assert time.thread_time() - begun < 3


@pytest.mark.flaky(reruns=2)
def test_unique_words_take_linear_time() -> None:
    choose = random.Random(1)
    text = " ".join("".join(choose.choices(string.ascii_lowercase, k=8)) for _ in range(120_000))
    begun = time.thread_time()
    identify(text)
    assert time.thread_time() - begun < 3
