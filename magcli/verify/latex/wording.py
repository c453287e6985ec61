r"""Sets and conditions in words, written as formulas: ``all reals except 2``, ``k\pi for any integer k``.

What is worded otherwise stays as it is; no word is left out that could say more.
"""

import re

MAX_CHARS = 300
"""Of a longer text no words are read."""
_KINDS = {"integer": "Z", "whole number": "Z", "natural number": "N", "real number": "R"}
_KEY = re.compile(r"integer|number|real|\\mathbb|\\in(?![a-z])|\\pm")
_TEXT = re.compile(r"\\(?:text|mathrm|textrm|mbox)\s*\{([^{}]*)\}")
_LETTER = r"(?<![A-Za-z\\])\$?(?P<letter>[a-zA-Z]|\\(?:lambda|mu|alpha|beta|tau))\$?"
_KIND = r"(?P<kind>integer|whole number|natural number|real number)s?"
_GAP = r"(?:\s|,|;|\\[,;:! ]|\\q?quad)*\(?\s*"
_ANY = r"(?:an?|any|all|every|each|some|arbitrary|an arbitrary)"
_STATED = (
    re.compile(rf"{_GAP}(?:(?:where|for|with|and|when)\s+)?{_LETTER}\s+(?:(?:is|are|be)\s+{_ANY}?|{_ANY})\s*{_KIND}\s*\)?"),
    re.compile(rf"{_GAP}(?:where|for|with)\s+{_ANY}?\s*{_KIND}\s+{_LETTER}\s*\)?"),
)  # fmt: skip
_MEMBERS = re.compile(
    rf"(?:\s|,|;|\\[,;:! ]|\\q?quad|\(|\\forall|\b(?:where|for|with|all|any|every|when)\b)+{_LETTER}\s*\\in\s*"
    r"(?:\\math(?:bb|bf)\s*\{?)?(?P<set>[ZNRQC])\}?\s*\)?"
)
_ENDLESS = re.compile(
    rf"{_GAP}{_LETTER}\s*=\s*0\s*,\s*\\pm\s*1\s*(?:,\s*\\pm\s*\d\s*){{0,4}},\s*(?:\\[lc]?dots|\.\.\.)\s*\)?"
)
_REALS = re.compile(
    r"(?:(?:all|any|every)\s+)?(?:\\mathbb\{R\}|(?:the\s+)?real(?:\s+numbers?|\s+values?|s)?)(?:\s+of)?"
    r"(?:\s+\$?(?P<letter>[a-z])(?![A-Za-z])\$?)?\s*,?\s*(?:(?P<except>except(?:\s+for)?|excluding|other\s+than|but\s+not)|such\s+that"
    r"|where|with)?\s*(?:(?:when|that|at)\s+)?(?P<rest>\S.*)",
    re.IGNORECASE,
)  # fmt: skip
_ENDS = {
    "greater than": r"({},\infty)",
    "greater than or equal to": r"[{},\infty)",
    "at least": r"[{},\infty)",
    "less than": r"(-\infty,{})",
    "less than or equal to": r"(-\infty,{}]",
    "at most": r"(-\infty,{}]",
}
_COMPARED = re.compile(
    rf"(?:all\s+)?real(?:\s+numbers|s)\s+(?P<than>{'|'.join(_ENDS)})\s+(?P<end>-?(?:\d+(?:\.\d+)?|\\[a-z]+(?:\{{\d+\}})+))",
    re.IGNORECASE,
)
_NAMED_VALUE = re.compile(r"(?<![A-Za-z\\])[a-z]\s*=\s*")
_OTHER_WORD = re.compile(r"(?<![\\A-Za-z])(?!(?:and|or)\b)[A-Za-z]{2,}")
_RELATION = re.compile(r"(?:[<>=]|\\(?:n?[lg]eq?|neq?|le|ge)(?![a-z]))")
_SET = re.compile(r"(?:\\left)?\s*(?:\[|\(|\\\{)")


def formal(text: str) -> str:
    """The answer with its sets and conditions in words as formulas."""
    if len(text) > MAX_CHARS or not _KEY.search(text):
        return text
    plain = " ".join(_TEXT.sub(r" \1 ", text).split())
    return _reals(plain) or _with_domain(plain) or text


def _reals(plain: str) -> str:
    r"""``all reals except 1 and 2`` as a difference, ``all reals x \ne 2`` as its condition; else nothing."""
    if compared := _COMPARED.fullmatch(plain):
        return _ENDS[" ".join(compared["than"].lower().split())].format(compared["end"])
    found = _REALS.fullmatch(plain)
    if not found or _OTHER_WORD.search(found["rest"]):
        return ""
    rest = found["rest"]
    if not found["except"]:
        condition = f"{found['letter']} {rest}" if found["letter"] and _RELATION.match(rest) else rest
        return condition if re.match(rf"[a-z]\s*{_RELATION.pattern}", condition) else ""
    taken = _NAMED_VALUE.sub("", rest)
    if _RELATION.search(taken):
        return ""
    return rf"\mathbb{{R}}\setminus {taken}" if _SET.match(taken) else rf"\mathbb{{R}}\setminus\{{{taken}\}}"


def _with_domain(plain: str) -> str:
    r"""``k\pi where k is an integer`` as ``k\pi, k \in \mathbb{Z}``; nothing without such a condition at the end."""
    for pattern in (*_STATED, _MEMBERS, _ENDLESS):
        found = next((match for match in pattern.finditer(plain) if match.end() == len(plain)), None)
        if found and found.start():
            given = found.groupdict()
            domain = given.get("set") or _KINDS[given.get("kind") or "integer"]
            return rf"{plain[: found.start()]}, {found['letter']} \in \mathbb{{{domain}}}"
    return ""
