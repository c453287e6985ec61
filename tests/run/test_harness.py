"""What a run of a stage leaves beside its table."""

import json

from calling import call_stage


def test_after_a_kill_in_the_last_instant_repeating_the_command_cleans_up(tmp_path):
    source, out = tmp_path / "rows.jsonl", tmp_path / "out.arrow"
    source.write_text('{"id": "a"}\n')
    call_stage("convert", source, output=out)
    note = json.loads(out.with_name("out.arrow.run.json").read_text())
    assert (note["rows_in"], note["rows_out"]) == (1, 1)
    out.with_name(".out.arrow.run.json.999999999.tmp").touch()
    call_stage("convert", source, output=out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.arrow", "out.arrow.run.json", "rows.jsonl"]


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
    assert f"{out} exists, and magcli did not make it" in messages()
    out.write_text("no table")
    assert f"{out} exists, and magcli did not make it" in messages()
