"""Multiple-choice questions: find the options in a statement, and ask the question without them.

An open question is harder and leaves nothing to guess (recipe, section 4). Some questions make no sense without their
options: many numbers answer "which of the following is a prime?", but only one "which of the following is its area?".
"""

import re
from collections.abc import Mapping, Sequence
from itertools import cycle, zip_longest
from typing import NamedTuple

from magcli.curate.math.rules import RULES

LETTERS = "ABCDEFGHIJ"
_SERIES = (LETTERS, "FGHJK")
"""Names of options in order; every second question of the ACT has the later ones."""
# The label of a second option, B or G. The slower patterns of ``_STYLES`` are tried only on statements with one.
_MAY_HAVE_OPTIONS = re.compile(r"[BbG]\s*\}?\s*[)）.．、:：]")
# Labels in LaTeX such as \textbf{(A)}, then (A), A) and A.
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
# Labels of options that may run into each other, so that they cannot be split.
_LETTER_LABEL = re.compile(r"(?<![A-Za-z0-9_\\])([A-D])\s*[.．、)）]")
_ENVIRONMENTS = r"\{(?:align|aligned|gather|flalign|enumerate)\*?\}"
# What stands around an option and is no part of it: layout, spacing and punctuation.
_SEPARATOR = rf"\\(?:begin|end){_ENVIRONMENTS}|" r"\\q?quad|\\[ ,;!:]|\\textbf\{?|\\text\{?|\\\\|[~&,;，；。．\s]"
# Not a \text that belongs to the option, as its brace closes after a word.
_LEADING = re.compile(rf"^(?:{_SEPARATOR})+(?!\w*\}})")
_TRAILING = re.compile(rf"(?:{_SEPARATOR}|(?<!\.)\.)+$")
_STEM_END = re.compile(
    rf"(?:\\begin{_ENVIRONMENTS}|" r"\s|\\\\|&|\\q?quad|~|\\\[|\\(?:text|textbf|mathrm|textrm)\s*\{?)+$"
)
# (A) text, A) text, A. text on a line of its own
_OPTION_LINE = re.compile(r"\s*[(（]?([AB])[)）.．、:：][ \t]*(\S.*?)\s*")
_HEADING = re.compile(r"(?:\b(?:answer |the )?(?:options|choices|alternatives)\s*(?:are)?|选项)\s*[:：]?\s*$", re.I)
_LETTER_ANSWER = re.compile(
    r"^[\s$]*(?:(?:the )?(?:correct )?(?:answer|option|choice)(?: is)?\s*:?\s*)?"
    r"(?:\\(?:text|textbf|mathrm|textrm|mathbf)\{)*[(（\[]?\s*([A-K])\s*[)）\]]?\}*[\s$.)．,]*$"
)
# A, C; ABD; (A) and (B)
_LETTER_LIST = re.compile(
    r"^[\s$]*(?:\\text\{)?[(（]?[A-J][)）]?(?:\s*(?:,|，|、|and|&)?\s*[(（]?[A-J][)）]?)+\}?[\s$.]*$"
)
# The letter before an option, with more after it; not the first of a list such as (A), (B).
_LEADING_LETTER = re.compile(r"[\s$]*[(（]\s*[A-K]\s*[)）]\s*[.．、:：]?\s*(?=\S)(?!\s*[，,、(（])")
# LaTeX around units, also a backslash before min, which is a function otherwise.
_UNIT_MARKUP = re.compile(r"\\(?:rm|text(?:rm)?|mathrm|space)(?![A-Za-z])|\\(?=min\b)|\\[,; ]|[{}$~\s]")
_UNIT = r"(?:h(?:ou)?rs?|h|min(?:ute)?s?|sec(?:ond)?s?|days?|weeks?|months?|years?|k?g|[kcm]?m|m?l|[ap]\.?\s?m)\.?"
# 2 h, 1 hour and 30 minutes
_MEASURED = re.compile(rf"\d[\d.,]*\s*{_UNIT}(?:\s*(?:and|,)?\s*\d[\d.,]*\s*{_UNIT})?", re.I)
_BLANKS = re.compile(r"\s+")
# $ 5.20, whose dollar sign is no half of a pair
_PRICE = re.compile(r"\\?\$\s*\d[\d,.]*$")
# \frac{1}{2}, \frac12; the denominator follows
_FRACTION = re.compile(r"\\[dt]?frac\s*(?:\{((?:[^{}]|\{[^{}]*\})*)\}|(\d))\s*")
_MARKUP = re.compile(r"[\s$(){}（）.．:、]|\\(?:text|textbf|left|right|[,;! ])")
# a=1, b=2
_ASSIGNMENTS = re.compile(r"[\s$]*[A-Za-z]\s*=\s*[^=,，;<>≠]+(?:[,，;、]\s*\$?\s*[A-Za-z]\s*=\s*[^=,，;<>≠]+)*")
_ENDS_IN_CHINESE = re.compile(r"[\u4e00-\u9fff][^\u4e00-\u9fff]{0,30}\Z")
# A number with at most a measure word.
_NUMBER = re.compile(r"[\s$]*[-+]?\d[\d.,/]*[\s$%]*[\u4e00-\u9fff]{0,3}")
# Three significant digits: what a rounded value has, rather than a choice of round numbers.
_THREE_DIGITS = re.compile(r"[\D0]{0,20}[1-9](?:\D{0,9}\d){2}")


class Choices(NamedTuple):
    """A statement without its options, the options by letter, and the text after the last one."""

    stem: str
    options: Mapping[str, str]
    after: str = ""


def append_options(prompt: str, options: object) -> str:
    """Append the options of a separate column: a list, a mapping by letter, one text, or None.

    For example ``["A)1", "B)240"]``, ``{"A": "1", "B": "240"}``, or ``"A) 1 B) 240"``.
    """
    if isinstance(options, str):
        return f"{prompt}\n{options}" if options.strip() else prompt
    # ARC has the texts and their labels in lists of their own.
    if isinstance(options, Mapping) and isinstance(options.get("text"), list):
        options = options["text"]
    if isinstance(options, Mapping):
        listed = [f"({letter}) {option}" for letter, option in options.items() if option is not None]
    elif isinstance(options, Sequence):
        listed = [_labelled(letter, str(option)) for letter, option in zip(cycle(LETTERS), options, strict=False)]
    else:
        return prompt
    return "\n".join([prompt, *listed])


def split_options(prompt: str) -> Choices | None:
    """Find three or more options A, B, C... at the end of a statement; None if there are none."""
    if not _MAY_HAVE_OPTIONS.search(prompt):
        return None
    for style in _STYLES:
        labels = _last_run(list(style.finditer(prompt)))
        if len(labels) >= 3:
            return _split_at(prompt, labels)
    return None


def split_two_options(prompt: str) -> Choices | None:
    """Find two options A and B on separate lines at the end, which are options only if the answer is a letter."""
    stem, *lines = _last_lines(prompt, 2)
    matches = [_OPTION_LINE.fullmatch(line) for line in lines]
    options = {match[1]: _trim(match[2]) for match in matches if match}
    if list(options) != ["A", "B"]:
        return None
    return Choices(_trim_end(_HEADING.sub("", _trim_end(stem))), options)


def has_option_labels(prompt: str) -> bool:
    """Whether three of the letters A to D label options, even if these cannot be separated."""
    return len(set(_LETTER_LABEL.findall(prompt))) >= 3


def option_letter(answer: str) -> str | None:
    """The letter that an answer consists of, as in ``B``, ``(B)``, ``\\text{(B)}`` or ``Answer: B``; else None."""
    match = _LETTER_ANSWER.match(answer)
    return match[1] if match else None


def without_letter(answer: str) -> str:
    """The option in an answer such as ``(B) 240``, without its letter; empty if there is no letter."""
    match = _LEADING_LETTER.match(answer)
    return answer[match.end() :] if match else ""


def is_letter_list(answer: str) -> bool:
    """Whether an answer consists of several letters: ``A, C`` or ``ABD``."""
    return bool(_LETTER_LIST.match(answer))


def right_option(choices: Choices, answer: str) -> str | None:
    """The right option, if the answer is its letter, its text, or both."""
    letter = option_letter(answer)
    if letter:
        return choices.options.get(letter)
    # Options are compared without markup, as the answer is often typeset otherwise.
    plain = _plain(answer)
    for name, option in choices.options.items():
        if plain in (_plain(option), _plain(f"{name}{option}")):
            return option
    return choices.options.get(option_letter(answer.upper()) or "")


def plain_measure(option: str) -> str:
    """A number with a unit as plain text, such as ``2 h`` for ``$2$ h``; other options unchanged."""
    plain = _BLANKS.sub(" ", _UNIT_MARKUP.sub(" ", option)).strip(" .")
    return plain if _MEASURED.fullmatch(plain) else option


def _last_lines(text: str, count: int) -> list[str]:
    """The text before the last ``count`` non-empty lines, and these lines."""
    lines: list[str] = []
    while text and len(lines) < count:
        text, _, line = text.rstrip().rpartition("\n")
        lines.insert(0, line)
    return [text, *lines]


def _labelled(letter: str, option: str) -> str:
    """An option after its label, which it may have itself."""
    text = re.sub(rf"^(?:\s*[(（]?\s*{letter}\s*[)）.．:、]\s*)+", "", option)
    return f"({letter}) {text}"


def _last_run(labels: list[re.Match[str]]) -> list[re.Match[str]]:
    """The last unbroken run A, B, C... among the labels, in upper or lower case."""
    # The series whose run starts last.
    runs = [(_last_start(labels, letters), letters) for letters in (*_SERIES, LETTERS.lower())]
    start, letters = max(runs)
    if start < 0:
        return []
    run = [labels[start]]
    for label in labels[start + 1 :]:
        if len(run) < len(letters) and label[1] == letters[len(run)]:
            run.append(label)
    return run


def _last_start(labels: Sequence[re.Match[str]], letters: str) -> int:
    """The start of the last run of at least three of the letters; -1 for none."""
    start = len(labels)
    # From the third letter back to the first.
    for letter in letters[2::-1]:
        matching = [index for index in range(start) if labels[index][1] == letter]
        if letter == letters[0]:
            matching = [index for index in matching if not _follows_word(labels[index])]
        if not matching:
            return -1
        start = matching[-1]
    return start


def _follows_word(label: re.Match[str]) -> bool:
    """Whether a label directly follows a word or number, as in f(A) or P(A), which have narrow brackets."""
    # Full-width brackets are not used for the arguments of functions.
    if label[0][0] == "（":
        return False
    before = label.string[max(0, label.start() - 1) : label.start()]
    return before.isascii() and before.isalnum()


def _split_at(prompt: str, labels: list[re.Match[str]]) -> Choices:
    # An option ends where the next label begins, and the last one at the end of its paragraph.
    options = {}
    after = ""
    for label, following in zip_longest(labels, labels[1:]):
        if following:
            text = prompt[label.end() : following.start()]
        else:
            text, _, after = prompt[label.end() :].strip().partition("\n\n")
        letter = label[1].upper()
        options[letter] = _trim(text)
    before = _trim_end(prompt[: labels[0].start()])
    stem = _trim_end(_HEADING.sub("", before))
    return Choices(stem, options, after)


def _trim(option: str) -> str:
    """An option without the spacing and punctuation around it; unpaired dollar signs removed."""
    trimmed = _TRAILING.sub("", _LEADING.sub("", option))
    dollar_outside = trimmed.startswith("$") or trimmed.endswith("$")
    if dollar_outside and trimmed.count("$") % 2 and not _PRICE.match(trimmed):
        trimmed = trimmed.strip("$").strip()
    return _TRAILING.sub("", _balanced(trimmed))


def _balanced(option: str) -> str:
    """An option without the closing brace of a ``\\textbf{`` before its letter."""
    if option.count("}") <= option.count("{"):
        return option
    # The brace may be at the start, where the letter was cut off, or at the end.
    brace = re.match(r"(?:\\ |\s)*\}(?:\\ |\s)*", option)
    return option[brace.end() :] if brace else option.removesuffix("}")


def _trim_end(stem: str) -> str:
    stem = _STEM_END.sub("", stem)
    if stem.count("$") % 2 and stem.endswith("$"):
        stem = _STEM_END.sub("", stem.removesuffix("$"))
    return stem


def _plain(text: str) -> str:
    return _MARKUP.sub("", _FRACTION.sub(r"\1\2/", text))


# ---- questions without their options ----


def needs_options(choices: Choices, right: str = "") -> bool:
    """Whether a question cannot be answered without its options ("which of the following ...").

    "The following" in Chinese may refer to a table or rule in the statement, so if the right option is a number only
    the last sentence counts. "Then ( )" asks nothing, unless the right option gives values to letters of the statement.
    A statement in English and then in Chinese asks in Chinese.
    """
    stem, end = choices.stem, choices.stem[-300:]
    following = ("following-zh-before-number", end) if _NUMBER.fullmatch(right) else ("following-zh", stem)
    return (
        "?" in choices.after
        or (not _ENDS_IN_CHINESE.search(end) and RULES.matches("needs-options", stem))
        or RULES.matches("needs-options-zh", stem)
        or RULES.matches(*following)
        or (RULES.matches("then-what", end) and not _assigns_letters(choices, right))
        or (bool(choices.options) and RULES.matches("points-at-options", stem))
        or (RULES.matches("relation", right) and RULES.matches("then-relation", stem))
    )


def has_equal_equations(choices: Choices) -> bool:
    """Whether two options are the same equation, because indices or signs that distinguished them were lost."""
    equations = [option for option in choices.options.values() if re.search(r"[A-Za-z]\s*=", option)]
    return len({re.sub(r"[\s${}.．]", "", equation) for equation in equations}) < len(equations)


def as_open_question(choices: Choices, right: str) -> Choices:
    """Ask "what is the area?" instead of "which of the following is the area?", if only one value can answer.

    It also replaces "closest to the area", if the right option has three digits and so is the rounded area.
    """
    stem = RULES.replace("one-quantity", choices.stem, _what)
    if _THREE_DIGITS.match(right):
        stem = RULES.replace("closest", stem, lambda match: f"what {match[1]} ")
    return choices._replace(stem=stem)


def _assigns_letters(choices: Choices, right: str) -> bool:
    """Whether the right option gives values to letters of the statement, as in ``a=1, b=2``."""
    letters = re.findall(r"([A-Za-z])\s*=", right)
    if len(letters) < 2 and not all(_ASSIGNMENTS.fullmatch(option) for option in choices.options.values()):
        return False
    in_stem = all(re.search(rf"(?<![A-Za-z\\]){letter}(?![A-Za-z])", choices.stem) for letter in letters)
    return bool(_ASSIGNMENTS.fullmatch(right)) and in_stem


def _what(which: re.Match[str]) -> str:
    # Of "which of the following areas is", the noun in singular and the verb.
    noun = (which[1] or which[3] or "").strip()
    singular = re.sub(r"ie\Z", "y", noun.removesuffix("s"))
    what = "What" if which[0][0] == "W" else "what"
    return " ".join(filter(None, (what, singular, which[2] or which[4])))
