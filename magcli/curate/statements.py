"""What makes a statement unusable whatever its answer: it asks for a proof, for several things, or is not all there.

Each rule is one regular expression behind a test for its tell-tale words, which most statements lack; that keeps the
filter at tens of thousands of rows a second.
"""

import re

_START = r"(?:\A|[.;:!?,，。；：？！\n)）]|\$\s|\b(?:and|then|thus|please)\b)\W{0,4}\s*"
_PROOF_WORDS = (
    *("prov", "show", "verif", "demonstrat", "proof", "证", "montr", "prouv", "demuestr", "prueb", "demostr"),
    *("zeig", "beweis", "dimostr", "докаж", "доказ", "покаж"),
)
_PROOF = re.compile(
    _START + r"(?:carefully\s+|formally\s+)?(?:prove|show|demonstrate|verify|disprove)\s+"
    r"(?:that|it\b|the\s+(?:following|identity|inequality|statement|theorem)|[$\\(]|for\s+(?:all|any|every)|by\s)"
    r"|\b(?:prove or disprove|(?:write|give) a proof)\b"
    r"|求证|试证|证明(?!书|了)[:：，,]?"
    r"|\b(?:montre[rz]?|démontre[rz]?|prouve[rz]?)\s+qu[e']|\b(?:demuestr[ae]|prueb[ae]|demostrar)\s+que\b"
    r"|\b(?:zeige|beweise|zeigen sie|beweisen sie)\s*,?\s+dass\b|\b(?:dimostra(?:re|te)?|provare)\s+che\b"
    r"|\b(?:докажите|доказать|покажите),?\s+что\b",
    re.I,
)

_ELSEWHERE_WORDS = (
    *("tnywr", "t n y", "receive", "previous", "preceding", "last", "exercise", "problem", "question", "example"),
    *("theorem", "section", "passage", "article", "document", "excerpt", "text above", "text below", "上", "题"),
)
_ELSEWHERE = re.compile(
    r"T\s*=\s*T\s?N\s?Y\s?W\s?R|\bnumber you will receive\b|\bcontinu(?:e|ed|ing)\s+from\s+(?:the\s+)?previous\b"
    r"|(?:\b(?:from|of|to|see|using|as in)|(?:\A|[.(])\s*in)\s+(?:the\s+)?(?:previous|preceding|last)\s+"
    r"(?:problem|question|exercise|part|example)s?\b"
    r"|\b(?:see|in|from|of|refer to)\s+(?:exercise|problem|example|theorem)\s+\d+(?:\.\d+)*\b"
    r"|\b(?:passage|article|document|text|excerpt)\s+(?:above|below)\b|根据上题|上一题|接上题|[由同]上题",
    re.I,
)
_IMAGE = re.compile(r"!\[[^\]]*\]\(|\\includegraphics|<img\b|\[(?:image|figure|img|diagram|图片?)\]", re.I)

_NOUN = r"(?:figures?|diagrams?|pictures?|graphs?|charts?|tables?|images?|illustrations?|drawings?|sketch|plots?|map)"
_FIGURE_WORDS = (
    *("figure", "diagram", "picture", "graph", "chart", "table", "image", "illustration", "drawing", "sketch"),
    *("plot", "map", "histogram", "图", "下表", "上表"),
)
_FIGURE = re.compile(
    rf"\b(?:shown|pictured|depicted|drawn|illustrated|displayed|given|seen|indicated|presented)\s+"
    rf"(?:in|on|by)\s+(?:the|this|each)\s+(?:\w+\s+)?{_NOUN}\b"
    rf"|\b{_NOUN}\s+(?:(?:is|are)\s+)?(?:(?:as\s+)?(?:shown|given|drawn|provided|displayed|pictured)\s*)?"
    r"(?:below|above|(?:at|to|on)\s+(?:the\s+)?(?:right|left))\b"
    r"|\b(?:the|this|following|adjoining|accompanying|attached)\s+(?:following\s+)?"
    r"(?:figure|diagram|graph|chart|table|picture|scatterplot|histogram|bar graph)\s+"
    r"(?:shows|shown|gives?|depicts|represents|indicates|summari[sz]es|displays|illustrates|below|above)\b"
    r"|\b(?:see|in|from|on|using)\s+the\s+(?:(?:following|adjoining|accompanying|attached|above|below|given)\s+)?"
    r"(?:figure|diagram|(?:adjoining|following|accompanying|above|below)\s+(?:picture|graph|chart|table))"
    r"(?=\s*[,.):;]|\s+(?:below|above|shown))"
    rf"|\(see\s+(?:the\s+)?{_NOUN}\)"
    r"|如图|如下图|下图|图中|见图|图示|上图|右图|左图|如下表|下表|上表|统计图|示意图",
    re.I,
)
_DRAWN = re.compile(r"\[asy\]|\\begin\{(?:tabular|array|tikzpicture|picture)\}|^\s*\|.*\||\\hline|<table", re.I | re.M)
_SHOWN_WORDS = ("shown", "pictured", "depicted", "illustrated")
_SHOWN = re.compile(
    r"\bas\s+(?:shown|pictured|depicted|illustrated)(?=\s*[.,:;]|\s+(?:below|above|here|at (?:the )?right)\b|\s*\Z)"
    r"|\bshown\s+(?:below|above|here|at (?:the )?right|to the right)\b",
    re.I,
)
_DISPLAYED = re.compile(r"\[asy\]|\\begin\{|\$\$|\\\[|^\s*(?:\||[-*•]\s|\$\\bullet)|\\chemfig|```|<table", re.M)
_BROKEN_OFF = re.compile(
    r"(?:\s(?:the|of|and|an|with|from|where|if|which|or|whose|such that|so that|because|when)|[,，、+*/&(（])\s*\Z"
)

_BLANK = re.compile(r"_{2,}|[(（]\s*\$?\\q?quad\$?\s*[)）]|\\underline\{\s*(?:\\q?quad\s*|\\hspace\{\w+\}|~)*\}")
_ASY = re.compile(r"\[asy\](?:[^\[]|\[(?!/?asy\]))*\[/asy\]")
_PART_WORDS = ("b)", "b）", "2)", "2）", "\n2.", "\n 2.", "②", "ii)", "part", "subproblem", "question", "第二问")
_PART_STYLES = tuple(
    re.compile(pattern, re.I)
    for pattern in (
        r"(?<![A-Za-z0-9_])[(（]\s*[a-f]\s*[)）]",
        r"(?:\A|[\n.。;；?？:：,，\s])[(（]\s*[1-6]\s*[)）]",
        r"[①②③④⑤]",
        r"(?:\A|[\n.?;:]\s*)(?:[(（](?:i|ii|iii|iv|v)[)）]|(?:[ivx]+|[a-f])\))",
        r"(?:\A|\n)\s*[1-6][.)]\s",
        r"\b(?:part|subproblem|question)\s+[a-f0-9]\b\s*[:.)]",
        r"第[一二三四]问",
    )
)
_ASKS = re.compile(
    r"\W*(?:(?:if|when|given|let|suppose|for|assuming|hence|using|若|当|已知|在|设)[^.?。？]{0,200}?[,，]\s*)?"
    r"(?:then\s+|please\s+|also\s+|试|请|则)?"
    r"(?:(?:find|compute|calculate|determine|evaluate|solve|prove|show|what|how|why|explain|express|write|sketch|draw|"
    r"state|estimate|describe|simplify)\b|求|计算|证明|写出|说明|化简|判断)"
    r"|(?:\$[^$]*\$|[^.?。？\n$]){0,300}[?？]",
    re.I,
)


def proof(statement: str, lowered: str) -> str:
    """The words that ask for a proof; empty when none do. ``lowered`` is the statement in lower case."""
    found = _PROOF.search(statement) if _any(_PROOF_WORDS, lowered) else None
    return found[0].strip() if found else ""


def missing_part(statement: str, lowered: str) -> str:
    """What the statement refers to but does not hold, or where it breaks off; empty when it seems whole."""
    if _any(_ELSEWHERE_WORDS, lowered):
        elsewhere = _ELSEWHERE.search(statement)
        if elsewhere:
            return elsewhere[0]
    image = _IMAGE.search(statement)
    if image:
        return image[0]
    if _any(_FIGURE_WORDS, lowered) and not _DRAWN.search(statement):
        figure = _FIGURE.search(statement)
        if figure:
            return figure[0]
    if _any(_SHOWN_WORDS, lowered) and not _DISPLAYED.search(statement):
        shown = _SHOWN.search(statement)
        if shown:
            return shown[0]
    broken = _BROKEN_OFF.search(statement, max(0, len(statement) - 40))
    return f"ends with {broken[0].strip()!r}" if broken else ""


def asked_parts(statement: str, lowered: str) -> str:
    """The labels of the parts of a statement that asks for several things, or the number of its blanks."""
    blanks = len(_BLANK.findall(_ASY.sub("", statement)))
    if blanks > 1:
        return f"{blanks} blanks"
    if not _any(_PART_WORDS, lowered):
        return ""
    for style in _PART_STYLES:
        marks = list(style.finditer(statement))
        ends = [*(mark.start() for mark in marks[1:]), len(statement)]
        asked = [m[0].strip() for m, end in zip(marks, ends, strict=False) if _ASKS.match(statement, m.end(), end)]
        if len(asked) > 1:
            return " ".join(asked[:4])
    return ""


def _any(words: tuple[str, ...], lowered: str) -> bool:
    return any(word in lowered for word in words)
