"""What a question says about its answer: units, percentages, factors, options, the style of numbers, what is known."""

import pytest

from magcli.verify.math import compare
from magcli.verify.math.asked.demands import asked_units
from magcli.verify.math.asked.readings import as_in_question, options


@pytest.mark.parametrize(
    ("question", "units"),
    [
        ("What is the angle, in degrees?", {"degree"}),
        ("Find the area in square centimeters.", {"centimeter^2"}),
        ("What was her average speed, in miles per hour?", {"mile/hour"}),
        ("How many inches in 3 feet?", {"inch"}),
        ("How many hours a week does he work?", {"hour"}),
        ("Wie viele Meter sind das?", {"meter"}),
        ("Combien de kilogrammes?", {"kilogram"}),
        ("¿Cuántos litros caben?", {"liter"}),
        ("Quanti grammi sono?", {"gram"}),
        ("Сколько часов?", {"hour"}),
        ("一共多少元?", {"yuan"}),
        ("Express the area in $\\text{cm}^2$.", {"centimeter^2"}),
        ("Who came in second place in year 5?", set()),
        ("How many items are in $C$?", set()),
        ("It takes 3 hours in a day. What is the cost to the nearest cent?", set()),
        ("How many apples are there?", set()),
    ],
)
def test_the_units_that_a_question_asks_for(question: str, units: set[str]) -> None:
    assert asked_units(question) == units


@pytest.mark.parametrize(
    ("answer", "gold", "question", "right"),
    [
        (r"90 \text{ radians}", "90", "What is the angle of a square, in degrees?", False),
        (r"90^\circ", "90", "What is the angle of a square, in degrees?", True),
        (r"90 \text{ radians}", "90", "What is the angle?", True),
        (r"\frac{\pi}{2} \text{ radians}", r"\frac{\pi}{2}", "Give the angle in radians.", True),
        (r"5 \text{ m}", "5", "How many centimeters long is it?", False),
        (r"5 \text{ cm}", "5", "How many centimeters long is it?", True),
        (r"\$5", "5", "How many dollars does she pay?", True),
        (r"£5", "5", "How many pounds does she pay?", True),
        (r"5 \text{ hours}", "5", "How many days does it take?", False),
        (r"\$16.39", "16.39", "What is the price, to the nearest cent?", True),
    ],
)
def test_another_unit_than_the_one_asked_for_is_wrong(answer: str, gold: str, question: str, right: bool) -> None:
    assert compare(answer, gold, question)[0] == right


@pytest.mark.parametrize(
    ("answer", "gold", "question", "right"),
    [
        (r"70\%", "70", "What is 20% of 350?", False),
        (r"70\%", "70", "¿Cuál es el 20% de 350?", False),
        (r"70\%", "70", r"Each candidate has a 50\% chance. What percent wins?", True),
        (r"70\%", "70", "By what percentage did it grow?", True),
        (r"5\%", "5", "The price rose from 100 to 105. What is the rate of growth?", True),
        (r"25\%", r"\frac14", r"Each has a $50\%$ chance. What is the probability that both win?", True),
    ],
)
def test_a_percent_sign_is_wrong_where_percentages_are_only_given(
    answer: str, gold: str, question: str, right: bool
) -> None:
    assert compare(answer, gold, question)[0] == right


@pytest.mark.parametrize(
    ("answer", "gold", "question", "right"),
    [
        ("x^4-1", "(x-1)(x+1)(x^2+1)", "Factor completely: $x^4-1$.", False),
        ("(x^2-1)(x^2+1)", "(x-1)(x+1)(x^2+1)", "Factor $x^4-1$.", False),
        ("(x^2+1)(x+1)(x-1)", "(x-1)(x+1)(x^2+1)", "Factor $x^4-1$.", True),
        ("-(1-x)(x+1)(x^2+1)", "(x-1)(x+1)(x^2+1)", "Factor $x^4-1$.", True),
        ("2(x+1)^2", "2(x+1)(x+1)", "Factorise the expression.", True),
        ("2x^2+4x+2", "2(x+1)^2", "Faktorisiere den Term.", False),
        ("x^4-1", "(x-1)(x+1)(x^2+1)", "Expand the product.", True),
        ("360", r"2^3\cdot 3^2\cdot 5", "Find the prime factorization of 360.", False),
        (r"5\cdot 2^3\cdot 3^2", r"2^3\cdot 3^2\cdot 5", "Find the prime factorization of 360.", True),
        ("8", r"8 \text{ primes}", "How many primes are in the prime factorization of 20!?", True),
        ("1024", "2^{10}", "By what factor does it grow?", True),
        ("x^2-1", "(x-1)(x+1)", "What is the factored form of $x^2-1$?", False),
        ("(x-1)(x+1)", "x^2-1", "Expand $(x-1)(x+1)$.", False),
        ("(x+1)^2", "x^2+2x+1", "Développer l'expression.", False),
        ("1+2x+x^2", "x^2+2x+1", "Expand $(x+1)^2$.", True),
        ("x(x+2)+1", "x^2+2x+1", "Expand $(x+1)^2$.", False),
        ("(x-1)(x+1)", "x^2-1", "Simplify the product.", True),
        (r"\frac{x(x+1)}{2}", r"\frac{x(x+1)}{2}", "Expand the sum.", True),
    ],
)
def test_factors_or_terms_that_the_question_asks_for(answer: str, gold: str, question: str, right: bool) -> None:
    assert compare(answer, gold, question)[0] == right


def test_options_are_read_in_the_usual_forms() -> None:
    expected = {"A": "21", "B": r"$\frac12$", "C": "29"}
    assert options(r"Which? (A) 21 (B) $\frac12$ (C) 29") == expected
    assert options("Which?\n\nA. 21\nB. $\\frac12$\nC. 29\n\nExpress your answer as A, B or C.") == expected
    assert options(r"Which? $\textbf{(A)}\ 21\qquad\textbf{(B)}\ $\frac12$\qquad\textbf{(C)}\ 29$")["B"] == r"$\frac12$"
    assert options("¿Cuánto? a) 3 b) 4 c) 5") == {"a": "3", "b": "4", "c": "5"}
    assert options("① 3 ② 4 ③ 5") == {"①": "3", "②": "4", "③": "5"}
    assert options("Find the area of the triangle (A) with side B.") == {}
    assert options('Draw it. [asy] label("A", A. B. C. D.); [/asy]') == {}


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        (r"\frac12", "B", True),
        ("0.5", "B", True),
        ("29", "(C)", True),
        ("C", "29", True),
        ("29", "B", False),
        ("A", "29", False),
        ("7", "D", False),
        ("(C) or (B)", "29", False),
        ("14", "A", False),
    ],
)
def test_the_text_of_an_option_is_its_label(answer: str, gold: str, right: bool) -> None:
    question = r"Which? (A) 14 (B) $\frac12$ (C) 29 (D) 7 (E) $\frac{14}{2}$ (F) $14$"
    assert compare(answer, gold, question)[0] == right


@pytest.mark.parametrize(
    ("text", "question", "reading"),
    [
        ("3.750 m", "Wie viele Meter sind 3,75 km?", "3750\\text{ m}"),
        ("3.750", "Wie viele Meter sind das?", "3.750"),
        ("15.000", "Quanti grammi ci sono in 15 kg?", "15000"),
        ("15.000", "How many grams are in 15 kg?", "15.000"),
        ("3.750", "How many metres are 3,75 km? Give the result as a number.", "3.750"),
        ("3.750", "Runde 3.14159 und 2,5 auf drei Stellen.", "3.750"),
        ("4.58 m", "A ladder of length 5 m leans against a wall.", r"4.58\text{ m}"),
        ("4.58 m", "Express it in terms of $m$.", "4.58 m"),
        ("4.58 m", "A mass of 5 m with m = 3 moves.", "4.58 m"),
    ],
)
def test_numbers_are_read_as_the_question_writes_them(text: str, question: str, reading: str) -> None:
    assert as_in_question(text, question) == reading


@pytest.mark.parametrize(
    ("answer", "gold", "question", "right"),
    [
        ("3.5", "3.5亿元", "合多少亿元?", True),
        ("3.5", "3.5亿元", "合多少元?", False),
        ("35", "3.5亿元", "合多少亿元?", False),
        ("2", r"2 \text{ million}", "How many million people?", True),
        ("11 April 2023", "April 11", "What date is 100 days after January 1, 2023?", True),
        ("11 April 2024", "April 11", "What date is 100 days after January 1, 2023?", False),
        (r"\text{isosceles triangle}", "isosceles", "Classify the triangle.", True),
        (r"\text{isosceles trapezoid}", "isosceles", "Classify the triangle.", False),
        ("f(x)=kx", "f(x)=cx", "Find all continuous functions with $f(x+y)=f(x)+f(y)$.", True),
        ("f(x)=ax", "f(x)=cx", "Let $a$ be given. Find $f$.", False),
        ("f(x)=kx+1", "f(x)=cx", "Find all continuous functions with $f(x+y)=f(x)+f(y)$.", False),
        ("2x+1+C", "2x+C", "Give the total cost in terms of the base cost $C$.", False),
        ("2x+1+C", "2x+C", r"Find $\int 2\,dx$; use $C$.", True),
    ],
)
def test_what_the_question_has_said_may_be_missing(answer: str, gold: str, question: str, right: bool) -> None:
    assert compare(answer, gold, question)[0] == right


@pytest.mark.parametrize(
    ("answer", "gold", "question", "right"),
    [
        (
            r"\begin{pmatrix}-2\\2\end{pmatrix}",
            r"\begin{pmatrix}1\\-1\end{pmatrix}",
            "Find an eigenvector of $A$.",
            True,
        ),
        (
            r"\begin{pmatrix}2\\2\end{pmatrix}",
            r"\begin{pmatrix}1\\-1\end{pmatrix}",
            "Find an eigenvector of $A$.",
            False,
        ),
        (
            r"\begin{pmatrix}0\\0\end{pmatrix}",
            r"\begin{pmatrix}1\\-1\end{pmatrix}",
            "Find an eigenvector of $A$.",
            False,
        ),
        (r"\begin{pmatrix}2\\-2\end{pmatrix}", r"\begin{pmatrix}1\\-1\end{pmatrix}", "Find a unit eigenvector.", False),
        (r"\begin{pmatrix}2\\-2\end{pmatrix}", r"\begin{pmatrix}1\\-1\end{pmatrix}", "Find the vector $v$.", False),
        ("(2,4,6)", "(1,2,3)", "Gib einen Normalenvektor der Ebene an.", True),
        ("(2,4,6)", "(1,2,3)", "求平面的一个法向量。", True),
        ("(2,4)", "(1,2)", "Let $B$ be a basis. Find the coordinates of $v$ in it.", False),
        ("(2,4)", "(1,2)", "Let $v$ be an eigenvector of $A$. Find $Av$.", False),
        (r"\{(2,2,2)\}", r"\{(1,1,1)\}", "Find a basis of the subspace.", True),
        (r"\{(2,2,2),(1,0,0)\}", r"\{(1,1,1),(1,0,0)\}", "Find a basis of the subspace.", False),
    ],
)
def test_a_vector_of_a_direction_may_be_any_multiple(answer: str, gold: str, question: str, right: bool) -> None:
    assert compare(answer, gold, question)[0] == right
