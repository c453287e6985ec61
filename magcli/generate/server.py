"""Client of an OpenAI-compatible server: text in and out over HTTP.

Completions are streamed, so that a connection that is alive is told from one that is lost. A server that does not
stream, or does not count tokens when it does, is asked without.

Each sample is one ``POST {url}/chat/completions`` with its own seed, so it can be retried by itself. Failures that may
pass (no connection, a reply that stops, 429, 5xx) are retried with jittered exponential backoff, with the same
``X-Request-Id`` and ``Idempotency-Key``, until the deadline. A reply that cannot be read is asked for a few times. Any
other error is final, and so is a server to which no connection ever came about in ``START_SECONDS``.

Thoughts that a server returns separately (``reasoning_content``, ``reasoning`` or ``thinking``) are put back before the
answer, in the model's form. If the tags of this form are special tokens, the server is asked to keep them.
"""

import asyncio
import math
import random
import re
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import httpx

from magcli.errors import EnvironmentFault, MagError, PromptRefused, PromptTooLong
from magcli.generate.replies import (
    BrokenReply,
    ErrorEvent,
    UncountedReply,
    WrongReply,
    excerpt,
    read_error,
    read_json,
    read_stream,
    token_count,
    whole_characters,
)
from magcli.generate.types import Completion, Finish, Message, Sampling
from magcli.model.chat.messages import THOUGHTS
from magcli.model.chat.thoughts import ThoughtForm
from magcli.model.model import Model
from magcli.run.tasks import run_all

COMPLETIONS = "/chat/completions"

TRANSIENT_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
MIN_BACKOFF = 0.25
MAX_BACKOFF = 20.0
MAX_EARLY_BACKOFF = 2.0
"""The same before the first connection."""

START_SECONDS = 30.0
"""A server to which no connection has come about for so long after the first request is not there."""
CONNECT_SECONDS = 10.0

STALLS_IN_DEADLINE = 3
"""A reply of which no more comes for this part of the deadline is asked for again."""
MAX_BROKEN = 3
"""How many replies to a request may be unreadable."""

TOO_LONG = re.compile(r"context[ _](?:length|size|window)|maximum (?:context|model) len", re.IGNORECASE)
"""Messages of servers (vLLM, llama.cpp, hosted ones) for a prompt that does not fit the context."""

ABORTED = ("abort", "error", None)
"""Finish reasons caused by the server, not by the prompt."""
FILTERED = "content_filter"
"""The error code of a filtered prompt."""

KEEP_SPECIAL = "skip_special_tokens"
"""The key of a request to vLLM and SGLang that, if false, keeps special tokens in the text. A server that does not know
it may reject the request."""

STREAM: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}
"""What asks for a stream that ends with the number of tokens."""
NAMES_STREAM = re.compile(r"\bstream(?:ing|_options)?\b", re.IGNORECASE)

FINISHES: dict[str, Finish] = {"stop": "stop", "eos": "stop", "length": "length"}


class TransientError(Exception):
    """A failure to retry; ``retry_after`` is how long the server asks to wait, in seconds."""

    def __init__(self, reason: str, retry_after: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class RejectedRequest(EnvironmentFault):
    """The server does not accept a request; ``text`` is what it says."""

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


class ServerGenerator:
    """An OpenAI-compatible server behind the ``Generator`` protocol.

    Args:
        model: named by the API's root, such as ``http://host:8000/v1``, and after a # by the server's name for it, by
            default the first that the server lists. Requests have the variables of its template and its stop texts.
        deadline: seconds that one sample may take, including retries but not waiting for a free connection.
        concurrency: maximum number of concurrent requests.
        api_key: sent as a bearer token unless empty.

    Raises EnvironmentFault for an API key with a line break or with letters outside of ASCII.
    """

    def __init__(
        self,
        model: Model,
        *,
        deadline: float = 600.0,
        concurrency: int = 64,
        api_key: str = "",
    ) -> None:
        if not (api_key.isascii() and api_key.isprintable()):
            raise EnvironmentFault("OPENAI_API_KEY has characters that cannot be sent; set it again, or unset it")
        self.thoughts = model.thoughts
        url, _, self._model = model.name.partition("#")
        self._url = url.rstrip("/")
        self._more: dict[str, Any] = dict(STREAM)
        if model.template.args:
            self._more["chat_template_kwargs"] = dict(model.template.args)
        if model.stop:
            self._more["stop"] = list(model.stop)
        if self.thoughts.special:
            self._more[KEEP_SPECIAL] = False
        self._deadline = deadline
        self._connections = asyncio.Semaphore(concurrency)
        # One request asks for the list of models, and the others wait for its answer.
        self._model_lock = asyncio.Lock()
        self.num_finished = 0
        self._first_sent: float | None = None
        self._has_connected = False
        # Replies are read as raw bytes, so that their size can be bounded.
        headers = {"Accept-Encoding": "identity"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        self._client = httpx.AsyncClient(
            # Only connecting has a time of its own; the others are those of ``_send`` and ``_try``.
            timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency),
            headers=headers,
        )

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, seeds: Sequence[int]
    ) -> list[Completion]:
        """Sample one completion per seed for the same messages, in the order of the seeds.

        Raises:
            PromptTooLong: the server says that the prompt does not fit the model's context.
            PromptRefused: the server filtered the completion (``content_filter``), or returned something else.
            EnvironmentFault: no complete reply within the deadline, or the server rejected the request.
        """
        if self._client.is_closed:
            raise MagError(f"{self._url}: the connection to the server has been closed")
        return await run_all(self._one(messages, sampling, seed) for seed in seeds)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _one(self, messages: Sequence[Message], sampling: Sampling, seed: int) -> Completion:
        model = await self._model_name()
        request = _request(model, messages, sampling, seed) | self._more
        # The deadline of a sample begins when it has a connection.
        async with self._connections:
            reply = await self._reply(request)
        completion = _completion(reply, self._url, self.thoughts)
        self.num_finished += 1
        return completion

    async def _reply(self, request: dict[str, Any]) -> Any:
        """The reply to a request, which is sent again without those options that the server turns out not to have."""
        ends = time.monotonic() + self._deadline
        while True:
            try:
                return await self._send("POST", COMPLETIONS, request, waits_for="a completion", ends=ends)
            except RejectedRequest as error:
                refused = _options_named(error.text, request)
                if not refused:
                    raise
            except UncountedReply as error:
                if "stream" not in request:
                    raise EnvironmentFault(f"{self._url}: streams lack usage.completion_tokens") from error
                refused = set(STREAM)
            # This request is sent again without them, and later ones are made without them.
            request = {name: value for name, value in request.items() if name not in refused}
            self._more = {name: value for name, value in self._more.items() if name not in refused}

    async def _model_name(self) -> str:
        async with self._model_lock:
            if not self._model:
                ends = time.monotonic() + self._deadline
                listed = await self._send("GET", "/models", None, waits_for="its list of models", ends=ends)
                try:
                    self._model = _model_listed(listed)
                except WrongReply as error:
                    raise EnvironmentFault(f"{self._url}: {error}") from error
        return self._model

    async def _send(self, method: str, path: str, body: dict[str, Any] | None, *, waits_for: str, ends: float) -> Any:
        """Send a request, with retries until a time of the monotonic clock; returns the reply's content."""
        # The same with every try, so that the server can tell a repeated request from a new one.
        identity = uuid.uuid4().hex
        headers = {"X-Request-Id": identity, "Idempotency-Key": identity}
        pause = MIN_BACKOFF
        last = "no reply yet"
        num_broken = 0
        while (left := ends - time.monotonic()) > 0:
            retry_after = 0.0
            try:
                # The rest of the deadline ends a running try, too.
                async with asyncio.timeout(left):
                    return await self._try(method, path, body, headers)
            except TimeoutError:
                break
            except BrokenReply as failure:
                last = str(failure)
                num_broken += 1
                if num_broken == MAX_BROKEN:
                    raise EnvironmentFault(
                        f"{self._url}: {num_broken} replies were broken, the last: {last}"
                    ) from failure
            except TransientError as failure:
                last = str(failure)
                retry_after = failure.retry_after
            left = max(ends - time.monotonic(), 0.0)
            if retry_after > left:
                raise EnvironmentFault(
                    f"{self._url}: {last}: the server asks to wait {retry_after:g} s, longer than what is left of the "
                    f"{self._deadline:g} s for {waits_for}; give it a longer --deadline"
                )
            # Random, since requests that fail together would otherwise come back together.
            wait = max(retry_after, pause * random.uniform(0.5, 1.0))
            await asyncio.sleep(min(wait, left))
            pause = min(2 * pause, MAX_BACKOFF if self._has_connected else MAX_EARLY_BACKOFF)
        raise EnvironmentFault(
            f"{self._url}: waited {self._deadline:g} s for {waits_for} ({last}); is the server up and fast enough?"
        )

    async def _try(self, method: str, path: str, body: dict[str, Any] | None, headers: dict[str, str]) -> Any:
        # Of all requests: a server that is starting is waited for once, not by each of them.
        self._first_sent = self._first_sent or time.monotonic()
        try:
            # The first bytes may take the whole deadline: requests queue, and not every server streams.
            async with (
                asyncio.timeout(None) as stall,
                self._client.stream(method, self._url + path, json=body, headers=headers) as reply,
            ):
                self._has_connected = True
                return await self._read(reply, path, stall)
        except TimeoutError as error:
            stalled = self._deadline / STALLS_IN_DEADLINE
            raise TransientError(f"no more of the reply came for {stalled:g} s") from error
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise EnvironmentFault(f"{self._url}: not the URL of a server: {error}") from error
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            self._check_connection(error)
            raise TransientError(f"{type(error).__name__}: {error}") from error
        except httpx.TransportError as error:
            # The connection was there, and broke.
            self._has_connected = True
            raise TransientError(f"{type(error).__name__}: {error}") from error
        except ErrorEvent as error:
            raise self._refusal(error.status, error.text, path) from error
        except WrongReply as error:
            raise EnvironmentFault(f"{self._url}: {error}") from error

    def _check_connection(self, error: httpx.TransportError) -> None:
        """Raise EnvironmentFault if no connection has come about since the first request, ``START_SECONDS`` ago.

        A server that was there may be restarting: for that a request waits until its deadline.
        """
        tried = time.monotonic() - (self._first_sent or time.monotonic())
        if not self._has_connected and tried >= START_SECONDS:
            reason = f"{type(error).__name__}: {excerpt(str(error))}"
            raise EnvironmentFault(
                f"{self._url}: no connection in {START_SECONDS:g} s ({reason}); start the server, or check the URL"
            ) from error

    async def _chunks(self, reply: httpx.Response, stall: asyncio.Timeout) -> AsyncIterator[bytes]:
        """The bytes of a reply as they come; from the first on, the next must come soon."""
        async for chunk in reply.aiter_raw():
            stall.reschedule(asyncio.get_running_loop().time() + self._deadline / STALLS_IN_DEADLINE)
            yield chunk

    async def _read(self, reply: httpx.Response, path: str, stall: asyncio.Timeout) -> Any:
        """The content of a reply with status 200; an error for any other status."""
        chunks = self._chunks(reply, stall)
        if reply.status_code == 200:
            return await _content(reply, chunks, may_stream=path == COMPLETIONS)
        text = await read_error(chunks)
        raise self._refusal(reply.status_code, text, path, _retry_after(reply))

    def _refusal(self, status: int, text: str, path: str, retry_after: float = 0.0) -> Exception:
        """The error that a status other than 200 stands for; ``text`` is what the server says."""
        # Any other status would be the same with the next try.
        if status in TRANSIENT_STATUS:
            return TransientError(f"status {status}", retry_after)
        if status in (400, 413) and TOO_LONG.search(text):
            return PromptTooLong(f"{self._url}: {excerpt(text)}")
        if status == 400 and FILTERED in text:
            return PromptRefused(f"{self._url}: {excerpt(text)}")
        message = f"{self._url}: status {status} for {path}: {excerpt(text)}"
        if status == 404 and "/v1" not in self._url:
            message += f" (did you mean {self._url}/v1 ?)"
        return RejectedRequest(message, text)


async def _content(reply: httpx.Response, chunks: AsyncIterator[bytes], *, may_stream: bool) -> Any:
    """The content of a reply with status 200, which is a stream if the server says so."""
    encoding = reply.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise BrokenReply(f"the reply has the encoding {excerpt(encoding)}, which was not asked for")
    is_stream = may_stream and reply.headers.get("Content-Type", "").startswith("text/event-stream")
    return await (read_stream(chunks) if is_stream else read_json(chunks))


def _options_named(text: str, request: Mapping[str, Any]) -> set[str]:
    """The options of a request, which it could do without, that an error message names."""
    named = set(STREAM) if NAMES_STREAM.search(text) else set()
    if KEEP_SPECIAL in text:
        named.add(KEEP_SPECIAL)
    return named & request.keys()


def _model_listed(reply: Any) -> str:
    """The name of the first model in a list of models; WrongReply if there is none."""
    try:
        name = reply["data"][0]["id"]
    except (KeyError, IndexError, TypeError):
        name = None
    if not isinstance(name, str) or not name:
        raise WrongReply(f"the server lists no model: {excerpt(reply)}")
    return whole_characters(name)


def _request(model: str, messages: Sequence[Message], sampling: Sampling, seed: int) -> dict[str, Any]:
    request: dict[str, Any] = {
        "model": model,
        "messages": [dict(message) for message in messages],
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": seed,
        "n": 1,
    }
    if sampling.top_k:
        request["top_k"] = sampling.top_k
    return request


def _completion(reply: Any, url: str, form: ThoughtForm) -> Completion:
    """The completion in a reply; PromptRefused if the server filtered it, or returned something like a tool call."""
    try:
        choice = reply["choices"][0]
        message = choice["message"]
        finish = choice["finish_reason"]
        content = message.get("content")
        # Servers name the same field differently.
        thoughts = next((message[key] for key in THOUGHTS if message.get(key)), None)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise EnvironmentFault(f"{url}: unexpected reply ({error!r}): {excerpt(reply)}") from error
    if not isinstance(finish, str | None):
        raise EnvironmentFault(f"{url}: unexpected reply (finish_reason is {excerpt(finish)}, which is no text)")
    if finish in ABORTED:
        raise EnvironmentFault(f"{url}: the server aborted a completion (finish {finish!r}): {excerpt(reply)}")
    text = _full_text(thoughts, content, finish, form)
    if text is None or finish not in FINISHES:
        raise PromptRefused(f"{url}: no completion, finish {excerpt(finish)!r}: {excerpt(reply)}")
    try:
        whole = whole_characters(text)
        num_tokens = token_count(reply.get("usage"))
        return Completion(whole, num_tokens, FINISHES[finish])
    except WrongReply as error:
        raise EnvironmentFault(f"{url}: {error}") from error


def _full_text(thoughts: object, content: object, finish: object, form: ThoughtForm) -> str | None:
    """The text as the model wrote it, thoughts first; None if there is none.

    A completion that ended during its thoughts has only those, or nothing if it was truncated.
    """
    if not isinstance(content, str | None):
        return None
    if isinstance(thoughts, str):
        text = f"{form.opening}{thoughts}"
        return f"{text}{form.ending}{content}" if content else text
    if not content and finish == "length":
        return ""
    return content


def _retry_after(reply: httpx.Response) -> float:
    """The Retry-After header in seconds; 0 if it is missing, a date or no time to wait."""
    try:
        seconds = float(reply.headers.get("Retry-After", 0))
    except ValueError:
        return 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0
