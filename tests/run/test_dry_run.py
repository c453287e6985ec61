"""``--dry-run`` of the stages with a model: what would be dropped, without weights and without writing."""

import json
import shutil

import pytest
from calling import call_stage

from magcli.errors import DataError, EnvironmentFault

PROBLEMS = [
    {"id": "good", "prompt": "1+1?", "answer": "2"},
    {"id": "bad", "prompt": "1+2?", "answer": "\\frac{1}{"},
    {"id": "empty", "prompt": "", "answer": "2"},
    {"id": "long", "prompt": "1+" * 400, "answer": "2"},
]


@pytest.fixture
def bare(tiny_model_dir, tmp_path):
    """The model's folder without weights."""
    return shutil.copytree(tiny_model_dir, tmp_path / "bare", ignore=shutil.ignore_patterns("*.safetensors"))


@pytest.fixture
def config_alone(tiny_model_dir, tmp_path):
    folder = tmp_path / "config-alone"
    folder.mkdir()
    shutil.copy(tiny_model_dir / "config.json", folder)
    return folder


@pytest.fixture
def problems(tmp_path):
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in PROBLEMS) + "{broken\n")
    return path


@pytest.fixture
def dry_run(tmp_path, capsys):
    """Runs a stage with --dry-run; returns its events but plan and memory, after a check that it wrote nothing."""

    def run(stage, *inputs, **options):
        before = sorted(tmp_path.rglob("*"))
        options |= {"run": tmp_path / "run"} if stage in ("sft", "rl") else {}
        options |= {} if stage in RULES else {"system": "none"}
        call_stage(stage, *inputs, dry_run=True, quiet=False, json_events=True, **options)
        assert sorted(tmp_path.rglob("*")) == before
        printed = capsys.readouterr()
        assert json.loads(printed.out)["stage"] == stage
        events = [json.loads(line) for line in printed.err.splitlines()]
        return [event for event in events if event["event"] not in ("plan", "memory")]

    return run


RULES = ("clean-math", "duplicate")
"""Stages without a model."""
UNREADABLE = {"broken-json": 1, "empty-prompt": 1}
DROPPED = {
    "generate": {**UNREADABLE, "prompt-too-long": 1},
    "filter-math": {**UNREADABLE, "prompt-too-long": 1, "bad-gold": 1},
    "evaluate": {**UNREADABLE, "prompt-too-long": 1, "bad-gold": 1},
    "rl": {**UNREADABLE, "prompt-too-long": 1, "bad-gold": 1},
}


@pytest.mark.parametrize("stage", DROPPED)
def test_rows_that_would_be_dropped_are_counted_without_weights(stage, dry_run, problems, bare):
    (event,) = [event for event in dry_run(stage, problems, model=str(bare)) if event["event"] == "dry-run"]
    dropped = DROPPED[stage]
    assert (event["rows_in"], event["dropped"]) == (5, dropped)
    assert event["usable"] == 5 - sum(dropped.values())
    assert f"{event['usable']} usable, would drop {sum(dropped.values())} (" in event["message"]


@pytest.mark.parametrize("stage", DROPPED)
def test_a_folder_with_a_config_alone_checks_the_rest(stage, dry_run, problems, config_alone):
    unchecked, event = dry_run(stage, problems, model=str(config_alone))
    assert unchecked["message"] == (
        f"{stage}: dry run: prompts are not checked: model {config_alone}: the folder has no tokenizer; add the "
        "model's tokenizer*.json"
    )
    assert event["dropped"] == {name: count for name, count in DROPPED[stage].items() if name != "prompt-too-long"}


def test_unusable_traces_are_counted_with_the_first_error(dry_run, bare, tmp_path):
    traces = tmp_path / "traces.jsonl"
    rows = [
        {"id": "1", "prompt": "a?", "completion": "<think></think>b"},
        {"id": "2", "prompt": "a?", "completion": None},
        {"id": "3", "prompt": "a?", "completion": "b" * 600},
    ]
    traces.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (event,) = [event for event in dry_run("sft", traces, model=str(bare)) if event["event"] == "dry-run"]
    assert (event["rows_in"], event["usable"]) == (3, 1)
    assert event["dropped"] == {"unusable-trace": 1, "too-long": 1}
    assert "unusable-trace 1: the first: there are no messages" in event["message"]


@pytest.mark.parametrize("stage", ["sft", "rl"])
def test_the_table_of_an_evaluation_is_checked_too(stage, dry_run, problems, bare, tmp_path):
    traces = tmp_path / "traces.jsonl"
    traces.write_text('{"prompt": "a?", "completion": "<think></think>b"}\n')
    exam = tmp_path / "exam.jsonl"
    exam.write_text(json.dumps(PROBLEMS[3]) + "\n")
    with pytest.raises(DataError, match=rf"{stage}: problem long of .* has 8\d\d tokens, which do not fit"):
        dry_run(stage, traces if stage == "sft" else problems, model=str(bare), eval_table=exam)


def test_tables_and_models_that_are_not_there_yet_are_left_out(dry_run, problems, bare, tmp_path):
    (event,) = dry_run("rl", tmp_path / "none.jsonl", model=str(bare))
    assert event["message"] == f"rl: dry run: no row was checked: {tmp_path}/none.jsonl cannot be read yet"
    (event,) = dry_run("rl", "-", model=str(bare))
    assert event["message"] == "rl: dry run: no row was checked: stdin cannot be read yet"
    unchecked, memory, event = dry_run("rl", problems, model=str(tmp_path / "none" / "model"), allow_missing=True)
    assert "no such folder; magcli sft or magcli rl" in unchecked["message"]
    assert memory["message"].startswith("rl: dry run: memory is not checked: ")
    assert event["usable"] == 2


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "adapter_config.json", "model.safetensors.index.json"]
)
def test_a_damaged_model_folder_is_refused_as_by_the_run(dry_run, problems, bare, name):
    (bare / name).write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(
        EnvironmentFault, match=rf"{name} is not JSON \(maximum recursion depth .*copy the model again$"
    ):
        dry_run("rl", problems, model=str(bare))


@pytest.mark.parametrize("stage", ["generate", "rl"])
def test_a_damaged_config_alone_is_refused(dry_run, problems, config_alone, stage):
    (config_alone / "config.json").write_text('{"hidden_size": ')
    with pytest.raises(EnvironmentFault, match=r"config\.json is not JSON"):
        dry_run(stage, problems, model=str(config_alone))


def test_a_table_without_the_columns_is_an_error_as_in_the_run(dry_run, bare, tmp_path):
    table = tmp_path / "riddles.jsonl"
    table.write_text('{"riddle": "a"}\n')
    with pytest.raises(DataError, match="lacks column"):
        dry_run("rl", table, model=str(bare))


def test_stages_without_a_preview_of_their_own_check_their_columns(dry_run, problems, tmp_path):
    for name in (problems, tmp_path / "prob*.jsonl"):
        (event,) = dry_run("clean-math", name)
        assert (event["usable"], event["dropped"]) == (3, UNREADABLE)
    (event,) = dry_run("clean-math", problems, limit=2)
    assert event["usable"] == 2
    (event,) = dry_run("clean-math", tmp_path / "none*.jsonl")
    assert event["message"].endswith("none*.jsonl cannot be read yet")
    table = tmp_path / "riddles.jsonl"
    table.write_text('{"riddle": "a"}\n')
    for stage in RULES:
        with pytest.raises(DataError, match=f"{stage}: .* lacks column"):
            dry_run(stage, table)


def test_the_band_of_a_stage_is_checked(dry_run, problems, bare, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("[[rl.stage]]\nband = [0.2, 0.8]\n")
    with pytest.raises(DataError, match=r"no problem has a pass_rate for the band"):
        dry_run("rl", problems, model=str(bare), recipe=recipe)
