"""Tables in the layouts of other tools through the stages, as the command line reads them."""

import json
from pathlib import Path

import pytest
from calling import call_stage
from test_layouts import FEED, PROGRAM, ROWS, SAID, THOUGHT, USER, stored

from magcli.data import table
from magcli.data.values import to_rows
from magcli.errors import DataError

MODEL = Path(__file__).parent.parent.parent / "examples/model"


def rows_of(path):
    return [row for batch in table.read(str(path)).rows for row in to_rows(batch)]


def made(stage, folder, rows, **options):
    """What a stage makes of these rows."""
    out = folder / "out.jsonl"
    call_stage(stage, stored(folder, rows), output=out, **options)
    return rows_of(out)


ANSWERED = {"data_source": "x", "prompt": [USER], "reward_model": {"ground_truth": "6", "style": "rule"}}
TESTED = ANSWERED | {"reward_model": {"ground_truth": json.dumps({"inputs": ["1 2\n"], "outputs": ["3\n"]})}}
PROGRAM_SAID = f"<think>add</think>\n```python\n{PROGRAM}\n```"


def test_clean_math_reads_verl_and_says_so(tmp_path, capsys):
    (row,) = made("clean-math", tmp_path, [ANSWERED], quiet=False)
    assert (row["prompt"], row["answer"], row["data_source"]) == ("What is 2 * 3?", "6", "x")
    expected = "clean-math: reading reward_model.ground_truth as answer or tests (layout verl)"
    assert expected in capsys.readouterr().err


def test_rows_that_a_layout_cannot_read_are_dropped_with_their_reason(tmp_path):
    several = ANSWERED | {"reward_model": {"ground_truth": '["6", "7"]', "style": "rule"}}
    dropped = tmp_path / "dropped.jsonl"
    assert len(made("clean-math", tmp_path, [ANSWERED, several], dropped=dropped)) == 1
    (row,) = rows_of(dropped)
    assert row["drop_reason"] == "several-answers"
    assert "2 answers are given" in json.dumps(row)


def test_an_ambiguous_table_is_refused_by_its_name(tmp_path):
    row = ANSWERED | {"answer": "7"}
    with pytest.raises(DataError, match=r"rows\.jsonl: column answer could be answer or reward_model\.ground_truth"):
        made("clean-math", tmp_path, [row])


@pytest.mark.parametrize("stage", ["filter-code", "grade"])
def test_an_ambiguous_table_is_refused_before_a_column_that_its_layout_has(stage, tmp_path):
    tests = {"test_cases": [{"type": "stdin_stdout", "input": "1 2\n", "output": "3\n"}]}
    statements = {"prompt": "Add.", "problem_statement": "Add two."}
    row = {"verification_info": tests, **statements, "gold_standard_solution": PROGRAM, "completion": PROGRAM_SAID}
    with pytest.raises(DataError, match=r"column prompt could be prompt .* or problem_statement"):
        made(stage, tmp_path, [row])


def test_a_missing_column_names_those_that_could_be_meant(tmp_path):
    with pytest.raises(DataError, match="lacks column answer, which could be gold_label"):
        made("clean-math", tmp_path, [{"prompt": "2 * 3?", "gold_label": "6"}])


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"input": "What is 1+2?", "answer": "3"}, r"second\.jsonl: lacks column prompt, which could be input"),
        ({"riddle": "What is 1+2?", "answer": "3"}, r"second\.jsonl: lacks column prompt; it has: riddle, answer"),
        (
            {"prompt": "What is 1+2?", "gold_label": "3"},
            r"second\.jsonl: lacks column answer, .* gold_label",
        ),
    ],
)
def test_each_of_several_tables_has_the_columns(second, message, tmp_path):
    rows = {"first.jsonl": {"prompt": "What is 1+1?", "answer": "2"}, "second.jsonl": second}
    for name, row in rows.items():
        (tmp_path / name).write_text(json.dumps(row))
    with pytest.raises(DataError, match=message):
        call_stage("clean-math", *(str(tmp_path / name) for name in rows), output=tmp_path / "out.arrow")


def test_an_integer_beside_choices_is_an_index(tmp_path):
    (row,) = made("clean-math", tmp_path, [{"question": "Compute 1+1.", "choices": ["4", "2", "1"], "answer": 1}])
    assert (row["answer"], row["note"]) == ("2", "opened")


CODE = ["verifiable-coding", "APPS", "DeepCoder"]


@pytest.mark.parametrize("name", CODE)
def test_filter_code_runs_the_solutions_of_other_layouts(name, tmp_path):
    row, _ = ROWS[name]
    (kept,) = made("filter-code", tmp_path, [row], min_tests=1, sandbox="auto")
    assert kept["tests"] == [FEED]
    assert [(each["language"], each["code"].strip(), each["verdict"]) for each in kept["solutions"]] == [
        ("python", PROGRAM, "right")
    ]


def test_filter_code_runs_functions_and_methods(tmp_path):
    tests = json.dumps({"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [[3], [7]]})
    solution = "class Solution:\n    def add(self, a, b):\n        return a + b\n"
    row = {
        "question": "Add.",
        "solutions": json.dumps([solution]),
        "input_output": tests,
        "starter_code": solution[:40],
    }
    (kept,) = made("filter-code", tmp_path, [row], min_tests=2, sandbox="auto")
    assert len(kept["tests"]) == 2
    assert kept["prompt"].startswith("Add.\n\n```python\nclass Solution:")


@pytest.mark.parametrize("name", ["DeepCoder", "tests as text", "tests by column", "MBPP"])
def test_grade_and_duplicate_read_the_tests_that_filter_code_reads(name, tmp_path):
    row, _ = ROWS[name]
    function = "def add(a, b):\n    return a + b"
    is_called = name in ("tests as text", "MBPP")
    program = f"<think>add</think>\n```python\n{function if is_called else PROGRAM}\n```"
    named = {"prompt" if key in ("text", "problem") else key: value for key, value in row.items()}
    (graded,) = made("grade", tmp_path, [{**named, "completion": program}], sandbox="auto")
    assert (graded["reason"], graded["kind"]) == ("accepted", "code")
    (twice, _) = made("duplicate", tmp_path, [row], restart=True)
    assert (twice["duplicate"], twice["language"]) == ("duplicated", "python")


WITH_SETUP = {
    "MBPP": {"text": "Double.", "test_list": ["assert f(K) == 4", "assert f(5) == 10"], "test_setup_code": "K = 2"},
    "MBPP's imports": {
        "prompt": "Double.",
        "test_list": ["assert f(C('aa')['a']) == 4", "assert f(5) == 10"],
        "test_imports": ["from collections import Counter as C"],
    },
    "magcli's tests": {
        "prompt": "Double.",
        "tests": [{"assert": "assert f(K) == 4"}, {"assert": "assert f(5) == 10"}],
        "test_setup_code": "K = 2",
    },
    "HumanEval": {
        "prompt": "def f(x):",
        "entry_point": "f",
        "test": "def check(candidate):\n    assert candidate(K) == 4\n    assert candidate(5) == 10",
        "test_setup_code": "K = 2",
    },
}


@pytest.mark.parametrize("name", WITH_SETUP)
def test_set_up_code_runs_before_the_tests_in_every_stage(name, tmp_path):
    problem = {"code": "def f(x):\n    return 2 * x", **WITH_SETUP[name]}
    answers = [f"<think>x</think>\n```python\ndef f(x):\n    return {factor} * x\n```" for factor in (2, 3)]
    graded = made("grade", tmp_path, [{**problem, "completion": answer} for answer in answers], sandbox="auto")
    assert [row["reason"] for row in graded] == ["accepted", "wrong-answer"]
    (kept,) = made("filter-code", tmp_path, [problem], min_tests=2, sandbox="auto", restart=True)
    assert len(kept["tests"]) == 2
    # What either stage wrote is read again with its set-up code once.
    again = [{**kept, "completion": answers[0]}, graded[0]]
    tests = [row["tests"] for row in again]
    regraded = made("grade", tmp_path, again, sandbox="auto", restart=True)
    assert [row["reason"] for row in regraded] == ["accepted"] * 2
    assert [row["tests"] for row in regraded] == tests


GRADED = {
    "a list of samples": {"response": [SAID["content"], "<think>x</think>\\boxed{7}"]},
    "thoughts in a column": {"completion": "\\boxed{6}", "reasoning_content": "six"},
    "messages": {"completion": [THOUGHT]},
    "a batch": {"custom_id": "a", "response": {"body": {"choices": [{"message": THOUGHT}]}}},
}


@pytest.mark.parametrize("name", GRADED)
def test_grade_reads_completions_of_other_tools(name, tmp_path):
    rows = made("grade", tmp_path, [{"prompt": "What is 2 * 3?", "answer": "6", **GRADED[name]}])
    assert [row["correct"] for row in rows] == [True, False][: len(rows)]
    assert len(rows) == (2 if name == "a list of samples" else 1)


def test_grade_reads_an_answer_that_is_the_text_of_a_list(tmp_path):
    (row,) = made("grade", tmp_path, [{"prompt": "2 * 3?", "answer": '["6"]', "completion": SAID["content"]}])
    assert row["reason"] == "correct"


def test_cold_start_reads_each_table_in_its_own_layout(tmp_path):
    tables = []
    for name in ("s1K-1.1", "TRL prompt-completion", "ShareGPT", "OpenR1-Math"):
        folder = tmp_path / str(len(tables))
        folder.mkdir()
        row = ROWS[name][0]
        if name == "ShareGPT":
            turns = [
                {"from": "human", "value": "What is 3 * 3?"},
                {"from": "gpt", "value": "<think>n</think>\\boxed{9}"},
            ]
            row = {"conversations": turns}
        tables.append(stored(folder, [row]))
    out = tmp_path / "traces.jsonl"
    call_stage("cold-start", *tables, output=out, system=Path("none"), any_format=True)
    said = sorted(row["messages"][-1]["content"] for row in rows_of(out))
    assert len(said) == 4
    assert sum("six" in text and text.endswith("\\boxed{6}") for text in said) == 2


def test_a_score_outside_0_to_1_is_no_verdict(tmp_path, capsys):
    rows = [{"prompt": f"{n} + 1?", "completion": f"<think>{n}</think>\\boxed{{{n + 1}}}"} for n in range(3)]
    rated = [row | {"score": score} for row, score in zip(rows, (1.0, 8.5, 0.0), strict=True)]
    assert len(made("cold-start", tmp_path, rated, quiet=False)) == 3
    assert "column score is no verdict: 1 values are not within 0 to 1" in capsys.readouterr().err
    judged = [row | {"score": score} for row, score in zip(rows, (1.0, 1.0, 0.0), strict=True)]
    assert len(made("cold-start", tmp_path, judged, restart=True)) == 2


def test_cold_start_refuses_two_completions(tmp_path):
    with pytest.raises(DataError, match="could be response or attempt; name one"):
        made("cold-start", tmp_path, [{"prompt": "2?", "attempt": "2", "response": "3"}])


def test_ground_truths_and_tests_are_read_before_anything_is_sampled(tmp_path):

    rows = [
        {"prompt": "Print 1.", "kind": "code", "tests": [{"input": "", "output": None}], "answer": None},
        {
            "prompt": "Why?",
            "kind": "math",
            "tests": None,
            "answer": "it depends on how one reads the question that was asked",
        },
    ]
    options = {"model": str(MODEL), "system": Path("none"), "run": tmp_path / "run", "updates": 1, "group_size": 4}
    options |= {"n_async": 8, "n_batch": 8, "n_mini": 8, "max_tokens": 8, "sandbox": "auto"}
    for dry_run in (False, True):
        with pytest.raises(DataError, match=r"no usable problem in the input \(bad-gold 2: the first: "):
            call_stage("rl", stored(tmp_path, rows), **options, dry_run=dry_run)
    assert not list((tmp_path / "run").glob("rollouts*/*"))


def test_show_says_the_layout_and_why(tmp_path, capsys):
    call_stage("show", stored(tmp_path, [TESTED]), layout=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("layout verl (verl: docs/preparation/prepare_data.rst")
    assert lines[0].endswith("recognised by: prompt, reward_model.ground_truth")
    assert "tests: reward_model.ground_truth (layout verl)" in lines


def test_grade_judges_programs_of_verl(tmp_path):
    (row,) = made("grade", tmp_path, [TESTED | {"completion": PROGRAM_SAID}], sandbox="auto")
    assert (row["reason"], row["tests"]) == ("accepted", [FEED])


def counts(stage, folder, rows, capsys, **options):
    """The line with which a stage ends, and the reason of each dropped row."""
    dropped = folder / "dropped.jsonl"
    call_stage(stage, stored(folder, rows), output=folder / "out.jsonl", dropped=dropped, quiet=False, **options)
    *_, line = (line for line in capsys.readouterr().err.splitlines() if "rows in" in line)
    return line, [row["drop_reason"] for row in rows_of(dropped)]


def test_a_row_without_samples_is_counted(tmp_path, capsys):
    """Otherwise the problems that a model never answered would leave the accuracy without a trace."""
    samples = [["<think>a</think>\\boxed{42}"], [], [None], None, [""]]
    rows = [{"question": f"What is 6*{7 + n}?", "answer": "42", "responses": texts} for n, texts in enumerate(samples)]
    line, reasons = counts("grade", tmp_path, rows, capsys)
    assert line.startswith("grade: 5 rows in, 2 out, dropped 3 (missing-completion 3")
    assert reasons == ["missing-completion"] * 3
    line, reasons = counts("cold-start", tmp_path, rows, capsys, any_format=True, restart=True, overwrite=True)
    assert line.startswith("cold-start: 5 rows in, 1 out, dropped 4 ")
    assert len(reasons) == 4


def test_samples_with_verdicts_are_counted_when_there_are_none(tmp_path, capsys):
    row = ROWS["OpenR1-Math"][0]
    empty = {**row, "problem": "What is 4 * 5?", "generations": [], "correctness_math_verify": []}
    line, reasons = counts("grade", tmp_path, [row, empty], capsys)
    assert line.startswith("grade: 3 rows in, 2 out, dropped 1 (missing-completion 1: the first: the list of")
    assert reasons == ["missing-completion"]


def test_the_filters_of_one_log_count_a_completion_once(tmp_path, capsys):
    """A harness logs a completion once for each filter; counted twice, pass@2 would be that of copies."""
    rows = []
    for number, said in enumerate(("<think>six</think>\\boxed{6}", "<think>six</think>\\boxed{7}")):
        for name in ("strict-match", "flexible-extract"):
            doc = {"question": f"What is 2 * {3 + number}?"}
            rows.append({"doc_id": number, "doc": doc, "target": "6", "resps": [[said]], "filter": name})
    line, reasons = counts("grade", tmp_path, rows, capsys)
    said = "it is the completion of filter strict-match again, for filter flexible-extract"
    assert line.startswith(f"grade: 4 rows in, 2 out, dropped 2 (repeated-completion 2: the first: {said})")
    assert reasons == ["repeated-completion"] * 2
    assert [row["correct"] for row in rows_of(tmp_path / "out.jsonl")] == [True, False]


def test_repeats_of_one_filter_are_samples(tmp_path, capsys):
    """The same text said twice under one filter is two samples, as a model may well repeat itself."""
    row = ROWS["lm-evaluation-harness"][0] | {"filter": "none"}
    line, _ = counts("grade", tmp_path, [row, row], capsys)
    assert line.startswith("grade: 2 rows in, 2 out in")


def test_a_layout_without_problems_or_tests_says_where_they_are(tmp_path):
    with pytest.raises(DataError, match="HumanEval samples have no problems; join them with those of openai/"):
        made("grade", tmp_path, [ROWS["HumanEval samples"][0]])
    with pytest.raises(DataError, match="LiveCodeBench outputs have no tests; join them with those of livecodebench/"):
        made("grade", tmp_path, [ROWS["LiveCodeBench outputs"][0]])


def test_a_conversation_without_an_answer_is_no_trace(tmp_path, capsys):
    row, _ = ROWS["RLVR"]
    line, reasons = counts("cold-start", tmp_path, [row], capsys, allow_empty=True)
    assert "(unusable-trace 1: the first: the conversation has no turn of the assistant)" in line
    assert reasons == ["unusable-trace"]


def test_instructions_are_read_in_their_own_layout(tmp_path, capsys):
    """Responses of an API among the instructions would be trained on as JSON."""
    folder = tmp_path / "instructions"
    folder.mkdir()
    response = {"choices": [{"message": {"role": "assistant", "content": "Hello!"}}]}
    calls = {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [{"id": "a"}]}}]}
    rows = [{"prompt": "Say hello.", "response": json.dumps(value)} for value in (response, calls)]
    trace = {"prompt": "What is 2 * 3?", "completion": SAID["content"]}
    options = {"instructions": stored(folder, rows), "fraction": 0.5, "system": Path("none"), "any_format": True}
    _, reasons = counts("cold-start", tmp_path, [trace], capsys, **options)
    said = {row["messages"][-1]["content"] for row in rows_of(tmp_path / "out.jsonl")}
    assert said == {SAID["content"], "Hello!"}
    assert reasons == ["several-turns"]


def test_a_value_that_is_no_text_among_texts_is_dropped_with_what_it_is(tmp_path):
    problem = {"prompt": "What is 2 * 3?", "answer": "6"}
    odd = [{"prompt": ["What is 1 + 5?"]}, {"prompt": {"text": "What is 2 + 5?"}}, {"prompt": 7}, {"answer": {"x": 1}}]
    rows = [problem, *({**problem, **change} for change in odd)]
    dropped = tmp_path / "dropped.jsonl"
    call_stage("clean-math", stored(tmp_path, rows), output=tmp_path / "out.jsonl", dropped=dropped)
    assert [row["prompt"] for row in rows_of(tmp_path / "out.jsonl")] == [problem["prompt"]]
    kept = [(row["drop_reason"], row["prompt"], row["answer"]) for row in rows_of(dropped)]
    assert kept == [
        ("not-text", '["What is 1 + 5?"]', "6"),
        ("not-text", '{"text": "What is 2 + 5?"}', "6"),
        ("not-text", "7", "6"),
        ("missing-answer", problem["prompt"], '{"x": 1}'),
    ]


def test_a_completion_that_is_no_text_among_texts_is_dropped_with_what_it_is(tmp_path):
    graded = {"prompt": "What is 2 * 3?", "answer": "6"}
    odd = [7, {"foo": 1}, [7, "a"], [["a"]]]
    rows = [{**graded, "completion": completion} for completion in ("6", *odd)]
    dropped = tmp_path / "dropped.jsonl"
    options = {"output": tmp_path / "out.jsonl", "dropped": dropped, "language": False}
    call_stage("grade", stored(tmp_path, rows), **options)
    kept = [(row["drop_reason"], json.loads(row["completion"])) for row in rows_of(dropped)]
    assert kept == [("not-text", value) for value in odd]


def test_messages_that_are_none_are_dropped_with_what_they_are(tmp_path):
    conversation = [{"role": "user", "content": "What is 2 * 3?"}, {"role": "assistant", "content": "\\boxed{6}"}]
    rows = [{"messages": conversation}, {"messages": "text"}, {"messages": ["a", "b"]}]
    dropped = tmp_path / "dropped.jsonl"
    options = {"output": tmp_path / "out.jsonl", "dropped": dropped, "any_format": True}
    call_stage("cold-start", stored(tmp_path, rows), **options)
    kept = [[message["content"] for message in row["messages"]] for row in rows_of(dropped)]
    assert kept == [["text"], ["a", "b"]]
