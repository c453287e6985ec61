"""`magcli show`: what is asked for, and of rows that are not whole too."""

import contextlib
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from calling import call_stage

from magcli.data import table
from magcli.data.statistics import MAX_COUNTED, ColumnStatistics
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
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == lines[1]


def test_missing_turns_and_turns_without_text_are_shown(tmp_path, capsys) -> None:
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


def test_an_invalid_condition_is_refused(tmp_path) -> None:
    with pytest.raises(UsageError, match="condition 'id =="):
        call_stage("show", written(tmp_path / "a.jsonl", [{"id": "a"}]), where='id == "\ud800"')


def test_only_one_summary_is_printed() -> None:
    with pytest.raises(UsageError, match="show: --stats and --digest exclude each other"):
        call_stage("show", "nothing.jsonl", stats=True, digest=True)


HOSTILE = "\x1b]0;title\x07\x9b31m\x7f\u202eright\u2066\r\n\tend\u200b"
SHOWN = "␛]0;title␇[U+009B]31m[U+007F][U+202E]right[U+2066]␍\r\n{indent}\tend[U+200B]"


def on_terminal(*arguments: object) -> bytes:
    """What `magcli show` sends to a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-m", "magcli", "show", *map(str, arguments)], stdout=theirs) as process:
        os.close(theirs)
        sent = b""
        with contextlib.suppress(OSError):  # the terminal is closed
            while part := os.read(ours, 65536):
                sent += part
    os.close(ours)
    assert process.returncode == 0
    return sent


def test_control_characters_are_escaped_on_a_terminal(tmp_path, magcli) -> None:
    turns = [{"role": "user", "content": HOSTILE}]
    data = written(tmp_path / "a.jsonl", [{"\x1b[2Jid": HOSTILE, "messages": turns}])
    rows, stats, history = (on_terminal(data, *more).decode() for more in ([], ["--stats"], ["--manifest"]))
    assert "␛[2Jid: " + SHOWN.format(indent=" " * len("?[2Jid: ")) in rows
    assert "␛[2Jid" in stats
    sent = {letter for letter in rows + stats + history if not letter.isprintable()}
    assert sent == {"\r", "\n", "\t"}
    piped = magcli("show", data, input=b"").stdout.decode()
    assert all(line in piped for line in HOSTILE.split("\n\t"))


# ---- how much is read ----


def test_the_first_rows_of_a_file_are_shown_without_reading_the_rest(tmp_path, magcli) -> None:
    """What follows the first rows is damaged, which is not noticed before it is read."""
    rows = [json.dumps({"id": str(i), "n": i}) + "\n" for i in range(20_000)]
    (tmp_path / "a.jsonl").write_text("".join(rows))
    for kind in ("arrow", "parquet"):
        assert magcli("convert", tmp_path / "a.jsonl", "-o", tmp_path / f"a.{kind}").returncode == 0
        data = bytearray((tmp_path / f"a.{kind}").read_bytes())
        data[len(data) // 2 : len(data) // 2 + 64] = b"?" * 64
        (tmp_path / f"a.{kind}").write_bytes(data)
    (tmp_path / "a.jsonl").write_text("".join([*rows[:10], "broken\n", *rows[10:]]))
    (tmp_path / "a.csv").write_text("id,n\n" + "".join(f"{i},{i}\n" for i in range(9)) + "x\n")
    for kind, last in dict.fromkeys(("arrow", "parquet"), "-- 2 of 20000 rows").items():
        done = magcli("show", tmp_path / f"a.{kind}", "-n", "2")
        assert (done.returncode, done.stdout.decode().splitlines()[-1]) == (0, last), done.stderr
        assert magcli("show", tmp_path / f"a.{kind}", "--stats").returncode == 3
    for kind in ("jsonl", "csv"):
        done = magcli("show", tmp_path / f"a.{kind}", "-n", "2")
        assert (done.returncode, done.stdout.decode().splitlines()[-1]) == (0, "-- the first 2 rows"), done.stderr
        assert done.stderr == "" or kind == "csv", "of CSV a block is read"
    (tmp_path / "b.jsonl").write_text("".join(rows[:2]))
    assert magcli("show", tmp_path / "b.jsonl", "-n", "2").stdout.decode().splitlines()[-1] == "-- 2 rows"


def test_statistics_are_those_of_the_whole_table_in_bounded_memory() -> None:
    statistics = ColumnStatistics(pa.string())
    for start in range(0, 3 * MAX_COUNTED, MAX_COUNTED // 2):
        statistics.add(pa.array([str(i) for i in range(start, start + MAX_COUNTED // 2)]))
    assert not statistics.texts
    assert statistics.text() == "more than 100,000 different texts"
    numbers = ColumnStatistics(pa.int64())
    for part in ([1, None], [5], [], [None, 3]):
        numbers.add(pa.array(part, pa.int64()))
    assert numbers.text() == "1 to 5, mean 3, 2 null"
    large = ColumnStatistics(pa.int64())
    large.add(pa.array([2**62 + 1] * 9))
    assert large.mean == 2.0**62, "a sum beyond 64 bits"
    lists = ColumnStatistics(pa.list_(pa.int64()))
    lists.add(pa.array([[1, 2], None, [3, 4, 5]], pa.list_(pa.int64())))
    assert lists.text() == "list<item: int64>, mean length 2.5, 1 null"


# ---- json ----


def test_results_are_json_on_stdout(tmp_path, magcli) -> None:
    data = written(tmp_path / "a.jsonl", [{"id": "a", "x": float("nan")}, {"id": "b", "x": 2.0}])
    shown = magcli("show", data, "--json").stdout.splitlines()
    assert [json.loads(line) for line in shown] == [{"id": "a", "x": None}, {"id": "b", "x": 2.0}]
    (stats,) = map(json.loads, magcli("show", data, "--json", "--stats").stdout.splitlines())
    assert (stats["event"], stats["rows"], stats["columns"]["id"]["values"]) == ("stats", 2, {"a": 1, "b": 1})
    assert stats["columns"]["x"]["max"] == 2.0
    (digest,) = map(json.loads, magcli("show", data, "--json", "--digest").stdout.splitlines())
    assert digest["sha256"] == magcli("show", data, "--digest").stdout.decode().strip()


def test_nested_columns_are_shown(tmp_path, capsys) -> None:
    data = written(tmp_path / "a.jsonl", [{"r": {"gold": "5"}}, {"r": {"gold": "7"}}])
    call_stage("show", data, columns="r.gold", where="r.gold == '7'")
    assert capsys.readouterr().out.splitlines() == ["-- row 1", "r.gold: 7", "-- 1 rows"]
