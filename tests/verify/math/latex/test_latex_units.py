import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.verify.math.latex.units import compatible, is_unit, unit_name


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("Square Centimeters", "centimeter^2"),
        ("cm ^2", "centimeter^2"),
        ("cubic feet", "foot^3"),
        ("miles per hour", "mile/hour"),
        ("mph", "mile/hour"),
        ("m / s ^2", "meter/second^2"),
        ("kilograms", "kilogram"),
        ("people", "person"),
        ("square units", ""),
        ("the apples", "apple"),
        ("percent", "percent"),
    ],
)
def test_names_of_units(words: str, name: str) -> None:
    assert unit_name(words) == name


def test_known_units() -> None:
    assert is_unit("cm")
    assert is_unit("Hours")
    assert not is_unit("xyz")


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("meter", "meter", True),
        ("", "meter", True),
        ("meter", "kilometer", False),
        ("distinct integer", "integer", True),
        ("apple", "orange", False),
        ("meter", "meter^2", False),
    ],
)
def test_compatible_units(a: str, b: str, same: bool) -> None:
    assert compatible(a, b) == compatible(b, a) == same


@given(st.permutations(["km", "h^-1", "kg", "s^-2"]))
def test_the_order_of_a_product_of_units_does_not_matter(parts: list[str]) -> None:
    assert unit_name(" ".join(parts)) == "kilogram·kilometer/hour/second^2"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("km h^-1", "kilometer/hour"),
        ("J/(mol K)", "joule/kelvin/mole"),
        ("m/s/s", "meter/second^2"),
        ("feet per second squared", "foot/second^2"),
        ("s^-1", "second^-1"),
        ("degrees Celsius", "celsius"),
        ("per cent", "percent"),
        ("meters meters", "meter^2"),
    ],
)
def test_products_and_powers_of_units(words: str, name: str) -> None:
    assert unit_name(words) == name
