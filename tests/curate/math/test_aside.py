import contextlib

import pyarrow as pa
import pytest

from magcli.curate.math.aside import Aside, numbered


def test_rows_come_back_in_order_with_their_numbers() -> None:
    schema = pa.schema([("id", pa.string())])
    batches = [pa.record_batch([pa.array([f"{i}{j}" for j in range(i)], pa.string())], schema) for i in range(4)]
    with contextlib.closing(Aside(schema)) as aside:
        for batch in batches:
            aside.add(batch)
        back = list(numbered(aside.rows()))
    assert [before for before, _ in back] == [0, 0, 1, 3]
    assert [batch.to_pylist() for _, batch in back] == [batch.to_pylist() for batch in batches]


def test_the_file_is_gone_with_it() -> None:
    with contextlib.closing(Aside(pa.schema([("id", pa.string())]))) as aside:
        assert list(aside.rows()) == []
    with pytest.raises(ValueError, match="closed"):
        aside.file.read()
