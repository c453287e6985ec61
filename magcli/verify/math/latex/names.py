r"""Left sides of equations that name a quantity without being its formula: ``\operatorname{tr}(A)``, ``m(t)``."""

from magcli.verify.math.latex.tokens import GREEK, NEGATIONS, Cursor, Token
from magcli.verify.math.latex.tree import Expr, ParseError, sym
from magcli.verify.math.latex.wording import states_value

MAX_NAME, MAX_LABEL = 40, 6
_OPERATORS = frozenset((r"\mathbbE", r"\mathbbP", "#", r"\Pr", r"\dim", r"\deg", r"\ker"))
_ARITHMETIC_SIGNS = r"+ - * / \times \cdot \pm , ; and or \land \lor \oplus \iff < > \le \ge \ne \approx \in \to : & \\"
_NOT_IN_NAMES = frozenset(_ARITHMETIC_SIGNS.split())
_ALWAYS_FUNCTIONS = frozenset("fgh")
OPENING = frozenset(("(", "[", "{", r"\{"))
CLOSING = frozenset((")", "]", "}", r"\}"))


def named_quantity(cursor: Cursor) -> Expr | None:
    r"""A left side that names a quantity without arithmetic: ``\operatorname{tr}(A)``, ``\mathbb{E}[X]``, ``\#S``,
    ``|A\cup B|``; None for anything else.
    """
    first = cursor.peek()
    if first.kind != "text" and first.value not in ("|", r"\sum") and first.value not in _OPERATORS:
        return None
    size = _before_equals(cursor)
    if not size:
        return None
    of_words = first.kind == "text" and first.value[0].isalpha() and size > 1
    signs = {cursor.peek(at).value for at in range(size)}
    of_set = first.value == "|" and not signs.isdisjoint((r"\cup", r"\cap"))
    of_bare_sum = first.value == r"\sum" and cursor.peek(1).value != "_"
    if not (of_words or of_set or of_bare_sum or first.value in _OPERATORS):
        return None
    tokens = [cursor.next() for _ in range(size)]
    for token in tokens:
        # "not the mean" names nothing.
        if token.kind == "text" and not NEGATIONS.isdisjoint(token.value.lower().split()):
            raise ParseError("words")
    name = " ".join(token.value for token in tokens)
    if all(token.kind in ("text", "word") for token in tokens):
        return Expr("text", name=name.lower())
    return sym(name)


def label(cursor: Cursor) -> Expr | None:
    r"""Words and a colon before a value, ``\text{remainder: } 2``, ``quotient : 14``; None for anything else.

    The cursor moves behind the colon.
    """
    size = 0
    while _is_label_word(cursor.peek(size)):
        size += 1
    colon = cursor.peek(size)
    if not size or size > MAX_LABEL or colon.value != ":" or cursor.peek(size + 1).kind == "end":
        return None
    # boys : girls = 2:3 is a ratio of two words.
    if _is_label_word(cursor.peek(size + 1)):
        return None
    words = " ".join(cursor.peek(at).value for at in range(size)).lower()
    if not states_value(f"{words}:"):
        raise ParseError("words")
    cursor.at += size + 1
    return Expr("text", name=words)


def _is_label_word(token: Token) -> bool:
    return token.kind in ("text", "word") and len(token.value) > 2 and token.value[0].isalpha()


def called_function(cursor: Cursor) -> Expr | None:
    """``m(t)`` or ``u(x,t)`` before ``=``: a function of letters, not a product; None for anything else.

    Capital letters and ``f``, ``g``, ``h`` are functions anywhere, see ``equations.is_function``.
    """
    name = cursor.peek()
    is_letter = _is_letter(name) or name.value[1:] in GREEK
    if not is_letter or name.value in _ALWAYS_FUNCTIONS or cursor.peek(1).value != "(":
        return None
    letters: list[Expr] = []
    # The tokens read: the name, then a sign and a letter in turn.
    size = 1
    while cursor.peek(size).value == ("," if letters else "("):
        letter = cursor.peek(size + 1)
        if not _is_letter(letter):
            break
        letters.append(sym(letter.value))
        size += 2
    if not letters or cursor.peek(size).value != ")" or cursor.peek(size + 1).value != "=":
        return None
    cursor.at += size + 1
    return Expr("f", tuple(letters), f"?{name.value}")


def _is_letter(token: Token) -> bool:
    return token.kind == "word" and len(token.value) == 1 and token.value.islower()


def _before_equals(cursor: Cursor) -> int:
    """The number of tokens before ``=`` where the left side is not a sum or product; else 0."""
    depth = 0
    # Signs within brackets do not count: |A\cup B|, \operatorname{Var}(2X+1).
    for size in range(MAX_NAME):
        token = cursor.peek(size)
        if token.value == "=" and depth == 0:
            return size
        depth += (token.value in OPENING) - (token.value in CLOSING)
        if token.kind == "end" or depth < 0 or (depth == 0 and token.value in _NOT_IN_NAMES):
            return 0
    return 0
