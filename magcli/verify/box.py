"""Finding ``\\boxed{}`` by brace matching, in one pass over the text."""

import re
from collections.abc import Sequence
from functools import lru_cache


@lru_cache(maxsize=8)
def _tokens(commands: Sequence[str]) -> re.Pattern[str]:
    """A box that opens, an escaped character (``\\{`` is no brace), or a brace."""
    return re.compile(rf"\\(?:{'|'.join(commands)})\s*\{{|\\.|[{{}}]", re.DOTALL)


def last_box(text: str, commands: tuple[str, ...] = ("boxed", "fbox")) -> str | None:
    """The content of the last box that opens, or of the closed box around it; None without a box or when unclosed.

    Spaces may stand before the brace; ``\\boxed 5`` is no box.
    """
    first = min((at for command in commands if (at := text.find(f"\\{command}")) >= 0), default=-1)
    if first < 0:
        return None
    stack: list[int] = []  # where the content of each open box starts; -1 for a plain brace
    opened, found = -1, (-1, -1)
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
    return text[slice(*found)] if opened <= found[1] and found[0] >= 0 else None
