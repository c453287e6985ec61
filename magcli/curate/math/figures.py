"""Figures and tables that a statement names or stands beside, and whether it can be solved without them."""

import re

from magcli.curate.math.asks import holds
from magcli.curate.math.remains import pictures, without_pictures

_NOUN = r"(?:figures?|diagrams?|pictures?|graphs?|charts?|tables?|images?|illustrations?|drawings?|sketch|plots?|map)"
_PLACEHOLDER = re.compile(r"<image[\s_]?\d*>", re.I)
_OPTIONS_NAMED = (
    r"(?:numbers?|values?|integers?|intervals?|statements?|expressions?|equations?|fractions?|could|can|must|cannot|express(?:es)?"
    r"|is\s+(?:the\s+)?(?:closest|an?|equal|always|true|false|smallest|largest))"
)
_POINTS_AT_IT = re.compile(
    r"\b(?:(?<!final )(?<!resulting )figures?|diagrams?|pictures?|charts?|illustrations?|sketch|plots?|map|fig\.)"
    r"|\bgraphs?\b(?!\s+of\s+(?:the\s+)?(?:\w+\s+)?(?:function|equation|polynomial|\$))"
    r"|(?<!its )\bimages?\b(?!\s+of\s+(?:point\s+)?\$)"
    r"|(?<!on the )(?<!on a )(?<!round )(?<!square )(?<!\$ )(?<!\$-)\btables?\b(?!\s+of\s)"
    r"|(?<!\$ )(?<!\$-)\bgrids?\b|\b(?:the|his|her|this|my|see)\s+drawings?\b"
    r"|(?<!will )\bshow\b|\b(?:shown|pictured|illustrated|depicted|shaded|gr[ae]y|dotted|dashed|dark|bold)\b"
    r"|(?<!is )(?<!are )\b(?:marked|labelled|labeled)\b|\b(?:below|beside|adjoining)\b"
    r"|\b(?:on|to|at)\s+the\s+(?:right|left)\b(?![ -](?:hand\s+|hand-)?(?:end|side)\b)"
    rf"|\bfollowing\b(?!\s+(?:conditions?|order|rules?|way|process|game|{_OPTIONS_NAMED})\b)"
    r"|question\s*mark|[\"“]\?[\"”]"
    r"|\b(?:this|these|each|the\s+(?:same|given))\s+(?:\w+\s+)?(?:shape|cube|net|pattern|piece|tile|card|symbol|grid|solid|object|polygon|path|maze|dice|die|sign)s?\b"
    r"|:\s*<image\d*>\s*[A-Z]|[a-z]\s+<image\d*>,?\s+[a-z]|\byou\s+(?:can\s+)?see\b"
    r"|\b(?:number\s+line|symbols?|arrows?|maze|labyrinth|cross-?number|dice|spinners|stickers?|puzzle|stained|the\s+calculations?)\b"
    r"|\b(?:in|into|from)\s+the\s+(?:small\s+)?(?:circles|boxes|fields)\b"
    r"|\A[^.?!\n]{0,50}\b(?:this|these)\s+(?!(?:year|month|week|morning|game|way|case)s?\b)[a-z]|[图影]|所示",
    re.I | re.M,
)
_FACT = re.compile(
    r"[A-Z]\}?\s*=|=\s*\\?[a-z]*\{?[A-Z]|\d\s*\^?\{?\\?circ|\d\s*\\mathrm|\b(?:rectangle|square|trapezoid|parallelogram)\s+\$"
    r"|\btriangle\s+\$?\\?[a-z]*\s?[A-Z]|\bmid-?points?|perpendicular|parallel|\\perp|tangent|isosceles|equilateral|regular"
    r"|\bright[- ]angled?|\bright\s+triangle|bisect|inscribed|\bcent(?:er|re)s?\b|intersect|\blies?\s+on\b"
    r"|radi(?:us|i)\b|diameter|\bside\s+lengths?|congruent|collinear|\bratio\b|\bextended\b",
    re.I,
)
_ONLY_SHOWN = re.compile(
    r"shaded|gr[ea]y\b|\bdark|marked|\bblack|\bwhite|colou?red|painted|\btables?\b|\bgrid|\bnumbers?\b(?!\s+of\b)|question\s*mark|which\s+of"
    r"|\bshape|pattern|\bmap\b|\bgraph|chart|\bdots\b|\bcubes?\b|\bpieces?\b|\bdice|\bdie\b|\btile|region|indicated|labell?ed"
    r"|on\s+the\s+(?:right|left)|given\s+in|arrow|\bbold|dotted|dashed|\bpath|\bstrip|how\s+many(?!\s+degrees)"
    r"|\\(?:alpha|beta|gamma|delta|theta)\b|\bdivided\s+into[^.]{0,60}\bas\s+(?:shown|seen|in)\b|阴影|关系如图",
    re.I,
)
_UNKNOWN_ASKED = re.compile(r"(?:(?:value|measure)\s+of|\bis)\s+\$\s?([w-z])\b", re.I)
_PICTURES_TO_CHOOSE = re.compile(r"^\(A\) \(?[Aa]\)?\s*$|^[(（]?[A-E]\s?[.)）:：]\s*!\[", re.M)
_WITHIN_A_SENTENCE = re.compile(r"[a-z,，:：\u4e00-\u9fff][ \t]{0,9}!\[[^\]\n]{0,200}\]\(")
_WHICH_OF_THEM = re.compile(r"\bwhich\s+(?:one\s+)?of\s+(?:the|these)\s+following\b", re.I)
_FIGURE_WORDS = (
    *("figure", "diagram", "picture", "graph", "chart", "table", "image", "illustration", "drawing", "sketch"),
    *("plot", "map", "histogram", "fig.", "schedule", "stub", "receipt", "menu", "to answer", "图", "下表", "上表"),
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
    r"|\b(?:tiles?|shapes?|pieces?|figures?|numbers)\s+(?:in|on)\s+the\s+picture\b"
    r"|\bconsider\s+the\s+following\s+(?:graph|circuit|network|figure|diagram|picture)(?=\s*[,.])"
    rf"|\(see\s+(?:the\s+)?{_NOUN}\)"
    r"|\bfig(?:ure|\.)\s*[A-Z]?\d+(?:\.\d+)?[a-z]?\s+(?:shows|depicts|illustrates|gives)\b|(?<![(（])\bFig\.\s*[A-Z]?\d"
    r"|\b(?:in|from)\s+(?:figure|fig\.)(?=\s*(?:[(),.;]|[A-Z]?\d|below|above|\Z))"
    r"|如图(?![象像])|如下图|(?<![剩剪余以])下图(?![形书])|图中|见图|图示|上图(?!书)|右图|左图|如下表|[下上]表(?![达面明述示])|统计图(?!统计|来|表示)|示意图",
    re.I,
)
_DRAWN = re.compile(
    r"\[asy\]|\\begin\{(?:tabular|array|tikzpicture|picture)\}|^\s*\|.*\||\S \| \S.*\S \| \S|\\hline|<table",
    re.I | re.M,
)
_DATA_SHOWN = re.compile(
    r"\baccording\s+to\s+the\s+(?:table|graph|chart|diagram|schedule)(?=\s*,)"
    r"|\blook\s+at\s+(?:the|this|[A-Z]\w+['’]s)\s+(?:\w+\s+)?(?:table|graph|chart|diagram|picture|schedule|stub|receipt|menu)(?=[.,])"
    r"|\Ause\s+the\s+(?:data|table|graph|chart)\s+(?:below\s+)?to\s+answer\b"
    r"|\b(?:the|this)\s+(?:circle|pie|bar|line|frequency)\s+(?:graph|chart|table)\s+(?:shows|gives|represents|summari[sz]es|displays)\b",
    re.I,
)
"""Names of data rather than of a picture: where the statement holds three numbers, they may be the data."""
_TABLE_TOLD = re.compile(r"表[^。．：:]{0,60}[：:]")
_LABELLED_NUMBER = re.compile(r"[：:]\s*\d")
_NUMBER = re.compile(r"\d[\d.]*")
_SHOWN_WORDS = ("shown", "pictured", "depicted", "illustrated")
_SHOWN = re.compile(
    r"\bas\s+(?:shown|pictured|depicted|illustrated)(?=\s*[.,:;]|\s+(?:below|above|here|at (?:the )?right)\b|\s*\Z)"
    r"|\bshown\s+(?:(?:in|by|with)\s+(?:the\s+)?\w+\s+)?(?:below|above|here|at (?:the )?right|to the right)\b"
    r"|(?<=s )(?:pictured|depicted)(?=\s*[,.;])",
    re.I,
)
_ILLUSTRATES = re.compile(
    r"\b(?:for\s+example|for\s+instance|examples?|samples?|typical|one\s+possible|(?:for|an)\s+illustration|to\s+illustrate|one\s+of\s+(?:the\s+)?many"
    r"|one\s+(?:such\s+)?way\s+to\s+do)\b|\b(?:when|for)\s+(?:the\s+case\s+)?\$?\s?n\s*=|例如|比如",
    re.I,
)
_DISPLAYED = re.compile(
    r"\[asy\]|\\begin\{|(?:^[ \t]{0,20}|\s\s)\$\$|\$\$\s*\n|\\\[|\\[lc]?dots\b"
    r"|^\s*(?:\||[-*•]\s|\$\\bullet)|\\chemfig|```|<table",
    re.M,
)


def figure_needed(statement: str, told: str, lowered: str) -> str:
    """The picture, or the words that name a figure or table, that a statement needs and does not hold.

    Empty where there is none, or where words tell all. ``told`` is the statement without its options.
    """
    if picture := _picture(statement, lowered):
        return picture if _picture_needed(statement, told) else ""
    for words, in_it, named in ((_FIGURE_WORDS, _DRAWN, _FIGURE), (_SHOWN_WORDS, _DISPLAYED, _SHOWN)):
        if holds(words, lowered) and not in_it.search(told) and (figure := _needed(named, statement)):
            return "" if _tells_all(told, facts=5) or _told_as_text(told) else figure
    data = _DATA_SHOWN.search(told) if holds(_FIGURE_WORDS, lowered) and not _DRAWN.search(told) else None
    return data[0] if data and len(_NUMBER.findall(told)) < 3 and told.count("\n") < 2 else ""


def figure_named(detail: str) -> bool:
    """Whether what ``missing_part`` told of is a figure or table, which a statement may name without needing it."""
    return bool(pictures(detail)) or any(
        named.search(f"{detail}, ") for named in (_FIGURE, _SHOWN, _PLACEHOLDER, _DATA_SHOWN)
    )


def drawn(statement: str) -> bool:
    """Whether a figure or table stands in a statement, as code or as text."""
    return bool(_DRAWN.search(statement) or _DISPLAYED.search(statement))


def _picture(statement: str, lowered: str) -> str:
    """The placeholder of a picture, or the link to one; empty where there is none."""
    placeholder = _PLACEHOLDER.search(statement) if "<image" in lowered else None
    return placeholder[0] if placeholder else pictures(statement)


def _picture_needed(statement: str, told: str) -> bool:
    """Whether words point at the picture that stands beside them, and do not describe it."""
    if (
        _WITHIN_A_SENTENCE.search(statement)
        or _PICTURES_TO_CHOOSE.search(statement)
        or (told == statement and _WHICH_OF_THEM.search(statement))
    ):
        return True
    words = without_pictures(statement)
    points = len(words) < 80 or bool(_needed(_POINTS_AT_IT, words))
    return points and not (len(words) >= 80 and _tells_all(without_pictures(told), facts=3))


def _tells_all(told: str, *, facts: int) -> bool:
    """Whether words describe the picture that they name: facts of geometry, and nothing that only it can show."""
    unknown = _UNKNOWN_ASKED.search(told)
    marked = unknown is not None and not re.search(rf"=\s*{unknown[1]}\b", told)
    return not (marked or _ONLY_SHOWN.search(told)) and len(_FACT.findall(told)) >= facts


def _told_as_text(statement: str) -> bool:
    """Whether a table in Chinese follows its announcement in words, as "收费如下表：起步价：8元，单价：2元/公里"."""
    table = _TABLE_TOLD.search(statement) if "表" in statement else None
    if table is None:
        return False
    told = statement[table.end() - 1 :]
    return len(_LABELLED_NUMBER.findall(told)) >= 3 or len(_NUMBER.findall(told)) >= 5


def _needed(figure: re.Pattern[str], statement: str) -> str:
    """The words that name a figure; none where its sentence only illustrates ("one example is shown below")."""
    for found in figure.finditer(statement):
        start = max(statement.rfind(sign, 0, found.start()) for sign in ".?!\n。？！")
        end = re.search(r"[.?!。？！]\s|\Z", statement[found.end() :])
        if not _ILLUSTRATES.search(statement, start + 1, found.end() + (end.start() if end else 0)):
            return found[0]
    return ""
