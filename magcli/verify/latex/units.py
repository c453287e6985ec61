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
    "celsius": "centigrade",
    "fahrenheit": "",
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
    "mph": "mile / hour",
    "kph": "kilometer / hour",
    "kmh": "kilometer / hour",
    "sqm": "meter^2",
    "cc": "centimeter^3",
}
_SCALES = {
    "dozen": 12, "hundred": 100, "thousand": 10**3, "lakh": 10**5, "million": 10**6, "crore": 10**7, "billion": 10**9,
    "trillion": 10**12, "quadrillion": 10**15,
}  # fmt: skip
SCALES = _SCALES | {f"{word}s": value for word, value in _SCALES.items()}
"""Words that multiply the number before them."""
PRIME, DOUBLE_PRIME = "prime", "double-prime"
"""Units that are signs, and so are never unwritten."""
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
_SPLIT = re.compile(r"[A-Za-z°%¢$]+|\^ ?\{?-?\d|[/()]|[^\W\d_]+|\d")
_PER_CENT = re.compile(r"\bper[ -]cent\b")
TEMPERATURES = {"c": "celsius", "celsius": "celsius", "f": "fahrenheit", "fahrenheit": "fahrenheit"}
"""What may stand behind a degree sign."""
_SYMBOLS = "m s h g l L N J W V K km cm mm nm kg mg ml mL kJ Hz mol min eV rad"
_OHM = {r"\Omega": "ohm"}
SYMBOLS = {symbol: _UNITS[symbol.lower()] for symbol in _SYMBOLS.split()} | _OHM
"""Signs of units as they are written without words, where letter case counts."""


def is_unit(word: str) -> bool:
    """Whether a word names a known unit."""
    return _one(word) in _ALIASES or word.lower() in _COMPOUND or word.lower() in _POWERS or word.lower() in SCALES


def unit_name(words: str) -> str:
    """One name for a unit: ``Square Centimeters`` and ``cm^2`` are ``centimeter^2``, ``m per s`` is meter/second.

    Known units are multiplied out, in one order: ``km h^-1`` is kilometer/hour, ``J/(mol K)`` joule/kelvin/mole.
    Unknown words are their own name, singular; ``units`` and articles count for nothing.
    """
    parts = _parts(_PER_CENT.sub("percent", words) if "cent" in words else words)
    if not (parts and all(name.partition("^")[0] in _ALIASES for name in parts if name not in ("/", "(", ")"))):
        name = " ".join(part for part in parts if part not in _GENERIC and part not in ("(", ")"))
        return name.replace(" / ", "/").replace("/ ", "/")
    return written(_powers(parts))


def _parts(words: str) -> list[str]:
    """The units as ``name^power``, with ``/`` and brackets between them."""
    parts: list[str] = []
    power = ""
    for word in _SPLIT.findall(words):
        lower = word.lower().strip(".")
        if lower in ("a", "an", "the", "total", "cdot", "times"):
            continue
        if lower in ("per", "/", "(", ")"):
            parts.append("/" if lower == "per" else lower)
        elif word[0] == "^" or word.isdigit():
            parts[-1:] = [parts[-1] + "^" + word.strip("^{ ")] if parts else []
        elif lower in ("squared", "cubed") and parts:
            parts[-1] += _POWERS[lower]
        elif lower in _POWERS:
            power = _POWERS[lower]
        elif lower in TEMPERATURES and parts[-1:] == ["degree"]:
            parts[-1] = TEMPERATURES[lower]
        else:
            parts.extend(_COMPOUND.get(lower, "").split() or [_one(word) + power])
            power = ""
    return parts


def _powers(parts: list[str]) -> dict[str, int]:
    """The power of each unit; ``/`` divides by what comes next, a unit or a bracket."""
    powers: dict[str, int] = {}
    sign, group = 1, False
    for part in parts:
        if part in ("/", "("):
            sign, group = (-1, group) if part == "/" else (sign, True)
        elif part == ")":
            sign, group = 1, False
        else:
            name, _, power = part.partition("^")
            powers[name] = powers.get(name, 0) + sign * int(power or 1)
            sign = sign if group else 1
    return powers


def written(powers: dict[str, int]) -> str:
    """The name of a product of powers of units, the same for every order."""
    above = "·".join(_raised(name, power) for name, power in sorted(powers.items()) if power > 0)
    if not above:
        return "·".join(_raised(name, power) for name, power in sorted(powers.items()) if power)
    return above + "".join(f"/{_raised(name, -power)}" for name, power in sorted(powers.items()) if power < 0)


def _raised(name: str, power: int) -> str:
    return name if power == 1 else f"{name}^{power}"


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
    """Whether two units may be one: the same, one unwritten, or one a longer name (``distinct integers``).

    A degree sign alone may be of any scale of temperature.
    """
    if a == b or not a or not b:
        return True
    if "degree" in (a, b) and {a, b} & {"celsius", "fahrenheit"}:
        return True
    x, y = set(a.split()), set(b.split())
    return (x <= y or y <= x) and not (x | y) & _ALIASES.keys()
