"""Words around a number in the seven languages of the recipe: things counted, denials, sentences, dates."""

import pytest

from magcli.verify.math import compare, equal
from magcli.verify.reward import RewardRule, reward

COUNTED = """
7 apples|7 Bücher|7 livres|7 libros|7 libri|7 книг|7本书|7 Äpfel|7 élèves|7 niños|7 стульев|7种不同的方法
7 Stunden|7 heures|7 часов|7小时|7 in total|7 insgesamt|7 en total|7 au total|7 всего|7 km|7 mètres|7 метров
7千米
"""
CHANGED = """
7 Millionen|7 millones|7 milioni|7 millions|7 миллионов|7万|7 Dutzend|7 docenas|7 douzaines|7 dozzine|7 дюжин
7打|7 Tausend|7 mille|7 mila|7 тысяч|7 Viertel|7 quarts|7 tercios|7 quinti|7 четверти|7 Hundertstel
7 oder mehr|7 ou plus|7 o más|7 o più|7 или больше|7以上|7左右|7 falsch|7 faux|7 falso|7 sbagliato|7 неверно
7 nope|7 wrong|7 nicht|7 pas|7 mai|7 не|7 doppelt|7 вдвое|7倍|7 ungefähr|7 environ|7 aproximadamente|7 circa
7 примерно|7 vielleicht|7 peut-être|7 quizás|7 forse|7 von 20|7 sur 20|7 su 20|7 из 20|7 au carré
7 al cuadrado|7 в квадрате|7平方|7 oder 8|7 ou 8|7 или 8|7或8|7 or
"""
STATED = """
\\text{Therefore there are }7|\\text{the number of such pairs is }7|Thus, the answer is 7.|Die Antwort ist 7
Es gibt 7 Wege|La réponse est 7|Il y a 7 boules|La respuesta es 7|Hay 7 formas|La risposta è 7|Ci sono 7 modi
Ответ: 7|Всего 7|答案是7|答案：7|共7个|最大值是7|7 is the answer|\\text{The minimum value is }7|7 ✓|“7”|«7»
`7`|7 ✅|7\\ \\blacksquare
"""
NOT_STATED = """
The answer is not 7|The answer is about 7|It is at least 7|The answer is twice 7|More than 7
If x=1, the answer is 7|The wrong answer is 7|I guess it is 7|The answer is 7 or 8|Die Antwort ist nicht 7
Antwort: etwa 7|La réponse n'est pas 7|La respuesta no es 7|La risposta non è 7|Ответ: не 7|Больше 7|答案不是7
大约7|至少7|答案是7或8|The answer is minus 7
"""


def listed(table: str) -> list[str]:
    return table.strip().replace("\n", "|").split("|")


@pytest.mark.parametrize("answer", [*listed(COUNTED), *listed(STATED)])
def test_things_counted_and_sentences_leave_the_value(answer: str) -> None:
    assert equal(answer, "7")


@pytest.mark.parametrize("answer", [*listed(CHANGED), *listed(NOT_STATED)])
def test_words_that_change_or_deny_a_value_make_another_answer(answer: str) -> None:
    assert not equal(answer, "7")


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("7 Millionen", "7000000"), ("2 docenas", "24"), ("5 тысяч", "5000"), ("3万", "30000"), ("2万元", "20000"),
        ("4 milliards", "4000000000"), ("12 Prozent", "12\\%"), ("12 por ciento", "12\\%"), ("12 pour cent", "12\\%"),
    ],
)  # fmt: skip
def test_multipliers_multiply(answer: str, value: str) -> None:
    assert equal(answer, value)


@pytest.mark.parametrize("words", ["keine Lösung", "aucune solution", "ninguna solución", "нет решений", "无解"])
def test_no_solution_is_the_empty_set(words: str) -> None:
    assert equal(words, "\\emptyset")
    assert not equal(words, "0")


@pytest.mark.parametrize("words", ["veces más grande", "fois la somme", "volte tanto", "раз больше"])
def test_times_before_another_word_multiply(words: str) -> None:
    assert not equal(f"7 {words}", "7")
    assert equal(f"7 {words.split()[0]}", "7")


def test_units_of_all_languages_are_units() -> None:
    assert equal("5 метров", "5\\text{ m}")
    assert equal("5厘米", "5\\text{ cm}")
    assert not equal("5 метров", "5\\text{ cm}")
    assert not equal("5 mW", "5 MW")
    assert equal("5 kW", "5\\text{ kilowatts}")
    assert equal("2,5 km", "2.5\\text{ km}")


@pytest.mark.parametrize(
    "date",
    [
        "4 July 2023",
        "July 4th, 2023",
        "2023-07-04",
        "4. Juli 2023",
        "4 juillet 2023",
        "4 de julio de 2023",
        "4 luglio 2023",
        "4 июля 2023 года",
        "2023年7月4日",
    ],
)
def test_dates(date: str) -> None:
    assert equal(date, "July 4, 2023")
    assert not equal(date, "July 5, 2023")
    assert not equal(date, "July 4")


QUESTION = "How many marbles does Ann have if she buys 3 bags with 4 marbles each?"


@pytest.mark.parametrize(("answer", "same"), [
    ("12 marbles", True), ("12 marble", True), ("12", True), ("12 cm", True), ("12 ways", True), ("12 nonsense", False),
    ("12 oranges", False), ("x=12 marbles", True),
])  # fmt: skip
def test_a_thing_counted_stands_in_the_question(answer: str, same: bool) -> None:
    assert compare(answer, "12", QUESTION)[0] is same
    assert compare(answer, "12")[0]


def test_the_reward_looks_at_the_question() -> None:
    row = {"prompt": QUESTION, "answer": "12"}
    assert reward(r"<think>x</think>\boxed{12 marbles}", 1, row, RewardRule()).correct
    assert not reward(r"<think>x</think>\boxed{12 oranges}", 1, row, RewardRule()).correct
