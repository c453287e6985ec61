"""Models with other forms of thoughts than the recipe's, through every stage that reads or writes thoughts."""

import json
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from calling import call_stage, made_once
from thinking import BRACKETS as BRACKETS_TOKENS
from thinking import CHANNELS as CHANNELS_TOKENS
from thinking import CHANNELS_TEMPLATE, PLAIN_TEMPLATE, save_model, train_guesser

from magcli.data import table
from magcli.errors import UsageError
from magcli.model.chat.thoughts import BRACKETS, CHANNELS, FORMS, THINK
from magcli.report import training

MODELS = {
    "brackets": (BRACKETS, BRACKETS_TOKENS, PLAIN_TEMPLATE),
    "channels": (CHANNELS, CHANNELS_TOKENS, CHANNELS_TEMPLATE),
}
SAMPLED = {"system": Path("none"), "max_tokens": 48}
TRAINED = {"group_size": 8, "n_async": 32, "n_batch": 16, "n_mini": 16, "updates": 1, "bf16": "no", "dtype": "fp32"}


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(path):
    return [row for batch in table.read(str(path)).rows for row in batch.to_pylist()]


def recorded(path):
    """The forms in a table's history."""
    source = table.read(str(path))
    list(source.rows)
    return [link.config.get("chosen", {}).get("thoughts") for link in source.chain]


def answers(form, count=4):
    text = form.join("two times three makes six", "It is \\boxed{6}.")
    return [{"id": f"p{i}", "prompt": f"{i}: 2*3?", "answer": "6", "completion": text} for i in range(count)]


@pytest.fixture(scope="module", params=MODELS)
def model(request, tmp_path_factory):
    """A trained model with its form: it guesses, in ``[THINK]`` tags that are special tokens, or in channels."""
    form, special, template = MODELS[request.param]

    def make(folder):
        save_model(folder / "random", special, template)
        train_guesser(folder / "random", folder, form)

    folder = made_once(tmp_path_factory, f"guesser-{request.param}", make)
    return SimpleNamespace(form=form, random=folder / "random", folder=folder / "run" / "model", run=folder / "run")


@pytest.fixture(scope="module")
def problems(letters):
    return letters


def test_a_models_completions_keep_their_form_through_the_pipeline(model, problems, tmp_path, capsys):
    form, sampled, graded = model.form, tmp_path / "sampled.arrow", tmp_path / "graded.jsonl"
    call_stage("generate", problems, model=str(model.folder), samples=4, output=sampled, quiet=False, **SAMPLED)
    assert f"generate: thoughts are in the form {form}\n" in capsys.readouterr().err
    texts = [row["completion"] for row in rows_of(sampled)]
    assert sum(form.opens(text) and form.ending in text for text in texts) > 0.9 * len(texts)
    call_stage("grade", sampled, output=graded, quiet=False)
    assert "thoughts" not in capsys.readouterr().err, "the table's history tells the form"
    rewards = [row["reward_format"] for row in rows_of(graded)]
    assert sum(rewards) > 0.8 * 0.1 * len(rewards)
    assert recorded(graded) == [form.name, form.name]
    mixed = tmp_path / "mixed.jsonl"
    call_stage("cold-start", graded, output=mixed, system=Path("none"))
    assert rows_of(mixed)
    assert all(form.opens(row["messages"][-1]["content"]) for row in rows_of(mixed))


def test_an_update_of_rl_rewards_the_form(model, problems, tmp_path):
    options = {**SAMPLED, **TRAINED, "model": str(model.folder), "run": tmp_path / "run", "language": False}
    call_stage("rl", problems, output=tmp_path / "rows.jsonl", **options)
    line = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert line["reward_format"] > 0.08
    assert line["reasons"]["wrong"] > 0
    note = json.loads((tmp_path / "run" / "run.json").read_text())
    assert note["chosen"]["thoughts"] == model.form.name
    assert recorded(tmp_path / "rows.jsonl")[-1] == model.form.name
    assert recorded(tmp_path / "run" / "rollouts" / "step-000001.arrow") == [model.form.name]
    assert f"Thoughts in the form {model.form}" in training.read(tmp_path / "run", "run", samples_at=(), groups=0).facts


def test_evaluate_reads_the_form(model, problems, tmp_path):
    options = {**SAMPLED, "samples": 4, "model": str(model.folder), "language": True}
    call_stage("evaluate", problems, output=tmp_path / "m.jsonl", completions=tmp_path / "c.arrow", **options)
    metrics = {row["metric"]: row["value"] for row in rows_of(tmp_path / "m.jsonl")}
    assert metrics["format"] > 0.8
    assert recorded(tmp_path / "c.arrow") == [model.form.name]


def test_another_form_can_be_demanded_of_a_model(model, problems, tmp_path):
    options = {**SAMPLED, "model": str(model.folder), "thoughts": "think"}
    call_stage("evaluate", problems, output=tmp_path / "m.jsonl", **options)
    metrics = {row["metric"]: row["value"] for row in rows_of(tmp_path / "m.jsonl")}
    assert metrics["format"] == 0


def test_sft_shows_thoughts_in_the_models_form(model, tmp_path, capsys):
    turns = [{"role": "user", "content": "1+2?"}, {"role": "assistant", "content": "3", "thinking": "ones"}]
    rows = [{"messages": turns}, {"prompt": "1+2?", "completion": "<think>ones</think>3"}]
    data = written(tmp_path / "t.jsonl", rows)
    call_stage("sft", data, model=str(model.random), run=tmp_path / "run", show_mask=2)
    shown = capsys.readouterr().out
    assert shown.count(f"target | {model.form.join('ones', '3')}") == 2
    named = "in the analysis channel" if model.form == CHANNELS else f"inside {model.form.opening}"
    assert f"First think, {named}" in shown.replace("↵\n       | ", " ")


def test_an_sft_run_records_the_form(model):
    assert json.loads((model.run / "run.json").read_text())["chosen"]["thoughts"] == model.form.name


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_table_without_a_model_tells_its_form(form, tmp_path, capsys):
    data = written(tmp_path / "c.jsonl", [*answers(form, 3), {**answers(THINK, 1)[0], "id": "q", "completion": "6"}])
    call_stage("grade", data, output=tmp_path / "g.jsonl", language=False, quiet=False)
    messages = capsys.readouterr().err
    assert f"grade: thoughts {form.name} ({form}: in 3 of 4 completions)\n" in messages
    assert f"1 completions do not begin with {form.opening}" not in messages
    assert [row["reward"] for row in rows_of(tmp_path / "g.jsonl")] == [pytest.approx(1.0)] * 3 + [0]
    assert recorded(tmp_path / "g.jsonl") == [form.name]


def test_most_completions_decide_and_an_option_overrides_them(tmp_path):
    rows = answers(BRACKETS, 3) + [{**row, "id": f"t{row['id']}"} for row in answers(THINK, 2)]
    data = written(tmp_path / "c.jsonl", rows)
    for thoughts, right in (("auto", [1, 1, 1, 0, 0]), ("think", [0, 0, 0, 1, 1])):
        call_stage("grade", data, output=tmp_path / "g.jsonl", language=False, thoughts=thoughts, overwrite=True)
        assert [round(row["reward"]) for row in rows_of(tmp_path / "g.jsonl")] == right


def test_a_form_of_ones_own(tmp_path):
    text = "<reason>\nsix\n</reason>\nIt is \\boxed{6}."
    data = written(tmp_path / "c.jsonl", [{"id": "p", "prompt": "2*3?", "answer": "6", "completion": text}])
    call_stage("grade", data, output=tmp_path / "g.jsonl", thoughts="<reason>\\n...\\n</reason>", language=False)
    assert [row["reason"] for row in rows_of(tmp_path / "g.jsonl")] == ["correct"]
    out = tmp_path / "t.jsonl"
    thoughtful = {"prompt": "2*3?", "completion": "\\boxed{6}", "reasoning_content": "six"}
    data = written(tmp_path / "s.jsonl", [thoughtful])
    call_stage("cold-start", data, output=out, thoughts="<reason>\\n...</reason>", system=Path("none"))
    assert rows_of(out)[0]["messages"][-1]["content"] == "<reason>\nsix\n</reason>\\boxed{6}"


@pytest.mark.parametrize("stage", ["grade", "cold-start"])
def test_a_form_that_does_not_exist_is_refused(stage, tmp_path):
    data = written(tmp_path / "c.jsonl", answers(THINK))
    with pytest.raises(UsageError, match=rf"{stage}: --thoughts 'thinking': no such form; give think, brackets"):
        call_stage(stage, data, output=tmp_path / "g.jsonl", thoughts="thinking")


def test_cold_start_writes_traces_in_the_form_of_the_tokenizer(model, tmp_path):
    rows = [{"prompt": "2*3?", "completion": THINK.join("six", "\\boxed{6}")}]
    rows += [{"prompt": "1*3?", "completion": "\\boxed{3}", "thinking": "three"}]
    out, data = tmp_path / "t.jsonl", written(tmp_path / "c.jsonl", rows)
    call_stage("cold-start", data, output=out, tokenizer=str(model.random))
    expected = {model.form.join("six", "\\boxed{6}"), model.form.join("three", "\\boxed{3}")}
    assert {row["messages"][-1]["content"] for row in rows_of(out)} == expected
    system = rows_of(out)[0]["messages"][0]["content"]
    assert ("analysis channel" if model.form == CHANNELS else "[THINK]") in system


def test_cold_start_tells_the_form_by_the_traces(tmp_path, capsys):
    data = written(tmp_path / "c.jsonl", answers(BRACKETS, 3) + answers(THINK, 1))
    call_stage("cold-start", data, output=tmp_path / "t.jsonl", system=Path("none"), near=1.0, quiet=False)
    assert "cold-start: thoughts brackets ([THINK]...[/THINK]: in 3 of 4 completions)\n" in capsys.readouterr().err
    assert {row["messages"][-1]["content"] for row in rows_of(tmp_path / "t.jsonl")} == {
        answers(BRACKETS)[0]["completion"]
    }


def test_show_puts_thoughts_before_the_answer(tmp_path, capsys):
    parts = [{"type": "thinking", "thinking": "ones"}, {"type": "text", "text": "3"}]
    shown = f"[assistant] {THINK.join('ones', '3')}".replace("\n", "\n" + " " * 10)
    for answer in ({"content": "3", "reasoning_content": "ones"}, {"content": parts}):
        messages = [{"role": "assistant", **answer}]
        pq.write_table(pa.Table.from_pylist([{"messages": messages}]), tmp_path / "t.parquet")
        call_stage("show", tmp_path / "t.parquet")
        assert shown in capsys.readouterr().out
