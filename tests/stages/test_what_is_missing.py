"""What comes from an earlier step and is not there: the message names the stage that makes it."""

import json
from pathlib import Path

import pytest
from calling import call_stage

from magcli.errors import DataError, EnvironmentFault
from magcli.run.rundir import RunDir

PROBLEM = {"id": "a", "prompt": "1+1?", "answer": "2"}
TRACE = {"id": "a", "messages": [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]}
COMPLETION = {**PROBLEM, "completion": "2"}


@pytest.mark.parametrize(
    ("stage", "row", "advice"),
    [
        ("sft", PROBLEM, "these are problems: magcli cold-start makes traces"),
        ("grade", PROBLEM, "these are problems: magcli generate samples their completions"),
        ("rl", TRACE, "these are traces, on which magcli sft trains; rl takes problems, as of magcli filter-math"),
        ("filter-math", TRACE, "filter-math takes problems, as of magcli clean-math"),
        ("evaluate", COMPLETION, "these are completions without verdicts: magcli grade them first"),
        ("grade", {"id": "a", "riddle": "?"}, "rename one with: magcli convert INPUT --rename prompt=COLUMN"),
    ],
)
def test_a_table_of_another_step_is_answered_with_the_stage_between(stage, row, advice, tiny_model_dir, tmp_path):
    table = tmp_path / "table.jsonl"
    table.write_text(json.dumps(row) + "\n")
    options = {} if stage in ("grade", "evaluate") else {"model": str(tiny_model_dir)}
    options |= {"run": tmp_path / "run"} if stage in ("sft", "rl") else {}
    with pytest.raises(DataError) as error:
        call_stage(stage, table, **options)
    assert advice in str(error.value)
    assert ("--rename" in str(error.value)) is ("riddle" in row)


@pytest.fixture
def problems(tmp_path):
    table = tmp_path / "problems.jsonl"
    table.write_text(json.dumps(PROBLEM) + "\n")
    return table


def test_a_run_without_a_model_is_named_with_its_stage(problems, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        EnvironmentFault, match=r"no such folder; magcli sft or magcli rl with --run runs/sft makes it$"
    ):
        call_stage("rl", problems, model="runs/sft/model", run=tmp_path / "rl")
    with RunDir.open(Path("runs/sft"), "sft", {"epochs": 1}, restart=False):
        pass
    advice = r"runs/sft has no model yet: finish magcli sft \.\.\. --run runs/sft$"
    for model in ("runs/sft/model", "runs/sft"):
        with pytest.raises(EnvironmentFault, match=advice):
            call_stage("rl", problems, model=model, run=tmp_path / "rl")


def test_the_folder_of_a_run_is_answered_with_its_model(finished_run, problems, tmp_path):
    with pytest.raises(EnvironmentFault, match=f"its model is {finished_run / 'model'}$"):
        call_stage("generate", problems, model=str(finished_run), output=tmp_path / "out.arrow")


@pytest.mark.parametrize("missing", ["model", "before"])
def test_both_models_of_an_evaluation_are_looked_for_before_one_samples(missing, tiny_model_dir, problems, tmp_path):
    models = {"model": str(tiny_model_dir), "before": str(tiny_model_dir), missing: str(tmp_path / "none" / "model")}
    stored = tmp_path / "completions.arrow"
    with pytest.raises(EnvironmentFault, match="no such folder"):
        call_stage("evaluate", problems, completions=stored, output=tmp_path / "out.arrow", **models)
    assert [path.name for path in tmp_path.iterdir()] == ["problems.jsonl"], "nothing was sampled"


@pytest.mark.parametrize("stage", ["rl", "generate", "evaluate"])
def test_a_dry_run_refuses_a_model_that_is_not_there(stage, problems, tmp_path):
    options = {"run": tmp_path / "run"} if stage == "rl" else {}
    with pytest.raises(DataError, match=r"no such folder.*; --allow-missing checks the rest without it$"):
        call_stage(stage, problems, model=str(tmp_path / "none"), dry_run=True, **options)


@pytest.mark.parametrize("made", ["runs/sft/model", "out/sft/model"])
def test_a_dry_run_accepts_the_model_of_an_earlier_table_of_its_recipe(made, problems, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    recipe = tmp_path / "recipe.toml"
    named = {"runs/sft/model": "", "out/sft/model": 'run = "out/sft"'}[made]
    recipe.write_text(f"[sft]\n{named}\n[rl]\nupdates = 3\n")
    call_stage("rl", problems, model=made, dry_run=True, recipe=recipe)
    assert json.loads(capsys.readouterr().out)["config"]["updates"] == 3
    with pytest.raises(DataError, match="no such folder"):
        call_stage("rl", problems, model="other/sft/model", dry_run=True, recipe=recipe)
