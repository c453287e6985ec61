"""Several things that one sentence asks for: tasks, questions and objects that "and" or a comma joins."""

import re

from magcli.curate.math.answers import negation, parts_of, prose
from magcli.curate.math.asks import Asks, holds, masked

_TWO_ANSWERS = re.compile(
    r"\b(?:return|answer|give|report|present|list)\b[^.?!]{0,30}\btwo\s+(?:answers|values|questions)\b|\bfor\s[^.?!]{1,80}\sand\s[^.?!]{1,60}\bseparately\b",
    re.I,
)
_TWO_NAMED = re.compile(
    r"\b(?:find|state|give|determine)\s+(?:the|its)\s+domain\s+and\s+(?:the\s+)?range\b"
    r"|[求出算][^，,。；？?]{0,80}的[^的之和及，,。；？?$]{2,8}(?:以及|及|和)其?[^的之，,。；？?$]{2,6}[．。.；;\s]*\Z",
    re.I,
)
_MEASURE = (
    r"(?:mass|weight|area|volume|perimeter|circumference|radius|diameter|mean|median|mode|variance|(?:standard\s+)?deviation|speed"
    r"|velocity|acceleration|force|stress|strain|elongation|wavelength|frequency|energy|momentum|period|amplitude|pressure|rank)"
)
_TWO_THINGS = re.compile(
    r"\b(?:find|compute|calculate|determine)\s+both\s+the\s(?![^.?!]{0,60}\bcoordinates?\b)[^.?!]{1,80}?\sand\s+the\s"
    rf"|\b(?:find|compute|calculate|determine)(?:\s+the(?:\s+(?!(?:of|between|in|that)\b)\w+){{1,4}},){{2,4}}\s+and\s+the\s"
    rf"|\b(?:find|compute|calculate|determine|what\s+(?:is|are))\s+(?:the|its)\s+(?:\w+\s+)?{_MEASURE}"
    rf"(?:\s+(?:in|on)\s+the\s+\w+)?\s+and\s+(?:the\s+|its\s+)?(?:\w+\s+){{0,2}}{_MEASURE}\b"
    r"|\b(?:find|compute|calculate|determine|what\s+(?:is|are))\s+the\s+(?P<what>(?!sum|product|difference|ratio|number)\w+)\s+of\s[^.?!]{1,60}\sand\s+the\s+(?P=what)\s+of\b(?!\s+\w+\W{1,3}is\b)"
    r"|\b(?:the|find)\s+(?:the\s+)?(?P<other>amount|rate|price|speed|cost|age|length)\s+of\s[^.?!,]{1,60}\sand\s+(?:the\s+)?(?P=other)\s+of\s[^.?!,]{1,60}"
    r"(?:\b(?:respectively\s+)?are\s*\?|\bshould\b)"
    r"|\b(?:find|compute|calculate|determine)\s[^.?!]{5,200}\bas\s+well\s+as\s+(?:the|all|its|find)\b"
    r"|\b(?:what|how)\b[^?.]{5,200},\s+and\s+(?:did|does|is|are|was|were|will)\s+(?:she|he|it|they)\b[^?]{0,200}\?"
    r"|\b(?:what|how|who|where|which)\b[^?]{3,300}[,\s]and\s+what\s+(?:is|are|was|were)\b[^?]{0,300}\?",
    re.I,
)
_REACHED_WORDS = ("achieve", "attain", "reach", "occur", "that time", "this time", "for which")
_WHERE_IT_IS_REACHED = re.compile(
    r"\b(?:find|determine|compute|calculate|what\s+is)\b[^.?!]{0,40}\b(?:maxim|minim|great|least|small|larg)\w*[^.?!]{3,300}\b(?:and|as\s+well\s+as)\s+"
    r"(?:also\s+)?(?:find|determine|state|give|indicate|(?:for\s+which|the|all)\s+(?:\w+\s+)?(?:values?|points?|numbers?|cases?)\b)"
    r"[^.?!]{0,120}\b(?:achieved?|attain(?:ed|s)?|reached|occurs?|at\s+(?:that|this)\s+time|for\s+which\s+(?:this|it|the|equality))\b",
    re.I,
)
_HOW_MANY = r"how\s+(?:many|much|long|far|fast|old|high|tall)\b"
_TWO_COUNTS = re.compile(rf"\b(?:{_HOW_MANY}|who\b).{{1,300}}?[\s,]and\s+(?:by\s+)?{_HOW_MANY}[^?]*\?", re.I)
_WHICH_AND_BY_HOW_MUCH = re.compile(
    r"[谁哪][^，,。．；;？?：:\n]{1,16}[，,](?:比[^，,。]{1,6})?[多少高低贵快慢重轻大小长短远近早晚便][^，,。．；;？?]{0,6}(?:多少|几)"
)
_TWO_CLAUSES = re.compile(
    r"(?:多少|几)[^，,。．；;？?]{0,14}[，,][^，,。．；;？?：:]{1,25}(?:多少|几)[^，,。．；;？?]{0,8}[？?。．.]?(?:\s*请[^。]{1,12}。)?\s*\Z"
)
_ASKED_IN_TWO_CLAUSES = re.compile(rf"[.．。；;？?，,]\s*问[^，,。．；;？?]{{1,20}}{_TWO_CLAUSES.pattern}")
_OF_BOTH_ALIKE = re.compile(r"求.*(?:各|分别)|求\s*[a-z]\s*[和、]\s*[a-z]\s*的?值")
_ONE_OF_COUNTS = re.compile(r"\b(?:difference|sum|total|altogether|combined|ratio|product)\b", re.I)
_ONE_BLANK_FOR_TWO = re.compile(
    r"\b(?:the|its)\s+(?:\w+\s+){1,5}?and\s+(?:the\s+|its\s+)?(?:[a-z]+\s+){1,4}?of\b[^.?!]{0,200}\bare\s*[:：]?\s*"
    r"(?:_{2,}|\$?\\q?quad|[(（]\s*[)）])",
    re.I,
)
_EACH_OF_THESE = re.compile(
    r"\beach\s+of\s+the\s+following\s+[a-z]|\bprobability\s+(?:that|of)\b[^.?]{0,60}\d\s*,\s*\d[^.?]{0,20}\band\s+\$?\d"
    r"|\b(?:find|compute|determine|calculate|evaluate|normalize|dimensions\s+of|lengths?\s+of)\s+the\s+following\s+"
    r"(?:vectors|matrices|integrals|limits|derivatives|determinants|products|sums|expressions|angles|polynomials)\b",
    re.I,
)
_EACH_LISTED = re.compile(
    r"\b(?:solve|evaluate|simplify|factor|compute|classify)\s+(?:them|each(?:\s+(?:one|of\s+them))?)\s*[:.]\s*\n\s*\(?1[.)]"
)
_OF_THE_FOLLOWING = re.compile(
    r"\b(?:find|compute|determine|calculate)\s+the\s+(?:\w+\s+){0,2}?(?!intersections|coordinates|solutions)\w+(?<![uis])s\s+of\s+the\s+"
    r"(?:following\s+\w+s\s*:|\w+s\s*:\s*1[.)]\s[^?]{1,400}[;,.\s][23][.)]\s)"
    r"|\b(?:simplify|evaluate|compute|calculate|find|factor)\s+the\s+(?:following\s+)?(?:expressions|integrals|limits|sums|derivatives|products)"
    r"\s*:\s*\$\$[^$]+\$\$\s*\$\$[^$]+\$\$\s*\Z",
    re.I,
)
_ONCE_MORE = re.compile(r"\b(?P<way>using|with|for|at|when)\b[^.?]{1,80}\band\s+(?:also|then)\s+(?P=way)\b", re.I)
_THEN_EVALUATED = re.compile(
    r"先化简\s*[,，]?\s*(?:然后|再)?\s*求值|\bsimplify\b[^.]{0,120}\band\s+then\s+evaluate\b", re.I
)
_SPACES = re.compile(r"\s+")
_MAPPING = re.compile(r"\s*\{\s*['\"]")
_TOLD = re.compile(r"(?:\A|[,;，；]\s*(?:\\quad\s*)?|\band\s+)\$?\s*([^=,;$]{2,60}?)\s*(?:=|\\approx)")
_UNKNOWN = re.compile(
    r"\\?[A-Za-z]+(?:_\{?\w+\}?)?'*(?:\([a-z]\))?|\\(?:mathbf|bar|vec|hat|mathrm|overline)\s*\{\s*\\?\w+\s*\}(?:_\{?\w+\}?)?"
)


def joined(statement: str, lowered: str, asks: Asks, answer: str) -> str:
    """What shows that one sentence asks for several things; empty where it does not, or one value answers them."""
    if asks.joined and (parts_of(answer) > 1 or prose(answer) or negation(answer)):
        return "tasks that and joins"
    if counts := next(filter(_two_counts, asks.values), ""):
        return counts
    named = _TWO_NAMED.search(statement) if "range" in lowered or "及" in lowered or "和" in lowered else None
    named = named or (_WHICH_AND_BY_HOW_MUCH.search(statement) if "哪" in lowered or "谁" in lowered else None)
    blank = _ONE_BLANK_FOR_TWO.search(statement) if "__" in statement or "quad" in statement else None
    named = named or (_ASKED_IN_TWO_CLAUSES.search(statement) if "问" in lowered else None)
    two = _TWO_ANSWERS.search(statement) if "two" in lowered or "separately" in lowered else None
    two = two or (
        next(filter(None, map(_TWO_THINGS.search, asks.values)), None)
        if " and " in lowered or "as well as" in lowered
        else None
    )
    where = _WHERE_IT_IS_REACHED.search(masked(statement)) if holds(_REACHED_WORDS, lowered) else None
    listed = _EACH_LISTED.search(statement) if "\n" in statement else None
    listed = listed or (_OF_THE_FOLLOWING.search(statement) if ":" in statement else None)
    if found := two or named or blank or where or listed:
        return found[0]
    return _told_apart(statement, asks, answer) if parts_of(answer) > 1 or _MAPPING.match(answer) else ""


def _two_counts(sentence: str) -> bool:
    """Whether a question asks for two numbers, whatever its answer tells: "how many boxes and how many are left?"."""
    two = sentence.count("how ") + sentence.startswith("How ") + ("who" in sentence.lower()) > 1
    return two and bool(_TWO_COUNTS.search(sentence)) and not _ONE_OF_COUNTS.search(sentence)


def _told_apart(statement: str, asks: Asks, answer: str) -> str:
    """What shows that the several values of an answer are answers to several questions, and no list, pair or set."""
    if (asks.several and not _OF_BOTH_ALIKE.match(asks.several)) or _MAPPING.match(answer):
        return asks.several or "an answer by part"
    if clauses := _TWO_CLAUSES.search(statement, max(0, len(statement) - 120)):
        return clauses[0]
    if again := _ONCE_MORE.search(statement):
        return again[0]
    if prose(answer):
        return ""
    each = _EACH_OF_THESE.search(statement) or _THEN_EVALUATED.search(statement)
    return each[0] if each else _expressions_told(statement, answer)


def _expressions_told(statement: str, answer: str) -> str:
    """Expressions of the statement that the answer gives values of ("z+w=5-i, zw=62"); unknowns are none."""
    spaceless = _SPACES.sub("", statement)
    told = (_SPACES.sub("", found) for found in _TOLD.findall(answer))
    asked = [each for each in told if not _UNKNOWN.fullmatch(each) and each in spaceless]
    return " and ".join(asked) if len(set(asked)) > 1 else ""
