"""Which ground truths can be compared: a value, a few words, several values; and which are prose or broken.

An answer is prose when it is a sentence, a worked text, values told apart by words ("maximum at 3, minimum at 1"), or
says that many answers are right. English and Chinese.
"""

import re

_LATEX = re.compile(r"\\(?:operatorname|mathrm|mathbf|mathbb|begin|end)\*?\s*\{[^}]*\}|\\[A-Za-z]+|[{}$]")
_ENVIRONMENT = re.compile(r"\\begin\{(\w+)\*?\}.*?\\end\{\1\*?\}", re.S)
_TEXT = re.compile(r"\\(?:text|textrm|mathrm|mbox)\s*\{([^{}]*)\}")
_MATH_NAMES = r"sin|cos|tan|log|arctan|arcsin|arccos|max|min|mod|lim|and|the|for|or|exp|det|gcd|lcm"
_WORD = re.compile(rf"(?<![A-Za-z])(?!(?:{_MATH_NAMES})\b)[A-Za-zÀ-ÿ\u0400-\u04ff]{{3,}}")
_HAN = re.compile(r"[\u4e00-\u9fff]")
_MEASURED = re.compile(
    r"(?:about|approximately|approx\.?|around|roughly|nearly|almost|大约|约)?\s*(?:US|Rs\.?)?\s*\\?[$€£]?\s*"
    r"[-+]?\d[\d,./ ]*\s*%?(?:\s*(?!is\b|are\b|was\b|has\b|so\b|because\b)[A-Za-z.'°/²³^-]+){0,6}\.?"
    r"|\d+\s*(?:hours?|hrs?|minutes?|mins?)\s*(?:and\s*)?\d+\s*(?:minutes?|mins?|seconds?|secs?)\.?"
    r"|[-+]?\d[\d,./]*\s*[\u4e00-\u9fff]{1,4}。?",
    re.I,
)
_PLAIN_NEGATION = re.compile(
    r"(?:the\s+(?:limit|integral|series)\s+)?(?:does|do|did)\s+not\s+(?:exist|converge|intersect)\.?"
    r"|(?:there\s+(?:is|are)\s+)?no\s+(?:real\s+|such\s+)?\w+\.?|(?:it\s+is\s+)?(?:undefined|impossible|not\s+possible)\.?",
    re.I,
)
_VERB = re.compile(
    r"\b(?:is|are|was|were|equals?|has|have|does|did|must|would|will|should|there|therefore|thus|hence|because|since"
    r"|otherwise|follows?|cannot|can|says?|means?)\b(?!\s*[=(^_])"
    r"|(?:\A|[.,]\s*)so\b|(?-i:\bSo\b)|\A(?:yes|no)\b\W*\S+\s+\S",
    re.I,
)
_TELLS_APART = re.compile(
    r"\b(?:local|relative|absolute|global|saddle|concave|convex|increas\w*|decreas\w*|inflection|maxim(?:um|a)|minim(?:um|a))\b"
    r"|\\?\b(?:max|min)\b\.?\$?\s+(?:at|of|is)\b"
    r"|(?<![A-Za-z\\])[A-Za-z]{3,}\s*:[^:\n]*?\s[A-Za-z]{3,}\s*:|凹|凸|单调|极[大小]值[点为]",
    re.I,
)
_ZH_SENTENCE = re.compile(
    r"因此|所以|从而|因为|答案|总\S{0,4}为|[为是][:：]|[为是][^，,。]{0,8}[。]\s*\Z|\d[^。]{0,60}[\u4e00-\u9fff]。\s*\Z"
)
_LINES = re.compile(r"\A[^$\\]*=[^$\\\n]*\n[^$\\]*=[^$\\]*\Z")
_NOT_ONE = re.compile(
    r"\banswers? (?:(?:may|will|can|could) )?var"
    r"|\b(?:see|refer to) (?:the )?(?:solution|explanation|figure|graph|proof|above|below)"
    r"|\b(?:sketch|proof|no unique)\b|^(?:graph|proved?)\b|答案不唯一|^略$|见解析|证明见",
    re.I,
)
_UNSOLVABLE = re.compile(
    r"\b(?:cannot|can't|can not|unable to|not possible to|impossible to)\s+(?:be\s+)?"
    r"(?:determined?|calculated?|solved?|answered?)\b"
    r"|\b(?:not enough|insufficient|need(?:s|ed)?\s+(?:more|additional)|without\s+(?:more|additional|further))\s+"
    r"(?:\w+\s+)?information|\bplease provide\b|信息不足|无法确定",
    re.I,
)
_COUNTED = re.compile(r"([-+]?\d[\d,.]*(?:/\d+)?)\s*[\u4e00-\u9fff]{1,4}[。.]?")
_ABOUT = re.compile(r"\A(?:about|approximately|approx\.?|around|roughly|大约|约)\s*(?=[-+$\\]?\d)", re.I)
_OR = re.compile(r"\s*或者?\s*")
_SEVERAL_VALUES = re.compile(r"\A(?:[^(\[{;；]|[(\[{][^)\]}]*[)\]}]|\\;)*(?<!\\)[;；]\s*\S|\A\{\s*['\"]", re.S)
_SEPARATOR = re.compile(r"\s*(?:[;；、，@]|,(?!\d{3}(?!\d))|\b(?:and|or)\b|\\text\s*\{\s*(?:and|or)\s*\}|和|与|或)\s*")
_BROKEN = re.compile(
    r"@|�|\A[=^_*/]|[=^_*/<>+-]\s*\$*\s*\Z|,\s*\\big(?:cup|cap)\b|,\s*,|\\right\.\s*\$\s*[^.,;\s]|\\frac\s*\Z"
    r"|(?<![\\A-Za-z])(?:[dt]?frac|sqrt)\s*\{"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f]"
)
_ESCAPED = re.compile(r"\\[{}$()\[\]]|\\[A-Za-z]+")


def prose(answer: str, most: int = 3) -> bool:
    """Whether an answer is text and not a value: a sentence, more than ``most`` plain words, or as much in Chinese."""
    if _NOT_ONE.search(answer):
        return True
    if _MEASURED.fullmatch(answer):
        return False
    plain = _plain(answer)
    if _PLAIN_NEGATION.fullmatch(plain.strip()):
        return False
    if len(_WORD.findall(plain)) > most or len(_HAN.findall(plain)) > 2 * most + 2:
        return True
    rules = ((_VERB, plain), (_TELLS_APART, answer), (_ZH_SENTENCE, plain), (_LINES, answer))
    return any(rule.search(text) for rule, text in rules)


def plain_value(answer: str) -> str:
    """An answer as the verifier reads it: without "about", Chinese measure words and the Chinese "or"."""
    counted = _COUNTED.fullmatch(answer)
    if counted:
        return counted[1]
    return _OR.sub(" or ", _ABOUT.sub("", answer))


def unsolvable(answer: str) -> str:
    """The words by which a prose answer says that the problem lacks something; empty when it does not."""
    found = _UNSOLVABLE.search(answer)
    return found[0] if found else ""


def several_values(answer: str) -> bool:
    """Whether semicolons part an answer, or it is a mapping: values of different questions."""
    return bool(_SEVERAL_VALUES.match(answer))


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
        or bool(_BROKEN.search(answer))
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
