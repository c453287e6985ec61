import pytest

from magcli.verify.math.latex.answers import only_words, tidy
from magcli.verify.math.latex.spelling import normalize, squeeze
from magcli.verify.math.latex.tokens import tokenize


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        (r"$\boxed{\text{ 5 }}$.", "5"),
        ("**5**", "5"),
        (r"1{,}000{,}000", "1000000"),
        (r"12,\!345", "12345"),
        (r"1\,000", "1000"),
        (r"3{,}5", "3.5"),
        ("x=1,250", "x=1250"),
        ("1,250", "1,250"),
        ("(1,250)", "(1,250)"),
        ("1, 250", "1, 250"),
        ("0.(3)", r"0.\overline{3}"),
        ("2x10^5", r"2\times 10^5"),
        (r"\\frac{1}{2}", r"\frac{1}{2}"),
        (r"\text{The answer is } 5", "5"),
        ("The final answer is: 5", "5"),
        (r"{}_5C_2", r"\binom{5}{2}"),
        (r"\text{a} + \text{b}", r"\text{a} + \text{b}"),
        (r"\(x\)", "x"),
        (r"\$5", r"\$5"),
        ("...", "..."),
    ],
)
def test_wrappers_are_removed_and_grouped_digits_joined(text: str, bare: str) -> None:
    assert normalize(text) == bare


def test_words_are_distinguished_from_mathematics() -> None:
    assert only_words(tokenize(r"\text{The answer} key")) == "answer key"
    assert only_words(tokenize("no solution")) == "no solution"
    for text in ("x", "x+1", r"\sin", "-nan", "5 cm"):
        assert only_words(tokenize(text)) is None


def test_tidy_words() -> None:
    assert tidy(" The  Red , and a blue. ") == "red, and blue"


def test_squeezing_keeps_spaces_between_digits() -> None:
    assert squeeze(r"\text{June } 20") == "June20"
    assert squeeze("1 1/2") == "1 1/2" != squeeze("11/2")
