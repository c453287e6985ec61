r"""Ranges that a statement gives its inputs: ``1 \le n \le 10^5``, ``$0 \leq x_i, y_i < 2^{31}$``; ``1 <= |s| <= 50``.

LaTeX, HTML and plain text. What cannot be read is left out: a range that is not known is that of the given tests.
"""

import html
import re
from typing import NamedTuple

_SIGNS = (
    (re.compile(r"\\(?:leqslant|leq|le)(?![A-Za-z])|≤|⩽|&le;"), " <= "),
    (re.compile(r"\\lt(?![A-Za-z])|&lt;"), " < "),
    (re.compile(r"\\(?:cdot|times)(?![A-Za-z])|×|·|⋅"), "*"),
    (re.compile(r"\\(?:lvert|rvert|mid|vert)(?![A-Za-z])"), "|"),
    (re.compile(r"\\(?:mathrm|text|textit|mathit|operatorname|num|ensuremath)\s*\{([^{}]*)\}"), r"\1"),
    (re.compile(r"</?[a-z][^<>]*>"), ""),
    (re.compile(r"(?<=\d)(?:\\,|\{,\}|\\ |,(?=\d{3}(?!\d))| (?=\d{3}(?!\d)))"), ""),
    (re.compile(r"\$|\\[,;:! ]|\\left|\\right"), " "),
)
_NUMBER = (
    r"-?\s*\d+(?:\.\d+)?(?:e\d{1,2})?(?:\s*\*\s*\d+)?(?:\s*(?:\^|\*\*)\s*\{?\s*\d{1,3}\s*\}?)?(?:\s*[-+]\s*1(?![\d.]))?"
)
_NAME = r"\|?\\?[A-Za-z]\w*(?:\s*_\s*(?:\{[^{}]*\}|\w+))?(?:\.\w+|\[[^\[\]]*\])*\|?"
_RANGE = re.compile(
    rf"(?<![\w.^*])(?P<low>{_NUMBER})\s*(?P<from><=?)\s*"
    rf"(?P<names>{_NAME}(?:\s*(?:,|<=?)\s*{_NAME})*)\s*(?P<to><=?)\s*(?P<high>{_NUMBER})(?![\w^])"
)
_POWER = re.compile(r"(?:(.+?)\*)?\s*(-?[\d.]+)\s*(?:\^|\*\*)\s*\{?\s*(\d+)\s*\}?")
_MAX_EXPONENT = 100


class Stated(NamedTuple):
    """What the statement calls a value, and its range, ends included."""

    name: str
    low: float
    high: float


def constraints(statement: str) -> list[Stated]:
    """The ranges in the order of the statement; of a name that comes again only those like its first one."""
    first: dict[str, tuple[float, float]] = {}
    found: list[Stated] = []
    for match in _RANGE.finditer(_plain(statement)):
        ends = _ends(match)
        for name in re.split(r"<=?|,(?![^\[{]*[\]}])", match["names"]) if ends else ():
            key = re.sub(r"\s|\\", "", name)
            if ends and key not in ("ldots", "dots") and first.setdefault(key, ends) == ends:
                found.append(Stated(key, *ends))
    return found


def _ends(match: re.Match[str]) -> tuple[float, float] | None:
    """The least and the greatest value; an open end of reals is taken as closed."""
    low, high = _value(match["low"]), _value(match["high"])
    if low is None or high is None or low > high:
        return None
    inner = low + (match["from"] == "<"), high - (match["to"] == "<")
    return inner if inner[0] <= inner[1] and isinstance(low, int) and isinstance(high, int) else (low, high)


def _plain(statement: str) -> str:
    text = statement
    for pattern, sign in _SIGNS:
        text = pattern.sub(sign, text)
    return html.unescape(text)


def _value(text: str) -> float | None:
    """A number as statements write it: ``10^5``, ``2*10^5``, ``1e9``, ``10^9 - 1``; whole ones as int."""
    text = text.replace(" ", "")
    value: float
    less = re.search(r"(?<=[\d}])([-+])1$", text)
    text = text[: less.start()] if less else text
    sign = -1 if text.startswith("-") else 1
    found = _POWER.fullmatch(text.lstrip("-"))
    try:
        if found:
            value = _number(found[1] or "1") * _number(found[2]) ** min(int(found[3]), _MAX_EXPONENT)
        else:
            one, _, other = text.lstrip("-").partition("*")
            value = _number(one) * _number(other or "1")
    except (ValueError, OverflowError):
        return None
    value = sign * value + (int(f"{less[1]}1") if less else 0)
    return int(value) if float(value).is_integer() else value


def _number(text: str) -> float:
    return int(text) if text.isdigit() else float(text)
