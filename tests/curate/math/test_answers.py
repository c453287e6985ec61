"""Ground truths: values, prose and broken notation."""

import pytest

from magcli.curate.math.answers import (
    count_values,
    has_separate_values,
    has_words,
    is_damaged,
    is_prose,
    plain_value,
    right_hand_side,
    says_nothing,
    unsolvable,
    without_label,
)

PROSE = [
    "The object weighs four times as much.", "They are the same.", "15% of 500 is 75.", "Any $h$ will work.",
    "$3(2^5)-3=93$ (we subtract 3 because three colours are counted twice)", "$f(y)$ equals $2y$ and otherwise 0",
    "local min. $(1,1)$; local max. $(-1,-1)$", "$\\max$ at $-1, \\min$ at 1", "concave up on $(0,1)$",
    "radius: 5, center: $(1,1)$", "Yes, since $u \\cdot v=0$", "answers may vary",
    "总价格为：12.50 + 3.50 = 16.00美元。", "Westford location", "The first rest stop", "the harmonic series",
    "$\\cos(x)=-2$ never happens", "width $=$ height $=10$", "\\max .\\left(1, 2\\right)",
    "10比9大。", "因此 $x=2$", "x + 1 = 3\nx = 2", "$x=1$. So the area is 9.",
]  # fmt: skip
VALUES = [
    "7", "-3.5", "About 30.12 miles per hour", "5 square units", "$x=3$ or $x=5$", "no solution", "does not exist",
    "All real numbers", "converges", "Yes",
    "$\\begin{cases} 1 & \\text{if } x>0 \\\\ 0 & \\text{otherwise}\\end{cases}$",
    "\\text{Friday}", "1 hour and 24 minutes", "3个。", "x \\ge 3", "$c_1 e^{x}+c_2$", "\\frac{1}{2}", "4:30",
    "All real numbers.", "No solution : $\\oslash$", "not a function", "$f(x)=1$ if $x>0$", "质数。", "Quadrant I",
    "Exactly one", "Mrs. Hilt", "P-value $=0.014$", "converges absolutely", "Infinite number of solutions",
    "\\max(1, 2)",
]  # fmt: skip


@pytest.mark.parametrize("answer", PROSE)
def test_prose(answer: str) -> None:
    assert is_prose(answer)


@pytest.mark.parametrize("answer", VALUES)
def test_values(answer: str) -> None:
    assert not is_prose(answer)
    assert not is_damaged(answer)


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
        "7 3.5",
        "$x^{4 n} /(2 n)$ !",
        "$615 \\mathbb{C}$",
        "$10 \\mathrm{ft} x 18 \\mathrm{ft}$",
        "$145$solution:",
        "$t(0,4]$",
        "$b_{0}=2 a_{2}-a_{0} b_{n}=n$",
        "$\\propto$ solutions",
    ],
)
def test_broken(answer: str) -> None:
    assert is_damaged(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "[0,1)",
        "]0,1]",
        "\\{1,2\\}",
        "\\$5.50",
        "$\\left\\{1\\right.$",
        "(1,2],[3,4)",
        "5!",
        "1 000",
        "3 1/2",
        "x \\in (0,4]",
        "(0,1) U [2,3)",
        "x_{1}=2, x_{2}=4",
        "y=kx, y \\propto x",
        "f(1,2)",
    ],
)
def test_whole(answer: str) -> None:
    assert not is_damaged(answer)


@pytest.mark.parametrize(
    ("answer", "count"),
    [("7", 1), ("1,000", 1), ("(1,2)", 1), ("3, 5", 2), ("$0.05$ and $0.6$", 2), ("a; b; c", 3), ("[1;2]", 1), ("", 0)],
)
def test_parts(answer: str, count: int) -> None:
    assert count_values(answer) == count


def test_values_that_answer_different_questions() -> None:
    assert has_separate_values("$(3,0)$; $\\sqrt{3}$")
    assert has_separate_values("{'a': 1, 'b': 2}")
    assert not has_separate_values("(1;2)")
    assert not has_separate_values("$y=3x$; $y \\equiv 1$")


def test_words_that_say_what_a_problem_lacks() -> None:
    assert has_words("$A$ maps onto $B$ everywhere")
    assert not has_words("\\frac{a}{b}^^2")
    assert unsolvable("Unfortunately, the angle cannot be determined without more information.")
    assert not unsolvable("7")


@pytest.mark.parametrize(
    ("answer", "lacks"),
    [
        ("I'm sorry, but I have no access to the prices of that month.", True),
        ("I'm sorry, but my train has been late today, and I will come at ten.", False),
        ("I'm sorry, but I am unable to draw a chart. A table may help.", False),
        ("抱歉，您没有给出任何数据。", True),
        ("很抱歉，我不能直接生成图表，但可以给您一张清单。", False),
        ("很抱歉，这取决于个人喜好。", False),
        (
            "Customer: My order has not come. "
            + "It was to be here on Monday. " * 8
            + "Agent: Please provide its number.",
            False,
        ),
    ],
)
def test_only_a_leading_complaint_says_what_is_missing(answer: str, lacks: bool) -> None:
    assert bool(unsolvable(answer)) == lacks


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("Solution is: $[x=1, y=2]$.", "[x=1, y=2]"),
        ("The general solution is: $x=2t$", "x=2t"),
        ("$(2t, t)$ for all real numbers $t$", "(2t, t)"),
        ("$x=2 \\pi k$ for any integer $k$.", "x=2 \\pi k"),
        ("$y=2 t+C, C$ 为任意常数．", "y=2 t+C"),
        ("$y=ax+b$，其中 $a, b$ 为任意实数", "y=ax+b"),
        ("After 12 minutes", "12 minutes"),
        ("Rs. 800", "800"),
        ("$45^{\\circ} \\quad", "45^{\\circ}"),
        ("$3,$8$", "3,8"),
    ],
)
def test_plain_values(answer: str, value: str) -> None:
    assert plain_value(answer) == value


@pytest.mark.parametrize("answer", ["$x=3$", "5 square units", "\\$5", "$a$ and $b$", "after all", "x^2"])
def test_plain_text_is_unchanged(answer: str) -> None:
    assert without_label(answer) == plain_value(answer) == answer


def test_a_label_before_prose_leaves_prose() -> None:
    assert is_prose(without_label("Solution is: $[x=1]$, a basis for the space is $(1,2)$"))


def test_the_right_side_of_an_equation_that_repeats_the_question() -> None:
    prompt = "Find $u \\cdot v$."
    assert right_hand_side("$u\\cdot v=1+16=17$", prompt) == "17"
    assert right_hand_side("$u\\times w=17$", prompt) == ""
    assert right_hand_side("$u\\cdot v=17, w=3$", prompt) == ""
    assert right_hand_side("17", prompt) == ""


def test_negations() -> None:
    assert says_nothing("No solution.")
    assert says_nothing("not a function")
    assert says_nothing("无解")
    assert not says_nothing("no")
    assert not says_nothing("$x=3$")


def test_an_apology_means_that_something_is_missing() -> None:
    assert unsolvable("很抱歉，我不知道这个班有多少人。")
    assert unsolvable("I'm sorry, as an AI language model I have no data.")
    assert not unsolvable("She is sorry for 3 of them.")


@pytest.mark.parametrize(
    "answer",
    [
        "To find it, I would need a list of all students.",
        "As an AI, I don’t have access to real-time information.",
        "您好，您没有提供文章，请重新发送。",
        "请提供你想要修改的句子。",
        "由于我是一个语言模型，我无法直接提供航班价格。",
        "您好，我无法看到您提到的漫画。",
    ],
)
def test_a_request_for_information_means_that_something_is_missing(answer: str) -> None:
    assert unsolvable(answer)


@pytest.mark.parametrize("answer", ["She would need 3 more.", "他没有提供证件，所以付了5元。", "An AI has 3 layers."])
def test_something_missing_within_the_story_is_no_complaint(answer: str) -> None:
    assert not unsolvable(answer)
