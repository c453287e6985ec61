import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.report import formatting


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, "0"), (0.53009, "0.5301"), (12345.6, "12,346"), (0.00012345, "0.00012"), (-0.5, "-0.5"), (float("nan"), "-")],
)
def test_numbers(value, expected):
    assert formatting.number(value) == expected


def test_percentages_short_paths_and_counts():
    assert formatting.percent(0.5174) == "51.7 %"
    assert formatting.short_path("/a/b/sft/model") == "sft/model"
    assert list(formatting.largest_first({"few": 1, "none": 0, "many": 9})) == ["many", "few"]


def test_untrusted_text_has_no_invisible_characters():
    assert formatting.sanitize("a\x00b\x1b[1m\n") == "a\u2400b\u241b[1m\n"
    assert formatting.sanitize("right\u202eleft") == "right[U+202E]left"
    assert formatting.sanitize("x" * 50, 10) == "xxxxxxxxxx [... 40 more characters]"


@given(st.text())
def test_untrusted_text_can_be_encoded_and_has_no_control_characters(text):
    shown = formatting.sanitize(text)
    shown.encode()
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs", "Co") and c not in "\n\t"]
