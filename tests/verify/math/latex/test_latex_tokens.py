import pytest

from magcli.verify.math.latex.tokens import MAX_DEPTH, MAX_TOKENS, ascii_math, tokenize
from magcli.verify.math.latex.tree import ParseError


def values(text: str) -> list[str]:
    return [token.value for token in tokenize(text)]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (r"\left(1,\,2\right)", ["(", "1", ",", "2", ")"]),
        (r"\dfrac{1}{2}", [r"\frac", "{", "1", "}", "{", "2", "}"]),
        (r"x\leqslant 3", ["x", r"\le", "3"]),
        ("x<=3", ["x", r"\le", "3"]),
        (r"\mathbb{R}", [r"\mathbbR"]),
        (r"\text{ cm}^2", ["cm", "^", "2"]),
        (r"1 \text{ and } 2", ["1", "and", "2"]),
        (r"\mathrm{e}^x", ["e", "^", "x"]),
        ("1.5e-3", ["1.5e-3"]),
        ("2sin x", ["2", r"\sin", "x"]),
        (r"\displaystyle\color{red}5", ["5"]),
        ("3√2", ["3", r"\sqrt", "2"]),
        (r"1\\[4pt]2", ["1", r"\\", "2"]),
        ("**", ["^"]),
    ],
)
def test_spelling_variants_are_equivalent(text: str, tokens: list[str]) -> None:
    assert values(text) == tokens


def test_white_space_is_kept_where_it_matters() -> None:
    assert [token.spaced for token in tokenize("1 1/2")] == [False, True, False, False]


def test_unicode_signs_are_latex() -> None:
    assert values("−½π²≥∞") == values(r"-\frac{1}{2}\pi^{2}\ge\infty")
    assert ascii_math("10²³") == "10^{23}"
    assert ascii_math("10⁻²") == "10^{-2}"


@pytest.mark.parametrize("text", ["1+" * MAX_TOKENS, "(" * (MAX_DEPTH + 1), "x^" * (MAX_DEPTH + 1)])
def test_budgets(text: str) -> None:
    with pytest.raises(ParseError, match="too-"):
        tokenize(text)


def test_a_command_in_a_font_is_mathematics() -> None:
    assert [token.value for token in tokenize(r"\boldsymbol{\alpha}")] == [r"\alpha"]
    assert [token.kind for token in tokenize(r"\text{\alpha particle}")] == ["text"]
