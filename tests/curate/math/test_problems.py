"""The format filter: each reason to drop, look-alikes that must stay, choices rewritten as open questions."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.curate.math.choices import append_options, split_options
from magcli.curate.math.problems import (
    QUESTIONS,
    Dropped,
    Kept,
    clean,
    final_answer,
    messages,
    model_question,
    parse_answer,
)
from magcli.verify.math import parsable


def readable(answer: str) -> bool:
    return answer != "unreadable"


def outcome(prompt: str, answer: str = "7") -> str:
    decided = clean(prompt, answer, parsable=readable)
    return decided.reason if isinstance(decided, Dropped) else "kept"


ASK = "What is the value of $x$?"

DROPPED = [
    ("empty-prompt", "", "7"),
    ("empty-prompt", " ?! \n ", "7"),
    ("no-answer", "What is 3 + 4?", ""),
    ("no-answer", "What is 3 + 4?", " N/A "),
    ("no-answer", "What is 3 + 4?", "####"),
    ("proof", "Let $n$ be odd. Prove that $n^2-1$ is divisible by 8.", "7"),
    ("proof", "Find the sum of the digits. Show that it is 27.", "27"),
    ("proof", "Show that $a+b \\leq 1$.", "1"),
    ("proof", "Show that 12-6-1=5.", "5"),
    ("proof", "Prove or disprove: every prime is odd.", "false"),
    ("proof", "设 $a>0$，证明：$a+1/a \\geq 2$。", "2"),
    ("incomplete", f"As shown in the figure, the square has side 4. {ASK}", "7"),
    ("incomplete", f"The table below lists the heights of five peaks. {ASK}", "7"),
    ("incomplete", f"In the diagram, $AB$ is parallel to $CD$. {ASK}", "7"),
    ("incomplete", f"The diagram indicates the path of a ball around the blocks. {ASK}", "7"),
    ("incomplete", "如图，在三角形 $ABC$ 中，$AB=3$，求 $BC$ 的长。", "4"),
    ("incomplete", f"![](img/fig1.png) {ASK}", "7"),
    ("incomplete", f"(Continue from the previous question) {ASK}", "7"),
    ("incomplete", "Let $T=T N Y W R$. Compute the value of $T+3$.", "7"),
    ("incomplete", f"The graph of $f$ is shown in red below. {ASK}", "7"),
    ("incomplete", f"Use the data in your Periodic Table. {ASK}", "7"),
    ("incomplete", "Translate the above content in English, and keep the formulas.", "7"),
    (
        "incomplete",
        "How many students are in class 101?",
        "I am sorry, as an AI language model I do not know the class.",
    ),
    ("incomplete", "A train leaves at noon and arrives at the", "7"),
    ("incomplete", "Given that $x+y=3$,", "7"),
    ("incomplete", "Compute 9-4+2+", "7"),
    ("incomplete", "计算\n$$I=\\iint [x f(y)+2x] dy+[y f(x)$$", "0"),
    ("incomplete", "Rank the items of the following list by their price.", "7"),
    ("incomplete", "请根据以下文章构建一个问题。", "7"),
    ("incomplete", "辨别这段文字属于哪一类。", "7"),
    ("incomplete", "编辑以下邮件，使其更加正式。", "尊敬的先生，感谢您的来信和支持。"),
    ("incomplete", "Calculate the mean of these values.", "7"),
    ("incomplete", "Complete this sentence with a suitable word.", "The word that fits best is here."),
    ("prose-answer", "应对压力的方法。", "多运动，早睡，与朋友交谈。"),
    ("many-answers", "Make 24 of 7, 4, 4 and 1, each used once, with + - * /.", "1*(7*4-4)"),
    ("many-answers", "Using the numbers [44, 19, 35], create an equation that equals 98.", "98"),
    ("prose-answer", "编写一个函数，求给定数组的和。", "可以用循环把每个数加起来。"),
    (
        "prose-answer",
        "Take the text below and make it longer.\nThe house was old.",
        "The house on the hill was very old.",
    ),
    ("prose-answer", "Generate an excuse for being late.", "I'm sorry, but my train has been late today."),
    ("prose-answer", "制作一张海报。", "抱歉，我无法制作海报，但可以提供一些建议。"),
    ("prose-answer", "她秋天去上大学，改写这个句子。", "秋天时，她将开始大学的生活和新的学习。"),
    ("incomplete", "直线与圆交于 $A, B$ 两点, 若 $|AB|=2$, 则 $|CD|=4$.", "4"),
    ("incomplete", "Factoring gives $(m+2)(m-2)=0$. Therefore $m$ must be either $-2$ or $2$.", "-2"),
    ("incomplete", "则通解为\nA. $x=k_1 a+k_2 a$ B. $x=k_{1} a+k_2 a$ C. $x=k_1 a$ D. $x=k_2 a$", "C"),
    ("multi-part", "Let $f(x)=x^2$. (a) Find $f(3)$. (b) Find $f(4)$.", "9"),
    ("multi-part", "已知函数 $f(x)=x^2$。（1）求 $f(3)$；（2）求 $f(4)$。", "9"),
    ("multi-part", "The slope is ____ and the intercept is ____.", "2"),
    ("multi-part", "Subproblem 0: What is 2 + 2?\nSubproblem 1: What is 3 + 4?", "7"),
    ("multi-part", "Find the vertex and the radius.", "$(3,0)$; $\\sqrt{3}$"),
    ("prose-answer", "What must be true of the last column?", "The last column must not be a pivot column."),
    ("prose-answer", "Name a number.", "Answers will vary."),
    ("prose-answer", "若 $f$ 的最大值为 2，则常数 $k$ 的一个取值为（ ）", "7"),
    ("prose-answer", "函数值可以是____（写出一个合理的值即可）", "7"),
    ("unverifiable", "How many stamps are there?", "5 4.6"),
    ("prose-answer", "求凹凸区间。", "凹区间为负无穷到负一，凸区间为负一到零"),
    ("prose-answer", "Find one possible value of $m$.", "$2$ or $-2$"),
    ("prose-answer", "生成一个用户名。", "ada_7"),
    ("prose-answer", "Which location has the lower ratio?", "Westford location"),
    ("unverifiable", "Find the dimensions.", "$10 \\mathrm{ft} x 18 \\mathrm{ft}$"),
    ("unverifiable", "What is 3 + 4?", "unreadable"),
    ("multiple-choice", "Which of the following is prime?\n(A) 4 (B) 7 (C) 9 (D) 15", "B"),
    ("multiple-choice", "下列数中，最小的是（ ） A. $\\pi$ B. $-2$ C. $0$ D. $8$", "B"),
    ("multiple-choice", "设 $a=\\ln 2$，$b=1$，则（ ）\nA. $a<b$ B. $a=b$ C. $a>b$", "A"),
    ("multiple-choice", "Which quadratic equation has no real solution?\nA) $x^2=1$ B) $x^2=0$ C) $x^2=-1$", "C"),
    ("multiple-choice", "How many are there?\nA) 3 B) 4 C) 5 D) None of these", "D"),
    ("multiple-choice", "What does 4.3 mean?\nA. The yearly growth in tons B. The first value C. The last value", "A"),
    ("multiple-choice", "Select all that hold.\nA. $x=1$ B. $x=2$ C. $x=3$", "A, C"),
    ("multiple-choice", "设 $A$ 为可逆矩阵，则 $|A|=$（ ）", "C"),
    ("multiple-choice", "Enter the letter of the graph of $y=f(x)$.", "\\text{C}"),
    ("multiple-choice", "Which of the following must be true?\n\n$a<b$\n$b<c$\n\nEnter a list of options.", "A, B"),
    ("multiple-choice", "Find a pair for which\nA) $x=y$ B) $x<y$ C) $x>y$", "B"),
    ("multiple-choice", "则 $a$ 的值可以是（ ）\nA. 1 B. 2 C. 3", "B"),
    ("multiple-choice", "When do they meet?\nA) 5 am on the next day B) 2 pm C) 3 pm", "A"),
    ("multiple-choice", "Which of the following is a possible first term?\nA) 1 B) 2 C) 3", "A"),
    ("multiple-choice", "Which of the following is closest to the mass?\nA) 20 B) 30 C) 40", "A"),
    ("multiple-choice", "则（）\n$A.$ 有 $P$ B.有 $Q$ C. 有 $R$ D. 有 $S$", "B"),
    ("multiple-choice", "Which equation could define $g$?\nA) $g=x$ B) $g=2x$ C) $g=3x$", "A"),
    ("multiple-choice", "Find out which of the following values is the multiple of X?\nA) 36 B) 15 C) 17", "A"),
    ("multiple-choice", "If $n>3$, then $x=n^2$ satisfies\nA) $2<x<5$ B) $9<x<60$ C) $x<9$", "B"),
    ("multiple-choice", "Let $s=a+b$. Then, for all positions of $C$:\nA) $s\\le 8$ B) $s=8$ C) $s\\ge 8$", "A"),
    ("multiple-choice", "已知 $a>b$，则（ ）\nA. $a=1, b\\neq 2$ B. $a=b$ C. $a^2>b$", "A"),
    ("multiple-choice", "The sum of them is\nA. even B. odd C. prime\n\nExpress it as A, B or C.", "\\text{(C)},"),
]

KEPT = [
    "What is the planned price of the textbook, if 300 of them bring in 6000?",
    "In the diagram below, $ABCD$ is a quadrilateral with $\\angle ABC=135^{\\circ}$, $\\angle BCD=120^{\\circ}$, "
    "$AB=2$, $BC=3$, $CD=4$ and $AD=x$. Find the value of $x^2$.",
    "In the diagram, $PT$ and $PS$ are tangents to a circle with centre $O$, and $Z$ lies on $OS$. "
    "If $\\angle SPZ=10^{\\circ}$ and $\\angle TOS=150^{\\circ}$, how many degrees are there in $\\angle PTY$?",
    "A game show has 3 prizes. On each show 4 people play. How many people play in 7 shows?",
    "There is enough information to prove whether the triangle is right. How many cases are there?",
    "It can be shown that the limit exists. Find it.",
    "Find the smallest $n$. Show your work.",
    "There are 10 chairs at the table. 3 more are brought. How many chairs are there?",
    "Nancy wants to figure out how many apples she has: 3 and 4 more. How many?",
    "The graph of $y=f(x)$ is shifted 3 units to the right. What is the new vertex's $x$-coordinate?",
    "Use the figure. [asy] draw((0,0)--(3,0)); [/asy] As shown in the figure, what is the length?",
    "The table below gives $f$.\n| x | 1 | 2 |\n|---|---|---|\n| f | 3 | 7 |\nWhat is $f(2)$?",
    "A lot has 3 sections. There are 320 spaces in section 1. How many are in section 2?",
    "He had solved 3 tasks and the same number in the previous problem. How many in all?",
    "Compute the area of pentagon $T N Y W R$.",
    "A sequence satisfies (i) $a_1=1$; (ii) $a_2=2$; (iii) it is increasing. How many such sequences are there?",
    "The quadratic has these properties: (1) its maximum is 5. (2) It passes through $(0,1)$. Find $m$.",
    "若一个外角是45°，则该正多边形的边数是",
    "Points $A$, $B$, $C$ and $D$ lie on a circle. How many chords join them?",
    "计算 $3+4=$",
    "Each edge is red or blue. One example is shown below. Find the number of colourings.",
    "Blocks lie around a garden. The diagram shows the path when $n=5$. What is its length if $n=202$?",
    "There are finitely many $k$ with that property. Find the sum of all such $k$,",
    "若一个外角是45°，则边数为",
    "How many vowels are in the name of this place? https://www.example.com/",
    "Determine all solutions, and prove that there are no more solutions.",
    "The above-mentioned sequence begins 1, 2, 3. What is its tenth term?",
    "Find the sum of the following numbers: 3, 4.",
    "In the series $1+3-5-7+9 \\ldots$ the signs alternate in pairs, as shown. What is the third term?",
    "Use the following table. How many are there?\n| x | 3 |",
    "小明看这篇文章用了3分钟，看完还要4分钟，一共几分钟？",
    "The half-open interval $(a,b]$ has length 7. Find its length.",
    "Simplify $f(x)=(3+4$ and $g(x)$ given $x=7)$",
]


DROPPED_ELSEWHERE = [
    ("incomplete", "How many cubes have been taken from the block?\n<image1>", "7"),
    ("incomplete", "What fraction of the large square on the board, whose side is 4, is shaded?\n<image1>", "2"),
    ("incomplete", "The chain in ./own/mc.png has a state 0. What is its period?", "2"),
    ("incomplete", "Fig. Q2 shows a noise shaper. What is the period of its output?", "5"),
    ("incomplete", "?\n(A) 1\n(B) 2\n(C) 3", "B"),
    ("incomplete", "What is the value of B?\n(A) 3\n(B) 4\n(C) 5", "A"),
    ("incomplete", "What must the divisor be?\n(A) 7\n(B) 8\n(C) 9", "B"),
    ("incomplete", "How many more cats than dogs are there?\n(A) 2\n(B) 5\n(C) 9", "A"),
    ("incomplete", "How many marbles does Tim want to buy?\n(A) 2\n(B) 5\n(C) 9", "A"),
    ("incomplete", "Can these 3 shapes form squares?\n(A) 3\n(B) 4\n(C) 5", "A"),
    ("incomplete", "Include air resistance in the previous problem, and find the speed.", "4"),
    ("multi-part", "How many terms and variables are there, respectively?\n(A) 3, 3\n(B) 5, 3\n(C) 4, 3", "B"),
    ("multi-part", "已知 $f(x)=x$．\n（1）求 $f(2)$；\n（2）证明：$f(x)>0$．", "略"),
    ("proof", "已知 $a+b=1$．证明：\n（1）$ab<1$；\n（2）$a<2$．", "证明：略"),
    ("multiple-choice", "Is 11 odd?\n(A) Yes\n(B) No", "A"),
    ("multiple-choice", "Which is brighter: (a) $(1,2)$, (b) $(3,4)$?", "(a)"),
    ("multiple-choice", "This follows from: 1. Banach, 2. Riesz, 3. None of the above. Return the number.", "1"),
    ("multiple-choice", "Which of the followings is not $14$?\n(A) $7+7$\n(B) $8+7$\n(C) $2+12$", "B"),
    ("multiple-choice", "若 $a<b$，则必有（  ）\nA. $a<2b$\nB. $a-b<0$\nC. $b<2a$", "B"),
    ("multiple-choice", "Which one of these numbers has two prime factors?\n(A) 8\n(B) 9\n(C) 10", "C"),
    ("multiple-choice", "Which is \\textbf{NOT} a cube?\n(A) 8\n(B) 9\n(C) 27", "B"),
    ("multiple-choice", "Which ratio is not the same as $2:6$?\n(A) 1:3\n(B) 3:1\n(C) 4:12", "B"),
    ("multiple-choice", "Which sequence is geometric?\n(A) $1,2,3$\n(B) $1,2,4$\n(C) $1,3,5$", "B"),
    ("multiple-choice", "Which could be its area?\n(A) 12\n(B) 56\n(C) 120", "B"),
    ("multiple-choice", "Let $a=1$, $b=2$, $c=3$, then ( ).\n(A) $a<b<c$\n(B) $b<a<c$\n(C) $c<a<b$", "A"),
    ("multiple-choice", "Choose the even number.\n(A) 13\n(B) 24\n(C) 35", "B"),
    ("multiple-choice", "$1001$ is divisible by ____ .\n(A) 3\n(B) 5\n(C) 7", "C"),
    ("multiple-choice", "$0.5$ is the same as：\n(A) $\\frac{1}{5}$\n(B) $\\frac{2}{4}$\n(C) $\\frac{5}{1}$", "B"),
    ("multiple-choice", "The best estimate of $49\\times 61$ is\n(A) 300\n(B) 3000\n(C) 30000", "B"),
    ("multiple-choice", "Which of thefollowing is odd?\n(A) 2\n(B) 3\n(C) 4", "B"),
    ("multiple-choice", "Which of the following is the same as $3\\times 4$?\n(A) $2\\times 6$\n(B) 7\n(C) 34", "A"),
    ("multiple-choice", "一个整数除以 3 余 2，这个数可能是（ ）\nA. 10 B. 11 C. 12", "B"),
    ("multiple-choice", "那么，下列四个选项中，（ ）可能是最后的结果。\nA. 44 B. 43 C. 42", "A"),
    ("multiple-choice", "以下哪个数是质数？\nA. 21 B. 23 C. 25", "B"),
    ("multiple-choice", "$a$ 是有理数，则 $\\frac{1}{a}$ 的值不能是（ ）\nA. 1 B. 0 C. 2", "B"),
    ("multiple-choice", "$a$ 是有理数，则一定成立的关系式是（ ）\nA. $a>0$ B. $a+1>a$ C. $a<1$", "B"),
    ("multiple-choice", "方程 $2x+3y=12$ 的一组整数解是（ ）\nA. $(1,2)$ B. $(3,2)$ C. $(2,3)$", "B"),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "prompt", "answer"), [*DROPPED, *DROPPED_ELSEWHERE])
def test_rows_are_dropped_for_their_reason(reason: str, prompt: str, answer: str) -> None:
    assert outcome(prompt, answer) == reason


KEPT_ELSEWHERE = [
    "A rectangular board has 8 columns and 3 rows, its squares are numbered from 1 to 24. What is their sum?\n<image1>",
    "Its orbit around the sun is long (Fig. 13.20), 8 at the least and 10 at the most. What is the mean?",
    "It can be shown that every number below 10 is less than 11. How many positive integers are below 10?",
    "The file photo.png has 300 kilobytes and image.jpg has 200. How many have they together?",
    "There are 5 guests at one table and 7 in table 2. How many guests are there?",
    "Tom must repeat the calculation 3 times, each taking 4 minutes. How long does it take?",
    "Tom counts apples and pears separately. He has 3 apples and 4 pears. How many pieces of fruit has he?",
    "(b) If $x=3$ find $x^2$.",
    "(3)^2 + 4^2 equals what number?",
    "（3）计算：1+1=",
]


@pytest.mark.parametrize("prompt", [*KEPT, *KEPT_ELSEWHERE])
def test_similar_problems_are_kept(prompt: str) -> None:
    assert clean(prompt, "7", parsable=readable) == Kept(prompt, "7")


def test_a_letter_code_as_answer_stays() -> None:
    conic = 'Which conic is it? Enter "C" for circle, "E" for ellipse.'
    assert clean(conic, "\\text{(C)}", parsable=readable) == Kept(conic, "\\text{(C)}")
    quadrants = "In which quadrants does it lie?"
    assert clean(quadrants, "I,II", parsable=readable) == Kept(quadrants, "I,II")
    assert outcome("Which statements hold? I. $x=1$ II. $x=2$ III. $x=3$", "I, II") == "multiple-choice"


def test_an_answer_that_only_repeats_the_question_is_unverifiable() -> None:
    asked = "For what $n$ is there such a trick?"
    assert outcome(asked, " $n$ ") == "unverifiable"
    assert outcome(asked, "n=4") == "kept"
    assert outcome("Express $\\binom{n}{1}$ for any $n$ in simplest form.", "n") == "kept"


@pytest.mark.parametrize("answer", ["x=3, x=5", "[0,2]", "-1, \\; -5", "\\text{Friday}", "3 \\text{ square units}"])
def test_answers_that_are_kept(answer: str) -> None:
    assert outcome("Find it.", answer) == "kept"


@pytest.mark.parametrize(
    ("answer", "final"),
    [
        ("She has 9 + 9 = 18.\n#### 18", "18"),
        ("so $x = \\boxed{\\frac{1}{2}}$, as \\boxed{3}? No: \\boxed{\\frac{{1}}{3}}.", "\\frac{{1}}{3}"),
        ("$\\sqrt{3}$", "\\sqrt{3}"),
        ("$$4$$.", "4"),
        ("$1$ or $2$", "$1$ or $2$"),
        ("\\boxed{never closed", "\\boxed{never closed"),
        ("So \\boxed{\\left\\{x\\right.} it is.", "\\left\\{x\\right."),
        ("It is $\\fbox{7}$.", "7"),
        ("The roots are $\\boxed{3}$ and $\\boxed{-3}$.", "3, -3"),
        (" 5 ", "5"),
    ],
)
def test_final_answer(answer: str, final: str) -> None:
    assert final_answer(answer) == final


def test_notes_say_what_changed() -> None:
    assert clean("How many?", "About 6 miles per hour", parsable=readable) == Kept(
        "How many?", "6 miles per hour", "unit"
    )
    assert clean("有多少个？", "14 个", parsable=readable) == Kept("有多少个？", "14", "unit")
    assert clean("求 $c$。", "$-2$ 或 $2$", parsable=readable) == Kept("求 $c$。", "$-2$ or $2$", "unit")
    assert clean("How many?", "Four.\n#### 4", parsable=readable) == Kept("How many?", "4", "final-answer")
    assert clean("How many?", "6 (toy cars)", parsable=readable) == Kept("How many?", "6", "unit")
    assert clean("How many?", "6", parsable=readable) == Kept("How many?", "6")
    assert clean("Solve it.", "Solution is: $k=4$", parsable=readable) == Kept("Solve it.", "k=4", "final-answer")
    only_numbers = lambda answer: answer.isdigit()  # noqa: E731
    assert clean("Find $u v$.", "$u v=17$", parsable=only_numbers) == Kept("Find $u v$.", "17", "final-answer")


@pytest.mark.parametrize(
    ("prompt", "answer", "question", "truth"),
    [
        ("How many?\n(A) 3 (B) 4 (C) 5 (D) 6", "C", "How many?", "5"),
        ("How many?\nA) 3 B) 4 C) 5", "(B)", "How many?", "4"),
        ("How many?\n$\\textbf{(A)}\\ 3\\qquad\\textbf{(B)}\\ \\frac{1}{2}\\qquad\\textbf{(C)}\\ 5$", "\\text{(B)}",
         "How many?", "\\frac{1}{2}"),
        ("$2x=$（ ）\n（A）$4$．\n（B）$\\frac{1}{2}$．\n（C）$0$．", "B", "$2x=$（ ）", "\\frac{1}{2}"),
        ("$2x=$\nA．$4$\nB．$5$\nC．$6$\nD．$7$", "7", "$2x=$", "7"),
        ("How many codes?\n$\\textbf{(A) 510} \\qquad \\textbf{(B) 1022} \\qquad \\textbf{(C) 8190}$", "B",
         "How many codes?", "1022"),
        ("How many?\n$\\mathrm{(A) \\ } 3\\qquad\\mathrm{(B) \\ } 8\\qquad\\mathrm{(C) \\ } 9$", "8", "How many?", "8"),
        ("If one of these integers is 350, what is the other?\nA) 242 B) 308 C) 352", "A",
         "If one of these integers is 350, what is the other?", "242"),
        ("不同的安排方式共有（ ）\nA. 12 B. 18 C. 24 D. 36", "D", "不同的安排方式共有（ ）", "36"),
        ("what is the speed ? a ) 38 , b ) 27.675 , c ) 30", "b", "what is the speed ?", "27.675"),
        ("What does it cost?\n(A)$21.00 (B)$11.00 (C)$12.00", "A", "What does it cost?", "21.00"),
        ("What is it?\n\n(A) 1\n(B) 2\n(C) 3\n\nEnter the letter of the correct option.", "\\text{(C)}",
         "What is it?", "3"),
        ("Which equation represents the unit circle?\nA) $x^2=1$ B) $x^2+y^2=1$ C) $x^2+y^2=2$", "B",
         "What equation represents the unit circle?", "x^2+y^2=1"),
        ("Which of the following inequalities models the number?\nA) $x<1$ B) $x<2$ C) $x<3$", "C",
         "What inequality models the number?", "x<3"),
        ("Which of the following is closest to the mass?\nA) 1,911 B) 3,676 C) 10,656", "C",
         "what is the mass?", "10,656"),
        ("How many roots has $x^2$?\nA) Zero B) Exactly one C) Exactly two", "B",
         "How many roots has $x^2$?", "Exactly one"),
        ("When do they ring?\nA) After 6 minutes B) After 12 minutes C) none", "B", "When do they ring?", "12 minutes"),
        ("惯性指数依次为n（A） 2,0 ．\n（B） 1,1 ．\n（C） 2,1 ．", "B", "惯性指数依次为n", "1,1"),
        ("则 $a=($ ）", "（A）$\\frac{1}{2}$", "则 $a=($ ）", "\\frac{1}{2}"),
        ("Then $a$ is:\n(A) $\\sqrt{2}/2$ (B) $\\sqrt{2}$ (C) 2", "\\frac{\\sqrt{2}}{2}",
         "Then $a$ is:", "\\sqrt{2}/2"),
        ("若 $z+a+b=0$，则（ ）\nA. $a=1, b=-2$ B. $a=-1, b=2$ C. $a=1, b=2$", "A", "若 $z+a+b=0$，则（ ）",
         "a=1, b=-2"),
        ("软件的激活码为下面数学问题的答案: 数列的前 $N$ 项和为 2. 激活码是 ( )\nA. 440 B. 330 C. 220", "A",
         "软件的激活码为下面数学问题的答案: 数列的前 $N$ 项和为 2. 激活码是 ( )", "440"),
        ("What is the area?\n\\begin{align*}\n\\text{A)}\\ & 1 &\n\\text{B)}\\ & 2 \\\\\n\\text{C)}\\ & 3\\\\\n"
         "\\end{align*}",
         "$B$\\\\\n\\noindent", "What is the area?", "2"),
        ("Then $x$ is\n(A) $$x \\textgreater{} 3$$\n(B) $$x \\textless{} 3$$\n(C) $$x=3$$", "A", "Then $x$ is", "x >3"),
        ("How many are there in all?\n(A) $3$\n(B) $4$", "B", "How many are there in all?", "4"),
        ("Find the next term of the following sequence: $1, 1, 2, 3, 5$\n(A) 6\n(B) 7\n(C) 8", "C",
         "Find the next term of the following sequence: $1, 1, 2, 3, 5$", "8"),
        ("Which number comes next in $2, 4, 6$?\n(A) 7\n(B) 8\n(C) 9", "B", "Which number comes next in $2, 4, 6$?",
         "8"),
        ("Which number does $A$ stand for in $A+3=5$?\n(A) 1\n(B) 2\n(C) 3", "B",
         "Which number does $A$ stand for in $A+3=5$?", "2"),
        ("Which number is ten times smaller than $70$?\n(A) 700\n(B) 7\n(C) 60", "B",
         "Which number is ten times smaller than $70$?", "7"),
        ("Which expression shows how much change I get from 5 coins?\n(A) $5-x$\n(B) $x-5$\n(C) $5x$", "A",
         "What expression shows how much change I get from 5 coins?", "5-x"),
        ("Which expression is the simplest form of $x+x$?\n(A) $2x$\n(B) $x$\n(C) $x^2$", "A",
         "What expression is the simplest form of $x+x$?", "2x"),
        ("The third side is whole. What is the biggest it can be?\n(A) 4\n(B) 5\n(C) 6", "B",
         "The third side is whole. What is the biggest it can be?", "5"),
        ("How long did it last?\n(A) $2$ hours $7$ minutes\n(B) $1$ hour $45$ minutes\n(C) $45$ minutes", "B",
         "How long did it last?", "1 hour 45 minutes"),
        ("When is it over?\n(A) $$12.20 \\rm a.m$$.\n(B) $$12.20 \\rm p.m$$.\n(C) $$1.20 \\rm p.m$$.", "B",
         "When is it over?", "12.20 p.m"),
        ("至少取几张，才能保证其中必有 2 种花色（ ）\nA. 14 B. 15 C. 16", "B",
         "至少取几张，才能保证其中必有 2 种花色（ ）", "15"),
        ("若边长都大于 1，则边数必为（ ）\nA. 7 B. 6 C. 5", "C", "若边长都大于 1，则边数必为（ ）", "5"),
        ("按以下规定收费：每人 3 元。那么共付（ ）\nA. 60 B. 66 C. 75", "B",
         "按以下规定收费：每人 3 元。那么共付（ ）", "66"),
        ("What is the derivative of $x^2$? (a) $x$. (b) $2x$. (c) $2$. (d) $0$. Which option is correct?", "(b)",
         "What is the derivative of $x^2$?", "2x"),
        ("It beats any of the following discounts: 10% and 5%. 求 $n$ 的最小值\nA. 14 B. 15 C. 16", "B",
         "It beats any of the following discounts: 10% and 5%. 求 $n$ 的最小值", "15"),
        ("数 $a$ 等于它的相反数，则（ ）\nA. $a=0$ B. $a=-1$ C. $a=1$", "A", "数 $a$ 等于它的相反数，则（ ）", "a=0"),
    ],
)  # fmt: skip
def test_choices_become_open_questions(prompt: str, answer: str, question: str, truth: str) -> None:
    assert clean(prompt, answer, parsable=parsable) == Kept(question, truth, "opened")


@pytest.mark.parametrize(
    "question",
    [
        "How far does this car, going at 5 km/h for 2 h, travel?",
        "If 3 pens cost 6 dollars, what does one of these pens cost?",
        "What is the value of $e$?",
        "Which one is the larger root of $x^2-3x+2=0$?",
        "Solve.\n\\begin{align}x+1&=2\\end{align}",
    ],
)
def test_complete_questions_are_opened_unchanged(question: str) -> None:
    assert clean(f"{question}\n(A) 1\n(B) 2\n(C) 3\n(D) 4", "B", parsable=parsable) == Kept(question, "2", "opened")


def test_a_question_after_the_options_needs_them() -> None:
    assert outcome("Let\n(A) 1 (B) 2 (C) 3\n\nHow many of these are odd?", "A") == "multiple-choice"


def test_options_without_the_answer_are_part_of_the_statement() -> None:
    prompt = "Count the true ones: (A) $1<2$ (B) $2<1$ (C) $3<4$"
    assert clean(prompt, "17", parsable=readable) == Kept(prompt, "17")


def test_functions_and_points_are_not_options() -> None:
    assert split_options("If $P(A)=1/2$, $P(B)=1/3$ and $P(C)=1/4$, find $P(A \\cup B)$.") is None


@pytest.mark.parametrize(
    "options",
    [
        ["A)1", "B)240", "C)30"],
        ["1", "240", "30"],
        {"A": "1", "B": "240", "C": "30"},
        "A) 1 B) 240 C) 30",
        ["A)A)1", "B)B)240", "C)C)30"],
    ],
)
def test_options_in_a_separate_column(options: object) -> None:
    prompt = append_options("How many minutes?", options)
    assert clean(prompt, "B", parsable=readable) == Kept("How many minutes?", "240", "opened")


def test_without_options_nothing_is_added() -> None:
    assert append_options("How many?", None) == append_options("How many?", " ") == "How many?"


@given(st.text(max_size=300), st.text(max_size=60))
def test_any_text_gets_an_answer(prompt: str, answer: str) -> None:
    decided = clean(prompt, answer, parsable=lambda _: True)
    assert isinstance(decided, Dropped) or (decided.prompt and decided.answer)


@given(st.sampled_from(DROPPED), st.sampled_from(KEPT))
def test_cleaning_is_idempotent(dropped: tuple[str, str, str], kept: str) -> None:
    for prompt, answer in ((dropped[1], dropped[2]), (kept, "7")):
        first = clean(prompt, answer, parsable=readable)
        if isinstance(first, Kept):
            again = clean(first.prompt, first.answer, parsable=readable)
            assert again == first._replace(note="")


@pytest.mark.parametrize(
    "piece",
    [
        "(A) ",
        "a",
        "[asy]",
        "$",
        "\\boxed{",
        "(1) if ",
        "{",
        ";(",
        "Show ",
        "\\quad ",
        "B. A) x\n",
        "<image",
        "~",
        "分别",
        "what is the ",
        "what a, and did he ",
        "下面的数多少，",
        "问几何？“",
        "①②",
    ],
)
def test_long_cells_take_linear_time(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    start = time.process_time()
    for answer in ("7", text[:2000], text):
        clean(text, answer, parsable=readable)
    assert time.process_time() - start < 10


def test_inner_blanks_take_linear_time() -> None:
    start = time.process_time()
    for text in ("Find \\frac x.{}y", "Find x. __{}y", "A number is shown.{}Find x.", "Find x.{}y\n(A) 1\n(B) 2"):
        for gap in (" " * 30_000, "\n" * 30_000, "\\\\ " * 10_000, "a" * 30_000 + " .png"):
            clean(text.format(gap), "A", parsable=readable)
    clean(ASK, "\\frac12" + " " * 30_000 + "y", parsable=readable)
    assert time.process_time() - start < 5


@pytest.mark.parametrize("piece", ["x=", "\n", "\t", "，a=", "a=b,"])
def test_a_long_answer_to_a_short_question_is_fast(piece: str) -> None:
    start = time.process_time()
    assert isinstance(clean(ASK, f"3{piece * 50_000}m", parsable=readable), Dropped)
    assert time.process_time() - start < 5


FOLDED = "A square of area 6 is folded as shown, so that half of it is covered. How long is the fold?"
SHADED = "A square of side 2 holds four shaded triangles that are congruent. What is the ratio of the legs?"
TWICE = "Compute the multiples of 22 below 100. What is the largest of them?"
SIDES = "The area of a rectangle is 48 and its perimeter 32. Find its length and width."
LISTED = "Find all solutions of the equation and then list those solutions which are below 3: $x^2=16$"
RANGE = "The number $\\sqrt{x-3}$ is real, then the range that $x$ can take."


def asked(prompt: str, answer: str):
    decided = clean(prompt, answer, parsable=parsable)
    return decided, model_question(prompt, answer, decided, parsable=parsable)


@pytest.mark.parametrize(
    ("prompt", "answer", "question", "by_rules"),
    [
        (FOLDED, "2", "complete", "incomplete"),
        (SHADED, "2", "complete", "kept"),
        (RANGE, "x \\ge 3", "complete", "kept"),
        (TWICE, "88", "one-answer", "multi-part"),
        (LISTED, "-4", "one-answer", "kept"),
        (SIDES, "4", "one-answer", "kept"),
    ],
)
def test_yes_keeps_and_no_drops_and_neither_defers_to_the_rules(prompt, answer, question, by_rules) -> None:
    decided, found = asked(prompt, answer)
    assert found.question == question
    assert (decided.reason if isinstance(decided, Dropped) else "kept") == by_rules
    assert found.decision("yes") == Kept(prompt, answer)
    assert found.decision("no").reason == {"complete": "incomplete", "one-answer": "multi-part"}[question]
    assert found.decision("neither") == decided


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("What is 3 + 4?", "7"),
        ("Simplify: $2x+3x$", "5x"),
        ("The slope of $y=3x+1$ is", "3"),
        ("$7\\times 8=$", "56"),
        ("The answer to $3+4$ is ____.", "7"),
        ("Let $T=TNYWR$. Compute $T+3$.", "7"),
        ("Combine like terms: $2x+3x$", "5x"),
        ("Compute without using a calculator: $8!/6!$", "56"),
        ("If $x+y$ is 3, then $x+y+1$ is [ ].", "4"),
        ("$\\sqrt{49}=?$", "7"),
        ("What is the sum of the largest and smallest prime factors of 990?", "13"),
        ("Find the largest number of three digits which is odd and a multiple of 9.", "999"),
        ("Prove that 7 is prime.", "7"),
        ("As shown in the figure, prove that the angles are equal.", "30"),
        ("Find the area of the triangle in the figure below.", "See the solution for the answer."),
        ("(a) Find $f(3)$. (b) Find $f(4)$.", "9"),
        ("The graph of $y=f(x)$ passes through $(1,2)$. What is $f(1)$?", "2"),
        ("如图象过点 $(1,2)$ 的函数 $y=kx$，求 $k$。", "2"),
        ("In the figure, $AB=3$. [asy] draw((0,0)--(3,0)); [/asy] What is $AB$?", "3"),
    ],
)  # fmt: skip
def test_the_model_is_not_asked_where_the_rules_are_certain(prompt: str, answer: str) -> None:
    assert asked(prompt, answer)[1] is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Yes", "yes"),
        ("No.", "no"),
        ("**No**, because the figure gives the lengths. Yes, it names one.", "no"),
        ("<think>Yes or no? The figure is missing.</think>\nNo", "no"),
        ("The statement is whole. The answer is: yes", "yes"),
        ("<think>Yes, but", "neither"),
        ("I know nothing about it.", "neither"),
        ("", "neither"),
    ],
)
def test_every_reply_is_an_answer(text: str, answer: str) -> None:
    assert parse_answer(text) == answer


def test_the_users_message_is_the_problem_alone() -> None:
    system, user = messages("complete", FOLDED)
    assert user == {"role": "user", "content": FOLDED}
    assert QUESTIONS["complete"] in system["content"]
    assert "{" not in system["content"]
