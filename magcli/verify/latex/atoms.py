"""Reading what has no parts: numbers, letters with their indices, names of functions, arguments and exponents."""

from fractions import Fraction

from magcli.verify.latex.cursor import Cursor
from magcli.verify.latex.names import AMBIGUOUS
from magcli.verify.latex.tokens import Token, Unreadable
from magcli.verify.latex.tree import E, Expr, I, function, neg, num, power

MAX_DIGITS = 4_000
MAX_LETTERS = 8
_EVENTS = frozenset(("=", "<", ">", r"\le", r"\ge", r"\cap", r"\cup", "|", "mid", "and", "or"))
_UNKNOWN_FUNCTIONS = frozenset("fghFGH")
_CYCLE = (r"\overline", r"\dot", r"\bar")


def argument(cursor: Cursor) -> Expr:
    """The argument of a command: a group, one digit, one letter or another command."""
    token = cursor.peek()
    if token.kind == "num" and token.value.isdigit():
        cursor.at += 1
        return num(int(_first_digit(cursor, token)))
    if token.kind == "word":
        _split(cursor, token)
        return _letter(cursor)
    cursor.deeper()
    value = read_atom(cursor)
    cursor.depth -= 1
    return value


def exponent(cursor: Cursor) -> Expr:
    """What stands after ``^``: a group, or a signed number, letter or command, with its own power (``2^3^4``)."""
    cursor.deeper()
    sign = cursor.eat("-", "+")
    token = cursor.peek()
    if token.kind == "word" and len(token.value) > 1:
        _split(cursor, token)
    value = read_atom(cursor)
    while cursor.eat("!"):
        value = function("factorial", value)
    if cursor.eat("^"):
        value = power(value, exponent(cursor))
    cursor.depth -= 1
    return neg(value) if sign == "-" else value


def read_atom(cursor: Cursor) -> Expr:
    """A number, symbol, function, bracket or command."""
    token = cursor.peek()
    if token.kind == "num":
        return _number(cursor)
    if token.kind == "word":
        return _word(cursor, token)
    if token.value in ("(", "[", "{", r"\{", r"\langle"):
        return cursor.group(cursor)
    if token.kind == "cmd":
        return cursor.command(cursor)
    if token.value == "|":
        return cursor.command(cursor)
    if token.kind == "text":
        name = cursor.next().value
        return Expr("sym", name=f"{name}_{subscript(cursor)}" if cursor.eat("_") else name)
    raise Unreadable("unparsable")


def _number(cursor: Cursor) -> Expr:
    """A decimal with its repeating digits or its base."""
    text = cursor.next().value
    mantissa, _, shift = text.lower().partition("e")
    if len(mantissa) > MAX_DIGITS or abs(int(shift or 0)) > MAX_DIGITS:
        raise Unreadable("too-long")
    token = cursor.peek()
    if token.kind == "cmd" and token.value in _CYCLE and "." in text:
        return _repeating(cursor, text)
    if token.value == r"\ldots" and len(text) > 4 and "." in text[:-3] and len(set(text[-3:])) == 1:
        cursor.at += 1
        return num(Fraction(text) + Fraction(int(text[-1]), 9 * 10 ** len(text.partition(".")[2])))
    if token.value == "." and cursor.peek(1).value in _CYCLE:
        cursor.at += 1
        return _repeating(cursor, text + ".")
    if token.value == "_" and text.replace(".", "").isdigit():
        cursor.at += 1
        return Expr("base", name=f"{text}_{subscript(cursor)}")
    return num(Fraction(text))


def _repeating(cursor: Cursor, head: str) -> Expr:
    """``0.1\\overline{6}``, and ``0.\\dot{1}\\dot{6}``."""
    cycle = ""
    while cursor.peek().value in _CYCLE:
        braced = cursor.peek(1).value == "{"
        cycle += cursor.peek(1 + braced).value
        cursor.at += 2 + braced
        if braced:
            cursor.expect("}")
    whole, _, fixed = head.partition(".")
    if not cycle.isdigit() or len(cycle) > MAX_DIGITS:
        raise Unreadable("unparsable")
    scale = 10 ** len(fixed)
    return num(Fraction(int(whole + fixed or "0"), scale) + Fraction(int(cycle), scale * (10 ** len(cycle) - 1)))


def _first_digit(cursor: Cursor, token: Token) -> str:
    """The first digit of a number just taken; ``\\frac12`` leaves the second one for the next argument."""
    if len(token.value) > 1:
        cursor.at -= 1
        cursor.tokens[cursor.at] = Token("num", token.value[1:])
    return token.value[0]


def _split(cursor: Cursor, token: Token) -> None:
    """A run of letters as letters, for ``ab`` is a product."""
    if len(token.value) > MAX_LETTERS:
        raise Unreadable("words")
    cursor.tokens[cursor.at : cursor.at + 1] = [Token("word", letter) for letter in token.value]


def _word(cursor: Cursor, token: Token) -> Expr:
    """Letters: a function's name before its bracket, or the first factor of a product of letters."""
    if token.value in AMBIGUOUS and cursor.peek(1).value == "(":
        cursor.tokens[cursor.at] = Token("cmd", "\\" + token.value, token.spaced)
        return cursor.command(cursor)
    if len(token.value) > 1:
        _split(cursor, token)
    return _letter(cursor)


def _letter(cursor: Cursor) -> Expr:
    """A symbol with its index, a constant, or ``f(x)``, ``C(n,k)``, ``C_n^k``."""
    letter = cursor.next().value
    if letter in "CAP" and (chosen := _choose(cursor, letter)):
        return chosen
    if letter.isupper() and cursor.peek().value == "(" and letter not in _UNKNOWN_FUNCTIONS:
        if _is_pair(cursor):
            return cursor.group(cursor)
        if letter == "P" and (event := _event(cursor)):
            return Expr("sym", name=event)
    if cursor.peek().value == "_":
        cursor.at += 1
        return Expr("sym", name=f"{letter}_{subscript(cursor)}")
    if letter in _UNKNOWN_FUNCTIONS and (name := _called(cursor, letter)):
        inner = cursor.group(cursor)
        return Expr("f", inner.args if inner.op == "tuple" else (inner,), f"?{name}")
    constant = {"i": I, "e": E}.get(letter)
    return constant if constant and letter not in cursor.bound else Expr("sym", name=letter)


def _called(cursor: Cursor, letter: str) -> str:
    """The name of a function before its bracket, as ``f``, ``f'``, ``f^-1``; nothing where no bracket follows."""
    start = cursor.at
    while cursor.eat("'"):
        letter += "'"
    if [cursor.peek(i).value for i in range(5)] == ["^", "{", "-", "1", "}"]:
        cursor.at += 5
        letter += "^-1"
    if cursor.peek().value == "(":
        return letter
    cursor.at = start
    return ""


def _choose(cursor: Cursor, letter: str) -> Expr | None:
    """``C(5,2)``, ``C_5^2``, ``P(5,2)``, ``A_5^2``: numbers of combinations and arrangements."""
    name = "binom" if letter == "C" else "perm"
    start = cursor.at
    if letter != "A" and cursor.peek().value == "(" and _is_pair(cursor):
        return function(name, *cursor.group(cursor).args)
    if cursor.eat("_"):
        lower = subscript(cursor)
        if ((lower.isdigit() and len(lower) < 5) or lower == "n" == letter.lower().replace("c", "n")) and cursor.eat(
            "^"
        ):
            return function(name, num(int(lower)) if lower.isdigit() else Expr("sym", name=lower), exponent(cursor))
    cursor.at = start
    return None


def _event(cursor: Cursor) -> str:
    """``P(X=2)`` as one name, where what stands in the bracket is no number; nothing otherwise."""
    text = ""
    for ahead in range(20):
        token = cursor.peek(ahead)
        text += token.value
        if token.value == ")":
            if not _EVENTS.intersection(t.value for t in cursor.tokens[cursor.at : cursor.at + ahead]):
                return ""
            cursor.at += ahead + 1
            return f"P{text}"
    return ""


def _is_pair(cursor: Cursor) -> bool:
    """Whether the bracket that opens next holds one comma of its own."""
    depth = commas = 0
    for token in cursor.tokens[cursor.at : cursor.at + 60]:
        depth += (token.value in ("(", "[", "{")) - (token.value in (")", "]", "}"))
        commas += token.value == "," and depth == 1
        if depth == 0:
            break
    return commas == 1


def subscript(cursor: Cursor) -> str:
    """An index as text: ``_{12}``, ``_1``, ``_{n+1}``."""
    token = cursor.next()
    if token.value not in ("{", "("):
        return token.value
    closing = "}" if token.value == "{" else ")"
    parts: list[str] = []
    while (token := cursor.next()).value != closing:
        if token.kind == "end" or len(parts) > 20:
            raise Unreadable("unparsable")
        parts.append(token.value)
    return "".join(parts)
