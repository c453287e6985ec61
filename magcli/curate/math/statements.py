"""Statements: remove what is not part of the problem, and find what the problem needs but lacks.

Problems crawled from forums, scanned, or translated by a model carry LaTeX left by converters, credits, headings,
stated answers and picture links; an answer inside the statement would be what the policy learns to copy. Comparison
signs such as ``\\textgreater{}`` and blanks such as ``\\uline{~~~~}`` become the characters that the verifier and the
other rules know. A statement may lack an earlier part, a text, data, a figure, its own end or a question.
"""

import re

from magcli.curate.math.rules import RULES
from magcli.curate.math.tasks import Tasks, count_tasks, mask_formulas, split_sentences

MAX_TRAILING = 6
"""Maximum number of lines removed from the end of a statement."""
_CHARACTERS = {"greater": ">", "less": "<", "bar": "|", "quotesingle": "'", "asciitilde": "~", "asciicircum": "^"}
# Pandoc writes special characters as commands: \textgreater{}.
_CHARACTER = re.compile(rf"\\text({'|'.join(_CHARACTERS)})(?![A-Za-z])(?:\{{\}})?[ ]?")
_UNDERLINE = re.compile(r"~?\\uline\{([^{}]*)\}~?")
_EMPHASIS = re.compile(r"\\emph\{([^{}]*)\}")
_NO_INDENT = re.compile(r"\\noindent(?![A-Za-z])[ \t]*")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{(?:problem|question|exercise|solution)\}[ \t]*\n?")
_GAP = re.compile(r"[ \t]{20,}|(?:\n[ \t]{0,20}){5,}|(?:\\\\\s?){8,}")
# Ties that make a blank: several in a row, or any within empty brackets.
_TIES = re.compile(r"~{2,}|(?<=[(（])[\s~]{1,40}(?=[)）])")
_CUT = "\x1e"
"""Stands for a request to translate, where a statement in another language begins."""
_IGNORED = re.compile(r"[\s$.。]+")

_PLACEHOLDER = re.compile(r"<image[\s_]?\d*>", re.I)
# Facts, one question, perhaps the form of its answer, and perhaps options.
_FACTS_AND_QUESTION = re.compile(
    r"(?P<facts>[A-Z][^?\n]{9,300}[.])\s+(?P<question>[A-Z][^?.\n]{9,200}\?)(?:\s+(?:Simplify|Write|Round|Give)\b[^?\n]{1,60})?"
    r"(?:\n\(A\)\s.*)?",
    re.S,
)
_SENTENCE_ENDS = re.compile(r"[.?!。？！]\s|\Z")
_BLANKS = re.compile(r"[\s$]+")


def without_boilerplate(statement: str, answer: str) -> str:
    """The statement without boilerplate; unchanged if it is nothing else."""
    text = _without_repetitions(RULES.replace("translation", statement, _CUT))
    text = RULES.replace("hidden", text, "").rstrip()
    for _ in range(MAX_TRAILING):
        start = _trailing(text, answer)
        if start is None:
            break
        text = text[:start].rstrip()
    text = RULES.replace("tag", text, r"\2")
    return text if text.strip() else statement


def picture_link(statement: str) -> str:
    """The first link to a picture; empty for none."""
    link = RULES.find("picture", statement)
    return link[0] if link else ""


def without_pictures(statement: str) -> str:
    """The statement without links to pictures, which a text model cannot see."""
    may_have_links = "](" in statement or "://" in statement
    return RULES.replace("picture", statement, "").strip() if may_have_links else statement


def clean_markup(text: str) -> str:
    """A statement or an answer without converters' LaTeX, and without trailing spaces and line breaks."""
    if "\\" in text:
        text = _CHARACTER.sub(lambda match: _CHARACTERS[match[1]], text)
        text = _UNDERLINE.sub(_underlined, text)
        text = _EMPHASIS.sub(r"\1", text)
        text = _NO_INDENT.sub(" ", text)
        text = _ENVIRONMENT.sub("", text).rstrip()
        while text.endswith("\\\\"):
            text = text[:-2].rstrip()
    if "~" in text:
        text = _TIES.sub("  ", text)
    return text.strip()


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
    # What is appended is short, and rules for the end of a text are slow on a long one.
    offset = max(0, len(text) - 400)
    tail = text[offset:]
    stated = RULES.find("stated-answer", tail)
    if stated and _IGNORED.sub("", stated[1]) == _IGNORED.sub("", answer):
        return offset + stated.start()
    if not stated:
        heading = RULES.find("heading", tail)
        if heading and not count_tasks(f"{heading[1] or ''}."):
            return offset + heading.start()
    # Credits are in italics or brackets, unless they say so: a quick test before a slow pattern.
    last_sign = tail.rstrip(" \n.")[-1:]
    if last_sign not in ("*", "_", "]", ")") and "roposed by" not in tail:
        return None
    credit = RULES.find("credit", tail)
    return offset + credit.start() if credit else None


def _underlined(line: re.Match[str]) -> str:
    """A blank to fill in, or the underlined words."""
    return line[1] if re.search(r"\w", line[1].replace("\\", "")) else " ____ "


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
    # The reference itself may write the label in brackets; a part with that label would be one more.
    part = RULES.find("part", statement)
    if part and statement.count(f"({part[1]})") <= part[0].count("("):
        return part[0]
    if announced := RULES.matched_text("announced", stem):
        return announced
    broken = RULES.find("breaks-off", without_pictures(statement)[-40:])
    if broken and not _asks_at_end(statement):
        return f"ends with {broken[0].strip()!r}"
    return ""


def asks_nothing(statement: str, tasks: Tasks, answer: str) -> str:
    """Why nothing is asked: the statement only tells a story, or ends with its own answer; empty otherwise."""
    if tasks.sentences or tasks.reason or tasks.open_ended:
        return ""
    if len(statement) < 600 and RULES.matches("story", statement) and not RULES.matches("asking", statement):
        return "it asks for nothing"
    return _own_answer(statement, answer)


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
    picture = placeholder[0] if placeholder else picture_link(statement)
    if picture:
        return picture if _needs_picture(statement, stem) else ""
    if contains_figure(stem):
        return ""
    if figure := _mention("figure", statement):
        return "" if _describes_figure(stem, facts=5) else figure
    # A table that was copied as text has several lines or numbers.
    num_numbers = len(re.findall(r"\d[\d.]*", stem))
    has_data = stem.count("\n") > 1 or num_numbers > 2
    return "" if has_data else RULES.matched_text("data-shown", stem)


def mentions_figure(detail: str) -> bool:
    """Whether the result of ``missing_part`` mentions a figure or table, which may not be needed."""
    # Some rules only match before punctuation, which a detail lost.
    mentioned = any(RULES.matches(reason, f"{detail}, ") for reason in ("figure", "data-shown"))
    return mentioned or bool(picture_link(detail) or _PLACEHOLDER.search(detail))


def contains_figure(statement: str) -> bool:
    """Whether a statement contains a figure or table as code or text."""
    return RULES.matches("contains-figure", statement)


def _lacks_data(statement: str) -> bool:
    """Whether a statement says that something was counted and asks about the counts, but has none."""
    match = _FACTS_AND_QUESTION.fullmatch(statement)
    if not match or not RULES.matches("gathered", match["facts"]):
        return False
    return not any(RULES.matches("quantity", match[part]) for part in ("facts", "question"))


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
    if RULES.matches("only-shown", stem):
        return False
    return sum(1 for _ in RULES.find_all("fact", stem)) >= facts


def _mention(reason: str, statement: str) -> str:
    """The mention of a figure, except in a sentence that only illustrates ("one example is shown below")."""
    for mention in RULES.find_all(reason, statement):
        # The sentence around the mention.
        start = max(statement.rfind(sign, 0, mention.start()) for sign in ".?!\n。？！")
        end = _SENTENCE_ENDS.search(statement, mention.end())
        sentence = statement[start + 1 : end.start() if end else None]
        if not RULES.matches("illustrates", sentence):
            return mention[0]
    return ""


def _own_answer(statement: str, answer: str) -> str:
    """The answer at the end of a statement, such as a blank that was filled in; empty for none."""
    if not 0 < len(answer) <= 40:
        return ""
    # Without spaces and dollar signs, whose number differs between the two.
    end = _BLANKS.sub("", statement[-80:])
    value = _BLANKS.sub("", answer)
    stated = re.search(rf"(?:=|为|是|得|be|is|or|either){re.escape(value)}(?:or[-+\d.]+)?\.?\Z", end)
    return f"ends with its answer {answer}" if stated else ""


def _asks_at_end(statement: str) -> bool:
    """Whether the last sentence is a task that ends with a comma, so nothing is cut off."""
    *_, last = split_sentences(mask_formulas(statement[-300:])) or [""]
    return last[-1:] in ",，" and count_tasks(last) > 0
