"""Names of units and currencies, so that ``cm``, ``centimetres`` and ``Centimeter`` are one."""

import re
from fractions import Fraction

CURRENCY = {
    "$": "dollar",
    "US$": "dollar",
    "£": "pound sterling",
    "€": "euro",
    "¥": "yen",
    "₹": "rupee",
    r"\$": "dollar",
}
CURRENCY_WORDS = {"rs": "rupee", "usd": "dollar", "us$": "dollar", "eur": "euro", "gbp": "pound sterling"}
_ALIASES = {
    "percent": "% percentage pct",
    "dollar": "usd buck $",
    "cent": "¢",
    "euro": "eur €",
    "pound sterling": "£ gbp",
    "yuan": "rmb cny",
    "centimeter": "cm centimetre",
    "millimeter": "mm millimetre",
    "kilometer": "km kilometre",
    "nanometer": "nm nanometre",
    "meter": "m metre",
    "inch": "in inches",
    "foot": "ft feet",
    "yard": "yd",
    "mile": "mi",
    "gram": "g gm",
    "kilogram": "kg kilo",
    "milligram": "mg",
    "liter": "l litre",
    "milliliter": "ml millilitre",
    "pound": "lb lbs",
    "ounce": "oz",
    "second": "sec s",
    "minute": "min",
    "hour": "hr hrs h",
    "day": "d",
    "year": "yr",
    "person": "people",
    "child": "children",
    "man": "men",
    "woman": "women",
    "degree": "deg °",
    "radian": "rad",
    "newton": "n",
    "joule": "j",
    "kilojoule": "kj",
    "watt": "w",
    "volt": "v",
    "ohm": "ω",
    "hertz": "hz",
    "kelvin": "k",
    "mole": "mol",
    "electronvolt": "ev",
    "square meter": "sqm",
    "mph": "miles/hour",
    "kph": "kmh kilometer/hour",
}
_UNITS = {alias: name for name, aliases in _ALIASES.items() for alias in (name, *aliases.split())}
_COMPOUND = {
    "mph": "mile/hour",
    "kph": "kilometer/hour",
    "kmh": "kilometer/hour",
    "sqm": "meter^2",
    "cc": "centimeter^3",
}
_SCALES = {
    "dozen": 12, "hundred": 100, "thousand": 10**3, "lakh": 10**5, "million": 10**6, "crore": 10**7, "billion": 10**9,
    "trillion": 10**12, "quadrillion": 10**15,
}  # fmt: skip
SCALES = _SCALES | {f"{word}s": value for word, value in _SCALES.items()}
"""Words that multiply the number before them."""
_GENERIC = frozenset(("unit", "unit^2", "unit^3", "total", "u", "of"))
_POWERS = {"square": "^2", "sq": "^2", "cubic": "^3", "cu": "^3", "squared": "^2", "cubed": "^3"}
_PARTS = {
    ("day", "hour"): 24, ("hour", "minute"): 60, ("minute", "second"): 60, ("week", "day"): 7, ("year", "month"): 12,
    ("yard", "foot"): 3, ("foot", "inch"): 12, ("meter", "centimeter"): 100, ("kilometer", "meter"): 1000,
    ("kilogram", "gram"): 1000, ("pound", "ounce"): 16,
}  # fmt: skip
"""How many of a smaller unit make a larger one, where both are written one after the other."""
_MEASURE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*([A-Za-z]+)")
_COMPOUND_MEASURE = re.compile(rf"\s*{_MEASURE.pattern}(?:\.?,?\s*(?:and\s+)?{_MEASURE.pattern}){{1,3}}\.?\s*")
_SPLIT = re.compile(r"[A-Za-z°%¢$]+|\^ ?-?\d|/|[^\W\d_]+|\d")


def is_unit(word: str) -> bool:
    """Whether a word names a known unit."""
    return _one(word) in _ALIASES or word.lower() in _COMPOUND or word.lower() in _POWERS or word.lower() in SCALES


def unit_name(words: str) -> str:
    """One name for a unit: ``Square Centimeters`` and ``cm^2`` are ``centimeter^2``, ``m per s`` is meter/second.

    Unknown words are their own name, singular; ``units`` and articles count for nothing.
    """
    parts: list[str] = []
    power = ""
    for word in _SPLIT.findall(words):
        lower = word.lower().strip(".")
        if lower in ("a", "an", "the", "total"):
            continue
        if lower in ("per", "/"):
            parts.append("/")
        elif word[0] == "^" or word.isdigit():
            parts[-1:] = [parts[-1] + "^" + word.strip("^ ")] if parts else []
        elif lower in ("squared", "cubed") and parts:
            parts[-1] += _POWERS[lower]
        elif lower in _POWERS:
            power = _POWERS[lower]
        else:
            parts.append(_COMPOUND.get(lower) or _one(word) + power)
            power = ""
    name = " ".join(part for part in parts if part not in _GENERIC)
    return name.replace(" / ", "/").replace("/ ", "/")


def _one(word: str) -> str:
    lower = word.lower().strip(".")
    singular = lower[:-1] if lower.endswith("s") and len(lower) > 3 and not lower.endswith("ss") else lower
    return _UNITS.get(lower) or _UNITS.get(singular) or singular


def compound(text: str) -> tuple[Fraction, str] | None:
    """A measure in several units as so many of the smallest: ``3 hours and 20 minutes`` is 200, ``minute``."""
    if not _COMPOUND_MEASURE.fullmatch(text):
        return None
    (amount, word), *smaller = _MEASURE.findall(text)
    total, unit = Fraction(amount), _one(word)
    for amount, word in smaller:
        parts = _PARTS.get((unit, _one(word)))
        if parts is None:
            return None
        total, unit = total * parts + Fraction(amount), _one(word)
    return total, unit


def compatible(a: str, b: str) -> bool:
    """Whether two units may be one: the same, one unwritten, or one a longer name (``distinct integers``)."""
    if a == b or not a or not b:
        return True
    x, y = set(a.split()), set(b.split())
    return (x <= y or y <= x) and not (x | y) & _ALIASES.keys()
