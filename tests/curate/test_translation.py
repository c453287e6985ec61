"""Which rows are translated, and what makes a translation good."""

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from magcli.curate.instruction import instruction
from magcli.curate.translation import (
    EXISTING,
    LanguageChoice,
    defect,
    messages,
    number_words,
    preserves_numbers,
    read_translations,
    translated,
    untranslatable,
    with_translations,
)
from magcli.errors import DataError, EnvironmentFault, UsageError
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
def test_english_words_are_a_defect(original: str, half: str) -> None:
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
    ("original", "text", "expected"),
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
def test_formulas_are_preserved_except_for_their_delimiters(original: str, text: str, expected: str | None) -> None:
    assert defect(original, text, "fr") == expected


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


# ---- prompts and replies ----


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


SEPARATORS = {"fr": "\u202f,", "es": " ,", "it": ".,", "de": ".,", "zh": ",.", "ru": "\u00a0,"}
whole = st.integers(0, 10**7)
cents = st.integers(0, 99)


def written(number: int, hundredths: int, separators: str) -> str:
    """A number with its thousands apart and, unless they are none, two decimals."""
    text = f"{number:,}" + (f".{hundredths:02}" if hundredths else "")
    return text.translate(str.maketrans(",.", separators))


@given(st.lists(st.tuples(whole, cents), min_size=1, max_size=6), st.sampled_from(LANGUAGES), st.randoms())
def test_numbers_survive_the_separators_of_every_language_in_any_order(numbers, language, random) -> None:
    original = " and ".join(written(*number, ",.") for number in numbers)
    random.shuffle(numbers)
    translated = " / ".join(written(*number, SEPARATORS[language]) for number in numbers)
    assert preserves_numbers(original, translated, language)


@given(st.lists(st.tuples(whole, cents), min_size=1, max_size=6), st.integers(13, 10**6), st.sampled_from(LANGUAGES))
def test_a_lost_added_or_changed_number_is_detected(numbers, other, language) -> None:
    original = " , ".join(written(*number, ",.") for number in numbers)
    translated = [written(*number, SEPARATORS[language]) for number in numbers]
    assert not preserves_numbers(original, " / ".join([*translated, str(other)]), language)
    assert not preserves_numbers(f"{original} , {other}", " / ".join(translated), language)
    assume((other, 0) not in numbers)
    spoiled = " / ".join([str(other), *translated[1:]])
    first, hundredths = numbers[0]
    ambiguous = hundredths == 0 and first in (other * 1000, other)
    assert ambiguous or not preserves_numbers(original, spoiled, language)


@pytest.mark.parametrize(
    ("original", "translated", "language"),
    [
        ("He eats three eggs and 4 more.", "Er isst 3 Eier und noch vier.", "de"),
        ("It opens from 9:00 AM to 5:30 pm.", "Ouvert de 9 h à 17 h 30.".replace(" h 30", ":30"), "fr"),
        ("He sails from 1 to 4 PM.", "Он плывет с 13:00 до 16:00.", "ru"),
        ("A third of the thirty-five pages", "1/3 der 35 Seiten", "de"),
        ("In May he spent $500, in June $60 less.", "5 月份支出 500 美元，6 月份少了 60 美元。", "zh"),
        ("two hundred people", "200 persone", "it"),
        ("It pays .5 dollars.", "Paga 0,5 dólares.", "es"),
        ("version 1.250", "Version 1,250", "de"),
    ],
)
def test_good_translations_pass(original: str, translated: str, language: str) -> None:
    assert preserves_numbers(original, translated, language)


@pytest.mark.parametrize(
    ("original", "translated", "language"),
    [
        ("She has 25 coins and 25 stamps.", "Elle a 25 pièces et des timbres.", "fr"),
        ("She has 25 coins.", "Sie hat 52 Münzen.", "de"),
        ("She has 3 coins.", "Sie hat Münzen.", "de"),
        ("She has 1.5 litres.", "Ella tiene 15 litros.", "es"),
        ("It costs $1,500.", "Costa 1,5 dollari.", "it"),
        ("He has coins.", "У него 7 монет.", "ru"),
        ("The train leaves at 5 PM.", "Der Zug fährt um 16 Uhr.", "de"),
        ("Two cats eat 2 fish.", "Zwei Katzen fressen Fisch.", "de"),
        ("It weighs 13 kg.", "它重三公斤。", "zh"),
    ],
)
def test_bad_translations_fail(original: str, translated: str, language: str) -> None:
    assert not preserves_numbers(original, translated, language)


def test_numbers_written_as_words() -> None:
    assert number_words("Twice a dozen") == {2: 1, 12: 1}
    assert {35.0, 300.0} <= set(number_words("thirty-five or three hundred"))
    assert not number_words("Nothing of the kind")


TWO_LANGUAGES = ("fr", "de")


def write_table(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def batches(*sizes: int):
    first = 0
    for size in sizes:
        numbers = range(first, first + size)
        yield pa.RecordBatch.from_pylist([{"id": f"p{n}", "prompt": f"How many are {n}?"} for n in numbers])
        first += size


def found(path: Path, by, choice: LanguageChoice) -> list[str | None]:
    texts = read_translations(path, by, choice.languages, pytest.fail)
    rows = with_translations(batches(2, 3), texts, by, choice, str(path))
    return [text for batch in rows for text in batch.column(EXISTING).to_pylist()]


def test_rows_are_joined_by_id_and_target_language(tmp_path: Path) -> None:
    rows = [{"id": f"p{n}", "language": name, "prompt": f"{name}{n}"} for n in (4, 3, 1, 0) for name in TWO_LANGUAGES]
    path, choice = write_table(tmp_path / "t.jsonl", rows), LanguageChoice(1.0, TWO_LANGUAGES)
    texts = found(path, "id", choice)
    assert texts == [f"{choice.of(f'p{n}')}{n}" if n != 2 else None for n in range(5)]
    assert {text[:2] for text in texts if text} == set(TWO_LANGUAGES)
    assert found(path, "id", LanguageChoice(0.0, TWO_LANGUAGES)) == [None] * 5


def test_rows_are_joined_by_row_number_or_a_column_of_row_numbers(tmp_path: Path) -> None:
    choice = LanguageChoice(1.0, ("de",))
    in_order = write_table(tmp_path / "a.jsonl", [{"prompt": f"de{n}"} for n in range(4)])
    assert found(in_order, "position", choice) == ["de0", "de1", "de2", "de3", None]
    numbered = write_table(tmp_path / "b.jsonl", [{"prompt": f"de{n}", "position": n} for n in (4, 1)])
    assert found(numbered, "position", choice) == [None, "de1", None, None, "de4"]


def test_a_table_that_cannot_be_joined_is_refused_by_name(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.jsonl", [{"prompt": "de0"}])
    with pytest.raises(DataError, match=r"t\.jsonl lacks column id"):
        read_translations(path, "id", ("de",), pytest.fail)
    with pytest.raises(DataError, match="no column language, so give a single language in --languages, not fr,de"):
        read_translations(path, "position", TWO_LANGUAGES, pytest.fail)


@pytest.mark.parametrize("by", ["id", "position"])
def test_two_texts_for_one_row_are_refused(tmp_path: Path, by) -> None:
    """The first one might be of another problem."""
    rows = [{by: 1, "prompt": text} for text in (None, "de0", "de0", "de1")]
    one = write_table(tmp_path / "one.jsonl", rows[:3])
    assert read_translations(one, by, ("de",), pytest.fail) == {("1", "de"): "de0"}
    two = write_table(tmp_path / "two.jsonl", rows)
    with pytest.raises(DataError, match=f"two.jsonl has two different translations into de for {by} 1"):
        read_translations(two, by, ("de",), pytest.fail)


def test_broken_lines_are_reported_and_refused_where_row_numbers_matter(tmp_path: Path) -> None:
    path, heard = tmp_path / "t.jsonl", list[str]()
    path.write_text('{"id": "a", "prompt": "de0"}\n{"id"\n{"id": "b", "prompt": "de2"}\n')
    assert len(read_translations(path, "id", ("de",), heard.append)) == 2
    assert heard == [f"{path}: skipped unreadable lines (broken-json 1)"]
    with pytest.raises(DataError, match=r"line 2 \(broken-json\); fix or remove"):
        read_translations(path, "position", ("de",), pytest.fail)
