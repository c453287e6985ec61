"""Which ground truths can be compared: a value, a few words, several values; and which are prose or broken.

An answer is prose when it is a sentence, a worked text, values told apart by words ("maximum at 3, minimum at 1"), or
says that many answers are right. English and Chinese.
"""

import re
from itertools import pairwise

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
    r"(?:the\s+(?:limit|integral|series)\s+)?(?:does|do|did)\s+not\s+(?:exist|converge|intersect)\W*"
    r"|(?:there\s+(?:is|are)\s+)?no\s+(?:real\s+|such\s+)?\w+\W*|(?:it\s+is\s+)?(?:undefined|impossible|not\s+possible)\W*"
    r"|(?:it\s+is\s+)?not\s+an?\s+\w+\W*|none\W*|无解\W*|不存在\W*",
    re.I,
)
_VERB = re.compile(
    r"\b(?:is|are|was|were|equals?|has|have|does|did|must|would|will|should|there|therefore|thus|hence|because|since"
    r"|otherwise|follows?|cannot|can|says?|means?|works?|when|never)\b(?![=(^_])"
    r"|(?:\A|[.,]\s*)so\b|(?-i:\bSo\b)|\A(?:yes|no)\b\W*\S+\s+\S",
    re.I,
)
_TELLS_APART = re.compile(
    r"\b(?:local|relative|absolute|global|saddle|concave|convex|increas\w*|decreas\w*|inflection|maxim(?:um|a)|minim(?:um|a))\b"
    r"|\\?\b(?:max|min)\b(?:\.?\$?\s+(?:at|of|is)\b|\s*\.\s*(?:\\left)?\()"
    r"|(?<![A-Za-z\\])[A-Za-z]{3,}\s*:[^:\n]*?\s[A-Za-z]{3,}\s*:|凹|凸|单调|极[大小]值[点为]",
    re.I,
)
_ZH_SENTENCE = re.compile(
    r"因此|所以|从而|因为|答案|总\S{0,4}为|[为是][:：]|[为是][^，,。]{0,8}[。]\s*\Z|\d[^。]{0,60}[\u4e00-\u9fff]。\s*\Z"
    r"|\A[\"“]?[\u4e00-\u9fff，、]{5,}[。！][\"”]?\Z"
)
_SENTENCE = re.compile(r"[\"“']?(?!(?:All|Any|Every|About)\b)[A-Z][A-Za-z'’-]*(?:,?\s+[A-Za-z'’-]+){3,40}[.!][\"”']?")
_NAMED = re.compile(
    r"(?!(?:All|Any|Every|Each|Both|Only|Exactly|No|None|Not|Never|Infinite(?:ly)?|Undefined|Do(?:es)?|(?:Con|Di)verges"
    r"|One|Two|Three|Four|Five|Six|Seven|Eight|Nine|Ten|Mrs?|Ms|Miss|Dr)\b)"
    r"(?:the\s+[a-z]|[A-Z])[A-Za-z'’-]*(?:\s+[A-Za-z][A-Za-z'’-]*){0,4}\s+[A-Za-z][A-Za-z'’-]*[a-z]\.?"
)
_WORD_EQUALS = re.compile(rf"(?<![A-Za-z\\{{-])(?!(?:{_MATH_NAMES})\b)[a-z]{{4,}}\s*\$?\s*=")
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
    r"(?:\w+\s+)?information|\bplease provide\b|信息不足|\A.{0,40}无法确定"
    r"|\bwould\s+need\s+(?:to\s+know|(?:an?\s+|the\s+)?(?:\w+\s+)?(?:list|data|information))\b"
    r"|\AAs\s+an?\s+AI\b[^.]{0,60}(?:\b(?:not|unable|no)|n[’']t)\b[^.]{0,40}\b(?:access|data|information|perceive)\b"
    r"|\A(?:很|非常|我(?:很|感到|不)?|不)?(?:抱歉|遗憾|对不起|好意思)"
    r"(?![^。]{0,40}(?:(?:生成|创建|创作|制作|绘制|画|设计)[^。]{0,12}(?:图|表|海报|标志|视频)|个人喜好|主观))|请(?:您)?提供(?:更多|具体)|\A.{0,12}请[您你]?提供"
    r"|\A.{0,40}[您你](?:并)?[没未](?:有|能)?(?:[向给为]我)?(?:任何)?(?:提供|给|告诉|指定)"
    r"|\A.{0,12}(?:人工智能|语言模型|AI)[^。]{0,20}无法(?:直接)?(?:提供|获取|获得|回答)|\A(?:您好，)?我(?:无法|没有?)(?:看到|访问|查看)"
    r"|\A(?:I\s+am|I'm)\s+sorry\b[^.]{0,160}?\b(?:access|data|information|context|details?|provided?|retrieve|real-time|see|know)\b",
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
_NONE = re.compile(
    r"(no\s+(?:real\s+)?solutions?|无解)\s*[:,：，(]?\s*\$?\s*\\(?:oslash|emptyset|varnothing)\s*\$?\W*", re.I
)
_DRESSED = re.compile(r"(\$\$?)([^$]+)\1[.。．]?")
_DOLLAR = re.compile(r"(?<!\\)\$")
_SPACE_AT_END = re.compile(r"(?:\s|\\q?quad|\\[,;])+\Z")
_BLANKS = re.compile(r"\s+")
_SPLIT_SPAN = re.compile(r"\\right\.\s*\$\s*([,;]?)\s*\$\s*\\left\.")
_PIECEWISE = re.compile(
    r"\\left\s*\\\{\s*\\begin\{(?:array|aligned)\}(?:\s*\{[lcr| ]*\})?(.*?)\\end\{(?:array|aligned)\}\s*\\right\.", re.S
)
_CONDITION = re.compile(r"&\s*\\text\s*\{\s*(if|for|when|若|当)\s*\}\s*&")
_OR = re.compile(r"\s*或者?\s*")
_SEVERAL_VALUES = re.compile(r"\A(?:[^(\[{;；]|[(\[{][^)\]}]*[)\]}]|\\;)*(?<!\\)[;；]\s*\S|\A\{\s*['\"]", re.S)
_SEPARATOR = re.compile(r"\s*(?:[;；、，@]|,(?!\d{3}(?!\d))|\b(?:and|or)\b|\\text\s*\{\s*(?:and|or)\s*\}|和|与|或)\s*")
_BROKEN = re.compile(
    r"@|�|\A[=^_*/]|[=^_*/<>+-]\s*\$*\s*\Z|,\s*\\big(?:cup|cap)\b|,\s*,|\\right\.\s*\$\s*[^.,;\s]|\\frac\s*\Z"
    r"|(?<![\\A-Za-z])(?:[dt]?frac|sqrt)\s*\{"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f]|(?<![\d.,/^{\\])\b\d+(?:\.\d+)?[ \t]+\d+\.\d"
    r"|\$\s*!|\d\s*\\mathbb|\\mathrm\s*\{[~\s]*\w+\}\s*x\s+\d|(?<![A-Za-z])[A-Za-z]{4,}:\s*\Z|(?:\A\$?|[,(\[])\s*[-+]?\s*\\propto"
    r"|(?<![A-Za-z\\])[A-TV-Za-tv-z]\s*(?:\([^()\[\]]{1,60},[^()\[\]]{1,60}\]|\[[^()\[\]]{1,60},[^()\[\]]{1,60}\))"
    r"|\b([A-Za-z])_\{?\w+\}?\s*=[^=,;]{0,200}[-+][^=,;]{0,200}[\w}]\s\1_\{?\w+\}?\s*="
)
_ESCAPED = re.compile(r"\\[{}$()\[\]]|\\[A-Za-z]+")


def prose(answer: str, most: int = 3) -> bool:
    """Whether an answer is text and not a value: a sentence, more than ``most`` plain words, or as much in Chinese."""
    if _NOT_ONE.search(answer):
        return True
    if _MEASURED.fullmatch(answer):
        return False
    plain = _plain(answer)
    if negation(answer):
        return False
    if len(_WORD.findall(plain)) > most or len(_HAN.findall(plain)) > 2 * most + 2:
        return True
    if _SENTENCE.fullmatch(answer) or _NAMED.fullmatch(answer):
        return True
    rules = ((_VERB, plain), (_TELLS_APART, answer), (_ZH_SENTENCE, plain), (_LINES, answer), (_WORD_EQUALS, answer))
    return any(rule.search(text) for rule, text in rules)


def negation(answer: str) -> bool:
    """Whether an answer says that there is nothing: "no solution" or "not a function" answers several tasks at once."""
    return bool(_PLAIN_NEGATION.fullmatch(_plain(answer).strip()))


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

    Without a label, "about", rupees, Chinese measure words and the Chinese "or"; a dollar that has no partner is gone,
    a list that runs over two formulas is in one, and a piecewise function is written with ``cases``.
    """
    text = bare(answer)
    if counted := _COUNTED.fullmatch(text):
        return counted[1]
    if nothing := _NONE.fullmatch(text):
        return nothing[1]
    text = _OR.sub(" or ", _ABOUT.sub("", text))
    if "\\right" in text:
        text = _PIECEWISE.sub(_cases, _SPLIT_SPAN.sub(r"\1 ", text))
    return _SPACE_AT_END.sub("", _DOLLAR.sub("", text)) if len(_DOLLAR.findall(text)) % 2 else text


def right_side(answer: str, prompt: str) -> str:
    """What an answer comes to that repeats before it what the statement asks for ("u . v = 17").

    That is what follows its last equals sign outside of all brackets; empty where commas or words part it.
    """
    first, *sides = _sides(answer.replace("$", " ").strip(" ."))
    repeats = sides and _BLANKS.sub("", first) in _BLANKS.sub("", prompt)
    return sides[-1].strip() if repeats and not _WORD.search(_plain(answer)) else ""


def unsolvable(answer: str) -> str:
    """The words by which a prose answer says at its start that the problem lacks something; empty when it does not."""
    found = _UNSOLVABLE.search(answer, 0, 240)
    return found[0] if found else ""


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
        or bool(_BROKEN.search(answer))
    )


def _cases(piecewise: re.Match[str]) -> str:
    rows = _CONDITION.sub(r"& \\text{\1 } ", piecewise[1])
    return rf"\begin{{cases}}{rows}\end{{cases}}" if rows.count("&") >= 2 and rows != piecewise[1] else piecewise[0]


def _sides(formula: str) -> list[str]:
    """The sides of a chain of equations, split outside of all brackets; one where a comma stands there too."""
    cuts, depth = [-1], 0
    for at, char in enumerate(formula):
        depth += (char in "([{") - (char in ")]}")
        if depth == 0 and char in ",;，；":
            return [formula]
        if depth == 0 and char == "=":
            cuts.append(at)
    return [formula[start + 1 : end] for start, end in pairwise([*cuts, len(formula)])]


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
