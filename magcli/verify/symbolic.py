"""Equality of expressions by Math-Verify's LaTeX grammar and SymPy, behind guards on size.

SymPy is imported on first need only, for most answers are decided without it. Math-Verify's own time-outs use
``signal.alarm``, which works in the main thread only and cannot stop one long operation on big integers: they are
off, the guards refuse what would grow, and the worker pool kills what still hangs. The grammar builds expression
trees; no text is ever evaluated as code.
"""

import logging
import re
from functools import cache, lru_cache
from types import ModuleType
from typing import Any, NamedTuple

from magcli.verify.loading import loading

MAX_CHARS = 300
MAX_DEPTH = 25
MAX_DIGITS = 40
MAX_EXPONENT_DIGITS = 4

_HEAVY = re.compile(r"\\(?:int|iint|oint|sum|prod|lim|mod|bmod|pmod)(?![A-Za-z])")
_FOREIGN = re.compile(r"[\"`@#$]|__|:=")
_LONG_NUMBER = re.compile(rf"\d{{{MAX_DIGITS + 1}}}")
_LONG_EXPONENT = re.compile(r"\^\s*(?:\{[^{}]*?\d{4}|\(?-?\d{4})")
_POWER_OF_POWER = re.compile(r"\^\s*\w\s*$")
_COMMAND = re.compile(r"\\[A-Za-z]+")
_ADJACENT = re.compile(r"(?<=[\d)}])\((?=-?[\d.])")
"""``3(4)`` is a product; the grammar alone would read a mixed number, 7."""
_COUNTING = re.compile(
    r"\d{4}\s*!|!\s*[)}]*\s*!|(?:\d{3}|\^)[^!]*[)}]\s*!"
    r"|\\(?:[dt]?binom|choose|gcd|lcm)(?![A-Za-z]).*(?:\d{4}|\d\s*\}?\s*[\^!])"
)
"""Factorials and their like of more than three digits, or of what is not a plain number."""


class Tools(NamedTuple):
    """The modules of the algebra system, once imported."""

    sympy: ModuleType
    math_verify: ModuleType


@cache
def tools() -> Tools:
    """Import SymPy and Math-Verify (about 0.6 s, once)."""
    for name in ("math_verify", "latex2sympy2_extended"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with loading():
        import math_verify
        import sympy

    return Tools(sympy, math_verify)


def refusal(text: str) -> str:
    """Why an expression is not given to SymPy; empty where it is."""
    if len(text) > MAX_CHARS or _LONG_NUMBER.search(text):
        return "too-long"
    if _depth(text) > MAX_DEPTH:
        return "too-deep"
    if _towers(text) or _COUNTING.search(text):
        return "too-large"
    if _HEAVY.search(text):
        return "too-heavy"
    return "" if text.isprintable() and not _FOREIGN.search(text) else "unprintable"


def _depth(text: str) -> int:
    depth = deepest = 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        deepest = max(deepest, depth)
    return deepest


def _towers(text: str) -> bool:
    """Whether a numeric exponent is long or holds a power (``9^{9^{9}}``), or powers are stacked three high."""
    starts: list[int] = []  # where each open exponent group starts; -1 for other brackets
    for at, char in enumerate(text):
        if char in "({":
            starts.append(at if text[:at].rstrip().endswith("^") else -1)
        elif char in ")}" and starts:
            start = starts.pop()
            if start >= 0 and _is_large(text[start:at]):
                return True
        elif char == "^" and (sum(start >= 0 for start in starts) > 1 or _POWER_OF_POWER.search(text[:at])):
            return True
    return bool(_LONG_EXPONENT.search(text))


def _is_large(exponent: str) -> bool:
    if re.search(r"[A-Za-z]", _COMMAND.sub("", exponent)):
        return False
    return "^" in exponent or "!" in exponent or len(re.findall(r"\d", exponent)) > MAX_EXPONENT_DIGITS


@lru_cache(maxsize=1024)
def parse(text: str) -> Any | None:
    """The expression of a normalised answer, or None where the grammar does not know it or a guard refuses it."""
    if not text or "$" in text or refusal(text):
        return None
    found = _extract("$" + _ADJACENT.sub(r"\\cdot(", text) + "$")
    return found[0] if found else None


@cache
def _extraction() -> Any:
    """What Math-Verify tidies up before it parses: no boxes and no units, which are taken off before."""
    from latex2sympy2_extended import NormalizationConfig

    tidy = NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none", equations=False
    )
    return tools().math_verify.LatexExtractionConfig(normalization_config=tidy)


def _extract(text: str) -> list[Any]:
    found: list[Any] = tools().math_verify.parse(
        text,
        extraction_config=(_extraction(),),
        fallback_mode="no_fallback",
        extraction_mode="first_match",
        parsing_timeout=None,
    )
    return found


def equal(left: str, gold: str) -> tuple[bool, str]:
    """Whether two answers are the same expression either way round, and what decided or why nothing could."""
    if reason := refusal(left) or refusal(gold):
        return False, reason
    a, b = parse(left), parse(gold)
    if a is None or b is None:
        return False, "unparsable"
    verify = tools().math_verify.verify
    return all(verify(x, y, timeout_seconds=None) for x, y in ((b, a), (a, b))), "sympy"
