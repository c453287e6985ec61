"""Units and currencies around values: ``5 km/h``, ``Rs. 500``, ``3 million``, ``20%``."""

from magcli.verify.math.latex.expressions import is_parenthesis
from magcli.verify.math.latex.tokens import Cursor
from magcli.verify.math.latex.tree import Expr, ParseError, mul, num
from magcli.verify.math.latex.units import CURRENCY, CURRENCY_WORDS, join_percent, scaled, unit_name, unit_words


def currency_word(cursor: Cursor) -> str:
    """The currency of ``Rs. 500`` or ``USD 5`` if a number follows; else empty, and the cursor does not move."""
    has_dot = cursor.peek(1).value == "."
    if cursor.peek(2 if has_dot else 1).kind != "num":
        return ""
    currency = CURRENCY_WORDS[cursor.next().value.lower().rstrip(".")]
    if has_dot:
        cursor.at += 1
    return currency


def with_unit(value: Expr, words: list[str]) -> Expr:
    """The value with its unit; ``million`` multiplies, ``%`` and ``percent`` mark a percentage."""
    words = join_percent(words)
    while words:
        scale, rest = scaled(words[0])
        if scale <= 1:
            break
        # The word of a scale may go on with the unit, as in Chinese.
        words = [rest, *words[1:]] if rest else words[1:]
        # In $5 million the value already has the unit of its sign.
        has_unit = value.op == "unit"
        product = mul(value.args[0] if has_unit else value, num(scale))
        value = value._replace(args=(product,)) if has_unit else product
    if not words:
        return value
    name = unit_name(" ".join(unit_words(value, words)))
    if name == "percent":
        return Expr("percent", (value,))
    if not name:
        return value
    if value.op != "unit":
        return Expr("unit", (value,), name)
    # $5 dollars has one unit, $5 per hour a compound one.
    return value if value.name == name else value._replace(name=f"{value.name} {name}")


def trailing_words(cursor: Cursor) -> list[str]:
    """The words of a unit after a value, as ``km``, ``/``, ``h``, ``^2``."""
    words: list[str] = []
    while True:
        token = cursor.peek()
        # Signs of arithmetic belong to the unit only between its words.
        before_word = bool(words) and cursor.peek(1).kind in ("text", "word")
        if token.kind == "text":
            words.extend(token.value.split())
            cursor.at += 1
        elif token.kind == "word" and (len(token.value) > 1 or words):
            words.append(token.value)
            cursor.at += 1
        elif token.value == "%":
            words.append("percent")
            cursor.at += 1
        elif token.value in CURRENCY and not words:
            words.append(CURRENCY[token.value])
            cursor.at += 1
        elif token.value == "(" and is_parenthesis(cursor):
            cursor.at += 1
            words.extend(trailing_words(cursor))
            cursor.expect(")")
        elif words and token.value == "^":
            words.append("^" + _unit_power(cursor))
        elif before_word and token.value == "/":
            words.append("/")
            cursor.at += 1
        elif before_word and token.value in (r"\cdot", "."):
            cursor.at += 1
        elif before_word and token.value == "-":
            cursor.at += 1
            words[-1] += "-" + cursor.next().value
        else:
            return words


def _unit_power(cursor: Cursor) -> str:
    """The power of a unit, with or without braces: ``^2``, ``^{-1}``."""
    cursor.at += 1
    braced = bool(cursor.eat("{"))
    sign = cursor.eat("-")
    digit = cursor.next().value
    if not digit.isdigit():
        raise ParseError("unparsable")
    if braced:
        cursor.expect("}")
    return sign + digit
