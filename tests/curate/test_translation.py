"""Which rows are translated, and what makes a translation good."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.curate.translation import LanguageChoice, defect, instruction, messages, translated, untranslatable
from magcli.errors import EnvironmentFault, UsageError
from magcli.generate.types import Completion

EXAMPLES = Path(__file__).parents[2] / "examples"
LANGUAGES = ("fr", "es", "it", "de", "zh", "ru")
ENGLISH = (
    "A farmer sells $n$ boxes with 12 eggs each for \\$4 a box. Let \\[f(n) = 4n^2 + \\frac{1}{2}\\] be his profit, as "
    "`profit(n)` computes it. How many boxes did he sell, if the profit is 1,600.5 dollars?"
)
GOOD = {
    "fr": "Un fermier vend $n$ boîtes de 12 œufs chacune au prix de \\$4 la boîte. Soit "
    "\\[f(n) = 4n^2 + \\frac{1}{2}\\] son bénéfice, tel que "
    "`profit(n)` le calcule. Combien de boîtes a-t-il vendues, si le bénéfice est de "
    "1 600,5 dollars ?",
    "es": "Un granjero vende $n$ cajas con 12 huevos cada una a \\$4 la caja. Sea \\[f(n) = 4n^2 + \\frac{1}{2}\\] su "
    "ganancia, tal como la calcula `profit(n)`. ¿Cuántas cajas vendió, si la ganancia es de 1.600,5 dólares?",
    "it": "Un contadino vende $n$ scatole con 12 uova ciascuna a \\$4 la scatola. Sia \\[f(n) = 4n^2 + \\frac{1}{2}\\] "
    "il suo guadagno, come lo calcola `profit(n)`. Quante scatole ha venduto, se il guadagno è di 1.600,5 dollari?",
    "de": "Ein Bauer verkauft $n$ Schachteln mit je 12 Eiern für \\$4 pro Schachtel. Sein Gewinn sei "
    "\\[f(n) = 4n^2 + \\frac{1}{2}\\], wie `profit(n)` ihn berechnet. Wie viele Schachteln hat er verkauft, wenn der "
    "Gewinn 1.600,5 Dollar beträgt?",
    "zh": "一位农民以每盒 \\$4 的价格出售 $n$ 盒鸡蛋，每盒有 12 个鸡蛋。设他的利润为 \\[f(n) = 4n^2 + \\frac{1}{2}\\]，"
    "由 `profit(n)` 计算。如果利润是 1,600.5 美元，他卖出了多少盒？",
    "ru": "Фермер продаёт $n$ коробок по 12 яиц в каждой за \\$4 за коробку. Пусть \\[f(n) = 4n^2 + \\frac{1}{2}\\] — "
    "его прибыль, как её вычисляет `profit(n)`. Сколько коробок он продал, если прибыль составляет 1 600,5 доллара?",
}
DAMAGES = {
    "empty": lambda text: "",
    "code": lambda text: text.replace("`profit(n)`", "`gain(n)`"),
    "latex": lambda text: text.replace("4n^2", "4n^3"),
    "numbers": lambda text: text.replace("12", "21"),
    "question": lambda text: text.replace("?", ".").replace("？", "。"),
    "length": lambda text: text + " " + "".join(filter(lambda sign: sign.isalpha() or sign == " ", text)) * 3,
}


def example(name: str) -> list[dict]:
    return [json.loads(line) for line in (EXAMPLES / name).read_text(encoding="utf-8").splitlines()]


# ---- the choice ----

ids = st.lists(st.text(), unique=True, min_size=1, max_size=50)


def test_the_fraction_is_met_and_languages_have_equal_shares() -> None:
    choice = LanguageChoice(0.1, LANGUAGES)
    chosen = [language for number in range(60_000) if (language := choice.of(f"row {number}"))]
    assert len(chosen) == pytest.approx(6_000, rel=0.05)
    assert set(chosen) == set(LANGUAGES)
    assert all(count == pytest.approx(1_000, rel=0.12) for count in Counter(chosen).values())


@given(ids, st.floats(0, 1), st.floats(0, 1))
def test_a_larger_fraction_contains_the_smaller_one(ids: list[str], one: float, other: float) -> None:
    small, large = LanguageChoice(min(one, other), LANGUAGES), LanguageChoice(max(one, other), LANGUAGES)
    assert all(large.of(id) == small.of(id) for id in ids if small.of(id))


@given(ids, st.permutations(LANGUAGES))
def test_adding_a_language_only_takes_rows_from_the_others(ids: list[str], languages) -> None:
    with_all = LanguageChoice(1.0, languages)
    without = LanguageChoice(1.0, [name for name in LANGUAGES if name != "ru"])
    assert all(with_all.of(id) in (without.of(id), "ru") for id in ids)
    assert [with_all.of(id) for id in ids] == [LanguageChoice(1.0, LANGUAGES).of(id) for id in ids]


# ---- the checks ----


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_good_translation_has_no_fault_and_each_defect_is_named(language: str) -> None:
    assert defect(ENGLISH, GOOD[language], language) is None
    for name, damage in DAMAGES.items():
        assert defect(ENGLISH, damage(GOOD[language]), language) == name


@pytest.mark.parametrize("language", LANGUAGES)
def test_wrong_language_and_truncation_are_faults(language: str) -> None:
    for other in (name for name in LANGUAGES if name != language):
        assert defect(ENGLISH, GOOD[other], language) in ("language", "length")
    assert defect(ENGLISH, ENGLISH, language) in ("language", "length")
    for part in (0.2, 0.4, 0.6, 0.8):
        assert defect(ENGLISH, GOOD[language][: int(part * len(GOOD[language]))], language) is not None


@pytest.mark.parametrize(
    ("original", "half"),
    [
        (
            "Sam has 60 fish. One third of them are blue, and half of these have spots. How many are there?",
            "Sam hat 60 Fische. One-third von ihnen sind blau, und die Hälfte davon hat Punkte. Wie viele sind there?",
        ),
        (
            "The 2 dogs and 3 cats of our neighbours eat 4 cans each on every day. How many cans is that a day?",
            "Die 2 Hunde und 3 Katzen der Nachbarn fressen jeden Tag 4 Dosen each. Wie viele sind das am Tag?",
        ),
    ],
)
def test_words_left_in_english_are_a_fault(original: str, half: str) -> None:
    assert defect(original, half, "de") == "language"


@given(st.sampled_from(LANGUAGES), st.integers(0, 9), st.integers(0, 9), st.data())
def test_no_digit_can_change(language: str, old: int, new: int, data) -> None:
    text = GOOD[language]
    places = [place for place, sign in enumerate(text) if sign == str(old)]
    if places and old != new:
        place = data.draw(st.sampled_from(places))
        assert defect(ENGLISH, text[:place] + str(new) + text[place + 1 :], language) in ("numbers", "latex")


def test_the_shipped_examples_are_valid() -> None:
    problems = {row["id"]: row for row in example("word_problems.jsonl")}
    for row in example("translations.jsonl"):
        assert untranslatable(problems[row["id"]]["prompt"], problems[row["id"]]["answer"]) is None
        assert defect(problems[row["id"]]["prompt"], row["prompt"], row["language"]) is None


@pytest.mark.parametrize(
    ("original", "text", "told"),
    [
        ("Let $x$ be so. Find the value of $x^2.$", "Soit $x$ ainsi. Trouvez la valeur de $x^2$.", None),
        ("Let \\(x\\) be so. Find the value of \\[x^2\\]", "Soit $x$ ainsi. Trouvez la valeur de $$x^2$$", None),
        (
            "Let $f(x) = 1 \\text{ if } x > 0$ be the function.",
            "Soit $f(x) = 1 \\text{ si } x > 0$ la fonction.",
            None,
        ),
        ("It costs $0.10 for each of the ten cookies.", "Chacun des dix biscuits coûte 0,10 $. Il coûte cela.", None),
        ("Find the value of $x^2$ at once.", "Trouvez tout de suite la valeur de x^2.", "latex"),
        ("Find the value of $x^2$ at once.", "Trouvez la valeur de $x^2$ tout de suite : $x = 3$.", "latex"),
        ("Write \\boxed{x} at the end of the text.", "Écrivez cela à la fin du texte.", "latex"),
    ],
)
def test_formulas_survive_but_for_their_bounds(original: str, text: str, told: str | None) -> None:
    assert defect(original, text, "fr") == told


@pytest.mark.parametrize(
    ("prompt", "answer", "reason"),
    [
        (ENGLISH, "20", None),
        (ENGLISH, "2\\sqrt{3} + \\pi", None),
        (ENGLISH, "sqrt(3)*sin(2)", None),
        (ENGLISH, "\\text{east}", "worded-answer"),
        (ENGLISH, "5 apples", "worded-answer"),
        (GOOD["de"], "20", "not-english"),
        ("Compute $3 + 4$.", "7", "too-few-words"),
        ('def add(a, b):\n    """Add the two numbers and give the result back."""', "", "bare-code"),
    ],
)
def test_problems_that_cannot_be_translated(prompt: str, answer: str, reason: str | None) -> None:
    assert untranslatable(prompt, answer) == reason


# ---- what a model is told and says ----


def test_the_instruction_names_the_language(tmp_path: Path) -> None:
    system, user = messages("the problem", "ru", instruction(None))
    assert ("Russian" in system["content"], "{" in system["content"]) == (True, False)
    assert (system["role"], user) == ("system", {"role": "user", "content": "the problem"})
    (tmp_path / "own.txt").write_text("Say it in French.")
    with pytest.raises(UsageError, match=r"lacks the placeholder \{language\}"):
        instruction(tmp_path / "own.txt")
    with pytest.raises(EnvironmentFault, match="cannot read the instruction"):
        instruction(tmp_path / "none.txt")


def test_thoughts_are_not_part_of_a_translation() -> None:
    assert translated(Completion("<think>Hm.\n</think>\n\nBonjour. \n", 9, "stop")) == "Bonjour."
