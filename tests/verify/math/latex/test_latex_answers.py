"""Parse trees of answers: atoms, expressions, commands, parts and brackets end to end."""

import pytest

from magcli.verify.math.latex.answers import parse_answer, parse_as_list
from magcli.verify.math.latex.tree import Expr


def shown(expr: Expr) -> str:
    if expr.op == "num":
        return str(expr.number)
    if expr.op in ("sym", "const"):
        return expr.name
    return f"{expr.op}{':' + expr.name if expr.name else ''}({', '.join(map(shown, expr.args))})"


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        (r"\frac12", "1/2"),
        (r"\frac 3 8", "3/8"),
        (r"2\frac13", "7/3"),
        (r"5\frac32", "15/2"),
        ("2 1/3", "7/3"),
        ("-2^2", "-4"),
        ("2^3^2", "512"),
        ("6/2*3", "9"),
        ("2-3-4", "-5"),
        ("2--3", "5"),
        (r"0.1\overline{6}", "1/6"),
        ("0.333...", "1/3"),
        (r"\sqrt[3]{-27}", "-3"),
        (r"\sqrt{2}", "^(2, 1/2)"),
        ("ab", "text:ab()"),
        ("2ab", "*(*(2, a), b)"),
        ("x_{12}", "x_12"),
        ("x'", "x'"),
        ("f(x)", "f:?f(x)"),
        ("f^{-1}(x)", "f:?f^-1(x)"),
        ("x(y+1)", "*(x, +(y, 1))"),
        (r"\sin 2x\cos y", "*(f:sin(*(2, x)), f:cos(y))"),
        (r"\sin^2 x", "^(f:sin(x), 2)"),
        (r"\sin^{-1} x", "f:arcsin(x)"),
        (r"\log_2 8", "3"),
        ("|x-1||y|", "*(f:abs(+(x, -1)), f:abs(y))"),
        ("5!", "120"),
        ("n!", "f:factorial(n)"),
        (r"\sum_{i=1}^{n} i", "sum(i, 1, n, i)"),
        ("C(5,2)", "10"),
        ("C_5^2", "10"),
        (r"n \choose 2", "f:binom(n, 2)"),
        (r"1 \over 4", "1/4"),
        (r"\begin{vmatrix}1&2\\3&4\end{vmatrix}", "-2"),
        (r"\begin{cases}x=1\\y=2\end{cases}", "list:and(rel:=(x, 1), rel:=(y, 2))"),
        ("(1,2)", "tuple:()(1, 2)"),
        ("[1,2)", "tuple:[)(1, 2)"),
        ("]1,2]", "tuple:(](1, 2)"),
        (r"\langle 1,2\rangle", "tuple:()(1, 2)"),
        (r"\{1,2\}", "set(1, 2)"),
        (r"\{x \mid x<1\}", "builder(x, rel:<(x, 1))"),
        (r"\{|x|, 1\}", "set(f:abs(x), 1)"),
        (r"[0,1]\cup\{2\}", r"\cup(tuple:[](0, 1), set(2))"),
        ("x=1, y=2", "list(rel:=(x, 1), rel:=(y, 2))"),
        ("a=1,b=2;a=3,b=4", "list(list(rel:=(a, 1), rel:=(b, 2)), list(rel:=(a, 3), rel:=(b, 4)))"),
        ("x=2+3=5", "chain(rel:=(x, 5), x, 5, 5)"),
        (r"\frac13\approx 0.33", "chain(1/3, 1/3, 33/100)"),
        ("1<x<2", "rel:< <(1, x, 2)"),
        (r"k\pi, k\in\mathbb{Z}", "family:Z(*(k, pi), k)"),
        (r"3\pm\sqrt2", "+(3, pm:pm(^(2, 1/2)))"),
        (r"5\text{ cm}^2", "unit:centimeter^2(5)"),
        ("9 (apples)", "unit:apple(9)"),
        (r"\$5\text{ million}", "unit:dollar(5000000)"),
        (r"50\%", "percent(50)"),
        (r"90^\circ", "unit:degree(90)"),
        (r"3 \pmod 7", "residue(3, 7)"),
        ("7:32", "ratio:time(7, 32)"),
        ("7:5", "ratio(7, 5)"),
        ("4:30 PM", "ratio:clock(16, 30)"),
        ("1011_2", "base:1011_2()"),
        (r"1011_{\text{two}}", "base:1011_2()"),
        ("(C)", "choice:C()"),
        (r"\textbf{(C)}\ 12", "choice:C(12)"),
        ("1,234", "1234"),
        ("1.234.567,8", "6172839/5"),
        (r"\text{No solution}", "set()"),
        ("twelve", "12"),
        ("Alice and Bob", "list(text:alice(), text:bob())"),
    ],
)
def test_trees(text: str, tree: str) -> None:
    assert shown(parse_answer(text)) == tree


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("(1,2", "unparsable"),
        (r"\frac{1}+", "unparsable"),
        ("1 2", "unparsable"),
        (r"\unknown{3}", "unparsable"),
        (r"\begin{pmatrix}1&2\\3\end{pmatrix}", "matrix-shapes"),
        ("(" * 100, "too-deep"),
        ("1" * 5000, "too-long"),
        ("+".join(["x"] * 3000), "too-long"),
    ],
)
def test_unreadable_text_has_a_reason(text: str, reason: str) -> None:
    tree = parse_answer(text)
    assert (tree.op, tree.args[0].name) == ("raw", reason)


@pytest.mark.parametrize("text", ["2C(5 or 3,1)", "1+C(5 and 2,1)"])
def test_a_number_of_combinations_of_three_numbers_is_unreadable(text: str) -> None:
    assert parse_answer(text).op == "raw"


def test_commas_may_be_read_as_separators() -> None:
    assert shown(parse_as_list("100,200,300")) == "list(100, 200, 300)"


def test_a_symbol_in_braces_may_have_an_index() -> None:
    assert parse_answer(r"{\alpha}_1") == parse_answer(r"\boldsymbol{\alpha}_{1}") == parse_answer(r"\alpha_1")
    assert parse_answer(r"{\alpha}_1") != parse_answer(r"{\alpha}_2")
