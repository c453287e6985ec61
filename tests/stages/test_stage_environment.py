"""Stages with --environment: what rl trains and stores, a kill while a tool runs, samples of the other stages."""

import json
import time
from collections import Counter
from pathlib import Path

import pytest
from calling import TRAINED, call_stage, start_stage

from magcli.data import table
from magcli.errors import Stopped, UsageError
from magcli.run.rundir import RunDir

TOYS = Path(__file__).parent.parent / "environments" / "toys.py"
OPTIONS = TRAINED | {"updates": 3, "max_tokens": 90, "diverse_by": "none", "trajectory_every": 0}


@pytest.fixture
def problems(tmp_path):
    rows = [
        {
            "id": f"p{i}",
            "prompt": f"{letter}?",
            "answer": "3",
            "flag": str(tmp_path / "working"),
            "hint": {"letter": letter} if i % 2 else letter,
        }
        for i, letter in enumerate("abcdefgh")
    ]
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def trained(run):
    paths = sorted((run / "rollouts").iterdir())
    return [row for path in paths for batch in table.read(str(path)).rows for row in batch.to_pylist()]


@pytest.mark.parametrize("schedule", ["sync", "async"])
def test_rl_trains_the_turns_of_the_policy_and_stores_the_conversation(schedule, guesser, problems, tmp_path, capfd):
    run, out = tmp_path / "run", tmp_path / "rows.jsonl"
    options = OPTIONS | {"schedule": schedule, "model": str(guesser), "environment": f"{TOYS}:Cup"}
    call_stage("rl", problems, run=run, output=out, **options)
    rows = trained(run)
    assert {len(row["messages"]) for row in rows if row["finish"] == "stop"} == {6}
    for row in rows:
        given = sum(span["end"] - span["start"] for span in row["given"])
        assert row["num_tokens"] == len(row["tokens"]) - given == len(row["tokens"]) - row["logprobs"].count(0.0)
        assert row["completion"] == row["messages"][-1]["content"]
        assert json.loads(row["reward_parts"]) == {"asked": 2.0}
    metrics = RunDir(run).metrics()
    assert [line["reward_parts"] for line in metrics] == [{"asked": 2.0}] * 3
    assert sum(line["trained_tokens"] for line in metrics) == sum(row["num_tokens"] for row in rows if row["step"])
    assert all(line["mismatch_max"] < 1e-3 for line in metrics)
    call_stage("rl", problems, run=run, show_mask=1, **options)
    shown = capfd.readouterr().out.splitlines()
    assert [line.partition(" | ")[0].strip() for line in shown if line] == ["", "target"] * 3
    assert shown[2] == "       | <|user|>It is 3.<|end|><|assistant|>"
    written = json.loads(out.read_text().splitlines()[0])
    assert written["messages"][0] == {"role": "user", "content": rows[0]["prompt"]}
    letter = rows[0]["prompt"][0]
    assert written["hint"] in (letter, {"letter": letter}), "values of several types stay what they are"


def test_a_run_killed_while_a_tool_works_trains_each_episode_once_to_the_same_weights(guesser, problems, tmp_path):
    options = OPTIONS | {"model": str(guesser), "environment": f"{TOYS}:Slow", "workers": 2, "checkpoint_every": 2}
    call_stage("rl", problems, run=tmp_path / "whole", **options)
    flag, run = tmp_path / "working", tmp_path / "broken"
    for pause in (0.0, 2.0):
        flag.unlink(missing_ok=True)
        process = start_stage("rl", problems, run=run, **options)
        while not flag.exists() and process.is_alive():
            time.sleep(0.005)
        time.sleep(pause)
        process.kill()
        process.join()
    call_stage("rl", problems, run=run, **options)
    assert trained(run) == trained(tmp_path / "whole")
    of_group = Counter((row["group"], row["step"]) for row in trained(run))
    assert set(of_group.values()) == {8}
    for whole in (tmp_path / "whole" / "model").glob("*.safetensors"):
        assert (run / "model" / whole.name).read_bytes() == whole.read_bytes()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("Missing", r"has no class Missing"),
        ("WithoutReply", r"has no method reply; magcli calls it as reply\(row, messages\)"),
        ("Raises", r"reply of .*:Raises: KeyError: 'no such column' \(toys.py:\d+, reply\), on row p0"),
        ("Nonsense", r"returned 42, not None"),
        ("Hangs", r"reply of .*:Hangs took over 0.5 s and was ended; a class attribute seconds gives it more time"),
        ("BadReward", r"reward of .*:BadReward: TypeError"),
    ],
)
def test_an_environment_that_cannot_work_is_refused_before_the_first_token(name, problem, guesser, problems, tmp_path):
    options = OPTIONS | {"model": str(guesser), "environment": f"{TOYS}:{name}"}
    with pytest.raises(UsageError, match=problem):
        call_stage("rl", problems, run=tmp_path / "run", **options)


@pytest.mark.parametrize("stage", ["generate", "filter-math", "evaluate"])
def test_stages_that_sample_try_the_environment_too(stage, guesser, problems, tmp_path):
    options = {"model": str(guesser), "environment": f"{TOYS}:Raises", "output": tmp_path / "out.jsonl"}
    with pytest.raises(UsageError, match=r"no such column.* on row p0"):
        call_stage(stage, problems, **options)


@pytest.fixture
def late(tmp_path):
    """An environment that fails on turns of a model, not on the turn with which it is tried."""
    path = tmp_path / "late.py"
    path.write_text(
        "class Late:\n"
        "    def reply(self, row, messages):\n"
        "        return None if '42' in messages[-1]['content'] else 1 / 0\n"
    )
    return f"{path}:Late"


def test_an_environment_that_fails_later_ends_the_run_with_its_reason(late, guesser, problems, tmp_path):
    options = OPTIONS | {"model": str(guesser), "environment": late}
    with pytest.raises(Stopped, match=r"reply of .*:Late: ZeroDivisionError: division by zero \(late.py:3, reply\)"):
        call_stage("rl", problems, run=tmp_path / "run", **options)


def test_two_rewards_and_templates_that_change_turns_are_refused(guesser, problems, tmp_path):
    options = OPTIONS | {"model": str(guesser), "environment": f"{TOYS}:Cup"}
    with pytest.raises(UsageError, match="has its own reward; omit --reward"):
        call_stage("rl", problems, run=tmp_path / "run", **options | {"reward": f"{TOYS}:total"})
    template = tmp_path / "last.jinja"
    template.write_text("{% for m in messages[-1:] %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}<|assistant|>")
    with pytest.raises(UsageError, match="the chat template is not append-only: the next turn changes"):
        call_stage("rl", problems, run=tmp_path / "run", **options | {"chat_template": template})


def test_generate_filter_and_evaluate_sample_episodes(guesser, problems, tmp_path):
    sampled = {"model": str(guesser), "system": Path("none"), "samples": 2, "max_tokens": 90}
    out = tmp_path / "out.jsonl"
    call_stage("generate", problems, output=out, environment=f"{TOYS}:Hint", **sampled)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 16
    assert all(row["completion"] == row["messages"][-1]["content"] for row in rows)
    assert all(row["messages"][2]["content"] == "Again?" for row in rows if row["finish"] == "stop")
    kept = tmp_path / "kept.jsonl"
    call_stage("filter-math", problems, output=kept, environment=f"{TOYS}:Cup", keep="0..1", **sampled)
    rates = [json.loads(line)["pass_rate"] for line in kept.read_text().splitlines()]
    assert len(rates) == 8
    call_stage("evaluate", problems, output=tmp_path / "metrics.jsonl", environment=f"{TOYS}:Hint", **sampled)
    lines = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert next(line for line in lines if line["metric"] == "avg@n")["num_samples"] == 16


@pytest.mark.parametrize("stage", ["evaluate", "filter-math"])
def test_a_dry_run_needs_no_answers_where_the_environment_judges(stage, tiny_model_dir, tmp_path, capfd):
    path = tmp_path / "unanswered.jsonl"
    rows = [{"id": "a", "prompt": "a?", "answer": "3"}, {"id": "b", "prompt": "b?"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"model": str(tiny_model_dir), "system": Path("none"), "environment": f"{TOYS}:Cup"}
    call_stage(stage, path, quiet=False, dry_run=True, **options)
    assert f"{stage}: dry run: 2 rows, 2 usable" in capfd.readouterr().err


def test_sft_trains_no_results_of_tools(tiny_model_dir, tmp_path, capfd):
    turns = [("user", "2+3?"), ("assistant", "<<2+3>>"), ("tool", "5"), ("assistant", "It is 5.")]
    messages = [{"role": role, "content": content} for role, content in turns]
    traces = tmp_path / "traces.jsonl"
    traces.write_text(json.dumps({"messages": messages}) + "\n")
    call_stage("sft", traces, model=str(tiny_model_dir), run=tmp_path / "run", system=Path("none"), show_mask=1)
    shown = [line.split(" | ", 1) for line in capfd.readouterr().out.splitlines() if line]
    assert [text for label, text in shown if label == "target"] == ["<<2+3>><|end|>", "It is 5.<|end|>"]
    assert any("5<|end|>" in text for label, text in shown if label != "target")


def test_generate_drops_a_row_whose_environment_fails(late, guesser, problems, tmp_path):
    sampled = {"model": str(guesser), "system": Path("none"), "max_tokens": 40, "environment": late}
    dropped = tmp_path / "dropped.jsonl"
    call_stage("generate", problems, output=tmp_path / "o.jsonl", dropped=dropped, allow_empty=True, **sampled)
    rows = [json.loads(line) for line in dropped.read_text().splitlines()]
    assert {row["drop_reason"] for row in rows} == {"environment-error"}
    assert "ZeroDivisionError" in rows[0]["drop_detail"]


def test_grade_asks_the_environment_about_a_completion_and_about_a_conversation(tmp_path, capsys):
    said = [{"role": "user", "content": "3?"}, {"role": "assistant", "content": "no"}]
    rows = [
        {"id": "a", "prompt": "3?", "answer": "3", "completion": "<think>x</think>3"},
        {"id": "b", "prompt": "3?", "answer": "3", "completion": "no", "messages": [*said, *said]},
    ]
    path, out = tmp_path / "completions.jsonl", tmp_path / "graded.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    call_stage("grade", path, output=out, quiet=False, environment=f"{TOYS}:Cup")
    graded = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["reward"], row["correct"]) for row in graded] == [(1.0, True), (2.0, False)]
    assert [row["reward_parts"] for row in graded] == [{"asked": 2.0}] * 2
    assert "mean reward 1.5 (1 to 2)" in capsys.readouterr().err
    with pytest.raises(UsageError, match="has no reward of its own"):
        call_stage("grade", path, output=out, environment=f"{TOYS}:Hint")


def test_grade_names_an_environment_that_fails(tmp_path):
    path, out = tmp_path / "completions.jsonl", tmp_path / "graded.jsonl"
    path.write_text(json.dumps({"id": "a", "prompt": "3?", "completion": "3"}) + "\n")
    with pytest.raises(UsageError, match=r"reward of .*:BadReward: TypeError"):
        call_stage("grade", path, output=out, environment=f"{TOYS}:BadReward")
