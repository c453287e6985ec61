"""A chain has a value if its sides agree."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magcli.verify.math import equal
from magcli.verify.math.equality.equations import resolve_chains
from magcli.verify.math.latex.answers import parse_answer

NUMBERS = st.fractions(min_value=-50, max_value=50, max_denominator=12)


@pytest.mark.parametrize(
    "text",
    [
        "5=6=5", r"5\approx 6", "4=5", "x=3=4", r"x=5\approx 6", r"\sqrt2=1.5", r"\sqrt2\approx 1.73",
        r"\sqrt2=\sqrt3=\sqrt2", r"5\text{ cm}=6\text{ cm}=5\text{ cm}", "x=1=2, y=3", r"\pi=\frac{22}{7}",
        r"17.6\approx 17", "5=x=6",
    ],
)  # fmt: skip
def test_sides_that_differ_are_a_contradiction(text: str) -> None:
    assert resolve_chains(parse_answer(text)).op == "raw"
    assert not equal(text, "5")
    assert equal(text, text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x=2+3=5", "5"),
        (r"\sqrt2\approx 1.41", r"\sqrt2"),
        (r"\frac23\approx 0.66", r"\frac23"),
        (r"12345\approx 1.2\times 10^4", "12345"),
        (r"x=\sqrt2\approx 1.4142", r"\sqrt2"),
        (r"\frac14=25\%", "0.25"),
        (r"90^\circ=\frac{\pi}{2}", r"\frac{\pi}{2}"),
        (r"A=bh=12", "12"),
        (r"1\text{ h}=60\text{ min}", r"60\text{ min}"),
        (r"9^{9^{9}}=9^{9^9}", "9^{9^9}"),
    ],
)
def test_sides_that_agree_are_the_value(text: str, value: str) -> None:
    assert equal(text, value)


@settings(max_examples=60, deadline=None)
@given(NUMBERS, NUMBERS, st.sampled_from(["x=", "", "A=bh="]))
def test_a_chain_of_fractions_counts_exactly_where_they_are_equal(a: Fraction, b: Fraction, name: str) -> None:
    text = rf"{name}\frac{{{3 * a.numerator}}}{{{3 * a.denominator}}}=\frac{{{b.numerator}}}{{{b.denominator}}}"
    assert equal(text, str(b)) == (a == b or _rounded(a, b) or _rounded(b, a))


def _rounded(exact: Fraction, other: Fraction) -> bool:
    """Whether a fraction is a decimal that the other one rounds or truncates to."""
    places = next((n for n in range(4) if (other * 10**n).denominator == 1), None)
    if places is None or not other:
        return False
    if not places and other % 10 == 0:
        return abs(exact - other) <= 5
    lost = (exact - other) * 10**places
    return abs(lost) <= Fraction(1, 2) or (places > 0 and 0 <= (lost if other > 0 else -lost) < 1)
