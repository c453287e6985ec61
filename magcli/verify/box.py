"""Finding ``\\boxed{}`` by brace matching, in one pass over the text."""

import re
from collections.abc import Sequence
from functools import lru_cache

_EMPTY = re.compile(r"(\s*)\}")
_OPENED = re.compile(r"\\f?box(?:ed)?\s*\{")


@lru_cache(maxsize=8)
def _tokens(commands: Sequence[str]) -> re.Pattern[str]:
    """A box that opens, an escaped character (``\\{`` is no brace), or a brace."""
    return re.compile(rf"\\(?:{'|'.join(commands)})\s*\{{|\\.|[{{}}]", re.DOTALL)


def last_box(text: str, commands: tuple[str, ...] = ("boxed", "fbox")) -> str | None:
    """The content of the last box that opens, or of the closed box around it; None without a box or when unclosed.

    A last box that holds only blanks is empty, whatever stands around it. Spaces may stand before the brace;
    ``\\boxed 5`` is no box.
    """
    first = min((at for command in commands if (at := text.find(f"\\{command}")) >= 0), default=-1)
    if first < 0:
        return None
    stack: list[int] = []  # where the content of each open box starts; -1 for a plain brace
    opened, found = -1, (-1, -1)
    first = len(text[:first].rstrip("\\"))  # ``\\boxed`` is a line break and a word
    for match in _tokens(commands).finditer(text, first):
        token = match[0]
        if token == "{":
            stack.append(-1)
        elif token == "}":
            start = stack.pop() if stack else -1
            found = (start, match.start()) if start >= 0 else found
        elif len(token) > 2:
            opened = match.end()
            stack.append(opened)
    if found[0] < 0 or found[1] < opened:
        return None
    return blank[1] if (blank := _EMPTY.match(text, opened)) else text[slice(*found)]


_JOINT = re.compile(r"(?:[\s$,;.]|\\[()\[\],;]|\\q?quad|\\text\{\s*(?:and|or)\s*\}|\band\b|\bor\b)*")
MAX_BOXES = 50


def joined_boxes(text: str) -> str | None:
    """The content of the last box, with those of the boxes before it that only commas, ``and`` or ``or`` part.

    None without a box, when the last one is unclosed, or when there are more than ``MAX_BOXES``.
    """
    last = last_box(text)
    if last is None or len(starts := [m.start() for m in _OPENED.finditer(text)]) < 2 or len(starts) > MAX_BOXES:
        return last
    contents: list[str] = []
    for start, end in reversed(list(zip(starts, [*starts[1:], len(text)], strict=True))):
        content = last_box(text[start:end])
        if content is None:
            return last
        rest = text[start:end].partition(content + "}")[2]
        if contents and not _JOINT.fullmatch(rest):
            break
        contents.append(content)
    return ", ".join(reversed(contents))
