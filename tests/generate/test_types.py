"""Seeds of samples are stable, spread out and depend on every part."""

from hypothesis import given
from hypothesis import strategies as st

from magcli.generate.types import sample_seed


def test_the_seed_never_changes():
    assert sample_seed(0, "gsm8k-1", 0) == 7579675614798337060
    assert len({sample_seed(run, row, sample) for run in range(5) for row in "abc" for sample in range(50)}) == 750


@given(st.integers(), st.text(), st.integers())
def test_the_seed_fits_int64(run, row, sample):
    assert 0 <= sample_seed(run, row, sample) < 2**63


@given(st.text(), st.text())
def test_the_parts_of_a_seed_are_delimited(left, right):
    assert sample_seed(1, f"{left}\0{right}", 2) != sample_seed(1, left, 2)
