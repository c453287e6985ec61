"""Parts that a statement needs but lacks: an earlier part, a text, data, a figure, its own end or a question."""

import re

from magcli.curate.math.boilerplate import picture_link, without_pictures
from magcli.curate.math.rules import RULES
from magcli.curate.math.tasks import Tasks, count_tasks, mask_formulas, split_sentences

_PLACEHOLDER = re.compile(r"<image[\s_]?\d*>", re.I)
_FACTS_AND_QUESTION = re.compile(
    r"(?P<facts>[A-Z][^?\n]{9,300}[.])\s+(?P<question>[A-Z][^?.\n]{9,200}\?)(?:\s+(?:Simplify|Write|Round|Give)\b[^?\n]{1,60})?"
    r"(?:\n\(A\)\s.*)?",
    re.S,
)
_SENTENCE_ENDS = re.compile(r"[.?!。？！]\s|\Z")
_BLANKS = re.compile(r"[\s$]+")


def missing_part(statement: str) -> str:
    """The reference to something that the statement lacks, or where it breaks off; empty if it seems complete."""
    if elsewhere := RULES.matched_text("elsewhere", without_pictures(statement)):
        return elsewhere
    if _lacks_price(statement):
        return "no price is given"
    if _lacks_data(statement):
        return "its data are not given"
    stem = statement.partition("\n(A) ")[0]
    if figure := missing_figure(statement, stem):
        return figure
    part = RULES.find("part", statement)
    if part and statement.count(f"({part[1]})") <= part[0].count("("):
        return part[0]
    if announced := RULES.matched_text("announced", stem):
        return announced
    broken = RULES.find("breaks-off", without_pictures(statement)[-40:])
    return f"ends with {broken[0].strip()!r}" if broken and not _asks_at_end(statement) else ""


def asks_nothing(statement: str, tasks: Tasks, answer: str) -> str:
    """Why nothing is asked: the statement only tells a story, or ends with its own answer; empty otherwise."""
    if tasks.sentences or tasks.reason or tasks.open_ended:
        return ""
    story = len(statement) < 600 and RULES.matches("story", statement) and not RULES.matches("asking", statement)
    return "it asks for nothing" if story else _own_answer(statement, answer)


def lacks_content(question: str) -> str:
    """Why a short question without its options is about something missing; empty if it is not.

    "Can these 3 shapes form squares?", "What is the value of B?", or no more than a number.
    """
    missing = len(question) < 100 and RULES.matches("lacks-content", question)
    return "it points at what is not there" if missing else ""


def missing_figure(statement: str, stem: str) -> str:
    """The picture, or the mention of a figure or table, that a statement needs but lacks; empty for none.

    ``stem`` is the statement without its options.
    """
    placeholder = _PLACEHOLDER.search(statement)
    if picture := placeholder[0] if placeholder else picture_link(statement):
        return picture if _needs_picture(statement, stem) else ""
    if figure := _mention("figure", statement):
        return "" if contains_figure(stem) or _describes_figure(stem, facts=5) else figure
    given = contains_figure(stem) or stem.count("\n") > 1 or len(re.findall(r"\d[\d.]*", stem)) > 2
    return "" if given else RULES.matched_text("data-shown", stem)


def mentions_figure(detail: str) -> bool:
    """Whether the result of ``missing_part`` mentions a figure or table, which may not be needed."""
    mentioned = any(RULES.matches(reason, f"{detail}, ") for reason in ("figure", "data-shown"))
    return mentioned or bool(picture_link(detail) or _PLACEHOLDER.search(detail))


def contains_figure(statement: str) -> bool:
    """Whether a statement contains a figure or table as code or text."""
    return RULES.matches("contains-figure", statement)


def _lacks_data(statement: str) -> bool:
    """Whether a statement says that something was counted and asks about the counts, but has none."""
    found = _FACTS_AND_QUESTION.fullmatch(statement)
    if not found or not RULES.matches("gathered", found["facts"]):
        return False
    return not any(RULES.matches("quantity", found[part]) for part in ("facts", "question"))


def _lacks_price(statement: str) -> bool:
    """Whether a question asks for a cost, without a price or a way to find it."""
    asks = len(statement) < 400 and RULES.matches("cost-asked", statement)
    return asks and not RULES.matches("price", statement)


def _needs_picture(statement: str, stem: str) -> bool:
    """Whether the text refers to the picture next to it without describing it."""
    text = without_pictures(statement)
    if len(text) < 80:
        return True
    return bool(_mention("points-at-picture", text)) and not _describes_figure(without_pictures(stem), facts=3)


def _describes_figure(stem: str, *, facts: int) -> bool:
    """Whether the text describes the figure: enough geometric facts, and nothing that only a figure shows."""
    return not RULES.matches("only-shown", stem) and sum(1 for _ in RULES.find_all("fact", stem)) >= facts


def _mention(reason: str, statement: str) -> str:
    """The mention of a figure, except in a sentence that only illustrates ("one example is shown below")."""
    for found in RULES.find_all(reason, statement):
        start = max(statement.rfind(sign, 0, found.start()) for sign in ".?!\n。？！")
        end = _SENTENCE_ENDS.search(statement, found.end())
        if not RULES.matches("illustrates", statement[start + 1 : end.start() if end else None]):
            return found[0]
    return ""


def _own_answer(statement: str, answer: str) -> str:
    """The answer at the end of a statement, such as a blank that was filled in; empty for none."""
    if not 0 < len(answer) <= 40:
        return ""
    end, value = (_BLANKS.sub("", text) for text in (statement[-80:], answer))
    found = re.search(rf"(?:=|为|是|得|be|is|or|either){re.escape(value)}(?:or[-+\d.]+)?\.?\Z", end)
    return f"ends with its answer {answer}" if found else ""


def _asks_at_end(statement: str) -> bool:
    """Whether the last sentence is a task that ends with a comma, so nothing is cut off."""
    *_, last = split_sentences(mask_formulas(statement[-300:])) or [""]
    return last[-1:] in ",，" and count_tasks(last) > 0
