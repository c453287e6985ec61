import subprocess
import sys
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magcli.verify.math import compare, correct_anywhere, equal, extract, last_number, parsable

SAME = [
    ("5.", "5"),
    (r"\dfrac12", "0.5"),
    (r"\frac{2}{4}", "1/2"),
    ("1{,}000", "1000"),
    ("1,234,567", "1234567"),
    (r"1\,234", "1234"),
    ("x=5", "5"),
    (r"x \in [0,1]", "[0,1]"),
    ("(1,2)", "( 1, 2 )"),
    (r"50\%", "50"),
    (r"5\text{ cm}", "5"),
    ("5 cm", r"5\text{ centimeters}"),
    (r"\$18", "18 dollars"),
    ("$18$", "18"),
    (r"$\$3040$", "3040"),
    ("9 apples", "9 (apples)"),
    (r"10\text{ square feet}", r"10\text{ ft}^2"),
    (r"\{1,2\}", "2,1"),
    (r"\{x \mid x<1\}", "x<1"),
    ("$2$ or $-2$", "-2, 2"),
    (r"1\frac12", r"\frac32"),
    ("1 1/2", "1.5"),
    (r"-1\frac{1}{2}", "-1.5"),
    (r"0.\overline{3}", r"\frac13"),
    (r"3\times10^8", "3e8"),
    ("2^{10}", "1024"),
    ("5!", "120"),
    (r"90^\circ", "90"),
    ("½", "0.5"),
    ("−3", "-3"),
    ("**73**", "73"),
    (r"\text{East}", "east"),
    (r"\text{(C)}", "C"),
    (r"4:30 \text{ p.m.}", r"\text{4:30 p.m.}"),
    (r"(-\infty,2]\cup[3,\infty)", r"[3,\infty)\cup(-\infty,2]"),
    ("a=1, b=2", "b=2, a=1"),
    (r"3\pm\sqrt2", r"3-\sqrt{2},3+\sqrt{2}"),
    (r"\frac{\sqrt{3}}{2}", r"\sqrt{\frac34}"),
    (r"2\sqrt{3}\text{ cm}", r"\sqrt{12}"),
    ("x^2+2x+1", "(x+1)^2"),
    ("x^4-2x^3+x", "x-2x^3+x^4"),
    (r"(3,\frac{\pi}{2})", r"(3, \frac \pi 2)"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
    ("y=2x+1", "2x+1"),
    ("1+2i", "2i+1"),
    ("(1+i)^2", "2i"),
    (r"e^{i\pi}", "-1"),
    ("3(4)", "12"),
    (r"3(4)\sqrt{2}", r"12\sqrt{2}"),
    ("y=3x-2", "3x-y=2"),
    ("2x+3y=6", "4x+6y=12"),
    ("x>1", "1<x"),
    (r"\frac{x+2}{7}", "(x+2)/7"),
    (r"\frac{1}{-2}", "-0.5"),
    ("12!", "479001600"),
    (r"\log_2 8", "3"),
]

DIFFERENT = [
    ("", "5"),
    ("x=5", "y=5"),
    ("(1,2)", "(2,1)"),
    ("[0,1]", "0,1"),
    ("[0,1]", "[0,1)"),
    ("1,2", "1,2,3"),
    ("1,2,3", "123"),
    ("(1,234)", "1234"),
    ("3", r"300\%"),
    (r"0.5\%", "0.5"),
    ("5 cm", "5 m"),
    (r"5\text{ cm}", r"5\text{ m}"),
    ("0.333", "1/3"),
    ("3.14", r"\pi"),
    ("1.41421356", r"\sqrt2"),
    ("1000000", "1000001"),
    ("10^{30}+1", "10^{30}"),
    ("1/2^{99}", "1/2^{98}"),
    ("e^{-100}", "e^{-101}"),
    (r"\frac{1}{2004!}", r"\frac{1}{2006!}"),
    ("1011_2", "1011_3"),
    ("1011_2", "11"),
    ("1 1/2", "11/2"),
    (r"1\frac12", r"\frac12"),
    ("east", "seat"),
    ("no", "on"),
    ("x", "X"),
    ("5", "5x"),
    ("x²", "x2"),
    ("5 million", "5"),
    ("a=1, b=2", "2, 1"),
    ("4", r"4\sqrt2"),
    ("3xy", "3"),
    ("3(4)", "7"),
    ("5:1", "5"),
    ("y=3x-2", "3x-2=0"),
    ("(x+1)abc", "x+1"),
    ("3 x squared", "3"),
    ("3x-y+13=0", "3x+4y+14=0"),
    (r"x\geq 3", "x>3"),
]


@pytest.mark.parametrize(("left", "right"), SAME)
def test_equality_is_symmetric(left: str, right: str) -> None:
    assert equal(left, right), compare(left, right)
    assert equal(right, left), compare(right, left)


@pytest.mark.parametrize(("left", "right"), DIFFERENT)
def test_inequality_is_symmetric(left: str, right: str) -> None:
    assert not equal(left, right), compare(left, right)
    assert not equal(right, left), compare(right, left)


@pytest.mark.parametrize("gold", ["She sells 9 eggs.\n#### 1,018", r"So it is \boxed{1018}.", "$1018$", r"\fbox{1018}"])
def test_ground_truth_may_be_wrapped(gold: str) -> None:
    assert equal("1018", gold)
    assert parsable(gold)


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed {5}", "5"),
        (r"\fbox{a}", "a"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{\boxed{11}\times\boxed{20}}", r"\boxed{11}\times\boxed{20}"),
        (r"\boxed{5} or \boxed{}", ""),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"stray } and { \boxed{7}", "7"),
        (r"\boxed{1} then \boxed{2", None),
        (r"\boxed 5", None),
        (r"\boxedx{5}", None),
        ("5", None),
        ("", None),
    ],
)
def test_extract_takes_the_last_box(text: str, box: str | None) -> None:
    assert extract(text) == box


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet="{}\\ab 1", max_size=60))
def test_extract_returns_balanced_text(text: str) -> None:
    box = extract(r"\boxed{" + text + "}")
    bare = (box or "").replace("\\\\", "").replace(r"\{", "").replace(r"\}", "")
    assert bare.count("{") == bare.count("}")


@settings(max_examples=50, deadline=None)
@given(st.fractions(max_denominator=10**6), st.fractions(max_denominator=10**6))
def test_fractions_are_equal_exactly_when_their_values_are(a: Fraction, b: Fraction) -> None:
    plain, latex = f"{a.numerator}/{a.denominator}", rf"\frac{{{b.numerator}}}{{{b.denominator}}}"
    assert compare(plain, latex) in ((a == b, "number"), (True, "text"))
    assert equal(plain, rf"\dfrac{{{3 * a.numerator}}}{{{3 * a.denominator}}}")


@settings(max_examples=50, deadline=None)
@given(st.integers(min_value=-(10**15), max_value=10**15))
def test_thousands_separators_change_nothing(n: int) -> None:
    assert equal(f"{n:,}", str(n))
    assert equal(f"{n:,}".replace(",", "{,}"), f"{n}.0")


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=80))
def test_any_text_is_compared_without_an_error(text: str) -> None:
    equal(text, "5")
    assert not equal("", text)
    parsable(text)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("so 3 + 4 = 7.", "7"),
        ("it costs $1,250.50 today", "1,250.50"),
        (r"that is \frac{3}{4}", r"\frac{3}{4}"),
        ("x = -3", "-3"),
        ("10-3", "3"),
        ("1/2 of it", "1/2"),
        ("none", None),
    ],
)
def test_last_number(text: str, number: str | None) -> None:
    assert last_number(text) == number


def test_anywhere_prefers_the_box_to_the_last_number() -> None:
    assert correct_anywhere(r"It is \boxed{5}, not 6", "5")
    assert correct_anywhere("The answer is 5", "5")
    assert not correct_anywhere(r"It is \boxed{6}, not 5", "5")
    assert not correct_anywhere("no idea", "5")


@pytest.mark.parametrize(
    "gold", ["5", "1/2", "x^2+1", "(1,2)", r"\text{Yes}", "4:30", r"[0,\infty)", "B", "5 cm", "9^{9^{9}}"]
)
def test_parsable(gold: str) -> None:
    assert parsable(gold)


PROSE = "This is a proof, so there is no short answer to give."


@pytest.mark.parametrize("gold", ["", "  ", r"\frac{1}{", r"\boxed{}", "{" * 100, PROSE])
def test_not_parsable(gold: str) -> None:
    assert not parsable(gold)


def test_no_answer_imports_a_heavy_module() -> None:
    program = (
        "import sys; from magcli.verify.math import equal; "
        "assert equal('1{,}000', '1000.0') and equal(r'\\dfrac12', '50/100'); "
        "assert not equal(r'\\frac{1}{', r'\\unknown{2}'); "
        "heavy = {'sympy', 'math_verify', 'torch', 'pyarrow', 'fasttext'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
