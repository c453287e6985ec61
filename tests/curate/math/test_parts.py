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
        ("What is $x$? It will be of the form $\\frac{a+b\\sqrt{c}}{d}$. Find $a+b+c+d$.", "9", False),
        ("What is $x$? What is $a+b$?", "9", True),
        ("Find the largest $x$ in the form $x=\\frac{a}{d}$. What is $\\frac{ac}{d}$?", "9", False),
        ("Calculate the product of $x+a$ and $x+b$. The value of $a-b$ is ____?", "9", False),
        ("Find all multiples of 22 of the form $5d2e$. What is the maximum value of $d$?", "8", False),
        ("Find all roots. What is the limit of $f$?", "8", True),
        ("Estimate the PEG ratio of a firm that pays 20%. What is the estimated PEG ratio?", "1.15", False),
        ("Find the solutions y of y' = t with y(1) = 1. What is y(2)?", "2.5", False),
        ("Find the area of the square with side 2. What is the area of the circle with radius 1?", "3.14", True),
        ("Find the value of x. What is the value of y?", "3", True),
        ("Find the slope of the line. What is the equation of the line?", "y=2x", True),
        ("求和为多少？ What is the sum?", "5", False),
        ("What is f(1) and f(2)? Answer the two values in a list.", "[0, 0]", True),
        ("分数化简后得 $\\frac{1}{3}$，则分子是 ____．", "1", False),
        ("How many boxes did he eat and how many gums has he left?", "4", True),
        ("Who has read more, and by how much?", "4", True),
        ("What is the difference between how many she has and how many he has?", "4", False),
        ("The coefficient and the degree of $3x^2$ are ____?", "3", True),
        ("The lengths of two sides of a triangle are ____ and a half.", "3", False),
        ("Find the length of each of the following vectors: $u=(3,4), v=(0,1)$.", "$5, 1$", True),
        ("Find the sum of the following vectors: $u=(3,4), v=(0,1)$.", "$(3,5)$", False),
        ("What are the dimensions of the following matrices? $$A, B$$", "$2 \\times 3, 3 \\times 3$", True),
        ("Solve the following equations: $x+y=1, x-y=3$.", "$x=2, y=-1$", False),
        ("Classify and solve them:\n1. $y'=y$\n2. $y'=x$", "$y=ce^x$", True),
        ("Solve the system.\n1. $y+x=1$\n2. $y-x=3$", "$(-1, 2)$", False),
        ("先化简, 再求值: $a(a+1)-a$, 其中 $a=3$.", "$a^2$, 9", True),
        ("先化简, 再求值: $a(a+1)-a$, 其中 $a=3$.", "9", False),
        ("（1）求 $P$；（2）$Q_1$", "{'1': '1/4', '2': '1/3'}", True),
        ("Let $z=2, w=3$. Compute $z+w, z-2w$, and $zw$.", "$z+w=5, z-2 w=-4$, and $zw=6$", True),
        ("Find $x$ and $y$ with $x+y=5$.", "$x=2, y=3$", False),
        ("Find all functions $f$ and $g$ with $f(n)+g(n)=n+1$.", "$f(n)=n, g(n)=1$", False),
        ("Approximate it using 4 rectangles and also using 8 rectangles.", "4 rectangles: 10, 8 rectangles: 11", True),
        ("Is it a sphere? If so, find its radius and center: $x^2+y^2+z^2=1$", "radius: 1, center: $(0,0,0)$", True),
        ("Find all local maximum and minimum points.", "$\\max$ at $-1, \\min$ at 1", False),
        ("Find the maximum and minimum possible number of them.", "1, 2", True),
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
