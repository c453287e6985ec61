"""`magcli convert`: columns renamed and chosen, rows limited, counts that add up."""

import json
from pathlib import Path

import pytest

from magcli.data import table


@pytest.fixture
def source(tmp_path: Path) -> Path:
    rows = [{"id": str(i), "n": i, "x": [i]} for i in range(3000)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "a.jsonl"


def test_columns_are_renamed_and_chosen(source: Path, magcli) -> None:
    out = source.with_name("out.jsonl")
    assert magcli("convert", source, "--rename", "m=n,n=x", "--columns", "n,id", "-o", out).returncode == 0
    assert out.read_text().splitlines()[7] == '{"n": [7], "id": "7"}'


def test_rows_over_the_limit_are_counted_and_reported(source: Path, magcli) -> None:
    out, dropped = source.with_name("out.parquet"), source.with_name("dropped.jsonl")
    done = magcli("convert", source, "--limit", "2000", "-o", out, "--dropped", dropped)
    assert "3,000 rows in, 2,000 out, dropped 1,000 (over-limit 1,000)" in done.stderr
    assert table.read(str(out)).total == 2000
    first = json.loads(dropped.read_text().splitlines()[0])
    assert (first["id"], first["reason"]) == ("2000", "over-limit")
    assert json.loads(first["row"])["n"] == 2000


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--rename", "id=n"], 2, "has a column id already"),
        (["--rename", "m=id,k=id"], 2, "convert.rename: id occurs twice"),
        (["--rename", "m=id,m=n"], 2, "convert.rename: m occurs twice"),
        (["--columns", "n,n"], 2, "named twice"),
        (["--columns", "n,y"], 3, "lacks column y; it has: id, n, x"),
        (["--rename", "a=y"], 3, "lacks column y; it has: id, n, x"),
    ],
)
def test_impossible_columns_are_refused(source: Path, magcli, options: list[str], code: int, message: str) -> None:
    done = magcli("convert", source, *options, "-o", source.with_name("out.arrow"))
    assert done.returncode == code
    assert message in done.stderr
    assert not source.with_name("out.arrow").exists()


def test_json_from_a_pipe_is_identified_by_its_digest(source: Path, magcli) -> None:
    """Stages tell by the digest whether finished work is of this input."""
    out = source.with_name("out.arrow")
    found = []
    for text in (source.read_bytes(), source.read_bytes()[:-9]):
        assert magcli("convert", "-", "-o", out, "--restart", input=text).returncode == 0
        found.append(table.read(str(out)).chain[-1].inputs[0].sha256)
    assert found[0] == table.read(str(source)).sha256
    assert found[1] not in ("", found[0])
