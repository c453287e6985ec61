"""Tables beside the input, some of whose lines cannot be read."""

from pathlib import Path

import pytest

from magcli.curate.reading import read_lenient, read_strict
from magcli.errors import DataError

BROKEN = {
    "a.jsonl": '{"a": 1}\n{"a": \n[]\n{"a": 2}\n',
    "a.csv": "a,b\n1,2\n1,2,3\n3,4\n",
}


def rows_of(source) -> int:
    return sum(batch.num_rows for batch in source.rows)


@pytest.mark.parametrize(("name", "told"), [("a.jsonl", "broken-json 1, not-an-object 1"), ("a.csv", "ragged-line 1")])
def test_unreadable_lines_are_reported_once_per_reason(tmp_path: Path, name: str, told: str) -> None:
    (tmp_path / name).write_text(BROKEN[name])
    heard: list[str] = []
    assert rows_of(read_lenient(tmp_path / name, heard.append)) == 2
    assert heard == [f"{tmp_path / name}: skipped unreadable lines ({told})"]


@pytest.mark.parametrize(("name", "told"), [("a.jsonl", r"line 2 \(broken-json\)"), ("a.csv", r"\(ragged-line\)")])
def test_a_table_that_must_be_complete_is_refused_at_its_first_broken_line(
    tmp_path: Path, name: str, told: str
) -> None:
    (tmp_path / name).write_text(BROKEN[name])
    with pytest.raises(DataError, match=f"{name} has unreadable lines: .*{told}; fix or remove"):
        rows_of(read_strict(tmp_path / name))


def test_complete_tables_are_read_without_a_message(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n')
    assert rows_of(read_lenient(tmp_path / "a.jsonl", pytest.fail)) == rows_of(read_strict(tmp_path / "a.jsonl")) == 1
