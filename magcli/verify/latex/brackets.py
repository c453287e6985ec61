"""Reading brackets: groups, tuples, intervals, sets, set builders and the cells of tables."""

from magcli.verify.latex.cursor import Cursor
from magcli.verify.latex.parts import domained, read_list, read_part
from magcli.verify.latex.tokens import Token, Unreadable
from magcli.verify.latex.tree import Expr

_SYSTEMS = frozenset(rf"\begin{{{name}}}" for name in ("array", "aligned", "matrix", "gathered", "split", "cases"))
"""Tables that may stand behind one brace, which is then never closed."""
_CONDITION_WORDS = frozenset(("if", "for", "when", "where"))


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
    if opening == "[" and cursor.peek().value == "[" and (matrix := _nested_rows(cursor)):
        return matrix
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


def _described(head: Expr, conditions: Expr) -> Expr | None:
    r"""``\{3k \mid k\in\mathbb{Z}\}`` as a family; nothing where the conditions are no domains of its letters."""
    if conditions.op == "family" and head.op == "sym" and conditions.args[0].op == "rel":
        return conditions
    stated = list(conditions.args) if conditions.op == "list" else [conditions]
    (found, *more) = domained([head, *stated])
    return found if found.op == "family" and not more and head.op != "sym" else None


def _nested_rows(cursor: Cursor) -> Expr | None:
    """The rows of ``[[1,2],[3,4]]``, a matrix as programs write it; nothing where other things stand between them."""
    start, rows = cursor.at, []
    while cursor.eat("["):
        row = read_list(cursor)
        rows.append(Expr("row", row.args if row.op == "list" else (row,)))
        if not cursor.eat("]") or not cursor.eat(",", "]"):
            break
        if cursor.tokens[cursor.at - 1].value == "]":
            widths = {len(row.args) for row in rows}
            if len(widths) == 1 and (len(rows), *widths) != (1, 1):
                return Expr("matrix", tuple(rows))
            break
    cursor.at = start
    return None


def _set(cursor: Cursor) -> Expr:
    r"""``\{1,2\}``, or ``\{x \mid ..\}`` with its conditions; relations in braces are a system, which is a list."""
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
        if head.op != "rel" and (family := _described(head, conditions)):
            return family
        together = conditions.op == "list" and "or" not in conditions.name
        return Expr("builder", (head, *(conditions.args if together else (conditions,))))
    system = cursor.peek().value in _SYSTEMS
    inner = read_list(cursor)
    if not cursor.eat(r"\}") and not system:
        raise Unreadable("unparsable")
    if inner.op == "cases" or (inner.op == "list" and all(part.op == "rel" for part in inner.args)):
        return inner
    return Expr("set", inner.args if inner.op == "list" else (inner,))


def _builder_bar(cursor: Cursor) -> int:
    """Where the bar of a set builder stands; 0 without one."""
    for at in range(cursor.at, min(cursor.at + 12, len(cursor.tokens))):
        value = cursor.tokens[at].value
        if value in ("mid", ":", "|"):
            return at if at > cursor.at and (value != "|" or _lone_bar(cursor, at)) else 0
        if value in ("=", "<", ">", r"\}"):
            return 0
    return 0


def _lone_bar(cursor: Cursor, at: int) -> bool:
    """Whether a bar has no partner up to the end of the set, so that it is no absolute value."""
    bars = depth = 0
    for token in cursor.tokens[at:]:
        depth += (token.value == r"\{") - (token.value == r"\}")
        bars += token.value == "|"
        if depth < 0:
            break
    return bars % 2 == 1


def read_cell(cursor: Cursor) -> Expr:
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
