"""Multiple-choice questions: find the options in a statement, and ask the question without them.

An open question is harder than the choice and leaves nothing to guess (recipe, section 4).
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

LETTERS = "ABCDEFGHIJ"
_SERIES = (LETTERS, "FGHJK")
"""Names of options in order; every second question of the ACT has the later ones."""
_HINT = re.compile(r"[BbG]\s*\}?\s*[)）.．、:：]")
_STYLES = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?:\\(?:text|textbf|mathrm|textrm)\s*\{){1,4}\s*[(（]?\s*([A-Ka-k])\s*"
        r"(?:[)）.:](?:\\[ ,;]|[~\s])*\}+|\}+\s*[)）.:])[.:]?",
        r"[(（]\s*([A-Ka-k])\s*[)）][.:：．、]?",
        r"(?<![A-Za-z0-9_\\{^(（])([A-Ka-k])\s*[)）]",
        r"(?<![A-Za-z0-9_\\{^$])([A-K])\s*[.．、：:](?!\d*[A-Za-z]\.)",
    )
)
_MARKED = re.compile(r"(?<![A-Za-z0-9_\\])([A-D])\s*[.．、)）]")
_ROWS = r"\{(?:align|aligned|gather|flalign|enumerate)\*?\}"
_BETWEEN = rf"\\(?:begin|end){_ROWS}|" r"\\q?quad|\\[ ,;!:]|\\textbf\{?|\\text\{?|\\\\|[~&,;，；。．\s]"
_LEADING = re.compile(rf"^(?:{_BETWEEN})+(?!\w*\}})")
_TRAILING = re.compile(rf"(?:{_BETWEEN}|(?<!\.)\.)+$")
_STEM_END = re.compile(rf"(?:\\begin{_ROWS}|" r"\s|\\\\|&|\\q?quad|~|\\\[|\\(?:text|textbf|mathrm|textrm)\s*\{?)+$")
_LINE = re.compile(r"\s*[(（]?([AB])[)）.．、:：][ \t]*(\S.*?)\s*")
_HEADING = re.compile(r"(?:\b(?:answer |the )?(?:options|choices|alternatives)\s*(?:are)?|选项)\s*[:：]?\s*$", re.I)
_LETTER_ANSWER = re.compile(
    r"^[\s$]*(?:(?:the )?(?:correct )?(?:answer|option|choice)(?: is)?\s*:?\s*)?"
    r"(?:\\(?:text|textbf|mathrm|textrm|mathbf)\{)*[(（\[]?\s*([A-K])\s*[)）\]]?\}*[\s$.)．,]*$"
)
_LETTER_LIST = re.compile(
    r"^[\s$]*(?:\\text\{)?[(（]?[A-J][)）]?(?:\s*(?:,|，|、|and|&)?\s*[(（]?[A-J][)）]?)+\}?[\s$.]*$"
)
_LETTERED = re.compile(r"[\s$]*[(（]\s*[A-K]\s*[)）]\s*[.．、:：]?\s*(?=\S)(?!\s*[，,、(（])")
_SET_UNIT = re.compile(r"\\(?:rm|text(?:rm)?|mathrm|space)(?![A-Za-z])|\\(?=min\b)|\\[,; ]|[{}$~\s]")
_UNIT = r"(?:h(?:ou)?rs?|h|min(?:ute)?s?|sec(?:ond)?s?|days?|weeks?|months?|years?|k?g|[kcm]?m|m?l|[ap]\.?\s?m)\.?"
_MEASURED = re.compile(rf"\d[\d.,]*\s*{_UNIT}(?:\s*(?:and|,)?\s*\d[\d.,]*\s*{_UNIT})?", re.I)
_BLANKS = re.compile(r"\s+")
_FRACTION = re.compile(r"\\[dt]?frac\s*(?:\{((?:[^{}]|\{[^{}]*\})*)\}|(\d))\s*")
_DRESSING = re.compile(r"[\s$(){}（）.．:、]|\\(?:text|textbf|left|right|[,;! ])")


class Choices(NamedTuple):
    """A statement without its options, the options' contents by letter, and what follows the last option."""

    stem: str
    contents: Mapping[str, str]
    after: str = ""


def with_options(prompt: str, options: object) -> str:
    """Append options that stand in a column of their own: a list, a mapping by letter, or one text.

    ``["A)1", "B)240"]``, ``{"A": "1", "B": "240"}``, ``"A) 1 B) 240"`` and None are what data sets hold.
    """
    if isinstance(options, str):
        return f"{prompt}\n{options}" if options.strip() else prompt
    if isinstance(options, Mapping):
        listed = [f"({letter}) {content}" for letter, content in options.items() if content is not None]
    elif isinstance(options, Sequence):
        listed = [_labelled(index, str(content)) for index, content in enumerate(options)]
    else:
        return prompt
    return "\n".join([prompt, *listed])


def split_options(prompt: str) -> Choices | None:
    """Find three or more options A, B, C... at the end of a statement; None where there are none."""
    if not _HINT.search(prompt):
        return None
    for style in _STYLES:
        marks = _run(list(style.finditer(prompt)))
        if len(marks) >= 3:
            return _cut(prompt, marks)
    return None


def two_options(prompt: str) -> Choices | None:
    """Two options A and B in lines of their own at the end of a statement: options only if the answer is a letter."""
    stem, *lines = _last_lines(prompt, 2)
    found = [_LINE.fullmatch(line) for line in lines]
    contents = {option[1]: _trim(option[2]) for option in found if option}
    return Choices(_trim_end(_HEADING.sub("", _trim_end(stem))), contents) if list(contents) == ["A", "B"] else None


def lists_options(prompt: str) -> bool:
    """Whether three of the letters A to D stand before options, even where these cannot be told apart."""
    return len(set(_MARKED.findall(prompt))) >= 3


def letter_of(answer: str) -> str | None:
    """The letter that an answer names, as in ``B``, ``(B)``, ``\\text{(B)}`` or ``Answer: B``; else None."""
    named = _LETTER_ANSWER.match(answer)
    return named[1] if named else None


def unlettered(answer: str) -> str:
    """What an answer holds behind the letter of its option, as in ``(B) 240``; empty when it begins with no letter."""
    lettered = _LETTERED.match(answer)
    return answer[lettered.end() :] if lettered else ""


def names_letters(answer: str) -> bool:
    """Whether an answer names several options: ``A, C`` or ``ABD``."""
    return bool(_LETTER_LIST.match(answer))


def right_content(choices: Choices, answer: str) -> str | None:
    """The content of the right option, for an answer given as its letter, as both, or as the content itself."""
    letter = letter_of(answer)
    if letter:
        return choices.contents.get(letter)
    plain = _plain(answer)
    for name, content in choices.contents.items():
        if plain in (_plain(content), _plain(f"{name}{content}")):
            return content
    return choices.contents.get(letter_of(answer.upper()) or "")


def measured(content: str) -> str:
    """A measure in plain text where its numbers or units stand in formulas, as in ``$2$ h``; other content as it is."""
    plain = _BLANKS.sub(" ", _SET_UNIT.sub(" ", content)).strip(" .")
    return plain if _MEASURED.fullmatch(plain) else content


def _last_lines(text: str, count: int) -> list[str]:
    """What stands before the last ``count`` lines that are not empty, and these lines."""
    lines: list[str] = []
    while text and len(lines) < count:
        text, _, line = text.rstrip().rpartition("\n")
        lines.insert(0, line)
    return [text, *lines]


def _labelled(index: int, content: str) -> str:
    letter = LETTERS[index % len(LETTERS)]
    bare = re.sub(rf"^(?:\s*[(（]?\s*{letter}\s*[)）.．:、]\s*)+", "", content)
    return f"({letter}) {bare}"


def _run(marks: list[re.Match[str]]) -> list[re.Match[str]]:
    """The last unbroken run A, B, C... among the marks, all in the case of its first."""
    start, names = max((_last_start(marks, names), names) for names in (*_SERIES, LETTERS.lower()))
    run = marks[start : start + 1] if start >= 0 else []
    for mark in marks[start + 1 :] if run else ():
        if len(run) < len(names) and mark[1] == names[len(run)]:
            run.append(mark)
    return run


def _last_start(marks: Sequence[re.Match[str]], names: str) -> int:
    """Where the last run of at least three of these names begins; -1 where there is none."""
    place = len(marks)
    for name in names[2::-1]:
        place = next(
            (
                index
                for index in reversed(range(place))
                if marks[index][1] == name and (name != names[0] or not _follows_word(marks[index]))
            ),
            -1,
        )
    return place


def _follows_word(mark: re.Match[str]) -> bool:
    """Whether the mark is glued to a word or number, as in f(A) or P(A), which are written with narrow brackets."""
    if mark[0][0] == "（":
        return False
    before = mark.string[max(0, mark.start() - 1) : mark.start()]
    return before.isascii() and before.isalnum()


def _cut(prompt: str, marks: list[re.Match[str]]) -> Choices:
    ends = [*(mark.start() for mark in marks), len(prompt)]
    raw = [prompt[mark.end() : stop] for mark, (_, stop) in zip(marks, pairwise(ends), strict=True)]
    last, _, after = raw[-1].strip().partition("\n\n")
    contents = {mark[1].upper(): _trim(text) for mark, text in zip(marks, [*raw[:-1], last], strict=True)}
    stem = _HEADING.sub("", _trim_end(prompt[: marks[0].start()]))
    return Choices(_trim_end(stem), contents, after)


def _trim(content: str) -> str:
    """An option's content without the spacing and punctuation between options; unpaired dollars removed."""
    trimmed = _TRAILING.sub("", _LEADING.sub("", content))
    if trimmed.count("$") % 2 and not re.match(r"\\?\$\s*\d[\d,.]*$", trimmed):
        trimmed = trimmed.strip("$").strip() if trimmed.startswith("$") or trimmed.endswith("$") else trimmed
    return _TRAILING.sub("", _balanced(trimmed))


def _balanced(content: str) -> str:
    """Without the closing brace of a ``\\textbf{`` that opened before the option's letter."""
    if content.count("}") <= content.count("{"):
        return content
    opened = re.match(r"(?:\\ |\s)*\}(?:\\ |\s)*", content)
    return content[opened.end() :] if opened else content.removesuffix("}")


def _trim_end(stem: str) -> str:
    stem = _STEM_END.sub("", stem)
    if stem.count("$") % 2 and stem.endswith("$"):
        stem = _STEM_END.sub("", stem.removesuffix("$"))
    return stem


def _plain(text: str) -> str:
    return _DRESSING.sub("", _FRACTION.sub(r"\1\2/", text))
