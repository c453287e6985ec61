"""Remove what is not part of a problem: LaTeX left by converters, credits, headings, stated answers, picture links.

Problems crawled from forums, scanned, or translated by a model carry such text; an answer inside the statement would be
what the policy learns to copy. Comparison signs such as ``\\textgreater{}`` and blanks such as ``\\uline{~~~~}`` become
the characters that the verifier and the other rules know.
"""

import re

from magcli.curate.math.rules import RULES
from magcli.curate.math.tasks import count_tasks

MAX_TRAILING = 6
"""Maximum number of lines removed from the end of a statement."""
_CHARACTERS = {"greater": ">", "less": "<", "bar": "|", "quotesingle": "'", "asciitilde": "~", "asciicircum": "^"}
_CHARACTER = re.compile(rf"\\text({'|'.join(_CHARACTERS)})(?![A-Za-z])(?:\{{\}})?[ ]?")
_UNDERLINE = re.compile(r"~?\\uline\{([^{}]*)\}~?")
_EMPHASIS = re.compile(r"\\emph\{([^{}]*)\}")
_NO_INDENT = re.compile(r"\\noindent(?![A-Za-z])[ \t]*")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{(?:problem|question|exercise|solution)\}[ \t]*\n?")
_GAP = re.compile(r"[ \t]{20,}|(?:\n[ \t]{0,20}){5,}|(?:\\\\\s?){8,}")
_TIES = re.compile(r"~{2,}|(?<=[(（])[\s~]{1,40}(?=[)）])")
_CUT = "\x1e"
_IGNORED = re.compile(r"[\s$.。]+")


def without_boilerplate(statement: str, answer: str) -> str:
    """The statement without boilerplate; unchanged if it is nothing else."""
    text = _without_repetitions(RULES.replace("translation", statement, _CUT))
    text = RULES.replace("hidden", text, "").rstrip()
    for _ in range(MAX_TRAILING):
        if (start := _trailing(text, answer)) is None:
            break
        text = text[:start].rstrip()
    text = RULES.replace("tag", text, r"\2")
    return text if text.strip() else statement


def picture_link(statement: str) -> str:
    """The first link to a picture; empty for none."""
    found = RULES.find("picture", statement)
    return found[0] if found else ""


def without_pictures(statement: str) -> str:
    """The statement without links to pictures, which a text model cannot see."""
    return RULES.replace("picture", statement, "").strip() if "](" in statement or "://" in statement else statement


def clean_markup(text: str) -> str:
    """A statement or an answer without converters' LaTeX, and without trailing spaces and line breaks."""
    if "\\" in text:
        text = _CHARACTER.sub(lambda found: _CHARACTERS[found[1]], text)
        text = _UNDERLINE.sub(_underlined, text)
        text = _ENVIRONMENT.sub("", _NO_INDENT.sub(" ", _EMPHASIS.sub(r"\1", text))).rstrip()
        while text.endswith("\\\\"):
            text = text[:-2].rstrip()
    return (_TIES.sub("  ", text) if "~" in text else text).strip()


def collapse_gaps(statement: str) -> str:
    """The statement with wide gaps shortened, as some rules take quadratic time on them."""
    return _GAP.sub(lambda gap: "\\\\ " if gap[0].startswith("\\") else gap[0][:4], statement)


def _without_repetitions(text: str) -> str:
    """The parts between requests to translate, except those that repeat an earlier one."""
    if _CUT not in text:
        return text
    kept: list[str] = []
    for part in text.split(_CUT):
        plain = _IGNORED.sub("", part)
        if plain and not any(plain in _IGNORED.sub("", earlier) for earlier in kept):
            kept.append(part.strip())
    return "\n\n".join(kept)


def _trailing(text: str, answer: str) -> int | None:
    """Where a stated answer, heading or credit at the end of a statement begins."""
    offset = max(0, len(text) - 400)
    tail = text[offset:]
    stated = RULES.find("stated-answer", tail)
    if stated and _IGNORED.sub("", stated[1]) == _IGNORED.sub("", answer):
        return offset + stated.start()
    heading = None if stated else RULES.find("heading", tail)
    if heading and not count_tasks(f"{heading[1] or ''}."):
        return offset + heading.start()
    may_credit = tail.rstrip(" \n.")[-1:] in ("*", "_", "]", ")") or "roposed by" in tail
    credit = RULES.find("credit", tail) if may_credit else None
    return offset + credit.start() if credit else None


def _underlined(line: re.Match[str]) -> str:
    """A blank to fill in, or the underlined words."""
    return line[1] if re.search(r"\w", line[1].replace("\\", "")) else " ____ "
