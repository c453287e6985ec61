"""Reading an expression from tokens by precedence: sums, products, powers, functions, brackets.

The reader knows what answers hold, no more: whatever else comes is ``Unreadable``. It never looks back, so its time
is linear in the number of tokens; nesting is bounded by the tokenizer and by ``MAX_DEPTH`` here.
"""

from fractions import Fraction

from magcli.verify.latex.atoms import exponent, read_atom, subscript
from magcli.verify.latex.cursor import Cursor
from magcli.verify.latex.names import DECORATIONS, FUNCTIONS, GREEK
from magcli.verify.latex.tokens import Token, Unreadable
from magcli.verify.latex.tree import Expr, add, div, function, mul, neg, num, power
from magcli.verify.latex.units import DOUBLE_PRIME, PRIME, TEMPERATURES, is_unit

MAX_FACTORS = 120
_CLOSERS = frozenset((r"\cup", r"\cap", r"\setminus", ",", ";", ")", r"\}", "and", "or", ""))
"""What stands behind ``[`` only where it closes an interval: ``]0,1[ \\cup ]2,3[``."""
_BIG = frozenset((r"\sum", r"\prod", r"\int", r"\lim"))


def read_sum(cursor: Cursor) -> Expr:
    """``a + b - c``; ``a \\pm b`` keeps both signs open as a node."""
    cursor.deeper()
    terms: list[Expr] = []
    sign = cursor.eat("+", "-", r"\pm", r"\mp") or "+"
    while True:
        terms.append(_signed(sign, read_product(cursor)))
        sign = cursor.eat("+", "-", r"\pm", r"\mp")
        if not sign:
            break
        while cursor.peek().value in ("+", "-") and cursor.peek().kind == "op":
            sign = {"++": "+", "+-": "-", "-+": "-", "--": "+"}.get(sign + cursor.next().value, sign)
    cursor.depth -= 1
    return add(terms)


def _signed(sign: str, term: Expr) -> Expr:
    if sign == "-":
        return neg(term)
    return term if sign == "+" else Expr("pm", (term,), sign[1:])


def read_product(cursor: Cursor) -> Expr:
    """Factors, with or without a sign between them, from left to right; a mixed number is one factor."""
    value = _mixed(cursor) or read_factor(cursor)
    for _ in range(MAX_FACTORS):
        if cursor.eat(r"\times", r"\cdot", "*"):
            value = mul(value, _signed_factor(cursor))
        elif cursor.eat("/", r"\div"):
            value = div(value, _signed_factor(cursor))
        elif cursor.eat(r"\mod"):
            value = function("mod", value, _signed_factor(cursor))
        elif starts_factor(cursor):
            value = mul(value, read_factor(cursor))
        else:
            return value
    raise Unreadable("too-long")


def _signed_factor(cursor: Cursor) -> Expr:
    sign = cursor.eat("-", "+")
    value = read_factor(cursor)
    return neg(value) if sign == "-" else value


def _mixed(cursor: Cursor) -> Expr | None:
    """``1\\frac{1}{2}`` and ``1 1/2``: plain digits and a proper fraction of plain digits."""
    whole = cursor.peek()
    if whole.kind != "num" or not whole.value.isdigit() or len(whole.value) > 9:
        return None
    top, bottom, size = _proper(cursor)
    if not (top.isdigit() and bottom.isdigit()) or len(top + bottom) > 20 or not 0 < int(top) < int(bottom):
        return None
    if cursor.peek(1 + size).value in ("^", "!", r"\circ"):
        return None
    cursor.at += 1 + size
    return num(int(whole.value) + Fraction(int(top), int(bottom)))


def _proper(cursor: Cursor) -> tuple[str, str, int]:
    """Top, bottom and number of tokens of the plain fraction after the next token; empty where there is none."""
    first = cursor.peek(1)
    ahead = [cursor.peek(i).value for i in range(2, 8)]
    if first.kind == "num" and first.spaced and ahead[0] == "/":
        return first.value, ahead[1], 3
    if first.value != r"\frac":
        return "", "", 0
    if ahead[0] == "{" and ahead[2:4] == ["}", "{"] and ahead[5] == "}":
        return ahead[1], ahead[4], 7
    if ahead[0].isdigit() and len(ahead[0]) == 2:
        return ahead[0][0], ahead[0][1], 2
    if ahead[0].isdigit() and len(ahead[0]) == 1 and ahead[1] == "{" and ahead[3] == "}":
        return ahead[0], ahead[2], 5
    return (ahead[0], ahead[1][:1], 3) if len(ahead[0]) == len(ahead[1]) == 1 else ("", "", 0)


def starts_factor(cursor: Cursor) -> bool:
    """Whether the next token may be multiplied with what stands before it without a sign."""
    token = cursor.peek()
    if token.kind == "cmd":
        name = token.value[1:]
        return (
            name in GREEK or name in FUNCTIONS or name in DECORATIONS or token.value in _BIG
            or name in ("frac", "sqrt", "cbrt", "pi", "infty", "binom", "lfloor", "lceil", "hat")
            or token.value.startswith((r"\begin", r"\mathbb"))
        )  # fmt: skip
    if token.kind == "word":
        return not _is_tail(cursor, token)
    if token.kind == "num":
        before = cursor.tokens[cursor.at - 1]
        raised = before.kind == "word" and token.spaced and cursor.peek(1).value == "^"
        return raised or before.value in (")", "]", "}", "!")
    if token.kind == "op":
        if token.value == "(":
            return not aside(cursor)
        return token.value == "{" or (token.value == "|" and cursor.bars == 0) or _opens_square(cursor, token)
    return False


def aside(cursor: Cursor) -> bool:
    """Whether words stand in the bracket that opens next: ``9 (apples)``."""
    first = cursor.peek(1)
    return first.kind in ("text", "word") and len(first.value) > 2 and cursor.peek(2).value == ")"


def _opens_square(cursor: Cursor, token: Token) -> bool:
    """Whether ``[`` opens a bracket that closes: in ``[a,b[`` it does not."""
    if token.value != "[" or cursor.peek(1).value in _CLOSERS:
        return False
    depth = 0
    for other in cursor.tokens[cursor.at :]:
        depth += (other.value in ("(", "[")) - (other.value in (")", "]"))
        if depth == 0:
            return True
    return False


def _is_tail(cursor: Cursor, token: Token) -> bool:
    """Whether bare letters after a value are words or a unit, not factors."""
    if token.value in ("if", "for", "when", "where", "with", "mod", "choose", "base", "mid"):
        return True
    if len(token.value) == 1:
        return token.value == "x" and cursor.peek(1).value in ("10",) and cursor.peek(2).value == "^"
    if is_unit(token.value) and (token.spaced or cursor.tokens[cursor.at - 1].kind == "num"):
        return True
    return len(token.value) > 2 and (token.spaced or len(token.value) > 4)


def read_factor(cursor: Cursor) -> Expr:
    """An atom with its powers, factorials, primes and degree signs."""
    value = read_atom(cursor)
    while True:
        if cursor.eat("!"):
            value = function("factorial", value)
        elif cursor.peek().value == "^":
            cursor.at += 1
            value = _raised(cursor, value)
        elif cursor.eat(r"\circ"):
            value = Expr("unit", (value,), _scale(cursor, value))
        elif cursor.eat("'"):
            value = _primed(value)
        else:
            return value


def _raised(cursor: Cursor, value: Expr) -> Expr:
    if _is_degree(cursor):
        return Expr("unit", (value,), _scale(cursor, value))
    if [cursor.peek(i).value for i in range(3)] == ["{", r"\prime", "}"]:
        del cursor.tokens[cursor.at + 2], cursor.tokens[cursor.at]
    if cursor.eat(r"\prime"):
        return _primed(value)
    if cursor.peek().value in ("*", r"\ast"):
        cursor.at += 1
        if value.op != "sym":
            raise Unreadable("unparsable")
        return value._replace(name=value.name + "*")
    raised = exponent(cursor)
    if value.op == "sym" and cursor.eat("_"):
        value = value._replace(name=f"{value.name}_{subscript(cursor)}")
    return power(value, raised)


def _scale(cursor: Cursor, value: Expr) -> str:
    """The scale of temperature behind a degree sign; without one it is a degree of any kind."""
    token = cursor.peek()
    scale = TEMPERATURES.get(token.value.lower()) if token.kind in ("word", "text") and value.op == "num" else None
    if scale is None or cursor.peek(1).value in ("(", "=", "_", "^"):
        return "degree"
    cursor.at += 1
    return scale


def _primed(value: Expr) -> Expr:
    """``x'`` is another letter; a number's primes are minutes and seconds, or feet and inches."""
    if value.op == "sym":
        return value._replace(name=value.name + "'")
    if value.op == "unit" and value.name == PRIME:
        return value._replace(name=DOUBLE_PRIME)
    if value.op != "num":
        raise Unreadable("unparsable")
    return Expr("unit", (value,), PRIME)


def _is_degree(cursor: Cursor) -> bool:
    for sign in ([r"\circ"], ["{", r"\circ", "}"]):
        if [cursor.peek(i).value for i in range(len(sign))] == sign:
            cursor.at += len(sign)
            return True
    return False
