"""Tool calls in the text of a model's turn, in the forms of the families whose chat templates have tools.

| family | form |
| --- | --- |
| Hermes, Qwen 2.5, Qwen 3 | ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>`` |
| Qwen 3 Coder | ``<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`` |
| Mistral | ``[TOOL_CALLS][{"name": ..., "arguments": {...}}]``, or ``[TOOL_CALLS]NAME[ARGS]{...}`` |
| Llama 3 | a turn that is ``{"name": ..., "parameters": {...}}``, also after ``<|python_tag|>`` |
| gpt-oss | ``to=functions.NAME ...<|message|>{...}`` |
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from magcli.model.chat.turns import call_id
from magcli.verify.environment import Message

# A turn that was cut may lack the end of its call.
_HERMES = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_XML = re.compile(r"\s*<function=([\w.-]+)>(.*?)(?:</function>\s*)?\Z", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([\w.-]+)>\n?(.*?)\n?(?:</parameter>|\Z)", re.DOTALL)
_MISTRAL = "[TOOL_CALLS]"
# Some templates of Mistral write an id between the name and the arguments.
_ARGS = re.compile(r"\s*([\w.-]+?)(?:\[CALL_ID\]\w+)?\[ARGS\](.*)", re.DOTALL)
# The body ends at the next special token, or with the turn.
_CHANNEL = re.compile(r"to=functions\.([\w.-]+).*?<\|message\|>(.*?)(?=<\||\Z)", re.DOTALL)
_PYTHON_TAG = "<|python_tag|>"


class Call(NamedTuple):
    """A call of a tool; ``fault`` says what is wrong with it, else it is empty."""

    name: str
    arguments: Mapping[str, Any]
    fault: str = ""


class _Broken(NamedTuple):
    """A text that is not JSON, and why."""

    error: str


def calls_in(text: str) -> list[Call]:
    """The calls in a turn, in their order; also those that cannot be read, with their fault."""
    # By the marks of the forms; only Llama's may have none, so it comes last.
    if _MISTRAL in text:
        _, *parts = text.split(_MISTRAL)
        return [call for part in parts for call in _mistral(part)]
    bodies = _HERMES.findall(text)
    if bodies:
        return [_hermes(body) for body in bodies]
    names_and_bodies = _CHANNEL.findall(text)
    if names_and_bodies:
        return [_with_arguments(name, body) for name, body in names_and_bodies]
    return _llama(text)


def _hermes(body: str) -> Call:
    if match := _XML.match(body):
        name, parameters = match.groups()
        return Call(name, dict(_PARAMETER.findall(parameters)))
    return _from_json(_parsed(body))


def _mistral(part: str) -> list[Call]:
    match = _ARGS.match(part)
    if match is not None:
        name, arguments = match.groups()
        return [_with_arguments(name, arguments)]
    value = _parsed(part)
    listed = value if isinstance(value, list) else [value]
    return [_from_json(call) for call in listed]


def _llama(text: str) -> list[Call]:
    """The call that is a whole turn, after the thoughts if there are any."""
    _, tag, after = text.rpartition(_PYTHON_TAG)
    body = after if tag else re.split(r"</\w+>|\[/\w+\]", text)[-1]
    if not body.lstrip().startswith("{"):
        return []
    value = _parsed(body)
    # Without the tag the object may be an answer in JSON.
    is_call = isinstance(value, Mapping) and "name" in value and ("parameters" in value or "arguments" in value)
    return [_from_json(value)] if tag or is_call else []


def _parsed(text: str) -> Any:
    """The JSON value that a text begins with, or ``_Broken``."""
    try:
        # What follows the value, such as another mark, does not matter.
        return json.JSONDecoder().raw_decode(text.lstrip())[0]
    except (ValueError, RecursionError) as error:
        return _Broken(str(error))


def _with_arguments(name: str, text: str) -> Call:
    arguments = _parsed(text)
    return _from_json({"name": name, "arguments": arguments})


def _from_json(value: Any) -> Call:
    if isinstance(value, _Broken):
        return Call("", {}, f"the call is not JSON ({value.error})")
    name = value.get("name") if isinstance(value, Mapping) else None
    if not isinstance(name, str):
        return Call("", {}, "the call needs a name and arguments")
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):  # JSON inside a text, as in OpenAI's interface
        arguments = _parsed(arguments)
    if isinstance(arguments, _Broken):
        return Call(name, {}, f"the arguments are not JSON ({arguments.error})")
    if not isinstance(arguments, Mapping):
        return Call(name, {}, f"the arguments are not an object: {arguments!r:.80}")
    return Call(name, arguments)


def schema(name: str, description: str, argument: str, meaning: str) -> dict[str, Any]:
    """The schema of a tool with one argument, a text, as chat templates read it."""
    parameters = {
        "type": "object",
        "properties": {argument: {"type": "string", "description": meaning}},
        "required": [argument],
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


class Tool(NamedTuple):
    """A tool with one argument: its name, that of the argument, and what it does with its text."""

    name: str
    argument: str
    run: Callable[[str], str]


def results(
    messages: Sequence[Message], tool: Tool, calls_of: Callable[[str], Sequence[Call]], max_calls: int
) -> list[dict[str, str]] | None:
    """The results of the calls in the last turn; None if it has none, which ends an episode.

    A wrong call, or one after ``max_calls``, has a message as its result.
    """
    *before, last = messages
    calls = calls_of(last["content"])
    if not calls:
        return None
    # Calls are counted from the messages, as an environment keeps nothing between turns.
    turns_before = [message["content"] for message in before if message["role"] == "assistant"]
    calls_before = sum(len(calls_of(content)) for content in turns_before)
    replies = []
    for number, call in enumerate(calls, calls_before):
        content = _result(call, tool) if number < max_calls else f"error: at most {max_calls} calls are answered"
        replies.append({"role": "tool", "content": content, "name": tool.name, "tool_call_id": call_id(number)})
    return replies


def _result(call: Call, tool: Tool) -> str:
    if call.fault:
        return f"error: {call.fault}"
    if call.name != tool.name:
        return f"error: there is no tool {call.name!r}, only {tool.name!r}"
    value = call.arguments.get(tool.argument)
    if not isinstance(value, str):
        return f"error: {tool.name} needs the argument {tool.argument!r}, a text"
    return tool.run(value)
