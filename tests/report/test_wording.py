import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.report import wording


@pytest.mark.parametrize(
    ("value", "told"),
    [(0, "0"), (0.53009, "0.5301"), (12345.6, "12,346"), (0.00012345, "0.00012"), (-0.5, "-0.5"), (float("nan"), "-")],
)
def test_numbers(value, told):
    assert wording.number(value) == told


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.3, "0.3 s"), (73, "1 min 13 s"), (3600, "1 h 0 min"), (200_000, "2 d 7 h"), (float("nan"), "-")],
)
def test_durations(seconds, told):
    assert wording.duration(seconds) == told


def test_shares_tails_and_sizes():
    assert wording.share(0.5174) == "51.7 %"
    assert wording.tail("/a/b/sft/model") == "sft/model"
    assert list(wording.by_size({"few": 1, "none": 0, "many": 9})) == ["many", "few"]


def test_nothing_in_a_foreign_text_is_unseen():
    assert wording.foreign("a\x00b\x1b[1m\n") == "a\u2400b\u241b[1m\n"
    assert wording.foreign("right\u202eleft") == "right[U+202E]left"
    assert wording.foreign("x" * 50, 10) == "xxxxxxxxxx [... 40 more characters]"


@given(st.text())
def test_a_foreign_text_can_be_written_and_holds_no_control_characters(text):
    shown = wording.foreign(text)
    shown.encode()
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs", "Co") and c not in "\n\t"]
