"""Notations of times, cycles, decimals, functions, lines and reasons, each in both directions."""

import pytest

from magcli.verify.math import equal, parsable

SAME = [
    ("2:35 PM", "14:35"),
    (r"5{:}15 \text{ p. m.}", "17:15"),
    ("3 PM", "3:00 p.m."),
    ("12:05 AM", "00:05"),
    (r"22{.}23\text{ Uhr}", "22:23"),
    ("14点35分", "14:35"),
    ("14 h 35", "14:35"),
    (r"(3\,1\,2)(5\,4)", r"(4\ 5)(1\ 2\ 3)"),
    ("4!=24", "24"),
    ("5!/2!=60", "60"),
    (r"x_1!=2", r"x_1\ne 2"),
    (r"0,\overline{45}", r"\frac{5}{11}"),
    (r"0{,}1\overline{6}", r"\frac16"),
    ("0.142857142857142857...", r"\frac17"),
    (r"\frac{10}{40}=\frac14", "0,25"),
    (r"\tan\alpha=\frac34", "0,75"),
    (r"e=\sqrt{\frac34}", r"\frac{\sqrt3}{2}"),
    (r"u(x,t)=x+t", "x+t"),
    (r"\varphi(n)=n-1", "n-1"),
    (r"\frac{d^2y}{dx^2}=6x", "6x"),
    (r"G(x)=\sum_{n\ge0}x^n=\frac{-1}{x-1}", r"\frac{1}{1-x}"),
    (r"\sum_{n>0}\frac1{n^3}", r"\sum_{n=1}^\infty\frac{1}{n^3}"),
    (r"F(x)=\frac12\sin 2x+C", r"\sin x\cos x+5+C"),
    (r"O(n\log n)", r"O(5n\ln n)"),
    (r"A^{-1}=\begin{pmatrix}1&2\\0&1\end{pmatrix}", r"\begin{pmatrix}1&2\\0&1\end{pmatrix}"),
    (r"A\setminus B=\{1\}", r"\{1\}"),
    (r"A\cap B=\{2,3\}", r"B\cap A=\{3,2\}"),
    ("x=t, y=2t, t\\in\\mathbb{R}", "(3s,6s), s\\in\\mathbb{R}"),
    (r"x_1+x_2=3", "y+x=3"),
    ("1<2<3", "1,2,3"),
    (r"\text{Domain: } x>3", r"(3,\infty)"),
    (r"x=2\ \text{o}\ x=3", "2,3"),
    (r"x=2 \text{ または } x=3", "2,3"),
    (r"\text{错误的}", "错误"),
    (r"\text{not defined}", r"\text{undefined}"),
    (r"\text{d) } 8", "d"),
]
DIFFERENT = [
    ("2:35 PM", "2:35"),
    ("2:35 AM", "14:35"),
    ("4.30 h", "4.5"),
    (r"(1\ 3\ 2)", r"(1\ 2\ 3)"),
    (r"(1\ 2)(2\ 3)", r"(2\ 3)(1\ 2)"),
    ("4!=23", "24"),
    ("n!=24", "24"),
    ("0.4545...", r"\frac{5}{11}"),
    (r"1,2\overline{AB}", "1.2"),
    (r"\frac{10}{40}=\frac13", "0,25"),
    ("m(t)=80t", "80"),
    ("m(t)=80t", "n(t)=80t"),
    (r"\sum_{n>0}x^n", r"\sum_{n=0}^\infty x^n"),
    (r"\sin x\cos x+C", r"\cos 2x+C"),
    ("x^2+C", "x^2+5"),
    ("ax^2+c", "ax^2+1+c"),
    ("O(n)", "O(-n^2)"),
    ("OA", "2OA"),
    (r"2A=\begin{pmatrix}1&2\\0&1\end{pmatrix}", r"\begin{pmatrix}1&2\\0&1\end{pmatrix}"),
    (r"2x=\{1\}", r"\{1\}"),
    ("(t,t^2), t\\in\\mathbb{R}", "(2s,2s^2), s\\in\\mathbb{R}"),
    ("(1,2), t\\in\\mathbb{R}", "(1+s,2+s), s\\in\\mathbb{R}"),
    (r"x_1+2x_2=3", "2x+y=3"),
    ("1<3<2", "1,2,3"),
    (r"\text{wrong answer: } 5", "5"),
    (r"\text{red}:\text{blue}=2:3", r"\text{blue}:\text{red}=2:3"),
    (r"\text{men}=2, \text{women}=3", r"\text{men}=3, \text{women}=2"),
    (r"\text{men}: 2, \text{women}: 3", "w=2, m=3"),
    (r"5\text{y}", "5"),
    ("③ ④", "③"),
    ("a) 1 b) 2", "a"),
]


@pytest.mark.parametrize(("left", "right"), SAME)
def test_two_notations_of_one_answer(left: str, right: str) -> None:
    assert equal(left, right)
    assert equal(right, left)
    assert parsable(right)


@pytest.mark.parametrize(("left", "right"), DIFFERENT)
def test_answers_that_only_look_alike(left: str, right: str) -> None:
    assert not equal(left, right)
    assert not equal(right, left)


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        ("No, it diverges", "No", True),
        ("Нет, не является", "нет", True),
        ("否，它发散", "否", True),
        ("No, because x<0", "No", True),
        ("Yes: it is a square", "Yes", True),
        ("Yes, but only for n=1", "Yes", False),
        ("Yes, if it is a square", "Yes", False),
        ("Yes, it is not a square", "Yes", False),
        ("是，但仅当n=1时", "是", False),
        ("No, yes it is", "No", False),
        ("No, it diverges", "Yes", False),
        ("Yes, 42", "Yes", False),
        ("Yes, east", "Yes", False),
        ("Yes", "Yes, it is 5", False),
        ("Nobody, it is empty", "No", False),
        (r"3^{100}\equiv 4\pmod 7", "4", True),
        (r"3^{100}\equiv 11\pmod 7", "11", False),
        (r"n\equiv 4\pmod 7", "4", False),
    ],
)
def test_statements_of_an_answer(answer: str, gold: str, right: bool) -> None:
    assert equal(rf"\text{{{answer}}}" if "\\" not in answer else answer, gold) == right
