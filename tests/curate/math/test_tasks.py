"""What a statement asks for: tasks and questions counted, forms and cases passed over."""

import pytest

from magcli.curate.math.tasks import masked, sentences, tasks_of

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
    assert len(tasks_of(statement).values) == 1, tasks_of(statement)


@pytest.mark.parametrize("statement", TWO)
def test_two_tasks(statement: str) -> None:
    assert len(tasks_of(statement).values) == 2, tasks_of(statement)


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
    assert tasks_of(statement).joined == joined


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
    assert bool(tasks_of(statement).several) == several


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
    assert tasks_of(statement).only_reasons == only


def test_an_explanation_that_is_not_required_is_not_a_task() -> None:
    assert tasks_of("你应该回复什么？不要写解释。").reason == ""
    assert tasks_of("这是什么？请解释。").reason == "解释"
    assert tasks_of("他有没有完成任务？为什么？").only_reasons


def test_formulas_do_not_end_a_sentence() -> None:
    assert masked("If $x.5?$ is \\[a. b.\\] then [asy] draw(a. b) [/asy]") == "If Ξ? is Ξ.\n then Ξ"
    assert sentences(masked("Let $P(0. 5)=1.$ Find it, i.e. 3.5 of them. Now?")) == [
        "Let Ξ.", "Find it, i.e.", "3.5 of them.", "Now?"
    ]  # fmt: skip
    assert masked("He paid $5 and $7 for it.") == "He paid $5 and $7 for it."


def test_solved_parts_are_skipped() -> None:
    solved = "Subproblem 0: What is $a$?\nFinal answer: The final answer is 3.\nSubproblem 1: What is $b$?"
    assert len(tasks_of(solved).values) == 1


def test_trigger_words_cover_every_branch_of_a_rule():
    for statement in ("任写两组满足 x+y=5 的整数解.", "请任意写三个大于2的数", "Make up an equation with root 3."):
        assert tasks_of(statement).open_ended
    assert tasks_of("Explain why 2 is prime.").reason
