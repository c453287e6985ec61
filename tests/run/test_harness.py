"""What a run of a stage leaves beside its table."""

import json

from calling import call_stage


def test_a_kill_in_the_last_instant_leaves_nothing_behind_once_the_command_is_repeated(tmp_path):
    source, out = tmp_path / "rows.jsonl", tmp_path / "out.arrow"
    source.write_text('{"id": "a"}\n')
    call_stage("convert", source, output=out)
    note = json.loads(out.with_name("out.arrow.run.json").read_text())
    assert (note["rows_in"], note["rows_out"]) == (1, 1)
    out.with_name(".out.arrow.run.json.999999999.tmp").touch()
    call_stage("convert", source, output=out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.arrow", "out.arrow.run.json", "rows.jsonl"]
