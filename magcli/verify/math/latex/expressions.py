"""Parsing expressions by precedence: sums, products, powers, functions, brackets.

The grammar covers what answers contain; anything else is a ``ParseError``. The parser never backtracks, so its time is
linear in the tokens; nesting is bounded by the tokenizer and the cursor.
"""

from fractions import Fraction
from functools import reduce

from magcli.verify.math.latex.numerals import CYCLE_MARKS, MAX_DIGITS, continued, mixed_number, repeating
from magcli.verify.math.latex.tokens import AMBIGUOUS, DECORATIONS, FUNCTIONS, GREEK, Cursor, Reader, Token
from magcli.verify.math.latex.tree import (
    Expr,
    ParseError,
    add,
    div,
    function,
    letter_value,
    mul,
    neg,
    num,
    parts_of,
    power,
    sym,
)
from magcli.verify.math.latex.units import DOUBLE_PRIME, PRIME, SYMBOLS, TEMPERATURES, is_unit

MAX_FACTORS = 120
_CLOSERS = frozenset((r"\cup", r"\cap", r"\setminus", ",", ";", ")", r"\}", "and", "or", ""))
"""Tokens after ``[`` where it closes an interval: ``]0,1[ \\cup ]2,3[``."""
_OTHER_COMMANDS = "sum prod int lim frac cbrt pi infty binom lfloor lceil langle"
_FACTOR_COMMANDS = GREEK | FUNCTIONS | DECORATIONS | frozenset(_OTHER_COMMANDS.split())
"""Commands, without their backslash, that begin a factor."""
_SIGNS_IN_A_ROW = {"++": "+", "+-": "-", "-+": "-", "--": "+"}


def parse_sum(cursor: Cursor) -> Expr:
    """``a + b - c``; ``a \\pm b`` has a node for both signs."""
    cursor.deeper()
    terms: list[Expr] = []
    sign = cursor.eat("+", "-", r"\pm", r"\mp") or "+"
    while True:
        terms.append(_signed(sign, parse_product(cursor)))
        sign = cursor.eat("+", "-", r"\pm", r"\mp")
        if not sign:
            break
        # Signs in a row are multiplied, a - -b; after \pm the others are dropped.
        while other := cursor.eat("+", "-"):
            sign = _SIGNS_IN_A_ROW.get(sign + other, sign)
    cursor.depth -= 1
    return add(terms)


def _signed(sign: str, term: Expr) -> Expr:
    if sign == "-":
        return neg(term)
    return term if sign == "+" else Expr("pm", (term,), sign[1:])


def parse_product(cursor: Cursor) -> Expr:
    """Factors with or without operators, from left to right; a mixed number is one factor."""
    value = _measured_mixed_number(cursor) or parse_factor(cursor)
    for _ in range(MAX_FACTORS):
        if cursor.eat(r"\times", r"\cdot", "*"):
            value = mul(value, signed(cursor, parse_factor))
        elif cursor.eat("/", r"\div"):
            value = div(value, signed(cursor, parse_factor))
        elif cursor.eat(r"\mod"):
            value = function("mod", value, signed(cursor, parse_factor))
        elif starts_factor(cursor):
            value = mul(value, parse_factor(cursor))
        else:
            return value
    raise ParseError("too-long")


def signed(cursor: Cursor, parse: Reader) -> Expr:
    """What a parser reads, with a sign that may precede it."""
    sign = cursor.eat("-", "+")
    value = parse(cursor)
    return neg(value) if sign == "-" else value


def _measured_mixed_number(cursor: Cursor) -> Expr | None:
    """A mixed number; a lone letter after it is a unit, since nobody multiplies a mixed number: ``3 1/3 m``."""
    value = mixed_number(cursor)
    if value is None:
        return None
    letter = cursor.peek()
    if letter.kind == "word" and letter.value in SYMBOLS and cursor.peek(1).kind == "end":
        cursor.tokens[cursor.at] = letter._replace(kind="text")
    return value


def starts_factor(cursor: Cursor) -> bool:
    """Whether the next token can be an implicit factor."""
    token = cursor.peek()
    if token.kind == "cmd":
        return token.value[1:] in _FACTOR_COMMANDS or token.value.startswith((r"\begin", r"\mathbb"))
    if token.kind == "word":
        return not _is_word_or_unit(cursor, token)
    if token.kind == "num":
        # A number follows a bracket, as in (a+b)2; after a letter only as a base: x 2^n.
        before = cursor.tokens[cursor.at - 1]
        is_base = before.kind == "word" and token.spaced and cursor.peek(1).value == "^"
        return is_base or before.value in (")", "]", "}", "!")
    if token.kind != "op":
        return False
    if token.value == "(":
        return not is_parenthesis(cursor)
    opens_absolute_value = token.value == "|" and cursor.bars == 0
    return token.value == "{" or opens_absolute_value or _closes_square(cursor, token)


def is_parenthesis(cursor: Cursor) -> bool:
    """Whether the next bracket contains words: ``9 (apples)``."""
    first = cursor.peek(1)
    return first.kind in ("text", "word") and len(first.value) > 2 and cursor.peek(2).value == ")"


def _closes_square(cursor: Cursor, token: Token) -> bool:
    """Whether the next ``[`` has a closing bracket, unlike in ``[a,b[``."""
    if token.value != "[" or cursor.peek(1).value in _CLOSERS:
        return False
    depth = 0
    for other in cursor.tokens[cursor.at :]:
        depth += (other.value in ("(", "[")) - (other.value in (")", "]"))
        if depth == 0:
            return True
    return False


_PREPOSITIONS = frozenset(("en", "au", "al", "de", "di", "im", "in", "of", "du"))


def _is_word_or_unit(cursor: Cursor, token: Token) -> bool:
    """Whether bare letters after a value are words or a unit, not factors."""
    word, after = token.value, cursor.peek(1)
    if word in ("if", "for", "when", "where", "with", "mod", "choose", "base", "mid"):
        return True
    if len(word) == 1:
        # 3x10^5, where x is a sign of multiplication
        return word == "x" and after.value == "10" and cursor.peek(2).value == "^"
    if token.spaced and word in _PREPOSITIONS and after.kind in ("word", "text"):
        return len(after.value) > 2
    is_beside_number = cursor.tokens[cursor.at - 1].kind == "num"
    if is_unit(word) and (token.spaced or is_beside_number):
        return True
    # Longer runs of letters are no products: abc may be one, but not abcde.
    is_long = len(word) > 4
    return is_long or (len(word) > 2 and token.spaced)


def parse_factor(cursor: Cursor) -> Expr:
    """An atom with its powers, factorials, primes and degree signs."""
    value = parse_atom(cursor)
    while True:
        if cursor.eat("!"):
            value = function("factorial", value)
        elif cursor.peek().value == "^":
            cursor.at += 1
            value = _powered(cursor, value)
        elif cursor.eat(r"\circ"):
            value = Expr("unit", (value,), _temperature_scale(cursor, value))
        elif cursor.eat("'"):
            value = _with_prime(value)
        elif value.op == "sym" and cursor.tokens[cursor.at - 1].value == "}" and cursor.eat("_"):
            value = value._replace(name=f"{value.name}_{subscript(cursor)}")
        elif _has_prime_alone(value) and cursor.eat("_"):
            # The index goes first, as in x_1'.
            letter, prime, more = value.name.partition("'")
            value = value._replace(name=f"{letter}_{subscript(cursor)}{prime}{more}")
        else:
            return value


def _has_prime_alone(value: Expr) -> bool:
    """Whether an expression is a letter with primes and without an index."""
    return value.op == "sym" and value.name.endswith("'") and "_" not in value.name


def _powered(cursor: Cursor, value: Expr) -> Expr:
    """A value with what follows ``^``: an exponent, a degree sign, a prime, a star or the charge of an ion."""
    if _is_degree(cursor):
        return Expr("unit", (value,), _temperature_scale(cursor, value))
    if cursor.comes_next("{", r"\prime", "}"):
        # x^{\prime} without its braces
        del cursor.tokens[cursor.at + 2], cursor.tokens[cursor.at]
    if cursor.eat(r"\prime"):
        return _with_prime(value)
    # x^* is another letter.
    if cursor.eat("*"):
        if value.op != "sym":
            raise ParseError("unparsable")
        return sym(value.name + "*")
    if charge := _charge(cursor):
        return _charged(value, charge)
    raised = exponent(cursor)
    if value.op == "sym" and cursor.eat("_"):
        value = value._replace(name=f"{value.name}_{subscript(cursor)}")
    return power(value, raised)


def _charge(cursor: Cursor) -> str:
    """The charge of an ion after ``^``, as ``2-`` or ``+``; empty for an exponent."""
    braced = cursor.peek().value == "{"
    start = 1 if braced else 0
    first = cursor.peek(start)
    digits = first.value if first.kind == "num" and first.value.isdigit() else ""
    # Without braces 2 is an exponent: x^2-1.
    if digits and not braced:
        return ""
    size = start + (1 if digits else 0)
    sign, after = cursor.peek(size).value, cursor.peek(size + 1)
    # What may follow an ion: nothing, or the rest of a reaction or group.
    ends_bare = after.kind == "end" or after.value in ("+", r"\to", ")", "}")
    ends = after.value == "}" if braced else ends_bare
    if sign not in ("+", "-") or not ends:
        return ""
    cursor.at += size + 1 + start
    return (digits or "1") + sign


def _charged(value: Expr, charge: str) -> Expr:
    """An ion; an element of two letters (``\\text{Fe}``) as a product of letters like a bare one."""
    mark = sym(charge)
    if value.op != "sym" or len(value.name) == 1 or not value.name.isalpha():
        return power(value, mark)
    *letters, last = map(letter_value, value.name)
    return reduce(mul, [*letters, power(last, mark)])


def _temperature_scale(cursor: Cursor, value: Expr) -> str:
    """The scale after a degree sign; ``degree`` without one."""
    token = cursor.peek()
    if value.op != "num" or token.kind not in ("word", "text"):
        return "degree"
    scale = TEMPERATURES.get(token.value.lower())
    if scale is None or cursor.peek(1).value in ("(", "=", "_", "^"):
        return "degree"
    cursor.at += 1
    return scale


def _with_prime(value: Expr) -> Expr:
    """``x'`` is another letter; a number's primes are minutes and seconds, or feet and inches."""
    if value.op == "sym":
        return value._replace(name=value.name + "'")
    if value.op == "unit" and value.name == PRIME:
        return value._replace(name=DOUBLE_PRIME)
    if value.op != "num":
        raise ParseError("unparsable")
    return Expr("unit", (value,), PRIME)


def _is_degree(cursor: Cursor) -> bool:
    r"""Consume ``\circ`` or ``{\circ}``; whether it came next."""
    for sign in ((r"\circ",), ("{", r"\circ", "}")):
        if cursor.comes_next(*sign):
            cursor.at += len(sign)
            return True
    return False


MAX_LETTERS = 8
"""Longer runs of letters are words."""
MAX_PAIR, MAX_EVENT, MAX_INDEX = 60, 20, 20
"""Tokens of a bracket with a pair or an event, and of an index."""
_EVENT_SIGNS = frozenset(("=", "<", ">", r"\le", r"\ge", r"\cap", r"\cup", "|", "mid", "and", "or"))
_UNKNOWN_FUNCTIONS = frozenset("fghFGH")


def argument(cursor: Cursor) -> Expr:
    """The argument of a command: a group, one digit, one letter or another command."""
    token = cursor.peek()
    if token.kind == "num" and token.value.isdigit():
        cursor.at += 1
        return num(int(_first_character(cursor, token)))
    if token.kind == "word":
        _split_letters(cursor, token)
        return _letter(cursor)
    cursor.deeper()
    value = parse_atom(cursor)
    cursor.depth -= 1
    return value


def exponent(cursor: Cursor) -> Expr:
    """The exponent after ``^``: a group, or a signed number, letter or command with its own power (``2^3^4``)."""
    cursor.deeper()
    value = signed(cursor, _raised)
    cursor.depth -= 1
    return value


def _raised(cursor: Cursor) -> Expr:
    """An exponent without its sign, with its factorials and its own power."""
    token = cursor.peek()
    # x^ab is x^a b.
    if token.kind == "word" and len(token.value) > 1:
        _split_letters(cursor, token)
    value = parse_atom(cursor)
    while cursor.eat("!"):
        value = function("factorial", value)
    return power(value, exponent(cursor)) if cursor.eat("^") else value


def parse_atom(cursor: Cursor) -> Expr:
    """A number, symbol, function, bracket or command."""
    token = cursor.peek()
    if token.kind == "num":
        return _number(cursor)
    if token.kind == "word":
        return _word(cursor, token)
    if token.value in ("(", "[", "{", r"\{", r"\langle"):
        return cursor.group(cursor)
    if token.kind == "cmd" or token.value == "|":
        return cursor.command(cursor)
    if token.kind != "text":
        raise ParseError("unparsable")
    # Upright letters with an index, as in SO_4, are single symbols.
    are_letters = len(token.value) < 4 and token.value.isupper() and token.value.isascii()
    if are_letters and cursor.peek(1).value == "_":
        return _word(cursor, token)
    name = cursor.next().value
    return sym(f"{name}_{subscript(cursor)}" if cursor.eat("_") else name)


def _number(cursor: Cursor) -> Expr:
    """A decimal with its repeating digits or its base."""
    text = cursor.next().value
    mantissa, _, shift = text.lower().partition("e")
    if len(mantissa) > MAX_DIGITS or abs(int(shift or 0)) > MAX_DIGITS:
        raise ParseError("too-long")
    token = cursor.peek()
    is_decimal = "." in text
    # 0.\overline{3}
    if is_decimal and token.kind == "cmd" and token.value in CYCLE_MARKS:
        return repeating(cursor, text)
    # 0.333\ldots
    if is_decimal and token.value == r"\ldots" and (endless := continued(text)):
        cursor.at += 1
        return endless
    # In 3.\overline{6} the point is a token of its own.
    if token.value == "." and cursor.peek(1).value in CYCLE_MARKS:
        cursor.at += 1
        return repeating(cursor, text + ".")
    # 1011_2
    if token.value == "_" and text.replace(".", "").isdigit():
        cursor.at += 1
        return Expr("base", name=f"{text}_{subscript(cursor)}")
    return num(Fraction(text))


def _first_character(cursor: Cursor, token: Token) -> str:
    """The first character of the token just read; the others are left, as ``\\frac12`` has two arguments."""
    if len(token.value) > 1:
        cursor.at -= 1
        cursor.tokens[cursor.at] = Token(token.kind, token.value[1:])
    return token.value[0]


def _split_letters(cursor: Cursor, token: Token) -> None:
    """Split a run of letters, as ``ab`` is a product."""
    if len(token.value) > MAX_LETTERS:
        raise ParseError("words")
    cursor.tokens[cursor.at : cursor.at + 1] = [Token("word", letter) for letter in token.value]


def _word(cursor: Cursor, token: Token) -> Expr:
    """Letters: a function before its bracket, or the first factor of a product."""
    if token.value in AMBIGUOUS and cursor.peek(1).value == "(":
        cursor.tokens[cursor.at] = Token("cmd", "\\" + token.value, token.spaced)
        return cursor.command(cursor)
    if len(token.value) > 1:
        _split_letters(cursor, token)
    return _letter(cursor)


def _letter(cursor: Cursor) -> Expr:
    """A symbol with its index, a constant, or ``f(x)``, ``C(n,k)``, ``C_n^k``."""
    letter = cursor.next().value
    if letter in "CAP" and (chosen := _combinations(cursor, letter)):
        return chosen
    if letter.isupper() and cursor.peek().value == "(" and letter not in _UNKNOWN_FUNCTIONS:
        if _holds_pair(cursor):
            return cursor.group(cursor)
        if letter == "P" and (event := _event_name(cursor)):
            return sym(event)
    if cursor.peek().value == "_":
        cursor.at += 1
        return sym(f"{letter}_{subscript(cursor)}")
    if letter in _UNKNOWN_FUNCTIONS and (name := _function_name(cursor, letter)):
        return Expr("f", parts_of(cursor.group(cursor), "tuple"), f"?{name}")
    # As the index of a sum, e and i are no constants.
    return sym(letter) if letter in cursor.bound else letter_value(letter)


def _function_name(cursor: Cursor, letter: str) -> str:
    """A function's name before its bracket, as ``f``, ``f'``, ``f^-1``; empty if no bracket follows."""
    start = cursor.at
    while cursor.eat("'"):
        letter += "'"
    if cursor.comes_next("^", "{", "-", "1", "}"):
        cursor.at += 5
        letter += "^-1"
    if cursor.comes_next("("):
        return letter
    # Without a bracket the marks are those of a symbol.
    cursor.at = start
    return ""


def _combinations(cursor: Cursor, letter: str) -> Expr | None:
    """``C(5,2)``, ``C_5^2``, ``P(5,2)``, ``A_5^2``: numbers of combinations and permutations."""
    name = "binom" if letter == "C" else "perm"
    start = cursor.at
    if letter != "A" and cursor.peek().value == "(" and _holds_pair(cursor):
        return function(name, *cursor.group(cursor).args)
    if cursor.eat("_"):
        lower = subscript(cursor)
        total: Expr | None = None
        if lower.isdigit() and len(lower) < 5:
            total = num(int(lower))
        elif lower == "n" and letter == "C":
            total = sym(lower)
        if total is not None and cursor.eat("^"):
            return function(name, total, exponent(cursor))
    cursor.at = start
    return None


def _event_name(cursor: Cursor) -> str:
    """``P(X=2)`` as one name if the bracket contains an event; else empty."""
    tokens = [token.value for token in cursor.tokens[cursor.at : cursor.at + MAX_EVENT]]
    if ")" not in tokens:
        return ""
    event = tokens[: tokens.index(")") + 1]
    # P(A) is a function of A.
    if _EVENT_SIGNS.isdisjoint(event):
        return ""
    cursor.at += len(event)
    return "P" + "".join(event)


def _holds_pair(cursor: Cursor) -> bool:
    """Whether the next bracket contains exactly one comma at its own level."""
    depth = commas = 0
    # A window, as many brackets may follow each other.
    for token in cursor.tokens[cursor.at : cursor.at + MAX_PAIR]:
        depth += (token.value in ("(", "[", "{")) - (token.value in (")", "]", "}"))
        commas += token.value == "," and depth == 1
        if depth == 0:
            break
    return commas == 1


def _first_letter(cursor: Cursor, token: Token) -> str:
    """The index of ``k_BT``: its first letter as in LaTeX, unless the letters are a word (``v_max``)."""
    letters = token.value
    is_word = len(letters) > 2 and not letters.isupper()
    if is_word or len(letters) > MAX_LETTERS:
        return letters
    return _first_character(cursor, token)


def subscript(cursor: Cursor) -> str:
    """An index as text: ``_{12}``, ``_1``, ``_{n+1}``."""
    token = cursor.next()
    if token.value not in ("{", "("):
        return _first_letter(cursor, token) if token.kind == "word" else token.value
    closing = "}" if token.value == "{" else ")"
    parts: list[str] = []
    while (token := cursor.next()).value != closing:
        if token.kind == "end" or len(parts) > MAX_INDEX:
            raise ParseError("unparsable")
        parts.append(token.value)
    return "".join(parts)
