"""One spelling for answers that mean the same: Unicode, wrappers, spacing, LaTeX variants, units.

Nothing here weighs values; that is for ``rational`` and ``symbolic``. Every function is pure and linear in the text,
and meant for the short text of an answer.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from magcli.verify.box import last_box

_UNICODE = {
    **{ord(c): "-" for c in "−–—‐‑﹣－"},
    **{ord(c): " " for c in "\u00a0\u2002\u2003\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u3000\t\n\r\x0b\x0c"},
    **{ord(c): "" for c in "\u200b\u200c\u200d\u2060\ufeff\u200e\u200f"},
    **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F) if code != 0xFF0D},
    **{ord(c): f"^{{{i}}}" for i, c in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    **{ord(c): f"\\frac{{{a}}}{{{b}}}" for c, a, b in ("½12", "⅓13", "⅔23", "¼14", "¾34", "⅕15", "⅙16", "⅛18")},
    **{ord(c): f"{command} " for c, command in zip("×÷·⋅∙±√π∞∪∩∈θαβ∅", (
        r"\times", r"\div", r"\cdot", r"\cdot", r"\cdot", r"\pm", r"\sqrt", r"\pi", r"\infty", r"\cup", r"\cap",
        r"\in", r"\theta", r"\alpha", r"\beta", r"\emptyset"), strict=True)},
    ord("≤"): r"\leq ", ord("≥"): r"\geq ", ord("≠"): r"\neq ", ord("≈"): r"\approx ",
    ord("°"): r"^\circ ", ord("º"): r"^\circ ", ord("、"): ",", ord("。"): ".", ord("…"): r"\ldots ",
}  # fmt: skip

_SPELLING: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), new)
    for pattern, new in (
        (r"(?<=\d)(?:\{,\}|\\[,;:! ]|~)(?=\d{3}(?!\d))", ""),  # 1{,}000 and 1\,000 are one number
        (r"\\(?:left|right|[bB]igg?[lr]?)(?![A-Za-z])\.?", ""),
        (r"\\(?:displaystyle|textstyle|limits|nolimits)(?![A-Za-z])", ""),
        (r"\\[dtc]frac(?![A-Za-z])", r"\\frac"),
        (r"\\(?:mathrm|mathbf|textbf|textit|textrm|textnormal|mathit|operatorname|mbox|hbox|bf|rm)\s*\{", r"\\text{"),
        (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![A-Za-z]))|\\degrees?(?![A-Za-z])", ""),
        (r"(?<!\\)\\!", ""),
        (r"\\q?quad(?![A-Za-z])|(?<!\\)\\[,;:> ]|~", " "),
        (r"\\lbrace(?![A-Za-z])", r"\\{"),
        (r"\\rbrace(?![A-Za-z])", r"\\}"),
        (r"\\(?:[lr]?vert|mid)(?![A-Za-z])", "|"),
        (r"\\(?:le|leqslant)(?![A-Za-z])|<=", r"\\leq "),
        (r"\\(?:ge|geqslant)(?![A-Za-z])|>=", r"\\geq "),
        (r"\\ne(?![A-Za-z])|!=", r"\\neq "),
        (r"\\lt(?![A-Za-z])", "<"),
        (r"\\gt(?![A-Za-z])", ">"),
        (r"\\varnothing(?![A-Za-z])", r"\\emptyset"),
        (r"\\(?:[cld]?dots)(?![A-Za-z])|\.\.\.", r"\\ldots "),
        (r"\\([%$&#_])", r"\1"),
        (r"\\frac\s*(\d|\\pi|(?<=\s)[a-z])\s*(?=[\w{\\])", r"\\frac{\1}"),
        (r"(\\frac\s*\{[^{}]*\})\s*(\w)", r"\1{\2}"),
        (r"\\sqrt\s*([0-9A-Za-z])", r"\\sqrt{\1}"),
        (r" +", " "),
        (r"(?<![0-9A-Za-z]) | (?![0-9A-Za-z])", ""),
    )
)

_PLAIN = re.compile(r"-?[0-9]{1,300}(?:\.[0-9]{1,100})?")
_PAIRS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), (r"\text{", "}"), ("{", "}"))


@lru_cache(maxsize=8192)
def normalize(text: str) -> str:
    """The one spelling of an answer: wrappers and a final dot off, LaTeX variants and spacing made equal.

    A box, ``$..$``, ``\\(..\\)``, ``**..**`` or ``\\text{..}`` around the whole answer goes; ``\\dfrac`` becomes
    ``\\frac``; degree signs go; a space stays only between two letters or digits, so that ``1 1/2`` is not ``11/2``.
    """
    if _PLAIN.fullmatch(text):
        return text
    text = text.translate(_UNICODE).strip()
    for _ in range(8):
        bare = _unwrap(text)
        for pattern, new in _SPELLING:
            bare = pattern.sub(new, bare)
        if bare == text:
            break
        text = bare
    return text


def _unwrap(text: str) -> str:
    """One layer of wrapping off, and one final mark of punctuation."""
    text = text.strip().rstrip(",;").rstrip()
    if text.endswith((".", "。")) and not text.endswith(".."):
        text = text[:-1].rstrip()
    if re.match(r"\\f?box(?:ed)?\s*\{", text) and text.endswith("}"):
        return last_box(text) or text
    for opening, closing in _PAIRS:
        inner = text[len(opening) : len(text) - len(closing)]
        if text.startswith(opening) and text.endswith(closing) and inner and _closed(inner, opening):
            return inner
    return text


def _closed(inner: str, opening: str) -> bool:
    """Whether the wrapper's two ends belong together: braces inside never close more than they open."""
    if not opening.endswith("{"):
        return opening not in inner
    depth = 0
    for brace in re.findall(r"\\.|[{}]", inner):
        depth += (brace == "{") - (brace == "}")
        if depth < 0:
            return False
    return depth == 0


class Measure(NamedTuple):
    """An answer without its unit. ``unit`` is empty where none is written; ``percent`` for a percent sign."""

    body: str
    unit: str
    percent: bool


_CURRENCY = {"$": "dollar", "US$": "dollar", "£": "pound", "€": "euro", "¥": "yuan", "₹": "rupee"} _UNITS = { alias:
name for name, aliases in { "percent": "% percentage pct", "dollar": "usd buck", "cent": "¢", "euro": "eur",
"centimeter": "cm centimetre", "millimeter": "mm millimetre", "kilometer": "km kilometre", "meter": "m metre", "inch":
"in inches", "foot": "ft feet", "yard": "yd", "mile": "mi", "gram": "g", "kilogram": "kg kilo", "milligram": "mg",
"liter": "l litre", "milliliter": "ml millilitre", "pound": "lb", "ounce": "oz", "second": "sec s", "minute": "min",
"hour": "hr h", "person": "people", "degree": "deg", "mph": "miles per hour", "km/h": "kmh kph kilometers per hour",
}.items() for alias in (aliases, *aliases.split()) }  # fmt: skip _NOT_UNITS = frozenset([ "million", "billion",
"trillion", "thousand", "hundred", "dozen", "score", "or", "and", "to", "mod", "modulo", "pi", "sqrt", "over",
"choose", "remainder", "sin", "cos", "tan", "sec", "csc", "cot", "log", "ln", "exp", "max", "gcd", "lcm", "base",
"if", "where", "for", "when", "with", "not", "no", "none", "other", ])  # fmt: skip _PREFIX =
re.compile(r"^(-?)\s*(US\$|[$£€¥₹])\s*(?=[\d.\\-])") _TEXT_TAIL =
re.compile(r"\\text\{\s*([^{}]*?)\s*\}\s*(?:\^\{?([23])\}?)?$") _WORD_TAIL = re.compile( r"(?<=[\d)}])\s*(?:\(([A-Za-z
]+)\)|([A-Za-z]+(?:/[A-Za-z]+)?(?: [A-Za-z]+){0,3})(?:\^\{?([23])\}?)?)$" )


def measure(text: str) -> Measure:
    """Split a normalised answer into body, unit and percent sign; units are named in one way (``cm`` is centimeter).

    A unit is a currency sign in front, a last ``\\text{..}``, or words after a digit or bracket: at least two
    letters, since ``5 m`` in plain letters may be a product.
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
    if not re.search(r"\d|\\", body) or not re.fullmatch(r"[^\W\d_][\w ./%¢-]*|%|¢", words):
        return text, ""
    name = unit_name(words)
    return (text, "") if _NOT_UNITS.intersection(name.split()) else (body, f"{name}^{power}" if power else name)


def unit_name(words: str) -> str:
    """``Square Centimeters`` and ``cm^2`` have the name ``centimeter^2``; an unknown word is its own name, singular."""
    words = words.lower().strip(" .")
    for prefix, power in (("square ", "^2"), ("sq ", "^2"), ("cubic ", "^3")):
        if words.startswith(prefix):
            return unit_name(words[len(prefix) :]) + power
    singular = words[:-1] if words.endswith("s") and len(words) > 3 and not words.endswith("ss") else words
    return _UNITS.get(words) or _UNITS.get(singular) or singular
