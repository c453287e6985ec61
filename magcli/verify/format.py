"""The format gate: what a completion must look like before anything in it is graded (recipe, section 2).

A completion starts with ``<think>`` and holds exactly one ``<think>`` and one ``</think>``; what follows ``</think>``
is the answer part. For math the answer part has a ``\\boxed{}`` that is closed and not blank; for code it has at
least one closed Markdown block of triple backticks with a language name. All functions are pure and take time linear
in the text.
"""

import re
from typing import Literal, NamedTuple

from magcli.verify.box import last_box
from magcli.verify.types import Reason

OPEN, CLOSE = "<think>", "</think>"

_FENCE = re.compile(r"^ {0,3}(`{3,})([^`\n]*)$", re.MULTILINE)
_LANGUAGE = re.compile(r"[A-Za-z][\w+#.-]*")


class Parts(NamedTuple):
    """The two parts of a well-formed completion, tags left out."""

    thoughts: str
    answer: str


def split(text: str) -> Parts | None:
    """The thoughts and the answer part; None where the tags are missing, repeated, out of order or not at the start."""
    if not text.startswith(OPEN) or text.count(OPEN) != 1 or text.count(CLOSE) != 1:
        return None
    thoughts, _, answer = text[len(OPEN) :].partition(CLOSE)
    return Parts(thoughts, answer)


def gate(text: str, kind: str = "math") -> tuple[Parts | None, Reason | Literal[""]]:
    """The parts and an empty reason where the format holds, else None and the first rule that was broken.

    Args:
        text: The whole completion.
        kind: ``math`` asks for a box, ``code`` for a code block.
    """
    parts = split(text)
    if parts is None:
        return None, "no-think"
    if kind == "code":
        return (parts, "") if has_code_block(parts.answer) else (None, "no-code")
    return (parts, "") if (last_box(parts.answer, ("boxed",)) or "").strip() else (None, "no-box")


def has_code_block(answer: str) -> bool:
    """Whether there is a closed Markdown block of triple backticks that names its language."""
    fence, language = "", ""
    for match in _FENCE.finditer(answer):
        ticks, info = match[1], match[2].strip()
        if not fence:
            fence, language = ticks, info
        elif not info and len(ticks) >= len(fence):
            if _LANGUAGE.match(language):
                return True
            fence = ""
    return False
