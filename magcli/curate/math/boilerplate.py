"""What collections leave around a statement: credits, its own answer, requests to translate it, headings, pictures.

Sets for RL that were crawled from forums, scanned, or translated by a model carry such lines. They are no part of the
problem, and an answer that stands in the statement would be what the policy learns to copy.
"""

import re

from magcli.curate.math.rules import ENGINE
from magcli.curate.math.tasks import tasks_in

_SPACELESS = re.compile(r"[\s$.。]+")

LINES_AT_END = 6
"""Lines that are taken from the end of one statement."""


def without_boilerplate(statement: str, answer: str) -> str:
    """A statement without what its collection left around it; one that is nothing else stays as it is."""
    text = _once(ENGINE.replaced("translation", statement, "\x1e"))
    text = ENGINE.replaced("hidden", text, "").rstrip()
    for _ in range(LINES_AT_END):
        shorter = _end_cut(text, answer)
        if shorter == text:
            break
        text = shorter
    text = ENGINE.replaced("tag", text, r"\2")
    return text if text.strip() else statement


def pictures(statement: str) -> str:
    """The first link to a picture in a statement; empty where there is none."""
    found = ENGINE.first("picture", statement)
    return found[0] if found else ""


def without_pictures(statement: str) -> str:
    """A statement without links to pictures, which a policy that reads text cannot follow."""
    return ENGINE.replaced("picture", statement, "").strip() if "](" in statement or "://" in statement else statement


def _once(text: str) -> str:
    """The pieces between requests to translate, without those that only say an earlier one again."""
    if "\x1e" not in text:
        return text
    kept: list[str] = []
    for piece in text.split("\x1e"):
        bare = _SPACELESS.sub("", piece)
        if bare and not any(bare in _SPACELESS.sub("", earlier) for earlier in kept):
            kept.append(piece.strip())
    return "\n\n".join(kept)


def _end_cut(text: str, answer: str) -> str:
    """A statement without one heading, credit or told answer at its end; as it is where there is none."""
    tail = text[-400:]
    told = ENGINE.first("answer-told", tail)
    if told and _SPACELESS.sub("", told[1]) == _SPACELESS.sub("", answer):
        return _cut(text, tail, told)
    heading = None if told else ENGINE.first("heading", tail)
    if heading and not tasks_in(f"{heading[1] or ''}."):
        return _cut(text, tail, heading)
    credited = tail.rstrip(" \n.")[-1:] in ("*", "_", "]", ")") or "roposed by" in tail
    credit = ENGINE.first("credit", tail) if credited else None
    return _cut(text, tail, credit) if credit else text


def _cut(text: str, tail: str, found: re.Match[str]) -> str:
    """A text without what was found in its tail, and what stands behind that."""
    return text[: len(text) - len(tail) + found.start()].rstrip()
