"""Tables beside the input, some of whose lines cannot be read."""

import contextlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magcli.curate.tables import (
    SpilledBatches,
    context_columns,
    context_of,
    read_lenient,
    read_strict,
    spilled_rows,
    with_context,
)
from magcli.data import table
from magcli.errors import DataError

BROKEN = {
    "a.jsonl": '{"a": 1}\n{"a": \n[]\n{"a": 2}\n',
    "a.csv": "a,b\n1,2\n1,2,3\n3,4\n",
}


def rows_of(source) -> int:
    return sum(batch.num_rows for batch in source.rows)


@pytest.mark.parametrize(
    ("name", "counts"), [("a.jsonl", "broken-json 1, not-an-object 1"), ("a.csv", "ragged-line 1")]
)
def test_unreadable_lines_are_reported_once_per_reason(tmp_path: Path, name: str, counts: str) -> None:
    (tmp_path / name).write_text(BROKEN[name])
    heard: list[str] = []
    assert rows_of(read_lenient(tmp_path / name, heard.append)) == 2
    assert heard == [f"{tmp_path / name}: skipped unreadable lines ({counts})"]


@pytest.mark.parametrize(("name", "counts"), [("a.jsonl", r"line 2 \(broken-json\)"), ("a.csv", r"\(ragged-line\)")])
def test_a_table_that_must_be_complete_is_refused_at_its_first_broken_line(
    tmp_path: Path, name: str, counts: str
) -> None:
    (tmp_path / name).write_text(BROKEN[name])
    with pytest.raises(DataError, match=f"{name} has unreadable lines: .*{counts}; fix or remove"):
        rows_of(read_strict(tmp_path / name))


def test_complete_tables_are_read_without_a_message(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
    assert rows_of(read_lenient(tmp_path / "a.jsonl", pytest.fail)) == rows_of(read_strict(tmp_path / "a.jsonl")) == 1


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (["body", "question"], ["body"]),
        (["question", "context", "Body"], ["Body", "context"]),
        (["prompt", "context"], []),
        (["question"], []),
    ],
)
def test_facts_are_joined_only_for_known_columns(names: list[str], columns: list[str]) -> None:
    assert context_columns(names) == columns


@pytest.mark.parametrize(
    ("row", "statement"),
    [
        ({"body": " Ann has a pear. ", "context": "x"}, "Ann has a pear.\nHow many?"),
        ({"body": " ", "context": "Bob has two."}, "Bob has two.\nHow many?"),
        ({"body": None, "context": ["x"]}, "How many?"),
    ],
)
def test_the_statement_begins_with_the_first_textual_facts(row: dict, statement: str) -> None:
    assert with_context(context_of(row, ["body", "context"]), "How many?") == statement


values = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text()
rows_of_json = st.dictionaries(st.text(), values | st.lists(values, max_size=3), max_size=4)


def test_spilled_batches_come_back_in_order() -> None:
    schema = pa.schema([("id", pa.string())])
    batches = [pa.record_batch([pa.array([f"{i}{j}" for j in range(i)], pa.string())], schema) for i in range(4)]
    with contextlib.closing(SpilledBatches(schema)) as spilled:
        for batch in batches:
            spilled.add(batch)
        back = list(spilled.rows())
    assert [batch.to_pylist() for batch in back] == [batch.to_pylist() for batch in batches]


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


@pytest.mark.parametrize("read", [lambda path: read_lenient(path, print), lambda path: table.read(str(path))])
def test_lines_in_another_encoding_are_never_skipped(tmp_path, read) -> None:
    (tmp_path / "a.jsonl").write_bytes('{"a": "é"}\n{"a": "e"}\n'.encode("latin-1"))
    with pytest.raises(DataError, match=r"a\.jsonl: line 1 cannot be read \(not-utf-8\); convert the input"):
        list(read(tmp_path / "a.jsonl").rows)
