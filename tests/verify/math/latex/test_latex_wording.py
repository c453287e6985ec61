import pytest

from magcli.verify.math.latex.phrases import formalize


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        ("all real numbers except 0", r"\mathbb{R}\setminus\{0\}"),
        (r"\text{all reals except } x = 1 \text{ and } x = 2", r"\mathbb{R}\setminus\{1 and 2\}"),
        (r"\text{all real numbers except } [0,1]", r"\mathbb{R}\setminus [0,1]"),
        (r"\text{all real } x \text{ such that } x>2", "x>2"),
        (r"k\pi \text{ where } k \text{ is an integer}", r"k\pi, k \in \mathbb{Z}"),
        (r"n\pi \text{ for any integer } n", r"n\pi, n \in \mathbb{Z}"),
        (r"n\pi\ (n\in\mathbb{Z})", r"n\pi, n \in \mathbb{Z}"),
        (r"k\pi, k=0,\pm1,\pm2,\ldots", r"k\pi, k \in \mathbb{Z}"),
    ],
)
def test_words_as_formulas(text: str, formula: str) -> None:
    assert formalize(text) == formula


@pytest.mark.parametrize(
    "text",
    [
        "all integers except 0",
        "all real numbers except the negative ones",
        "12 integers",
        r"12n \text{ integers}",
        r"k\pi, k=0,1,2,\ldots",
        r"\mathbb{R}",
        "x>3",
        r"n \text{ is an integer}",
    ],
)
def test_other_words_stay_as_they_are(text: str) -> None:
    assert formalize(text) == text
