from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from calling import call_stage

from magcli.data.manifest import Input, Link
from magcli.report import history, training
from magcli.report.discovery import Table, discover, open_table
from magcli.report.history import steps


def test_each_stage_that_selected_rows_is_listed_once(pipeline):
    found = discover([pipeline])
    found_steps = steps(found.tables)
    assert [(step.table, step.stage, step.read) for step in found_steps] == [
        ("clean.arrow", "clean-math", "problems.jsonl"),
        ("all.arrow", "convert", "letters.jsonl"),
        ("kept.parquet", "convert", "all.arrow"),
    ]


def test_reasons_are_counted_and_shown_with_rows(pipeline):
    step = steps(discover([pipeline]).tables)[0]
    assert (step.rows_in, step.rows_out, step.dropped) == (9, 6, 3)
    kept, dropped = step.parts
    assert (kept.name, kept.share) == ("kept", pytest.approx(6 / 9))
    assert (dropped.name, dropped.rows) == ("missing-answer", 3)
    assert [id for id, _ in dropped.examples] == ["bad 0", "bad 1"], "a few are enough"
    assert "What is 0 + 2?" in dropped.examples[0][1]


def test_examples_show_short_numbers_as_they_were_written(tmp_path):
    scores = pa.array([0.1, 0.9], pa.float32())
    pq.write_table(pa.table({"id": ["a", "b"], "score": scores}), tmp_path / "in.parquet")
    call_stage(
        "convert",
        tmp_path / "in.parquet",
        where="score > 0.5",
        output=tmp_path / "out.arrow",
        dropped=tmp_path / "out-dropped.arrow",
    )
    (step,) = steps(discover([tmp_path]).tables)
    ((row_id, text),) = step.parts[1].examples
    assert row_id == "a"
    assert '"score": 0.1}' in text


def test_a_stage_without_its_table_is_found_in_later_histories(pipeline):
    found_steps = steps(discover([pipeline / "kept.parquet"]).tables)
    assert [(step.table, step.stage) for step in found_steps] == [("", "convert"), ("kept.parquet", "convert")]


def table(name, *chain):
    return Table(Path(name), ("id",), chain[-1].rows_out, "", chain, {})


def test_added_rows_are_not_counted_as_kept():
    link = Link("duplicate", "1", {}, [Input("a.jsonl", "", 4)], 4, 7, {"no-twin": 1})
    (step,) = steps([table("both.arrow", link)])
    assert [(part.name, part.rows) for part in step.parts] == [("out", 7), ("no-twin", 1)]
    assert sum(part.share for part in step.parts) == pytest.approx(1)


def test_shards_share_a_line_and_the_model_is_named():
    config = {"model": "/home/someone/out/grader/model"}
    link = Link("filter-math", "1", config, [Input(f"{n}.arrow", "", 1) for n in range(6)], 6, 6)
    (step,) = steps([table("one.arrow", link), table("two.arrow", link)])
    assert (step.table, step.model) == ("one.arrow, two.arrow", "grader/model")
    assert step.read == "0.arrow, 1.arrow, 2.arrow, 3.arrow and 2 more"


def test_a_stage_of_no_rows_has_no_share():
    (step,) = steps([table("none.arrow", Link("convert", "1", {}))])
    assert step.parts[0].share == 0


def defaults(stage):
    return {"convert": {"limit": 0, "rename": []}, "rl": {"updates": 100, "group_size": 4, "language": True}}.get(
        stage, {}
    )


def test_the_origin_of_a_table_has_command_options_inputs_and_digests(pipeline):
    (kept,) = discover([pipeline / "kept.parquet"]).tables
    origin = history.of_table(kept, defaults)
    known = dict(origin.facts)
    assert known["command"].startswith("magcli ")
    assert known["sha256"] == kept.sha256
    assert set(known) == {"command", "version", "duration", "sha256"}
    assert ("limit", "6") in origin.options
    assert "rename" not in dict(origin.options), "an option as by default is no news"
    assert origin.inputs[0].name == "all.arrow"
    assert origin.inputs[0].sha256 == discover([pipeline / "all.arrow"]).tables[0].sha256
    assert (origin.rows, origin.stage) == ("6", "convert")


def test_the_origin_of_a_run_has_changed_options_and_inputs(pipeline):
    run = training.read(pipeline / "rl", "rl", samples_at=(), groups=0)
    origin = history.of_run(run.trained, defaults)
    options = dict(origin.options)
    assert (options["updates"], options["language"]) == ("6", "False")
    assert "group_size" not in options
    assert options["plan"].startswith("the run trains in fp32")
    assert len(options["model_sha256"]) == 64
    assert origin.inputs[0].name == "kept.parquet"


def test_without_a_note_there_is_no_command(pipeline):
    (kept,) = discover([pipeline / "kept.parquet"]).tables
    origin = history.of_table(replace(kept, note={"command": "rm", "seconds": None}), defaults)
    assert (set(dict(origin.facts)), origin.finished) == ({"version", "sha256"}, "")


def test_a_table_of_another_tool_has_no_origin(pipeline):
    table = open_table(pipeline / "letters.jsonl")
    origin = history.of_table(table, defaults)
    assert (origin.stage, origin.options, list(origin.inputs)) == ("not made by magcli", [], [])
