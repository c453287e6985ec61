"""What collections leave around a statement: credits, its own answer, requests to translate it, headings, pictures.

Sets for RL that were crawled from forums, scanned, or translated by a model carry such lines. They are no part of the
problem, and an answer that stands in the statement would be what the policy learns to copy.
"""

import re

from magcli.curate.math.asks import holds, masked, sentences, tasks_in

_NAME = r"(?:[A-Z]\.|[A-Z][\w’'-]+|de|van|von|der)"
_CREDIT = re.compile(
    r"(?<=[\s.?!$)\]}:])(?P<open>\*{1,3}|_|\[i\]|\[b\])\s?[(\[]?(?:"
    r"(?:[Pp]roposed|[Aa]uthor|[Ss]ource|[Ss]ubmitted|[Cc]reated|[Ss]uggested|[Pp]osed)\b[^\n$]{0,300}?"
    r"|(?:19|20)\d\d\s+[A-Z][^\n$?=]{2,150}?"
    rf"|{_NAME}(?:,?\s(?:(?:and|&)\s)?{_NAME}){{0,8}}"
    r"|\d{1,3}\s+(?:points?|marks?)"
    r")[)\]]?\.?\s?(?:(?P=open)|\[/[ib]\]|(?<=\w))\.?\s*\Z"
    r"|\n\s*[(\[]?[Pp]roposed\s+by:?\s[^\n$?]{2,150}\s*\Z"
)
_HIDDEN = re.compile(
    r"<details>\s*<summary>\s*(?:solutions?|answers?|proof|spoiler)\b.*?(?:</details>|\Z)"
    r"|\[hide\s*=\s*\"?(?:solutions?|answers?|spoiler)\b.*?(?:\[/hide\]|\Z)",
    re.I | re.S,
)
_ANSWER_TOLD = re.compile(
    r"\n[\s*#]{0,9}(?:final\s+)?(?:answer|ans|result|solution)\b\**\s?[.:：]\**\s*([^\n]{1,200})\s*\Z", re.I
)
_TRANSLATE = re.compile(
    r"(?:\n\s*-{3,}\s*)?\n[ \t]*(?:translat(?:e|ing)\s+the\s+(?:above\s+text|text\s+above)\b[^\n]*"
    r"|保留源文本[^\n]*|(?:the\s+above\s+text\s+is\s+already\b|here\s+is\s+the\s+translat)[^\n]*)",
    re.I,
)
_HEADING = re.compile(r"\n[ \t]*#{1,6}[ \t]*([^\n$?]{0,90})\s*\Z|(?<=[.?!])\s+Solution\s*\Z")
_NEXT_PAGE = re.compile(r"\n[ \t]*#{1,6}[ \t]*[A-Z][A-Z \t]{9,90}\n[^$]*\Z")
_PICTURE = re.compile(
    r"!\[[^\]\n]{0,200}\]\([^)\n]*\)|\[[^\]\n]{1,200}\.(?:png|jpe?g|gif|svg)\]\([^)\n]*\)"
    r"|\bfor\s+(?:the\s+)?(?:diagram|figure|picture),?\s+(?:go\s+to|see)\s+https?://[^\n]*",
    re.I,
)
_PICTURE_SIGNS = ("](", "://")
_MARKS = re.compile(r"\A\s*[(（]\s*\d{1,3}\s*(?:marks?|points?|分)\s*[)）]")
_TAGS = re.compile(r"\[(b|i|u|center|quote)\]((?:[^\[]|\[(?!/\1\])){0,2000})\[/\1\]", re.I)
_SPACELESS = re.compile(r"[\s$.。]+")

LINES_AT_END = 6
"""Lines of remains that are taken from the end of one statement."""


def without_remains(statement: str, answer: str) -> str:
    """A statement without what its collection left around it; one that is nothing else stays as it is."""
    text = _without_echo(statement)
    if "ranslat" in text or "保留源文本" in text:
        text = _once(_TRANSLATE.split(text))
    if "<details" in text or "[hide" in text:
        text = _HIDDEN.sub("", text).rstrip()
    if "# " in text and (page := _NEXT_PAGE.search(text)) and _asks(text[: page.start()]):
        text = text[: page.start()].rstrip()
    for _ in range(LINES_AT_END):
        shorter = _end_cut(text, answer)
        if shorter == text:
            break
        text = shorter
    text = _TAGS.sub(r"\2", text) if "[/" in text else text
    return text if text.strip() else statement


def pictures(statement: str) -> str:
    """The first link to a picture in a statement; empty where there is none."""
    found = _PICTURE.search(statement) if holds(_PICTURE_SIGNS, statement) else None
    return found[0] if found else ""


def without_pictures(statement: str) -> str:
    """A statement without links to pictures, which a policy that reads text cannot follow."""
    return _PICTURE.sub("", statement).strip() if holds(_PICTURE_SIGNS, statement) else statement


def _without_echo(text: str) -> str:
    """A statement without its last lines where they ask word for word what stands before them."""
    end = text[-40:]
    if len(end) < 40 or text.find(end) == len(text) - 40:
        return text
    whole = text[: text.find(end) + 40]
    rest = _MARKS.sub("", text[len(whole) :], count=1)
    echo = _SPACELESS.sub("", rest)
    return whole if len(echo) >= 40 and _asks(rest) and _SPACELESS.sub("", whole).endswith(echo) else text


def _asks(text: str) -> bool:
    """Whether a sentence of a text asks for a value."""
    return any(tasks_in(each) for each in sentences(masked(text)))


def _once(pieces: list[str]) -> str:
    """The pieces between requests to translate, without those that only say an earlier one again."""
    kept: list[str] = []
    for piece in pieces:
        bare = _SPACELESS.sub("", piece)
        if bare and not any(bare in _SPACELESS.sub("", earlier) for earlier in kept):
            kept.append(piece.strip())
    return "\n\n".join(kept)


def _end_cut(text: str, answer: str) -> str:
    """A statement without one heading, credit or told answer at its end; as it is where there is none."""
    tail = text[-400:]
    told = _ANSWER_TOLD.search(tail)
    same = told is not None and _SPACELESS.sub("", told[1]) == _SPACELESS.sub("", answer)
    if told and same:
        return _cut(text, tail, told)
    heading = _HEADING.search(tail) if not told and ("#" in tail or "Solution" in tail) else None
    if heading and not tasks_in(f"{heading[1] or ''}."):
        return _cut(text, tail, heading)
    credited = tail.rstrip(" \n.")[-1:] in ("*", "_", "]", ")") or "roposed by" in tail
    credit = _CREDIT.search(tail) if credited else None
    return _cut(text, tail, credit) if credit else text


def _cut(text: str, tail: str, found: re.Match[str]) -> str:
    """A text without what was found in its tail, and what stands behind that."""
    return text[: len(text) - len(tail) + found.start()].rstrip()
