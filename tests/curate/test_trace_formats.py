"""Published traces in their several forms, one row a trace."""

import pytest

from magcli.curate.trace_formats import columns_read, readable, traces_of

SHAREGPT = {"system": "Think.", "conversations": [{"from": "human", "value": "1+1?"}, {"from": "gpt", "value": "2"}]}
MARKED = "<|begin_of_thought|>one, two<|end_of_thought|><|begin_of_solution|>2<|end_of_solution|>"


def test_each_sample_of_a_row_becomes_a_trace_with_its_verdict() -> None:
    row = {"id": "a", "problem": "1+1?", "generations": ["2", "3"], "correctness_math_verify": [True, False]}
    names = ("id", "sample", "prompt", "completion", "correct")
    assert [tuple(trace[name] for name in names) for trace in traces_of(row)] == [
        ("a", 0, "1+1?", "2", True),
        ("a", 1, "1+1?", "3", False),
    ]


@pytest.mark.parametrize(
    ("verdict", "found"),
    [("False", False), ("false", False), ("No", False), ("0", False), (0.0, False), ("TRUE", True), (" yes", True),
     (1, True), (None, None), ("", None)],
)  # fmt: skip
def test_verdicts_are_read_in_any_notation(verdict: object, found: bool | None) -> None:
    talk = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}]
    forms = ({"prompt": "1+1?", "completion": "2"}, {"question": "1+1?", "samples": ["2"]}, {"messages": talk})
    traces = [trace for form in forms for trace in traces_of({**form, "correct": verdict})]
    assert [trace.get("correct") for trace in traces] == [found] * 3
    assert not any("unclear" in trace for trace in traces)


def test_verdicts_that_say_neither_yes_nor_no_are_unclear() -> None:
    row = {"question": "1+1?", "responses": ["2", "3", "4", "5"], "score": [0.7, 1, None, -2.5]}
    told = [(trace.get("correct"), trace.get("unclear")) for trace in traces_of(row)]
    assert told == [(None, "0.7"), (True, None), (None, None), (None, "-2.5")]


@pytest.mark.parametrize("verdict", [True, [True], [True, True, False]])
def test_verdicts_that_do_not_match_the_samples_in_number_are_unclear(verdict: object) -> None:
    traces = list(traces_of({"question": "1+1?", "samples": ["2", "3"], "correct": verdict}))
    assert ["unclear" in trace for trace in traces] == [True, True]
    assert not any("correct" in trace for trace in traces)


def test_several_verdicts_on_one_completion_are_unclear_and_ignored_for_a_conversation() -> None:
    (trace,) = traces_of({"prompt": "1+1?", "completion": "2", "correct": [True, False]})
    assert trace["unclear"] == "[True, False]"
    (trace,) = traces_of({"prompt": "1+1?", "completion": "2", "correct": [None, None]})
    assert "unclear" not in trace
    (trace,) = traces_of({**SHAREGPT, "generations": ["2", "3"], "correctness_math_verify": [True, False]})
    assert not {"unclear", "correct"} & set(trace)


def test_the_score_of_a_conversation_is_not_a_verdict() -> None:
    (trace,) = traces_of({**SHAREGPT, "score": 4.5})
    assert "unclear" not in trace


def test_the_verdict_of_a_conversation_is_read_next_to_its_score() -> None:
    row = {**SHAREGPT, "score": 4.5, "is_correct": False}
    (trace,) = traces_of({name: row[name] for name in columns_read(list(row))})
    assert trace["correct"] is False


@pytest.mark.parametrize(
    ("about", "prompt"),
    [("Good day", "Translate to French\n\nGood day"), (" ", "Translate to French"), (None, "Translate to French")],
)
def test_an_instruction_includes_its_input(about: str | None, prompt: str) -> None:
    row = {"instruction": "Translate to French", "input": about, "output": "Bonjour"}
    assert "input" in columns_read(list(row))
    (trace,) = traces_of(row)
    assert (trace["prompt"], trace["completion"]) == (prompt, "Bonjour")
    (trace,) = traces_of({**row, "question": "1+1?"})
    assert trace["prompt"] == "1+1?"


def test_a_models_completion_takes_precedence_over_a_human_solution() -> None:
    row = {"question": "1+1?", "solution": "Two.", "generation": "<think>one, two</think>2"}
    assert "generation" in columns_read(list(row))
    assert [trace["completion"] for trace in traces_of(row)] == ["<think>one, two</think>2"]


def test_turns_of_other_formats_become_messages_with_their_system_prompt() -> None:
    (trace,) = traces_of(SHAREGPT)
    assert [(turn["role"], turn["content"]) for turn in trace["messages"]] == [
        ("system", "Think."),
        ("user", "1+1?"),
        ("assistant", "2"),
    ]


def test_thoughts_are_wrapped_in_the_tags_of_the_recipe() -> None:
    turns = [{"from": "user", "value": "1+1?"}, {"from": "assistant", "value": MARKED}]
    (marked,) = traces_of({"conversations": turns})
    assert marked["messages"][1]["content"] == "<think>one, two</think>2"
    (apart,) = traces_of({"question": "1+1?", "thinking_trajectories": ["one, two"], "attempt": "2"})
    assert apart["completion"] == "<think>one, two</think>2"


def test_a_magcli_row_is_unchanged_and_no_other_column_replaces_its_completion() -> None:
    row = {"prompt": "1+1?", "completion": None, "solution": "2", "correct": True}
    (trace,) = traces_of(row)
    assert trace["completion"] is None


@pytest.mark.parametrize(
    ("names", "is_readable"),
    [(("question", "code"), True), (("conversations",), True), (("question",), False), (("answer", "output"), False)],
)
def test_tables_without_traces_are_recognised_by_their_columns(names: tuple[str, ...], is_readable: bool) -> None:
    assert readable(names) is is_readable


def test_tokens_and_logprobs_are_not_read() -> None:
    names = ["id", "prompt", "completion", "correct", "tokens", "logprobs", "group", "step", "reason"]
    assert set(names) - set(columns_read(names)) == {"tokens", "logprobs"}
