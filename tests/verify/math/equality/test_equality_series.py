"""Ground truths that are infinite series equal their closed forms; answers are never summed."""

import subprocess
import sys

import pytest

from magcli.verify.math import compare
from magcli.verify.math.equality.identity import MAX_NODES, closed_form, is_series
from magcli.verify.math.latex.answers import parse_answer

CLOSED = [
    (r"\sum_{k=1}^{\infty}\frac{1}{k^2}", r"\frac{\pi^2}{6}"),
    (r"\sum_{n=0}^\infty \frac{1}{n!}", "e"),
    (r"\sum_{n=1}^\infty \frac{(-1)^{n+1}}{n}", r"\ln 2"),
    (r"\sum_{n=1}^\infty n x^n", r"\frac{x}{(1-x)^2}"),
    (r"\sum_{n=0}^\infty \frac{x^n}{n!}", "e^x"),
    (r"3+2\sum_{n=1}^\infty \frac{1}{n(n+1)}", "5"),
    (r"\sum_{n=0}^\infty \frac{(-1)^n}{2n+1}", r"\frac{\pi}{4}"),
]
NO_CLOSED_FORM = [
    r"\sum_{n=1}^\infty \frac{1}{n}",
    r"\sum_{n=1}^\infty \frac{\sin n}{n^n+\ln n}",
    r"\sum_{n=1}^\infty f(n)",
    r"\sum_{n=1}^\infty \left(" + "+".join(f"{k}^n" for k in range(2, MAX_NODES)) + r"\right)",
]


@pytest.mark.parametrize(("series", "closed"), CLOSED)
def test_a_series_equals_its_closed_form_and_nothing_else(series: str, closed: str) -> None:
    assert compare(closed, series) == (True, "sympy")
    assert compare(f"{closed}+1", series)[0] is False
    assert compare(f"2({closed})", series)[0] is False
    assert compare("1.64", series)[0] is False


@pytest.mark.parametrize("series", NO_CLOSED_FORM)
def test_a_series_without_a_closed_form_equals_itself_alone(series: str) -> None:
    assert closed_form(parse_answer(series)) is None
    assert compare(series, series)[0]
    assert compare("2", series)[0] is False


def test_finite_sums_are_not_series() -> None:
    assert is_series(parse_answer(r"1+\sum_{k=1}^{\infty} 2^{-k}"))
    assert not is_series(parse_answer(r"\sum_{k=1}^{10} 2^{-k}"))
    assert closed_form(parse_answer(r"\sum_{k=1}^{10} 2^{-k}")) is None


def test_an_answer_is_never_summed() -> None:
    program = (
        "import sys; from magcli.verify.math import compare\n"
        r"print(compare(r'\sum_{k=1}^{\infty}\frac{1}{k^2}', r'\frac{\pi^2}{6}')[0], 'sympy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
