"""Answers in words as formulas: sets, domains of parameters, multiples, and sentences that state a value."""

import re

from magcli.verify.math.latex.spelling import normalize
from magcli.verify.math.latex.wording import states_value

MAX_PHRASE = 300
"""Longer texts are not searched for sets in words."""
_DOMAINS = {
    "positive integer": "N", "constant": "R", "real constant": "R", "rational number": "Q", "complex number": "C",
    "integer": "Z", "whole number": "Z", "natural number": "N", "real number": "R",
}  # fmt: skip
# Every set or domain in words contains one of these; without it the patterns below are not tried.
_KEY = re.compile(r"integer|number|real|constant|multiple|divisible|\\mathbb|\\in(?![a-z])|\\pm")
# Whether an answer starts with a word, so that it may be a sentence.
_SENTENCE = re.compile(
    r"\s*(?:\\(?:text|mathrm|textrm|mbox)\s*\{|[^\W\d_]{2}|[\u3400-\u9fff]|\$?[A-Za-z]\$?\s(?=[A-Za-z]{2}))"
)
# Words, then a value: ``the number of triples is 42``.
_STATEMENT = re.compile(
    r"(?P<lead>[^\W\d_](?:(?:[^\W\d_]|[\s,.:;'’$-])*?(?:[^\W\d_]|[:.,]))?\s*)\$?(?P<value>(?:(?<![\w-])|(?<=[\u3400-\u9fff]))(?:[-+]?(?:\d|\.\d|\\(?!text)[A-Za-z{(]|[$£€¥(\[])"
    r"|[A-Za-z]\s*=|(?<=[\u3400-\u9fff])\d).*)"
)
_MULTIPLE = re.compile(
    r"(?:\$?(?P<letter>[A-Za-z])\$?\s+(?:(?:is|must be)\s+)?)?(?:(?:an?|all|any|every)\s+)?(?:integers?\s+)?"
    r"(?:multiples?\s+of|divisible\s+by)\s+\$?(?P<modulus>\d+)\$?"
)
_TEXT_COMMAND = re.compile(r"\\(?:text|mathrm|textrm|mbox)\s*\{([^{}]*)\}")
_LETTER = r"(?<![A-Za-z\\])\$?(?P<letter>[a-zA-Z]|\\(?:lambda|mu|alpha|beta|tau))\$?"
_KIND = rf"(?P<kind>{'|'.join(_DOMAINS)})s?"
_GAP = r"(?:\s|,|;|\\[,;:! ]|\\q?quad)*\(?\s*"
_ANY = r"(?:(?:an?|any|all|every|each|some)?\s*arbitrary|an?|any|all|every|each|some)"
_STATED = (
    re.compile(rf"{_GAP}(?:(?:where|for|with|and|when)\s+)?{_LETTER}\s+(?:(?:is|are|be)\s+{_ANY}?|{_ANY})\s*{_KIND}\s*\)?"),
    re.compile(rf"{_GAP}(?:where|for|with)\s+{_ANY}?\s*{_KIND}\s+{_LETTER}\s*\)?"),
)  # fmt: skip
_WITH = "mit|wobei|für|avec|où|pour|con|donde|para|dove|per|где|для"
"""Words for *where* and *with* in the other languages."""
# ``k \in \mathbb{Z}``, with words such as ``for all`` before it.
_MEMBERS = re.compile(
    rf"(?:\s|,|;|\\[,;:! ]|\\q?quad|\(|\\forall|\b(?:where|for|with|all|any|every|when|{_WITH})\b)+{_LETTER}\s*\\in\s*"
    r"(?:\\math(?:bb|bf)\s*\{?)?(?P<set>[ZNRQC])\}?\s*\)?"
)
# ``k = 0, \pm 1, \pm 2, \ldots``.
_ENUMERATED = re.compile(
    rf"{_GAP}{_LETTER}\s*=\s*0\s*,\s*\\pm\s*1\s*(?:,\s*\\pm\s*\d\s*){{0,4}},\s*(?:\\[lc]?dots|\.\.\.)\s*\)?"
)
# ``all real numbers x except 1``.
_REALS_PHRASE = re.compile(
    r"(?:(?:all|any|every)\s+)?(?:\\mathbb\{R\}|(?:the\s+)?real(?:\s+numbers?|\s+values?|s)?)(?:\s+of)?"
    r"(?:\s+\$?(?P<letter>[a-z])(?![A-Za-z])\$?)?\s*,?\s*(?:(?P<except>except(?:\s+for)?|excluding|other\s+than|but\s+not)|such\s+that"
    r"|where|with)?\s*(?:(?:when|that|at)\s+)?(?P<rest>\S.*)",
    re.IGNORECASE,
)  # fmt: skip
_ENDS = {
    "greater than": r"({},\infty)", "greater than or equal to": r"[{},\infty)", "at least": r"[{},\infty)",
    "less than": r"(-\infty,{})", "less than or equal to": r"(-\infty,{}]", "at most": r"(-\infty,{}]",
}  # fmt: skip
# ``all real numbers greater than 3``.
_COMPARED = re.compile(
    rf"(?:all\s+)?real(?:\s+numbers|s)\s+(?P<than>{'|'.join(_ENDS)})\s+(?P<end>-?(?:\d+(?:\.\d+)?|\\[a-z]+(?:\{{\d+\}})+))",
    re.IGNORECASE,
)
_OTHER_LABEL = re.compile(r"[^\W\d_]{3,}\s*:")
"""A label after the value, so that the words before it are a label too: ``max: 5, min: 2``."""
_NAMED_VALUE = re.compile(r"(?<![A-Za-z\\])[a-z]\s*=\s*")
_OTHER_WORD = re.compile(r"(?<![\\A-Za-z])(?!(?:and|or)\b)[A-Za-z]{2,}")
_RELATION = re.compile(r"(?:[<>=]|\\(?:n?[lg]eq?|neq?|le|ge)(?![a-z]))")
_SET = re.compile(r"(?:\\left)?\s*(?:\[|\(|\\\{)")


def formalize(text: str) -> str:
    """The answer with sets and conditions in words as formulas."""
    if len(text) > MAX_PHRASE:
        return text
    has_key, is_sentence = _KEY.search(text), _SENTENCE.match(text)
    if not has_key and not is_sentence:
        return text
    without_commands = _TEXT_COMMAND.sub(r" \1 ", text)
    plain = " ".join(without_commands.split())
    formula = ""
    if has_key:
        formula = _reals_in_words(plain) or _with_domain(plain) or _multiples(plain)
    if is_sentence and not formula:
        formula = _stated_value(plain)
    return formula or text


def _stated_value(plain: str) -> str:
    """The value that a sentence states: ``the number of triples is 42``; empty for anything else."""
    match = _STATEMENT.fullmatch(plain)
    if match is None or not states_value(match["lead"].replace("$", " ")):
        return ""
    value = match["value"]
    return "" if _OTHER_LABEL.search(value) else normalize(value)


def _multiples(plain: str) -> str:
    r"""``n is a multiple of 4`` as ``n \equiv 0 \pmod 4``; empty for anything else."""
    match = _MULTIPLE.fullmatch(plain)
    if match is None:
        return ""
    letter = match["letter"] or "n"
    return rf"{letter}\equiv 0\pmod{{{match['modulus']}}}"


def _reals_in_words(plain: str) -> str:
    r"""``all reals except 1 and 2`` as a difference, ``all reals x \ne 2`` as its condition; else empty."""
    if compared := _COMPARED.fullmatch(plain):
        comparison = " ".join(compared["than"].lower().split())
        return _ENDS[comparison].format(compared["end"])
    match = _REALS_PHRASE.fullmatch(plain)
    if not match or _OTHER_WORD.search(match["rest"]):
        return ""
    rest = match["rest"]
    if not match["except"]:
        # The letter may be named before the relation, or with the reals.
        is_named_before = match["letter"] and _RELATION.match(rest)
        condition = f"{match['letter']} {rest}" if is_named_before else rest
        return condition if re.match(rf"[a-z]\s*{_RELATION.pattern}", condition) else ""
    excluded = _NAMED_VALUE.sub("", rest)
    if _RELATION.search(excluded):
        return ""
    if _SET.match(excluded):
        return rf"\mathbb{{R}}\setminus {excluded}"
    return rf"\mathbb{{R}}\setminus\{{{excluded}\}}"


def _with_domain(plain: str) -> str:
    r"""``k\pi where k is an integer`` as ``k\pi, k \in \mathbb{Z}``; empty without such a condition at the end."""
    for pattern in (*_STATED, _MEMBERS, _ENUMERATED):
        condition = next((match for match in pattern.finditer(plain) if match.end() == len(plain)), None)
        # A condition of nothing is no answer.
        if condition is None or condition.start() == 0:
            continue
        groups = condition.groupdict()
        # The enumerated values are integers.
        domain = groups.get("set") or _DOMAINS[groups.get("kind") or "integer"]
        body = plain[: condition.start()]
        return rf"{body}, {groups['letter']} \in \mathbb{{{domain}}}"
    return ""
