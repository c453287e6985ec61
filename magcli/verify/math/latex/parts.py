"""Parsing lists of parts: relations between sums, unions or ratios with units."""

from collections.abc import Callable
from itertools import chain, pairwise

from magcli.verify.math.latex.expressions import parse_atom, parse_factor, parse_sum, starts_factor
from magcli.verify.math.latex.logic import CONNECTIVES, IMPLICATIONS, are_propositions, formula
from magcli.verify.math.latex.measures import currency_word, trailing_words, with_unit
from magcli.verify.math.latex.names import CLOSING, OPENING, called_function, label, named_quantity
from magcli.verify.math.latex.tokens import CONJUNCTIONS, POINT_WORDS, Cursor
from magcli.verify.math.latex.tree import (
    MINUS_ONE,
    ZERO,
    E,
    Expr,
    I,
    Op,
    ParseError,
    add,
    div,
    equals,
    function,
    is_equation,
    mul,
    sym,
)
from magcli.verify.math.latex.units import CURRENCY, CURRENCY_WORDS

MAX_PARTS = 1_000
MAX_SIDES = 50
MAX_SPANNED = 3
"""Vectors of a span, which are compared in every order."""
_COMPARISONS = r"= < > \le \ge \ne \approx \equiv \in \sim \mapsto \notin"
_OF_SETS_AND_LINES = r"\parallel \perp \cong \subseteq \subset \supseteq \supset"
_TURNED = {r"\supseteq": r"\subseteq", r"\supset": r"\subset"}
_RELATIONS = tuple(f"{_COMPARISONS} {_OF_SETS_AND_LINES}".split())
MAX_POINT = 200
"""Maximum tokens of a point's coordinates."""
_AFTER_PARTS = frozenset((",", ";", "and", "or", r"\}", r"\\", ""))
_COMBINATORIAL = (sym("C"), sym("P"))
"""Before a pair in brackets: the number of combinations or permutations."""
_VALUES: frozenset[Op] = frozenset(("num", "const", "+", "*", "/", "^", "pm"))
_SIDE_NODES: dict[str, Op] = {r"\cup": r"\cup", r"\cap": r"\cap", r"\setminus": r"\setminus", ":": "ratio"}
_SPANS = frozenset(("span", "Span", r"\span"))
_SEPARATORS = (",", ";", *CONJUNCTIONS)
_LABELS: frozenset[Op] = frozenset(("text", "choice", "sym"))
"""Answers that name something: one or the other of them is not both."""


def parse_list(cursor: Cursor) -> Expr:
    """Parts separated by ``,``, ``;``, ``and`` or ``or``; where both signs occur, ``;`` separates groups."""
    groups: list[list[Expr]] = [[]]
    separators: set[str] = set()
    # Where the alternatives begin, as positions in the first group.
    alternatives, last = [0], ""
    while True:
        # Several separators in a row are one: ", and".
        while sign := cursor.eat(*_SEPARATORS):
            separators.add(sign)
            last = sign
            if sign == "or":
                alternatives.append(len(groups[-1]))
            if sign == ";" and groups[-1]:
                groups.append([])
        if not _starts_part(cursor):
            if last in CONJUNCTIONS:
                raise ParseError("words")
            break
        groups[-1].append(_formula(cursor))
        if sum(map(len, groups)) > MAX_PARTS:
            raise ParseError("too-long")
        if cursor.peek().value not in _SEPARATORS:
            break
    if not separators and groups[0]:
        return groups[0][0]
    if solutions := _alternative_solutions(groups, alternatives):
        return solutions
    has_groups = len(groups) > 1
    groups = [_completed(group) for group in groups if group]
    if has_groups and any(len(group) > 1 for group in groups):
        return Expr("list", tuple(map(_list, groups)))
    return _named_list(list(chain.from_iterable(groups)), separators & CONJUNCTIONS)


def _completed(parts: list[Expr]) -> list[Expr]:
    """Parts with the name and the modulus that are written once for all of them, and with their parameters."""
    return with_domains(_distribute_modulus(_distribute_name(parts)))


def _alternative_solutions(groups: list[list[Expr]], starts: list[int]) -> Expr | None:
    """``x=1, y=2 or x=2, y=1``: a list for each alternative; None unless all assign the same letters."""
    parts = groups[0]
    one_value_each = len(parts) == len(starts)
    if len(groups) > 1 or len(starts) < 2 or one_value_each:
        return None
    if not all(is_equation(part) and part.args[0].op == "sym" for part in parts):
        return None
    bounds = pairwise([*starts, len(parts)])
    alternatives = [parts[start:end] for start, end in bounds]
    letters, *other_letters = map(_assigned_letters, alternatives)
    are_distinct = len(set(letters)) == len(letters)
    have_same_letters = all(others == letters for others in other_letters)
    is_solution = len(letters) > 1 and are_distinct and have_same_letters
    return Expr("list", tuple(map(_list, alternatives))) if is_solution else None


def _assigned_letters(equations: list[Expr]) -> list[str]:
    return sorted(equation.args[0].name for equation in equations)


def _named_list(parts: list[Expr], conjunctions: set[str]) -> Expr:
    """The list; of relations it is named by its conjunctions, since ``and`` and ``or`` differ in meaning.

    Equations for one name are its values, whichever conjunction joins them.
    """
    listed = _list(parts)
    # 5 or 5 is one value.
    is_one_number = listed.op == "list" and parts[0].op == "num" and len(set(parts)) == 1
    if conjunctions == {"or"} and is_one_number:
        return parts[0]
    if listed.op != "list":
        return listed
    if "or" in conjunctions and all(part.op in _LABELS for part in parts):
        return listed._replace(name="or")
    if not conjunctions or any(part.op != "rel" for part in parts):
        return listed
    names = {part.args[0] for part in parts}
    if len(names) == 1 and all(map(is_equation, parts)):
        return listed
    return listed._replace(name=" ".join(sorted(conjunctions)))


def _has_modulus(part: Expr) -> bool:
    return part.op == "residue" or (part.op == "rel" and part.args[-1].op == "residue")


def _distribute_modulus(parts: list[Expr]) -> list[Expr]:
    r"""``x \equiv 2, 5 \pmod 7`` with the modulus after each value."""
    *others, last = parts
    if not others or last.op != "residue" or any(map(_has_modulus, others)):
        return parts
    _, modulus = last.args
    values = [part.args[1] if part.op == "rel" else part for part in others]
    residues = [Expr("residue", (value, modulus)) for value in values]
    residues.append(last)
    first = others[0]
    if not is_equation(first):
        return residues
    # The name stands before the first value only.
    name = first.args[0]
    return [equals(name, residue) for residue in residues]


def _distribute_name(parts: list[Expr]) -> list[Expr]:
    r"""``x=0, 4`` and ``x \ne 1, 2`` with the name repeated before each value."""
    first, *others = parts
    if not others or first.op != "rel" or first.name not in ("=", r"\ne"):
        return parts
    name, first_value = first.args
    values = [first_value, *others]
    are_values = all(value.op in _VALUES for value in values)
    if name.op != "sym" or not are_values:
        return parts
    return [first._replace(args=(name, value)) for value in values]


def with_domains(parts: list[Expr]) -> list[Expr]:
    r"""``\pi k, k \in \mathbb{Z}`` as a family: its parts, its free parameters, and the domain of each.

    In inequalities (``x>3, x \in \mathbb{Z}``) the letter is the unknown, not a parameter.
    """
    domains: dict[Expr, str] = {}
    for at, part in enumerate(parts):
        domain = _stated_domain(part)
        if not domain:
            continue
        # k, m \in \mathbb{Z}: the letters before are in the same set.
        while at and parts[at - 1].op == "sym" and parts[at - 1] not in domains and len(parts) > 2:
            at -= 1
            domains[parts[at]] = domain
        domains[part.args[0]] = domain
    body = [part for part in parts if part not in domains and not _is_membership(part)]
    has_inequality = any(part.op == "rel" and not is_equation(part) for part in body)
    if not domains or not body or has_inequality:
        return parts
    # A letter that the body does not have is no parameter, and its domain says nothing.
    parameters = [letter for letter in domains if any(_mentions(part, letter) for part in body)]
    if not parameters:
        return body
    # One letter for the domain of each parameter, in their order.
    domain_letters = "".join(domains[letter] for letter in parameters)
    return [Expr("family", (_list(body), *parameters), domain_letters)]


def _is_membership(part: Expr) -> bool:
    return part.op == "rel" and part.name == r"\in"


def _stated_domain(part: Expr) -> str:
    r"""The letter of the number set, in any font, in ``k \in \mathbb{Z}``; empty for anything else."""
    if not _is_membership(part) or part.args[0].op != "sym":
        return ""
    stated = part.args[1]
    letter = stated.name.removeprefix(r"\mathbb") if stated.op in ("set-name", "sym") else ""
    return letter if letter in ("Z", "N", "Q", "R", "C") else ""


def _mentions(expr: Expr, letter: Expr) -> bool:
    """Whether a letter occurs in an expression other than as the name of a quantity."""
    if is_equation(expr) and expr.args[0] == letter:
        return _mentions(expr.args[1], letter)
    return expr == letter or any(_mentions(arg, letter) for arg in expr.args)


def _list(parts: list[Expr]) -> Expr:
    if not parts:
        raise ParseError("empty")
    return parts[0] if len(parts) == 1 else Expr("list", tuple(parts))


def _starts_part(cursor: Cursor) -> bool:
    token = cursor.peek()
    if token.kind == "end" or (token.value == "|" and cursor.bars):
        return False
    return token.value not in (")", "}", r"\}", r"\rangle", "mid", "&", r"\\")


def _formula(cursor: Cursor) -> Expr:
    r"""A part, or parts joined by connectives and implications: ``p \land q \to r``."""
    sides, signs = _joined(cursor, IMPLICATIONS, _disjunction, _disjunction(cursor))
    return Expr("rel", tuple(sides), " ".join(signs)) if signs else sides[0]


def _joined(
    cursor: Cursor, joints: tuple[str, ...], operand: Callable[[Cursor], Expr], first: Expr
) -> tuple[list[Expr], list[str]]:
    """Operands, of which the first is read already, and the signs between them."""
    operands, signs = [first], []
    while sign := cursor.eat(*joints):
        # == of programs
        while sign == "=" and cursor.eat("="):
            pass
        signs.append(sign)
        operands.append(operand(cursor))
        if len(operands) > MAX_SIDES:
            raise ParseError("too-long")
    return operands, signs


def _disjunction(cursor: Cursor) -> Expr:
    """A part, or parts joined by connectives; relations so joined are a list with that conjunction."""
    operands, signs = _joined(cursor, CONNECTIVES, parse_part, parse_part(cursor))
    if not signs:
        return operands[0]
    if are_propositions(operands):
        return formula(operands, signs)
    # Only statements are joined by an exclusive or.
    if r"\oplus" in signs:
        raise ParseError("unparsable")
    # An alternative begins after each \lor.
    starts = [0, *(at for at, sign in enumerate(signs, 1) if sign == r"\lor")]
    if solutions := _alternative_solutions([operands], starts):
        return solutions
    return _named_list(operands, {"or" if sign == r"\lor" else "and" for sign in signs})


def _quantified(cursor: Cursor) -> Expr:
    r"""``\forall x \in S: ...``: the letter, its set (0 without one) and what holds."""
    quantifier: Op = "forall" if cursor.next().value == r"\forall" else "exists"
    letter = parse_atom(cursor)
    domain = parse_sum(cursor) if cursor.eat(r"\in") else ZERO
    while cursor.eat(":", ",", "."):
        pass
    if letter.op != "sym" or not _starts_part(cursor):
        raise ParseError("unparsable")
    return Expr(quantifier, (letter, domain, _formula(cursor)))


def parse_part(cursor: Cursor) -> Expr:
    """One part of a list: a side, or a chain of relations between sides."""
    if cursor.peek().value in (r"\forall", r"\exists"):
        return _quantified(cursor)
    if point := _point(cursor):
        return point
    if name := label(cursor):
        value = parse_part(cursor)
        return value if value.op in ("rel", "chain") else equals(name, value)
    cursor.deeper()
    left = named_quantity(cursor) or called_function(cursor) or _side(cursor)
    sides, signs = _joined(cursor, _RELATIONS, _side, left)
    cursor.depth -= 1
    # Within bars, as in a set builder, the sign ends the head.
    if not signs and cursor.peek().value == "mid" and not cursor.bars:
        cursor.at += 1
        return _divides(sides[0], _side(cursor))
    return _relation(sides, signs) if signs else sides[0]


def _divides(divisor: Expr, value: Expr) -> Expr:
    r"""``4 \mid n`` as ``n \equiv 0 \pmod 4``; of letters as a relation of its own."""
    if divisor.op == "num":
        return equals(value, Expr("residue", (ZERO, divisor)))
    return Expr("rel", (divisor, value), "mid")


def _point(cursor: Cursor) -> Expr | None:
    r"""``P(1,2)`` or ``\text{vertex } (1,2)``: an equation of a name and a tuple; None for anything else."""
    start = cursor.at
    name = _point_name(cursor)
    size = _bracket_size(cursor) if name else 0
    is_chosen = name in _COMBINATORIAL and size == 5 and not cursor.points  # C(5,2)
    if name and size and not is_chosen and cursor.peek(size).value in _AFTER_PARTS:
        value = cursor.group(cursor)
        if value.op == "tuple":
            return equals(name, value)
    cursor.at = start
    return None


def _point_name(cursor: Cursor) -> Expr | None:
    """Words such as ``vertex``, or else a capital letter with its index; the last one of them is the name."""
    name = None
    while cursor.peek().kind in ("text", "word") and POINT_WORDS.issuperset(cursor.peek().value.lower().split()):
        name = Expr("text", name=cursor.next().value.lower())
    token = cursor.peek()
    if token.kind == "word" and len(token.value) == 1 and token.value.isupper():
        name = sym(cursor.next().value + _point_suffix(cursor))
    return name


def _point_suffix(cursor: Cursor) -> str:
    """The index or primes of a point's name."""
    mark = ""
    if cursor.peek().value == "_" and cursor.peek(1).kind in ("num", "word"):
        mark = f"_{cursor.peek(1).value}"
        cursor.at += 2
    while cursor.eat("'"):
        mark += "'"
    return mark


def _bracket_size(cursor: Cursor) -> int:
    """The number of tokens of the parenthesis at the cursor if it contains commas; else 0."""
    depth = commas = 0
    # A window, so that the time stays linear where many brackets follow each other.
    for size, token in enumerate(cursor.tokens[cursor.at : cursor.at + MAX_POINT], 1):
        depth += (token.value in OPENING) - (token.value in CLOSING)
        commas += token.value in (",", ";") and depth == 1
        if depth == 0:
            return size if commas and token.value == ")" else 0
    return 0


def _relation(sides: list[Expr], signs: list[str]) -> Expr:
    """A relation; a chain with one value keeps all its sides.

    A lone ``e`` or ``i`` before ``=`` is a name, as of an eccentricity, not the constant.
    """
    if signs[0] == "=" and sides[0] in (E, I):
        sides = [sym(sides[0].name), *sides[1:]]
    relation = _collapse(sides, signs)
    # Those of a chain must agree, which is checked when answers are compared.
    has_values = len(signs) > 1 or r"\approx" in signs
    of_equations = {"=", r"\approx"}.issuperset(signs)
    if not has_values or not of_equations or relation.op == "list":
        return relation
    return Expr("chain", (relation, *sides))


def _collapse(sides: list[Expr], signs: list[str]) -> Expr:
    """A relation; an approximation after the exact value is dropped, a chain of ``=`` ends with its last value."""
    # x \approx 3.14 has no exact value.
    only_names = len(signs) == 1 and sides[0].op in ("sym", "f")
    if r"\approx" in signs and not only_names:
        at = signs.index(r"\approx")
        sides, signs = sides[: at + 1], signs[:at]
    # 2\pi \approx 6.28 is only the exact value.
    if not signs:
        return sides[0]
    signs = ["=" if sign in (r"\approx", r"\equiv") else sign for sign in signs]
    turned = _TURNED.get(signs[0]) if len(signs) == 1 else None
    if turned:
        return Expr("rel", tuple(reversed(sides)), turned)
    if len(signs) == 1 or set(signs) != {"="}:
        return Expr("rel", tuple(sides), " ".join(signs))
    *names, value = sides
    if all(name.op == "sym" for name in names):
        # x=y=2
        equations = (equals(name, value) for name in names)
        return Expr("list", tuple(equations))
    return equals(names[0], value)


def _side(cursor: Cursor) -> Expr:
    """A union, difference or ratio of sums, with its unit."""
    value = _operand(cursor)
    if cursor.eat(r"\over"):
        value = div(value, parse_sum(cursor))
    elif cursor.eat(r"\choose"):
        value = function("binom", value, parse_sum(cursor))
    # Just behind the first number, which is one token where it is the hours of a time.
    first = cursor.at
    while sign := cursor.eat(*_SIDE_NODES):
        operand = _operand(cursor)
        if sign == ":" and value.op == "ratio":
            value = Expr("ratio", (*value.args, operand))
        else:
            value = Expr(_SIDE_NODES[sign], (value, _removed(operand, sign)))
    if value.op == "ratio" and _is_time(cursor, first - 1):
        return value._replace(name="time")
    return value


def _removed(value: Expr, sign: str) -> Expr:
    r"""What a difference removes: ``\mathbb{R} \setminus {3}`` without backslashes is a set too."""
    return Expr("set", (value,)) if sign == r"\setminus" and value.op == "num" else value


def _is_time(cursor: Cursor, start: int) -> bool:
    """Whether the tokens from ``start`` are hours and two digits of minutes: ``7:05``, but not ``7:5``."""
    texts = [token.value for token in cursor.tokens[start : cursor.at]]
    # Every second token is a colon.
    hours, *minutes = texts[::2]
    if not all(text.isdigit() for text in (hours, *minutes)) or int(hours) > 24:
        return False
    return all(len(text) == 2 and int(text) < 60 for text in minutes)


def _operand(cursor: Cursor) -> Expr:
    """A sum with its unit, currency or modulus, or words."""
    currency = ""
    # The sign may stand before that of the currency: -$5.
    negative = cursor.peek().value == "-" and cursor.peek(1).value in CURRENCY
    if negative:
        cursor.at += 1
    if cursor.peek().value in CURRENCY:
        currency = CURRENCY[cursor.next().value]
    first = cursor.peek()
    if first.value == "]":
        return _reversed_interval(cursor)
    if spanned := _span(cursor):
        return spanned
    if first.kind in ("text", "word") and first.value.lower().rstrip(".") in CURRENCY_WORDS:
        currency = currency_word(cursor)
    if cursor.peek().kind == "text" and cursor.peek(1).value not in ("_", "^"):
        words = Expr("text", name=cursor.next().value.lower())
        # A bracket after words is a comment, not a factor.
        is_factor = starts_factor(cursor) and cursor.peek().value != "("
        return mul(words, parse_sum(cursor)) if is_factor else words
    value = parse_sum(cursor)
    if negative:
        value = mul(MINUS_ONE, value)
    if cursor.eat(r"\pmod"):
        return Expr("residue", (value, parse_factor(cursor)))
    unit = trailing_words(cursor)
    if currency:
        value = Expr("unit", (value,), currency)
    return with_unit(value, unit)


def _is_vector(expr: Expr) -> bool:
    return expr.op in ("tuple", "matrix")


def _span(cursor: Cursor) -> Expr | None:
    r"""``\operatorname{span}\{v,w\}`` as the family of ``?s0 v + ?s1 w``; None for anything else."""
    if cursor.peek().value not in _SPANS or cursor.peek(1).value not in (r"\{", "("):
        return None
    cursor.at += 1
    spanned = cursor.group(cursor)
    # A tuple of numbers is one vector.
    is_collection = spanned.op in ("set", "tuple", "list") and all(map(_is_vector, spanned.args))
    vectors = spanned.args if is_collection else (spanned,)
    if not 0 < len(vectors) <= MAX_SPANNED or not all(map(_is_vector, vectors)):
        raise ParseError("unparsable")
    # No answer has a letter that begins with a question mark.
    size = len(vectors)
    factors = [sym(f"?s{at}") for at in range(size)]
    multiples = list(map(mul, factors, vectors))
    domains = "R" * size
    return Expr("family", (add(multiples), *factors), domains)


def _reversed_interval(cursor: Cursor) -> Expr:
    """``]a,b[``, the open interval in French notation."""
    cursor.at += 1
    inner = parse_list(cursor)
    closing = cursor.next().value
    if closing not in ("[", "]") or inner.op != "list":
        raise ParseError("unparsable")
    # ]a,b] is closed on the right.
    brackets = "()" if closing == "[" else "(]"
    return Expr("tuple", inner.args, brackets)
