"""Reads the reply of an OpenAI-compatible server, one JSON text or a stream of events, within bounds.

A server is not trusted: no more than ``MAX_BYTES`` of a reply are kept, and what is not a completion is refused in one
line.
"""

import asyncio
import io
import json
import math
import reprlib
from collections.abc import AsyncIterator
from typing import Any

import httpx

from magcli.model.chat.messages import THOUGHTS

MAX_BYTES = 8 * 2**20
"""More than any completion needs: a million tokens of text."""

MAX_ERROR_BYTES = 2**16
"""So much of an error message is read."""

DONE = b"[DONE]"
"""The data of the last event of a stream."""

DRAIN_SECONDS = 1.0

MAX_TOKENS = 2**31 - 1

EXCERPT = 200
"""So many characters of a reply are shown in an error message."""


class BrokenReply(Exception):
    """A reply that cannot be read, perhaps because it was damaged on its way: another try may help."""


class WrongReply(Exception):
    """A reply that is not what was asked for; another try would not help."""


class UncountedReply(Exception):
    """A whole stream that does not say how many tokens were generated."""


class ErrorEvent(Exception):
    """An error in the middle of a stream; ``status`` is the HTTP status that the reply would have had."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


async def _read(chunks: AsyncIterator[bytes], most: int) -> bytes:
    """A body, of which no more is read once it is longer than ``most`` bytes."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > most:
            break
    return bytes(body)


async def read_error(chunks: AsyncIterator[bytes]) -> str:
    """The beginning of an error message."""
    body = await _read(chunks, MAX_ERROR_BYTES)
    return body[:MAX_ERROR_BYTES].decode(errors="replace")


async def read_json(chunks: AsyncIterator[bytes]) -> Any:
    """The value of a reply that is one JSON text; errors as ``parse``, and WrongReply if it is too long."""
    body = await _read(chunks, MAX_BYTES)
    if len(body) > MAX_BYTES:
        raise WrongReply(f"the reply is longer than {MAX_BYTES:,} bytes: {excerpt(body[:EXCERPT])}")
    return parse(body)


async def read_stream(chunks: AsyncIterator[bytes]) -> dict[str, Any]:
    """What the events of a stream add up to, in the form of a reply that is not streamed.

    Raises:
        BrokenReply: it ends early, or an event is not JSON.
        WrongReply: it is too long, or an event is none of a chat completion.
        UncountedReply: it does not say how many tokens were generated.
        ErrorEvent: the server reports an error.
    """
    message = StreamedMessage()
    events = _events(chunks)
    async for data in events:
        if data == DONE:
            message.is_done = True
            await _drain(events)
            break
        message.add(parse(data))
    return message.reply()


async def _drain(events: AsyncIterator[bytes]) -> None:
    """Read to the end of the body, which is near, so that the connection can be used again."""
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in events:
                pass
    except (TimeoutError, httpx.TransportError, WrongReply):
        pass  # the completion is whole; only the connection is lost


async def _events(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The data of each server-sent event. Comments, which keep the connection alive, and other fields are left out."""
    parts: list[bytes] = []
    size = 0
    async for line in _lines(chunks):
        if line.startswith(b"data:"):
            # One blank after the colon is not part of the data.
            parts.append(line.removeprefix(b"data:").removeprefix(b" "))
            size += len(line)
            if size > MAX_BYTES:
                raise WrongReply(f"an event of the stream is longer than {MAX_BYTES:,} bytes")
        # An empty line ends an event, whose data may stand in several lines.
        elif not line and parts:
            yield b"\n".join(parts)
            parts = []
            size = 0
    if parts:
        yield b"\n".join(parts)


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines of a body, without their ends."""
    unfinished = bytearray()
    async for chunk in chunks:
        unfinished += chunk
        # A long line comes in many chunks: it is split only once it has ended.
        if b"\n" in chunk:
            *lines, unfinished = unfinished.split(b"\n")
            for line in lines:
                yield bytes(line.removesuffix(b"\r"))
        if len(unfinished) > MAX_BYTES:
            raise WrongReply(
                f"a line of the stream is longer than {MAX_BYTES:,} bytes: {excerpt(bytes(unfinished[:EXCERPT]))}"
            )
    if unfinished:
        yield bytes(unfinished.removesuffix(b"\r"))


class StreamedMessage:
    """The message, the finish reason and the usage that the events of a stream add up to."""

    def __init__(self) -> None:
        self._texts: dict[str, io.StringIO] = {}
        self._length = 0
        self._content_of_other_type: Any = None
        self._finish: Any = None
        self._usage: Any = None
        self.is_done = False
        """Whether the server has said that the stream is whole."""

    def add(self, event: Any) -> None:
        """Take an event; errors as ``read_stream``."""
        if not isinstance(event, dict):
            raise WrongReply(f"unexpected event in the stream: {excerpt(event)}")
        # Servers report errors in either of these forms.
        if event.get("error") or event.get("object") == "error":
            raise _error_in(event)
        if event.get("usage") is not None:
            # Servers that send it with every event count up; the last is that of the whole.
            self._usage = event["usage"]
        choices = event.get("choices")
        if not choices:
            return  # the event with the usage has no choice
        if not isinstance(choices, list) or not isinstance(choices[0], dict):
            raise WrongReply(f"unexpected event in the stream: {excerpt(event)}")
        choice = choices[0]
        if choice.get("finish_reason") is not None:
            self._finish = choice["finish_reason"]
        if choice.get("delta") is not None:
            self._add_delta(choice["delta"])

    def _add_delta(self, delta: Any) -> None:
        if not isinstance(delta, dict):
            raise WrongReply(f"unexpected event in the stream: delta is {excerpt(delta)}")
        for key in ("content", *THOUGHTS):
            piece = delta.get(key)
            if isinstance(piece, str):
                self._texts.setdefault(key, io.StringIO()).write(piece)
                self._length += len(piece)
            elif piece is not None and key == "content":
                self._content_of_other_type = piece
        if self._length > MAX_BYTES:
            raise WrongReply(f"the completion is longer than {MAX_BYTES:,} characters")

    def reply(self) -> dict[str, Any]:
        """The same as a reply that is not streamed; errors as ``read_stream``."""
        has_finish, has_usage = self._finish is not None, self._usage is not None
        # Some servers leave out [DONE]; a finish reason and a count show as well that nothing is missing.
        is_whole = self.is_done or (has_finish and has_usage)
        if not is_whole:
            raise BrokenReply("the stream ended before the completion did")
        if has_finish and not has_usage:
            raise UncountedReply
        message: dict[str, Any] = {key: text.getvalue() for key, text in self._texts.items()}
        if self._content_of_other_type is not None:
            message["content"] = self._content_of_other_type
        return {"choices": [{"message": message, "finish_reason": self._finish}], "usage": self._usage}


def _error_in(event: dict[str, Any]) -> Exception:
    """The error that an event reports; BrokenReply if it does not say of which kind it is."""
    error = event.get("error") or event
    status = error.get("code") if isinstance(error, dict) else None
    if isinstance(status, int) and 400 <= status < 600:
        return ErrorEvent(status, json.dumps(event, ensure_ascii=False)[:MAX_ERROR_BYTES])
    return BrokenReply(f"the server ended the stream with an error: {excerpt(error)}")


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
        # Of two surrogates next to each other UTF-16 makes one character.
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise WrongReply(f"the text has half of a character (a lone surrogate): {excerpt(text)}") from None


def token_count(usage: Any) -> int:
    """The number of generated tokens that a reply reports; WrongReply if it reports none, or no number of tokens."""
    count = usage.get("completion_tokens") if isinstance(usage, dict) else None
    if count is None:
        raise WrongReply(f"the reply lacks usage.completion_tokens: usage is {excerpt(usage)}")
    is_number = isinstance(count, int | float) and not isinstance(count, bool)
    # Some servers count in floats.
    is_whole = is_number and math.isfinite(count) and count == int(count)
    if not is_whole or not 0 <= count <= MAX_TOKENS:
        raise WrongReply(f"usage.completion_tokens is {excerpt(count)}, which is no number of tokens")
    return int(count)


def excerpt(value: Any) -> str:
    """The beginning of a value of a reply, in one line of printable characters."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    # Cut first: a reply may be very long.
    text = value[: 2 * EXCERPT] if isinstance(value, str) else _SHORT.repr(value)
    line = " ".join(text.split())
    # ``ascii`` escapes a letter, and puts it in quotes.
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)
    if len(shown) > EXCERPT:
        shown = shown[:EXCERPT] + " ..."
    return shown


def _short() -> reprlib.Repr:
    """Represents values that may be deep or long."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = EXCERPT
    return short


_SHORT = _short()
