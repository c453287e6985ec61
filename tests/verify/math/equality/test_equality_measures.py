"""Units as bare letters: equal to the same unit in upright type, and to no other power, unit or value."""

from hypothesis import given, settings
from hypothesis import strategies as st

from magcli.verify.math import equal

UNITS = st.sampled_from(["m", "s", "kg", "km", "N", "h", "cm", "J"])
POWERS = st.sampled_from([-2, -1, 1, 2, 3])


def written(unit: str, power: int) -> str:
    return unit if power == 1 else rf"{unit}^{{{power}}}"


def upright(unit: str, power: int) -> str:
    return rf"\text{{ {unit}}}" + ("" if power == 1 else rf"^{{{power}}}")


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 99), UNITS, POWERS, UNITS, POWERS)
def test_bare_letters_are_the_same_unit_only(value: int, unit: str, power: int, other: str, other_power: int) -> None:
    same = (unit, power) == (other, other_power)
    assert equal(rf"{value}\,{written(unit, power)}", rf"{value}{upright(other, other_power)}") == same
    assert not equal(rf"{value}\,{written(unit, power)}", rf"{value + 1}{upright(unit, power)}")


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 99), st.sampled_from(["x", "y", "a", "n", "p"]), UNITS)
def test_other_letters_are_not_units(value: int, letter: str, unit: str) -> None:
    assert not equal(f"{value}{letter}", rf"{value}\text{{ {unit}}}")
    assert not equal(f"{value}{letter}", str(value))
