import contextlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.curate.spill import SpilledBatches, numbered, spilled_rows

values = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text()
rows_of_json = st.dictionaries(st.text(), values | st.lists(values, max_size=3), max_size=4)


def test_rows_come_back_in_order_with_their_numbers() -> None:
    schema = pa.schema([("id", pa.string())])
    batches = [pa.record_batch([pa.array([f"{i}{j}" for j in range(i)], pa.string())], schema) for i in range(4)]
    with contextlib.closing(SpilledBatches(schema)) as spilled:
        for batch in batches:
            spilled.add(batch)
        back = list(numbered(spilled.rows()))
    assert [before for before, _ in back] == [0, 0, 1, 3]
    assert [batch.to_pylist() for _, batch in back] == [batch.to_pylist() for batch in batches]


def test_the_file_is_removed_with_the_object() -> None:
    with contextlib.closing(SpilledBatches(pa.schema([("id", pa.string())]))) as spilled:
        assert list(spilled.rows()) == []
    with pytest.raises(ValueError, match="closed"):
        spilled.file.read()


@given(st.lists(rows_of_json, max_size=8), st.randoms(use_true_random=False))
def test_rows_come_back_as_they_were(rows: list[dict[str, Any]], shuffler: Any) -> None:
    with spilled_rows() as spilled:
        for row in rows:
            spilled.append(row)
            assert spilled[len(spilled) - 1] == row
        order = list(range(len(rows)))
        shuffler.shuffle(order)
        assert [spilled[number] for number in order] == [rows[number] for number in order]
        assert list(spilled) == rows
