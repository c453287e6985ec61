import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from magcli.errors import DataError
from magcli.report.discovery import Artifacts, discover, rows_of

RUN = {"command": "sft", "version": "0.1.0", "inputs": []}


def names(tables):
    return [table.path.name for table in tables]


def test_the_files_of_a_folder_are_in_the_order_of_the_pipeline(pipeline):
    found = discover([pipeline])
    made = ["clean.arrow", "all.arrow", "kept.parquet", "rollouts.arrow", "eval-start.arrow", "eval-rl.arrow"]
    assert [name for name in names(found.tables) if name in made] == made
    assert {"clean-dropped.jsonl", "points.arrow"} <= set(names(found.tables))
    assert "problems.jsonl" not in names(found.tables), "what magcli did not write is no part of it"
    assert found.runs == [pipeline / "rl"]
    assert found.landscapes == [pipeline / "rl" / "landscape"]
    assert found.unread == []


def test_a_table_has_its_rows_history_and_command(pipeline):
    (clean,) = discover([pipeline / "clean.arrow"]).tables
    assert (clean.rows, clean.made_by.stage, len(clean.sha256)) == (6, "clean-math", 64)
    assert clean.note["rows_in"] == 9
    assert len(list(rows_of(clean))) == 6
    (dropped,) = discover([pipeline / "clean-dropped.jsonl"]).tables
    assert (dropped.of_dropped_rows, dropped.of_metrics) == (True, False)


def test_a_path_given_twice_is_used_once(pipeline):
    found = discover([pipeline / "eval-rl.arrow", pipeline, pipeline / "rl", pipeline / "rl" / ".." / "rl"])
    assert names(found.tables).count("eval-rl.arrow") == 1
    assert names(found.tables)[0] == "eval-rl.arrow"
    assert len(found.runs) == len(found.landscapes) == 1


def test_a_run_follows_the_run_that_it_started_from(tmp_path):
    for at, (name, model) in enumerate([("last", "first/model"), ("first", "hub/base"), ("other", "hub/base")]):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(json.dumps(RUN | {"model": model}))
        os.utime(tmp_path / name / "run.json", (at, at))
    assert [run.name for run in discover([tmp_path]).runs] == ["first", "last", "other"]
    (tmp_path / "first" / "run.json").write_text(json.dumps(RUN | {"model": "last/model"}))
    assert len(discover([tmp_path]).runs) == 3, "a circle is no reason to look forever"


def test_a_damaged_table_is_a_warning_in_a_folder_and_an_error_if_named(pipeline, tmp_path):
    shutil.copy(pipeline / "clean.arrow", tmp_path)
    content = (pipeline / "clean.arrow").read_bytes()
    (tmp_path / "cut.arrow").write_bytes(content[: len(content) // 2])
    found = discover([tmp_path])
    assert names(found.tables) == ["clean.arrow"]
    assert "cut.arrow" in found.unread[0]
    with pytest.raises(DataError, match=r"cut\.arrow"):
        discover([tmp_path / "cut.arrow"])


def test_a_damaged_run_is_a_warning_in_a_folder_and_an_error_if_named(tmp_path):
    for name, text in (("whole", json.dumps(RUN)), ("damaged", "{")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_text(text)
    found = discover([tmp_path])
    assert found.runs == [tmp_path / "whole"]
    assert "records of this run are damaged" in found.unread[0]
    assert discover([tmp_path / "damaged"]).runs == [tmp_path / "damaged"], "its reader refuses it"


def test_damage_found_later_is_a_warning_or_an_error_if_named(tmp_path):
    def read(path):
        raise DataError(f"{path} is cut")

    found = Artifacts(named=frozenset([tmp_path / "b"]))
    assert found.read_all([tmp_path / "a"], read) == []
    assert found.unread == [f"{tmp_path / 'a'} is cut"]
    with pytest.raises(DataError, match="b is cut"):
        found.read_all([tmp_path / "b"], read)


def test_a_file_that_is_not_part_of_a_pipeline_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"nowhere does not exist"):
        discover([tmp_path / "nowhere"])
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(DataError, match=r"notes\.txt is neither a table nor a folder"):
        discover([tmp_path / "notes.txt"])
    with pytest.raises(DataError, match="no tables, runs or landscapes written by magcli under"):
        discover([tmp_path])


def test_a_damaged_note_counts_as_missing(pipeline, tmp_path):
    shutil.copy(pipeline / "clean.arrow", tmp_path)
    (tmp_path / ".clean.arrow.run.json").write_text("{")
    (table,) = discover([tmp_path]).tables
    assert table.note == {}


def test_names_that_are_not_unicode_are_reported_and_left_out(tmp_path, pipeline):
    shutil.copy(pipeline / "clean.arrow", tmp_path / "clean.arrow")
    shutil.copy(pipeline / "clean.arrow", os.fsencode(tmp_path) + b"/cl\xe9an.arrow")
    found = discover([tmp_path])
    assert names(found.tables) == ["clean.arrow"]
    assert "not UTF-8" in found.unread[0]
    found.unread[0].encode()


def test_unreadable_folders_are_reported_and_left_out(pipeline):
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)
        shutil.copy(pipeline / "clean.arrow", folder / "clean.arrow")
        for name, mode in (("listed", 0o744), ("closed", 0o000), ("entered", 0o711)):
            (folder / name).mkdir(mode=mode)
        with as_nobody():
            found = discover([folder])
    assert names(found.tables) == ["clean.arrow"]
    assert [line.split()[0] for line in found.unread] == [f"{made}/{name}" for name in ("closed", "entered", "listed")]


@contextlib.contextmanager
def as_nobody():
    """Without the rights of root, who may read everything."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)
