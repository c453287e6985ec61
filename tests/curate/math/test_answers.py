"""Ground truths: values, prose and broken notation."""

import pytest

from magcli.curate.math.answers import broken, parts_of, prose, several_values, unsolvable, worded

PROSE = [
    "The object weighs four times as much.", "They are the same.", "15% of 500 is 75.", "Any $h$ will work.",
    "$3(2^5)-3=93$ (we subtract 3 because three colours are counted twice)", "$f(y)$ equals $2y$ and otherwise 0",
    "local min. $(1,1)$; local max. $(-1,-1)$", "$\\max$ at $-1, \\min$ at 1", "concave up on $(0,1)$",
    "radius: 5, center: $(1,1)$", "Yes, since $u \\cdot v=0$", "answers may vary",
    "总价格为：12.50 + 3.50 = 16.00美元。",
    "10比9大。", "因此 $x=2$", "x + 1 = 3\nx = 2", "$x=1$. So the area is 9.",
]  # fmt: skip
VALUES = [
    "7", "-3.5", "About 30.12 miles per hour", "5 square units", "$x=3$ or $x=5$", "no solution", "does not exist",
    "All real numbers", "converges", "Yes",
    "$\\begin{cases} 1 & \\text{if } x>0 \\\\ 0 & \\text{otherwise}\\end{cases}$",
    "\\text{Friday}", "1 hour and 24 minutes", "3个。", "x \\ge 3", "$c_1 e^{x}+c_2$", "\\frac{1}{2}", "4:30",
]  # fmt: skip


@pytest.mark.parametrize("answer", PROSE)
def test_prose(answer: str) -> None:
    assert prose(answer)


@pytest.mark.parametrize("answer", VALUES)
def test_values(answer: str) -> None:
    assert not prose(answer)
    assert not broken(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "\\frac{1}{2",
        "$x",
        "(1,2",
        "25 @ 18",
        "x=",
        "2,,3",
        "n>8:(-1), \\bigcup(8, 9)",
        "a\ufffdb",
        "(1))",
        "frac{1}{2}",
    ],
)
def test_broken(answer: str) -> None:
    assert broken(answer)


@pytest.mark.parametrize(
    "answer", ["[0,1)", "]0,1]", "\\{1,2\\}", "\\$5.50", "$\\left\\{1\\right.$", "(1,2],[3,4)", "5!"]
)
def test_whole(answer: str) -> None:
    assert not broken(answer)


@pytest.mark.parametrize(
    ("answer", "count"),
    [("7", 1), ("1,000", 1), ("(1,2)", 1), ("3, 5", 2), ("$0.05$ and $0.6$", 2), ("a; b; c", 3), ("[1;2]", 1), ("", 0)],
)
def test_parts(answer: str, count: int) -> None:
    assert parts_of(answer) == count


def test_values_of_different_questions() -> None:
    assert several_values("$(3,0)$; $\\sqrt{3}$")
    assert several_values("{'a': 1, 'b': 2}")
    assert not several_values("(1;2)")


def test_words_and_what_a_problem_lacks() -> None:
    assert worded("$A$ maps onto $B$ everywhere")
    assert not worded("\\frac{a}{b}^^2")
    assert unsolvable("Unfortunately, the angle cannot be determined without more information.")
    assert not unsolvable("7")
