"""Values with their errors, in floats and in any precision."""

import math
from fractions import Fraction

import pytest

from magcli.verify.math.equality.evaluate import FLOAT_FIELD, Ball, NotReal, Point, Undecided, evaluate, mp_field
from magcli.verify.math.latex.answers import parse_answer


def value(text: str, *, bits: int = 0, real: bool = False, **symbols: int) -> Ball:
    field = mp_field(bits) if bits else FLOAT_FIELD
    return evaluate(parse_answer(text), Point(field, {k: Fraction(v) for k, v in symbols.items()}, real=real))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"\sqrt{2}", math.sqrt(2)),
        (r"e^{\pi}", math.exp(math.pi)),
        (r"\sin 1+\cos 1+\tan 1", math.sin(1) + math.cos(1) + math.tan(1)),
        (r"\sec 1", 1 / math.cos(1)),
        (r"\arctan 2", math.atan(2)),
        (r"\sinh 1", math.sinh(1)),
        (r"\ln 5", math.log(5)),
        (r"\log_3 5", math.log(5, 3)),
        (r"\sin 30^\circ", 0.5),
        (r"|1-\sqrt2|", math.sqrt(2) - 1),
        (r"\lfloor \sqrt{50}\rfloor", 7),
        (r"\lceil \pi\rceil", 4),
        (r"\max(\sqrt2, 1)", math.sqrt(2)),
        (r"\sqrt[3]{-2}", -(2 ** (1 / 3))),
        (r"e^{i\pi}", -1),
        (r"i^i", math.exp(-math.pi / 2)),
        (r"\sum_{k=1}^{4} \sqrt{k}", sum(math.sqrt(k) for k in range(1, 5))),
        (r"\prod_{k=1}^{4} \pi", math.pi**4),
        (r"25\%\cdot\pi", math.pi / 4),
    ],
)
def test_values_are_within_their_error(text: str, expected: float) -> None:
    if "%" in text:
        text = r"\frac{25\pi}{100}"
    for bits in (0, 170):
        found = value(text, bits=bits)
        assert abs(found.value - expected) <= found.error + 1e-13
        assert found.error < 1e-12


def test_rational_values_are_exact() -> None:
    assert value("(x+1)^2/3", x=2) == Ball(Fraction(3))
    assert value(r"\binom{n}{2}", n=6) == Ball(Fraction(15))


def test_more_digits_decide_what_fewer_cannot() -> None:
    text = r"e^{\pi\sqrt{163}}-262537412640768744"
    with pytest.raises(Undecided):
        evaluate(parse_answer(r"e^{-300}+1"), Point(mp_field(170), {}, real=False))
    found = value(text, bits=300)
    assert -1e-11 < found.value < -1e-13


@pytest.mark.parametrize("text", [r"\sqrt{x}", r"\ln x", r"\arcsin(x-5)", "x^{\\pi}"])
def test_real_expressions_have_no_complex_values(text: str) -> None:
    with pytest.raises(NotReal):
        value(text, x=-2, real=True)


@pytest.mark.parametrize(
    "text", ["y", r"\frac{1}{x}", r"\ln 0", "e^{e^{e^{e}}}", r"\infty", r"\sum_{k=1}^{10^9} k", r"5\text{ cm}"]
)
def test_expressions_without_a_value_are_undecided(text: str) -> None:
    with pytest.raises(Undecided):
        value(text, x=0)


def test_unknown_functions_depend_on_their_name_and_argument() -> None:
    assert value("f(x+1)", x=1) == value("f(2)")
    assert len({float(value(text).value) for text in ("f(2)", "f(3)", "g(2)")}) == 3
