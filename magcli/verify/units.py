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
    r"(?<=[\d)}])(?: ?\((?P<aside>[A-Za-z][A-Za-z ]+)\)"
    r"|(?P<gap> ?)(?P<words>[A-Za-z]{2,}(?:/[A-Za-z]+)?(?: [A-Za-z]+){0,3})(?:\^\{?(?P<power>[23])\}?)?)$"
)
_UNIT = re.compile(r"[^\W\d_][\w ./%¢-]*|%|¢")


def measure(text: str) -> Measure:
    """Split a normalised answer into body, unit and percent sign; units have one name (``cm`` is centimeter).

    A unit is a currency sign in front, a last ``\\text{..}``, a known unit after a digit or bracket, or other words
    after a digit and a space: ``5 m``, ``3xy`` and ``(x+1)abc`` may be products.
    """
    if text.endswith("%"):
        return Measure(text[:-1].rstrip(), "", True)
    if sign := _PREFIX.match(text):
        return Measure(sign[1] + text[sign.end() :], _CURRENCY[sign[2]], False)
    if text[-1:] in _CURRENCY and text[:-1]:
        return Measure(text[:-1].rstrip(), _CURRENCY[text[-1]], False)
    tail = text[-60:]
    size, unit = _text_unit(tail) or _word_unit(tail) or (0, "")
    body = text[: len(text) - size].rstrip()
    if not unit or not re.search(r"\d|\\", body):
        return Measure(text, "", False)
    return Measure(body, "", True) if unit == "percent" else Measure(body, unit, False)


def _text_unit(tail: str) -> tuple[int, str] | None:
    """Length and name of a unit in ``\\text{..}``."""
    match = _TEXT_TAIL.search(tail)
    if not match or not _UNIT.fullmatch(match[1]):
        return None
    return len(match[0]), _named(match[1], match[2])


def _word_unit(tail: str) -> tuple[int, str] | None:
    """Length and name of a unit in plain words or in brackets."""
    match = _WORD_TAIL.search(tail)
    if not match:
        return None
    unit = _named(match["aside"] or match["words"], match["power"])
    free = match["aside"] or (match["gap"] and len(match["words"].split()[0]) > 2)
    return (len(match[0]), unit) if free or unit.partition("^")[0] in _ALIASES else None


def _named(words: str, power: str | None) -> str:
    name = unit_name(words)
    if _NOT_UNITS.intersection(name.split()):
        return ""
    return f"{name}^{power}" if power else name


def unit_name(words: str) -> str:
    """``Square Centimeters`` and ``cm^2`` are ``centimeter^2``; an unknown word is its own name, singular."""
    words = words.lower().strip(" .")
    for prefix, power in (("square ", "^2"), ("sq ", "^2"), ("cubic ", "^3")):
        if words.startswith(prefix):
            return unit_name(words[len(prefix) :]) + power
    singular = words[:-1] if words.endswith("s") and len(words) > 3 and not words.endswith("ss") else words
    return _UNITS.get(words) or _UNITS.get(singular) or singular
