"""Whether a statement asks for several things: labelled parts, blanks, tasks in sentences of their own."""

import re
from collections.abc import Sequence

from magcli.curate.math.answers import parts_of, prose
from magcli.curate.math.asks import Asks, asks_of, holds, masked
from magcli.curate.math.joined import joined

_BLANK = re.compile(
    r"_{2,}(?:[\s,，、]{0,9}(?:and|和)?\s{0,9}_{2,})*|[(（]\s*\$?\\q?quad\$?\s*[)）](?:\$?\s*[,，、]\s*\$?[(（]\s*\$?\\q?quad\$?\s*[)）])*|\\underline\{\s*(?:\\q?quad\s*|\\hspace\{\w+\}|~)*\}"
)
_UNIT_BLANK = re.compile(r"=\s*\\[lc]?dots(?:\s|~|\$)*\\(?:mathrm|text|mbox)")
_FRACTION_BLANK = "((())/(()))"
_AMOUNT_ASKED = re.compile(r"(?:是|长|有|[^，,]{2,12})多少")
_UNITS = r"(?:days?|hours?|hrs?|min(?:ute)?s?|元|角|小?时|分钟?|天|千?米|分米|吨|千克|年|m|km|kg|ft|feet|yuan)"
_OF_SEVERAL_UNITS = re.compile(
    rf"_{{2,}}[\s$~]{{0,9}}{_UNITS}[\s$~]{{0,9}}_{{2,}}(?=[\s$~]{{0,9}}(?:{_UNITS}|sec(?:ond)?s?|秒|厘米|克|月|cm|g|inch(?:es)?|角|分)\b)"
)
_INTO_THE_BLANKS = re.compile(
    r"\b(?:which|what)\b[^.?]{0,80}\b(?:in|into|fill)\s+the\s+blanks\b[^.?]{0,40}\bto\s+make\b", re.I
)
_CHINESE = re.compile(r"[\u4e00-\u9fff]{2}")
_HAN = re.compile(r"[\u4e00-\u9fff]")
_ENGLISH = re.compile(r"\b[A-Za-z]{2,}\s+(?:[A-Za-z]{3,}\s+)*[A-Za-z]{2,}\b")
_APART = re.compile(r"\b(?:respectively|separately)\s*[?.:]*\s*\Z|分别[^。，,．]{0,14}[。．.]?\s*\Z")
_FINDS = re.compile(r"(?:[,，、.．。并再\s]|\A)求(?!证)|讨论|\b(?:and|then)\s+(?:find|determine|compute)\b", re.I)
_PROVES = re.compile(r"证明|求证|说明理由|\b(?:prove|show that|disprove|verify that)\b", re.I)
_ASY = re.compile(r"\[asy\](?:[^\[]|\[(?!/?asy\]))*\[/asy\]")
_NEXT_PROBLEM = re.compile(r"<\s*(?:next instance|question)\s*>", re.I)
_PART_WORDS = (
    "b)",
    "b）",
    "2)",
    "2）",
    "\n2.",
    "\n 2.",
    "②",
    "ii)",
    "ii）",
    "ii )",
    "ii ）",
    "part",
    "subproblem",
    "question",
    "第二问",
)
_PART_STYLES = tuple(
    re.compile(pattern, re.I)
    for pattern in (
        r"(?<![A-Za-z0-9_])[(（]\s*[a-f]\s*[)）]",
        r"(?:\A|[\n.。;；?？:：,，\s])[(（]\s*[1-6]\s*[)）]",
        r"[①②③④⑤]",
        r"(?:\A|[\n.．?;；:：。)）]\s*)(?:[(（]\s?(?:i|ii|iii|iv|v)\s?[)）]|(?:[ivx]+|[a-f])\))",
        r"(?:\A|\n)\s*[1-6][.)]\s",
        r"\b(?:part|subproblem|question)\s+[a-f0-9]\b\s*[:.)]",
        r"第[一二三四]问",
    )
)
_ASKS = re.compile(
    r"\W*(?:(?:if|when|given|let|suppose|for|assuming|hence|using|若|当|已知|在|设)[^.?。？]{0,200}?[,，]\s*)?"
    r"(?:then\s+|please\s+|also\s+|试|请|则)?"
    r"(?:(?:find|compute|calculate|determine|evaluate|solve|prove|show|what|how|why|explain|express|write|sketch|draw|construct|"
    r"state|estimate|describe|simplify)\b|(?:分别)?(?:求|计算|证明|写出|说明|化简|判断|讨论|估计|确定|画出|设计))"
    r"|(?:(?![.。;；]\s*\n\s*\n)[^？?]){0,120}?(?:化[为成]|何值|(?:[,，、.．。]|并|再|请|试|分[别別])\s*(?:求|计算|证明|写出|说明|化简|判断|讨论|估计|确定))"
    r"|(?:\$[^$]*\$|[^.?。？\n$]){0,300}[?？]",
    re.I,
)
_COUNTS_OF_TWO = re.compile(
    r"\bhow\s+many\s+[^,?]{2,40}\s+and\s+[^,?]{2,40}\s(?:do|does|did|are|were|has|have)\b[^?]{0,200}\?", re.I
)
_HEADED_PARTS = re.compile(
    r"(?:(?:请问|试?求|计算|回答|\b(?:find|determine|compute|calculate|the\s+following))\s*[:：]\s*"
    r"|\b(?:find|determine|compute|calculate)\s*\n\s*(?=(?-i:[(（](?:1|a|i)[)）])))[(（]?(?:1|a|i|①)\s?[)）.、][^\n]{1,200}[;；。,，\n]"
    r"\s*[(（]?(?:2|b|ii|②)\s?[)）.、]|(?:简算|计算|口算|解方程|化简|求值)[．。:：]?\s*①[^\n①②]{1,200}②"
    r"|\b(?:calculate|compute|evaluate|simplify|solve)\b[^.:?\n]{0,80}\bfollowing\b[^.:?\n]{0,60}:\s*1[.)]\s[^?]{1,400}?\n\s*2[.)]\s"
    r"|\b(?:if|when)\s*:?\s*\n\s*\(?(?-i:a)\)[^\n?]{1,200}(?<!and)[;,.]?\s*\n\s*\(?(?-i:b)\)",
    re.I,
)
_QUESTION_WORD = re.compile(
    r"\b(?:what|who|whose|where|when|which|how|why)\b|什么|谁|哪|几|多少|怎|如何|何时|为何", re.I
)
_MATHS = re.compile(r"[\d$\\=_]")
_LIST_NUMBER = re.compile(r"^\s*\d{1,2}[.、)]\s", re.M)
_PAIR = re.compile(r"\b(?:magnitude|direction|length|width|height)s?\b", re.I)
_OF_LETTERS = re.compile(
    r"\b(?:(?:find|compute|determine|calculate|(?<!then )what\s+is)\s+(?:the\s+value\s+of\s+)?|the\s+value\s+of\s+)"
    r"\$(?:[^$]*[A-Za-z}|]\s*(?:[-+]|(?=[^$]*\\[dt]?frac))[^$]*|\\[dt]?frac\s*\{[a-z]+\}\s*\{[a-z]+\})\$(?:\s+is)?[\W_]*\Z",
    re.I,
)
_WHAT_IS = re.compile(r"\W*(?:so\s+|then\s+)?what(?:'s|\s+(?:is|are|was|were))\s+([^?]{1,90})\?", re.I)
_UNSAID = frozenset(
    ("the", "this", "its", "of", "for", "in", "a", "an", "that", "estimated", "approximate", "resulting")
)
_NAMES = re.compile(r"[^\W\d_Ξ]+")
_RESULTING = re.compile(r"\bresulting\b|\A\W*the\s+(?:sum|difference|product|quotient)\s+is\s+between\b", re.I)
_QUESTIONS_TOLD = re.compile(
    r"\b(?:we|he|she|they|students?|people|each)\s+(?:\w+\s+){0,3}?(?:asks?|asked|answers?|give)\b[^.?!:]{0,90}\bquestions:\s",
    re.I,
)
_LETTER_OF_ANSWER = re.compile(
    r"\b(?:the|your)\s+answer\s+(?:is|has|takes|can\s+be\s+(?:written|expressed))\b[^.?]{1,120}(?:[.,]|\bthen)\s*what\s+(?:is|are)\s+\$?[A-Za-z]\b[^?]{0,30}\?",
    re.I,
)
_SOLVES = re.compile(r"\W*(?:find|determine)\s+(?:the|all)\s+(?:\w+\s+)?solutions?\b|\W*solve\b", re.I)
_OF_SOLUTION = re.compile(r"\W*what(?:'s|\s+is)\s+(?:\$?[a-z]\s?\(|\[|Ξ\s*\?|.*\boptimal\b)", re.I)
_OF_A_FORM = re.compile(
    r"\b(?:in|of)\s+(?:the\s+|simplest\s+|simplified\s+)?form\b|\b(?:written|expressed)\s+as\b", re.I
)
_ALL = re.compile(r"\W*(?:find|list|determine)\s+all\b", re.I)
_OF_ALL = re.compile(
    r"\W*(?:what\s+is|find|determine)\s+the\s+(?:sum|product|number|maximum|minimum|largest|smallest|greatest|least)\b"
    r"|\W*how\s+many\b",
    re.I,
)
_TRANSFORMS = re.compile(r"\W*(?:expand|convert|factor|multiply|square|simplify|rewrite)\b", re.I)
_OF_OPTIONS = re.compile(
    r"\bwhich\s+(?:one\s+)?of\s+(?:the\s+following|these)\b|\bwhich\s+(?:option|choice|answer)\s+is\b|下[列面][^，,。？?]{0,12}的[是有]",
    re.I,
)
_FINAL_ANSWER = re.compile(r"\n\s*final answer\b", re.I)


def several_parts(statement: str, lowered: str, asks: Asks, answer: str) -> str:
    """What shows that a statement asks for several things; empty when it asks for one.

    Tasks in sentences of their own are parts, but for the one that asks which of the options holds. Tasks and objects
    that "and" joins are parts only where the answer has as many values, but for two questions of "how many" and two
    names of one blank: one question may name several things, and its answer one value made of them. Where neither the
    statement nor a value shows any mathematics, prose answers one instruction.
    """
    if not (_MATHS.search(statement) or _MATHS.search(_LIST_NUMBER.sub("", answer))) and prose(answer):
        questions = [each for each in asks.values if each[-1] in "?？" and _QUESTION_WORD.search(each)]
        return f"asks {len(questions)} times" if len(questions) > 1 else ""
    own = _of_one_language(_said_once([each for each in asks.values if not _OF_OPTIONS.search(each)]))
    return (
        labelled_parts(statement, lowered)
        or (headed[0] if holds(_PART_WORDS, lowered) and (headed := _HEADED_PARTS.search(statement)) else "")
        or blanks(statement)
        or (f"asks {len(own)} times" if len(own) > 1 and not _on_the_way(statement, own, answer) else "")
        or joined(statement, lowered, asks, answer)
    )


def _said_once(asked: Sequence[str]) -> Sequence[str]:
    """The tasks without those that repeat an earlier one word for word; a formula may be another one each time."""
    return [each for index, each in enumerate(asked) if "Ξ" in each or each not in asked[:index]]


def _of_one_language(asked: Sequence[str]) -> Sequence[str]:
    """The tasks without their translations, where a statement stands there in Chinese and in English."""
    chinese = [each for each in asked if _HAN.search(each)]
    english = [each for each in asked if not _HAN.search(each)]
    return english if len(chinese) == len(english) else asked


def told_apart(question: str, values: str) -> str:
    """What shows that several values of a right option are answers to several questions; empty if nothing does."""
    if parts_of(values) < 2 or not re.search(r"\d", values):
        return ""
    found = _APART.search(question) or _COUNTS_OF_TWO.search(question)
    asks = asks_of(question)
    several = asks.several if not _PAIR.search(asks.several) else ""
    return found[0] if found else several or ("tasks that and joins" if asks.joined else "")


def blanks(statement: str) -> str:
    """How many blanks are to be filled, where it is more than one."""
    if _NEXT_PROBLEM.search(statement):
        return "two problems in one"
    text = _OF_SEVERAL_UNITS.sub("__", _ASY.sub("", statement))
    if _INTO_THE_BLANKS.search(text):
        return ""
    found = list(_BLANK.finditer(text))
    before = [text[max(0, blank.start() - 30) : blank.start()] for blank in found]
    chinese = sum(bool(_CHINESE.search(each)) for each in before)
    english = sum(bool(_ENGLISH.search(each)) and not _CHINESE.search(each) for each in before)
    count = chinese if chinese and chinese == english else len(found)
    count = count or len(_UNIT_BLANK.findall(text))
    if _FRACTION_BLANK in text and (text.count(_FRACTION_BLANK) > 1 or _AMOUNT_ASKED.search(text)):
        return "a blank and a question"
    return f"{count} blanks" if count > 1 else ""


def labelled_parts(statement: str, lowered: str) -> str:
    """The labels of the parts that ask, where there are two; parts that the statement solves itself do not count."""
    return " ".join(label for label, _ in _asking_parts(statement, lowered)[:4])


def finds_and_proves(statement: str, lowered: str) -> str:
    """The labels of the parts that ask, where there are two and one at least asks for no proof."""
    parts = _asking_parts(statement, lowered)
    proofs = all(_PROVES.search(text) and not _FINDS.search(text) for _, text in parts)
    return "" if proofs else " ".join(label for label, _ in parts[:4])


def _asking_parts(statement: str, lowered: str) -> list[tuple[str, str]]:
    """The parts of a statement that ask for something, label and text, in the first style that labels two of them."""
    if not holds(_PART_WORDS, lowered):
        return []
    statement = masked(statement)
    for style in _PART_STYLES:
        marks = list(style.finditer(statement))
        ends = [*(mark.start() for mark in marks[1:]), len(statement)]
        asked = [
            (mark[0].strip(), statement[mark.end() : end])
            for mark, end in zip(marks, ends, strict=False)
            if _ASKS.match(statement, mark.end(), end) and not _FINAL_ANSWER.search(statement, mark.end(), end)
        ]
        if len(asked) > 1:
            return asked
    return []


def _on_the_way(statement: str, asked: Sequence[str], answer: str) -> bool:
    """Whether all tasks but the last only lead there: one value of what was expanded, listed or put in a form."""
    if parts_of(answer) != 1 or prose(answer):
        return False
    of_letters = _OF_LETTERS.search(_ASY.sub("", statement))
    if "questions" in statement and _QUESTIONS_TOLD.search(statement):
        return True
    if any(each[-1] in "?？" for each in asked[:-1]):
        return bool(of_letters) and bool(_OF_A_FORM.search(statement))
    solved = all(_SOLVES.match(each) for each in asked[:-1]) and _OF_SOLUTION.match(asked[-1])
    if solved or _RESULTING.search(asked[-1]) or _LETTER_OF_ANSWER.search(statement):
        return True
    if _asked_again(asked):
        return True
    listed = all(_ALL.match(each) for each in asked[:-1]) and _OF_ALL.match(asked[-1])
    return bool(of_letters or listed) or all(_TRANSFORMS.match(each) for each in asked[:-1])


def _asked_again(asked: Sequence[str]) -> bool:
    """Whether the last sentence only asks once more for what an earlier one has told to find ("... What is y(1)?")."""
    last = _WHAT_IS.match(asked[-1])
    names = set(_NAMES.findall(last[1].lower())) - _UNSAID if last else set()
    return bool(names) and any(names <= set(_NAMES.findall(each.lower())) for each in asked[:-1])
