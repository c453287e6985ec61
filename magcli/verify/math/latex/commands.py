r"""Parsing LaTeX commands: fractions, roots, functions, sums, matrices, named symbols."""

from collections.abc import Callable

from magcli.verify.math.latex.expressions import (
    argument,
    exponent,
    parse_factor,
    parse_product,
    parse_sum,
    signed,
    starts_factor,
    subscript,
)
from magcli.verify.math.latex.tokens import DECORATIONS, FUNCTIONS, GREEK, Cursor, Token
from magcli.verify.math.latex.tree import (
    INFINITY,
    MINUS_ONE,
    ONE,
    PI,
    ZERO,
    E,
    Expr,
    I,
    Op,
    ParseError,
    add,
    div,
    function,
    mul,
    neg,
    num,
    parts_of,
    power,
    sym,
)

_ALIASES = {
    "tg": "tan", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "arsinh": "arcsinh", "arcosh": "arccosh",
    "artanh": "arctanh",
}  # fmt: skip
_INVERSE = {name: f"arc{name}" for name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh")}
_MATRICES = frozenset(("pmatrix", "bmatrix", "matrix", "array", "vmatrix", "smallmatrix", "Bmatrix", "Vmatrix"))
_ALIGNED = frozenset(("cases", "rcases", "dcases", "aligned", "align", "gathered", "split"))
_UNBRACKETED = frozenset(("array", "matrix"))
"""Environments that draw no brackets: matrices, or systems of relations."""
_SIGNS = frozenset(("=", "<", ">", r"\le", r"\ge", r"\ne"))
MAX_CELLS, MAX_LOG_DEGREE = 400, 400


def parse_command(cursor: Cursor) -> Expr:
    """Parse the command at the cursor."""
    command = cursor.next().value
    name = command[1:]
    if name in FUNCTIONS and name != "sqrt":
        return _function(cursor, _ALIASES.get(name, name))
    if name in GREEK:
        return _symbol(cursor, name)
    if name in DECORATIONS:
        return _decorated(cursor, name)
    if name.startswith("begin{"):
        return _environment(cursor, name[6:-1])
    parser = _PARSERS.get(command)
    if parser is not None:
        return parser(cursor)
    # Other commands are symbols, such as \square, if they have no arguments.
    if not name.isalpha() or cursor.peek().value in ("(", "{", "["):
        raise ParseError("unparsable")
    return _symbol(cursor, name)


def _symbol(cursor: Cursor, name: str) -> Expr:
    return sym(f"\\{name}{_index(cursor)}")


def _index(cursor: Cursor) -> str:
    """The index of a symbol with its sign, as ``_1``; empty without one."""
    return f"_{subscript(cursor)}" if cursor.eat("_") else ""


def _decorated(cursor: Cursor, name: str) -> Expr:
    r"""``\overline{AB}``, ``\angle ABC``: one symbol together with its argument."""
    token = cursor.peek()
    text = subscript(cursor) if token.value == "{" else cursor.next().value
    if token.kind == "end":
        raise ParseError("unparsable")
    return sym(f"\\{name} {text}{_index(cursor)}")


def _sqrt(cursor: Cursor) -> Expr:
    degree = num(2)
    if cursor.eat("["):
        degree = parse_sum(cursor)
        cursor.expect("]")
    return power(argument(cursor), div(ONE, degree))


def _rounding(cursor: Cursor, name: str, closing: str) -> Expr:
    cursor.deeper()
    # An absolute value around the brackets cannot end in them.
    bars, cursor.bars = cursor.bars, 0
    value = parse_sum(cursor)
    cursor.bars = bars
    cursor.depth -= 1
    cursor.expect(closing)
    return function(name, value)


def _function(cursor: Cursor, name: str) -> Expr:
    r"""``\sin^2 x``, ``\log_2 8``, ``\gcd(a,b)``; ``\sin^{-1}`` is the inverse function."""
    base = raised = None
    # The base and the exponent may come in any order.
    for _ in range(2):
        if cursor.eat("_"):
            base = argument(cursor)
        elif cursor.eat("^"):
            raised = exponent(cursor)
    if raised == MINUS_ONE and name in _INVERSE:
        name, raised = _INVERSE[name], None
    value = _apply(name, _function_argument(cursor), base)
    return value if raised is None else power(value, raised)


def _function_argument(cursor: Cursor) -> tuple[Expr, ...]:
    """A bracket, or adjacent factors up to the next function or parenthesis."""
    cursor.deeper()
    if cursor.peek().value in ("(", "{"):
        inner = cursor.group(cursor)
        while cursor.eat("!"):
            inner = function("factorial", inner)
    else:
        inner = signed(cursor, _adjacent_factors)
    cursor.depth -= 1
    return parts_of(inner, "tuple", "set", "list")


def _adjacent_factors(cursor: Cursor) -> Expr:
    value = parse_factor(cursor)
    while starts_factor(cursor) and not _ends_argument(cursor.peek()):
        value = mul(value, parse_factor(cursor))
    return value


def _ends_argument(token: Token) -> bool:
    is_function = token.kind == "cmd" and token.value[1:] in FUNCTIONS and token.value != r"\sqrt"
    return token.value == "(" or is_function


def _apply(name: str, arguments: tuple[Expr, ...], base: Expr | None) -> Expr:
    if name == "exp":
        return power(E, arguments[0])
    if name == "cis":
        return add([function("cos", *arguments), mul(I, function("sin", *arguments))])
    if name == "log" and base is not None:
        return _logarithm(arguments[0], base)
    # With an index, whatever it is, \lg is binary.
    if name in ("log", "lg"):
        return _logarithm(arguments[0], num(2 if base else 10))
    if name == "det" and arguments[0].op == "matrix":
        return determinant(arguments[0])
    return function(name, *arguments)


def _logarithm(value: Expr, base: Expr) -> Expr:
    """An integer where the value is a small integer power of the base."""
    if value.op == base.op == "num" and value.number > 0 and base.number > 1:
        # The logarithm of 1/8 is that of 8 with the other sign.
        is_below_one = value.number < 1
        target = 1 / value.number if is_below_one else value.number
        reached, degree = base.number, 1
        # Powers of a base near 1 grow slowly, hence the bound.
        while reached < target and degree < MAX_LOG_DEGREE:
            reached *= base.number
            degree += 1
        if reached == target:
            return num(-degree if is_below_one else degree)
    if value == ONE:
        return num(0)
    return div(Expr("f", (value,), "ln"), Expr("f", (base,), "ln"))


def _series(cursor: Cursor, kind: Op) -> Expr:
    r"""``\sum_{k=1}^{n} ..`` and ``\prod``: index, bounds and body; ``\sum_{k\ge 1}`` has no upper bound."""
    cursor.expect("_")
    cursor.expect("{")
    letter = cursor.next().value
    endless = cursor.eat(r"\ge", ">")
    if not endless:
        cursor.expect("=")
    low = parse_sum(cursor)
    if endless == ">":
        low = add([low, ONE])
    cursor.expect("}")
    if not endless:
        cursor.expect("^")
    high = INFINITY if endless else exponent(cursor)
    # In the body the letters e and i are no constants if they are the index.
    outer_bound = cursor.bound
    cursor.bound = outer_bound | {letter}
    cursor.deeper()
    body = signed(cursor, parse_product)
    cursor.depth -= 1
    cursor.bound = outer_bound
    return Expr(kind, (sym(letter), low, high, body))


def _integral(cursor: Cursor) -> Expr:
    """An integral as an uninterpreted function of its integrand and bounds: equal where these are."""
    low = high = ZERO
    # The bounds may come in any order.
    for _ in range(2):
        if cursor.eat("_"):
            low = argument(cursor)
        elif cursor.eat("^"):
            high = argument(cursor)
    return Expr("f", (signed(cursor, parse_product), low, high), "?int")


def _limit(cursor: Cursor) -> Expr:
    """A limit as an uninterpreted function of the point and the expression."""
    cursor.expect("_")
    cursor.expect("{")
    letter = parse_sum(cursor)
    cursor.expect(r"\to")
    target = parse_sum(cursor)
    cursor.expect("}")
    return Expr("f", (letter, target, signed(cursor, parse_product)), "?lim")


def _environment(cursor: Cursor, name: str) -> Expr:
    """A matrix, or the rows of a piecewise function."""
    name = name.rstrip("*")
    is_aligned, is_unbracketed = name in _ALIGNED, name in _UNBRACKETED
    # The alignment of the columns, {cc}, is read like an index.
    if name == "array" and cursor.peek().value == "{":
        subscript(cursor)
    if is_aligned or is_unbracketed:
        _strip_alignment(cursor, name)
    rows = _rows(cursor, name) if is_aligned or name in _MATRICES else []
    are_relations = all(row[-1].op == "rel" for row in rows)
    if is_aligned or (is_unbracketed and are_relations):
        return _system(rows)
    if not rows:
        raise ParseError("unparsable")
    widths = {len(row) for row in rows}
    if len(widths) != 1 or sum(map(len, rows)) > MAX_CELLS:
        raise ParseError("matrix-shapes")
    matrix = Expr("matrix", _as_rows(rows))
    # Single bars are those of a determinant.
    return determinant(matrix) if name == "vmatrix" else matrix


def _system(rows: list[list[Expr]]) -> Expr:
    """Simultaneous relations, or the rows of a piecewise function."""
    if any(len(row) > 1 for row in rows):
        return Expr("cases", _as_rows(rows))
    parts: list[Expr] = []
    for (relation,) in rows:
        parts.extend(parts_of(relation, "list"))
    return parts[0] if len(parts) == 1 else Expr("list", tuple(parts), "and")


def _as_rows(rows: list[list[Expr]]) -> tuple[Expr, ...]:
    return tuple(Expr("row", tuple(row)) for row in rows)


def _strip_alignment(cursor: Cursor, name: str) -> None:
    """Remove each ``&`` next to a relation sign, as in ``x &= 1``: it only aligns the rows."""
    tokens = cursor.tokens
    at = cursor.at
    while at < len(tokens) and not tokens[at].value.startswith(rf"\end{{{name}"):
        around = {token.value for token in tokens[at - 1 : at + 2]}
        if tokens[at].value == "&" and around & _SIGNS:
            del tokens[at]
        else:
            at += 1


def _rows(cursor: Cursor, name: str) -> list[list[Expr]]:
    rows: list[list[Expr]] = [[]]
    cursor.deeper()
    while not cursor.eat(rf"\end{{{name}}}", rf"\end{{{name}*}}"):
        if cursor.eat(r"\\"):
            rows.append([])
        elif not cursor.eat("&", r"\hline"):
            rows[-1].append(cursor.cell(cursor))
    cursor.depth -= 1
    # Lines and a break at the end leave rows without cells.
    return [row for row in rows if row]


def determinant(matrix: Expr) -> Expr:
    """The determinant of at most four rows, by Laplace expansion along the first."""
    rows = [row.args for row in matrix.args]
    if len(rows) != len(rows[0]) or len(rows) > 4:
        raise ParseError("matrix-shapes")
    return _laplace(rows)


def _laplace(rows: list[tuple[Expr, ...]]) -> Expr:
    first, *others = rows
    if not others:
        return first[0]
    terms = []
    for at, entry in enumerate(first):
        # The other rows without the column of the entry; signs alternate.
        minor = _laplace([row[:at] + row[at + 1 :] for row in others])
        term = mul(entry, minor)
        terms.append(term if at % 2 == 0 else neg(term))
    return add(terms)


def _absolute(cursor: Cursor) -> Expr:
    cursor.deeper()
    cursor.bars += 1
    value = parse_sum(cursor)
    cursor.bars -= 1
    cursor.depth -= 1
    cursor.expect("|")
    return function("det", value) if value.op == "matrix" else function("abs", value)


def _pi(cursor: Cursor) -> Expr:
    return _symbol(cursor, "pi") if cursor.peek().value == "_" else PI


def _number_set(cursor: Cursor) -> Expr:
    r"""``\mathbb{Z}``; ``\mathbb{R}^+`` and ``\mathbb{R}^{-}`` are intervals."""
    name = cursor.tokens[cursor.at - 1].value
    half_lines = _HALF_LINES if name == r"\mathbbR" else {}
    for sign, ends in half_lines.items():
        for written in (("^", sign), ("^", "{", sign, "}")):
            if cursor.comes_next(*written):
                cursor.at += len(written)
                return Expr("tuple", ends, "()")
    return Expr("set-name", name=name)


_HALF_LINES = {"+": (ZERO, INFINITY), "-": (neg(INFINITY), ZERO)}


def _negation(cursor: Cursor) -> Expr:
    """``\\neg p``; two negations are none."""
    cursor.deeper()
    value = parse_factor(cursor)
    cursor.depth -= 1
    return value.args[0] if value.op == "not" else Expr("not", (value,))


_PARSERS: dict[str, Callable[[Cursor], Expr]] = {
    "|": _absolute,
    r"\ldots": lambda _: sym("..."),
    r"\frac": lambda cursor: div(argument(cursor), argument(cursor)),
    r"\sqrt": _sqrt,
    r"\cbrt": lambda cursor: power(argument(cursor), div(ONE, num(3))),
    r"\binom": lambda cursor: function("binom", argument(cursor), argument(cursor)),
    r"\neg": _negation,
    r"\lfloor": lambda cursor: _rounding(cursor, "floor", r"\rfloor"),
    r"\lceil": lambda cursor: _rounding(cursor, "ceil", r"\rceil"),
    r"\infty": lambda _: INFINITY,
    r"\pi": _pi,
    r"\emptyset": lambda _: Expr("set"),
    r"\sum": lambda cursor: _series(cursor, "sum"),
    r"\prod": lambda cursor: _series(cursor, "prod"),
    r"\int": _integral,
    r"\lim": _limit,
    **{rf"\mathbb{letter}": _number_set for letter in "RZNQC"},
}
