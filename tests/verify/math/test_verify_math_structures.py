"""Logic, congruences, sets, vectors, formulas of chemistry and relations of geometry, each in both directions."""

import pytest

from magcli.verify.math import compare, equal, parsable

SAME = [
    (r"p \wedge q", r"q\land p"),
    (r"(p\land q)\lor r", r"r\lor(q\land p)"),
    (r"\neg\neg p", "p"),
    (r"p\Rightarrow q", r"p\to q"),
    (r"p\iff q", r"q\Leftrightarrow p"),
    (r"p\oplus q", r"q\oplus p"),
    (r"\forall x\,\exists y: P(x,y)", r"\forall a\,\exists b\,P(a,b)"),
    (r"n\equiv 2\pmod 9", "n ≡ 2 (mod 9)"),
    (r"n\equiv 2\pmod 9", r"n\equiv -7 \bmod 9"),
    (r"n\equiv 2\pmod 9", "n=9k+2"),
    (r"n\equiv 2\pmod 9", r"9k-7, k\in\mathbb{Z}"),
    (r"n\equiv 2\text{ or }5\pmod 9", r"n\equiv 5,2\pmod9"),
    (r"9\mid n", r"n\text{ is a multiple of }9"),
    (r"9\mid n", r"n\equiv 0\pmod 9"),
    (r"9\mid n", r"n=9m,\ m\in\mathbb{Z}"),
    (r"\frac13(1,2,2)", r"\left(\frac13,\frac23,\frac23\right)"),
    (r"\frac{(1,2)}{2}", r"(\frac12,1)"),
    (r"\{x\mid x=4\text{ or }x=5\}", r"\{4,5\}"),
    (r"\mathbb{R}\times\mathbb{R}", r"\mathbb{R}^2"),
    (r"\mathbb{R}\setminus{4}", r"x\ne 4"),
    (r"v_{A}T", "v_AT"),
    ("SO₄²⁻", r"\mathrm{SO}_{4}^{2-}"),
    (r"\text{Cu}^{2+}", "Cu^{2+}"),
    ("H₂O", r"\mathrm{H_2O}"),
    ("EF ⊥ GH", r"GH\perp EF"),
    (r"EF\|GH", r"EF\parallel GH"),
    (r"A\subset B", r"B\supset A"),
    ("2 1/4 m", "9/4"),
    (r"f(x)=kx, k\in\mathbb{R}", r"f(x)=cx \text{ for any real constant } c"),
    (r"\frac12\text{ or }0.5", "0.5"),
    ("3 dollars and 25 cents", r"\$3.25"),
    ("US$3.25", r"\$3.25"),
    ("Rs. 40", "40 rupees"),
    (r"7\ \mu\text{A}", "7 microamperes"),
    ("Alice and Bob", "Bob, Alice"),
]
DIFFERENT = [
    (r"p\lor q", r"p\land q"),
    (r"p\land(q\lor r)", r"(p\land q)\lor r"),
    (r"p\to q", r"q\to p"),
    (r"\neg p", "p"),
    (r"\forall x\,\exists y: P(x,y)", r"\exists y\,\forall x\,P(x,y)"),
    (r"p\land q", "p,q"),
    (r"n\equiv 2\pmod 9", r"n\equiv 2\pmod 3"),
    (r"n\equiv 2\pmod 9", "2"),
    (r"n\equiv 2\pmod 9", "n=9k+3"),
    (r"n\equiv 2,5\pmod 9", "2,5"),
    (r"9\mid n", r"n\mid 9"),
    ("(1,2,2)", r"\frac13(1,2,2)"),
    ("3(1,2)", "(3,2)"),
    (r"\{4\},\{5\}", r"\{4,5\}"),
    ("A or C", "A,C"),
    ("Alice or Bob", "Alice and Bob"),
    ("x,y", "xy"),
    ("XY", "xy"),
    ("GH", "gh"),
    ("SO_4^{-}", r"\mathrm{SO_4^{2-}}"),
    ("CO", r"\mathrm{CO_2}"),
    (r"EF\perp GH", r"EF\parallel GH"),
    (r"A\subset B", r"B\subset A"),
    (r"\triangle ABC\cong\triangle DEF", r"\triangle ABC\sim\triangle DEF"),
    ("v_At", "v_AT"),
    (r"\mathbb{R}^3", r"\mathbb{R}^2"),
    ("3 dollars and 5 cents", r"\$3.50"),
    (r"7\ \mu\text{A}", "7 mA"),
    (r"\frac12\text{ or }0.6", "0.5"),
]


@pytest.mark.parametrize(("left", "right"), SAME)
def test_the_same_in_both_directions(left: str, right: str) -> None:
    assert equal(left, right)
    assert equal(right, left)
    assert parsable(left)
    assert parsable(right)


@pytest.mark.parametrize(("left", "right"), DIFFERENT)
def test_different_in_both_directions(left: str, right: str) -> None:
    assert not equal(left, right)
    assert not equal(right, left)


@pytest.mark.parametrize("named", ["x=1, y=2", "x_1=1, x_2=2", r"(x,y)=(1,2)"])
def test_named_values_are_not_the_empty_set(named: str) -> None:
    assert compare(named, r"\emptyset") == (False, "structure")
    assert compare(r"\emptyset", named) == (False, "structure")
