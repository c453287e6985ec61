import pytest

from magcli.verify.math.equality.identity import NUM_POINTS, rounds_to, same_value, sample_points, symbols
from magcli.verify.math.latex.answers import parse_answer


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("(x+1)^2", "x^2+2x+1", True),
        (r"\sin 2x", r"2\sin x\cos x", True),
        (r"\sqrt{x^2}", "|x|", True),
        (r"\sqrt{x^2}", "x", False),
        (r"2\ln x", r"\ln x^2", True),
        (r"\ln|x|", r"\ln x", False),
        (r"\frac{n!}{(n-1)!}", "n", True),
        (r"\sum_{k=1}^{n} k^3", r"\frac{n^2(n+1)^2}{4}", True),
        ("(-1)^{2n}", "1", True),
        (r"\sqrt{2}+\sqrt{3}", r"\sqrt{5+2\sqrt{6}}", True),
        (r"e^{\pi\sqrt{163}}", "262537412640768744", False),
        (r"\frac{1}{2^{99}}", r"\frac{1}{2^{98}}", False),
        ("x", "y", False),
        (r"\infty", r"-\infty", False),
        ("2^{10^8}+1", "2^{10^8}", None),
        (r"5\text{ cm}", "x", None),
    ],
)
def test_values_at_points_decide(a: str, b: str, same: bool | None) -> None:
    assert same_value(parse_answer(a), parse_answer(b)) is same_value(parse_answer(b), parse_answer(a)) is same


@pytest.mark.parametrize(
    ("decimal", "exact", "rounds"),
    [
        ("0.3333333333", r"\frac13", True),
        ("0.333333", r"\frac13", False),
        ("0.3333333334", r"\frac13", True),
        ("0.3333333343", r"\frac13", False),
        ("1.41421356237", r"\sqrt2", True),
        ("0.9999999999", "1", False),
        ("0.1234567890", "0.1234567891", False),
    ],
)
def test_long_decimals_round_infinite_expansions(decimal: str, exact: str, rounds: bool) -> None:
    assert rounds_to(parse_answer(decimal), parse_answer(exact)) is rounds


def test_symbols_of_sums_are_bound() -> None:
    assert symbols(parse_answer(r"\sum_{k=1}^{n} kx")) == {"n", "x"}


def test_points_are_always_the_same_and_of_both_signs() -> None:
    names = frozenset("xy")
    found = list(sample_points(names, frozenset()))
    assert found == list(sample_points(names, frozenset()))
    assert len(found) == NUM_POINTS
    assert min(p["x"] for p in found) < 0 < min(found[0].values())
    assert all(p["x"].denominator == 1 < p["x"] for p in sample_points(names, names))
    assert list(sample_points(frozenset(), frozenset())) == [{}]
