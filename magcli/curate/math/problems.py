"""The format filter (recipe, section 4): which mathematics problems can be trained on, and in what form.

A problem is kept when its statement is complete, asks one thing, and has an answer that a verifier can check.
Multiple-choice questions come back as open questions. The rules read English well and common Chinese; a rule that
cannot tell lets the problem through: dropping good problems costs more than keeping doubtful ones, which a model
(``magcli.curate.math.doubts``) or the difficulty filter sees again. Everything here is a pure function of one row.
"""

import re
from collections.abc import Callable, Collection
from typing import Literal, NamedTuple

from magcli.curate.math.answers import (
    bare,
    broken,
    parts_of,
    plain_value,
    prose,
    right_side,
    several_values,
    undressed,
    unsolvable,
    worded,
)
from magcli.curate.math.boilerplate import without_boilerplate, without_pictures
from magcli.curate.math.choices import (
    Choices,
    letter_of,
    lists_options,
    measured,
    names_letters,
    right_content,
    split_options,
    two_options,
    unlettered,
)
from magcli.curate.math.markup import narrowed, tidied
from magcli.curate.math.missing_context import asks_nothing, lacks_content, missing_part
from magcli.curate.math.multi_question import finds_and_proves, several_parts, told_apart
from magcli.curate.math.option_dependence import needs_options, two_alike, without_following
from magcli.curate.math.rules import ENGINE
from magcli.curate.math.tasks import Tasks, proof, tasks_of

DropReason = Literal[
    "empty-prompt",
    "no-answer",
    "incomplete",
    "proof",
    "multi-part",
    "multiple-choice",
    "prose-answer",
    "unverifiable",
]
Note = Literal["", "final-answer", "unit", "opened", "remains"]
Parsable = Callable[[str], bool]
"""Whether the verifier can read a ground truth."""


class Kept(NamedTuple):
    """A usable problem. ``note`` says what was changed in it."""

    prompt: str
    answer: str
    note: Note = ""


class Dropped(NamedTuple):
    """A problem that cannot be used, and what gave it away."""

    reason: DropReason
    detail: str = ""


_SOMETHING = re.compile(r"[^\W_]")
_LITERAL_NEWLINE = re.compile(r"\\n(?![A-Za-z])|\\n(?=[A-K]\s*[.．、:：)）])")
_NUMBER_WITH_UNIT = re.compile(r"(-?\d[\d,]*(?:\.\d+)?|-?\d+/\d+)\s*\([A-Za-z][A-Za-z .'/-]*\)")
_VALUE_SIGN = re.compile(r"[\d\\=<>^_+±∞√π(\[{|]|(?<![A-Za-z])[A-Za-z](?![A-Za-z])")
_ASKED_FOR = re.compile(r"\b(?:[Ff]or\s+(?:what|which)|[Ff]ind\s+(?:all|the))\s+(?:[a-z]+\s+){0,4}?\$\s*([a-z])\s*\$")
_SMALL_LETTER = re.compile(r"\([a-h]\)")
_OPEN_SLOT = re.compile(r"(?:_{2,}|[(（]\s*\$?(?:\\qquad|\\quad)?\$?\s*[)）]?)\$?[.。．]?\s*\Z")

LONGEST_ANSWER = 2000
"""Characters of an answer beyond which it is no value; the rules about answers take the square of its length."""


def clean(prompt: str, answer: str, *, parsable: Parsable, waived: Collection[DropReason] = ()) -> Kept | Dropped:
    """Decide about one problem.

    Args:
        prompt: the statement, options included (see :func:`magcli.curate.math.choices.with_options`).
        answer: the ground truth: a value, an option's letter, or a worked solution that ends in ``#### value``
            or holds ``\\boxed{value}``.
        parsable: asked last, and only about answers that passed everything else.
        waived: faults of the statement that are known not to be there, whatever its words.
    """
    final = final_answer(tidied(answer))
    tidy = tidied(narrowed(_LITERAL_NEWLINE.sub("\n", prompt)))
    stated = without_boilerplate(tidy, final[:LONGEST_ANSWER])
    found = _decided(stated, final, waived, parsable)
    if isinstance(found, Dropped):
        return found
    bare = without_pictures(found.prompt)
    changed: Note = "final-answer" if final != answer.strip() else ""
    left: Note = "remains" if stated != tidy or bare != found.prompt else ""
    note = found.note if found.note == "opened" else changed or found.note or left
    return found._replace(prompt=bare, note=note)


def _decided(prompt: str, final: str, waived: Collection[DropReason], parsable: Parsable) -> Kept | Dropped:
    """Decide about a statement without boilerplate and its final answer."""
    if not _SOMETHING.search(prompt):
        return Dropped("empty-prompt")
    tasks = tasks_of(prompt)
    fault = statement_fault(prompt, final[:LONGEST_ANSWER], tasks, waived)
    if fault:
        return fault
    if len(final) > LONGEST_ANSWER:
        return Dropped("prose-answer", final[:80])
    if ENGINE.matches("no-answer", final):
        return Dropped("no-answer", final)
    opened = open_question(prompt, final)
    if isinstance(opened, Dropped):
        return opened
    checked = check_answer(opened, tasks, parsable=parsable)
    if isinstance(checked, Dropped) and opened.note == "opened":
        return Dropped("multiple-choice", f"the right option: {checked.detail}")
    return checked


def statement_fault(prompt: str, answer: str, tasks: Tasks, waived: Collection[DropReason] = ()) -> Dropped | None:
    """What makes a statement unusable; the answer tells where the words alone do not."""
    text = prose(answer)
    whole = "incomplete" in waived
    if not whole and (lacks := missing_part(prompt) or (unsolvable(answer) if text else "")):
        return Dropped("incomplete", lacks)
    detail = proof(prompt, tasks, prose=text)
    if detail and not (finds_and_proves(prompt) or ENGINE.words("varies", answer)):
        return Dropped("proof", detail)
    if not whole and (lacks := asks_nothing(prompt, tasks, answer)):
        return Dropped("incomplete", lacks)
    several = several_parts(prompt, tasks, answer)
    if several and "multi-part" not in waived:
        return Dropped("multi-part", several)
    return None


def final_answer(answer: str) -> str:
    """The value in an answer column: after ``####``, in the last ``\\boxed{}``, or the text itself; undressed."""
    text = answer.strip()
    if "####" in text:
        text = text.rpartition("####")[2]
    elif "\\boxed" in text:
        text = _last_boxed(text) or text
    return undressed(text)


def open_question(prompt: str, answer: str) -> Kept | Dropped:
    """A multiple-choice question as an open one: options removed, the right option's content as ground truth."""
    if ENGINE.matches("numbers-statements", answer) and "quadrant" not in prompt.lower():
        return Dropped("multiple-choice", "the answer numbers statements")
    choices = split_options(prompt) or (two_options(prompt) if letter_of(answer) else None)
    if choices is None:
        return _without_list(prompt, answer)
    if names_letters(answer) and not letter_of(answer):
        return Dropped("multiple-choice", "several options are right")
    content = right_content(choices, answer)
    if content is None and not letter_of(answer):
        return Kept(prompt, answer)
    return _without_options(without_following(choices, content or ""), content or "")


def check_answer(problem: Kept, tasks: Tasks, *, parsable: Parsable) -> Kept | Dropped:
    """Drop prose, several values, and what the verifier cannot read; take a unit off a bare number."""
    answer = problem.answer
    measured = _NUMBER_WITH_UNIT.fullmatch(answer)
    plain = measured[1] if measured else plain_value(answer)
    if tasks.open_ended:
        return Dropped("prose-answer", tasks.open_ended[:80])
    if not measured:
        if prose(bare(answer)):
            return Dropped("prose-answer", answer[:80])
        if broken(plain) or _only_names_it(plain, problem.prompt):
            return Dropped("unverifiable", answer[:80])
        if several_values(answer) and parts_of(answer) > 1 and "semicolon" not in problem.prompt:
            return Dropped("multi-part", "several values")
    readable = plain if parsable(plain) else right_side(plain, problem.prompt)
    if not readable or (readable != plain and not parsable(readable)):
        return Dropped("prose-answer" if worded(answer) else "unverifiable", plain[:80])
    note: Note = "final-answer" if readable != plain or bare(answer) != answer else "unit"
    return problem if readable == answer else problem._replace(answer=readable, note=problem.note or note)


def _only_names_it(answer: str, prompt: str) -> bool:
    """Whether an answer is the letter whose value is asked for ("For which $n$ ...?")."""
    return len(answer) < 9 and answer.strip(" $") in _ASKED_FOR.findall(prompt)


def _without_options(choices: Choices, content: str) -> Kept | Dropped:
    if not _SOMETHING.search(choices.stem):
        return Dropped("incomplete", "no question beside its options")
    if needs_options(choices, content):
        return Dropped("multiple-choice", "the question needs its options")
    if lacks := lacks_content(choices.stem.strip()):
        return Dropped("incomplete", lacks)
    if several := told_apart(choices.stem, content):
        return Dropped("multi-part", several)
    if two_alike(choices):
        return Dropped("incomplete", "two options read alike")
    if not _SOMETHING.search(content):
        return Dropped("multiple-choice", "the right option has no content")
    content = measured(content)
    if not _comparable(content):
        return Dropped("multiple-choice", "the right option is prose or has endless forms")
    return Kept(choices.stem, undressed(content), "opened")


def _without_list(prompt: str, answer: str) -> Kept | Dropped:
    """A question whose options do not stand in it as a list, if it ever had some."""
    if (_SMALL_LETTER.fullmatch(answer) and answer in prompt) or ENGINE.words("numbered-options", prompt):
        return Dropped("multiple-choice", "its options stand within the sentence")
    if _is_missing_option(prompt, answer) or (names_letters(answer) and needs_options(Choices(prompt, {}))):
        return Dropped("multiple-choice", "options are missing")
    if (content := unlettered(answer)) and _OPEN_SLOT.search(prompt):
        return _without_options(Choices(prompt, {}), content)
    return Kept(prompt, answer)


def _comparable(content: str) -> bool:
    """Whether an option is a value of its own: no words but units and numbers, no sum or limit to work out."""
    if ENGINE.matches("number-in-words", content):
        return True
    if prose(plain_value(content), most=1) or ENGINE.matches("no-value", content):
        return False
    return bool(_VALUE_SIGN.search(content))


def _is_missing_option(prompt: str, answer: str) -> bool:
    """Whether an answer is the letter of an option that the statement does not show as text."""
    letter = letter_of(answer)
    if not letter or re.search(rf"[\"“'`]{letter}[\"”'`]+\s+(?:for|if|when)\b", prompt):
        return False
    asked = needs_options(Choices(prompt, {})) or "enter the letter" in prompt.lower() or lists_options(prompt)
    return asked or ("letter" not in prompt.lower() and not re.search(rf"(?<![A-Za-z\\]){letter}(?![A-Za-z])", prompt))


def _last_boxed(text: str) -> str:
    """The content of the last ``\\boxed{...}``, braces matched; empty when it is not closed."""
    start = text.find("{", text.rfind("\\boxed")) + 1
    depth = 1
    for end in range(start, len(text)) if start else ():
        depth += (text[end] == "{") - (text[end] == "}")
        if depth == 0:
            return text[start:end]
    return ""
