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
from hypothesis import given
from hypothesis import strategies as st

from magcli.data import table
from magcli.errors import UsageError
from magcli.stages.show import parse_condition


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


BATCH = pa.RecordBatch.from_pydict(
    {
        "row": [0, 1, 2, 3],
        "reward": [0.1, 0.5, None, 1.0],
        "reason": ["wrong", "correct", "wrong", None],
        "correct": [False, True, None, True],
    }
)


def kept(text: str) -> list[int]:
    rows: list[int] = BATCH.filter(parse_condition(text, BATCH.schema))["row"].to_pylist()
    return rows


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("reward < 0.5", [0]),
        ("0.5 <= reward", [1, 3]),
        ('reason == "wrong"', [0, 2]),
        ('reason != "wrong"', [1]),
        ("correct", [1, 3]),
        ("not correct", [0]),
        ("not (not correct)", [1, 3]),
        ("not (correct and reward > 0.2)", [0]),
        ("reward < 0.2 or not correct", [0]),
        ("correct or reason == 'wrong'", [0, 1, 2, 3]),
        ("reason == None", [3]),
        ("None != reason", [0, 1, 2]),
        ("not (correct == None)", [0, 1, 3]),
        ('reward < 0.5 and reason == "wrong"', [0]),
        ('reward > 0.9 or reason == "wrong" or correct', [0, 1, 2, 3]),
        ("reward > -1", [0, 1, 3]),
    ],
)
def test_rows_for_which_a_condition_holds(text: str, rows: list[int]) -> None:
    assert kept(text) == rows


@pytest.mark.parametrize(
    "text",
    [
        "rewrd < 1",
        "reward",
        "reward + 1 < 2",
        "f(reward)",
        "reward < 1 < 2",
        "reward.x == 1",
        "__import__('os')",
        "1",
        "[1]",
        "1 == 1",
        "None == None",
        "reward < None",
        "rewrd == None",
        "reward > 99999999999999999999",
        "reward > -99999999999999999999",
        "reward == 1j",
        "reward == ...",
        'reason == "\\ud800"',
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="condition"):
        kept(text)


@pytest.mark.parametrize("text", ['reward < "x"', "reason > 3", "correct == 'yes'"])
def test_values_of_another_type_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="condition"):
        kept(text)


def test_a_misspelt_column_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match="did you mean 'reward'"):
        kept("rewrd < 1")


@given(limit=st.floats(0, 1), low=st.booleans())
def test_a_comparison_and_its_negation_partition_the_rows_with_a_value(limit: float, low: bool) -> None:
    text = f"reward < {limit!r}" if low else f"reward >= {limit!r}"
    assert sorted(kept(text) + kept(f"not {text}")) == [0, 1, 3]
