"""What a run of a stage leaves beside its table."""

import json
import platform

import pytest
from calling import call_stage

from magcli.data import table
from magcli.errors import DataError, UsageError


def test_after_a_kill_in_the_last_instant_repeating_the_command_cleans_up(tmp_path):
    source, out = tmp_path / "rows.jsonl", tmp_path / "out.arrow"
    source.write_text('{"id": "a"}\n')
    call_stage("convert", source, output=out)
    note = json.loads(out.with_name(".out.arrow.run.json").read_text())
    assert (note["rows_in"], note["rows_out"]) == (1, 1)
    assert platform.node() not in out.with_name(".out.arrow.run.json").read_text()
    out.with_name("..out.arrow.run.json.999999999.tmp").touch()
    call_stage("convert", source, output=out)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.arrow.run.json", "out.arrow", "rows.jsonl"]


def test_outputs_to_be_replaced_are_announced_before_the_work(tmp_path, capsys):
    source, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"id": "a", "x": 1}\n')

    def messages(**options):
        call_stage("convert", source, output=out, quiet=False, **options)
        return capsys.readouterr().err

    assert "will be replaced" not in messages()
    assert "is up to date" in messages()
    assert f"{out} was made with columns [] (now ['x']); it will be replaced at the end" in messages(columns=("x",))
    assert "will be replaced" not in messages(restart=True)
    source.write_text('{"id": "b", "x": 1}\n')
    assert f"{out} was made with other inputs or another version" in messages()
    out.write_text('{"my": "own"}\n')
    assert f"{out} exists, and magcli did not make it" in messages(overwrite=True)
    out.write_text("no table")
    assert f"{out} exists, and magcli did not make it" in messages(overwrite=True)


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "arrow"])
def test_only_overwrite_replaces_what_magcli_did_not_make(tmp_path, suffix):
    source, out = tmp_path / "rows.jsonl", tmp_path / f"out.{suffix}"
    source.write_text('{"id": "a", "x": 1}\n')
    for content in (b'{"my": "own"}\n', b"no table"):
        out.write_bytes(content)
        for options in ({}, {"restart": True}):
            with pytest.raises(UsageError, match="magcli did not make it or it was edited since"):
                call_stage("convert", source, output=out, **options)
        assert out.read_bytes() == content
    call_stage("convert", source, output=out, overwrite=True)
    made = out.read_bytes()
    source.write_text('{"id": "b", "x": 1}\n')
    call_stage("convert", source, output=out)
    assert out.read_bytes() != made


def test_edited_and_dropped_tables_are_protected_and_empty_files_are_not(tmp_path):
    source, out, dropped = (tmp_path / f"{name}.jsonl" for name in ("rows", "out", "dropped"))
    source.write_text('{"id": "a"}\n')
    out.touch()
    call_stage("convert", source, output=out)
    out.write_text(out.read_text() + '{"id": "mine"}\n')
    with pytest.raises(UsageError, match="edited since"):
        call_stage("convert", source, output=out)
    dropped.write_text("mine")
    with pytest.raises(UsageError, match=f"{dropped} exists"):
        call_stage("convert", source, output=tmp_path / "new.jsonl", dropped=dropped)


def test_a_table_without_history_that_a_kill_left_is_replaced(tmp_path):
    source, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"id": "a"}\n')
    out.write_text('{"id": "a"}\n')
    (tmp_path / ".out.jsonl.lock").write_text("process 999999999 on here since then")
    call_stage("convert", source, output=out)
    assert (tmp_path / ".out.jsonl.manifest.json").exists()


LINES = {
    "jsonl": (b"", b'{"id": "%d", "prompt": "What is %d + 1?", "answer": "3"}\n', b"{broken\n", b'{"id": "\xff"}\n'),
    "csv": (b"id,prompt,answer\n", b"%d,What is %d + 1?,3\n", b"one,two,three,four\n", b"x,\xff,3\n"),
}
"""By the format of a table: its first line, a row, a line that is no row, one in another encoding."""


@pytest.mark.parametrize("stage", ["convert", "clean-math"])  # the first has a --limit of its own
@pytest.mark.parametrize("suffix", LINES)
def test_with_a_limit_lines_behind_its_last_row_are_not_counted(tmp_path, suffix, stage):
    head, row, broken, other_encoding = LINES[suffix]
    rows = [row % (number, number) for number in range(6)]
    source, out, dropped = tmp_path / f"rows.{suffix}", tmp_path / "out.arrow", tmp_path / "dropped.arrow"
    source.write_bytes(head + b"".join([*rows[:2], broken, *rows[2:4], broken, broken, *rows[4:], other_encoding]))

    def counts(limit):
        call_stage(stage, source, output=out, dropped=dropped, limit=limit)
        note = json.loads(out.with_name(".out.arrow.run.json").read_text())
        assert sum(note["dropped"].values()) == table.read(str(dropped)).total
        return note["rows_in"], note["rows_out"], sum(note["dropped"].values())

    assert [counts(limit) for limit in (1, 2, 3, 4, 5)] == [(1, 1, 0), (2, 2, 0), (4, 3, 1), (5, 4, 1), (8, 5, 3)]
    assert counts(6) == (9, 6, 3)
    with pytest.raises(DataError, match="rows are lost: not-utf-8 1"):
        counts(7)
