"""Exact values of answers that are numbers, as fractions, without any algebra system.

The grammar: decimals, ``\\frac``, ``+ - * / ^ !``, brackets, mixed numbers, thousands separators, scientific notation
and repeating decimals. Anything else, and anything over the budgets below, is None: undecided here.
"""

import math
import re
from fractions import Fraction
from functools import lru_cache

MAX_CHARS = 400
MAX_DEPTH = 30
MAX_BITS = 100_000
"""Size of the largest power that is worked out."""
MAX_FACTORIAL = 3_000

_INTEGER = re.compile(r"[+-]?\d+")
_GROUPED = re.compile(r"([+-]?\d{1,3}(?:,\d{3})+|[+-]?\d{1,3}(?: \d{3})+)(\.\d+)?")
_MIXED = re.compile(r"([+-]?)(\d+) (\d+)/(\d+)")
_REPEATING = re.compile(r"([+-]?)(\d*)\.(\d*)\\overline\{(\d+)\}")
_TOKEN = re.compile(
    r"(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,5})?)|(?P<times>\\times|\\cdot|\*)|(?P<over>\\div|/)"
    r"|(?P<frac>\\frac)|(?P<sign>[-+^!(){}])| +"
)


class _Undecided(Exception):
    """Not a plain number, or too large to work out."""


@lru_cache(maxsize=8192)
def rational(text: str) -> Fraction | None:
    """The exact value of a normalised answer, or None where it is not a number that can be worked out cheaply."""
    if len(text) > MAX_CHARS or not text.isascii():
        return None
    if _INTEGER.fullmatch(text):
        return Fraction(int(text))
    if grouped := _GROUPED.fullmatch(text):
        text = re.sub("[, ]", "", text) if grouped else text
    try:
        return _mixed(text) or _repeating(text) or _Parser(text).value()
    except (_Undecided, ZeroDivisionError):
        return None


def _mixed(text: str) -> Fraction | None:
    """``1 1/2``; the fraction part is proper."""
    if not (match := _MIXED.fullmatch(text)):
        return None
    whole, top, bottom = int(match[2]), int(match[3]), int(match[4])
    if top >= bottom:
        raise _Undecided
    return Fraction(whole * bottom + top, bottom) * (-1 if match[1] == "-" else 1)


def _repeating(text: str) -> Fraction | None:
    """``0.1\\overline{6}``."""
    if not (match := _REPEATING.fullmatch(text)):
        return None
    sign, whole, fixed, cycle = match.groups()
    shift = 10 ** len(fixed)
    value = Fraction(int(whole + fixed or "0"), shift) + Fraction(int(cycle), shift * (10 ** len(cycle) - 1))
    return -value if sign == "-" else value


class _Parser:
    """Recursive descent over the tokens; the state is the place reached and the depth of brackets."""

    def __init__(self, text: str) -> None:
        self.tokens = _tokens(text)
        self.at = 0
        self.depth = 0

    def value(self) -> Fraction:
        value = self.sum()
        if self.at != len(self.tokens):
            raise _Undecided
        return value

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")

    def take(self, *wanted: str) -> str:
        kind, token = self.peek()
        if kind in wanted or token in wanted:
            self.at += 1
            return token or kind
        return ""

    def sum(self) -> Fraction:
        value = self.product()
        while sign := self.take("+", "-"):
            term = self.product()
            value = value + term if sign == "+" else value - term
        return value

    def product(self) -> Fraction:
        value = self.signed()
        while True:
            if self.take("times"):
                value *= self.signed()
            elif self.take("over"):
                value /= self.signed()
            elif self.peek()[1] == "(":
                value *= self.power()
            else:
                return value

    def signed(self) -> Fraction:
        if sign := self.take("+", "-"):
            with _Deeper(self):
                value = self.signed()
            return -value if sign == "-" else value
        return self.power()

    def power(self) -> Fraction:
        base = self.atom()
        while self.take("!"):
            base = _factorial(base)
        if not self.take("^"):
            return base
        with _Deeper(self):
            return _power(base, self.signed())

    def atom(self) -> Fraction:
        if number := self.take("number"):
            whole = Fraction(number)
            return whole + self.proper() if self.peek()[0] == "frac" and number.isdigit() else whole
        if self.take("frac"):
            return self.group("{") / self.group("{")
        return self.group("(") if self.peek()[1] == "(" else self.group("{")

    def proper(self) -> Fraction:
        """The fraction of a mixed number: two plain integers, the first one smaller."""
        kinds = [token if kind == "sign" else kind for kind, token in self.tokens[self.at : self.at + 7]]
        if kinds != ["frac", "{", "number", "}", "{", "number", "}"]:
            raise _Undecided
        self.at += 1
        part = self.group("{") / self.group("{")
        if part >= 1 or self.peek()[1] in ("^", "!"):
            raise _Undecided
        return part

    def group(self, opening: str) -> Fraction:
        with _Deeper(self):
            if not self.take(opening):
                raise _Undecided
            value = self.sum()
            if not self.take({"(": ")", "{": "}"}[opening]):
                raise _Undecided
            return value


class _Deeper:
    """Counts nesting, so that brackets cannot exhaust the stack."""

    def __init__(self, parser: _Parser) -> None:
        self.parser = parser

    def __enter__(self) -> None:
        self.parser.depth += 1
        if self.parser.depth > MAX_DEPTH:
            raise _Undecided

    def __exit__(self, *_: object) -> None:
        self.parser.depth -= 1


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _Undecided
        if match.lastgroup:
            tokens.append((match.lastgroup, match[0]))
        at = match.end()
    return tokens


def _factorial(value: Fraction) -> Fraction:
    if value.denominator != 1 or not 0 <= value <= MAX_FACTORIAL:
        raise _Undecided
    return Fraction(math.factorial(int(value)))


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if exponent.denominator != 1 or abs(exponent) * size > MAX_BITS:
        raise _Undecided
    return Fraction(base ** int(exponent))
