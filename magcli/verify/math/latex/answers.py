"""Parsing a whole answer: lists, sets, tuples, intervals, relations, units, choices, words.

``parse_answer`` never raises: what the grammar cannot parse is a ``raw`` node with its text and the reason, and equals
only the same text.
"""

import re
from fractions import Fraction
from functools import lru_cache

from magcli.verify.math.latex.commands import parse_command
from magcli.verify.math.latex.dates import parse_date
from magcli.verify.math.latex.parts import parse_cell, parse_group, parse_list
from magcli.verify.math.latex.tokens import FUNCTIONS, Cursor, Token, ascii_math, tokenize
from magcli.verify.math.latex.tree import INFINITY, ZERO, Expr, ParseError, neg, num
from magcli.verify.math.latex.units import NUMBERS, SYMBOLS, parse_compound
from magcli.verify.math.latex.wording import is_letters, states_value

_GROUPING = re.compile(r"(?<=\d)(?:\{,\}\s?|,?\\!\s?|,\s?\\!\s?|\\[,;: ]|~)(?=\d{3}(?!\d))")
_DECIMAL_COMMA = re.compile(r"(?<=\d)\{,\}(?=\d)")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_DOUBLE_BACKSLASH = re.compile(r"\\\\(?=[A-Za-z,;!{}%])")
_TIMES_X = re.compile(r"(?<=\d)\s*x\s*(?=10\s*\^)")
_SET_NAME = re.compile(r"\\mathbb\s*([A-Z])(?![A-Za-z])")
_PREFIX = re.compile(
    r"^(?P<text>\\text\s*\{)?\s*(?:the\s+)?(?:final\s+)?answer\s*(?:is|:|=)[\s:]*(?(text)\})\s*(?=\S)", re.IGNORECASE
)
_IS_THE_ANSWER = re.compile(r"\s*(?:\\text\s*\{)?\s+is\s+the\s+(?:final\s+|correct\s+)?answer\.?\s*\}?$")
_QUAD = re.compile(r"\\q?quad")
_CHOOSE = re.compile(r"(?<![\w}])(?:\{\})?[_^]\s*\{?(\d+|[nm])\}?\s*(?:C|\\mathrm\{C\})_\s*\{?(\d+|[rk])\}?")
_UPRIGHT = re.compile(r"\\(?:mathrm|text|textrm)\s*\{\s*([A-Za-z]+)(?![A-Za-z])(?:[^{}]|\^\{-?\d\})*\}")
_EMPTY_GROUP = re.compile(r"(?<![\\\w}])\{\}(?=\s*\^)")
"""The base of an index before a letter: ``{}^\\circ C``."""
_SIZED_BRACE = re.compile(r"\\(left|right)\s*(?=[{}])")
_SIZED_DIGITS = re.compile(r"\\left\s*\(\s*([0-9A-F]+)\s*\\right\s*\)(?=\s*\}?\s*_)")
_BRACED_STEM = re.compile(r"(?<![^{(\[<>=+\-*/,|$])\{\s*([A-Za-z]|\([0-9A-F]+\))\s*\}(?=\s*_)")
_CYCLE = re.compile(r"(?<![\w.])(0?\.\d*)\((\d+)\)")
_WRAPPER = re.compile(
    r"\\(?:text(?:bf|it|rm|normal|sf|tt)?|math(?:rm|bf|it|sf|tt)|boldsymbol|bm|f?box(?:ed)?|ensuremath|mbox)\s*\{"
)
_RAISED_SIGN = re.compile(r"\^\s*\{\s*(\\circ|\\prime)\s*\}")
MAX_PASSES = 10
_ARTICLES = frozenset(("a", "an", "the"))
_PUNCTUATION = frozenset((",", ";", ".", "'", "-", "!", "?", "and", "or", ":", '"', "`"))
_US_DOLLAR = re.compile(r"\bUS\\?\$")
_MICRO = re.compile(
    r"(?<=[\d\s},;:~])(?:\\(?:text|mathrm)\s*\{\s*\\?mu\s*|\\mu\s*(?:\\(?:text|mathrm)\s*\{)?\s*)([mgsAVWJNFCLTH]|Pa|mol)(?![A-Za-z])\}?"
)
r"""The prefix of a unit after a number: ``5\,\mu\text{F}``, ``\mathrm{\mu F}``."""
_MODULUS = re.compile(
    r"(?:\s|\\[,;:! ]|\\q?quad)*\(?\s*(?:\\[bp]?mod|\\(?:text|mathrm|operatorname)\s*\{\s*mod\s*\}|\bmod\b)\s*\{?\s*"
    r"(\d+|[a-z])\s*\}?\s*\)?"
)
_PARALLEL = re.compile(r"(?<![A-Za-z])(?<=[A-Z])\s*\\\|\s*(?=[A-Z])|(?<=[A-Z][A-Z])\s*(?:\\\||\|\|)\s*(?=[A-Z]{2})")
_DIVIDES = re.compile(r"^\s*(\d+|[a-z])\s*\|\s*(\d*[a-z](?:\^\{?\d\}?)?(?:[+-]\d+)?|\([^|()]*\)|\d+)\s*$")
_DOLLAR = re.compile(r"(?<!\\)\$+")


@lru_cache(maxsize=8192)
def normalize(text: str) -> str:
    """The answer without box, ``$``, bold and a final dot around it; grouped digits are one number."""
    text = ascii_math(_unmark(text.strip())).strip()
    for _ in range(MAX_PASSES):
        bare = _unify_spelling(_unwrap(_unmark(text)))
        if bare == text:
            break
        text = bare
    return text


def _unify_spelling(text: str) -> str:
    """One spelling of grouped digits, decimal commas, repeating decimals, combinations, sets and indices."""
    if "\\" in text:
        text = _SET_NAME.sub(r"\\mathbb{\1}", text)
    if "$" in text:
        text = _US_DOLLAR.sub(r"\\$", text)
    if "mu" in text or "micro" in text:
        text = _MICRO.sub(r"\\text{ micro\1}", text)
    if "equiv" in text and "mod" in text:
        text = _MODULUS.sub(r"\\pmod{\1}", text)
    if "|" in text or "mid" in text:
        text = _PARALLEL.sub(r"\\parallel ", text)
        text = _DIVIDES.sub(r"\1\\mid \2", text)
    if "\\\\" in text and r"\begin" not in text:
        text = _DOUBLE_BACKSLASH.sub(r"\\", text)
    if "\\left" in text:
        text = _SIZED_DIGITS.sub(r"(\1)", _SIZED_BRACE.sub(r"\\\1\\", text))
    if "_" in text and "}" in text:
        text = _BRACED_STEM.sub(r"\1", text)
    if "\\" in text or "~" in text or "{,}" in text:
        text = _DECIMAL_COMMA.sub(".", _GROUPING.sub("", text))
    if "{:}" in text:
        text = text.replace("{:}", ":")
    if "quad" in text and text.count("=") > 1 and r"\begin" not in text:
        text = _QUAD.sub(",", text)
    if "C" in text and "_" in text:
        text = _CHOOSE.sub(r"\\binom{\1}{\2}", text)
    if "^{" in text and "\\" in text:
        text = _UPRIGHT.sub(_bare_powers, text)
    if "{}" in text:
        text = _EMPTY_GROUP.sub("", text)
    if "(" in text and "." in text:
        text = _CYCLE.sub(r"\1\\overline{\2}", text)
    if "," in text and "(" not in text and "[" not in text and "\\{" not in text:
        text = _join_digits(text)
    return _TIMES_X.sub(r"\\times ", text) if "x" in text else text


def _bare_powers(match: re.Match[str]) -> str:
    """An upright unit without braces around its powers, so that it is one text token."""
    return match[0].replace("^{", "^").replace("}", "") + "}" if match[1] in SYMBOLS else match[0]


def _join_digits(text: str) -> str:
    """Join grouped digits as in ``x=1,250`` if there is no other comma, and more than the number."""
    bare = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), text)
    return text if "," in bare or bare.isdigit() else bare


_MARKS = re.compile(
    r"(?:\s|\\[ ,;:!]|\\q?quad|\$)*(?:[✓✔✅☑🎉■□∎◼◻▪\ufe0f]|\\(?:checkmark|blacksquare|square|Box|qed|blacktriangle|bigstar)"
    r"(?![A-Za-z]))+(\$?)\s*$"
)
"""Marks after an answer that say that it is done or checked."""
_QUOTES = {
    '"': '"',
    "“": "”",
    "”": "”",
    "„": "“",
    "«": "»",
    "»": "«",
    "‘": "’",
    "`": "`",
    "「": "」",
    "『": "』",
    "‹": "›",
}


def _unmark(text: str) -> str:
    """Without marks at the end and quotes around the whole."""
    if not text.isascii() or "\\" in text:
        text = _MARKS.sub(r"\1", text) or text
    closing = _QUOTES.get(text[:1])
    if closing and len(text) > 2 and text.endswith((closing, "”")) and not set(text[1:-1]) & {text[0], closing}:
        return text[1:-1].strip()
    return text


def _unwrap(text: str) -> str:
    text = text.removesuffix(r"\text{.}")
    if text.endswith((".", ",", ";", "。", ":")) and not text.endswith(("..", r"\.", "\\,", "\\;", "\\:")):
        text = text[:-1].rstrip()
    while text.endswith("\\") and not text.endswith("\\\\"):
        text = text[:-1].rstrip()
    if "nswer" in text:
        text = _IS_THE_ANSWER.sub("", _PREFIX.sub("", text))
    text = text.removeprefix(r"\approx").removeprefix("=").strip() if text[:1] in "\\=" else text
    if text.startswith("**") and text.endswith("**") and len(text) > 4:
        return text[2:-2].strip()
    if "$" in text or text.startswith(("\\(", "\\[")):
        text = _strip_delimiters(text)
    if (
        text.startswith("\\")
        and text.endswith("}")
        and (match := _WRAPPER.match(text))
        and _closes_last(text, match.end())
    ):
        return text[match.end() : -1].strip()
    if text.startswith("{") and text.endswith("}") and _closes_last(text, 1):
        return text[1:-1].strip()
    return text


def _strip_delimiters(text: str) -> str:
    """Without delimiters of formulas; a lone ``$`` before a number is money."""
    if text.startswith(("\\(", "\\[")) and text.endswith(("\\)", "\\]")):
        return text[2:-2].strip()
    marks = _DOLLAR.findall(text)
    if len(marks) % 2 == 0 and marks:
        return _DOLLAR.sub(" ", text).strip()
    return text


def _closes_last(text: str, start: int) -> bool:
    """Whether the brace opened just before ``start`` closes with the last character."""
    depth = 1
    for match in re.finditer(r"\\.|[{}]", text[start:], re.DOTALL):
        depth += (match[0] == "{") - (match[0] == "}")
        if depth == 0:
            return start + match.end() == len(text)
    return False


def squeeze(text: str) -> str:
    """Letters and signs without fonts and spaces, to compare what cannot be parsed."""
    text = re.sub(r"\\(?:left|right|displaystyle|[,;:! ]|q?quad)(?![A-Za-z])", "", normalize(text))
    text = re.sub(r"\\(?:text|textbf|textit|mathrm|mathbf|textrm|operatorname|mbox)\s*\{([^{}]*)\}", r"\1", text)
    text = text.replace(r"\dfrac", r"\frac").replace(r"\tfrac", r"\frac")
    text = _RAISED_SIGN.sub(r"^\1", text).replace(r"^\prime", "'") if "^" in text else text
    text = re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", text)
    return text if text.endswith("..") else text.removesuffix(".")


def only_words(tokens: tuple[Token, ...]) -> str | None:
    """The words of an answer that is only words, in lower case without articles; None for anything else."""
    real = False
    if tokens[0].value == "-":
        return None
    for token in tokens:
        foreign = token.kind == "text" and not token.value.isascii()
        if token.kind not in ("word", "text") and (token.kind != "op" or token.value not in _PUNCTUATION):
            return None
        real = real or foreign or (token.kind != "op" and len(token.value) > 1)
    if not real or (len(tokens) == 1 and tokens[0].value in FUNCTIONS):
        return None
    return tidy(" ".join(token.value for token in tokens))


def tidy(words: str) -> str:
    """Lower case except for runs of capital letters, one space between words, without articles and a final dot."""
    spaced = re.sub(r"\s+([,;.!?'-])\s*", r"\1 ", words).split()
    kept = [w if w.isupper() and is_letters(w) else w.lower() for w in spaced if w.lower() not in _ARTICLES]
    return " ".join(kept).strip(" .,;:!?\"'`")


MAX_PHRASE = 300
"""Longer texts are not searched for sets in words."""
_DOMAINS = {
    "positive integer": "N", "constant": "R",
    "real constant": "R",
    "rational number": "Q",
    "complex number": "C",
    "integer": "Z",
    "whole number": "Z",
    "natural number": "N",
    "real number": "R",
}
_KEY = re.compile(r"integer|number|real|constant|multiple|divisible|\\mathbb|\\in(?![a-z])|\\pm")
_SENTENCE = re.compile(r"\s*(?:\\(?:text|mathrm|textrm|mbox)\s*\{|[^\W\d_]{2}|\$?[A-Za-z]\$?\s(?=[A-Za-z]{2}))")
_STATEMENT = re.compile(
    r"(?P<lead>[^\W\d_](?:[^\W\d_]|[\s,.:;'’$-])*?(?:[^\W\d_]|[:.,])\s*)\$?(?P<value>(?:(?<![\w-])|(?<=[\u3400-\u9fff]))(?:[-+]?(?:\d|\.\d|\\(?!text)[A-Za-z{(]|[$£€¥(\[])"
    r"|[A-Za-z]\s*=|(?<=[\u3400-\u9fff])\d).*)"
)
_MULTIPLE = re.compile(
    r"(?:\$?(?P<letter>[A-Za-z])\$?\s+(?:(?:is|must be)\s+)?)?(?:(?:an?|all|any|every)\s+)?(?:integers?\s+)?"
    r"(?:multiples?\s+of|divisible\s+by)\s+\$?(?P<modulus>\d+)\$?"
)
_TEXT_COMMAND = re.compile(r"\\(?:text|mathrm|textrm|mbox)\s*\{([^{}]*)\}")
_LETTER = r"(?<![A-Za-z\\])\$?(?P<letter>[a-zA-Z]|\\(?:lambda|mu|alpha|beta|tau))\$?"
_KIND = (
    r"(?P<kind>positive integer|integer|whole number|natural number|real number|real constant|constant|rational number|complex number)s?"
)
_GAP = r"(?:\s|,|;|\\[,;:! ]|\\q?quad)*\(?\s*"
_ANY = r"(?:(?:an?|any|all|every|each|some)?\s*arbitrary|an?|any|all|every|each|some)"
_STATED = (
    re.compile(rf"{_GAP}(?:(?:where|for|with|and|when)\s+)?{_LETTER}\s+(?:(?:is|are|be)\s+{_ANY}?|{_ANY})\s*{_KIND}\s*\)?"),
    re.compile(rf"{_GAP}(?:where|for|with)\s+{_ANY}?\s*{_KIND}\s+{_LETTER}\s*\)?"),
)  # fmt: skip
_MEMBERS = re.compile(
    rf"(?:\s|,|;|\\[,;:! ]|\\q?quad|\(|\\forall|\b(?:where|for|with|all|any|every|when)\b)+{_LETTER}\s*\\in\s*"
    r"(?:\\math(?:bb|bf)\s*\{?)?(?P<set>[ZNRQC])\}?\s*\)?"
)
_ENUMERATED = re.compile(
    rf"{_GAP}{_LETTER}\s*=\s*0\s*,\s*\\pm\s*1\s*(?:,\s*\\pm\s*\d\s*){{0,4}},\s*(?:\\[lc]?dots|\.\.\.)\s*\)?"
)
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
_COMPARED = re.compile(
    rf"(?:all\s+)?real(?:\s+numbers|s)\s+(?P<than>{'|'.join(_ENDS)})\s+(?P<end>-?(?:\d+(?:\.\d+)?|\\[a-z]+(?:\{{\d+\}})+))",
    re.IGNORECASE,
)
_NAMED_VALUE = re.compile(r"(?<![A-Za-z\\])[a-z]\s*=\s*")
_OTHER_WORD = re.compile(r"(?<![\\A-Za-z])(?!(?:and|or)\b)[A-Za-z]{2,}")
_RELATION = re.compile(r"(?:[<>=]|\\(?:n?[lg]eq?|neq?|le|ge)(?![a-z]))")
_SET = re.compile(r"(?:\\left)?\s*(?:\[|\(|\\\{)")


def formalize(text: str) -> str:
    """The answer with sets and conditions in words as formulas."""
    if len(text) > MAX_PHRASE:
        return text
    key, sentence = _KEY.search(text), _SENTENCE.match(text)
    if not key and not sentence:
        return text
    plain = " ".join(_TEXT_COMMAND.sub(r" \1 ", text).split())
    found = (_reals_in_words(plain) or _with_domain(plain) or _multiples(plain)) if key else ""
    return found or (_stated_value(plain) if sentence else "") or text


def _stated_value(plain: str) -> str:
    """The value that a sentence states: ``the number of triples is 42``; empty for anything else."""
    found = _STATEMENT.fullmatch(plain)
    if found is None or not states_value(found["lead"].replace("$", " ")):
        return ""
    return normalize(found["value"])


def _multiples(plain: str) -> str:
    r"""``n is a multiple of 4`` as ``n \equiv 0 \pmod 4``; empty for anything else."""
    found = _MULTIPLE.fullmatch(plain)
    return rf"{found['letter'] or 'n'}\equiv 0\pmod{{{found['modulus']}}}" if found else ""


def _reals_in_words(plain: str) -> str:
    r"""``all reals except 1 and 2`` as a difference, ``all reals x \ne 2`` as its condition; else empty."""
    if compared := _COMPARED.fullmatch(plain):
        return _ENDS[" ".join(compared["than"].lower().split())].format(compared["end"])
    found = _REALS_PHRASE.fullmatch(plain)
    if not found or _OTHER_WORD.search(found["rest"]):
        return ""
    rest = found["rest"]
    if not found["except"]:
        condition = f"{found['letter']} {rest}" if found["letter"] and _RELATION.match(rest) else rest
        return condition if re.match(rf"[a-z]\s*{_RELATION.pattern}", condition) else ""
    excluded = _NAMED_VALUE.sub("", rest)
    if _RELATION.search(excluded):
        return ""
    return rf"\mathbb{{R}}\setminus {excluded}" if _SET.match(excluded) else rf"\mathbb{{R}}\setminus\{{{excluded}\}}"


def _with_domain(plain: str) -> str:
    r"""``k\pi where k is an integer`` as ``k\pi, k \in \mathbb{Z}``; empty without such a condition at the end."""
    for pattern in (*_STATED, _MEMBERS, _ENUMERATED):
        found = next((match for match in pattern.finditer(plain) if match.end() == len(plain)), None)
        if found and found.start():
            given = found.groupdict()
            domain = given.get("set") or _DOMAINS[given.get("kind") or "integer"]
            return rf"{plain[: found.start()]}, {found['letter']} \in \mathbb{{{domain}}}"
    return ""


MAX_SPECIAL = 300
"""Longer texts are not a time, number in a base or choice."""
_BASES = {word: str(n) for word, n in NUMBERS.items()} | {"binary": "2", "octal": "8", "decimal": "10",
                                                            "hexadecimal": "16", "hex": "16"}  # fmt: skip
_BASE = re.compile(r"\(?((?=[A-Z]*[0-9])[0-9A-Z]{1,200})\)?\s*(?:_|\(?(?:in )?base ?)[{(]*(?:base ?)?(\d+|[a-z]+)[)}]*")
_BASE_WORD = re.compile(
    r"\(?((?=[A-Z]*[0-9])[0-9A-Z]{1,200})\)?\s*\(?(?:in )?(binary|octal|decimal|hexadecimal|hex)"
    r"(?: (?:notation|form|system))?\)?"
)
_ARC = re.compile(r"(\d+)\s*\^\{?\s*\\circ\s*\}?\s*(\d+(?:\.\d+)?)\s*'\s*(?:(\d+(?:\.\d+)?)\s*'')?")
_WORDED_RATIO = re.compile(r"(\d+(?:\.\d+)?)((?:\s+to\s+\d+(?:\.\d+)?)+)")
_TIME = re.compile(r"(\d{1,2}:\d{2}(?::\d{2})?)\s*([ap])\.?\s?m\.?", re.IGNORECASE)
_CHOICE = re.compile(
    r"(?:(?:[Oo]ption|[Cc]hoice) )?\(([A-Za-z])\)|(?:(?:[Oo]ption|[Cc]hoice) )?([A-Z])[.):]?|\s*([A-Z])\)"
)
_CHOICE_VALUE = re.compile(r"(?:\(([A-Z])\)|([A-Z])[.):])\s*([^\s,;].*)", re.DOTALL)
_SPACE = re.compile(r"\\(?:q?quad(?![A-Za-z])|[,;:! ])")
_OTHER_CHOICE = re.compile(
    r"""(?<![\w)\]}]) (?: \([A-J]\) | (?<!\()[A-J](?: \)(?![\w=]) | :(?!\s*[A-Z=]) | \.(?=\s) ) )
    | \b (?:and|or|not|nor|vs\.?) \s+ [A-J]\b
    | ^ \W* [A-J] \W* $
    | ^ \s* (?: [/&] | \\(?:lor|vee|land|wedge) | (?:and|or)\b )""",
    re.VERBOSE,
)
"""A second label after the first one."""
_VERDICT_ON_CHOICE = re.compile(
    r"""(?: (?:is|are|was|were) (?! \s+ (?:the\s+)? (?:correct|right|true|answer|best) )
    | isn'?t | aren'?t | cannot | can'?t | can | has | have | had | should | must | may | might | could | would | will
    | does | doesn'?t | excluded | eliminated | (?:not|wrong|incorrect)$ ) (?! [A-Za-z] )""",
    re.VERBOSE,
)
"""A statement about a label, not the text of the choice."""
_TEXT = re.compile(r"\\(?:text|textbf|mathrm|mathbf|textrm|textit|mbox|rm|bf|operatorname)\s*\{([^{}]*)\}")
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(\.\d+)?|[+-]?\d{1,3}(?: \d{3})+([.,]\d+)?")
_EUROPEAN = re.compile(r"([+-]?\d{1,3}(?:[. ]\d{3})+),(\d+)|([+-]?\d{1,3}(?:\.\d{3}){2,})")
_REALS = Expr("set-name", name=r"\mathbbR")
_NONZERO = Expr(r"\setminus", (_REALS, Expr("set", (ZERO,))))
_HALF_LINES = {
    **dict.fromkeys(("nonzero", "non-zero"), _NONZERO),
    "positive": Expr("tuple", (ZERO, INFINITY), "()"),
    "negative": Expr("tuple", (neg(INFINITY), ZERO), "()"),
    **dict.fromkeys(("nonnegative", "non-negative"), Expr("tuple", (ZERO, INFINITY), "[)")),
}
_NAMED = {
    **dict.fromkeys(("no solution", "no solutions", "no real solution", "no real solutions"), Expr("set")),
    **dict.fromkeys(("empty set", "null set"), Expr("set")),
    **{
        f"{every}{kind} {reals}": region
        for every in ("", "all ")
        for reals in ("real numbers", "reals")
        for kind, region in _HALF_LINES.items()
    },
    **dict.fromkeys(("all real numbers", "all reals", "reals", "real numbers"), Expr("set-name", name=r"\mathbbR")),
    **dict.fromkeys(("undefined", "does not exist", "dne"), Expr("text", name="does not exist")),
    **{word: num(n) for word, n in NUMBERS.items()},
}  # fmt: skip


@lru_cache(maxsize=4096)
def parse_answer(text: str) -> Expr:
    """The parse tree of an answer."""
    try:
        bare = formalize(normalize(text))
        return _special(bare) or _parse_tokens(tokenize(bare))
    except ParseError as why:
        return Expr("raw", (Expr("text", name=str(why)),), name=normalize(text))
    except (ArithmeticError, ValueError, RecursionError, IndexError):
        return Expr("raw", (Expr("text", name="unparsable"),), name=normalize(text))


@lru_cache(maxsize=1024)
def parse_as_list(text: str) -> Expr:
    """The answer with every comma as a separator: ``100,200,300`` as three numbers."""
    return parse_answer(re.sub(r",\s*", " , ", normalize(text)))


@lru_cache(maxsize=1024)
def parse_as_points(text: str) -> Expr:
    """The answer with ``C(5,2)`` and ``P(5,2)`` as points."""
    try:
        return _parse_tokens(tokenize(normalize(text)), points=True)
    except (ParseError, ArithmeticError, ValueError, RecursionError, IndexError):
        return parse_answer(text)


def ratio_in_words(text: str) -> Expr | None:
    """The ratio ``2 to 5``; None for anything else."""
    bare = normalize(text)
    found = _WORDED_RATIO.fullmatch(" ".join(_TEXT.sub(r" \1 ", bare).split())) if len(bare) <= MAX_SPECIAL else None
    if found is None:
        return None
    return Expr("ratio", tuple(num(Fraction(part)) for part in (found[1], *found[2].split()[1::2])))


def _special(text: str) -> Expr | None:
    """Formats without arithmetic: grouped digits, times, numbers in a base, choices."""
    if _GROUPED.fullmatch(text):
        return num(_fraction(text.replace(" ", "").replace(",", "")))
    if european := _EUROPEAN.fullmatch(text):
        whole, part = re.sub("[. ]", "", european[1] or european[3]), european[2] or "0"
        return num(_fraction(f"{whole}.{part}"))
    if len(text) > MAX_SPECIAL:
        return None
    plain = _TEXT.sub(r"\1", text) if "\\" in text else text
    if time := _TIME.fullmatch(plain.strip().rstrip(".") if plain.count(".") == 1 else plain.strip()):
        return Expr("text", name=f"{time[1]} {time[2].lower()}m")
    if date := parse_date(plain):
        return Expr("text", name=date)
    if measure := parse_compound(plain):
        return Expr("unit", (num(measure[0]),), measure[1])
    if (base := _BASE.fullmatch(plain) or _BASE_WORD.fullmatch(plain)) and (base[2].isdigit() or base[2] in _BASES):
        return Expr("base", name=f"{base[1]}_{_BASES.get(base[2], base[2])}")
    if arc := _ARC.fullmatch(plain):
        return Expr("base", name=f"{':'.join(part or '0' for part in arc.groups())}_sexagesimal")
    return _choice(plain)


def _fraction(text: str) -> Fraction:
    if len(text) > 1000:
        raise ParseError("too-long")
    return Fraction(text)


def _choice(plain: str) -> Expr | None:
    """``(C)``, ``C.`` and ``(C) 12``: a letter, with or without its value."""
    plain = plain.strip()
    if match := _CHOICE.fullmatch(plain):
        return Expr("choice", name=match[1] or match[2] or match[3])
    match = _CHOICE_VALUE.fullmatch(_SPACE.sub(" ", plain) if "\\" in plain else plain)
    if match and not _OTHER_CHOICE.search(match[3]) and not _VERDICT_ON_CHOICE.match(match[3]):
        value = parse_answer(match[3])
        return None if value.op == "raw" and "\\" in match[3] else Expr("choice", (value,), match[1] or match[2])
    return None


def _parse_tokens(tokens: tuple[Token, ...], *, points: bool = False) -> Expr:
    if not tokens:
        raise ParseError("empty")
    if (words := only_words(tokens)) is not None:
        return _word_answer(words)
    cursor = Cursor(tokens, parse_group, parse_command, parse_cell)
    cursor.points = points
    value = parse_list(cursor)
    if cursor.at < len(cursor.tokens):
        raise ParseError("unparsable")
    return value


def _word_answer(words: str) -> Expr:
    """Words, or a list of them separated by commas, ``and`` or ``or``."""
    if words.lower() in _NAMED:
        return _NAMED[words.lower()]
    parts = [part.strip() for part in re.split(r",|;|\band\b|\bor\b", words)]
    parts = [part for part in parts if part]
    if len(parts) > 1:
        alternatives = "or" if re.search(r"\bor\b", words) else ""
        return Expr("list", tuple(Expr("text", name=part) for part in parts), alternatives)
    return Expr("text", name=words)
