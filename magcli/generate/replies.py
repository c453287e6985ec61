"""Reads the reply of an OpenAI-compatible server within bounds: no more than ``MAX_BYTES`` of it are kept.

A server is not trusted: what is not a completion is refused in one line.
"""

import json
import math
import reprlib
from collections.abc import AsyncIterator
from typing import Any

MAX_BYTES = 8 * 2**20
"""More than any completion needs: a million tokens of text."""

MAX_ERROR_BYTES = 2**16
"""So much of an error message is read."""

MAX_TOKENS = 2**31 - 1

EXCERPT = 200
"""So many characters of a reply are shown in an error message."""


class BrokenReply(Exception):
    """A reply that cannot be read, perhaps because it was damaged on its way: another try may help."""


class WrongReply(Exception):
    """A reply that is not what was asked for; another try would not help."""


async def read_error(chunks: AsyncIterator[bytes]) -> str:
    """The beginning of an error message."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > MAX_ERROR_BYTES:
            break
    return bytes(body[:MAX_ERROR_BYTES]).decode(errors="replace")


async def read_json(chunks: AsyncIterator[bytes]) -> Any:
    """The value of a reply that is one JSON text; errors as ``parse``, and WrongReply if it is too long."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > MAX_BYTES:
            raise WrongReply(f"the reply is longer than {MAX_BYTES:,} bytes: {excerpt(bytes(body[:EXCERPT]))}")
    return parse(bytes(body))


def parse(data: bytes) -> Any:
    """The value of a JSON text.

    Raises:
        BrokenReply: it is not JSON in UTF-8.
        WrongReply: it is nested too deeply.
    """
    try:
        return json.loads(data.decode())
    except RecursionError:
        raise WrongReply(f"the reply's JSON is nested too deeply: {excerpt(data[:EXCERPT])}") from None
    except ValueError as error:
        raise BrokenReply(f"the reply is not valid JSON: {error}") from error


def whole_characters(text: str) -> str:
    """The text, in which both halves of a character that were sent apart are joined.

    Raises WrongReply if half of a character (a lone surrogate) is left, which no table can store.
    """
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise WrongReply(f"the text has half of a character (a lone surrogate): {excerpt(text)}") from None


def token_count(usage: Any) -> int:
    """The number of generated tokens that a reply reports; WrongReply if it reports none, or no number of tokens."""
    count = usage.get("completion_tokens") if isinstance(usage, dict) else None
    if count is None:
        raise WrongReply(f"the reply lacks usage.completion_tokens: usage is {excerpt(usage)}")
    is_number = isinstance(count, int | float) and not isinstance(count, bool)
    if not is_number or not math.isfinite(count) or not 0 <= count <= MAX_TOKENS or count != int(count):
        raise WrongReply(f"usage.completion_tokens is {excerpt(count)}, which is no number of tokens")
    return int(count)


def excerpt(value: Any) -> str:
    """The beginning of a value of a reply, in one line of printable characters."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    text = value[: 2 * EXCERPT] if isinstance(value, str) else _SHORT.repr(value)
    line = " ".join(text.split())
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)
    return shown if len(shown) <= EXCERPT else shown[:EXCERPT] + " ..."


def _short() -> reprlib.Repr:
    """Represents values that may be deep or long."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = EXCERPT
    return short


_SHORT = _short()
