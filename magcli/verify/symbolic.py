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

MAX_CHARS = 500
MAX_DEPTH = 25
MAX_DIGITS = 40
RELATIVE = 1e-12
"""Two closed-form numbers are equal when they agree to this relative difference at 30 digits."""

_HEAVY = re.compile(r"\\(?:int|iint|oint|sum|prod|lim|mod|bmod|pmod)(?![A-Za-z])")
_LONG_NUMBER = re.compile(rf"\d{{{MAX_DIGITS + 1}}}")
_LONG_EXPONENT = re.compile(r"\^\s*(?:\{[^{}]*\d{4}[^{}]*\}|\(?-?\d{4})")
_COUNTING = re.compile(
    r"\d{4}\s*!|!\s*[)}]*\s*!|(?:\d{3}|\^)[^!]*[)}]\s*!|\\(?:[dt]?binom|choose|gcd|lcm)(?![A-Za-z]).*\d{4}"
)


class Tools(NamedTuple):
    """The modules of the algebra system, once imported."""

    sympy: ModuleType
    math_verify: ModuleType


@cache
def tools() -> Tools:
    """Import SymPy and Math-Verify (about 0.6 s, once)."""
    for name in ("math_verify", "latex2sympy2_extended"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    import math_verify
    import sympy

    return Tools(sympy, math_verify)


def refusal(text: str) -> str:
    """Why an expression is not given to SymPy; empty where it is."""
    if len(text) > MAX_CHARS or _LONG_NUMBER.search(text):
        return "too-long"
    if _depth(text) > MAX_DEPTH:
        return "too-deep"
    if _towers(text) or _LONG_EXPONENT.search(text) or _COUNTING.search(text):
        return "too-large"
    if _HEAVY.search(text):
        return "too-heavy"
    return "" if text.isprintable() else "unprintable"


def _depth(text: str) -> int:
    depth = deepest = 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        deepest = max(deepest, depth)
    return deepest


def _towers(text: str) -> bool:
    """Whether an exponent that is a number holds a power itself, or powers are stacked three high (``9^{9^{9}}``)."""
    starts: list[int] = []  # where each open exponent group starts; -1 for other brackets
    for at, char in enumerate(text):
        if char in "({":
            starts.append(at if text[:at].rstrip().endswith("^") else -1)
        elif char in ")}" and starts:
            start = starts.pop()
            group = text[start:at] if start >= 0 else ""
            if "^" in group and not re.search(r"[A-Za-z]", group):
                return True
        elif char == "^" and (sum(start >= 0 for start in starts) > 1 or text[:at].rstrip()[-2:-1] == "^"):
            return True
    return False


@lru_cache(maxsize=1024)
def parse(text: str) -> Any | None:
    """The expression of a normalised answer, or None where the grammar does not know it or a guard refuses it."""
    if not text or "$" in text or refusal(text):
        return None
    found = _extract(f"${text}$")
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
    """Whether two normalised answers are the same expression, and the path: ``sympy``, ``unparsable`` or a refusal."""
    if reason := refusal(left) or refusal(gold):
        return False, reason
    a, b = parse(left), parse(gold)
    if a is None or b is None:
        return False, "unparsable"
    close = _numerically(a, b)
    if close is not None:
        return close, "sympy"
    return bool(tools().math_verify.verify(b, a, timeout_seconds=None)), "sympy"


def _numerically(a: Any, b: Any) -> bool | None:
    """Decide two closed-form numbers by 30 digits and a relative bound; None where one of them is no such number.

    An absolute bound would make 1/2^99 equal to 1/2^98.
    """
    sympy = tools().sympy
    if not all(isinstance(x, sympy.Expr) and x.is_number and x.is_finite for x in (a, b)):
        return None
    try:
        x, y = (complex(sympy.N(side, 30)) for side in (a, b))
        difference = abs(complex(sympy.N(a - b, 30, chop=False)))
    except (TypeError, ValueError, OverflowError, ArithmeticError):
        return None
    return bool(difference <= RELATIVE * max(abs(x), abs(y)))
