"""What a statement asks for, sentence by sentence: questions, tasks, the reasons it wants besides.

Formulas are masked first, so that a question mark or a full stop within one ends nothing. Sentences on the form of the
answer ("Round to two decimals"), on a sketch or an equation to be written besides, and on a case ("If not, say why")
ask for nothing of their own. English and Chinese.
"""

import re
from typing import NamedTuple

from magcli.curate.math.rules import ENGINE

_FORMULA = re.compile(
    r"\[asy\].*?(?:\[/asy\]|\Z)|\\begin\{(?!enumerate|itemize|question|problem|parts)(\w+)\*?\}.*?(?:\\end\{\1\*?\}|\Z)|\$\$[^$]*\$\$|\\\[.*?(?:\\\]|\Z)"
    r"|\\\(.*?(?:\\\)|\Z)|\\\$|(?<!\\)\$(?=\S)(?:[^$\n\\]|\\.){1,600}(?<=\S)\$(?!\d)",
    re.S,
)
_ASIDE = re.compile(
    r" ?\((?![^()]{0,3}\))[^()]{0,600}\)|（[^（）]{4,200}）|[\"“'‘`][^\"”“'’\n]{0,300}[?？][\"”'’]"
    r"|<details>[^<]{0,2000}(?:<(?!/?details>)[^<]{0,2000}){0,40}</details>|“[^“”]{300,2000}”|(?:\\?\"){3}[^\"]*(?:\\?\"){3}"
)
_SOLVED = re.compile(r"(?:\A|\n)[ \t]*final answer\b[^\n]*", re.I)
_SENTENCE_END = re.compile(
    r"(?<=[?!;。？！；\n])(?![)）]|\s{0,2}[=+*/×÷])|(?<=[a-z0-9)\]%Ξ$\"”_—–-]\.)(?<!\bno\.)(?<!\bvs\.)(?=\s)|(?<=\s\.)(?=\s)|(?<=．)(?!\d)"
    r"|(?<=[a-z]\s[A-Z]\.)(?=\s+(?:Suppose|Let|If|Find|What|How|Does|Do|Is|Are|Determine|The|It|Compute|Given|When|Which)\b)"
)


class Tasks(NamedTuple):
    """What a statement asks for.

    ``values`` are the sentences that ask for a value, ``joined`` counts further tasks within these sentences ("find A
    and find B"), ``several`` is the text that names several things at once ("find the centre and the radius"),
    ``reason`` is the text that wants a reason, ``closed`` says that a question is one of yes or no, and
    ``open_ended`` is the text that invites one of many answers.
    """

    values: tuple[str, ...] = ()
    joined: int = 0
    reason: str = ""
    closed: bool = False
    open_ended: str = ""
    several: str = ""

    @property
    def only_reasons(self) -> bool:
        """Whether the statement wants reasons and no value, or yes or no with its reason."""
        return bool(self.reason) and (not self.values or self.closed)


def tasks_of(statement: str) -> Tasks:
    """Read a statement's sentences; parts that the statement itself solves are passed over."""
    text = _ASIDE.sub("", masked(_unsolved(statement)))
    values: list[str] = []
    cases: list[str] = []
    joined, reason, closed, hinted = 0, "", False, False
    for sentence in sentences(text):
        hinted = hinted or sentence.startswith("Hint:")
        if ENGINE.matches("case", sentence) or (closed and ENGINE.matches("case-of-it", sentence)):
            cases.append(sentence)
            continue
        reason = reason or (not hinted and ENGINE.words("reasons", sentence)) or ""
        if (tasks := tasks_in(sentence)) and not (values and ENGINE.matches("form", sentence)):
            if values and _only_tells(values[-1]):
                values.pop()
            values.append(sentence)
            joined += tasks - 1
            closed = closed or is_closed(sentence)
    several = next(filter(None, (ENGINE.words("objects", each) for each in (*values, *cases))), "")
    several = several or ENGINE.words("formulas", statement)
    return Tasks(tuple(values), joined, reason, closed, ENGINE.words("open-ended", statement), several)


def proof(statement: str, tasks: Tasks, *, prose: bool) -> str:
    """The words that ask for a proof or for reasons; empty when there is a value to compare.

    A value is asked for beside the proof when its question comes after the proof, or when what is to be proved is
    one's own answer; "What is x? Show that it is 3" asks for nothing but the proof. ``prose``: the ground truth is
    text, which tells that what is wanted is the argument.
    """
    found = ENGINE.first("proof", statement)
    if found is None:
        return tasks.reason if tasks.only_reasons or (prose and tasks.reason) else ""
    own = tasks.values and ENGINE.words("own-claim", statement[found.start() : found.end() + 40])
    value = own or tasks_of(statement[found.end() :]).values
    return "" if value and not prose else found[0].strip(" .;:!?,\n")


def masked(statement: str) -> str:
    """A statement with a ``Ξ`` for each formula; punctuation that ends a formula stays."""
    return (
        _FORMULA.sub(_mask, statement) if "$" in statement or "\\" in statement or "[asy]" in statement else statement
    )


def sentences(text: str) -> list[str]:
    """The sentences of a text, each with the sign that ends it."""
    return [found for each in _SENTENCE_END.split(text) if (found := each.strip()) and found not in ".;"]


def tasks_in(sentence: str) -> int:
    """How many values a sentence asks for; 0 when it asks for none."""
    sentence = ENGINE.replaced("and-if-so", sentence, "")
    heads = sum(1 for _ in ENGINE.every("task", sentence))
    question = sentence[-1] in "?？" and re.search(r"[^\W\d_Ξ]{2}|[\u4e00-\u9fff]", sentence)
    if not (heads or question) or ENGINE.matches("restated", sentence):
        return 0
    heads = 0 if ENGINE.matches("narrative", sentence) else heads
    return max(1, heads) if question else heads


def is_closed(sentence: str) -> bool:
    """Whether a sentence asks for yes or no."""
    return ENGINE.matches("yes-or-no", sentence) and not ENGINE.matches("question-word", sentence)


def _only_tells(sentence: str) -> bool:
    """Whether a sentence tells something although a question mark ends it ("A zoo has 3 bears?")."""
    asks = any(ENGINE.matches(reason, sentence) for reason in ("question-word", "yes-or-no", "task"))
    return sentence[-1] in "?？" and sentence[0].isupper() and not asks and "Ξ" not in sentence


def _unsolved(statement: str) -> str:
    """What follows the last part that the statement solves itself ("Final answer: ...")."""
    if "inal answer" not in statement:
        return statement
    ends = [found.end() for found in _SOLVED.finditer(statement)]
    return statement[ends[-1] :] if ends else statement


def _mask(formula: re.Match[str]) -> str:
    text = formula[0]
    if text == "\\$":
        return text
    inner = text.strip("$[]()\\ \n")
    end = inner[-1] if inner and inner[-1] in ".,?;:" else ""
    return f"Ξ{end}\n" if text.startswith("\\[") and end in ".?" and end else f"Ξ{end}"
