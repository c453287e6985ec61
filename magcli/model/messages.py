"""Messages as people store them: content in parts, thoughts beside the content, tool calls."""

from collections.abc import Mapping
from typing import Any

from magcli.errors import DataError
from magcli.model.thoughts import THINK

THOUGHTS = ("reasoning_content", "thinking", "reasoning")
"""Keys of the thoughts beside a message's content, in the order of preference."""
REASONING = THOUGHTS[0]
"""The key that chat templates read."""


def text_of(content: Any) -> Any:
    """The text of a content in parts of type text; anything else as it is.

    Raises:
        DataError: a part is not text.
    """
    if not isinstance(content, list):
        return content
    texts = []
    for part in content:
        text = part.get("text") if isinstance(part, Mapping) else part
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise DataError(f"a part of the content is {kind}; only text can be trained on")
        texts.append(text)
    return "".join(texts)


def thoughts_of(message: Mapping[str, Any]) -> str:
    """The thoughts beside a message's content; empty without any, or if the content repeats them."""
    content = message.get("content")
    for key in THOUGHTS:
        thoughts = text_of(message.get(key))
        if isinstance(thoughts, str) and thoughts.strip():
            repeated = isinstance(content, str) and thoughts.strip() in content and THINK.closing_tag in content
            return "" if repeated else thoughts
    return ""


def thoughts_beside(row: Mapping[str, Any]) -> dict[str, Any]:
    """The thoughts in columns of their own beside a row's completion."""
    return {key: row[key] for key in THOUGHTS if row.get(key)}


def normalized(message: Any, number: int) -> dict[str, str]:
    """A message as role, content and, for an assistant that has thoughts, ``reasoning_content``.

    Raises:
        DataError: it lacks its role or its content, or has tool calls; the message says which.
    """
    where = f"message {number}"
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise DataError(f"{where} lacks its role")
    if message.get("tool_calls"):
        raise DataError(f"{where} has tool calls, which cannot be trained on")
    content = text_of(message.get("content"))
    if not isinstance(content, str):
        raise DataError(f"{where} lacks its content")
    turn = {"role": message["role"], "content": content}
    thoughts = thoughts_of(message) if turn["role"] == "assistant" else ""
    return {**turn, REASONING: thoughts} if thoughts else turn
