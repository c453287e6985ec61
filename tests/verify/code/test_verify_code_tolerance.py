"""The tolerance of decimals on stdout, inferred from the expected outputs and the statement."""

import pytest

from magcli.verify.code.outputs import comparison, difference, infer_comparison
from magcli.verify.code.tolerance import stated_tolerance

ROUNDED = [("1", "0.33\n"), ("2", "12.50\n"), ("3", "1.67\n")]


def right(name: str, expected: str, given: str) -> bool:
    return difference(expected.encode(), given.encode(), comparison(name)) is None


@pytest.mark.parametrize(
    ("outputs", "statement", "name"),
    [
        (["0.333333333333", "0.5"], "", "floats:1e-06"),
        (["0.3333", "0.5000"], "The absolute or relative error must be at most $10^{-4}$.", "floats:0.0001"),
        (["0.33", "0.50"], "Your answer may differ from ours by at most 1e-9.", "floats:0.005"),
        (["0.33", "0.50", "7.25"], "", "decimals:2"),
        (["0.33", "0.50", "7.25"], "Print exactly two decimals.", "tokens"),
        (["0.33", "0.5", "7.2"], "", "tokens"),
        (["1 2 3", "10"], "The error must be at most 10^-6.", "tokens"),
    ],
)
def test_the_comparison_of_decimals(outputs: list[str], statement: str, name: str) -> None:
    assert infer_comparison([("1", output) for output in outputs], statement) == name


@pytest.mark.parametrize(
    ("statement", "tolerance"),
    [
        ("Its error should not exceed 10^{-6}.", 1e-6),
        ("with precision 1e-4", 1e-4),
        ("an error of at most 0.001 is fine", 1e-3),
        ("accurate to 10<sup>-5</sup>", 1e-5),
        ("relative error not exceed 10 - 9", 1e-9),
        ("1 ≤ n ≤ 10^-6", None),
        ("", None),
    ],
)
def test_stated_tolerances(statement: str, tolerance: float | None) -> None:
    assert stated_tolerance(statement) == tolerance


def test_rounded_decimals_may_be_off_by_half_a_unit_but_integers_are_exact() -> None:
    name = infer_comparison(ROUNDED)
    assert right(name, "0.33", "0.3333333")
    assert right(name, "12345.67", "12345.674")
    assert not right(name, "0.33", "0.34")
    assert not right(name, "12345.67", "12346.67")
    assert not right(name, "7", "8")
    assert not right("floats:1e-6", "1000000", "1000001")
