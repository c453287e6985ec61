"""Whether a statement asks for several things: labelled parts, blanks, tasks in sentences of their own or one."""

import re
from collections.abc import Sequence

from magcli.curate.math.answers import parts_of, prose, says_nothing
from magcli.curate.math.rules import ENGINE
from magcli.curate.math.tasks import Tasks, masked, tasks_of

_BLANK = re.compile(
    r"_{2,}(?:[\s,，、]{0,9}(?:and|和)?\s{0,9}_{2,})*|[(（]\s*\$?\\q?quad\$?\s*[)）](?:\$?\s*[,，、]\s*\$?[(（]\s*\$?\\q?quad\$?\s*[)）])*|\\underline\{\s*(?:\\q?quad\s*|\\hspace\{\w+\}|~)*\}"
)
_FRACTION_BLANK = "((())/(()))"
_AMOUNT_ASKED = re.compile(r"(?:是|长|有|[^，,]{2,12})多少")
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_ASY = re.compile(r"\[asy\](?:[^\[]|\[(?!/?asy\]))*\[/asy\]")
_SECOND_PART = re.compile(r"(?:[b2]|ii\s?)[)）]", re.I)
_PART_STYLES = tuple(
    re.compile(pattern, re.I)
    for pattern in (
        r"(?<![A-Za-z0-9_])[(（]\s*[a-f]\s*[)）]",
        r"(?:\A|[\n.。;；?？:：,，\s])[(（]\s*[1-6]\s*[)）]",
        r"(?:\A|[\n.．?;；:：。)）]\s*)(?:[(（]\s?(?:i|ii|iii|iv|v)\s?[)）]|(?:[ivx]+|[a-f])\))",
    )
)
_MATHS = re.compile(r"[\d$\\=_]")
_FINAL_ANSWER = re.compile(r"\n\s*final answer\b", re.I)


def several_parts(statement: str, tasks: Tasks, answer: str) -> str:
    """What shows that a statement asks for several things; empty when it asks for one.

    Tasks in sentences of their own are parts, but for the one that asks which of the options holds. Tasks and objects
    that "and" joins are parts only where the answer has as many values: one question may name several things, and its
    answer one value made of them. Where neither the statement nor a value shows any mathematics, prose answers one
    instruction.
    """
    if not (_MATHS.search(statement) or _MATHS.search(answer)) and prose(answer):
        questions = [each for each in tasks.values if each[-1] in "?？"]
        return f"asks {len(questions)} times" if len(questions) > 1 else ""
    own = _of_one_language([each for each in tasks.values if not ENGINE.words("of-options", each)])
    return (
        labelled_parts(statement)
        or blanks(statement)
        or (f"asks {len(own)} times" if len(own) > 1 and not _on_the_way(statement, own, answer) else "")
        or ENGINE.words("two-things", statement)
        or ENGINE.words("two-asked", "\n".join(tasks.values))
        or _joined(statement, tasks, answer)
    )


def told_apart(question: str, values: str) -> str:
    """What shows that several values of a right option are answers to several questions; empty if nothing does."""
    if parts_of(values) < 2 or not re.search(r"\d", values):
        return ""
    tasks = tasks_of(question)
    apart = ENGINE.words("told-apart", question)
    return apart or tasks.several or ("tasks that and joins" if tasks.joined else "")


def blanks(statement: str) -> str:
    """How many blanks are to be filled, where it is more than one; a statement in two languages has them twice."""
    text = _ASY.sub("", statement)
    found = [text[max(0, blank.start() - 30) : blank.start()] for blank in _BLANK.finditer(text)]
    chinese = sum(bool(_CHINESE.search(before)) for before in found)
    count = chinese if 2 * chinese == len(found) else len(found)
    if _FRACTION_BLANK in text and (text.count(_FRACTION_BLANK) > 1 or _AMOUNT_ASKED.search(text)):
        return "a blank and a question"
    return f"{count} blanks" if count > 1 else ""


def labelled_parts(statement: str) -> str:
    """The labels of the parts that ask, where there are two; parts that the statement solves itself do not count."""
    return " ".join(label for label, _ in _asking_parts(statement)[:4])


def finds_and_proves(statement: str) -> bool:
    """Whether two labelled parts ask, and one at least asks for no proof."""
    return not all(
        ENGINE.matches("part-proves", text) and not ENGINE.matches("part-finds", text)
        for _, text in _asking_parts(statement)
    )


def _asking_parts(statement: str) -> list[tuple[str, str]]:
    """The parts of a statement that ask for something, label and text, in the first style that labels two of them."""
    if not _SECOND_PART.search(statement):
        return []
    statement = masked(statement)
    for style in _PART_STYLES:
        marks = list(style.finditer(statement))
        ends = [*(mark.start() for mark in marks[1:]), len(statement)]
        parts = [(mark[0].strip(), statement[mark.end() : end]) for mark, end in zip(marks, ends, strict=False)]
        asked = [each for each in parts if ENGINE.matches("part-asks", each[1]) and not _FINAL_ANSWER.search(each[1])]
        if len(asked) > 1:
            return asked
    return []


def _of_one_language(asked: Sequence[str]) -> Sequence[str]:
    """The tasks without their translations, where a statement stands there in Chinese and in English."""
    english = [each for each in asked if not _CHINESE.search(each)]
    return english if 2 * len(english) == len(asked) else asked


def _on_the_way(statement: str, asked: Sequence[str], answer: str) -> bool:
    """Whether all tasks but the last only lead there, to the one value that the answer holds."""
    if parts_of(answer) != 1 or prose(answer) or any(each[-1] in "?？" for each in asked[:-1]):
        return False
    return ENGINE.matches("on-the-way", _ASY.sub("", statement))


def _joined(statement: str, tasks: Tasks, answer: str) -> str:
    """What shows that the several values of an answer are answers to several questions, and no list, pair or set."""
    if tasks.joined and (parts_of(answer) > 1 or prose(answer) or says_nothing(answer)):
        return "tasks that and joins"
    if answer.startswith(("{'", '{"')):
        return "an answer by part"
    if parts_of(answer) < 2:
        return ""
    if tasks.several and not ENGINE.words("both-alike", tasks.several):
        return tasks.several
    return ENGINE.words("each", statement)
