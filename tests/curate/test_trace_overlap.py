"""Near-identical texts: symmetric, blind to case and spaces, and told apart by what differs."""

from hypothesis import given
from hypothesis import strategies as st

from magcli.curate.trace_selection import near_duplicates, ngrams, overlap

LONG = " ".join(f"term {i} is {i * i}," for i in range(30))


@given(st.text(), st.text())
def test_overlap_is_symmetric_and_1_for_equal_texts(one: str, other: str) -> None:
    assert overlap(ngrams(one), ngrams(other)) == overlap(ngrams(other), ngrams(one)) <= 1
    assert overlap(ngrams(one), ngrams(one)) == 1


def test_case_and_spaces_do_not_matter_and_other_words_do() -> None:
    assert ngrams(LONG) == ngrams(LONG.upper().replace(" ", "\n  "))
    one_word = overlap(ngrams(LONG), ngrams(LONG.replace("term 15", "item 15")))
    assert 0.8 < one_word < 1
    assert overlap(ngrams(LONG), ngrams(LONG.replace("term", "item"))) == 0


def test_short_texts_are_similar_only_when_equal() -> None:
    near = near_duplicates(["It is 2.", "it is  2.", "It is 3."].__getitem__, 0.8)
    assert near(0, 1)
    assert not near(0, 2)
