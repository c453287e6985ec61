"""Function calling: are the right functions called with the right arguments? The verifier ``tools`` of a suite.

A row has ``functions`` (name, description, JSON schema of the parameters) and the expected ``calls`` in any order; an
empty list if no function fits. Names and arguments must be equal, except that an argument equal to its default may be
missing, an integer may be written as a float, and spaces around a string are ignored.

Only the part of the completion after its thoughts counts. Calls may be a JSON list or object, alone, in a Markdown
block or in ``<tool_call>`` tags, with ``arguments`` or ``parameters``, as JSON or as JSON text.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from magcli.evaluation.suite import json_column
from magcli.model.chat.thoughts import THINK, ThoughtForm

Call = Mapping[str, Any]

_TAGGED = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.S)
_FENCED = re.compile(r"```[\w-]*\n(.*?)```", re.S)


def reward(completion: str, row: Mapping[str, Any], thoughts: ThoughtForm = THINK) -> dict[str, Any]:
    """1 if the calls are those expected, else 0; ``detail`` says what differs."""
    functions = json_column(row["functions"])
    right = json_column(row["calls"])
    answered = calls(thoughts.answer(completion))
    if answered is None:
        return {"total": 0.0, "extracted": "", "detail": "no list of calls"}
    difference = _difference(answered, right, functions)
    extracted = json.dumps(answered, ensure_ascii=False)
    return {"total": float(not difference), "extracted": extracted, "detail": difference}


def calls(answer: str) -> list[Call] | None:
    """The calls in an answer, as name and arguments; None if it has neither calls nor an empty list."""
    # Tags are the form of chat templates, so they count more than blocks.
    texts = _TAGGED.findall(answer) or _FENCED.findall(answer)
    if texts:
        return _all(texts)
    bare = answer.strip()
    return _all([bare]) if bare[:1] in ("[", "{") else None


def _all(texts: Sequence[str]) -> list[Call] | None:
    calls: list[Call] = []
    try:
        for text in texts:
            calls += _read(json.loads(text))
        return calls
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _read(value: Any) -> Iterator[Call]:
    """Calls in a JSON value.

    Raises:
        KeyError, TypeError, ValueError: it holds something else.
    """
    listed = value if isinstance(value, list) else [value]
    for call in listed:
        arguments = call["arguments"] if "arguments" in call else call.get("parameters", {})
        # JSON within JSON, as in OpenAI's interface.
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
        yield {"name": str(call["name"]), "arguments": dict(arguments)}


def _difference(answered: Sequence[Call], right: Sequence[Call], functions: Sequence[Mapping[str, Any]]) -> str:
    """The difference of two sets of calls; empty if they are equal."""
    defaults = {function["name"]: _defaults(function) for function in functions}
    for call in answered:
        if call["name"] not in defaults:
            return f"there is no function {call['name']}"
    # As multisets: a call that is made twice differs from one that is made once.
    actual = sorted(_canonical(call, defaults) for call in answered)
    expected = sorted(_canonical(call, defaults) for call in right)
    if actual == expected:
        return ""
    return f"calls {', '.join(actual) or 'nothing'}; right is {', '.join(expected) or 'nothing'}"


def _defaults(function: Mapping[str, Any]) -> dict[str, Any]:
    properties = function["parameters"]["properties"]
    return {name: schema["default"] for name, schema in properties.items() if "default" in schema}


def _canonical(call: Call, defaults: Mapping[str, Mapping[str, Any]]) -> str:
    """A call in a canonical form: with defaults, sorted arguments and one spelling of numbers."""
    name = call["name"]
    arguments = {**defaults.get(name, {}), **call["arguments"]}
    text = json.dumps(_plain(arguments), sort_keys=True, ensure_ascii=False)
    return f"{name} {text}"


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {key: _plain(part) for key, part in value.items()}
        case list():
            return [_plain(part) for part in value]
        case str():
            return value.strip()
        case float() if value.is_integer():
            return int(value)
    return value
