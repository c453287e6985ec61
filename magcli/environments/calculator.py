"""A calculator: the model calls it in its template's form, or ends a turn with ``<<12 * (3 + 4)>>``."""

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import isfinite
from typing import Any

from magcli.environments.calls import Call, Tool, calls_in, results, schema
from magcli.verify.environment import Message

NAME, ARGUMENT = "calculator", "expression"
MAX_DIGITS = 100
"""Digits of a number in a result or on the way to it."""
MAX_LENGTH = 500
"""Characters of an expression."""

_INLINE = re.compile(r"<<([^<>]*)>>\s*\Z")
_OPERATORS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class Calculator:
    """Exact arithmetic with ``+ - * / // % **`` and parentheses; the row's verifier grades the last turn."""

    roles = ("tool",)
    tools = (schema(NAME, "Exact arithmetic.", ARGUMENT, "An expression with + - * / // % ** and parentheses."),)
    max_calls = 8
    # With a turn after the last call, for the answer.
    max_turns = max_calls + 1

    def reply(self, row: Mapping[str, Any], messages: Sequence[Message]) -> list[dict[str, str]] | None:
        """The result of each call in the last turn; None if there is none."""
        return results(messages, Tool(NAME, ARGUMENT, evaluate), expressions_in, self.max_calls)


def expressions_in(text: str) -> Sequence[Call]:
    """The calls of a turn, in the template's form or as ``<<...>>`` at its end."""
    inline = _INLINE.search(text)
    return [Call(NAME, {ARGUMENT: inline[1]})] if inline else calls_in(text)


def evaluate(expression: str) -> str:
    """The value of an expression, or what is wrong with it."""
    try:
        if len(expression) > MAX_LENGTH:
            raise ValueError(f"the expression has more than {MAX_LENGTH} characters")
        in_python = expression.strip().replace("^", "**")
        value = _value(ast.parse(in_python, mode="eval").body)
    except SyntaxError as error:
        return f"error: {error.msg}"
    except (ValueError, ArithmeticError, RecursionError, MemoryError) as error:
        return f"error: {error}"
    if value.denominator == 1:
        return str(value)
    # Twelve digits, as the exact fraction may have a hundred.
    return f"{float(value):.12g}"


def _value(node: ast.expr) -> Fraction:
    """The exact value of a node. Every intermediate result has a bounded size, so no expression takes long."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _small(_exact(number))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _small(_power(_value(left), _value(right)))
        case ast.BinOp(left=left, op=kind, right=right) if type(kind) in _OPERATORS:
            return _small(Fraction(_OPERATORS[type(kind)](_value(left), _value(right))))
    raise ValueError(f"{ast.unparse(node)[:40]} is not arithmetic")


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        # A root is not rational in general; of a negative number it is complex.
        return _exact(float(base) ** float(exponent))
    # Bounded before it is computed: a power has about that many times the digits of its base.
    if abs(exponent) * max(_digits(base), 1) > MAX_DIGITS:
        raise ValueError("the power is too large")
    return Fraction(base ** int(exponent))


def _exact(number: int | float | complex) -> Fraction:
    """The number that was written; raises ValueError for one that is not real or too large."""
    if isinstance(number, complex) or not isfinite(number):
        raise ValueError(f"{number} is not a finite real number")
    # By its text: 0.1 is one tenth, and not the nearest binary fraction.
    return Fraction(str(number))


def _small(value: Fraction) -> Fraction:
    if _digits(value) > MAX_DIGITS:
        raise ValueError(f"a number has more than {MAX_DIGITS} digits")
    return value


def _digits(value: Fraction) -> int:
    """At most one more than the decimal digits of numerator and denominator."""
    bits = max(value.numerator.bit_length(), value.denominator.bit_length())
    return bits * 3 // 10  # log10(2) is 0.301
