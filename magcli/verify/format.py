"""The format gate: what a completion must look like before anything in it is graded (recipe, section 2).

A completion starts with the opening tag of its form of thoughts and holds exactly one opening and one closing tag; what
follows is the answer part. The recipe's form is ``<think>`` and ``</think>``;
``magcli.model.chat.thoughts`` has the others.
In a form whose answer has an opening of its own, that must follow the closing tag. For math the last ``\\boxed{}`` of
the answer part is closed and not blank; for code it has at least one closed Markdown block of triple backticks with a
language name. The first rule that is broken is named:

==================  ====================================================================================
``no-think``        it does not start with the opening tag, but for white space
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
from itertools import pairwise
from typing import NamedTuple

from magcli.model.chat.thoughts import THINK, ThoughtForm
from magcli.verify.types import FormatReason

_BOX = re.compile(r"\\boxed\s*\{")
# The start or end of a block; a list item may begin before it on the same line.
_FENCE = re.compile(
    r"^(?P<margin>[ \t]*(?:(?:[-*+]|\d{1,3}[.)])[ \t]+)?)(?P<ticks>`{3,})(?P<name>[^`\n]*)$", re.MULTILINE
)
_LIST_ITEM = re.compile(r"^[ \t]*(?:[-*+]|\d{1,3}[.)])[ \t]", re.MULTILINE)
MAX_MARGIN = 3
"""Spaces that may precede a fence; in a list item they count from the item's text."""
# The first word after the backticks: ``c++``, ``objective-c``.
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
    # Templates such as Mistral's write a space before each answer, so a model that learnt from them samples it too.
    text = text.lstrip()
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
    """The Markdown blocks of triple backticks in order; an unclosed one contains the rest and is the last.

    In a list item the fences and the lines between them are indented, which is no part of the content.
    """
    opened: re.Match[str] | None = None
    item = _LIST_ITEM.search(answer) if "```" in answer else None
    list_start = item.start() if item else len(answer)
    for fence in _FENCE.finditer(answer):
        if opened is None:
            opened = fence if _may_open(fence, list_start) else None
        # Fences within a block that do not close it are its content.
        elif _closes(fence, opened):
            yield Block(_language(opened), _content(opened, answer[opened.end() + 1 : fence.start()]), True)
            opened = None
    if opened is not None:
        yield Block(_language(opened), _content(opened, answer[opened.end() + 1 :]), False)


def _may_open(fence: re.Match[str], list_start: int) -> bool:
    """Whether a fence opens a block: a wider margin than ``MAX_MARGIN`` is that of a list item before it."""
    margin = fence["margin"]
    is_narrow = not margin.strip() and len(margin.expandtabs(4)) <= MAX_MARGIN
    is_in_list = list_start < fence.start("ticks")
    return is_narrow or is_in_list


def _closes(fence: re.Match[str], opened: re.Match[str]) -> bool:
    """Whether a fence closes a block: bare, with as many ticks as the opening one, and not much further right."""
    margin = fence["margin"]
    if fence["name"].strip() or margin.strip() or len(fence["ticks"]) < len(opened["ticks"]):
        return False
    return len(margin.expandtabs(4)) <= len(opened["margin"].expandtabs(4)) + MAX_MARGIN


def _content(opened: re.Match[str], content: str) -> str:
    """The lines of a block without the margin of its opening fence."""
    width = len(opened["margin"])
    # Up to as many blanks: lines may be less indented than the fence.
    if not width:
        return content
    return re.sub(rf"^[ \t]{{1,{width}}}", "", content, flags=re.MULTILINE)


def _language(fence: re.Match[str]) -> str:
    named = _LANGUAGE.match(fence["name"].strip())
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
    # Nothing before the first box is read.
    positions = [text.find(f"\\{command}") for command in commands]
    first = min((at for at in positions if at >= 0), default=-1)
    if first < 0:
        return None
    stack: list[int] = []  # where the content of each open box starts; -1 for a plain brace
    opened = -1  # where the content of the last box starts
    span = (-1, -1)  # the content of the last box that was closed
    first = len(text[:first].rstrip("\\"))  # ``\\boxed`` is a line break and a word
    for match in _tokens(commands).finditer(text, first):
        token = match[0]
        is_escaped = len(token) == 2
        if token == "{":
            stack.append(-1)
        elif token == "}":
            start = stack.pop() if stack else -1
            if start >= 0:
                span = (start, match.start())
        elif not is_escaped:
            opened = match.end()
            stack.append(opened)
    start, end = span
    # The box that was closed last must be the last one, or around it.
    if start < 0 or end < opened:
        return None
    blank = _EMPTY.match(text, opened)
    return blank[1] if blank else text[start:end]


_OR = r"(?:or|oder|ou|o|oppure|или|或者?|또는|または)"
_AND = r"(?:and|und|et|y|e|и|和|与|및|그리고|および)"
# What may stand between two boxes of one answer in a line: commas, spaces, and words for *and* and *or*.
_JOINT = re.compile(
    rf"(?:[^\S\n]|[$,;.、，]|\\[()\[\],;]|\\q?quad|\\text\{{\s*(?:{_AND}|{_OR})\s*\}}"
    rf"|(?<![^\W\d_])(?:{_AND}|{_OR})(?![^\W\d_]))*"
)
_ALTERNATIVE = re.compile(rf"(?<![^\W\d_]){_OR}(?![^\W\d_])")
# The variable whose value a box is: ``x =`` where a formula begins, so that ``2x =`` and ``y + x =`` are none.
_VARIABLE = re.compile(
    r"(?:\A|[$,;:.、，；：。\n]|[^\x00-\x7f]|\\[(\[]|\\q?quad|\\implies|\\(?:Long)?[Rr]ightarrow|\\text\{[^{}]*\}"
    r"|(?<![\\A-Za-z])[A-Za-z]{2,}(?=\s))\s*(?P<equals>(?P<name>[A-Za-z]|\\[A-Za-z]+)\s*=[\s$]*)\Z"
)
MAX_VARIABLE = 40
"""Characters before a box in which its variable is looked for."""
MAX_BOXES = 50


def boxed_answer(text: str, commands: tuple[str, ...] = ("boxed", "fbox")) -> str | None:
    """What a text has in its last box, or in its last boxes if a comma or conjunction joins them in one line.

    Each may be the value of the same variable: ``x=\\boxed{2}`` or ``x=\\boxed{-2}``. Boxes below each other are steps,
    of which the last one counts. A box that holds only a box is that box.

    Args:
        text: An answer part, a ground truth or a worked solution.
        commands: What the last box may be. The format of completions requires ``boxed``.

    Returns:
        None without a box or if the last one is unclosed.
    """
    last = last_box(text, commands)
    if last is None:
        return None
    answer = _joined(text, last) or last
    inner = last_box(answer)
    opened = _OPENED.match(answer.strip())
    return inner if inner and opened and f"{opened[0]}{inner}}}" == answer.strip() else answer


def _joined(text: str, last: str) -> str | None:
    """The contents of the boxes that commas or conjunctions join with the last one; None if it is alone."""
    starts = [match.start() for match in _OPENED.finditer(text)]
    # From each box to the next one, or to the end.
    spans = pairwise([*starts, len(text)])
    # Contents and separators in turn, from the last box backwards.
    parts: list[str] = []
    variable: re.Match[str] | None = None
    for start, end in reversed(list(spans)):
        segment = text[start:end]
        content = last_box(segment)
        # Nested boxes, or the last one does not count.
        if content is None or (not parts and content != last):
            return None
        _, _, behind = segment.partition(content + "}")
        next_variable, variable = variable, _VARIABLE.search(text, max(0, start - MAX_VARIABLE), start)
        if parts:
            if variable and next_variable and variable["name"] == next_variable["name"]:
                behind = behind.removesuffix(next_variable["equals"])
            # Any other words: the box belongs to an earlier step.
            if not _JOINT.fullmatch(behind):
                break
            parts.append(r" \text{ or } " if _ALTERNATIVE.search(behind) else ", ")
        parts.append(content)
        if len(parts) > 2 * MAX_BOXES:
            return None
    # The same answer twice is one.
    contents = set(parts[::2])
    return "".join(reversed(parts)) if len(contents) > 1 and last.strip() else None
