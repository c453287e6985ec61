"""Several things asked: labels, blanks, sentences, and what "and" joins where the answer has as many values."""

import pytest

from magcli.curate.math.multi_question import blanks, finds_and_proves, labelled_parts, several_parts, told_apart
from magcli.curate.math.tasks import tasks_of


def several(statement: str, answer: str) -> str:
    return several_parts(statement, tasks_of(statement), answer)


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
        ("Find the root in the form $\\sqrt{a}-b$. Find $a+b$.", "7", False),
        ("Find $f(2)$. Then find $f(3)$.", "7", True),
        ("Find the rate of the boat in calm water and the rate of the current.", "20, 4", True),
        ("Find the degree of $g$ given that the degree of $h$ is 8 and the degree of $f$ is 2.", "4", False),
        ("Find the amount of 18 % solution and amount of 9 % solution he should mix.", "16, 20", True),
        ("苹果和梨，哪种水果贵一些，贵多少元？", "12", True),
        ("不知哪种方案好，多少人知道？", "12", False),
        ("求甲、乙两种商品的单价各是多少元？", "20, 50", False),
        ("求该班人数和应分成的组数。", "58, 7", True),
        ("求x和y的值。", "6, 4", False),
        ("若要求每天制作的衬衫和裤子配套，应安排几人？", "10, 12", False),
        ("则该店有客房几间，房客几人？请解答上述问题。", "8, 63", True),
        ("R1和R2并联，R1 = 2。请问：\n 1) 通过R1的电流；\n 2) R2上的电压。", "1) 2 2) 3", True),
        ("合唱部分是谁的作品？它的主题是什么？", "席勒的诗，赞扬勇气、兄弟情谊和自由", True),
        ("当x等于多少时，选择哪家都一样？请说明理由。", "600", False),
        ("剪去这根绳子的((())/(()))，还剩多少米．", "3", True),
        ("剪去3米后，还剩这根绳子的((())/(()))．", "(2/3)", False),
        ("简算．①125*32*25②5*15*25*125*64", "100000", True),
        ("每天多加工4件．问这批零件共有多少个，单独完成还需几天？", "480", True),
        ("任取几粒，小明只要取出几袋就够了，则至少要准备多少个袋子．", "7", False),
        ("What was her rank, and did she qualify for a second round?", "3, yes", True),
        ("Estimate 711 + 497. The sum is between which numbers?", "D", False),
        ("Expand $(x+1)^2$. What is the constant? What is the sum?", "4", True),
        ("Find the minimum of $f$ as well as the values of $x$ at which it is achieved.", "1", True),
        ("Find the chord through the point, as well as the area between it and the curve.", "14", True),
        ("Find the number of circles that touch $a$ as well as $b$.", "14", False),
        ("Find the largest number for which this value is achieved and odd.", "14", False),
        ("Let $c=2$. Find\n(1) the perimeter of $ABC$;\n(2) the area of $ABC$ when $a=1$.", "2", True),
        ("Find\n(A) 2\n(B) 3\n(C) 4", "2", False),
        ("How many weights can be weighed if\n\na) one pan is used;\n\nb) both pans are used", "40", True),
        ("a) Construct the square and join its corners!\n\nb) Determine the area of the region!", "98", True),
        ("Let's calculate the following expressions:\n\n1. $$\\frac{1}{2}$$\n\n2. $$\\frac{2}{3}$$", "0.5", True),
        ("What can $p$ be? List all possible options.", "103", False),
        ("What is $f(2)$?\nWhat is $f(3)$?", "35", True),
        ("You choose 2 of 4 numbers and compute their product. What do you get?", "15", False),
        (
            "Find $a$.\n<details><summary>Clarifications</summary>It read: what is $b$? Find $m+n$.</details>",
            "132",
            False,
        ),
        ("What is $x$? What is $a+b$?", "9", True),
        ("Find the largest $x$ in the form $x=\\frac{a}{d}$. What is $\\frac{ac}{d}$?", "9", False),
        ("Calculate the product of $x+a$ and $x+b$. The value of $a-b$ is ____?", "9", False),
        ("Find all roots. What is the limit of $f$?", "8", True),
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
        ("Find $x$ and $y$ with $x+y=5$.", "$x=2, y=3$", False),
        ("Find all functions $f$ and $g$ with $f(n)+g(n)=n+1$.", "$f(n)=n, g(n)=1$", False),
        ("Approximate it using 4 rectangles and also using 8 rectangles.", "4 rectangles: 10, 8 rectangles: 11", True),
        ("Is it a sphere? If so, find its radius and center: $x^2+y^2+z^2=1$", "radius: 1, center: $(0,0,0)$", True),
        ("Find all local maximum and minimum points.", "$\\max$ at $-1, \\min$ at 1", False),
        ("Find the maximum and minimum possible number of them.", "1, 2", True),
        ("Find both the net height and the total height for $0 \\leq t \\leq 9$.", "0,245", True),
        ("Find both the x and the y coordinates of the point $P$.", "(3, 4)", False),
        ("Answer the questions: Is 4 even? Is 4 prime?", "Yes", True),
        ("Find the probability that she wins $0,1$, and 2 games.", ".2, .3, .5", True),
        ("Find the mass and weight of the water in the tub.", "5.9", True),
        ("Calculate the stress in the beam and the total force on each wall.", "2", True),
        ("What is the mean of the median and the mode of 1, 2, 2?", "2", False),
        ("Find its length and width.", "3 by 4", False),
        ("Find the normal plane, the tangent line, and the curvature at $t=0$.", "2", True),
        ("Find the sum of the mean, the median, and the mode of 1, 2, 2.", "6", False),
        ("How long does one swing take, and what is the frequency?", "4.2", True),
        ("Solve $x+y=5$. What is the largest prime below 30?", "29", True),
        ("What is the cost? What is the resulting loss?", "12", True),
        ("What is twice 3? (a) 5 (b) 6. Which option is correct?", "(b)", False),
        ("甲有8个，求乙的个数．下面列式中正确的有（ ）个？", "2", False),
        ("What is $\\frac ab$? 求 $\\frac ab$？", "3", False),
        ("What is the difference between a comet and a meteor?", "A comet is a body of ice that orbits a star.", False),
        ("Describe the causes and effects of drought", "Drought is caused by a lack of rain over a long time.", False),
        ("Find the sum of the numbers: 1) the first prime, 2) the second prime.", "5", False),
        ("Solve the following equations:\n\n$$\nx+y=2\n$$\n\n$$\nx-y=0\n$$", "(1,1)", False),
        ("$1 \\mathrm{~m}=\\ldots \\mathrm{cm}$", "100", False),
        ("Name the roots of $x^2=1$. What are they for?", "They are the numbers which the curve meets.", True),
    ],
)
def test_several_parts(statement: str, answer: str, parts: bool) -> None:
    assert bool(several(statement, answer)) == parts


def test_adjacent_blanks_count_as_one() -> None:
    assert blanks("The slope is ____ ____.") == ""
    assert blanks("The slope is ____ and the intercept ____.") == "2 blanks"
    assert blanks("$x=$ \\underline{\\quad}, $y=(\\quad)$") == "2 blanks"
    assert blanks("甲有 ____ 元、乙有 ____ 元") == "2 blanks"
    assert blanks("分别是____元、____元") == "2 blanks"


@pytest.mark.parametrize(
    ("statement", "labels", "finds"),
    [
        ("(I) 求 $a$;\n( II ) 证明: $f(x)>1$.", 2, True),
        ("已知 $a=1$．\n（I ) 求 $f$;\n（II ）若 $b=2$, 求 $g$ 的最大值.", 2, True),
        ("(1) 求 $E$;\n(2) 设 $P$ 在 $\\frac{" + "x" * 200 + "}{2}$ 上. 证明: $P$ 在 $E$ 上.", 2, True),
        ("(1) 求 $E$;\n\n(2) 设 $P$ 与\n\n$Q$ 在 $E$ 上, 求 $|PQ|$.", 2, True),
        ("(I) 证明 $a_n$ 是等比数列, 并求 $a_n$;\n(II) 证明: $S_n<2$.", 2, True),
        ("(1) 讨论 $f$ 的单调性, 并证明 $f>0$;\n(2) 证明: $g>0$.", 2, True),
        ("(1) 求证: $a>0$;\n(2) 证明: $b>0$.", 2, False),
        ("(a) Prove that it is even and find its period. (b) Prove that it is bounded.", 2, True),
        ("Let $f(b)=2$ and $f(a)=(b)$. Find $f(c)$.", 0, False),
    ],
)
def test_labelled_parts(statement: str, labels: int, finds: bool) -> None:
    found = labelled_parts(statement)
    assert found.count(")") + found.count("）") == labels, found
    assert bool(finds_and_proves(statement)) == finds


@pytest.mark.parametrize(
    ("question", "values", "apart"),
    [
        ("How many terms and variables does it have?", "3, 3", True),
        ("How many cats are left and what color are they?", "1, white", True),
        ("What is the x-intercept and the y-intercept of the graph?", "3 and 4", True),
        ("How many cats and dogs does she have?", "7", False),
        ("The two numbers are", "3 and 4", False),
    ],
)
def test_values_that_answer_separate_questions_are_recognised(question: str, values: str, apart: bool) -> None:
    assert bool(told_apart(question, values)) == apart
