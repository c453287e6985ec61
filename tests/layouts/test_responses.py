"""What a model said, in the objects that APIs return: as objects, and as the JSON text of them."""

import json

import pytest
from calling import call_stage
from test_layouts import stored

from magcli.data import table
from magcli.data.values import to_rows
from magcli.layouts.convert import UNREAD, converted
from magcli.layouts.responses import said
from magcli.layouts.types import Unreadable

ANSWER = "\\boxed{6}"
MESSAGE = {"role": "assistant", "content": ANSWER, "reasoning_content": "six"}
REASONING = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "six"}]}
ITEM = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ANSWER}]}
OBJECTS = {
    "a chat completion": {"object": "chat.completion", "choices": [{"index": 0, "message": MESSAGE}]},
    "OpenRouter's reasoning": {"choices": [{"message": {"role": "assistant", "content": ANSWER, "reasoning": "six"}}]},
    "a response": {"object": "response", "status": "completed", "output": [REASONING, ITEM]},
    "the items of a response": [REASONING, ITEM],
    "a response with the reasoning itself": {
        "object": "response",
        "output": [{"type": "reasoning", "content": [{"type": "reasoning_text", "text": "six"}], "summary": []}, ITEM],
    },
    "Anthropic's message": {
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "six", "signature": "x"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "text", "text": ANSWER},
        ],
    },
    "Gemini's candidates": {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "six", "thought": True}, {"text": ANSWER}]}}]
    },
    "Ollama's message": {"model": "m", "message": {"role": "assistant", "content": ANSWER, "thinking": "six"}},
    "Bedrock's output": {
        "output": {
            "message": {
                "role": "assistant",
                "content": [{"reasoningContent": {"reasoningText": {"text": "six"}}}, {"text": ANSWER}],
            }
        }
    },
    "the line of a batch": {"custom_id": "a", "response": {"body": {"choices": [{"message": MESSAGE}]}}},
    "messages": [MESSAGE],
}  # fmt: skip
TEXTS = [name for name in OBJECTS if name not in ("Bedrock's output",)]


@pytest.mark.parametrize("name", OBJECTS)
def test_the_text_and_the_thoughts_are_read(name):
    assert said(OBJECTS[name]) == {"completion": ANSWER, "thoughts": "six"}


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("write", [json.dumps, repr])
def test_json_text_of_an_object_is_read_as_the_object(name, write, tmp_path):
    """A CSV file and some loggers have no other form; read as an answer, it would be wrong every time."""
    rows = [{"prompt": "2 * 3?", "answer": "6", "response": text} for text in (write(OBJECTS[name]), ANSWER)]
    out = tmp_path / "out.jsonl"
    call_stage("grade", stored(tmp_path, rows), output=out, language=False)
    graded = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["reason"] for row in graded] == ["correct", "no-think"]


SEVERAL = {
    "two choices": {"choices": [{"message": MESSAGE}, {"message": {"role": "assistant", "content": "7"}}]},
    "two candidates": {
        "candidates": [
            {"content": {"parts": [{"text": "six", "thought": True}, {"text": ANSWER}]}},
            {"content": {"parts": [{"text": "7"}]}},
        ]
    },
    "two responses": [{"choices": [{"message": MESSAGE}]}, {"choices": [{"message": {"content": "7"}}]}],
}


@pytest.mark.parametrize("name", SEVERAL)
def test_each_choice_is_a_sample(name, tmp_path):
    source = table.read(str(stored(tmp_path, [{"prompt": "2 * 3?", "response": SEVERAL[name]}])))
    layout = converted(source.schema, ("prompt", "completion", "thoughts"))
    assert layout.changes_number
    rows = [row for batch in layout.rows(source.rows) for row in to_rows(batch)]
    read = [(row["sample"], row["completion"], row["reasoning_content"]) for row in rows]
    assert read == [(0, ANSWER, "six"), (1, "7", None)]


def test_text_choices_and_engines_outputs_are_samples():
    texts = [{"text": ANSWER, "index": 0}, {"text": "7", "index": 1}]
    assert said({"object": "text_completion", "choices": texts})["completion"] == [ANSWER, "7"]
    assert said([{"text": ANSWER, "token_ids": [1]}, {"text": "7", "token_ids": [2]}])["completion"] == [ANSWER, "7"]
    assert said([{"generated_text": ANSWER}])["completion"] == ANSWER


def test_a_response_that_ended_within_its_thoughts_is_an_empty_sample():
    """Dropped as missing, it would leave the accuracy without the failures of long thoughts."""
    cut = {"object": "response", "status": "incomplete", "output": [REASONING]}
    assert said(cut) == {"completion": "", "thoughts": "six"}
    message = {"role": "assistant", "content": None, "reasoning_content": "six"}
    assert said({"choices": [{"finish_reason": "length", "message": message}]})["completion"] == ""
    assert said({"choices": [{"finish_reason": "length", "message": {"content": None}}]})["completion"] == ""


REFUSED = {
    "a tool call": ({"choices": [{"message": {"content": None, "tool_calls": [{"id": "a"}]}}]}, "1 tool calls"),
    "a function call among the items": (
        {"object": "response", "output": [{"type": "function_call", "name": "f", "arguments": "{}"}, ITEM]},
        "the response has function_call besides its text",
    ),
    "Gemini's call": (
        {"candidates": [{"content": {"parts": [{"functionCall": {"name": "f"}}]}}]},
        "the response has functionCall besides its text",
    ),
    "Anthropic's call": ({"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}, "tool_use"),
    "a piece of a stream": ({"choices": [{"delta": {"content": "6"}}]}, "a piece of a stream"),
    "a failed response": (
        {"object": "response", "output": [], "error": {"code": "x", "message": "too long"}},
        "the request failed: too long",
    ),
    "a cancelled response": ({"object": "response", "status": "cancelled", "output": []}, "the request failed"),
    "no choices": ({"object": "chat.completion", "choices": []}, "the request failed: no response"),
    "an error": ({"error": {"message": "too many requests"}}, "the request failed: too many requests"),
    "another object": ({"reply": ANSWER, "n": 1}, "an object of reply, n; name the text in it"),
    "a printed object": ("ChatCompletion(id='a', choices=[])", "a printed ChatCompletion(...)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_single_text_says_why(name):
    value, detail = REFUSED[name]
    with pytest.raises(Unreadable) as caught:
        said(value)
    assert detail in caught.value.detail


def test_a_failed_request_among_samples_is_one_missing_completion():
    assert said([{"choices": [{"message": MESSAGE}]}, {"error": "busy"}])["completion"] == [ANSWER, None]


@pytest.mark.parametrize(
    "text",
    ['{"answer": 6}', '{"choices": ["a", "b"]}', '[{"name": "x"}]', '{"role": "chef", "content": "soup"}', "{6}", "[6]",
     '{"message": "hello"}', '{"output": 6}', "{'a': 1}", '["a", "b"]', '{"text": "x"}'],
)  # fmt: skip
def test_an_answer_in_json_is_the_completion_itself(text, tmp_path):
    assert said(text) == {"completion": text, "thoughts": None}
    source = table.read(str(stored(tmp_path, [{"prompt": "As JSON?", "completion": text}])))
    layout = converted(source.schema, ("prompt", "completion"))
    (row,) = [row for batch in layout.rows(source.rows) for row in to_rows(batch)]
    assert (row["completion"], row[UNREAD]) == (text, None)


def test_a_text_of_several_choices_asks_for_the_object(tmp_path):
    source = table.read(str(stored(tmp_path, [{"prompt": "2?", "completion": json.dumps(SEVERAL["two choices"])}])))
    layout = converted(source.schema, ("prompt", "completion"))
    (row,) = [row for batch in layout.rows(source.rows) for row in to_rows(batch)]
    detail = "the text is a response of 2 completions; store the object itself instead of its JSON"
    assert row[UNREAD] == f"several-completions\t{detail}"


def test_objects_of_different_kinds_are_read_by_value(tmp_path):
    """Their keys have no common type, so the column is JSON."""
    values = [OBJECTS["a response"], OBJECTS["a chat completion"], OBJECTS["messages"], ANSWER]
    source = table.read(str(stored(tmp_path, [{"prompt": "2 * 3?", "response": value} for value in values])))
    layout = converted(source.schema, ("prompt", "completion", "thoughts"))
    rows = [row for batch in layout.rows(source.rows) for row in to_rows(batch)]
    assert [row["completion"] for row in rows] == [ANSWER] * 4
    assert [row["reasoning_content"] for row in rows] == ["six", "six", "six", None]


def test_a_raw_log_beside_the_completion_is_left_alone(tmp_path):
    row = {"prompt": "2 * 3?", "completion": "\\boxed{7}", "response": OBJECTS["a chat completion"]}
    source = table.read(str(stored(tmp_path, [row])))
    layout = converted(source.schema, ("prompt", "completion"))
    (read,) = [row for batch in layout.rows(source.rows) for row in to_rows(batch)]
    assert read["completion"] == "\\boxed{7}"


def test_no_messages_are_a_missing_completion(tmp_path):
    source = table.read(str(stored(tmp_path, [{"prompt": "2?", "completion": said} for said in ([], [MESSAGE])])))
    layout = converted(source.schema, ("prompt", "completion", "thoughts"))
    rows = [row for batch in layout.rows(source.rows) for row in to_rows(batch)]
    assert [(row["completion"], row[UNREAD]) for row in rows] == [
        (None, "missing-completion\tthe list of completions is empty"),
        (ANSWER, None),
    ]
