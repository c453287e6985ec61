"""What converters leave in statements and answers: characters of text mode, ruled blanks, layout, ends of environments.

A comparison sign written as ``\\textgreater{}``, a degree as ``{}^{}\\circ`` or a blank as ``\\uline{~~~~}`` is the
sign that the verifier and the other rules know. Nothing that is said changes.
"""

import re
from collections.abc import Sequence

_NAMED = {"greater": ">", "less": "<", "bar": "|", "quotesingle": "'", "asciitilde": "~", "asciicircum": "^"}
_CHARACTER = re.compile(rf"\\text({'|'.join(_NAMED)})(?![A-Za-z])(?:\{{\}})?[ ]?")
_RULED = re.compile(r"~?\\uline\{([^{}]*)\}~?")
_REPAIRS: Sequence[tuple[str, re.Pattern[str], str]] = (
    ("\\emph", re.compile(r"\\emph\{([^{}]*)\}"), r"\1"),
    ("\\noindent", re.compile(r"\\noindent(?![A-Za-z])[ \t]*"), " "),
    ("{", re.compile(r"\\(?:begin|end)\{(?:problem|question|exercise|solution)\}[ \t]*\n?"), ""),
)
_GAP = re.compile(r"[ \t]{20,}|(?:\n[ \t]{0,20}){5,}|(?:\\\\\s?){8,}")
_TIES = re.compile(r"~{2,}|(?<=[(（])[\s~]{1,40}(?=[)）])")


def tidied(text: str) -> str:
    """A statement or an answer without remains of its conversion, and without space or line breaks at its end."""
    if "\\" in text:
        if "\\text" in text:
            text = _CHARACTER.sub(lambda found: _NAMED[found[1]], text)
        if "\\uline" in text:
            text = _RULED.sub(_ruled, text)
        for told_by, pattern, instead in _REPAIRS:
            if told_by in text:
                text = pattern.sub(instead, text)
        text = _without_breaks_at_end(text)
    return (_TIES.sub("  ", text) if "~" in text else text).strip()


def _without_breaks_at_end(text: str) -> str:
    text = text.rstrip()
    while text.endswith("\\\\"):
        text = text[:-2].rstrip()
    return text


def narrowed(statement: str) -> str:
    """A statement whose wide gaps, of tables or of layout, are four blanks or lines; rules take the square of a gap."""
    return _GAP.sub(_narrow, statement)


def _narrow(gap: re.Match[str]) -> str:
    return "\\\\ " if gap[0].startswith("\\") else gap[0][:4]


def _ruled(line: re.Match[str]) -> str:
    """A blank to be filled, or the words that a line stands under."""
    return line[1] if re.search(r"\w", line[1].replace("\\", "")) else " ____ "
