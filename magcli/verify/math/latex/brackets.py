"""Parsing brackets: tuples, intervals, sets and set builders, and the cells of tables."""

from magcli.verify.math.latex.parts import parse_list, parse_part, with_domains
from magcli.verify.math.latex.tokens import Cursor, Token
from magcli.verify.math.latex.tree import Expr, ParseError, is_equation, parts_of

_SYSTEMS = frozenset(rf"\begin{{{name}}}" for name in ("array", "aligned", "matrix", "gathered", "split", "cases"))
"""Environments that may follow a brace that is never closed."""
MAX_HEAD = 12
"""Maximum tokens before the bar of a set builder."""
_CONDITION_WORDS = frozenset(("if", "for", "when", "where"))
_CLOSED_BY = {"(": (")", "]"), "[": (")", "]", "["), "{": ("}",), r"\langle": (r"\rangle",)}
"""What may close a bracket; intervals have different brackets at their ends."""


def parse_group(cursor: Cursor) -> Expr:
    """A bracket: a single expression is itself, several are a tuple, interval or set."""
    opening = cursor.next().value
    cursor.deeper()
    # An absolute value around the bracket cannot end in it.
    outer_bars, cursor.bars = cursor.bars, 0
    value = _set(cursor) if opening == r"\{" else _bracketed(cursor, opening)
    cursor.bars = outer_bars
    cursor.depth -= 1
    return value


def _bracketed(cursor: Cursor, opening: str) -> Expr:
    if opening == "[" and cursor.peek().value == "[" and (matrix := _nested_rows(cursor)):
        return matrix
    inner = parse_list(cursor)
    closing = cursor.next().value
    if closing not in _CLOSED_BY[opening]:
        raise ParseError("unparsable")
    if inner.op != "list" or opening == "{":
        return inner
    # Angle brackets are those of a vector; [a,b[ is half-open.
    left = "(" if opening == r"\langle" else opening
    right = ")" if closing in ("[", r"\rangle") else closing
    return Expr("tuple", inner.args, left + right)


def _family(head: Expr, conditions: Expr) -> Expr | None:
    r"""``\{3k \mid k\in\mathbb{Z}\}`` as a family; None if the conditions are not domains of its letters."""
    if conditions.op == "family" and head.op == "sym" and conditions.args[0].op == "rel":
        return conditions
    parts = with_domains([head, *parts_of(conditions, "list")])
    is_family = len(parts) == 1 and parts[0].op == "family"
    return parts[0] if is_family and head.op != "sym" else None


def _nested_rows(cursor: Cursor) -> Expr | None:
    """``[[1,2],[3,4]]``, a matrix in the notation of programs; None for anything else."""
    # Until a row is no row of a matrix, after which the cursor goes back.
    start, rows = cursor.at, []
    while cursor.eat("["):
        row = parse_list(cursor)
        rows.append(Expr("row", parts_of(row, "list")))
        if not cursor.eat("]"):
            break
        sign = cursor.eat(",", "]")
        if sign == "]":
            widths = {len(row.args) for row in rows}
            # [[5]] is a number in two brackets.
            is_number = len(rows) == 1 and widths == {1}
            if len(widths) == 1 and not is_number:
                return Expr("matrix", tuple(rows))
        if sign != ",":
            break
    cursor.at = start
    return None


def _set(cursor: Cursor) -> Expr:
    r"""``\{1,2\}``, or ``\{x \mid ..\}`` with its conditions; relations in braces are a system, parsed as a list."""
    if cursor.eat(r"\}"):
        return Expr("set")
    if at := _builder_bar(cursor):
        return _builder(cursor, at)
    is_system = cursor.peek().value in _SYSTEMS
    inner = parse_list(cursor)
    if not cursor.eat(r"\}") and not is_system:
        raise ParseError("unparsable")
    are_relations = inner.op == "list" and all(part.op == "rel" for part in inner.args)
    if inner.op == "cases" or are_relations:
        return inner
    return Expr("set", parts_of(inner, "list"))


def _builder(cursor: Cursor, bar: int) -> Expr:
    r"""A set builder whose bar is at a position; ``\{2k \mid k \in \mathbb{Z}\}`` is a family."""
    cursor.tokens[bar] = Token("op", "mid")
    # As in an absolute value, the bar ends the head.
    cursor.bars = 1
    head = parse_part(cursor)
    cursor.bars = 0
    cursor.expect("mid")
    conditions = parse_list(cursor)
    cursor.expect(r"\}")
    if head.op != "rel" and (family := _family(head, conditions)):
        return family
    all_hold = conditions.op == "list" and "or" not in conditions.name and not _are_values(conditions)
    return Expr("builder", (head, *(conditions.args if all_hold else (conditions,))))


def _are_values(conditions: Expr) -> bool:
    """Whether conditions list the values of one letter: ``x=1 or x=2``."""
    names = {part.args[0] for part in conditions.args if is_equation(part)}
    return len(names) == 1 and all(map(is_equation, conditions.args))


def _builder_bar(cursor: Cursor) -> int:
    """The position of the bar of a set builder; 0 without one."""
    # The head is short, as in \{x \in \mathbb{R} : ..\}.
    for at in range(cursor.at, min(cursor.at + MAX_HEAD, len(cursor.tokens))):
        value = cursor.tokens[at].value
        if value in ("mid", ":", "|"):
            is_bar = value != "|" or _lone_bar(cursor, at)
            return at if at > cursor.at and is_bar else 0
        if value in ("=", "<", ">", r"\}"):
            return 0
    return 0


def _lone_bar(cursor: Cursor, at: int) -> bool:
    """Whether a bar is unpaired within the set, so that it is not an absolute value."""
    bars = depth = 0
    for token in cursor.tokens[at:]:
        depth += (token.value == r"\{") - (token.value == r"\}")
        bars += token.value == "|"
        if depth < 0:
            break
    return bars % 2 == 1


def parse_cell(cursor: Cursor) -> Expr:
    """A table cell; ``if``, ``for``, ``when``, ``where`` before a condition are skipped."""
    words: list[str] = []
    while cursor.peek().kind in ("text", "word") and cursor.peek().value.strip(" ,").lower() in _CONDITION_WORDS:
        cursor.at += 1
    while cursor.peek().kind == "text" or cursor.peek().value in ("otherwise", "else"):
        words.append(cursor.next().value.lower())
    if words:
        return Expr("text", name=" ".join(words))
    value = parse_part(cursor)
    # Rows may end with the punctuation of a sentence.
    while cursor.eat(",", "."):
        pass
    return value
