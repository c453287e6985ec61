"""Messages as people store them: content in parts, thoughts beside the content or in parts of their own, tool calls."""

from collections.abc import Mapping
from typing import Any

from magcli.errors import DataError
from magcli.model.chat.thoughts import FORMS

THOUGHTS = ("reasoning_content", "thinking", "reasoning")
"""Keys of the thoughts beside a message's content, in the order of preference."""
REASONING = THOUGHTS[0]
"""The key that chat templates read."""
PARTS = ("thinking", "reasoning")
"""Types of parts of a content that are thoughts; the part has its text under the same key, or under ``text``."""


def text_of(content: Any) -> Any:
    """The text of a content in parts of type text; anything else as it is.

    Raises:
        DataError: a part is not text.
    """
    if not isinstance(content, list):
        return content
    # Tables for vision models have a list of parts even for text alone.
    texts = []
    for part in content:
        text = part.get("text") if isinstance(part, Mapping) else part
        if not isinstance(text, str):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise DataError(f"a part of the content is {kind}; only text can be trained on")
        texts.append(text)
    return "".join(texts)


def without_thoughts(content: Any) -> Any:
    """A content in parts without those that are thoughts; anything else as it is."""
    return [part for part in content if not _is_thoughts(part)] if isinstance(content, list) else content


def _is_thoughts(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in PARTS


def thoughts_of(message: Mapping[str, Any]) -> str:
    """The thoughts beside a message's content, or in parts of it; empty without any, or if the content repeats them."""
    content = message.get("content")
    # In the order of preference: the first key with a text counts.
    for key in THOUGHTS:
        thoughts = text_of(message.get(key))
        if isinstance(thoughts, str) and thoughts.strip():
            return "" if _repeats(content, thoughts) else thoughts
    parts = content if isinstance(content, list) else ()
    return "".join(_text_of_thoughts(part) for part in parts if _is_thoughts(part))


def _repeats(content: Any, thoughts: str) -> bool:
    """Whether a content has the same thoughts, in any form."""
    if not isinstance(content, str) or thoughts.strip() not in content:
        return False
    # The thoughts' words alone could also stand in an answer.
    return any(form.ending in content for form in FORMS)


def _text_of_thoughts(part: Mapping[str, Any]) -> str:
    """The text of a part that is thoughts, which may itself be in parts."""
    text = text_of(part.get(part["type"]) or part.get("text"))
    return text if isinstance(text, str) else ""


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
    # The model would be trained to answer without the call that it had made.
    if message.get("tool_calls"):
        raise DataError(f"{where} has tool calls, which cannot be trained on")
    is_assistant = message["role"] == "assistant"
    content = message.get("content")
    text = text_of(without_thoughts(content) if is_assistant else content)
    if not isinstance(text, str):
        raise DataError(f"{where} lacks its content")
    turn = {"role": message["role"], "content": text}
    thoughts = thoughts_of(message) if is_assistant else ""
    if thoughts:
        turn[REASONING] = thoughts
    return turn
