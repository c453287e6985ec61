"""What a program returns cannot make the judge compute for long: numbers are charged for their size."""

import ast
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from magcli.verify.code.expressions import value_of
from magcli.verify.code.methods import Budget, Unsupported


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("sum(V)", [Fraction(1, 2**1000 + 2 * i + 1) for i in range(4000)]),
        ("[int(v) for v in V]", [Decimal("1E4999")] * 150_000),
        ("math.prod(V)", ["a", 10**6, 1500]),
        ("math.prod(V, start='a')", [10**9]),
        ("sorted(V)", [Fraction(2**140_000 + i, 2**139_999 + 3 * i + 1) for i in range(200)]),
        ("math.lcm(*V)", [2**4000 + i for i in range(3000)]),
        ("[x * y for x in V for y in V]", [Fraction(2**10_000 + i, 3**6000) for i in range(300)]),
        ("V[0] ** V[1]", [Fraction(3, 2), 10**7]),
    ],
)
def test_expensive_expressions_are_refused(expression: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"Unsupported|numbers only"):
        value_of(ast.parse(expression, mode="eval").body, {"V": value})


def test_usual_numbers_are_computed() -> None:
    values = {"V": [Fraction(1, 3), Decimal("2.5"), 7]}
    assert value_of(ast.parse("float(V[0]) + float(V[1]) + V[2]", mode="eval").body, values) == pytest.approx(9.8333333)
    assert value_of(ast.parse("math.prod([V[2], 6])", mode="eval").body, values) == 42


def test_a_clock_ends_what_the_budget_underestimates() -> None:
    budget = Budget(work=1 << 60, seconds=0.0)
    with pytest.raises(Unsupported):
        spend_often(budget)


def spend_often(budget: Budget) -> None:
    for _ in range(10_000):
        budget.spend(1)
