import ast
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magcli.verify import math
from magcli.verify.math.latex.tree import (
    ONE,
    ZERO,
    Expr,
    Op,
    ParseError,
    add,
    div,
    function,
    mul,
    neg,
    num,
    power,
    rename_symbol,
)

X = Expr("sym", name="x")
FRACTIONS = st.fractions(max_denominator=1000)


@settings(max_examples=50, deadline=None)
@given(FRACTIONS, FRACTIONS)
def test_rational_arithmetic_is_evaluated(a: Fraction, b: Fraction) -> None:
    assert add([num(a), num(b)]) == num(a + b)
    assert mul(num(a), num(b)) == num(a * b)
    assert neg(num(a)) == num(-a)
    assert div(num(a), num(b)) == (num(a / b) if b else Expr("/", (num(a), ZERO)))


@pytest.mark.parametrize(
    ("base", "exponent", "value"),
    [("4", "1/2", "2"), ("-8", "1/3", "-2"), ("8", "-2/3", "1/4"), ("9/4", "3/2", "27/8"), ("-1", "7", "-1"),
     ("0", "3", "0")],
)  # fmt: skip
def test_exact_powers(base: str, exponent: str, value: str) -> None:
    assert power(num(Fraction(base)), num(Fraction(exponent))) == num(Fraction(value))


@pytest.mark.parametrize(("base", "exponent"), [("2", "1/2"), ("-4", "1/2"), ("0", "-1"), ("3", "100000000")])
def test_powers_that_are_not_evaluated(base: str, exponent: str) -> None:
    assert power(num(Fraction(base)), num(Fraction(exponent))).op == "^"


def test_equal_giants_are_the_same_tree() -> None:
    assert power(num(4), num(10**9)) == power(num(2), num(2 * 10**9)) == power(num(16), num(5 * 10**8))
    assert power(num(4), num(10**9)) != power(num(2), num(2 * 10**9 + 1))


@pytest.mark.parametrize(
    ("name", "values", "value"),
    [("factorial", [5], 120), ("binom", [5, 2], 10), ("perm", [5, 2], 20), ("gcd", [12, 18], 6), ("lcm", [4, 6], 12),
     ("mod", [7, 4], 3), ("abs", [-3], 3), ("max", [1, 5], 5), ("floor", [Fraction(-5, 2)], -3),
     ("ceil", [Fraction(5, 2)], 3)],
)  # fmt: skip
def test_functions_of_integers(name: str, values: list[int], value: int) -> None:
    assert function(name, *map(num, values)) == num(value)


@pytest.mark.parametrize(
    ("name", "values"), [("factorial", [-1]), ("factorial", [10**6]), ("binom", [2, 5]), ("mod", [1, 0])]
)
def test_functions_without_a_simple_value_are_not_evaluated(name: str, values: list[int]) -> None:
    assert function(name, *map(num, values)).op == "f"


def matrix(*rows: list[int]) -> Expr:
    return Expr("matrix", tuple(Expr("row", tuple(map(num, row))) for row in rows))


def test_matrices() -> None:
    a = matrix([1, 2], [3, 4])
    assert add([a, a]) == mul(num(2), a) == matrix([2, 4], [6, 8])
    assert mul(a, matrix([1], [1])) == matrix([3], [7])
    assert power(a, Expr("sym", name="T")) == matrix([1, 3], [2, 4])
    assert div(a, num(1)) == a
    with pytest.raises(ParseError):
        mul(a, matrix([1, 2, 3]))


def test_set_differences_are_evaluated() -> None:
    reals, zero = Expr("set-name", name=r"\mathbbR"), Expr("set", (ZERO,))
    assert add([reals, neg(zero)]) == Expr(r"\setminus", (reals, zero))


def test_renamed() -> None:
    assert rename_symbol(add([X, ONE]), "x", "y") == add([Expr("sym", name="y"), ONE])


def names_of_nodes(tree: ast.Module) -> Iterator[str]:
    """The names with which code compares an ``op``, by ``in`` or a pattern; mypy checks the other uses."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(ast.Attribute(_, "op"), _, [compared]):
                yield from strings(compared)
            case ast.Compare(compared, _, [ast.Tuple(parts)]) if any(is_op(part) for part in parts):
                yield from strings(compared)
            case ast.Compare(ast.Set(parts), _, [compared]) if any(is_op(part) for part in parts):
                yield from strings(compared)
            case ast.MatchClass(ast.Name("Expr"), [pattern, *_]):
                yield from strings(pattern)


def is_op(node: ast.expr) -> bool:
    """Whether an expression is the ``op`` of a node."""
    return isinstance(node, ast.Attribute) and node.attr == "op"


def strings(node: ast.AST) -> list[str]:
    """The strings in a syntax tree."""
    return [part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def test_code_compares_nodes_with_names_that_exist() -> None:
    sources = sorted(Path(math.__file__).parent.rglob("*.py"))
    names = [name for source in sources for name in names_of_nodes(ast.parse(source.read_text(encoding="utf-8")))]
    assert len(names) > 100
    assert set(names) <= set(get_args(Op))
    assert list(names_of_nodes(ast.parse('a.op in ("tupel", "list")'))) == ["tupel", "list"]
