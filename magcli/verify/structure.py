"""Taking a normalised answer apart: lists, sets, tuples, intervals, unions, ``\\pm`` and assignments."""

import re
from typing import NamedTuple

_TOKEN = re.compile(r"\\[{}]|\\text\{\s*(?:and|or)\s*\}|\\[A-Za-z]+|\\.|\b(?:and|or)\b|.", re.DOTALL)
_OPENING = frozenset(["(", "[", "{", r"\{"])
_CLOSING = frozenset([")", "]", "}", r"\}"])
_JOINING = frozenset([",", ";", "and", "or"])
_NAME = re.compile(
    r"([A-Za-z](?:_(?:\w|\{\w+\}))?'?(?:\([A-Za-z]\))?|\\[A-Za-z]+(?:_\w)?|\\text\{[^{}]*\}|[A-Za-z]{3,}|\([A-Za-z](?:,[A-Za-z])+\))(?:=|\\approx|\\in(?![A-Za-z]))"
)
_BUILDER = re.compile(r"^[A-Za-z](?:\\in ?\\mathbb\{[A-Z]\})?[|:]")
_RELATION = re.compile(r"[=<>]|\\(?:leq|geq|neq|approx|equiv|in)(?![A-Za-z])")


class Sequence(NamedTuple):
    """``brackets`` is ``()``, ``[)``, ``{}`` and so on, ``or`` for a bare list, ``cup`` for a union.

    Of a set builder ``\\{x | ..\\}`` the conditions are the parts.
    """

    brackets: str
    parts: tuple[str, ...]

    @property
    def ordered(self) -> bool:
        """Whether the order of the parts matters."""
        return self.brackets not in ("or", "{}", "cup")


def sequence(text: str) -> Sequence | None:
    """The parts of a list, set, tuple, interval, union or ``a \\pm b``; None for a single expression."""
    if len(parts := _split(text, frozenset([r"\cup"]))) > 1:
        return Sequence("cup", tuple(parts))
    if len(parts := _split(text, _JOINING)) > 1:
        return Sequence("or", tuple(part for part in parts if part))
    if text.startswith(r"\{") and text.endswith(r"\}"):
        return Sequence("{}", tuple(_split(_BUILDER.sub("", text[2:-2]), _JOINING)))
    if text[:1] in ("(", "[") and text[-1:] in (")", "]"):
        inner = _split(text[1:-1], _JOINING)
        return Sequence(text[0] + text[-1], tuple(inner)) if len(inner) > 1 else None
    if text.count(r"\pm") == 1:
        return Sequence("or", (text.replace(r"\pm", "+").lstrip("+"), text.replace(r"\pm", "-")))
    return None


def _split(text: str, separators: frozenset[str]) -> list[str]:
    """Split at separators outside all brackets."""
    parts, start, depth = [], 0, 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in _OPENING:
            depth += 1
        elif token in _CLOSING:
            depth -= 1
        elif (
            depth == 0
            and (token if len(token) == 1 or not token.startswith(r"\text") else token[6:-1].strip()) in separators
        ):
            parts.append(text[start : match.start()].strip())
            start = match.end()
    return [*parts, text[start:].strip()]


def assignment(text: str) -> tuple[str, str]:
    """The name and the value of ``x=5``, ``f(x)=..`` or ``x \\in ..``; an empty name where it is neither."""
    match = _NAME.match(text)
    if not match or has_relation(value := text[match.end() :]) or not value:
        return "", text
    return match[1], value


def has_relation(text: str) -> bool:
    """Whether the text states an equation, inequality or membership."""
    return bool(_RELATION.search(text))
