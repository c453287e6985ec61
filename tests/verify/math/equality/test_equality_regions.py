import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magcli.verify.math.equality.regions import EVERYTHING, Interval, Region, complement, region, same_region
from magcli.verify.math.equality.structure import same
from magcli.verify.math.latex.answers import parse_answer
from magcli.verify.math.latex.tree import num


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("(1,5)", "1<x<5", True),
        ("(1,5)", "5>x>1", True),
        ("]1,5]", "1<x\\le 5", True),
        (r"[1,2]\cup[2,3]", "[1,3]", True),
        (r"[1,2)\cup(2,3]", "[1,3]", False),
        (r"[1,2)\cup(2,3]", r"[1,3]\setminus\{2\}", True),
        (r"(-\infty,1)\cup(1,\infty)", r"x\neq 1", True),
        ("|x|<2", "(-2,2)", True),
        (r"|x|\ge 2", r"x\le -2 \text{ or } x\ge 2", True),
        (r"1\le|z|\le 2", r"[-2,-1]\cup[1,2]", True),
        (r"\{x\mid x>0\}", r"(0,\infty)", True),
        (r"\{x\in\mathbb{R}\mid x\ne 0\}", r"\mathbb{R}\setminus\{0\}", True),
        (r"[0,5]\cap[3,9]", "[3,5]", True),
        (r"[0,\sqrt4]", "[0,2]", True),
        (r"x\in(0,1)", "0<x<1", True),
        ("x>1", "y>1", False),
        ("(1,5)", "[1,5]", False),
        ("x>1, x\\ne 3", r"(1,3)\cup(3,\infty)", True),
    ],
)
def test_regions(a: str, b: str, same: bool) -> None:
    x, y = region(parse_answer(a)), region(parse_answer(b))
    assert x is not None
    assert y is not None
    assert same_region(x, y) == same_region(y, x) == same


@pytest.mark.parametrize("text", ["(2,1)", "(1,2,3)", "x+y>1", "x=1", "5", r"\mathbb{Z}", "(a,b)", "(i,2)"])
def test_not_a_region(text: str) -> None:
    assert region(parse_answer(text)) is None


def test_complement() -> None:
    half = region(parse_answer("x>1"))
    assert half is not None
    assert complement(complement(half.intervals)) == half.intervals
    assert complement(EVERYTHING) == ()


@settings(max_examples=50, deadline=None)
@given(st.integers(-9, 9), st.integers(-9, 9))
def test_and_is_the_intersection_and_or_the_union(low: int, high: int) -> None:
    both, either = (region(parse_answer(f"x > {low} {word} x < {high}")) for word in ("and", "or"))
    assert both is not None
    assert either is not None
    inside = region(parse_answer(f"({low},{high})")) if low < high else Region((), "x")
    assert inside is not None
    assert same_region(both, inside)
    whole = EVERYTHING if low < high else complement((Interval(num(high), True, num(low), True),))
    assert same_region(either, Region(whole, "x"))
    assert not same_region(both, either)


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [
        ("x>1 and y>2", "x>1 or y>2", False),
        ("x>1 or y>2", "y>2 or x>1", True),
        ("x=0 or y=0", "x=0 and y=0", False),
        ("x=1 or x=2", "x=1 and x=2", True),
        ("x<1 and x>3", r"\emptyset", True),
        ("x<1, x>3", "x<1 or x>3", True),
        ("x>1, x<3", "x>1 and x<3", True),
        (r"x\ne1 or x\ne2", r"x\ne1, x\ne2", False),
    ],
)
def test_words_between_relations(a: str, b: str, *, found: bool) -> None:
    assert same(parse_answer(a), parse_answer(b))[0] == same(parse_answer(b), parse_answer(a))[0] == found
