"""The format gate: what a completion must look like before anything in it is graded (recipe, section 2).

A completion starts with the opening tag of its form of thoughts and holds exactly one opening and one closing tag; what
follows is the answer part. The recipe's form is ``<think>`` and ``</think>``; ``magcli.model.thoughts`` has the others.
In a form whose answer has an opening of its own, that must follow the closing tag. For math the last ``\\boxed{}`` of
the answer part is closed and not blank; for code it has at least one closed Markdown block of triple backticks with a
language name. The first rule that is broken is named:

==================  ====================================================================================
``no-think``        it does not start with the opening tag
``repeated-think``  a tag occurs more than once, in the answer part too
``unclosed-think``  there is no closing tag, or the opening of the answer does not follow it
``no-box``          math: no ``\\boxed{`` in the answer part
``unclosed-box``    math: the brace of the last box is never closed
``empty-box``       math: the last box holds nothing but blanks
``no-code``         code: no block of triple backticks in the answer part
``unclosed-code``   code: a block opens, none is closed
``unnamed-code``    code: no closed block names its language
==================  ====================================================================================

All functions are pure and take time linear in the text.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from magcli.model.thoughts import THINK, ThoughtForm
from magcli.verify.types import FormatReason

_BOX = re.compile(r"\\boxed\s*\{")
_FENCE = re.compile(r"^ {0,3}(`{3,})([^`\n]*)$", re.MULTILINE)
_LANGUAGE = re.compile(r"[A-Za-z][\w+#.-]*")


class Parts(NamedTuple):
    """The two parts of a well-formed completion, without tags."""

    thoughts: str
    answer: str


class Block(NamedTuple):
    """A Markdown block of triple backticks: its language name (empty if it has none) and content."""

    language: str
    text: str
    closed: bool


def split(text: str, form: ThoughtForm = THINK) -> Parts | FormatReason:
    """The thoughts and the answer part, or the first violated rule about the tags."""
    if not text.startswith(form.opening):
        return "no-think"
    if text.count(form.opening) > 1 or text.count(form.closing) > 1:
        return "repeated-think"
    thoughts, close, answer = text[len(form.opening) :].partition(form.closing)
    if not close:
        return "unclosed-think"
    if form.answer_opening:
        return _after_opening(thoughts, answer, form.answer_opening)
    return Parts(thoughts, answer)


def _after_opening(thoughts: str, answer: str, opening: str) -> Parts | FormatReason:
    """The parts if the answer begins with its opening, which occurs once."""
    if answer.count(opening) > 1:
        return "repeated-think"
    between, opened, rest = answer.partition(opening)
    return Parts(thoughts, rest) if opened and not between.strip() else "unclosed-think"


def gate(text: str, kind: str = "math", form: ThoughtForm = THINK) -> Parts | FormatReason:
    """The parts if the format is right, else the first violated rule.

    Args:
        text: The whole completion.
        kind: ``math`` requires a box, ``code`` a code block.
        form: The form of thoughts.
    """
    parts = split(text, form)
    if isinstance(parts, str):
        return parts
    return (_code_fault if kind == "code" else _box_fault)(parts.answer) or parts


def _box_fault(answer: str) -> FormatReason | None:
    content = boxed(answer)
    if content is None:
        return "unclosed-box" if _BOX.search(answer) else "no-box"
    return None if content.strip() else "empty-box"


def boxed(answer: str) -> str | None:
    """The content of the last ``\\boxed{}``; None without one or if it is never closed."""
    return last_box(answer, ("boxed",))


def _code_fault(answer: str) -> FormatReason | None:
    fault: FormatReason = "no-code"
    for block in blocks(answer):
        if not block.closed:
            return "unclosed-code" if fault == "no-code" else fault
        if block.language:
            return None
        fault = "unnamed-code"
    return fault


def blocks(answer: str) -> Iterator[Block]:
    """The Markdown blocks of triple backticks in order; an unclosed one contains the rest and is the last."""
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(answer):
        if opened is None:
            opened = fence
        elif not fence[2].strip() and len(fence[1]) >= len(opened[1]):
            yield Block(_language(opened), answer[opened.end() + 1 : fence.start()], True)
            opened = None
    if opened is not None:
        yield Block(_language(opened), answer[opened.end() + 1 :], False)


def _language(fence: re.Match[str]) -> str:
    named = _LANGUAGE.match(fence[2].strip())
    return named[0] if named else ""


_EMPTY = re.compile(r"(\s*)\}")
_OPENED = re.compile(r"\\f?box(?:ed)?\s*\{")


@lru_cache(maxsize=8)
def _tokens(commands: Sequence[str]) -> re.Pattern[str]:
    """An opening box, an escaped character (``\\{`` is not a brace), or a brace."""
    return re.compile(rf"\\(?:{'|'.join(commands)})\s*\{{|\\.|[{{}}]", re.DOTALL)


def last_box(text: str, commands: tuple[str, ...] = ("boxed", "fbox")) -> str | None:
    """The content of the last opened box, or of the closed box around it; None without a box or if unclosed.

    A blank last box is empty, whatever is around it. Spaces are allowed before the brace; ``\\boxed 5`` is not a box.
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
    """The content of the last box, with those of preceding boxes separated only by commas, ``and`` or ``or``.

    None without a box, if the last one is unclosed, or for more than ``MAX_BOXES``.
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
