"""What a statement needs and does not hold: an earlier part, a text, data, a figure, its own end or a question."""

import re

from magcli.curate.math.boilerplate import pictures, without_pictures
from magcli.curate.math.rules import ENGINE
from magcli.curate.math.tasks import Tasks, masked, sentences, tasks_in

_PLACEHOLDER = re.compile(r"<image[\s_]?\d*>", re.I)
_TOLD_THEN_ASKED = re.compile(
    r"(?P<told>[A-Z][^?\n]{9,300}[.])\s+(?P<asked>[A-Z][^?.\n]{9,200}\?)(?:\s+(?:Simplify|Write|Round|Give)\b[^?\n]{1,60})?"
    r"(?:\n\(A\)\s.*)?",
    re.S,
)
_SENTENCE_ENDS = re.compile(r"[.?!。？！]\s|\Z")
_UNSPACED = re.compile(r"[\s$]+")


def missing_part(statement: str) -> str:
    """What the statement refers to but does not hold, or where it breaks off; empty when it seems whole."""
    if elsewhere := ENGINE.words("elsewhere", without_pictures(statement)):
        return elsewhere
    if _of_no_price(statement):
        return "no price is given"
    if _of_no_data(statement):
        return "its data are not given"
    options = statement.find("\n(A) ")
    stem = statement[:options] if options >= 0 else statement
    if figure := figure_needed(statement, stem):
        return figure
    part = ENGINE.first("part", statement)
    if part and statement.count(f"({part[1]})") <= part[0].count("("):
        return part[0]
    if announced := ENGINE.words("announced", stem):
        return announced
    broken = ENGINE.first("breaks-off", without_pictures(statement)[-40:])
    return f"ends with {broken[0].strip()!r}" if broken and not _asks_at_the_end(statement) else ""


def asks_nothing(statement: str, tasks: Tasks, answer: str) -> str:
    """A story in which no word asks for anything, or a statement that ends with its own answer; empty for any other."""
    if tasks.values or tasks.reason or tasks.open_ended:
        return ""
    told = len(statement) < 600 and ENGINE.matches("story", statement) and not ENGINE.matches("asking", statement)
    return "it asks for nothing" if told else _answered(statement, answer)


def lacks_content(question: str) -> str:
    """A question of one sentence, options left out, that points at what is not there; empty for any other.

    "Can these 3 shapes form squares?", "What is the value of B?", or no more than a number.
    """
    found = len(question) < 100 and ENGINE.words("lacks-content", question)
    return "it points at what is not there" if found else ""


def figure_needed(statement: str, stem: str) -> str:
    """The picture, or the words that name a figure or table, that a statement needs and does not hold.

    Empty where there is none, or where words tell all. ``stem`` is the statement without its options.
    """
    placeholder = _PLACEHOLDER.search(statement)
    if picture := placeholder[0] if placeholder else pictures(statement):
        return picture if _picture_needed(statement, stem) else ""
    figure = _named("figure", statement)
    if figure:
        return "" if drawn(stem) or _tells_all(stem, facts=5) else figure
    data = ENGINE.words("data-shown", stem)
    told = drawn(stem) or stem.count("\n") > 1 or len(re.findall(r"\d[\d.]*", stem)) > 2
    return "" if told else data


def figure_named(detail: str) -> bool:
    """Whether what ``missing_part`` found is a figure or table, which a statement may name without needing it."""
    named = any(ENGINE.words(reason, f"{detail}, ") for reason in ("figure", "data-shown"))
    return named or bool(pictures(detail) or _PLACEHOLDER.search(detail))


def drawn(statement: str) -> bool:
    """Whether a figure or table stands in a statement, as code or as text."""
    return ENGINE.matches("drawn", statement)


def _of_no_data(statement: str) -> bool:
    """Whether a story tells that things were counted, and asks about the counts, of which it has none."""
    found = _TOLD_THEN_ASKED.fullmatch(statement)
    if not found or not ENGINE.matches("gathered", found["told"]):
        return False
    return not any(ENGINE.matches("quantity", found[part]) for part in ("told", "asked"))


def _of_no_price(statement: str) -> bool:
    """Whether a question asks what goods cost, and the statement tells neither a price nor how to find one."""
    asked = len(statement) < 400 and ENGINE.first("cost-asked", statement)
    return bool(asked) and not ENGINE.matches("price", statement)


def _picture_needed(statement: str, stem: str) -> bool:
    """Whether words point at the picture that stands beside them, and do not describe it."""
    words = without_pictures(statement)
    if len(words) < 80:
        return True
    return bool(_named("points-at-picture", words)) and not _tells_all(without_pictures(stem), facts=3)


def _tells_all(stem: str, *, facts: int) -> bool:
    """Whether words describe the picture that they name: facts of geometry, and nothing that only it can show."""
    return not ENGINE.matches("only-shown", stem) and sum(1 for _ in ENGINE.every("fact", stem)) >= facts


def _named(reason: str, statement: str) -> str:
    """The words that name a figure; none where its sentence only illustrates ("one example is shown below")."""
    for found in ENGINE.every(reason, statement):
        start = max(statement.rfind(sign, 0, found.start()) for sign in ".?!\n。？！")
        end = _SENTENCE_ENDS.search(statement, found.end())
        if not ENGINE.matches("illustrates", statement[start + 1 : end.start() if end else None]):
            return found[0]
    return ""


def _answered(statement: str, answer: str) -> str:
    """The end of a statement that ends with its own answer, as a blank that was filled does; empty for any other."""
    if not 0 < len(answer) <= 40:
        return ""
    end, value = (_UNSPACED.sub("", text) for text in (statement[-80:], answer))
    told = re.search(rf"(?:=|为|是|得|be|is|or|either){re.escape(value)}(?:or[-+\d.]+)?\.?\Z", end)
    return f"ends with its answer {answer}" if told else ""


def _asks_at_the_end(statement: str) -> bool:
    """Whether the last sentence asks for something, so that a comma behind it cuts nothing off."""
    *_, last = sentences(masked(statement[-300:])) or [""]
    return last[-1:] in ",，" and tasks_in(last) > 0
