import pytest

from magcli.verify.math.equality.equations import constant_ratio, is_name, same_equation, same_inequality, same_name
from magcli.verify.math.equality.parameters import expand_signs
from magcli.verify.math.latex.answers import parse_answer


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("2x+4y=6", "x+2y=3", True),
        ("y=3x-1", "3x-y=1", True),
        ("x^2=4", "x^2=5", False),
        ("xy=1", "y=1/x", False),
        ("x=1", "y=1", False),
        (r"\frac{x}{2}+\frac{y}{3}=1", "3x+2y=6", True),
    ],
)
def test_equations(a: str, b: str, same: bool) -> None:
    assert same_equation(parse_answer(a), parse_answer(b)) == same_equation(parse_answer(b), parse_answer(a)) == same


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("2x+2y<4", "2>x+y", True),
        ("x+y<2", r"x+y\le2", False),
        ("-x-y<2", "x+y>-2", True),
        ("-x-y<2", "x+y<-2", False),
        ("a<b<c", "c>b>a", True),
        ("a<b<c", "a<c<b", False),
        (r"x+y\ne 1", r"1\ne y+x", True),
    ],
)
def test_inequalities(a: str, b: str, same: bool) -> None:
    assert (
        same_inequality(parse_answer(a), parse_answer(b)) == same_inequality(parse_answer(b), parse_answer(a)) == same
    )


def test_constant_ratio() -> None:
    assert constant_ratio(parse_answer("6x+3y"), parse_answer("2x+y")) == pytest.approx(3)
    assert constant_ratio(parse_answer("x"), parse_answer("x^2")) is None
    assert constant_ratio(parse_answer("5"), parse_answer("3")) is None


@pytest.mark.parametrize(
    "text", ["x", "x_1", "f(x)", "AB", "P(A)", r"\angle ABC", r"\frac{AB}{CD}", "|AB|", "(x,y)", r"\sin\theta"]
)
def test_names(text: str) -> None:
    assert is_name(parse_answer(text))


@pytest.mark.parametrize("text", ["2x", "x+1", "x^2", "xyz+1", "5", "(x,1)"])
def test_no_names(text: str) -> None:
    assert not is_name(parse_answer(text))


def test_arguments_of_functions_are_renamed() -> None:
    found = same_name(parse_answer("f(x)=x+1"), parse_answer("f(t)=t+1"))
    assert found is not None
    assert found[0] == found[1]
    assert same_name(parse_answer("f(x)=x"), parse_answer("g(x)=x")) is None
    assert same_name(parse_answer("x=1"), parse_answer("y=1")) is None


def test_signs_are_written_out() -> None:
    assert expand_signs(parse_answer(r"\pm 2")) == parse_answer("2, -2")
    assert expand_signs(parse_answer(r"0, \pm 1")) == parse_answer("0, 1, -1")
    assert expand_signs(parse_answer(r"1\pm 2\mp 3")) == parse_answer("0, 2")
    assert expand_signs(parse_answer("(x,y)=(1,2)")) == parse_answer("x=1, y=2")
    assert expand_signs(parse_answer("5")) == parse_answer("5")
