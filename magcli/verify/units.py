"""Taking units, currency and percent signs off a normalised answer, and naming them in one way."""

import re
from typing import NamedTuple


class Measure(NamedTuple):
    """An answer without its unit. ``unit`` is empty where none is written; ``percent`` for a percent sign."""

    body: str
    unit: str
    percent: bool


_CURRENCY = {"$": "dollar", "US$": "dollar", "£": "pound", "€": "euro", "¥": "yuan", "₹": "rupee"}
_ALIASES = {
    "percent": ("%", "percentage", "pct"),
    "dollar": ("usd", "buck"),
    "cent": ("¢",),
    "euro": ("eur",),
    "centimeter": ("cm", "centimetre"),
    "millimeter": ("mm", "millimetre"),
    "kilometer": ("km", "kilometre"),
    "meter": ("m", "metre"),
    "inch": ("in", "inches"),
    "foot": ("ft", "feet"),
    "yard": ("yd",),
    "mile": ("mi",),
    "gram": ("g",),
    "kilogram": ("kg", "kilo"),
    "milligram": ("mg",),
    "liter": ("l", "litre"),
    "milliliter": ("ml", "millilitre"),
    "pound": ("lb", "lbs"),
    "ounce": ("oz",),
    "second": ("sec", "s"),
    "minute": ("min",),
    "hour": ("hr", "h"),
    "person": ("people",),
    "degree": ("deg",),
    "mile per hour": ("mph", "miles per hour"),
    "kilometer per hour": ("kmh", "kph", "km/h", "kilometers per hour"),
}
_UNITS = {alias: name for name, aliases in _ALIASES.items() for alias in (name, *aliases)}
_NOT_UNITS = frozenset(
    (
        *(
            "million",
            "billion",
            "trillion",
            "thousand",
            "hundred",
            "dozen",
            "score",
            "or",
            "and",
            "to",
            "mod",
            "modulo",
        ),
        *("pi", "sqrt", "over", "choose", "remainder", "sin", "cos", "tan", "sec", "csc", "cot", "log", "ln", "exp"),
        *("max", "gcd", "lcm", "base", "if", "where", "for", "when", "with", "not", "no", "none", "other"),
    )
)
_PREFIX = re.compile(r"^(-?)\s*(US\$|[$£€¥₹])\s*(?=[\d.\\-])")
_TEXT_TAIL = re.compile(r"\\text\{\s*([^{}]*?)\s*\}\s*(?:\^\{?([23])\}?)?$")
_WORD_TAIL = re.compile(
    r"(?<=[\d)}])\s*(?:\(([A-Za-z ]+)\)|([A-Za-z]+(?:/[A-Za-z]+)?(?: [A-Za-z]+){0,3})(?:\^\{?([23])\}?)?)$"
)
_UNIT = re.compile(r"[^\W\d_][\w ./%¢-]*|%|¢")


def measure(text: str) -> Measure:
    """Split a normalised answer into body, unit and percent sign; units have one name (``cm`` is centimeter).

    A unit is a currency sign in front, a last ``\\text{..}``, or words after a digit or bracket: at least two letters,
    since ``5 m`` in plain letters may be a product.
    """
    if text.endswith("%"):
        return Measure(text[:-1].rstrip(), "", True)
    if sign := _PREFIX.match(text):
        return Measure(sign[1] + text[sign.end() :], _CURRENCY[sign[2]], False)
    if text[-1:] in _CURRENCY and text[:-1]:
        return Measure(text[:-1].rstrip(), _CURRENCY[text[-1]], False)
    body, unit = _tail(text)
    return Measure(body, "", True) if unit == "percent" else Measure(body, unit, False)


def _tail(text: str) -> tuple[str, str]:
    """The body and the unit's name, empty where the last words are no unit."""
    tail = text[-60:]
    if (match := _TEXT_TAIL.search(tail)) and (words := match[1]):
        power = match[2] or ""
    elif (match := _WORD_TAIL.search(tail)) and len(words := match[1] or match[2]) > 1:
        power = match[3] or ""
    else:
        return text, ""
    body = text[: len(text) - len(tail) + match.start()].rstrip()
    name = unit_name(words)
    if not re.search(r"\d|\\", body) or not _UNIT.fullmatch(words) or _NOT_UNITS.intersection(name.split()):
        return text, ""
    return body, f"{name}^{power}" if power else name


def unit_name(words: str) -> str:
    """``Square Centimeters`` and ``cm^2`` are ``centimeter^2``; an unknown word is its own name, singular."""
    words = words.lower().strip(" .")
    for prefix, power in (("square ", "^2"), ("sq ", "^2"), ("cubic ", "^3")):
        if words.startswith(prefix):
            return unit_name(words[len(prefix) :]) + power
    singular = words[:-1] if words.endswith("s") and len(words) > 3 and not words.endswith("ss") else words
    return _UNITS.get(words) or _UNITS.get(singular) or singular
