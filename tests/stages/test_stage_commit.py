"""Shards of real stages, joined: the table of one run on the whole, whatever happened to a shard on its way."""

import json
from pathlib import Path

import pytest
from calling import call_stage, kill_and_resume, seconds_of

from magcli.cli import STAGES
from magcli.command import stage_of
from magcli.data import table
from magcli.errors import DataError, UsageError

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
ASK = {"samples": 4, "max_tokens": 24, "system": Path("none"), "deterministic": True}


def rows_of(path):
    return [row for batch in table.read(str(path)).rows for row in batch.to_pylist()]


@pytest.fixture
def problems(tmp_path):
    """Ten problems, one without an answer, and three lines that no one can read."""
    rows = [{"id": f"p{i}", "prompt": f"{'abcdefgh'[i % 8]}?", "answer": "1234"[i % 4]} for i in range(10)]
    rows[4]["answer"] = ""
    lines = [json.dumps(row) for row in rows]
    lines[3:3], lines[8:8] = ["{", "[]"], ["{"]
    (tmp_path / "problems.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path / "problems.jsonl"


def in_shards(out_of, stage, problems, place, suffix=".arrow", **options):
    """The tables of a stage, kept and dropped, a pair for each shard."""
    made = []
    for number in range(1, out_of + 1):
        kept, dropped = place / f"kept-{number}{suffix}", place / f"dropped-{number}.jsonl"
        call_stage(stage, problems, output=kept, dropped=dropped, shard=f"{number}/{out_of}", **options)
        made.append((kept, dropped))
    return zip(*made, strict=True)


def by_id(rows):
    return sorted(rows, key=lambda row: (row["id"], row.get("drop_reason") or ""))


@pytest.mark.parametrize(("out_of", "suffix"), [(2, ".arrow"), (3, ".jsonl"), (4, ".parquet")])
def test_joined_shards_are_the_table_of_one_run(guesser, problems, tmp_path, out_of, suffix):
    options = {**ASK, "model": str(guesser), "keep": "0.1..0.9", "adaptive": True}
    whole, gone, joined = tmp_path / f"whole{suffix}", tmp_path / "gone.jsonl", tmp_path / f"joined{suffix}"
    call_stage("filter-math", problems, output=whole, dropped=gone, **options)
    kept, dropped = in_shards(out_of, "filter-math", problems, tmp_path, suffix, **options)
    call_stage("commit", *reversed(kept), output=joined)
    call_stage("commit", *dropped, output=tmp_path / "dropped.arrow")
    assert joined.read_bytes() == whole.read_bytes()
    assert table.read(str(joined)).chain == table.read(str(whole)).chain
    assert by_id(rows_of(tmp_path / "dropped.arrow")) == by_id(rows_of(gone))
    (link,) = table.read(str(whole)).chain
    assert (link.rows_in, link.dropped["broken-json"], link.dropped["missing-answer"]) == (13, 2, 1)
    assert 0 < link.rows_out < 10


@pytest.mark.parametrize(
    ("stage", "name", "options"),
    [
        ("generate", "problems", {**ASK, "samples": 2}),
        ("grade", "completions", {"language": False}),
        ("filter-code", "programs", {"sandbox": "auto"}),
        ("make-tests", "weak_programs", {"sandbox": "auto", "tries": 5}),
        ("duplicate", "code_problems", {}),
        (
            "translate",
            "word_problems",
            {"from_": EXAMPLES / "translations.jsonl", "fraction": 0.5, "languages": "fr,de"},
        ),
    ],
)
def test_other_stages_accept_shards(tiny_model_dir, tmp_path, stage, name, options):
    options |= {"model": str(tiny_model_dir)} if stage == "generate" else {}
    data = EXAMPLES / f"{name}.jsonl"
    call_stage(stage, data, output=tmp_path / "whole.arrow", **options)
    kept, _ = in_shards(2, stage, data, tmp_path, **options)
    call_stage("commit", *kept, output=tmp_path / "joined.arrow")
    assert (tmp_path / "joined.arrow").read_bytes() == (tmp_path / "whole.arrow").read_bytes()
    assert rows_of(tmp_path / "joined.arrow")


def test_several_inputs_are_one_table_and_more_shards_than_rows_leave_some_empty(tmp_path):
    inputs = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    for path, answers in zip(inputs, ("1", "23"), strict=True):
        rows = [{"id": "a", "prompt": "p", "answer": each, "completion": "x"} for each in answers]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    call_stage("grade", *inputs, output=tmp_path / "whole.arrow")
    kept = [tmp_path / f"{number}.arrow" for number in range(1, 5)]
    for number, path in enumerate(kept, 1):
        call_stage("grade", *inputs, output=path, shard=f"{number}/4")
    assert [[row["answer"] for row in rows_of(path)] for path in kept] == [[], ["1"], ["2"], ["3"]]
    call_stage("commit", *kept, output=tmp_path / "joined.arrow")
    assert (tmp_path / "joined.arrow").read_bytes() == (tmp_path / "whole.arrow").read_bytes()


def test_shards_are_recorded_with_the_table(tmp_path):
    shards = [EXAMPLES / "shards" / f"graded-{number}.arrow" for number in (1, 2)]
    call_stage("commit", *shards, output=tmp_path / "joined.jsonl")
    record = json.loads((tmp_path / ".joined.jsonl.run.json").read_text())
    assert record["shards"] == {str(path): table.read(str(path)).sha256 for path in shards}
    assert len(rows_of(tmp_path / "joined.jsonl")) == record["rows_in"] == 7


def test_a_killed_shard_resumes_with_the_same_result(guesser, problems, tmp_path):
    options = {**ASK, "samples": 16, "model": str(guesser), "adaptive": True}
    first, second, outputs = tmp_path / "1.arrow", tmp_path / "2.arrow", {"output": tmp_path / "again.arrow"}
    call_stage("filter-math", problems, shard="1/2", output=first, **options)
    took = seconds_of("filter-math", problems, shard="2/2", output=second, **options)
    kill_and_resume(2, 0.6 * took, "filter-math", problems, shard="2/2", **outputs, **options)
    assert outputs["output"].read_bytes() == second.read_bytes()
    call_stage("commit", first, outputs["output"], output=tmp_path / "joined.arrow")
    assert table.read(str(tmp_path / "joined.arrow")).chain[-1].rows_in == 13


def test_an_unfinished_shard_belongs_to_its_part_of_the_table(guesser, problems, tmp_path):
    options = {**ASK, "model": str(guesser), "output": tmp_path / "kept.arrow"}
    call_stage("filter-math", problems, shard="1/2", **options)
    before = (tmp_path / "kept.arrow").read_bytes()
    call_stage("filter-math", problems, shard="1/2", **options)
    assert (tmp_path / "kept.arrow").read_bytes() == before
    call_stage("filter-math", problems, shard="2/2", **options)
    assert table.read(str(tmp_path / "kept.arrow")).chain[-1].config["shard"] == "2/2"


def test_a_damaged_or_missing_shard_is_refused(tmp_path):
    first, second = (EXAMPLES / "shards" / f"graded-{number}.arrow" for number in (1, 2))
    (tmp_path / "cut.arrow").write_bytes(second.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"cut.arrow is damaged"):
        call_stage("commit", first, tmp_path / "cut.arrow", output=tmp_path / "x.arrow")
    with pytest.raises(DataError, match="of 2 shards 2 is missing"):
        call_stage("commit", first, output=tmp_path / "x.arrow")
    assert not (tmp_path / "x.arrow").exists()


def test_a_pipe_has_no_shards(magcli, problems):
    done = magcli("grade", "-", "--shard", "1/2", "-o", problems.with_name("x.arrow"), input=problems.read_bytes())
    assert done.returncode == 2
    assert "--shard needs files, whose rows are counted in advance; not a file: stdin" in done.stderr


@pytest.mark.parametrize("stage", [entry.name for entry in STAGES if stage_of(entry.name).shardable])
def test_an_invalid_shard_is_refused_first(stage):
    with pytest.raises(UsageError, match=r"--shard: '3/2' is not I/N"):
        call_stage(stage, "nothing.jsonl", shard="3/2", **needed(stage))


def needed(stage):
    """The option without which a stage is refused before its shard is looked at."""
    return {"model": "m"} if "model" in stage_of(stage).Config.__dataclass_fields__ else {}


def test_duplicates_across_cleaned_shards_are_found_when_joined(tmp_path):
    data = tmp_path / "twice.jsonl"
    data.write_text((EXAMPLES / "messy.jsonl").read_text() * 2)
    with pytest.raises(UsageError, match="clean-math: --shard splits the rows, but duplicates are found"):
        call_stage("clean-math", data, shard="1/2")
    call_stage("clean-math", data, output=tmp_path / "whole.arrow")
    kept, _ = in_shards(2, "clean-math", data, tmp_path, duplicates=True)
    call_stage("commit", *kept, output=tmp_path / "joined.arrow")
    call_stage("clean-math", tmp_path / "joined.arrow", output=tmp_path / "again.arrow")
    once, double, again = (
        [(row["prompt"], row["answer"]) for row in rows_of(tmp_path / f"{name}.arrow")]
        for name in ("whole", "joined", "again")
    )
    assert again == once
    assert len(double) > len(once)


def test_a_stage_whose_rows_depend_on_each_other_has_no_shards(magcli):
    done = magcli("convert", "a.jsonl", "--shard", "1/2")
    assert done.returncode == 2
    assert "No such option" in done.stderr


def test_joining_translations_by_row_number_needs_the_whole_table(tmp_path):
    places = {"from_": EXAMPLES / "translations.jsonl", "output": tmp_path / "out.arrow", "shard": "1/2"}
    with pytest.raises(UsageError, match="translate: --shard splits the rows, but --by position needs"):
        call_stage("translate", EXAMPLES / "word_problems.jsonl", by="position", languages="fr", **places)
