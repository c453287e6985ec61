"""What a statement asks for: tasks and questions counted, forms and cases passed over."""

import pytest

from magcli.curate.math.tasks import (
    find_tasks,
    has_part_without_proof,
    labelled_parts,
    mask_formulas,
    separate_answers,
    several_blanks,
    several_questions,
    split_sentences,
)

ONE = [
    "What is $x$?",
    "Find $x$. Express your answer as a fraction in lowest terms.",
    "How many are left? Round to the nearest whole number.",
    "Solve the following problem. How far does it go?",
    "List the roots in increasing order, separated by commas. What are the roots of $x^2=1$?",
    "If $x=1$, find $y$.",
    "Let $f(x)=\\frac{1}{x}.$ Find $f(2).$",
    'He asked, "Why not?" and left. How many were left?',
    "Find $A^{-1}$ if possible. If it does not exist, explain why.",
    "Write an equation and find the number.",
    "Find $a$. Sketch the resulting situation.",
    "She needs to find 3 more. How many has she?",
    "Compute the area. (Hint: what is the base?)",
    "Is the series convergent? If it is, what is its sum?",
    "Find the ratio. That is, find $m/n$.",
    "Find $x$ and list them from least to greatest.",
    "Find the ratio of the areas. Express the ratio as a decimal rounded to the nearest tenth.",
    "Solve for $x$. Give all possible values of $x$.",
    "A zoo has 21 penguins and 4 bears? How many animals are there?",
    "Find the no. of ways to choose 2 of them.",
    "He lost a number, what should he do? Can you find it? It should be ____?",
    "Solve the math problem. A pole is 9 m high. How long is its shadow?",
    "Use the rule to estimate the mass. Specifically, find $m$.",
    "What is the area? Express the area in the form $a-b\\pi$.",
    "Find the intercept. Express the $x$ and $y$ coordinates as common fractions.",
    "Their recipe, which makes 15 cookies, list these items: 3 eggs. How many eggs are needed?",
    "If your answer is yes, determine its quantum number. Else, what is $n$?",
    "Is it possible to find $k$? If so, what should $k$ equal?",
    "What should replace the question mark (?) in each of these rows?",
    "Each player may take 3 balls and find their sum. What is the largest sum?",
    "If $p$ is measured, we can infer $q$ and hence determine $r$. Evaluate $r$.",
    "Each guest will taste two cups and then identify one. How many are right?",
    "求 $x$ 的值。（结果保留两位小数）",
    "小明有3个苹果，一共有多少个？",
    "他问：“一共有几个人？”答：“比10多3。”请问有多少人？",
    "化简一个分数时，用2约了三次，得三分之二．原来的分数是多少？",
    "What number makes 35 / ? = 7 true?",
    'Summarise it.\n"""\nWhy so? Who knows?\n"""\nHow many words does it have?',
]
TWO = [
    "When does it land? How high was it?",
    "Find the rate of the tip. Find the rate of the shadow.",
    "What is the mean? What is its variance?",
    "Express $u$ in terms of $v$. If $v=2$, find the maximum of $u$.",
    "For each: \n- Find $k$.\n- Determine how long it takes.",
    "How much does it weigh in grams? in pounds?",
    "Find a function $D$. Use this to find the point.",
    "Find the smallest number of pieces. Answer whether one of them may be a square.",
    "Use the method to find a basis. Then find another basis.",
    "Suppose so of team B. Determine its mean. What is its variance?",
    "求 $a$ 的值；求 $b$ 的值。",
    "\\begin{enumerate}\\item How many are red? \\item How many are blue?\\end{enumerate}",
    "如何定价才能使利润最大？并求出其最大值。",
    "求 $a$. 顶点为 P.直接写出它的坐标.",
]


@pytest.mark.parametrize("statement", ONE)
def test_one_task(statement: str) -> None:
    assert len(find_tasks(statement).sentences) == 1, find_tasks(statement)


@pytest.mark.parametrize("statement", TWO)
def test_two_tasks(statement: str) -> None:
    assert len(find_tasks(statement).sentences) == 2, find_tasks(statement)


@pytest.mark.parametrize(
    ("statement", "joined"),
    [
        ("Find the net distance, and find the total distance.", 1),
        ("Find the sum and the product.", 0),
        ("Assess the claim by computing $p$ and compute an interval.", 1),
        ("Determine whether it converges and if so, find its sum.", 0),
    ],
)
def test_tasks_in_one_sentence(statement: str, joined: int) -> None:
    assert find_tasks(statement).extra == joined


@pytest.mark.parametrize(
    ("statement", "several"),
    [
        ("Find the centre and the radius of the circle.", True),
        ("Find $V(X)$ and $D(X)$.", True),
        ("Determine the values of $T(10), T(11)$ and $T(12)$.", True),
        ("Determine the values of $\\alpha$ and $\\beta$.", False),
        ("求函数的凹凸性及渐近线。", True),
        ("Find the distance $d$ between the points and the midpoint $M$ of them.", True),
        ("Find both the net distance and the total distance.", True),
        ("Find the series centered at $a$ and the radius of convergence.", True),
        ("Find the exact value of the cosine and sine of it.", True),
        ("Find the number of nickels and dimes.", False),
        ("Find the measures of the second and third angles.", False),
        ("Determine the values of $w$ and $d$ if points are awarded.", False),
        ("Find $m$ and $n$.", False),
        ("Determine the angles $\\angle BEA_{1}$ and $\\angle AEB_{1}$.", True),
        ("Find the lengths of $BP$ and $QT$.", True),
        ("What are $\\Delta y$ and $d y$ ?", True),
        ("If it has roots $n_1$ and $n_2$, find $n_1$ and $n_2$.", False),
        ("Find the sum of $a$ and $b$.", False),
        ("Solve the inequality and give interval notation.", False),
    ],
)
def test_several_objects(statement: str, several: bool) -> None:
    assert bool(find_tasks(statement).objects) == several


@pytest.mark.parametrize(
    ("statement", "only"),
    [
        ("Explain why the series diverges.", True),
        ("Is $M$ a subspace? Justify your answer.", True),
        ("Does it follow that $B=C$? Why or why not?", True),
        ("Discuss whether the model fits.", True),
        ("Each of team A is taller than one of team B. Does it follow that $a>b$? Why or why not?", True),
        ("Find $n$, and discuss it with your classmates.", False),
        ("Find all $n$. Explain how you got your answer.", False),
        ("Is $x>1$?", False),
        ("Compute the limit. If it does not exist, explain why.", False),
        ("Which is it? Give your reasoning for this conclusion.", False),
        ("Give your reasoning for this conclusion.", True),
        ("Is it even? Hint: You can add the sums. Why?", False),
        ("Tell me why the sum is even.", True),
        ("Rewrite the joke for children.\nWhy did the hen cross the road?", False),
    ],
)
def test_only_reasons(statement: str, only: bool) -> None:
    assert find_tasks(statement).only_reasons == only


def test_an_explanation_that_is_not_required_is_not_a_task() -> None:
    assert find_tasks("你应该回复什么？不要写解释。").reason == ""
    assert find_tasks("这是什么？请解释。").reason == "解释"
    assert find_tasks("他有没有完成任务？为什么？").only_reasons


def test_formulas_do_not_end_a_sentence() -> None:
    assert mask_formulas("If $x.5?$ is \\[a. b.\\] then [asy] draw(a. b) [/asy]") == "If Ξ? is Ξ.\n then Ξ"
    assert split_sentences(mask_formulas("Let $P(0. 5)=1.$ Find it, i.e. 3.5 of them. Now?")) == [
        "Let Ξ.", "Find it, i.e.", "3.5 of them.", "Now?"
    ]  # fmt: skip
    assert mask_formulas("He paid $5 and $7 for it.") == "He paid $5 and $7 for it."


def test_solved_parts_are_skipped() -> None:
    solved = "Subproblem 0: What is $a$?\nFinal answer: The final answer is 3.\nSubproblem 1: What is $b$?"
    assert len(find_tasks(solved).sentences) == 1


def test_trigger_words_cover_every_branch_of_a_rule():
    for statement in ("任写两组满足 x+y=5 的整数解.", "请任意写三个大于2的数", "Make up an equation with root 3."):
        assert find_tasks(statement).open_ended
    assert find_tasks("Explain why 2 is prime.").reason


def several(statement: str, answer: str) -> str:
    return several_questions(statement, find_tasks(statement), answer)


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
    assert several_blanks("The slope is ____ ____.") == ""
    assert several_blanks("The slope is ____ and the intercept ____.") == "2 blanks"
    assert several_blanks("$x=$ \\underline{\\quad}, $y=(\\quad)$") == "2 blanks"
    assert several_blanks("甲有 ____ 元、乙有 ____ 元") == "2 blanks"
    assert several_blanks("分别是____元、____元") == "2 blanks"


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
    assert bool(has_part_without_proof(statement)) == finds


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
    assert bool(separate_answers(question, values)) == apart
