"""Check that a translation preserves the numbers of a text.

Each number in digits must reappear equally often, and no other may appear, except for what good translators do:

- Separators change: 1,000.5 becomes 1.000,5 or 1 000,5. ``1.000`` in a translation is ambiguous, in the original not.
- A number from one to twelve may become a word, and a number word (*twice*, *a third*, *May*) digits.
- Times may use 24 hours: *5:00 PM* becomes *17 Uhr*.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator

_SPACES = "\u00a0\u202f\u2009"
_NUMBER = re.compile(rf"\d+(?:[.,'’ {_SPACES}]\d{{3}}(?!\d))*(?:[.,]\d+)?|(?<![\w.])\.\d+")
_CLOCK = re.compile(
    r"\b(\d{1,2})(?:[:.](\d\d))?(?=(?:\s*(?:to|and|until|-|–)\s*\d{1,2}(?:[:.]\d\d)?)?\s*([ap])\.?\s?m\b)",
    re.IGNORECASE,
)
_FULL_HOUR = re.compile(r"(?<=\d)[:.]00\b(?!\s*%)")


def _split(words: str) -> list[str]:
    return words.split()


_UNITS = _split(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = _split("twenty thirty forty fifty sixty seventy eighty ninety")
_MONTHS = _split("january february march april may june july august september october november december")
_ORDINALS = _split("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth")
_ENGLISH: dict[str, tuple[float, ...]] = {
    **{word: (value,) for value, word in enumerate(_UNITS)},
    **{word: (value,) for value, word in enumerate(_ORDINALS, 1)},
    **{word + "s": (value,) for value, word in enumerate(_ORDINALS, 1)},
    **{word: (value,) for value, word in enumerate(_MONTHS, 1)},
    **{word: (10 * value,) for value, word in enumerate(_TENS, 2)},
    **dict.fromkeys(("half", "halves"), (0.5, 1, 2, 50)),
    **dict.fromkeys(("quarter", "quarters"), (0.25, 4, 25)),
    **dict.fromkeys(("twice", "double", "doubled", "doubles", "both", "pair", "couple"), (2,)),
    **dict.fromkeys(("thrice", "triple", "tripled", "triples"), (3,)),
    **dict.fromkeys(("dozen", "dozens"), (12,)),
    **dict.fromkeys(("hundred", "hundreds"), (100,)),
    **dict.fromkeys(("thousand", "thousands"), (1000,)),
    "million": (1e6,),
}
_WORDS = {
    "fr": "une?|premi deux|second trois|tiers|troisi quatr|quart cinq six sept huit neuf|neuvi dix onze douze",
    "es": "un[ao]?|primer|únic dos|segund tres|tercer cuatro|cuart cinco|quint seis|sext siete|séptim ocho|octav "
    "nueve|noven diez|décim once doce",
    "it": "un[ao]?|prim due|second tre|terz quattro|quart cinque|quint sei|sest sette|settim otto|ottav nove|non[ao] "
    "dieci|decim undici dodici",
    "de": "ein|erst zwei drei|dritt vier fünf sechs|sechst sieb acht neun zehn elf|elft zwölf",
    "ru": "один|одн|перв два|две|двух|двум|втор три|трех|трёх|трем|трём|трет четыр|четвёрт|четверт пят шест "
    "семь|семи|седьм восьм|восем девят десят одиннадцат двенадцат",
    "zh": "一|单|首|每 二|两|双 三 四 五 六 七 八 九 十 十一 十二",
}
"""Prefixes of the cardinal and ordinal words for one to twelve, by language."""


def preserved(original: str, translated: str, language: str) -> bool:
    """Whether the translation of an English text has the same numbers."""
    lost, added = _unmatched(original, translated)
    if lost or added:
        lost, added = _unmatched(_as_24_hours(original), _FULL_HOUR.sub("", translated))
    words = number_words(original)
    return all(_in_words(value, lost.count(value) + words[value], translated, language) for value in lost) and all(
        any(words[reading] or reading == 1 for reading in readings) for readings in added
    )


def _unmatched(original: str, translated: str) -> tuple[list[float], list[frozenset[float]]]:
    """Numbers in digits only in the original, and possible readings of those only in the translation."""
    lost, added = [_english(text) for text in _NUMBER.findall(original)], []
    for readings in sorted(map(_readings, _NUMBER.findall(translated)), key=len):
        found = next((value for value in lost if value in readings), None)
        if found is None:
            added.append(readings)
        else:
            lost.remove(found)
    return lost, added


def _english(text: str) -> float:
    """Parse an English numeral: commas and blanks as thousands separators, decimal point."""
    return float(re.sub(rf"[,'’ {_SPACES}]", "", text if text.count(".") < 2 else text.replace(".", "")))


def _readings(text: str) -> frozenset[float]:
    """Possible values of a numeral in the target languages."""
    plain = re.sub(rf"['’ {_SPACES}]", "", text)
    found = (plain.replace(",", ""), plain.replace(".", "").replace(",", "."))
    return frozenset(float(each) for each in found if each.count(".") < 2 and each != ".")


def _as_24_hours(text: str) -> str:
    """English times of day in 24-hour format, full hours without minutes."""

    def hour(found: re.Match[str]) -> str:
        late = found[3].lower() == "p"
        number = int(found[1]) % 12 + 12 * late if int(found[1]) <= 12 else int(found[1])
        return str(number) + (f":{found[2]}" if found[2] and found[2] != "00" else "")

    return _CLOCK.sub(hour, text)


def number_words(text: str) -> Counter[float]:
    """The numbers spelled out in an English text with their counts; *thirty-five* counts as 35, 30 and 5."""
    return Counter(_values_of(re.findall(r"[a-z]+", text.lower())))


def _values_of(words: list[str]) -> Iterator[float]:
    for word, following in itertools.pairwise([*words, ""]):
        yield from _ENGLISH.get(word, ())
        if word in _TENS and following in _UNITS[1:10]:
            yield _ENGLISH[word][0] + _ENGLISH[following][0]
        if following in ("hundred", "thousand", "million") and word in _ENGLISH:
            yield _ENGLISH[word][0] * _ENGLISH[following][0]


def _in_words(value: float, times: int, translated: str, language: str) -> bool:
    """Whether a small number occurs that often as a word in the translation; 1 needs to occur only once (article)."""
    if value not in range(1, 13):
        return False
    begins = _WORDS[language].split()[int(value) - 1]
    boundary = "" if language == "zh" else r"\b"
    found = re.findall(f"{boundary}(?:{begins})", translated, re.IGNORECASE)
    return len(found) >= (1 if value == 1 else times)
