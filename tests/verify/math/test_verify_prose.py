import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.verify.language import MAX_CHARS, MAX_WORDS, noisy, prose_sentences, prose_words


def test_words_remain_after_removing_formulas() -> None:
    text = (
        "We see `len(x)` at https://a.b/c that $\\alpha$ is\n\\[ x^2 \\]\nabout 3.5 cm.\n```py\nfor i in x: pass\n```"
    )
    assert prose_words(text) == "We see at that is about cm"


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
def test_formulas_and_code_are_removed(text: str, left: str) -> None:
    assert prose_words(text) == left


def test_plain_text_is_unchanged_and_long_text_truncated() -> None:
    assert not noisy("Two and two are four, aren't they?")
    assert noisy("costs $2")
    assert len(prose_words("word " * MAX_CHARS)) == MAX_CHARS


def test_sentences() -> None:
    text = "Let x be 3.5 m. Is it so?\nSee www.site.org/a.b for v1.2: yes!"
    assert prose_sentences(text) == [["let", "be"], ["is", "it", "so"], ["see", "for", "yes"]]
    assert prose_sentences("这是一。So it is.那么二？Да! 好；完") == [
        ["这是一"], ["so", "it", "is"], ["那么二"], ["да"], ["好"], ["完"]
    ]  # fmt: skip
    assert prose_sentences("We get $$a = b.$$ Donc voilà \\[ c. \\] et $d$ est") == [
        ["we", "get"],
        ["donc", "voilà"],
        ["et", "est"],
    ]
    assert prose_sentences("3 + 4 = 7. $x$") == []


def test_no_sentence_and_no_word_is_longer_than_its_bound() -> None:
    assert [len(sentence) for sentence in prose_sentences("word " * 60)] == [MAX_WORDS, MAX_WORDS, 10]
    assert max(map(len, prose_sentences("a" * 1000)[0])) == 40
    assert sum(len(word) for sentence in prose_sentences("a" * (MAX_CHARS + 50)) for word in sentence) == MAX_CHARS


@given(st.lists(st.sampled_from(["Two", "и", "数和", "x", "$y$", "3", ".", "? ", "。", "\n", " ", "`a`"])).map("".join))
def test_sentences_contain_the_words(text: str) -> None:
    found = prose_sentences(text)
    assert all(found)
    assert " ".join(" ".join(sentence) for sentence in found) == prose_words(text).lower()
