"""Which ground truths a verifier can compare: values, a few words, several values; and which are prose or damaged.

An answer is prose if it is a sentence, a worked solution, values distinguished by words ("maximum at 3, minimum at 1"),
or says that many answers are right. English and Chinese.
"""

import re

from magcli.curate.math.answer_rules import MATH_NAMES
from magcli.curate.math.rules import RULES

# Commands whose argument is no prose, all other commands, and the signs around formulas.
_LATEX = re.compile(r"\\(?:operatorname|mathrm|mathbf|mathbb|begin|end)\*?\s*\{[^}]*\}|\\[A-Za-z]+|[{}$]")
_ENVIRONMENT = re.compile(r"\\begin\{(\w+)\*?\}.*?\\end\{\1\*?\}", re.S)
_TEXT_COMMAND = re.compile(r"\\(?:text|textrm|mathrm|mbox)\s*\{([^{}]*)\}")
# Three letters or more; names of functions and the smallest words are no prose.
_WORD = re.compile(rf"(?<![A-Za-z])(?!(?:{MATH_NAMES})\b)[A-Za-zÀ-ÿ\u0400-\u04ff]{{3,}}")
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
# about 5 km/h, 2 hours and 5 minutes, 3 个
_MEASURED = re.compile(
    r"(?:about|approximately|approx\.?|around|roughly|nearly|almost|大约|约)?\s*(?:US|Rs\.?)?\s*\\?[$€£]?\s*"
    r"[-+]?\d[\d,./ ]*\s*%?(?:\s*(?!is\b|are\b|was\b|has\b|so\b|because\b)[A-Za-z.'°/²³^-]+){0,6}\.?"
    r"|\d+\s*(?:hours?|hrs?|minutes?|mins?)\s*(?:and\s*)?\d+\s*(?:minutes?|mins?|seconds?|secs?)\.?"
    r"|[-+]?\d[\d,./]*\s*[\u4e00-\u9fff]{1,4}。?",
    re.I,
)
_NUMBER_AND_MEASURE_WORD = re.compile(r"([-+]?\d[\d,.]*(?:/\d+)?)\s*[\u4e00-\u9fff]{1,4}[。.]?")
_APPROXIMATELY = re.compile(
    r"\A(?:about|approximately|approx\.?|around|roughly|after|Rs\.?|INR|大约|约)\s*(?=[-+$\\]?\d)", re.I
)
_LABEL = re.compile(
    r"\A\W{0,3}(?:the\s+)?(?:general\s+|final\s+)?(?:solutions?|answers?)(?:\s+set)?(?:\s+(?:is|are))?\s*[:：]\s*|\A(?:解|输出)\s*[:：]\s*",
    re.I,
)
# k, $k$, c_1 and c_2
_PARAMETER = r"\$?\s*(?:[A-Za-z](?:_\{?\w\}?)?(?:\s*(?:,|，|and|和)\s*)?){1,4}\s*\$?"
_FREE_CONSTANTS = re.compile(
    rf"[\s,，;；]{{0,4}}(?:\bfor\s+(?:all|any|every|each|some)\s+(?:real\s+(?:numbers?|values?)|integers?|reals?|constants?)\s*(?:{_PARAMETER})?"
    rf"|\b(?:where|for)\s+{_PARAMETER}\s+(?:is|are)\s+(?:an?\s+)?(?:arbitrary\s+|free\s+|any\s+|real\s+){{0,2}}"
    rf"(?:constants?|integers?|numbers?|parameters?)|(?:(?<=[,，;；])|其中)\s*{_PARAMETER}\s*(?:均?[为是])\s*任意(?:的)?(?:实|非零)?常?数)"
    r"\s*[.。．]?\s*\Z",
    re.I,
)
_DOLLARED = re.compile(r"(\$\$?)([^$]+)\1[.。．]?")
_BLANKS = re.compile(r"\s+")
_TRAILING_SPACE = re.compile(r"(?:\s|\\q?quad|\\[,;])+\Z")
_DOLLAR = re.compile(r"(?<!\\)\$")
_OR = re.compile(r"\s*或者?\s*")
# A semicolon outside of brackets with more after it, or a mapping from names.
_SEVERAL_VALUES = re.compile(r"\A(?:[^(\[{;；]|[(\[{][^)\]}]*[)\]}]|\\;)*(?<!\\)[;；]\s*\S|\A\{\s*['\"]", re.S)
# A comma before three digits separates thousands.
_SEPARATOR = re.compile(r"\s*(?:[;；、，@]|,(?!\d{3}(?!\d))|\b(?:and|or)\b|\\text\s*\{\s*(?:and|or)\s*\}|和|与|或)\s*")
# Escaped brackets and commands, whose letters and braces say nothing about pairs.
_ESCAPED = re.compile(r"\\[{}$()\[\]]|\\[A-Za-z]+")


def is_prose(answer: str, max_words: int = 3) -> bool:
    """Whether an answer is text, not a value: a sentence, or more than ``max_words`` words or as much in Chinese."""
    if RULES.matches("not-one-value", answer):
        return True
    if _MEASURED.fullmatch(answer) or says_nothing(answer):
        return False
    text = _text_of(answer)
    # A Chinese word has about two characters.
    if len(_WORD.findall(text)) > max_words or len(_CHINESE.findall(text)) > 2 * max_words + 2:
        return True
    return RULES.matches("name", answer) or RULES.matches("sentence", text) or RULES.matches("labelled-values", answer)


def says_nothing(answer: str) -> bool:
    """Whether an answer is "no solution", "not a function" or similar, which may answer several tasks at once."""
    return RULES.matches("nothing", _text_of(answer).strip())


def without_label(answer: str) -> str:
    """An answer without "Solution is:", remarks on free constants, and dollar signs around the rest."""
    unlabelled = _LABEL.sub("", answer)
    text = _FREE_CONSTANTS.sub("", unlabelled)
    # Dollar signs stay around an answer that is as it was written.
    return answer if text == answer else without_dollars(text)


def without_dollars(text: str) -> str:
    """Text without dollar signs around all of it."""
    text = text.strip()
    formula = _DOLLARED.fullmatch(text)
    return (formula[2] if formula else text).strip()


def plain_value(answer: str) -> str:
    """An answer as the verifier reads it.

    Without a label, "about", Chinese measure words and the Chinese "or"; without dollar signs if one is unpaired.
    """
    text = without_label(answer)
    if measured := _NUMBER_AND_MEASURE_WORD.fullmatch(text):
        return measured[1]
    text = _OR.sub(" or ", _APPROXIMATELY.sub("", text))
    if len(_DOLLAR.findall(text)) % 2 == 0:
        return text
    return _TRAILING_SPACE.sub("", _DOLLAR.sub("", text))


def right_hand_side(answer: str, prompt: str) -> str:
    """The value of an answer that repeats what the statement asks for ("u . v = 17"); empty for others."""
    left, equals, right = answer.replace("$", " ").strip(" .").rpartition("=")
    if not equals:
        return ""
    # Of a chain such as u . v = 3 + 14 = 17 the first side is what was asked for.
    asked = _BLANKS.sub("", left.partition("=")[0])
    if asked not in _BLANKS.sub("", prompt):
        return ""
    has_several = re.search(r"[,;，；]", _outside_brackets(answer)) or _WORD.search(_text_of(answer))
    return "" if has_several else right.strip()


def unsolvable(answer: str) -> str:
    """The text at the start of a prose answer that says that the problem lacks something; empty for none."""
    return RULES.matched_text("unsolvable", answer[:240])


def has_separate_values(answer: str) -> bool:
    """Whether an answer is separated by semicolons, or a mapping: values of different questions.

    Only equations are the solutions of one.
    """
    are_equations = all(re.search(r"=|\\equiv", part) for part in re.split(r"[;；]", answer))
    return bool(_SEVERAL_VALUES.match(answer)) and not are_equations


def count_values(answer: str) -> int:
    """The number of values separated by commas, semicolons or "and" outside brackets."""
    # A matrix is one value.
    flat = _outside_brackets(_ENVIRONMENT.sub("E", answer))
    values = [part for part in _SEPARATOR.split(flat) if re.search(r"\w", part)]
    return len(values)


def has_words(answer: str) -> bool:
    """Whether an answer that is not valid mathematics contains words, so it is prose rather than damaged notation."""
    text = _text_of(answer)
    return len(_WORD.findall(text)) > 1 or len(_CHINESE.findall(text)) > 1


def is_damaged(answer: str) -> bool:
    """Whether notation is damaged: unpaired brackets, braces or dollar signs, dangling operators, scanning errors."""
    text = _ESCAPED.sub("", answer)
    return (
        text.count("{") != text.count("}")
        # An interval such as [0, 1) pairs one kind with the other, so only their sum must be even.
        or sum(map(text.count, "()[]")) % 2 == 1
        or ("[" not in text and "]" not in text and text.count("(") != text.count(")"))
        or (answer.count("$") - answer.count("\\$")) % 2 == 1
        or RULES.matches("broken", answer)
    )


def _text_of(answer: str) -> str:
    """The words of an answer, without LaTeX commands and environments but with the text in formulas."""
    if "\\" not in answer and "$" not in answer:
        return answer
    text = _ENVIRONMENT.sub(" ", answer)
    text = _TEXT_COMMAND.sub(r" \1 ", text)
    return _LATEX.sub(" ", text)


def _outside_brackets(text: str) -> str:
    """Text with each bracketed part replaced by ``B``; an unmatched closing bracket is ignored."""
    kept = []
    depth = 0
    for char in text:
        if char in "([{":
            depth += 1
            kept.append("B" if depth == 1 else "")
        elif char in ")]}":
            depth = max(0, depth - 1)
        elif depth == 0:
            kept.append(char)
    return "".join(kept)
