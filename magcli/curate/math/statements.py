"""What makes a statement unusable whatever its answer: it asks for a proof or for reasons, or is not all there.

Each rule is one regular expression behind a test for its tell-tale words, which most statements lack; that keeps the
filter at tens of thousands of rows a second.
"""

import re
from collections.abc import Sequence

from magcli.curate.math.absent import data_absent
from magcli.curate.math.asks import Asks, asks_of, holds, masked, sentences, tasks_in
from magcli.curate.math.figures import figure_needed
from magcli.curate.math.remains import without_pictures

_START = r"(?:\A|[.;:!?>,，。；：？！\n)）}]|\$\s|\b(?:and|then|thus|please)\b)\W{0,4}\s*"
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

_OWN_CLAIM = re.compile(
    r"\b(?:prove|verify|justify)\s+(?:it\b(?!\s+is)|your|this\s+is)|\b(?:prove|show)\s+that\s+(?:your|this\s+answer"
    r"|(?:there\s+(?:is|are|exists?)\s+no|these\s+are|this\s+is|it\s+has\s+no)\s+(?:the\s+)?(?:more|other|further|all|only))|证明你的",
    re.I,
)

_ELSEWHERE_WORDS = (
    *("tnywr", "t n y", "receive", "previous", "preceding", "last", "exercise", "problem", "question", "example"),
    *(
        "theorem",
        "section",
        "the above",
        "text above",
        "textbook",
        "appendix",
        "lecture notes",
        "handout",
        "your periodic",
    ),
    *("extend", "repeat", "redo", "data table", "table "),
    *("passage", "article", "document", "excerpt", "text below", "上", "题"),
)
_ELSEWHERE = re.compile(
    r"T\s*=\s*T\s?N\s?Y\s?W\s?R|\bnumber you will receive\b|\bcontinu(?:e|ed|ing)\s+from\s+(?:the\s+)?previous\b"
    r"|(?:\b(?:from|of|to|see|using|as in)|(?:\A|[.(])\s*in)\s+(?:the\s+)?(?:previous|preceding|last)\s+"
    r"(?:problem|question|exercise|part|example)s?\b"
    r"|(?:\A|\.\s+)(?:include|use|consider|repeat)\b[^.?!]{0,90}\sin\s+the\s+(?:previous|preceding)\s+(?:problem|exercise|example)\b"
    r"|\b(?:see|in|from|of|refer to)\s+(?:exercise|problem|example|theorem)\s+[A-Z]?\d+(?:\.\d+)*\b"
    r"|(?:\A|[.!?]\s+)(?:extend|repeat|redo)\s+(?:this|the)\s+(?:problem|exercise|question)\b"
    r"|\b(?:in|from|see|using|use)\s+(?:the\s+)?(?:data\s+tables?|(?-i:Table)\s+\d+(?:\.\d+)*)\b"
    r"|\b(?:in|from|of|using)\s+your\s+(?:periodic\s+table|textbook|lecture\s+notes|appendix|handout)\b"
    r"|\b(?:in|from|using)\s+the\s+(?:textbook|lecture\s+notes|appendix|handout)\b"
    r"|\A[^.?!\n]{0,40}\b(?:the|this)\s+above\s+(?:\w+\s+)?(?:content|text|statement|sentence|passage|problem|question|expression|equation)\b[^.?!\n]*\.?\s*\Z"
    r"|\b(?:passage|article|document|text|excerpt)\s+(?:above|below)\b(?![^\n]{0,200}\n\s*\S)|根据上题|上一题|接上题|[由同]上题",
    re.I,
)
_STEM_BREAKS_OFF = re.compile(
    r"\b(?:by|are|is)\s+the\s+(?:equations?|data|points|functions?)\s*\Z|\bas\s+follows\s*:?\s*\Z"
)
_BREAKS_INTO_A_QUESTION = re.compile(r"\b(?:is|are|was|equals)\s+(?:How|What|Find|Determine)\s")
_UNREAD_PAGE = re.compile(r"\b(?:article|web\s?page)\b[^\n]{0,200}\n\s*https?://\S+\s*\Z", re.I)
_PART = re.compile(r"\b(?:in|from|of|to|using|by|with)\s+part\s+\(?([a-h1-6])\b\)?", re.I)
_LATER_PART = re.compile(r"[(（]\s*(?:[2-9]|ii|iii|iv|b|c|d)\s*[)）](?=\s*[A-Z\u4e00-\u9fff][^\d$\\]*\Z)", re.S)
_DEFINED_WORDS = ("given", "defined", "follow", "statements", "clues", "claims", "下", "其中")
_NOTHING_DEFINED = re.compile(
    r"(?:\b(?:given\s+by|defined\s+(?:by|as)|as\s+follows|the\s+following|(?:statements|clues|claims)\s+(?:are|were))|[为是如]下)"
    r"\s*[:：.,，]?\s*(?:\\n|\n)*\s*(?:其中|where\b|\Z)|[函数度]为\s*[:：.,，]?\s*(?:\\n|\n)*\s*其中",
    re.I,
)
_SCAN_WORDS = ("\ufffd", "↑", "↓", "arrow", "<unk>", "[unreadable]", "????")
_SCAN_REMAINS = re.compile(r"[\ufffd↑↓]|\\(?:up|down)arrow\s*=|<unk>|\[unreadable\]|\?{4,}", re.I)
_IMAGE_WORDS = (
    ".png",
    ".jpg",
    ".jpeg",
    ".gif",
    ".svg",
    "\\includegraphics",
    "<img",
    "[image]",
    "[figure]",
    "[img]",
    "[diagram]",
    "[图",
)
_IMAGE = re.compile(
    r"(?<![\w./-])[\w./-]{0,200}/[\w-]{1,100}\.(?:png|jpe?g|gif|svg)\b|\\includegraphics|<img\b|\[(?:image|figure|img|diagram|图片?)\]",
    re.I,
)
_REMAINS: Sequence[tuple[tuple[str, ...], re.Pattern[str]]] = (
    (_IMAGE_WORDS, _IMAGE),
    (_DEFINED_WORDS, _NOTHING_DEFINED),
    (_SCAN_WORDS, _SCAN_REMAINS),
    (("http",), _UNREAD_PAGE),
    ((" is ", " are ", " was ", " equals "), _BREAKS_INTO_A_QUESTION),
)

_ASKED_ZH = (
    r"(?:[请将把用给以为写列述创建做造作设编改重转翻译换评研查讲说举选判断比较描总概归分类析识辨求算计找提推荐问答对替删缩"
    r"加添插预估测优化展输获取填补讨论介绍撰拟安准学教修拼标统开实运执打配规画制帮告检核整拆读引若如根据按从何怎]"
    r"|确定|解释|生成|建议|回答|定义|构[建造]|想[出象想]|已知|考虑|发[布送表]|正确|使用|在(?![我你他她]))"
)
_TELLS_ZH = r"(?:[是在了有会想很不没被让使能正已仍]|非常|可以|应该|必须|需要|值得|喜欢|变得|总是|从未|充满|盎然|甜美)"
_ONLY_TELLS = re.compile(
    r"(?:我们?|你们?|他们?|她们?|它们?|这[个些座]?|那[个些座]?)"
    r"(?:(?![请将把改写填选求证几吗]|分类|编辑|识别|解释|描述|确定|总结|什么|多少)[^。？！?!：:，,\n_“”\"$\d]){2,25}[。！]"
    rf"|(?=[^。]{{0,40}}{_TELLS_ZH})(?![^。]*(?:[几吗呢谁哪]|什么|多少|为何|如何|怎|句话|故事))"
    rf"(?:(?!{_ASKED_ZH})[\u4e00-\u9fff][^。？！?!：:，,\n_“”\"$=\d（(]{{1,30}}[，]?){{1,4}}[。！]"
    r"|(?:I|He|She|It|They|We|My|Our|His|Her)\s[^.?!:\n_\"“$\d]{2,60}[.!]"
)
_ONLY_NAMES = re.compile(rf"(?![我你他她它这那])(?:.*，)?[^，是有了]*的(?!.*{_TELLS_ZH})[^，]{{1,6}}[。！]")
_STORY = re.compile(r"\W{0,3}(?:[A-Za-z\d'’,.$%-]+\s+){8,}[A-Za-z\d%]+\s?\.\s*")
_ASKING = re.compile(
    r"\b(?:wh(?:at|ich|om?|ose|ere|en|y)|how|find|compute|calculate|determine|evaluate|solve|simplify|express|give|write|state|list|name|prove"
    r"|show|graph|sketch|draw|use|identify|convert|factor|expand|estimate|round|translate|complete|add|subtract|multiply|divide|reduce"
    r"|please|let|match|classify|construct|describe|rewrite|put|make|choose|select|tell|detect|merge|does|do|input|set)\b"
    r"|\A\W*(?:is|are|was|can)\b",
    re.I,
)
_CONCLUDED = re.compile(
    r"(?<=[.$])\s+(?:Therefore|Hence|Thus|Consequently),?\s(?![^\n]*_{2,})(?!\$[^$]*\$\s*\Z)[^\n?:]{10,250}[a-z]\.\s*\Z"
)
_LAST_FORMULA = re.compile(r"\$\$?([^$]+)\$\$?\Z")
_UNSPACED = re.compile(r"[\s$]+")
_BROKEN_OFF = re.compile(
    r"(?:\s(?:the|of|and|an|with|from|where|if|which|or|whose|such that|so that|because|when)"
    r"|(?<=[\w\s)}])[*+&]|(?<=[\d\s)}])/|[,，、(（])\s*\Z"
)


def proof(statement: str, lowered: str, asks: Asks, *, prose: bool) -> str:
    """The words that ask for a proof or for reasons; empty when there is a value to compare.

    A value is asked for beside the proof when its question comes after the proof, or when what is to be proved is
    one's own answer; "What is x? Show that it is 3" asks for nothing but the proof. ``prose``: the ground truth is
    text, which tells that what is wanted is the argument. ``lowered`` is the statement in lower case.
    """
    found = _PROOF.search(statement) if holds(_PROOF_WORDS, lowered) else None
    if found is None:
        return asks.reason if asks.only_reasons or (prose and asks.reason) else ""
    own = asks.values and _OWN_CLAIM.search(statement, found.start(), found.end() + 40)
    value = own or asks_of(statement[found.end() :]).values
    return "" if value and not prose else found[0].strip(" .;:!?,\n")


def missing_part(statement: str, lowered: str) -> str:
    """What the statement refers to but does not hold, or where it breaks off; empty when it seems whole."""
    if holds(_ELSEWHERE_WORDS, lowered):
        elsewhere = _ELSEWHERE.search(statement)
        if elsewhere:
            return elsewhere[0]
    if absent := data_absent(statement, lowered):
        return absent
    told = statement[: statement.find("\n(A) ")] if "\n(A) " in statement else statement
    if figure := figure_needed(statement, told, lowered):
        return figure
    statement, told = without_pictures(statement), without_pictures(told)
    if first := _LATER_PART.match(told):
        return f"begins with {first[0].strip()}"
    part = _PART.search(statement) if "part" in lowered else None
    if part and statement.count(f"({part[1]})") <= part[0].count("("):
        return part[0]
    if told != statement and (open_end := _STEM_BREAKS_OFF.search(told, max(0, len(told) - 40))):
        return f"ends with {open_end[0].strip()!r} before its options"
    for told_by, pattern in _REMAINS:
        if holds(told_by, lowered) and (remains := pattern.search(statement)):
            return remains[0].strip()
    if statement.endswith("$") and (within := _within_brackets(statement)):
        return f"ends within {within!r}"
    broken = _BROKEN_OFF.search(statement, max(0, len(statement) - 40))
    return f"ends with {broken[0].strip()!r}" if broken and not _asks_at_the_end(statement) else ""


def only_told(statement: str) -> str:
    """A statement that is one plain sentence about someone, and asks for nothing; empty for any other.

    Where the answer is a value there may be a question all the same; ask only about answers in prose.
    """
    told = len(statement) < 100 and _ONLY_TELLS.fullmatch(statement) and not _ONLY_NAMES.fullmatch(statement)
    return "it asks for nothing" if told else ""


def told_without_question(statement: str, asks: Asks) -> str:
    """A story in plain English words and numbers in which no word asks for anything; empty for any other statement."""
    if asks.values or asks.reason or asks.open_ended:
        return ""
    told = len(statement) < 600 and _STORY.fullmatch(statement) and not _ASKING.search(statement)
    concluded = None if "\\q" in statement else _CONCLUDED.search(statement, max(0, len(statement) - 300))
    return "it asks for nothing" if told or (concluded and not _ASKING.search(concluded[0])) else ""


def answered(statement: str, asks: Asks, answer: str) -> str:
    """The end of a statement that asks nothing and ends with its own answer, as a blank that was filled does."""
    if asks.values or asks.reason or not 0 < len(answer) <= 40:
        return ""
    end = _UNSPACED.sub("", statement[-80:])
    value = _UNSPACED.sub("", answer)
    told = re.search(rf"(?:=|为|是|得|be|is|or|either){re.escape(value)}(?:or[-+\d.]+)?\.?\Z", end)
    return f"ends with its answer {answer}" if told else ""


def _within_brackets(statement: str) -> str:
    """The tail of a formula that ends the statement and leaves a bracket open before more of it; empty if none does."""
    last = _LAST_FORMULA.search(statement, max(0, len(statement) - 400))
    formula = last[1].rstrip() if last else ""
    opened = sum(map(formula.count, "([")) - sum(map(formula.count, ")]"))
    return formula[-20:] if opened > 0 and formula[-1] not in "([=" else ""


def _asks_at_the_end(statement: str) -> bool:
    """Whether the last sentence asks for something, so that a comma behind it cuts nothing off."""
    *_, last = sentences(masked(statement[-300:])) or [""]
    return last[-1:] in ",，" and tasks_in(last) > 0
