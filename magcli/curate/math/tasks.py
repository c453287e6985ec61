"""What a statement asks for: questions and tasks, sentence by sentence, and whether they have one answer or several.

Formulas are masked first, so that punctuation inside them ends no sentence. Sentences about the form of the answer
("Round to two decimals"), about a sketch or equation to write as well, and about cases ("If not, say why") do not count
as tasks. English and Chinese.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from magcli.curate.math.answers import count_values, is_prose, says_nothing
from magcli.curate.math.rules import RULES

# Asymptote code, environments, $$..$$, \[..\], \(..\), and $..$ unless it is two prices.
_FORMULA = re.compile(
    r"\[asy\].*?(?:\[/asy\]|\Z)|\\begin\{(?!enumerate|itemize|question|problem|parts)(\w+)\*?\}.*?(?:\\end\{\1\*?\}|\Z)|\$\$[^$]*\$\$|\\\[.*?(?:\\\]|\Z)"
    r"|\\\(.*?(?:\\\)|\Z)|\\\$|(?<!\\)\$(?=\S)(?:[^$\n\\]|\\.){1,600}(?<=\S)\$(?!\d)",
    re.S,
)
# Asides and quotations, which ask the solver for nothing. Brackets with up to three characters stay: labels.
_PARENTHESIS = re.compile(
    r" ?\((?![^()]{0,3}\))[^()]{0,600}\)|（[^（）]{4,200}）|[\"“'‘`][^\"”“'’\n]{0,300}[?？][\"”'’]"
    r"|<details>[^<]{0,2000}(?:<(?!/?details>)[^<]{0,2000}){0,40}</details>|“[^“”]{300,2000}”|(?:\\?\"){3}[^\"]*(?:\\?\"){3}"
)
_ANSWER_LINE = re.compile(r"(?:\A|\n)[ \t]*final answer\b[^\n]*", re.I)
# After ?, ! and ; unless an operator follows, and after a period; not after "no." and "vs.".
# After a capital letter, as in initials, a period only counts before words such as Find.
_SENTENCE_END = re.compile(
    r"(?<=[?!;。？！；\n])(?![)）]|\s{0,2}[=+*/×÷])|(?<=[a-z0-9)\]%Ξ$\"”_—–-]\.)(?<!\bno\.)(?<!\bvs\.)(?=\s)|(?<=\s\.)(?=\s)|(?<=．)(?!\d)"
    r"|(?<=[a-z]\s[A-Z]\.)(?=\s+(?:Suppose|Let|If|Find|What|How|Does|Do|Is|Are|Determine|The|It|Compute|Given|When|Which)\b)"
)
# A blank to fill in, or several that are joined by commas or by "and", which hold one answer.
_BLANK = re.compile(
    r"_{2,}(?:[\s,，、]{0,9}(?:and|和)?\s{0,9}_{2,})*|[(（]\s*\$?\\q?quad\$?\s*[)）](?:\$?\s*[,，、]\s*\$?[(（]\s*\$?\\q?quad\$?\s*[)）])*|\\underline\{\s*(?:\\q?quad\s*|\\hspace\{\w+\}|~)*\}"
)
# A fraction to fill in: blanks above and below its bar.
_FRACTION_BLANK = "((())/(()))"
_ASKS_AMOUNT = re.compile(r"(?:是|长|有|[^，,]{2,12})多少")
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_ASY = re.compile(r"\[asy\](?:[^\[]|\[(?!/?asy\]))*\[/asy\]")
# A quick test before the slower patterns: several parts have a second one.
_SECOND_LABEL = re.compile(r"(?:[b2]|ii\s?)[)）]", re.I)
# (a) to (f); (1) to (6); (i) to (v), also i) and a) without an opening bracket.
_LABEL_STYLES = tuple(
    re.compile(pattern, re.I)
    for pattern in (
        r"(?<![A-Za-z0-9_])[(（]\s*[a-f]\s*[)）]",
        r"(?:\A|[\n.。;；?？:：,，\s])[(（]\s*[1-6]\s*[)）]",
        r"(?:\A|[\n.．?;；:：。)）]\s*)(?:[(（]\s?(?:i|ii|iii|iv|v)\s?[)）]|(?:[ivx]+|[a-f])\))",
    )
)
# What stands before a label that begins a part; within a sentence, a label names something: "rod (a)".
_BEFORE_A_PART = re.compile(
    r"(?:\A|[\n.?!:;,。？！：；，、．)）*#>—–-]|\b(?:and|or|then|also|find|compute|calculate|determine|is|are))\s*\Z",
    re.I,
)
_CAPITAL_FOLLOWS = re.compile(r"\s*[A-Z]")
# "So, if Ann is 5, what is the value of", before what a sentence asks for.
_BEFORE_THE_THING = re.compile(
    r".*\b(?:what(?:'s|\s+is|\s+are|\s+was|\s+were)?|which|how|find|compute|calculate|determine|evaluate|work\s+out"
    r"|solve(?:\s+for)?)\b(?:\s+the\s+values?\s+of\b)?",
    re.I | re.S,
)
# A verb that asks for all labelled things that follow it: "Find (a) the area and (b) the perimeter."
_ASKS_FOR_PARTS = re.compile(r"\b(?:find|compute|calculate|determine|what\s+(?:is|are))\s*:?\s*\Z", re.I)
_WORD = re.compile(r"[^\W\d_Ξ]{3}|[\u4e00-\u9fff]")
_MATHEMATICAL = re.compile(r"[\d$\\=_]")
# What follows a formula within its Chinese sentence.
_GOES_ON = re.compile(r"\s?[，、的且和与]")
_FINAL_ANSWER = re.compile(r"\n\s*final answer\b", re.I)


class Tasks(NamedTuple):
    """What a statement asks for.

    ``sentences`` ask for a value each, and ``extra`` counts further tasks in them ("find A and find B"). The texts are
    empty if there is none: ``objects`` names several things to find at once ("find the centre and the radius"),
    ``reason`` asks for a reason, ``open_ended`` has many right answers. ``yes_no``: a question's answer is yes or no.
    """

    sentences: tuple[str, ...] = ()
    extra: int = 0
    reason: str = ""
    yes_no: bool = False
    open_ended: str = ""
    objects: str = ""

    @property
    def only_reasons(self) -> bool:
        """Whether the statement asks for reasons, and for no value except yes or no."""
        return bool(self.reason) and (not self.sentences or self.yes_no)


def find_tasks(statement: str) -> Tasks:
    """The tasks of a statement, except in parts that it solves itself."""
    text = _PARENTHESIS.sub("", mask_formulas(_unsolved(statement)))
    asking: list[str] = []
    cases: list[str] = []
    extra = 0
    reason = ""
    yes_no = hint = False
    for sentence in split_sentences(text):
        # What a hint says to explain is not asked for.
        hint = hint or sentence.startswith("Hint:")
        if RULES.matches("case", sentence) or (yes_no and RULES.matches("case-of-it", sentence)):
            cases.append(sentence)
            continue
        if not reason and not hint:
            reason = RULES.matched_text("reasons", sentence)
        num_tasks = count_tasks(sentence)
        states_form = asking and RULES.matches("form", sentence)
        if not num_tasks or states_form:
            continue
        # A statement that ends with a question mark is no task if a task follows it.
        if asking and _is_statement(asking[-1]):
            asking.pop()
        asking.append(sentence)
        # The sentence itself stands for one of them.
        extra += num_tasks - 1
        yes_no = yes_no or _is_yes_no(sentence)
    objects = ""
    for sentence in (*asking, *cases):
        objects = objects or RULES.matched_text("objects", sentence)
    objects = objects or RULES.matched_text("formulas", statement)
    return Tasks(tuple(asking), extra, reason, yes_no, RULES.matched_text("open-ended", statement), objects)


def proof_request(statement: str, tasks: Tasks, *, prose: bool) -> str:
    """The text that asks for a proof or for reasons; empty if there is a value to compare.

    That is the case if a question follows the proof, or if the solver's own answer is to be proved; "What is x? Show
    that it is 3" only asks for a proof. ``prose``: the ground truth is text, so the argument is the answer.
    """
    request = RULES.find("proof", statement)
    if request is None:
        return tasks.reason if prose or tasks.only_reasons else ""
    # What is to be proved follows the verb that the rule matched.
    around = statement[request.start() : request.end() + 40]
    after = statement[request.end() :]
    has_value = (tasks.sentences and RULES.matches("own-result", around)) or find_tasks(after).sentences
    if has_value and not prose:
        return ""
    return request[0].strip(" .;:!?,\n")


def mask_formulas(statement: str) -> str:
    """The statement with ``Ξ`` for each formula, keeping punctuation at a formula's end."""
    may_have_formula = "$" in statement or "\\" in statement or "[asy]" in statement
    return _FORMULA.sub(_mask, statement) if may_have_formula else statement


def split_sentences(text: str) -> list[str]:
    """The sentences of a text with their final punctuation."""
    sentences = (part.strip() for part in _SENTENCE_END.split(text))
    return [sentence for sentence in sentences if sentence and sentence not in ".;"]


def count_tasks(sentence: str) -> int:
    """The number of values that a sentence asks for."""
    sentence = RULES.replace("and-if-so", sentence, "")
    num_verbs = sum(1 for _ in RULES.find_all("task", sentence))
    # With words, as a question mark may also be a blank to fill in: "2 + 3 = ?"
    is_question = sentence[-1] in "?？" and re.search(r"[^\W\d_Ξ]{2}|[\u4e00-\u9fff]", sentence)
    if not (num_verbs or is_question) or RULES.matches("restated", sentence):
        return 0
    # Verbs of a story are no instructions: "He wants to solve it."
    if RULES.matches("narrative", sentence):
        num_verbs = 0
    return max(1, num_verbs) if is_question else num_verbs


def _is_yes_no(sentence: str) -> bool:
    return RULES.matches("yes-or-no", sentence) and not RULES.matches("question-word", sentence)


def _is_statement(sentence: str) -> bool:
    """Whether a sentence ends with a question mark but asks nothing ("A zoo has 3 bears?")."""
    asks = any(RULES.matches(reason, sentence) for reason in ("question-word", "yes-or-no", "task"))
    return sentence[-1] in "?？" and sentence[0].isupper() and not asks and "Ξ" not in sentence


def _unsolved(statement: str) -> str:
    """The text after the last answer that the statement gives itself ("Final answer: ...")."""
    if "inal answer" not in statement:
        return statement
    ends = [line.end() for line in _ANSWER_LINE.finditer(statement)]
    return statement[ends[-1] :] if ends else statement


def _mask(formula: re.Match[str]) -> str:
    text = formula[0]
    if text == "\\$":
        return text
    inner = text.strip("$[]()\\ \n")
    end = inner[-1] if inner and inner[-1] in ".,?;:" else ""
    # The question is the formula's own if the sentence goes on after it.
    if end in "?" and _GOES_ON.match(formula.string, formula.end()):
        return "Ξ"
    # A display formula that ends a sentence is followed by a new line.
    ends_sentence = text.startswith("\\[") and end in (".", "?")
    return f"Ξ{end}\n" if ends_sentence else f"Ξ{end}"


# ---- several questions ----


def several_questions(statement: str, tasks: Tasks, answer: str) -> str:
    """What shows that a statement has several questions; empty if it has one.

    Tasks in separate sentences are several questions, except the one which option is right. Tasks or objects joined by
    "and" are several only if the answer has several values, as one answer may combine them. If neither the statement
    nor a prose answer contains mathematics, it answers one instruction.
    """
    has_mathematics = _MATHEMATICAL.search(statement) or _MATHEMATICAL.search(answer)
    if not has_mathematics and is_prose(answer):
        questions = [sentence for sentence in tasks.sentences if sentence[-1] in "?？"]
        return f"asks {len(questions)} times" if len(questions) > 1 else ""
    asking = _untranslated([sentence for sentence in tasks.sentences if not RULES.matches("of-options", sentence)])
    asking = _without_repeated(asking, statement)
    times = ""
    if len(asking) > 1 and not _are_steps(statement, asking, answer):
        times = f"asks {len(asking)} times"
    return (
        labelled_parts(statement)
        or several_blanks(statement)
        or times
        or RULES.matched_text("two-things", statement)
        or RULES.matched_text("two-values", "\n".join(tasks.sentences))
        or _separate_values(statement, tasks, answer)
    )


def separate_answers(question: str, values: str) -> str:
    """What shows that the values of the right option answer separate questions; empty if nothing does."""
    if count_values(values) < 2 or not re.search(r"\d", values):
        return ""
    tasks = find_tasks(question)
    separate = RULES.matched_text("separate-answers", question)
    return separate or tasks.objects or ("tasks that and joins" if tasks.extra else "")


def several_blanks(statement: str) -> str:
    """The number of blanks to fill in, if more than one; a statement in two languages has each twice."""
    text = _ASY.sub("", statement)
    # What stands before each blank says in which language it is.
    contexts = [text[max(0, blank.start() - 30) : blank.start()] for blank in _BLANK.finditer(text)]
    num_chinese = len(list(filter(_CHINESE.search, contexts)))
    # No blanks at all satisfy this too, and count as none.
    in_two_languages = 2 * num_chinese == len(contexts)
    count = num_chinese if in_two_languages else len(contexts)
    num_fractions = text.count(_FRACTION_BLANK)
    if num_fractions > 1 or (num_fractions and _ASKS_AMOUNT.search(text)):
        return "a blank and a question"
    return f"{count} blanks" if count > 1 else ""


def labelled_parts(statement: str) -> str:
    """The labels of the parts that ask for something, if there are several."""
    return " ".join(label for label, _ in _asking_parts(statement)[:4])


def has_part_without_proof(statement: str) -> bool:
    """Whether the statement has several labelled parts, at least one of which asks for no proof."""
    for _, text in _asking_parts(statement):
        only_proves = RULES.matches("part-proves", text) and not RULES.matches("part-finds", text)
        if not only_proves:
            return True
    return False


def _asking_parts(statement: str) -> list[tuple[str, str]]:
    """Labels and texts of the unsolved parts that ask for something, in the first label style with at least two."""
    if not _SECOND_LABEL.search(statement):
        return []
    statement = mask_formulas(statement)
    for style in _LABEL_STYLES:
        labels = [label for label in style.finditer(statement) if _begins_a_part(label)]
        if len(labels) < 2:
            continue
        first = labels[0].start()
        # "Find: (a) .. (b) .." asks for every part.
        all_ask = _ASKS_FOR_PARTS.search(statement[max(0, first - 20) : first])
        ends = [*(label.start() for label in labels[1:]), len(statement)]
        asking = []
        for label, end in zip(labels, ends, strict=True):
            text = statement[label.end() : end]
            # A part with a "final answer" below it is an example that the statement solves itself.
            asks = RULES.matches("part-asks", text) or (all_ask and _WORD.search(text))
            if asks and not _FINAL_ANSWER.search(text):
                asking.append((label[0].strip(), text))
        if len(asking) > 1:
            return asking
    return []


def _begins_a_part(label: re.Match[str]) -> bool:
    """Whether a label begins a part, and does not name something within a sentence ("the length of rod (a)")."""
    # Other matches include the punctuation or space before the label, which shows that it begins a part.
    if label[0][0] not in "(（":
        return True
    before = label.string[max(0, label.start() - 10) : label.start()]
    return bool(_BEFORE_A_PART.search(before) or _CAPITAL_FOLLOWS.match(label.string, label.end()))


def _without_repeated(asking: Sequence[str], statement: str) -> Sequence[str]:
    """The sentences that ask for something new: "What is 3 + 4? So what is 3 + 4?" asks once."""
    if len(asking) < 2:
        return asking
    several_formulas = len({formula[0] for formula in _FORMULA.finditer(statement)}) > 1
    new: list[str] = []
    conditions: dict[str, str] = {}
    for sentence in asking:
        condition, thing = _condition_and_thing(sentence)
        # Masked formulas may differ, and so may the conditions: "If Ξ, find x. If Ξ, find x."
        unclear = not thing or (several_formulas and "Ξ" in sentence)
        if unclear or thing not in conditions or (condition and conditions[thing]):
            new.append(sentence)
        conditions[thing] = conditions.get(thing, "") or condition
    return new


def _condition_and_thing(sentence: str) -> tuple[str, str]:
    """The mathematics under which a sentence asks for something, if any, and what it asks for."""
    before = _BEFORE_THE_THING.match(sentence)
    end = before.end() if before else 0
    thing, _, equation = sentence[end:].partition(":")
    condition = sentence[:end] + equation
    is_mathematical = _MATHEMATICAL.search(condition) or "Ξ" in condition
    return condition if is_mathematical else "", " ".join(thing.lower().split()).rstrip(" .?？。!")


def _untranslated(asking: Sequence[str]) -> Sequence[str]:
    """The sentences without their translations, if the statement is in Chinese and in English."""
    # Half of the sentences, as each is there once in either language.
    english = [sentence for sentence in asking if not _CHINESE.search(sentence)]
    return english if 2 * len(english) == len(asking) else asking


def _are_steps(statement: str, asking: Sequence[str], answer: str) -> bool:
    """Whether all tasks except the last are steps towards it, and the answer is its value."""
    if count_values(answer) != 1 or is_prose(answer):
        return False
    # A question before the last is asked for its own sake; only instructions are steps.
    if any(sentence[-1] in "?？" for sentence in asking[:-1]):
        return False
    return RULES.matches("intermediate-step", _ASY.sub("", statement))


def _separate_values(statement: str, tasks: Tasks, answer: str) -> str:
    """What shows that the values of an answer answer separate questions, and are no list, pair or set."""
    if tasks.extra and (count_values(answer) > 1 or is_prose(answer) or says_nothing(answer)):
        return "tasks that and joins"
    # A mapping from the names of the parts, as Python or JSON writes it.
    if answer.startswith(("{'", '{"')):
        return "an answer by part"
    if count_values(answer) < 2:
        return ""
    if tasks.objects and not RULES.matches("same-question", tasks.objects):
        return tasks.objects
    return RULES.matched_text("each", statement)
