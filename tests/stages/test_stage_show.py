"""`magcli show`: what is asked for, and of rows that are not whole too."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from calling import call_stage

from magcli.data import table
from magcli.errors import UsageError


def written(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_columns_are_those_that_are_counted_and_hashed(tmp_path, capsys) -> None:
    data = written(tmp_path / "a.jsonl", [{"id": "a", "n": 1, "ok": True}, {"id": "b", "n": 3, "ok": False}])
    call_stage("show", data, stats=True, columns="n", where="ok")
    assert capsys.readouterr().out.splitlines() == ["1 rows", "n  1 to 1, mean 1"]
    call_stage("convert", data, columns="n,id", output=tmp_path / "b.jsonl")
    call_stage("show", data, digest=True, columns="n,id")
    call_stage("show", tmp_path / "b.jsonl", digest=True)
    told = capsys.readouterr().out.splitlines()
    assert told[0] == told[1]


def test_turns_without_text_or_not_there_are_shown(tmp_path, capsys) -> None:
    turn = pa.struct([("role", pa.string()), ("content", pa.string()), ("call", pa.string())])
    turns = [None, {"role": "user", "content": "add"}, {"role": "assistant", "call": "f()"}, {"role": "tool"}]
    schema = pa.schema([("turns", pa.list_(turn)), ("bare", pa.list_(pa.struct([("role", pa.string())])))])
    with table.write(str(tmp_path / "a.arrow"), schema, "") as sink:
        sink.write(pa.RecordBatch.from_pylist([{"turns": turns, "bare": [{"role": "user"}]}], schema))
        sink.finish(())
    call_stage("show", tmp_path / "a.arrow")
    said = ["None", "[user] add", "[assistant] {'call': 'f()'}", "[tool]"]
    assert capsys.readouterr().out.splitlines() == [
        "-- row 1", f"turns: {said[0]}", *(f"       {each}" for each in said[1:]), "bare: [user]", "-- 1 rows",
    ]  # fmt: skip


def test_a_condition_that_is_no_text_is_refused(tmp_path) -> None:
    with pytest.raises(UsageError, match=r"show\.where: cannot read"):
        call_stage("show", written(tmp_path / "a.jsonl", [{"id": "a"}]), where='id == "\ud800"')
