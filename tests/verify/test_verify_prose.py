import pytest

from magcli.verify.prose import MAX_CHARS, noisy, words


def test_words_are_what_is_left() -> None:
    text = (
        "We see `len(x)` at https://a.b/c that $\\alpha$ is\n\\[ x^2 \\]\nabout 3.5 cm.\n```py\nfor i in x: pass\n```"
    )
    assert words(text) == "We see at that is about cm"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("He pays $5 for one and $7 for two of them", "He pays for one and for two of them"),
        ("le prix est de 2 $ l'œuf, donc 18 $ par jour", "le prix est de œuf donc par jour"),
        ("so $x$ and $y = 2$, not $ z", "so and not"),
        ("the <b>bold</b> word", "the bold word"),
        ("thus \\textbf{indeed} \\boxed{east}", "thus indeed"),
        ("```\nleft open", ""),
        ("\\begin{align} a &= b \\end{align} then", "then"),
        ("look at www.example.org/words now", "look at now"),
        ("数2个", "数 个"),
        ("a b à", "à"),
    ],
)
def test_what_is_removed(text: str, left: str) -> None:
    assert words(text) == left


def test_plain_text_is_not_noisy_and_long_text_is_cut() -> None:
    assert not noisy("Two and two are four, aren't they?")
    assert noisy("costs $2")
    assert len(words("word " * MAX_CHARS)) == MAX_CHARS
