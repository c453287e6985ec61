"""Answers to yes-or-no questions in the seven languages, with or without a reason: ``No, it diverges``."""

import re

from magcli.verify.math.latex.wording import NEGATIONS, RESERVATIONS, plain

_YES = "yes true ja wahr richtig oui vrai si verdadero cierto vero да верно правда истина 是 是的 对 正确"
_NO = "no false nein falsch non faux falso нет неверно ложь 否 不是 错 错误 不对"
AFFIRMATIVE, NEGATIVE = frozenset(_YES.split()), frozenset(_NO.split())
"""Words for yes and true, and for no and false, without accents."""
# A first word, then a mark or a conjunction, then the reason: ``No, it diverges``.
_WITH_REASON = re.compile(
    r"(?P<verdict>[^\W\d_]+)\s*(?P<mark>[,.;:，。；：(—–-])?\s*"
    r"(?P<because>(?:because|since|weil|denn|da|car|porque|perche|потому|因为)(?![A-Za-z]))?\s*(?P<reason>\S.*)",
    re.DOTALL,
)
_WORD = re.compile(r"(?<!\\)(?<![A-Za-z])[^\W\d_]+")
_CHINESE_RESERVATION = re.compile("但|只|仅|若|如果|或|可能|除非|是否")
_CHINESE_NEGATION = re.compile("[不非没沒无無未]")
_IDEOGRAPHS = re.compile(r"[\u3400-\u9fff]{2}")
_TEXT_COMMAND = re.compile(r"\\(?:text(?:bf|it|rm)?|math(?:rm|bf)|mbox)\s*\{([^{}]*)\}")
# A relation between numbers: ``91 = 7*13``.
_RELATION = re.compile(r"\d\s*\$?\s*(?:[=<>≠≤≥]|\\(?:n?eq?|[lg]eq?|equiv|n?mid)(?![a-z]))")
MAX_REASON = 500


def is_polar(words: str) -> bool:
    """Whether an answer is a word for yes or no, true or false."""
    return plain(words) in AFFIRMATIVE or plain(words) in NEGATIVE


def verdict_of(answer: str) -> str:
    """The yes or no with which an answer with a reason begins; empty for anything else.

    The reason must not take it back: no condition, doubt or alternative, no word for the opposite, and no negation
    after a yes.
    """
    if len(answer) > MAX_REASON:
        return ""
    bare = plain(_TEXT_COMMAND.sub(r"\1", answer)).strip()
    written = _WITH_REASON.fullmatch(bare)
    if written is None or written["verdict"] not in AFFIRMATIVE | NEGATIVE:
        return ""
    verdict, reason = written["verdict"], written["reason"]
    words = _WORD.findall(reason)
    has_reason = _is_clause(words) or _RELATION.search(reason)
    # Without a mark or because, the word may begin a noun: no solution.
    if not (written["mark"] and has_reason) and not written["because"]:
        return ""
    affirmed = verdict in AFFIRMATIVE
    # Chinese is written without spaces, so that its words are not among those above.
    if _CHINESE_RESERVATION.search(reason) or (affirmed and _CHINESE_NEGATION.search(reason)):
        return ""
    opposite = NEGATIVE | NEGATIONS if affirmed else AFFIRMATIVE
    takes_back = (opposite | RESERVATIONS).intersection(words)
    return "" if takes_back else verdict


def _is_clause(words: list[str]) -> bool:
    """Whether words are two or more, or ideographs; a second value is one word or none."""
    long_words = [word for word in words if len(word) > 1]
    return len(long_words) > 1 or any(map(_IDEOGRAPHS.search, words))
