"""Rows on disk come back as they were, in any order."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from magcli.curate.traces.spool import spool

values = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text()
rows_of_json = st.dictionaries(st.text(), values | st.lists(values, max_size=3), max_size=4)


@given(st.lists(rows_of_json, max_size=8), st.randoms(use_true_random=False))
def test_rows_come_back_as_they_were(rows: list[dict[str, Any]], shuffler: Any) -> None:
    with spool() as spooled:
        for row in rows:
            spooled.append(row)
            assert spooled[len(spooled) - 1] == row
        order = list(range(len(rows)))
        shuffler.shuffle(order)
        assert [spooled[number] for number in order] == [rows[number] for number in order]
        assert list(spooled) == rows
