"""Numbers of a text and of its translation: what may change, and that nothing else may."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from magcli.curate.numerals import number_words, preserved

LANGUAGES = ("fr", "es", "it", "de", "zh", "ru")
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
    assert preserved(original, translated, language)


@given(st.lists(st.tuples(whole, cents), min_size=1, max_size=6), st.integers(13, 10**6), st.sampled_from(LANGUAGES))
def test_a_lost_added_or_changed_number_is_detected(numbers, other, language) -> None:
    original = " , ".join(written(*number, ",.") for number in numbers)
    translated = [written(*number, SEPARATORS[language]) for number in numbers]
    assert not preserved(original, " / ".join([*translated, str(other)]), language)
    assert not preserved(f"{original} , {other}", " / ".join(translated), language)
    assume((other, 0) not in numbers)
    spoiled = " / ".join([str(other), *translated[1:]])
    first, hundredths = numbers[0]
    ambiguous = hundredths == 0 and first in (other * 1000, other)
    assert ambiguous or not preserved(original, spoiled, language)


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
    assert preserved(original, translated, language)


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
    assert not preserved(original, translated, language)


def test_numbers_written_as_words() -> None:
    assert number_words("Twice a dozen") == {2: 1, 12: 1}
    assert {35.0, 300.0} <= set(number_words("thirty-five or three hundred"))
    assert not number_words("Nothing of the kind")
