"""What a model said, in the objects that APIs and engines return: messages, choices, items, candidates.

=================================================  =====================================================================
object                                             returned by
=================================================  =====================================================================
``{"role": .., "content": ..}``, a list of them    chat messages; Anthropic's with content in blocks
``{"choices": [{"message": ..}, ..]}``             OpenAI's chat completions; text completions with ``text``
``{"output": [{"type": "message", ..}, ..]}``      OpenAI's Responses, also the list of items alone
``{"candidates": [{"content": {"parts": ..}}]}``   Gemini
``{"message": {..}}``, ``{"output": {"message"}}`` Ollama, Bedrock
``{"text": ..}``, ``{"generated_text": ..}``       vLLM's outputs, text-generation-inference
``{"body": ..}``, ``{"response": ..}``             lines of a batch, with any of these inside
=================================================  =====================================================================

Tool calls, which are not text, are refused. A response that ended within its thoughts has an empty text, so that it
counts as a sample; only one that failed is missing.
"""

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from magcli.data.json_columns import is_json_text
from magcli.errors import DataError
from magcli.layouts.types import MAX_LITERAL, Unreadable, json_or_none
from magcli.model.chat.messages import text_of, thoughts_of, without_thoughts

Said = dict[str, Any]
"""``completion`` and ``thoughts``: texts, or a list of each for several samples."""
API_OBJECTS = ("response", "chat.completion", "text_completion")
"""Values of ``object`` in OpenAI's responses."""
TEXT_KEYS = ("output_text", "generated_text", "text")
"""Keys of the text in objects that have nothing else."""
ROLES = {"human": "user", "gpt": "assistant", "model": "assistant"}
"""Roles of ShareGPT and Gemini, by the names that chat templates use."""
PRINTED = ("ChatCompletion(", "Response(id=", "Message(id=", "GenerateContentResponse(")
"""How the responses of Python clients begin where they were printed instead of stored."""


def said(value: Any, response: Any = None) -> Said:
    """The completion and its thoughts, of a text, messages or an object of an API; lists for several samples.

    ``response``, the id of a response, is not that of the problem.

    Raises:
        Unreadable: there are several turns or tool calls, the request failed, or the object has no text.
    """
    if isinstance(value, Mapping):
        return _of_object(value)
    if isinstance(value, list):
        return _of_list(value)
    # A client may have stored the JSON of a response as its text.
    if isinstance(value, str) and (parsed := object_in(value)) is not None:
        return said(parsed)
    return {"completion": value, "thoughts": None}


def batch_response(body: Any, error: Any, request: Any = None) -> Said:
    """What was said in the response to a request of a batch; ``request``, its id, is not that of the problem.

    Raises:
        Unreadable: the request failed.
    """
    if error or not isinstance(body, Mapping) or not any(body.values()):
        raise _failed(error)
    return said(body)


def last_turn(messages: Any) -> Said:
    """What the assistant says at the end of a conversation; nothing if it ends with another turn."""
    last = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, Mapping) or role_of(last) != "assistant":
        return {"completion": None, "thoughts": None}
    return turn(last)


def last_output(output: Any, messages: Any, error: Any = None) -> Said:
    """The output of a sample of inspect_ai.

    Raises:
        Unreadable: the sample failed, or the model had several turns or choices.
    """
    turns = [entry for entry in messages or () if isinstance(entry, Mapping)]
    spoken = [turn for turn in turns if role_of(turn) == "assistant"]
    if len(spoken) > 1:
        raise Unreadable("several-turns", f"the sample has {len(spoken)} turns of the assistant; one is expected")
    choices = output.get("choices") if isinstance(output, Mapping) else None
    if not choices:
        raise _failed(error)
    if len(choices) > 1:
        raise Unreadable("several-completions", f"the sample has {len(choices)} choices; one is expected")
    return _choice(choices[0])


def is_trace(value: Any) -> bool:
    """Whether a value is a trace of verifiers: messages in nodes."""
    nodes = value.get("nodes") if isinstance(value, Mapping) else None
    if not isinstance(nodes, list) or not nodes:
        return False
    return all(isinstance(node, Mapping) and isinstance(node.get("message"), Mapping) for node in nodes)


def of_traces(traces: Any) -> Said:
    """What was said last in the traces of an episode of verifiers, each of which is a sample.

    Raises:
        Unreadable: they are of several agents.
    """
    return _joined([_last_said(path_of(trace)) for trace in _of_one_agent(traces)])


def turns_of_traces(traces: Any, task: Any = None, episode: Any = None) -> list[Any]:
    """The conversation of an episode of verifiers; its task and id are not needed any more.

    Raises:
        Unreadable: it has several traces.
    """
    listed = _of_one_agent(traces)
    if len(listed) > 1:
        raise Unreadable("several-completions", f"the episode has {len(listed)} traces; one is expected")
    return [node["message"] for trace in listed for node in path_of(trace)]


def _of_one_agent(traces: Any) -> list[Mapping[str, Any]]:
    listed = [trace for trace in traces or () if isinstance(trace, Mapping)]
    agents = {str(trace["agent"].get("name")) for trace in listed if isinstance(trace.get("agent"), Mapping)}
    if len(agents) > 1:
        names = ", ".join(sorted(agents))
        raise Unreadable("several-agents", f"the episode has the agents {names}; traces of one are expected")
    return listed


def path_of(trace: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The nodes of a trace from the first message to the model's last one; others are of branches that it left."""
    nodes = [node for node in trace.get("nodes") or () if isinstance(node, Mapping)]
    sampled = [number for number, node in enumerate(nodes) if node.get("sampled")]
    number = sampled[-1] if sampled else len(nodes) - 1
    # From the last message back: each node has the number of the one before it.
    path: list[Mapping[str, Any]] = []
    # Damaged parents may form a circle, but no path has more nodes than there are.
    while 0 <= number < len(nodes) and len(path) < len(nodes):
        node = nodes[number]
        path.append(node)
        parent = node.get("parent")
        number = parent if isinstance(parent, int) else -1
    return path[::-1]


def _last_said(path: Sequence[Mapping[str, Any]]) -> Said:
    last = path[-1] if path else {}
    message = last.get("message") if last.get("sampled") else None
    if not isinstance(message, Mapping):
        return {"completion": None, "thoughts": None}
    return turn(message)


def _failed(error: Any) -> Unreadable:
    message = error.get("message") if isinstance(error, Mapping) else error
    if isinstance(message, str):
        what = message
    elif error:
        what = json.dumps(error, default=str)
    else:
        what = "no response"
    return Unreadable("missing-completion", f"the request failed: {what}")


def role_of(turn: Mapping[str, Any]) -> str:
    """The role of a turn by the name that chat templates use; ``?`` without one."""
    role = str(turn.get("role") or turn.get("from") or "?")
    return ROLES.get(role, role)


# ---- objects ----


def _of_object(value: Mapping[str, Any]) -> Said:
    match value:
        case {"choices": list(choices)} if choices:
            return _joined([_choice(choice) for choice in choices])
        # An empty output of Responses ended within its thoughts; elsewhere an empty list is a failed request.
        case {"output": list(items)} if items or value.get("object") == "response":
            return _of_items(items, value)
        case {"candidates": list(candidates)} if candidates:
            return _joined([_candidate(candidate) for candidate in candidates])
        # Ollama's response is like one choice; a delta is refused there.
        case {"message": Mapping()} | {"delta": Mapping()}:
            return _choice(value)
        case {"body": Mapping() as inner} | {"response": Mapping() as inner} | {"output": Mapping() as inner}:
            return said(inner)
    if value.get("content") is not None or value.get("value") is not None or value.get("role"):
        return turn(value)
    for key in TEXT_KEYS:
        text = value.get(key)
        if isinstance(text, str):
            # The reasoning may lie beside the text.
            thoughts = thoughts_of({**value, "content": text})
            return {"completion": text, "thoughts": thoughts or None}
    # A failed request has an error, or an empty list in the place of its results.
    is_empty = any(value.get(key) == [] for key in ("choices", "candidates", "output"))
    if value.get("error") or is_empty:
        raise _failed(value.get("error"))
    keys = ", ".join(key for key, part in value.items() if part is not None) or "no keys"
    fix = "name the text in it: magcli convert INPUT --rename completion=COLUMN.KEY -o OUTPUT"
    raise Unreadable("not-text", f"the completion is an object of {keys}; {fix}")


def _choice(choice: Any) -> Said:
    """What was said in one of the choices of a chat or text completion."""
    fields = choice if isinstance(choice, Mapping) else {}
    message = fields.get("message")
    if isinstance(message, Mapping):
        reason = fields.get("finish_reason") or fields.get("stop_reason")
        return turn(message, ended_early=reason in ("length", "max_tokens"))
    if isinstance(fields.get("delta"), Mapping):
        raise Unreadable("not-text", "the completion is a piece of a stream; join the pieces of each response")
    return {"completion": fields.get("text"), "thoughts": None}


def _candidate(candidate: Any) -> Said:
    """What was said in a candidate of Gemini."""
    fields = candidate if isinstance(candidate, Mapping) else {}
    content = fields.get("content")
    listed = content.get("parts") if isinstance(content, Mapping) else None
    parts = [part for part in listed or () if isinstance(part, Mapping)]
    answer = thoughts = ""
    for part in parts:
        for key, inner in part.items():
            # ``functionCall``, also as a part of a longer name.
            if "unctionCall" in key and inner:
                raise _calls_tools(key)
        text = part.get("text")
        if not isinstance(text, str):
            continue
        if part.get("thought"):
            thoughts += text
        else:
            answer += text
    return {"completion": answer, "thoughts": thoughts or None}


def _of_items(items: Sequence[Any], response: Mapping[str, Any]) -> Said:
    """What was said in the output of OpenAI's Responses API: the text of its messages, and its reasoning."""
    if response.get("error") or response.get("status") in ("failed", "cancelled"):
        raise _failed(response.get("error"))
    texts: list[str] = []
    thoughts: list[str] = []
    for item in items:
        kind = item.get("type") if isinstance(item, Mapping) else type(item).__name__
        if kind == "reasoning":
            # Closed models have only a summary of their thoughts.
            parts = item.get("content") or item.get("summary") or ()
            thoughts += [part["text"] for part in parts if isinstance(part.get("text"), str)]
        elif kind == "message" and role_of(item) == "assistant":
            content = item.get("content")
            parts = [content] if isinstance(content, str) else content or ()
            texts += map(_item_text, parts)
        else:
            raise _calls_tools(str(kind))
    return turn({"content": "".join(texts), "reasoning_content": "\n".join(thoughts)})


def _item_text(part: Any) -> str:
    if isinstance(part, str):
        return part
    # A refusal is what the model said.
    text = part.get("text") or part.get("refusal")
    return text if isinstance(text, str) else ""


def _calls_tools(what: str) -> Unreadable:
    return Unreadable("several-turns", f"the response has {what} besides its text; one answer is expected")


# ---- lists ----


def _of_list(values: Sequence[Any]) -> Said:
    """What was said in messages, in items, in the blocks of a content, or in each of several samples."""
    objects = [value for value in values if isinstance(value, Mapping)]
    if not objects:
        return {"completion": list(values), "thoughts": None}
    kinds = [str(value.get("type") or "") for value in objects]
    # Items of the Responses API have roles too, so they come first.
    if "message" in kinds and all(_is_item(kind) for kind in kinds):
        return _of_items(objects, {})
    if any(value.get("role") or value.get("from") for value in objects):
        return _of_turns(objects)
    if "text" in kinds or "output_text" in kinds:
        return turn({"content": list(values)})
    return _joined([_sample(value) for value in values])


def _is_item(kind: str) -> bool:
    return kind in ("message", "reasoning") or kind.endswith(("_call", "_call_output"))


def _of_turns(turns: Sequence[Mapping[str, Any]]) -> Said:
    spoken = [entry for entry in turns if role_of(entry) == "assistant"]
    if len(spoken) != 1 or role_of(turns[-1]) != "assistant":
        raise Unreadable("several-turns", f"the completion has {len(spoken)} turns of the assistant; one is expected")
    return turn(spoken[0])


def _sample(value: Any) -> Said:
    """What was said in one of several samples; a failed request is a missing completion, and the others count."""
    try:
        return said(value)
    except Unreadable as error:
        if error.reason != "missing-completion":
            raise
        return {"completion": None, "thoughts": None}


def _joined(samples: Sequence[Said]) -> Said:
    """Several samples as lists; the only one as it is."""
    if len(samples) == 1:
        return samples[0]
    joined: Said = {"completion": [], "thoughts": []}
    for sample in samples:
        # A sample may be several itself; both lists get an entry for each.
        completion, thoughts = sample["completion"], sample["thoughts"]
        texts = completion if isinstance(completion, list) else [completion]
        joined["completion"] += texts
        joined["thoughts"] += thoughts if isinstance(thoughts, list) else [thoughts] * len(texts)
    return joined


# ---- messages ----


def turn(message: Mapping[str, Any], *, ended_early: bool = False) -> Said:
    """The completion and its thoughts of a message; an empty text if it ended within its thoughts.

    Raises:
        Unreadable: it calls tools, or its content is not text.
    """
    content = message.get("content", message.get("value"))
    calls = message.get("tool_calls") or message.get("function_call")
    # With text beside them, that is taken as the answer.
    if calls and not content:
        count = len(calls) if isinstance(calls, list) else 1
        raise _calls_tools(f"{count} tool calls")
    if isinstance(content, list):
        # Encrypted thoughts cannot be read by anybody but the API.
        content = [_block(part) for part in content if not _is_hidden(part)]
    try:
        text = text_of(without_thoughts(content))
        thoughts = thoughts_of({**message, "content": content}) or None
    except DataError as error:
        raise Unreadable("not-text", str(error)) from None
    if text is None:
        refusal = message.get("refusal")
        if isinstance(refusal, str):
            text = refusal
        elif ended_early or thoughts is not None:
            # It ended within its thoughts.
            text = ""
    return {"completion": text, "thoughts": thoughts}


def _is_hidden(part: Any) -> bool:
    """Whether a block of a content is encrypted thoughts."""
    if not isinstance(part, Mapping):
        return False
    return str(part.get("type") or "").startswith("redacted") or part.get("redacted") is True


def _block(part: Any) -> Any:
    """A block of a content; Bedrock's thoughts as those of other APIs."""
    inner = part.get("reasoningContent") if isinstance(part, Mapping) else None
    if not isinstance(inner, Mapping):
        return part
    text = inner.get("reasoningText")
    return {"type": "thinking", "thinking": text.get("text") if isinstance(text, Mapping) else ""}


# ---- columns ----


def may_be_several(field: pa.Field) -> bool:
    """Whether a value of a column of objects may have several samples."""
    if is_json_text(field):
        return True
    kind = field.type
    # A list of messages or of items is one sample, any other list has several.
    if pa.types.is_list(kind):
        return not _has_field(kind.value_type, "role", "from", "type")
    return _has_field(kind, "choices", "candidates", "body")


def _has_field(kind: pa.DataType, *names: str) -> bool:
    return pa.types.is_struct(kind) and any(kind.get_field_index(name) >= 0 for name in names)


# ---- texts ----


def object_in(text: str) -> Any:
    """The object of an API that a text is the JSON of; None for other texts, also for JSON that is an answer.

    Raises:
        Unreadable: it is the printed form of a client's response.
    """
    if text.startswith(PRINTED):
        what = text.partition("(")[0]
        raise Unreadable("not-text", f"the completion is a printed {what}(...); store the text of the response")
    if text.lstrip()[:1] not in ("{", "["):
        return None
    value = _parsed(text)
    if isinstance(value, list) and _is_conversation(value):
        return value
    if isinstance(value, Mapping) and _is_response(value):
        return value
    return None


def _parsed(text: str) -> Any:
    value = json_or_none(text)
    if value is not None:
        return value
    # Python prints the first key of an object in single quotes.
    if len(text) > MAX_LITERAL or "'" not in text[:40]:
        return None
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _is_conversation(values: Sequence[Any]) -> bool:
    """Whether a list is messages that end with the assistant's, or items of a response."""
    if not values or not all(isinstance(value, Mapping) for value in values):
        return False
    roles = [role_of(value) for value in values]
    has_content = all("content" in value or "summary" in value for value in values)
    # A list of objects with other roles is an answer in JSON.
    are_known = all(role in ("system", "user", "assistant", "tool", "?") for role in roles)
    return has_content and are_known and roles[-1] == "assistant"


def _is_response(value: Mapping[str, Any]) -> bool:
    """Whether an object is of an API; an answer in JSON is not."""
    match value:
        case {"object": str(name)} if name in API_OBJECTS:
            return True
        case (
            {"choices": [{"message": Mapping()}, *_]}
            | {"choices": [{"text": str(), "finish_reason": _}, *_]}
            | {"candidates": [{"content": {"parts": list()}}, *_]}
            | {"role": "assistant", "content": str() | list()}
            | {"message": {"role": "assistant", "content": _}}
            | {"custom_id": _, "response": Mapping()}
        ):
            return True
    return False
