"""Several things asked: labels, blanks, sentences, and what "and" joins where the answer has as many values."""

import pytest

from magcli.curate.math.asks import asks_of
from magcli.curate.math.parts import blanks, labelled_parts, several_parts


def several(statement: str, answer: str) -> str:
    return several_parts(statement, statement.lower(), asks_of(statement), answer)


@pytest.mark.parametrize(
    ("statement", "answer", "parts"),
    [
        ("Find the vertex and the radius.", "$(3,0)$ and $2$", True),
        ("Find the sum and the product of 2 and 3, and add them.", "11", False),
        ("Find the net distance, and find the total distance.", "net: 2, total: 3", True),
        ("Find all multiples of 3 below 9 and determine their sum.", "9", False),
        ("How many boys were there and how much did each pay?", "25 @ 18", True),
        ("Find $x$ and $y$ if $x+y=3$ and $x-y=1$.", "2, 1", False),
        ("When does it land? How high was it?", "10, 500", True),
        ("写出 $a$ 的值和点 $Q$ 的坐标。", "$a=1$, $Q(2,-2)$", True),
        ("求级数 $s$ 的收敛域及和函数．", "$e^x$", True),
        ("求 $f$ 的最大值与最小值之和．", "5", False),
        ("Find all solutions and then list those below 3.", "No solution", True),
        ("Find all solutions and then list those below 3.", "-4", False),
        ("State the domain and range of the relation.", "Not a function", True),
        ("Expand $(x+1)^2$. What is the sum of the coefficients?", "4", False),
        ("Convert 9 to base 2. How many ones are there?", "2", False),
        ("Find the root in the form $\\sqrt{a}-b$. Find $a+b$.", "7", False),
        ("Find $f(2)$. Then find $f(3)$.", "7", True),
        ("Expand $(x+1)^2$. What is the constant? What is the sum?", "4", True),
    ],
)
def test_several_parts(statement: str, answer: str, parts: bool) -> None:
    assert bool(several(statement, answer)) == parts


def test_blanks_side_by_side_are_one() -> None:
    assert blanks("The slope is ____ ____.") == ""
    assert blanks("The slope is ____ and the intercept ____.") == "2 blanks"
    assert blanks("$x=$ \\underline{\\quad}, $y=(\\quad)$") == "2 blanks"
    assert blanks("What is 1?\n<Next Instance>\nWhat is 2?") == "two problems in one"


def test_a_part_that_is_solved_in_the_statement_does_not_count() -> None:
    solved = "Subproblem 0: What is $a$?\nFinal answer: It is 3.\n\nSubproblem 1: What is $b$?"
    assert labelled_parts(solved, solved.lower()) == ""
    open_parts = solved.replace("\nFinal answer: It is 3.", "")
    assert labelled_parts(open_parts, open_parts.lower()) == "Subproblem 0: Subproblem 1:"
