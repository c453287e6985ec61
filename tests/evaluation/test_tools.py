"""The tool-calling suite: its own calls are right, and what is nearly right is wrong."""

import json

import pytest

from magcli.evaluation.rows import problems
from magcli.evaluation.suite import load
from magcli.evaluation.tools import calls, reward

LIGHT = {
    "name": "set_light",
    "parameters": {"properties": {"on": {"type": "boolean"}, "percent": {"type": "integer", "default": 100}}},
}
ROW = {"functions": [LIGHT], "calls": [{"name": "set_light", "arguments": {"on": True}}]}
RIGHT = '[{"name": "set_light", "arguments": {"on": true}}]'


def test_each_row_accepts_its_calls_and_rejects_those_of_others() -> None:
    rows = problems(load(["tools"])[0], [])
    assert len(rows) == 40
    assert len({row["prompt"] for row in rows}) == 40
    called = [json.loads(row["calls"]) for row in rows]
    assert sum(not each for each in called) == 5
    for row, right, other in zip(rows, called, called[1:] + called[:1], strict=True):
        assert reward("<think>f()</think>" + json.dumps(right), row)["total"] == 1
        assert reward(json.dumps(other), row)["total"] == float(other == right)
        offered = {each["name"]: each["parameters"] for each in json.loads(row["functions"])}
        for call in right:
            assert set(offered[call["name"]]["required"]) <= set(call["arguments"]), row["id"]
            assert set(call["arguments"]) <= set(offered[call["name"]]["properties"]), row["id"]


@pytest.mark.parametrize(
    "answer",
    [
        RIGHT,
        f"```json\n{RIGHT}\n```",
        f"<tool_call>\n{RIGHT[1:-1]}\n</tool_call>",
        RIGHT.replace("arguments", "parameters"),
        '{"name": "set_light", "arguments": "{\\"on\\": true, \\"percent\\": 100.0}"}',
    ],
)
def test_calls_are_read_as_models_write_them(answer: str) -> None:
    assert reward(f"<think>[]</think>\n{answer}", ROW)["total"] == 1


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        ("I would switch it on.", "no list of calls"),
        ("[]", "calls nothing; right is set_light"),
        (RIGHT.replace("true", "false"), "calls set_light"),
        (RIGHT.replace("true", '"true"'), "calls set_light"),
        (RIGHT.replace("true", 'true, "percent": 50'), "calls set_light"),
        (RIGHT.replace("set_light", "light"), "there is no function light"),
        (f"{RIGHT[:-1]}, {RIGHT[1:]}", "calls set_light"),
        ("[1, 2]", "no list of calls"),
    ],
)
def test_nearly_correct_calls_are_wrong(answer: str, detail: str) -> None:
    called = reward(answer, ROW)
    assert called["total"] == 0
    assert detail in called["detail"]


def test_an_empty_list_means_that_nothing_is_called() -> None:
    assert calls("[]") == []
    assert calls("nothing fits") is None
