import pytest

from magcli.verify.latex.units import compatible, is_unit, unit_name


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
