"""What a statement asks for, sentence by sentence: questions, tasks, the reasons it wants besides.

Formulas are masked first, so that a question mark or a full stop within one ends nothing. Sentences on the form of the
answer ("Round to two decimals"), on a sketch or an equation to be written besides, and on a case ("If not, say why")
ask for nothing of their own. English and Chinese.
"""

import re
from typing import NamedTuple

_FORMULA = re.compile(
    r"\[asy\].*?(?:\[/asy\]|\Z)|\\begin\{(?!enumerate|itemize|question|problem|parts)(\w+)\*?\}.*?(?:\\end\{\1\*?\}|\Z)|\$\$[^$]*\$\$|\\\[.*?(?:\\\]|\Z)"
    r"|\\\(.*?(?:\\\)|\Z)|\\\$|(?<!\\)\$(?=\S)(?:[^$\n\\]|\\.){1,600}(?<=\S)\$(?!\d)",
    re.S,
)
_ASIDE = re.compile(
    r" ?\((?![^()]{0,3}\))[^()]{0,600}\)|（[^（）]{4,200}）|[\"“'‘`][^\"”“'’\n]{0,300}[?？][\"”'’]"
    r"|<details>[^<]{0,2000}(?:<(?!/?details>)[^<]{0,2000}){0,40}</details>|“[^“”]{300,2000}”|(?:\\?\"){3}[^\"]*(?:\\?\"){3}"
)
_HINT = re.compile(r"(?<=[.?!\n])\s*\(?Hints?\s?\.\s[^\n]*")
_TITLE = re.compile(r"^#{1,6}[ \t]+[^\n]*\?[ \t]*\n", re.M)
_OLD_CHINESE_ENDS = re.compile(r"几何[?？]?[”’\"]?[^。？?\n]{0,16}?(?:大意|意思|译[文为]|题意)")
_SOLVED = re.compile(r"(?:\A|\n)[ \t]*final answer\b[^\n]*", re.I)
_SENTENCE_END = re.compile(
    r"(?<=[?!;。？！；\n])(?![)）]|\s{0,2}[=+*/×÷])|(?<=[a-z0-9)\]%Ξ$\"”_—–-]\.)(?<!\bno\.)(?<!\bvs\.)(?=\s)|(?<=\s\.)(?=\s)|(?<=．)(?!\d)"
    r"|(?<=[a-z]\s[A-Z]\.)(?=\s+(?:Suppose|Let|If|Find|What|How|Does|Do|Is|Are|Determine|The|It|Compute|Given|When|Which)\b)"
)

_TASK = (
    r"(?:find|determine|compute|calculate|evaluate|solve|estimate|derive|interpret|identify|list|obtain|diagonalize"
    r"|factor|expand|convert|deduce|maximize|minimize|construct(?!\s+(?:\w+\s+){0,2}Ξ)|predict|assess)"
    r"(?!\s+(?:without|it\b|this\b|these\b|them\b|your\b|the\s+(?:\w+\s+){0,2}(?:problem|question|exercise|puzzle|task)s?\b"
    r"|(?:the\s+)?following\s+(?:values|quantities)\b))"
    r"|(?:express|describe|classify)(?!\s+(?:your|the\s+(?:\w+\s+)?(?:answers?|results?|solutions?)|it|this|each|in|all|them|as)\b|\s+\S+\s+as\b)"
)
_TASK_FIRST = (
    r"(?:give|state|write|name)\s+(?:down\s+)?(?:the|its|all|whether|if|both)\s+"
    r"(?!(?:\w+\s+){0,2}(?:answers?|results?|solutions?|equations?|expressions?|terms?)\b|exact|reason)|answer\s+whether\b"
)
_HEAD = re.compile(
    rf"(?:\A|[,:，：]\s*|\b(?:and|then|also|please|to\s+do\s+so|hence)\s+|\A[-*•]\s*|\)\s*|Ξ\s*(?=(?-i:[A-Z]))|(?:\A\W*|,\s?|\bthen\s+)try\s+to\s+"
    rf"|\A(?:now\s+|then\s+)?use\b[^.?!]{{1,90}}?\bto\s+)(?:{_TASK})\b(?!\s*\.)|\A{_TASK_FIRST}",
    re.I,
)
_HEAD_ZH = re.compile(
    r"(?:\A|[,，：:、）)]|[A-Za-z]\.)\s{0,3}(?:并|再|请|则|试|分别|直接|并且|然后|进而){0,2}\s{0,3}"
    r"(?:求|计算|写出|化简(?!后|[^，,。]{0,8}时)|判断|讨论|确定|解(?:方程|不等式|下列)|说明(?!你?的?(?:理由|原因))|因式分解)"
)
_NARRATIVE = re.compile(
    r"\b(?:needs?|needed|plans?|planned|decides?|decided|going|likes?|has|had|wants?|wanted|(?<=\s)tr(?:y|ies|ied)|asked|will\s+be\s+asked|allowed)\s+to\b|\byou\s+will\b"
    r"|\A\W*(?:you|he|she|they|we)\s+(?:then\s+|now\s+|first\s+)?(?:select|choose|pick|take|draw|roll|toss|flip)s?\b"
    r"|\A\W*each\s+\w+\s+(?:will|must|is|was|can|may)\b|\A\W*(?:if\s[^,]{1,80},\s*)?we\s+can\b",
    re.I,
)
_RESTATED = re.compile(
    r"\A\W{0,9}(?:that is|specifically|in particular|in other words"
    r"|i\.e|namely|hint|for example|e\.g|as a bonus|remember|recall|note)\b"
    r"|\bwhat\s+should\s+(?:he|she|they|we|you|i)\s+do\b|\A\W*(?:it|this|that|he|she)\s+(?:should|must|is|will)\s+(?:be\s+)?_{2,}"
    r"|\b(?:separated\s+by|in\s+(?:the\s+)?order\s+of|in\s+(?:in|de)creasing\s+order)\b"
    r"|\b(?:give|express|state|write|enter|round|leave)\b.{0,120}\b(?:your|final|exact)\s+answers?\b",
    re.I | re.S,
)
_FORM = re.compile(
    r"\A\W*(?:give\s+all"
    r"|(?:list|indicate|specify|find|provide|consider)\s+all\s+(?:the\s+)?possible\s+(?:options|answers|variants|cases|possibilities)\b"
    r"|write\s+the\s+(?:letters|digits|numbers|coordinates)|(?:state|give|list|write)\s+the\s+\S+\s+\w+\s+first\b"
    r"|express\s+the\s+\S+\s+and\s+\S+\s+coordinates\s+as\b|express\s+the\s+\w+\s+in\s+the\s+form\b"
    r"|express\s+(?:the|its|this)\s+(?:\w+\s+){1,2}(?:as\s+an?\s+(?:\w+\s+)?(?:decimal|fraction|percent\w*|number|integer|ordered)|in\s+(?:simplest|lowest)))",
    re.I,
)
_OPENING = r"(?:\A|[,:，：]\s*|\b(?:and|then|but|so|or)\s+)"
_ALSO_ASKS = re.compile(
    r"\b(?:and|or)\s*,?\s*(?:(?:in|at|on|for|of|by|to|with|from)\s+)?(?:how\s+(?:many|much|long|far|fast|old|high|tall|big)"
    r"|what(?!\s+(?:is\s+)?left)|when\b(?=.*\?)|where\b(?=.*\?))\b",
    re.I,
)
_WH = re.compile(
    r"\b(?:what|how|which|who|whom|whose|where|when)\b|[几何谁哪]|多少|多大|多长|多高|多远|什么|怎|多久", re.I
)
_YES_NO = re.compile(
    _OPENING + r"(?:is|are|was|were|does|do|did|can|could|will|would|must|should|has|have|might|may)\b(?!\s+not\s)"
    r"|\b(?:whether|true or false)\b|是否|有没有|是不是|能不能|够不够|吗\s*[?？]",
    re.I,
)
_TEXT = (
    r"(?:sentences?|jokes?|texts?|paragraphs?|passages?|questions?|statements?|dialogues?|quotes?|phrases?|tweets?"
    r"|emails?)"
)
_HANDLES_TEXT = re.compile(
    r"(?:re-?write|rephrase|paraphrase|adapt|edit|translate|summari[sz]e|classify|categori[sz]e|punctuate|organi[sz]e"
    rf"|reorder|pick|identify|analy[sz]e)\b[^\n$\d]{{0,90}}\b{_TEXT}\b[^\n$\d]{{0,90}}\n",
    re.I,
)
_ONLY_WHY = re.compile(r"\W{0,9}(?:why|how so|why or why not|为什么)\W{0,9}", re.I)
_WORDED = re.compile(r"[^\W\d_Ξ]{2}|[\u4e00-\u9fff]")
_CONDITIONAL = re.compile(
    r"\W{0,9}(?:if\s+(?:so|yes|not|no|your\s+answer|it\s+(?:is|does|can|exists)|they|there\s+(?:is|are))\b|若(?:是|能|存在)|如果(?:是|能))",
    re.I,
)
_REASON = re.compile(
    r"(?:\A|[,:;]\s*|\b(?:and|then|please|briefly|or|to)\s+)\(?(?:explain|justify|defend|clarify|discuss|comment\s+on)\b"
    r"(?!\s+the\s+(?:result|symbol))(?![^.]*\bclassmates)"
    r"|\bwhy\s*(?:not|or\s+why\s+not)?\s*[?.]|\A\W*(?:(?:tell|show)\s+(?:me|us)\s+)?why\b"
    r"|\bgive\s+(?:a\s+|your\s+)?(?:reasons?|reasoning|justification|an?\s+explanation)"
    r"|说明(?:你的)?(?:理由|原因)|为什么|(?<!不要写)(?<!不要做)(?<!任何)(?<!不要)(?<!无需)(?<!不用)解释",
    re.I,
)
_REASON_WORDS = (
    *("explain", "justif", "defend", "clarify", "discuss", "comment", "why", "explanation", "reason"),
    *("理", "原", "为什么", "解释"),
)
_EXAMPLE_WORDS = (
    *("example", "possible", "vary", "generate", "suggest", "brainstorm", "invent", "describe", "matrices", "create"),
    *("make", "come", "一个", "例", "生成一", "任", "不唯一", "即可", "认为正确"),
)
_EXAMPLE = re.compile(
    r"\b(?:give|find|provide|write|construct|state|list|make\s+up|create)\s+(?:me\s+)?"
    r"(?:(?:an|one|two|three|another|some)\s+(?:\w+\s+)?examples?|(?:one|an?y?)\s+possible)\b|\banswers?\s+(?:may|will|can|could)\s+vary"
    r"|\A\W*(?:generate|suggest|brainstorm|invent)\s+an?\b|\A\W*describe\s.{1,40}\sin\s+(?:\w+|\d+)\s+words"
    r"|\bfind\s+(?:two|three|(?:non-?zero|[$\\\w ]{0,20}?times[$\\\w ]{0,20}?)[\s-]{0,3})\s*matrices\b"
    r"[^.?]{0,200}\bsuch that"
    r"|\b(?:create|make up|invent|come up with)\s+an?\s+\w*\s*(?:equation|problem|expression|sequence|example|function)"
    r"|写出一个|的一个(?:可能的?)?(?:取值|值)(?:可以)?[为是]|举出?一?个?例|\A生成一|任意?写|答案不唯一|即可[)）。]?|创建一个|你认为正确的|请?构造一个",
    re.I,
)

_OBJECT = (
    r"(?!(?:give|write|graph|state|show|list|express|then|find|determine|check|use|if|so|sketch|round|simplify)\b)"
    r"(?:(?:an?|its?|the|their)\s+)?(?:[a-z][\w-]*\s+){0,3}?[a-z][\w-]+"
)
_ONE_OF_BOTH = (
    r"\b(?:where|that|which|whose|between|both|sum|difference|product|ratio|through|by|with|from|when|if|in|on|to)\b"
)
_OF_EACH = r"\w+\s+(?:\w+\s+)?(?:numbers?|amounts?|(?:measure|length|age|weight|price)s)\s+of\b"
_EXTREMA = r"the\s+(?:\w+\s+)?(?:maxima\s+and\s+minima\b|maximum\s+and\s+minimum\s+points)"
_OBJECTS = re.compile(
    rf"\b(?:{_TASK}|what\s+(?:is|are)|state|give)\s+(?!{_OF_EACH}|{_EXTREMA})(?:an?|its?|the|their)\s+(?:[a-z][\w-]*\s+){{0,4}}?[a-z][\w-]+"
    rf"(?:\s*,\s*{_OBJECT})*\s*,?\s+and\s+{_OBJECT}"
    rf"|\b(?:{_TASK})\s+(?:both\s+the\b|(?:the|its)\s+(?:\w+\s+){{1,3}}Ξ)[^.;?!]{{0,60}}?\s+and\s+(?:the\s+)?(?:[a-z]+\s+){{1,3}}(?:Ξ|of\b|[a-z])"
    rf"|\b(?:{_TASK})\s+(?:the|its)\s+(?:(?!{_ONE_OF_BOTH})[^.;?!,]){{1,80}}?\s+and\s+(?:the|its)\s+[a-z]"
    r"|(?:(?<!要)求|写)(?:出)?[^，,。；？?]{1,40}?(?:及|以及|和|与|、)[^，,。；？?]+",
    re.I,
)
_COMPOUND = r"\$(?=[^$]*(?:[(\\^]|\bd\s?[a-z]\b|(?-i:[A-Z]\s?[A-Z])))[^$]{2,}\$"
_FORMULA_OBJECTS = re.compile(
    r"\b(?:find|determine|compute|calculate|evaluate|what\s+are)\s+(?:each\s+of\s+)?"
    r"(?:the\s+values?\s+of\s+(?=\$[^$]*[a-z]\()|the\s+(?:angles|lengths|areas|volumes|distances)\s+(?:of\s+)?)?"
    rf"{_COMPOUND}(?:\s*,\s*\$[^$]{{3,}}\$)*\s*,?\s+and\s+{_COMPOUND}",
    re.I,
)
_IF_SO = re.compile(
    r"\s*,?\s*\band\s*,?\s*if\s+(?:so|yes|not|no|it\s+(?:is|does|exists)|they\s+are)\b\s*,?\s*[a-z]+", re.I
)
_IS_ALSO = re.compile(r"\W{0,9}if\s+(?:so|yes|not|no|\w+)\s*,\s*(?:is|are|must|does|do)\b[^\n]{0,300}\?", re.I)
_IF_IT = re.compile(r"\W{0,9}if\s+(?:it|they|one|the\s+(?:series|integral|limit|system|sequence))\b", re.I)


class Asks(NamedTuple):
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


def asks_of(statement: str) -> Asks:
    """Read a statement's sentences; parts that the statement itself solves are passed over."""
    statement = _instruction(statement)
    text = _ASIDE.sub("", masked(_unsolved(statement)))
    text = _in_today_s_words(text) if "几何" in text else text
    text = _HINT.sub("", text) if "Hint" in text else text
    text = _TITLE.sub("", text) if "#" in text and text.count("?") > 1 else text
    lowered = statement.lower()
    reasoned = holds(_REASON_WORDS, lowered)
    values: list[str] = []
    cases: list[str] = []
    joined, reason, closed, hinted = 0, "", False, False
    for sentence in sentences(text):
        if (_CONDITIONAL.match(sentence) and not _IS_ALSO.match(sentence)) or (closed and _IF_IT.match(sentence)):
            cases.append(sentence)
            continue
        hinted = hinted or sentence.startswith("Hint:")
        if reasoned and not (reason or hinted) and (found := _REASON.search(sentence)):
            reason = found[0].strip()
        if (tasks := tasks_in(sentence)) and not (values and _FORM.match(sentence)):
            if values and _is_told(values[-1]):
                values.pop()
            values.append(sentence)
            joined += tasks - 1
            closed = closed or is_closed(sentence)
    example = _EXAMPLE.search(statement) if holds(_EXAMPLE_WORDS, lowered) else None
    objects = next((found for each in (*values, *cases) if _lists(each) and (found := _OBJECTS.search(each))), None)
    objects = objects or (_FORMULA_OBJECTS.search(statement) if "$" in lowered and "and" in lowered else None)
    return Asks(
        tuple(values), joined, reason, closed, example[0] if example else "", objects[0].strip() if objects else ""
    )


def holds(words: tuple[str, ...], lowered: str) -> bool:
    """Whether one of some words stands in a text in lower case: what a rule needs, told before the rule is tried."""
    return any(word in lowered for word in words)


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
    sentence = _IF_SO.sub("", sentence) if " if " in sentence else sentence
    heads = len(_HEAD.findall(sentence)) + len(_HEAD_ZH.findall(sentence))
    question = sentence[-1] in "?？" and _WORDED.search(sentence)
    if not (heads or question) or _RESTATED.search(sentence) or _ONLY_WHY.fullmatch(sentence):
        return 0
    heads = 0 if _NARRATIVE.search(sentence) else heads
    return max(1, heads) + len(_ALSO_ASKS.findall(sentence)) if question else heads


def is_closed(sentence: str) -> bool:
    """Whether a sentence asks for yes or no."""
    return bool(_YES_NO.search(sentence)) and not _WH.search(sentence)


def _lists(sentence: str) -> bool:
    """Whether a sentence may name several things."""
    return "and" in sentence.lower() or "求" in sentence or "写" in sentence


def _is_told(sentence: str) -> bool:
    """Whether a sentence tells something although a question mark ends it ("A zoo has 3 bears?")."""
    told = sentence[-1] in "?？" and sentence[0].isupper() and sentence[0] != "Ξ"
    return told and not (_WH.search(sentence) or _YES_NO.search(sentence) or _HEAD.search(sentence) or "Ξ" in sentence)


def _in_today_s_words(text: str) -> str:
    """A text without the sentence in old Chinese that it explains after it ("今有三人共车…问车几何？大意是：…")."""
    ends = _OLD_CHINESE_ENDS.search(text)
    if ends is None:
        return text
    before = text[: ends.start()]
    return text[: 1 + max(before.rfind(sign) for sign in "。\n：:")] + text[ends.end() :]


def _instruction(statement: str) -> str:
    """A statement without the text that its first line wants rewritten, classified or the like."""
    return statement.partition("\n")[0] if _HANDLES_TEXT.match(statement) else statement


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
