"""Reading a whole answer: lists, sets, tuples, intervals, relations, units, choices, words.

``read`` never raises: what is no answer in this grammar is a ``raw`` node with its text and the reason, and equals only
the same text.
"""

import re
from fractions import Fraction
from functools import lru_cache

from magcli.verify.latex.clean import clean, words_of
from magcli.verify.latex.commands import read_command
from magcli.verify.latex.expressions import Cursor, aside, read_factor, read_sum, starts_factor
from magcli.verify.latex.names import NOT_UNITS
from magcli.verify.latex.tokens import Token, Unreadable, tokenize
from magcli.verify.latex.tree import Expr, div, function, mul, num
from magcli.verify.latex.units import CURRENCY, CURRENCY_WORDS, SCALES, unit_name

MAX_PARTS = 1_000
MAX_SPECIAL = 300
"""Longer texts are no time, number in a base or choice."""
RELATIONS = (
    "=",
    "<",
    ">",
    r"\le",
    r"\ge",
    r"\ne",
    r"\approx",
    r"\equiv",
    r"\in",
    r"\sim",
    r"\to",
    r"\mapsto",
    r"\notin",
)
_SEPARATORS = (",", ";", "and", "or")
_CONDITION_WORDS = frozenset(("if", "for", "when", "where"))
_DIGITS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_BASES = {word: str(n) for n, word in enumerate(_DIGITS, 2)} | {
    "binary": "2",
    "octal": "8",
    "hexadecimal": "16",
    "sixteen": "16",
}
_BASE = re.compile(r"\(?((?=[A-Z]*[0-9])[0-9A-Z]{1,200})\)?\s*(?:_|\(?base ?)[{(]*(\d+|[a-z]+)[)}]*")
_TIME = re.compile(r"(\d{1,2}:\d{2}(?::\d{2})?)\s*([ap])\.?\s?m\.?", re.IGNORECASE)
_CHOICE = re.compile(
    r"(?:(?:[Oo]ption|[Cc]hoice) )?\(([A-Za-z])\)|(?:(?:[Oo]ption|[Cc]hoice) )?([A-Z])[.):]?|\s*([A-Z])\)"
)
_CHOICE_VALUE = re.compile(r"(?:\(([A-Z])\)|([A-Z])[.):])\s*(\S.*)", re.DOTALL)
_TEXT = re.compile(r"\\(?:text|textbf|mathrm|mathbf|textrm|textit|mbox|rm|bf|operatorname)\s*\{([^{}]*)\}")
_GROUPED = re.compile(r"[+-]?\d{1,3}(?:,\d{3})+(\.\d+)?|[+-]?\d{1,3}(?: \d{3})+([.,]\d+)?")
_EUROPEAN = re.compile(r"([+-]?\d{1,3}(?:[. ]\d{3})+),(\d+)|([+-]?\d{1,3}(?:\.\d{3}){2,})")
_WHOLE = [Expr("set-name", name=rf"\mathbb{letter}") for letter in "ZN"]
_NAMED = {
    **dict.fromkeys(("no solution", "no solutions", "no real solution", "no real solutions"), Expr("set")),
    **dict.fromkeys(("empty set", "null set"), Expr("set")),
    **dict.fromkeys(("all real numbers", "all reals", "reals", "real numbers"), Expr("set-name", name=r"\mathbbR")),
    **dict.fromkeys(("undefined", "does not exist", "dne"), Expr("text", name="does not exist")),
    **{word: num(n) for n, word in enumerate(("zero", "one", *_DIGITS))},
}  # fmt: skip


@lru_cache(maxsize=4096)
def read(text: str) -> Expr:
    """The answer that a text holds."""
    try:
        bare = clean(text)
        return _special(bare) or _whole(tokenize(bare), bare)
    except Unreadable as why:
        return Expr("raw", (Expr("text", name=str(why)),), name=clean(text))
    except (ArithmeticError, ValueError, RecursionError, IndexError):
        return Expr("raw", (Expr("text", name="unparsable"),), name=clean(text))


@lru_cache(maxsize=1024)
def read_as_list(text: str) -> Expr:
    """The answer with every comma a separator: ``100,200,300`` as three numbers."""
    return read(re.sub(r",\s*", " , ", clean(text)))


def _special(text: str) -> Expr | None:
    """Forms that are no arithmetic: grouped digits, times, numbers in a base, choices."""
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
    if (base := _BASE.fullmatch(plain)) and (base[2].isdigit() or base[2] in _BASES):
        return Expr("base", name=f"{base[1]}_{_BASES.get(base[2], base[2])}")
    return _choice(plain)


def _fraction(text: str) -> Fraction:
    if len(text) > 1000:
        raise Unreadable("too-long")
    return Fraction(text)


def _choice(plain: str) -> Expr | None:
    """``(C)``, ``C.`` and ``(C) 12``: a letter, with or without the value that it stands for."""
    plain = plain.strip()
    if match := _CHOICE.fullmatch(plain):
        return Expr("choice", name=match[1] or match[2] or match[3])
    if match := _CHOICE_VALUE.fullmatch(plain):
        value = read(match[3])
        return None if value.op == "raw" and "\\" in match[3] else Expr("choice", (value,), match[1] or match[2])
    return None


def _whole(tokens: tuple[Token, ...], text: str) -> Expr:
    if not tokens:
        raise Unreadable("empty")
    if (words := words_of(tokens)) is not None:
        return _words(words)
    cursor = Cursor(tokens, read_group, read_command, _cell)
    value = read_list(cursor)
    if cursor.at < len(cursor.tokens):
        raise Unreadable("unparsable")
    return value


def _words(words: str) -> Expr:
    """Words alone; a list of them where commas, ``and`` or ``or`` part them."""
    if words in _NAMED:
        return _NAMED[words]
    parts = [part.strip() for part in re.split(r",|;|\band\b|\bor\b", words)]
    parts = [part for part in parts if part]
    if len(parts) > 1:
        return Expr("list", tuple(Expr("text", name=part) for part in parts))
    return Expr("text", name=words)


def read_list(cursor: Cursor) -> Expr:
    """Parts with ``,``, ``;``, ``and`` or ``or`` between them; where both signs occur, ``;`` parts groups."""
    groups: list[list[Expr]] = [[]]
    strong = False
    while True:
        while sign := cursor.eat(*_SEPARATORS):
            if sign == ";" and groups[-1]:
                groups.append([])
                strong = True
        if not _begins(cursor):
            break
        groups[-1].append(read_part(cursor))
        if sum(map(len, groups)) > MAX_PARTS:
            raise Unreadable("too-long")
        if cursor.peek().value not in _SEPARATORS:
            break
    groups = [_unconditional(group) for group in groups if group]
    if strong and any(len(group) > 1 for group in groups):
        return Expr("list", tuple(_list(group) for group in groups))
    return _list([part for group in groups for part in group])


def _unconditional(parts: list[Expr]) -> list[Expr]:
    """``\\pi k, k \\in \\mathbb{Z}`` without its condition."""
    counted = [p for p in parts if p.op == "rel" and p.name == r"\in" and p.args[1] in _WHOLE and p.args[0].op == "sym"]
    if len(counted) != 1 or len(parts) == 1:
        return parts
    return [part for part in parts if part is not counted[0]]


def _list(parts: list[Expr]) -> Expr:
    if not parts:
        raise Unreadable("empty")
    return parts[0] if len(parts) == 1 else Expr("list", tuple(parts))


def _begins(cursor: Cursor) -> bool:
    token = cursor.peek()
    if token.kind == "end" or (token.value == "|" and cursor.bars):
        return False
    return token.value not in (")", "}", r"\}", r"\rangle", "mid", "&", r"\\")


def read_part(cursor: Cursor) -> Expr:
    """One part of a list: a side, or sides with relations between them."""
    cursor.deeper()
    sides, signs = [_side(cursor)], []
    while sign := cursor.eat(*RELATIONS):
        while sign == "=" and cursor.eat("="):
            pass
        signs.append(sign)
        sides.append(_side(cursor))
        if len(sides) > 50:
            raise Unreadable("too-long")
    cursor.depth -= 1
    return _relation(sides, signs) if signs else sides[0]


def _relation(sides: list[Expr], signs: list[str]) -> Expr:
    """A relation; an approximation after the exact value is dropped, a chain of ``=`` ends with its last value."""
    if r"\approx" in signs and (len(signs) > 1 or sides[0].op not in ("sym", "f")):
        cut = signs.index(r"\approx")
        sides, signs = sides[: cut + 1], signs[:cut]
    if not signs:
        return sides[0]
    signs = ["=" if sign in (r"\approx", r"\equiv") else sign for sign in signs]
    if len(signs) > 1 and set(signs) == {"="}:
        if all(side.op == "sym" for side in sides[:-1]):
            return Expr("list", tuple(Expr("rel", (side, sides[-1]), "=") for side in sides[:-1]))
        sides, signs = [sides[0], sides[-1]], ["="]
    return Expr("rel", tuple(sides), " ".join(signs))


def _side(cursor: Cursor) -> Expr:
    """A union, difference or ratio of sums, with its unit."""
    value = _operand(cursor)
    if sign := cursor.eat(r"\over", r"\choose"):
        value = div(value, read_sum(cursor)) if sign == r"\over" else function("binom", value, read_sum(cursor))
    while sign := cursor.eat(r"\cup", r"\cap", r"\setminus", ":"):
        if sign == ":" and value.op == "ratio":
            value = Expr("ratio", (*value.args, _operand(cursor)))
        else:
            value = Expr("ratio" if sign == ":" else sign, (value, _operand(cursor)))
    return value


def _operand(cursor: Cursor) -> Expr:
    currency = ""
    sign = "-" if cursor.peek().value == "-" and cursor.peek(1).value in CURRENCY else ""
    if cursor.peek(len(sign)).value in CURRENCY:
        cursor.at += len(sign)
        currency = CURRENCY[cursor.next().value]
    if cursor.peek().value == "]":
        return _reversed_interval(cursor)
    if cursor.peek().kind == "text" and cursor.peek().value.lower().rstrip(".") in CURRENCY_WORDS:
        currency = CURRENCY_WORDS[cursor.next().value.lower().rstrip(".")]
    if cursor.peek().kind == "text":
        value = Expr("text", name=cursor.next().value.lower())
        return mul(value, read_sum(cursor)) if starts_factor(cursor) and cursor.peek().value != "(" else value
    value = read_sum(cursor)
    value = mul(num(-1), value) if sign else value
    if cursor.eat(r"\pmod"):
        return Expr("residue", (value, read_factor(cursor)))
    unit = _tail(cursor)
    value = Expr("unit", (value,), currency) if currency else value
    return _with_unit(value, unit)


def _with_unit(value: Expr, words: list[str]) -> Expr:
    """The value in the unit that stands behind it; ``million`` multiplies, ``%`` and ``percent`` mark a percentage."""
    while words and words[0].lower() in SCALES:
        scale = num(SCALES[words.pop(0).lower()])
        value = value._replace(args=(mul(value.args[0], scale),)) if value.op == "unit" else mul(value, scale)
    if not words:
        return value
    name = unit_name(" ".join(words))
    if name == "percent":
        return Expr("percent", (value,))
    if NOT_UNITS.intersection(name.split()):
        raise Unreadable("words")
    if value.op == "unit":
        return value if not name or value.name == name else value._replace(name=f"{value.name} {name}")
    return Expr("unit", (value,), name) if name else value


def _tail(cursor: Cursor) -> list[str]:
    """The words of a unit behind a value, as ``km``, ``/``, ``h``, ``^2``."""
    words: list[str] = []
    while True:
        token = cursor.peek()
        if token.kind == "text":
            words.extend(token.value.split())
            cursor.at += 1
        elif token.kind == "word" and (len(token.value) > 1 or words):
            words.append(token.value)
            cursor.at += 1
        elif token.value == "%" or (token.value in CURRENCY and not words):
            words.append("percent" if token.value == "%" else CURRENCY[token.value])
            cursor.at += 1
        elif token.value == "(" and aside(cursor):
            cursor.at += 1
            words.extend(_tail(cursor))
            cursor.expect(")")
        elif words and token.value == "^":
            words.append("^" + _unit_power(cursor))
        elif words and token.value in ("/", r"\cdot", ".", "-") and cursor.peek(1).kind in ("text", "word"):
            words.extend(["/"] if token.value == "/" else [])
            cursor.at += 1
        else:
            return words


def _unit_power(cursor: Cursor) -> str:
    cursor.at += 1
    braced = bool(cursor.eat("{"))
    sign = cursor.eat("-")
    digit = cursor.next().value
    if not digit.isdigit():
        raise Unreadable("unparsable")
    if braced:
        cursor.expect("}")
    return sign + digit


def read_group(cursor: Cursor) -> Expr:
    """A bracket: one expression in it is that expression, several are a tuple, interval or set."""
    opening = cursor.next().value
    cursor.deeper()
    bars, cursor.bars = cursor.bars, 0
    value = _set(cursor) if opening == r"\{" else _bracketed(cursor, opening)
    cursor.bars = bars
    cursor.depth -= 1
    return value


def _bracketed(cursor: Cursor, opening: str) -> Expr:
    inner = read_list(cursor)
    closing = cursor.next()
    wanted = {"(": ")]", "[": ")][", "{": "}", r"\langle": (r"\rangle",)}[opening]
    if closing.value not in wanted or not closing.value:
        raise Unreadable("unparsable")
    if inner.op != "list":
        return inner
    if opening == "{":
        return inner
    shut = {"[": ")", r"\rangle": ")"}.get(closing.value, closing.value)
    return Expr("tuple", inner.args, ("(" if opening == r"\langle" else opening) + shut)


def _reversed_interval(cursor: Cursor) -> Expr:
    """``]a,b[``, the open interval as the French write it."""
    cursor.at += 1
    inner = read_list(cursor)
    closing = cursor.next().value
    if closing not in ("[", "]") or inner.op != "list":
        raise Unreadable("unparsable")
    return Expr("tuple", inner.args, "(" + (")" if closing == "[" else "]"))


def _set(cursor: Cursor) -> Expr:
    r"""``\{1,2\}``, or ``\{x \mid ..\}`` with its conditions."""
    if cursor.eat(r"\}"):
        return Expr("set")
    if at := _builder_bar(cursor):
        cursor.tokens[at] = Token("op", "mid")
        cursor.bars = 1
        head = read_part(cursor)
        cursor.bars = 0
        cursor.expect("mid")
        conditions = read_list(cursor)
        cursor.expect(r"\}")
        return Expr("builder", (head, *(conditions.args if conditions.op == "list" else (conditions,))))
    inner = read_list(cursor)
    cursor.expect(r"\}")
    return Expr("set", inner.args if inner.op == "list" else (inner,))


def _builder_bar(cursor: Cursor) -> int:
    """Where the bar of a set builder stands; 0 without one."""
    for at in range(cursor.at + 1, min(cursor.at + 12, len(cursor.tokens))):
        value = cursor.tokens[at].value
        if value in ("mid", "|", ":"):
            return at
        if value in ("=", "<", ">", r"\}"):
            return 0
    return 0


def _cell(cursor: Cursor) -> Expr:
    """A cell of a table; of a condition the words ``if``, ``for`` are left out."""
    words: list[str] = []
    while cursor.peek().kind in ("text", "word") and cursor.peek().value.strip(" ,").lower() in _CONDITION_WORDS:
        cursor.at += 1
    while cursor.peek().kind == "text" or cursor.peek().value in ("otherwise", "else"):
        words.append(cursor.next().value.lower())
    if words:
        return Expr("text", name=" ".join(words))
    value = read_part(cursor)
    while cursor.eat(",", "."):
        pass
    return value
