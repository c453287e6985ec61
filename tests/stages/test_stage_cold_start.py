import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from calling import call_stage

from magcli.data import table
from magcli.errors import DataError, UsageError


def rows_of(path):
    return [row for batch in table.read(str(path)).rows for row in batch.to_pylist()]


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rollout(problem, group, sample, correct, step=5, tokens=50):
    text = f"<think>{problem} {group} {sample}</think>\\boxed{{1}}"
    place = {"group": group, "sample": sample, "step": step, "num_tokens": tokens}
    return {"id": problem, "prompt": f"{problem}?", "completion": text, "correct": correct, **place}


def chosen(tmp_path, rows, **options):
    out, dropped = tmp_path / "out.arrow", tmp_path / "dropped.jsonl"
    places = {"output": out, "dropped": dropped, "allow_empty": True, "restart": True}
    call_stage("cold-start", written(tmp_path / "in.jsonl", rows), **places, **options)
    return rows_of(out), {key_of(row): row["drop_reason"] for row in rows_of(dropped)}


def key_of(row):
    """The id of a trace: that of its row, group and sample."""
    return "/".join(str(row[name]) for name in ("id", "group", "sample") if row.get(name) is not None)


def test_only_correct_late_and_long_rollouts_are_selected_up_to_a_limit_per_problem(tmp_path):
    rows = [rollout("p", 0, i, True, tokens=40 + i) for i in range(6)]
    rows += [rollout("p", 1, 0, False), rollout("q", 2, 0, True, step=1), rollout("q", 3, 0, True, tokens=3)]
    traces, dropped = chosen(tmp_path, rows, from_step=2, shortest=0.15, per_problem=4, system=Path("none"))
    assert Counter(dropped.values()) == {"surplus": 2, "wrong": 1, "early-step": 1, "short": 1}
    assert (dropped["p/1/0"], dropped["q/2/0"], dropped["q/3/0"]) == ("wrong", "early-step", "short")
    assert len(traces) + len(dropped) == len(rows)
    assert len({trace["id"] for trace in traces}) == 4
    for trace in traces:
        user, assistant = trace["messages"]
        assert user == {"role": "user", "content": "p?"}
        assert assistant["role"] == "assistant"
        assert assistant["content"].startswith("<think>p 0 ")
        assert (trace["source"], trace["weight"]) == ("rollouts", 1.0)


def test_harder_problems_are_repeated_more_often(tmp_path):
    rows = [rollout("easy", g, s, True) for g in range(20) for s in range(4)]
    rows += [rollout("hard", 100 + g, s, s == 0) for g in range(20) for s in range(4)]
    traces, _ = chosen(tmp_path, rows, per_problem=20, hardest=3.0)
    copies = Counter(trace["messages"][-2]["content"] for trace in traces)
    assert copies["easy?"] == 20
    assert 40 <= copies["hard?"] <= 60, "a pass rate of 1/4 means 2.5 copies on average"


def test_instructions_are_a_fraction_of_the_mix(tmp_path):
    rows = [rollout(f"p{i}", i, 0, True) for i in range(90)]
    talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
    general = written(
        tmp_path / "general.jsonl", [{"id": f"i{i}", "messages": talk, "source": "chat"} for i in range(50)]
    )
    traces, _ = chosen(tmp_path, rows, instructions=general, fraction=0.1)
    assert Counter(trace["source"] for trace in traces) == {"rollouts": 90, "chat": 10}
    order = [trace["source"] for trace in traces]
    assert "chat" in order[:60], "the mix is shuffled"
    again, _ = chosen(tmp_path, rows[::-1], instructions=general, fraction=0.1)
    assert sorted(map(str, again)) == sorted(map(str, traces)), "the choice does not depend on the order of rows"


def test_other_instructions_make_another_mix_of_the_same_traces(tmp_path):
    traces, out = (
        written(tmp_path / "in.jsonl", [rollout(f"p{i}", i, 0, True) for i in range(9)]),
        tmp_path / "out.arrow",
    )
    sources = []
    for source in ("one", "one", "other"):
        talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
        general = written(tmp_path / "general.jsonl", [{"id": "i", "messages": talk, "source": source}])
        call_stage("cold-start", traces, output=out, instructions=general, fraction=0.1)
        sources.append(({row["source"] for row in rows_of(out)}, out.stat().st_ino))
    assert [found for found, _ in sources] == [{"rollouts", "one"}, {"rollouts", "one"}, {"rollouts", "other"}]
    assert sources[0] == sources[1], "the same instructions leave the mix as it is"


def test_worked_solutions_are_used_unchanged_with_the_system_prompt(tmp_path):
    prompt = tmp_path / "system.txt"
    prompt.write_text("Think first.\n")
    rows = [{"prompt": "1+1?", "completion": "<think>2</think>\\boxed{2}"}, {"prompt": "2+2?", "completion": None}]
    rows += [{"prompt": None, "completion": "4"}]
    traces, dropped = chosen(tmp_path, rows, system=prompt)
    assert [trace["messages"] for trace in traces] == [
        [
            {"role": "system", "content": "Think first."},
            {"role": "user", "content": "1+1?"},
            {"role": "assistant", "content": "<think>2</think>\\boxed{2}"},
        ]
    ]
    assert list(dropped.values()) == ["unusable-trace"] * 2


def test_the_mix_can_be_learned(tiny_model_dir, tmp_path):
    chosen(tmp_path, [rollout(f"p{i}", i, 0, True) for i in range(5)], system=Path("none"))
    options = {"model": str(tiny_model_dir), "run": tmp_path / "run", "epochs": 1}
    call_stage("sft", tmp_path / "out.arrow", **options)
    assert (tmp_path / "run" / "model" / "model.safetensors").exists()


def events_of(capsys, tmp_path, rows, **options):
    """The events of a run, by name."""
    chosen(tmp_path, rows, quiet=False, json_events=True, **options)
    captured = capsys.readouterr()
    lines = [*captured.err.splitlines(), *captured.out.splitlines()]
    return {event["event"]: event for event in map(json.loads, lines)}


def test_truncated_and_ungraded_completions_are_left_out(tmp_path):
    rows = [rollout("p", 0, i, True) for i in range(3)]
    rows[1]["finish"], rows[2] = "length", rows[2] | {"correct": False, "reason": "bad-gold"}
    traces, dropped = chosen(tmp_path, rows, hardest=5.0)
    assert dropped == {"p/0/1": "cut", "p/0/2": "ungradable"}
    assert len(traces) == 1, "what could not be graded makes no problem harder"


def test_one_of_several_near_identical_traces_stays_across_tables(tmp_path, capsys):
    long = " ".join(f"step {i} adds {i * i}" for i in range(40))
    rows = [rollout("p", 0, 0, True) | {"completion": long}]
    rows += [{"id": "teacher", "prompt": "p?", "completion": long.replace("step 39", "Step  thirty-nine")}]
    rows += [{"id": "other", "prompt": "q?", "completion": long}]
    traces, dropped = chosen(tmp_path, rows, any_format=True, quiet=False)
    said = capsys.readouterr().err
    assert "cold-start: 1 near-identical traces by --near 0.8; a higher one keeps more" in said
    assert "(<think>...</think>, the recipe's form: the 3 completions have no other)" in said
    assert list(dropped.values()) == ["near-identical"]
    assert len(traces) == 2
    assert chosen(tmp_path, rows, near=1.0, any_format=True)[1] == {}


def test_rows_with_several_samples_and_their_verdicts_are_read(tmp_path):
    rows = [
        {"question": "1+1?", "code": ["It is 2.", "It is 3.", "Two it is."], "score": [True, False, True], "gt": "2"}
    ]
    traces, dropped = chosen(tmp_path, rows, system=Path("none"), any_format=True)
    assert {trace["messages"][1]["content"] for trace in traces} == {"It is 2.", "Two it is."}
    assert list(dropped.values()) == ["wrong"]


def test_traces_with_a_negative_or_unclear_verdict_are_not_selected(tmp_path):
    verdicts = {"a": "False", "b": "false", "c": "0.5", "d": "True", "e": "maybe"}
    rows = [{"id": id, "prompt": f"{id}?", "completion": "2", "correct": verdict} for id, verdict in verdicts.items()]
    traces, dropped = chosen(tmp_path, rows, any_format=True)
    assert [trace["id"] for trace in traces] == ["d"]
    assert dropped == {"a": "wrong", "b": "wrong", "c": "unclear-verdict", "e": "unclear-verdict"}
    traces, dropped = chosen(tmp_path, [{"id": "a", "prompt": "a?", "completion": "2", "score": 0.5}])
    assert (traces, dropped) == ([], {"a": "unclear-verdict"})


def test_numbers_may_be_text_and_invalid_conversations_are_dropped(tmp_path):
    late, early = (rollout(step, 0, 0, True) | {"step": step, "num_tokens": "50"} for step in ("10", "9"))
    traces, dropped = chosen(tmp_path, [late, early], from_step=10)
    assert ([trace["id"] for trace in traces], dropped) == (["10/0/0"], {"9/0/0": "early-step"})
    assert chosen(tmp_path, [{"id": "m", "messages": 3}]) == ([], {"m": "unusable-trace"})
    with pytest.raises(DataError, match=r"step of trace p/0/0 is 'third', expected a number"):
        chosen(tmp_path, [rollout("p", 0, 0, True) | {"step": "third"}])


def test_the_mix_is_reported_exactly(tmp_path, capsys, tiny_model_dir):
    rows = [rollout(f"p{i}", i, 0, True) for i in range(18)] + [rollout("q", 99, 0, False)]
    talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
    general = written(tmp_path / "general.jsonl", [{"id": f"i{i}", "messages": talk} for i in range(5)])
    events = events_of(capsys, tmp_path, rows, instructions=general, tokenizer=str(tiny_model_dir))
    assert "19 traces in = 18 selected + 1 dropped (wrong 1)" in events["selected"]["message"]
    assert (events["rows"]["traces"], events["rows"]["instructions"]) == (18, 2)
    mix, out = events["mix"]["mix"], rows_of(tmp_path / "out.arrow")
    assert {name: share["rows"] for name, share in mix.items()} == Counter(trace["source"] for trace in out)
    assert mix["instructions"]["length"] == 2 * len("Hello."), "the tokenizer has one token a character"
    assert sum(events["lengths"]["lengths"].values()) == len(out)


def test_another_tokenizer_in_the_same_folder_makes_another_mix(tmp_path, capsys, tiny_model_dir):
    folder = shutil.copytree(tiny_model_dir, tmp_path / "model")
    source = written(tmp_path / "in.jsonl", [rollout("p", 0, sample, True) for sample in range(2)])
    options = {"output": tmp_path / "out.arrow", "tokenizer": str(folder), "quiet": False}
    for _ in range(2):
        call_stage("cold-start", source, **options)
    assert "out.arrow is up to date" in capsys.readouterr().err
    settings = folder / "tokenizer_config.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "model_max_length": 7}))
    call_stage("cold-start", source, **options)
    assert "up to date" not in capsys.readouterr().err


def test_unreadable_instructions_are_reported(tmp_path, capsys):
    general = written(tmp_path / "general.jsonl", [{"question": "Hi", "output": "Hello."}])
    general.write_text(general.read_text() + '{"question": \n')
    events = events_of(capsys, tmp_path, [rollout("p", 0, 0, True)], instructions=general)
    assert events["warning"]["message"].endswith("general.jsonl: skipped unreadable lines (broken-json 1)")


def test_instructions_come_with_their_input(tmp_path):
    rows = [{"instruction": "Translate to French", "input": "Good day", "output": "Bonjour"}]
    general = written(tmp_path / "general.jsonl", rows)
    traces, _ = chosen(tmp_path, [rollout("p", 0, 0, True)], instructions=general, fraction=0.5, system=Path("none"))
    asked = {trace["source"]: trace["messages"][0]["content"] for trace in traces}
    assert asked["instructions"] == "Translate to French\n\nGood day"


def test_too_few_instructions_are_reported(tmp_path, capsys):
    talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
    general = written(tmp_path / "general.jsonl", [{"id": "i", "messages": talk}])
    events = events_of(capsys, tmp_path, [rollout(f"p{i}", i, 0, True) for i in range(18)], instructions=general)
    assert events["warning"]["message"].endswith("1 instructions are fewer than the 2 of 10%")


def test_invalid_options_and_tables_are_refused(tmp_path):
    for options, message in (
        ({"shortest": 1.0}, r"cold-start.shortest: 1.0 is not in \[0, 1\)"),
        ({"near": 0.0}, r"cold-start.near: 0.0 is not in \(0, 1\]"),
        ({"hardest": 0.5}, "cold-start.hardest: 0.5 is less than 1"),
        ({"per_problem": 0}, "cold-start.per_problem: 0 is not positive"),
    ):
        with pytest.raises(UsageError, match=message):
            call_stage("cold-start", "nothing.jsonl", **options)
    with pytest.raises(DataError, match=r"cold-start: .*lacks columns prompt, completion; it has: question"):
        call_stage("cold-start", written(tmp_path / "q.jsonl", [{"question": "a"}]), output=tmp_path / "o.arrow")


def trace_of(tmp_path, row, **options):
    """The answer in the trace of one row, and its reason if the row was dropped."""
    traces, dropped = chosen(tmp_path, [row], system=Path("none"), **options)
    return [trace["messages"][-1]["content"] for trace in traces], list(dropped.values())


def test_a_worked_solution_becomes_thoughts_and_a_boxed_answer(tmp_path):
    row = {"problem": "How many legs have 3 cats?", "solution": "Each has 4, so 3 * 4 = 12.", "answer": 12}
    assert trace_of(tmp_path, row) == (["<think>\nEach has 4, so 3 * 4 = 12.\n</think>\n\n\\boxed{12}"], [])
    (brackets,), _ = trace_of(tmp_path, row, thoughts="brackets")
    assert brackets == "[THINK]Each has 4, so 3 * 4 = 12.[/THINK]\\boxed{12}"


def test_a_solution_may_end_in_its_answer(tmp_path):
    expected = (["<think>\n3 * 4 = 12 legs.\n</think>\n\n\\boxed{12}"], [])
    assert trace_of(tmp_path, {"question": "Legs?", "answer": "3 * 4 = <<3*4=12>>12 legs.\n#### 12"}) == expected
    boxed = {"problem": "Legs?", "solution": "There are \\boxed{12} legs."}
    assert trace_of(tmp_path, boxed) == (
        ["<think>\nThere are \\boxed{12} legs.\n</think>\n\n\\boxed{12}"],
        [],
    )


def test_a_solution_that_arrives_at_another_answer_is_dropped(tmp_path):
    half = {"problem": "Half of 1?", "solution": "It is \\boxed{0.5}."}
    assert trace_of(tmp_path, half | {"answer": "1/2"})[1] == [], "equal by the verifier"
    assert trace_of(tmp_path, half | {"answer": "2"}) == ([], ["other-answer"])


def test_all_boxes_of_a_line_are_the_answer_of_a_solution(tmp_path):
    roots = {"problem": "Solve x^2=9.", "solution": "The roots are $\\boxed{3}$ and $\\boxed{-3}$."}
    (trace,), dropped = trace_of(tmp_path, roots)
    assert (trace.endswith("\\boxed{3, -3}"), dropped) == (True, [])
    assert trace_of(tmp_path, roots | {"answer": "-3, 3"})[1] == []


def test_a_program_is_no_worked_solution(tmp_path):
    row = {"prompt": "Print 1.", "solution": "print(1)", "answer": "1", "kind": "code"}
    assert trace_of(tmp_path, row, any_format=True) == (["print(1)"], [])


def test_traces_that_break_the_format_are_counted_or_refused(tmp_path, capsys):
    plain = [{"id": str(n), "prompt": f"{n}?", "completion": f"It is {n}."} for n in range(2)]
    good = [rollout(f"p{n}", n, 0, True) for n in range(3)]
    with pytest.raises(DataError, match=r"2 of 3 traces break the format of the reward \(no-think 2\).*--any-format"):
        chosen(tmp_path, plain + good[:1])
    assert len(chosen(tmp_path, plain + good[:1], any_format=True)[0]) == 3
    capsys.readouterr()
    assert len(chosen(tmp_path, plain + good, quiet=False)[0]) == 5
    assert "2 of 5 traces break the format of the reward (no-think 2)" in capsys.readouterr().err


def test_problems_without_traces_are_dropped_with_what_is_missing(tmp_path, capsys):
    traces, dropped = chosen(tmp_path, [{"id": "a", "prompt": "1+1?", "answer": "2"}], quiet=False)
    assert (traces, dropped) == ([], {"a": "unusable-trace"})
    assert "there are no messages, and no prompt with a completion" in capsys.readouterr().err
