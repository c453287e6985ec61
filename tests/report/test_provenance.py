from dataclasses import replace

from magcli.report import provenance, training
from magcli.report.discovery import discover


def defaults(stage):
    return {"convert": {"limit": 0, "rename": []}, "rl": {"updates": 100, "group": 4, "language": True}}.get(stage, {})


def test_the_origin_of_a_table_has_command_options_inputs_and_digests(pipeline):
    (kept,) = discover([pipeline / "kept.parquet"]).tables
    origin = provenance.of_table(kept, defaults)
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
    origin = provenance.of_run(run, defaults)
    options = dict(origin.options)
    assert (options["updates"], options["language"]) == ("6", "False")
    assert "group" not in options
    assert len(options["model_sha256"]) == 64
    assert origin.inputs[0].name == "kept.parquet"


def test_without_a_note_there_is_no_command(pipeline):
    (kept,) = discover([pipeline / "kept.parquet"]).tables
    origin = provenance.of_table(replace(kept, note={"command": "rm", "seconds": None}), defaults)
    assert (set(dict(origin.facts)), origin.finished) == ({"version", "sha256"}, "")


def test_a_table_of_another_tool_has_no_origin(pipeline):
    (table,) = discover([pipeline / "letters.jsonl"]).tables
    origin = provenance.of_table(table, defaults)
    assert (origin.stage, origin.options, list(origin.inputs)) == ("not made by magcli", [], [])
