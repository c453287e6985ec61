"""Which ground truths can be compared: a value, a few words, several values; and which are prose or broken.

An answer is prose when it is a sentence, a worked text, values told apart by words ("maximum at 3, minimum at 1"), or
says that many answers are right. English and Chinese.
"""

import re

from magcli.curate.math.answer_rules import MATH_NAMES
from magcli.curate.math.rules import ENGINE

_LATEX = re.compile(r"\\(?:operatorname|mathrm|mathbf|mathbb|begin|end)\*?\s*\{[^}]*\}|\\[A-Za-z]+|[{}$]")
_ENVIRONMENT = re.compile(r"\\begin\{(\w+)\*?\}.*?\\end\{\1\*?\}", re.S)
_TEXT = re.compile(r"\\(?:text|textrm|mathrm|mbox)\s*\{([^{}]*)\}")
_WORD = re.compile(rf"(?<![A-Za-z])(?!(?:{MATH_NAMES})\b)[A-Za-zÀ-ÿ\u0400-\u04ff]{{3,}}")
_HAN = re.compile(r"[\u4e00-\u9fff]")
_MEASURED = re.compile(
    r"(?:about|approximately|approx\.?|around|roughly|nearly|almost|大约|约)?\s*(?:US|Rs\.?)?\s*\\?[$€£]?\s*"
    r"[-+]?\d[\d,./ ]*\s*%?(?:\s*(?!is\b|are\b|was\b|has\b|so\b|because\b)[A-Za-z.'°/²³^-]+){0,6}\.?"
    r"|\d+\s*(?:hours?|hrs?|minutes?|mins?)\s*(?:and\s*)?\d+\s*(?:minutes?|mins?|seconds?|secs?)\.?"
    r"|[-+]?\d[\d,./]*\s*[\u4e00-\u9fff]{1,4}。?",
    re.I,
)
_COUNTED = re.compile(r"([-+]?\d[\d,.]*(?:/\d+)?)\s*[\u4e00-\u9fff]{1,4}[。.]?")
_ABOUT = re.compile(
    r"\A(?:about|approximately|approx\.?|around|roughly|after|Rs\.?|INR|大约|约)\s*(?=[-+$\\]?\d)", re.I
)
_LABEL = re.compile(
    r"\A\W{0,3}(?:the\s+)?(?:general\s+|final\s+)?(?:solutions?|answers?)(?:\s+set)?(?:\s+(?:is|are))?\s*[:：]\s*|\A(?:解|输出)\s*[:：]\s*",
    re.I,
)
_PARAMETER = r"\$?\s*(?:[A-Za-z](?:_\{?\w\}?)?(?:\s*(?:,|，|and|和)\s*)?){1,4}\s*\$?"
_FREE = re.compile(
    rf"[\s,，;；]{{0,4}}(?:\bfor\s+(?:all|any|every|each|some)\s+(?:real\s+(?:numbers?|values?)|integers?|reals?|constants?)\s*(?:{_PARAMETER})?"
    rf"|\b(?:where|for)\s+{_PARAMETER}\s+(?:is|are)\s+(?:an?\s+)?(?:arbitrary\s+|free\s+|any\s+|real\s+){{0,2}}"
    rf"(?:constants?|integers?|numbers?|parameters?)|(?:(?<=[,，;；])|其中)\s*{_PARAMETER}\s*(?:均?[为是])\s*任意(?:的)?(?:实|非零)?常?数)"
    r"\s*[.。．]?\s*\Z",
    re.I,
)
_DRESSED = re.compile(r"(\$\$?)([^$]+)\1[.。．]?")
_BLANKS = re.compile(r"\s+")
_SPACE_AT_END = re.compile(r"(?:\s|\\q?quad|\\[,;])+\Z")
_DOLLAR = re.compile(r"(?<!\\)\$")
_OR = re.compile(r"\s*或者?\s*")
_SEVERAL_VALUES = re.compile(r"\A(?:[^(\[{;；]|[(\[{][^)\]}]*[)\]}]|\\;)*(?<!\\)[;；]\s*\S|\A\{\s*['\"]", re.S)
_SEPARATOR = re.compile(r"\s*(?:[;；、，@]|,(?!\d{3}(?!\d))|\b(?:and|or)\b|\\text\s*\{\s*(?:and|or)\s*\}|和|与|或)\s*")
_ESCAPED = re.compile(r"\\[{}$()\[\]]|\\[A-Za-z]+")


def prose(answer: str, most: int = 3) -> bool:
    """Whether an answer is text and not a value: a sentence, more than ``most`` plain words, or as much in Chinese."""
    if ENGINE.first("not-one-value", answer):
        return True
    if _MEASURED.fullmatch(answer) or says_nothing(answer):
        return False
    plain = _plain(answer)
    if len(_WORD.findall(plain)) > most or len(_HAN.findall(plain)) > 2 * most + 2:
        return True
    rules = (("name", answer), ("sentence", plain), ("tells-apart", answer))
    return any(ENGINE.first(reason, text) for reason, text in rules)


def says_nothing(answer: str) -> bool:
    """Whether an answer says that there is nothing: "no solution" or "not a function" answers several tasks at once."""
    return ENGINE.matches("nothing", _plain(answer).strip())


def bare(answer: str) -> str:
    """An answer without "Solution is:" before it, what is said of its free constants, and the dollars around it all."""
    text = _FREE.sub("", _LABEL.sub("", answer))
    return answer if text == answer else undressed(text)


def undressed(text: str) -> str:
    """Text without the dollars around the whole of it."""
    text = text.strip()
    dressed = _DRESSED.fullmatch(text)
    return (dressed[2] if dressed else text).strip()


def plain_value(answer: str) -> str:
    """An answer as the verifier reads it.

    Without a label, "about", Chinese measure words and the Chinese "or"; a dollar that has no partner is gone.
    """
    text = bare(answer)
    if counted := _COUNTED.fullmatch(text):
        return counted[1]
    text = _OR.sub(" or ", _ABOUT.sub("", text))
    return _SPACE_AT_END.sub("", _DOLLAR.sub("", text)) if len(_DOLLAR.findall(text)) % 2 else text


def right_side(answer: str, prompt: str) -> str:
    """What an answer comes to that repeats before it what the statement asks for ("u . v = 17"); empty for others."""
    left, equals, right = answer.replace("$", " ").strip(" .").rpartition("=")
    repeats = equals and _BLANKS.sub("", left.partition("=")[0]) in _BLANKS.sub("", prompt)
    several = re.search(r"[,;，；]", _outside_brackets(answer)) or _WORD.search(_plain(answer))
    return right.strip() if repeats and not several else ""


def unsolvable(answer: str) -> str:
    """The words by which a prose answer says at its start that the problem lacks something; empty when it does not."""
    return ENGINE.words("unsolvable", answer[:240])


def several_values(answer: str) -> bool:
    """Whether semicolons part an answer, or it is a mapping: values of different questions.

    Equations throughout are the solutions of one.
    """
    equations = all(re.search(r"=|\\equiv", part) for part in re.split(r"[;；]", answer))
    return bool(_SEVERAL_VALUES.match(answer)) and not equations


def parts_of(answer: str) -> int:
    """How many values commas, semicolons and "and" part an answer into, outside of all brackets."""
    flat = _outside_brackets(_ENVIRONMENT.sub("E", answer))
    return sum(bool(re.search(r"\w", part)) for part in _SEPARATOR.split(flat))


def worded(answer: str) -> bool:
    """Whether an answer that cannot be read as mathematics holds words: prose rather than broken notation."""
    plain = _plain(answer)
    return len(_WORD.findall(plain)) > 1 or len(_HAN.findall(plain)) > 1


def broken(answer: str) -> bool:
    """Whether notation is damaged: brackets, braces or dollars unpaired, operators left over, remains of a scan."""
    bare = _ESCAPED.sub("", answer)
    unpaired = answer.count("$") - answer.count("\\$")
    return (
        bare.count("{") != bare.count("}")
        or sum(map(bare.count, "()[]")) % 2 == 1
        or ("[" not in bare and "]" not in bare and bare.count("(") != bare.count(")"))
        or unpaired % 2 == 1
        or ENGINE.matches("broken", answer)
    )


def _plain(answer: str) -> str:
    """The words of an answer: without formulas' commands and environments, the text within formulas kept."""
    if "\\" not in answer and "$" not in answer:
        return answer
    return _LATEX.sub(" ", _TEXT.sub(r" \1 ", _ENVIRONMENT.sub(" ", answer)))


def _outside_brackets(text: str) -> str:
    """A text with what stands in brackets left out; a closing bracket without an opening one counts for nothing."""
    kept, depth = [], 0
    for char in text:
        if char in "([{":
            depth += 1
            kept.append("B" if depth == 1 else "")
        elif char in ")]}":
            depth = max(0, depth - 1)
        elif depth == 0:
            kept.append(char)
    return "".join(kept)
