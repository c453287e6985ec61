"""The mix as people read it: shares add up, bins hold every length."""

from hypothesis import given
from hypothesis import strategies as st

from magcli.curate.trace_selection import MixedRow, histogram, histogram_lines, mix_table, shares


def test_rows_copies_weights_and_lengths_are_summed_by_source() -> None:
    placed = [MixedRow("b", 0, 10, 1.0), MixedRow("a", 0, 5, 2.5), MixedRow("b", 1, 10, 1.0)]
    found = shares(placed)
    assert list(found) == ["a", "b"]
    assert vars(found["b"]) == {"rows": 2, "distinct": 1, "length": 20, "weight": 2.0}
    table = [line.split() for line in mix_table(found, "tokens")]
    assert table[1] == ["a", "1", "33.3%", "1", "2.5", "5", "20.0%"]
    assert table[-1] == ["all", "3", "100.0%", "2", "4.5", "25", "100.0%"]


@given(st.lists(st.integers(0, 100_000)))
def test_every_length_is_in_the_bin_that_ends_at_or_above_it(lengths: list[int]) -> None:
    bins = histogram(lengths)
    assert sum(bins.values()) == len(lengths)
    for edge, count in bins.items():
        assert count == sum(edge // 2 < max(length, 1) <= edge for length in lengths)
    assert len(histogram_lines(bins, "tokens")) == len(bins)
