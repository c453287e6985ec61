import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.verify.language import MIXED, UNDECIDED, consistent, identify, tell

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
def test_a_change_of_language_inside_a_text_is_noticed(one: str, other: str) -> None:
    assert identify(LONGER[one] + LONGER[other]) == MIXED
    assert identify(3 * LONGER[one] + LONGER[other] + LONGER[one]) == MIXED


def test_single_words_of_another_script_are_noticed() -> None:
    assert identify("We add 然后 the two 数字 and get 所以 the result 因此 which is right.") == MIXED
    assert identify("We add the two numbers и получаем the result, потому что it is right.") == MIXED


def test_names_and_brands_are_at_home_everywhere() -> None:
    assert identify("珍妮特在 Facebook 上有十二个朋友，她的姐姐在 Facebook 上的朋友是她的三倍。") == "zh"
    assert identify("У Анны на Facebook двенадцать друзей, а у её сестры на Facebook втрое больше.") == "ru"


def test_consistent() -> None:
    assert consistent(TEXTS["en"], LONGER["en"], "The answer is \\boxed{18}.") is True
    assert consistent(TEXTS["en"], TEXTS["fr"], TEXTS["en"]) is False
    assert consistent(TEXTS["fr"], TEXTS["fr"], TEXTS["en"]) is False
    assert consistent(TEXTS["en"], LONGER["en"] + LONGER["zh"], TEXTS["en"]) is False
    assert consistent(TEXTS["en"], TEXTS["en"], "\\boxed{18}") is None


def test_a_close_language_is_no_other_one_where_the_classifier_is_not_sure() -> None:
    unsure = tell("Sejam números reais tais que Encontre valor máximo de")
    assert "pt" in unsure.meant()
    assert consistent(TEXTS["pt"], TEXTS["pt"], "Encontre o máximo divisor comum de ambos") is True
    assert consistent(TEXTS["es"], TEXTS["es"], TEXTS["pt"]) is False


def test_formulas_do_not_change_the_language() -> None:
    assert identify(TEXTS["de"] + " $" + "a + b = c, " * 30 + "$ \\begin{align} x &= y \\end{align}") == "de"


@given(st.text(max_size=200))
def test_any_text_is_told_or_undecided(text: str) -> None:
    assert identify(text)


PIECES = ["a ", "$", "\\[", "\\(", "`", "```", "<", "\\begin{align}", "数", "https://", "\\boxed{", "é", "  "]


@pytest.mark.parametrize("piece", PIECES)
def test_a_megabyte_takes_linear_time(piece: str) -> None:
    begun = time.perf_counter()
    identify(piece * (1_000_000 // len(piece)))
    assert time.perf_counter() - begun < 3
