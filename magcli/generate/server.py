"""Client of an OpenAI-compatible server: text in and out over HTTP, whole answers or none.

Each sample is one ``POST {url}/chat/completions`` with its own seed, so a sample can be asked for again without its
neighbours. A request that fails in a way that may pass (no connection, silence, a reply that breaks off or is not
whole JSON, 429, 5xx) is sent again after a jittered, doubling pause, under the same ``X-Request-Id`` and
``Idempotency-Key``, until the deadline. Whatever else the server says is an error at once.

Thoughts that a server tells apart (``reasoning_content``, or ``reasoning``) stand between ``<think>`` and ``</think>``
again, as the model wrote them.
"""

import asyncio
import random
import re
import time
import uuid
from collections.abc import Sequence
from typing import Any

import httpx

from magcli.errors import EnvironmentFault, MagError, PromptRefused, PromptTooLong
from magcli.generate.types import Completion, Finish, Message, Sampling

PASSING_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504})
FIRST_PAUSE = 0.25
LONGEST_PAUSE = 20.0
TRIES_IN_DEADLINE = 3
"""A server that stays silent is asked again after this part of the deadline."""

TOO_LONG = re.compile(r"context[ _](?:length|size|window)|maximum (?:context|model) len", re.IGNORECASE)
"""How servers (vLLM, llama.cpp, hosted ones) word the refusal of a prompt that does not fit."""

BROKEN_OFF = ("abort", "error", None)
"""Finishes that tell of the server, not of the prompt."""
FILTERED = "content_filter"
"""The code of an error with which servers hold answers back."""

FINISHES: dict[str, Finish] = {"stop": "stop", "eos": "stop", "length": "length"}


class Passing(Exception):
    """A failure that may pass; ``pause`` is how long the server asks to wait, in seconds."""

    def __init__(self, reason: str, pause: float = 0.0) -> None:
        super().__init__(reason)
        self.pause = pause


class ServerGenerator:
    """An OpenAI-compatible server behind the ``Generator`` protocol.

    Args:
        url: the API's root, such as ``http://host:8000/v1``.
        model: the name the server knows the model by; empty: the first that the server lists.
        deadline: seconds that one sample may take, retries included, waiting for a free connection not.
        concurrency: requests under way at once.
        api_key: sent as a bearer token when not empty.
    """

    def __init__(
        self, url: str, *, model: str = "", deadline: float = 600.0, concurrency: int = 64, api_key: str = ""
    ) -> None:
        self._url = url.rstrip("/")
        self._model = model
        self._deadline = deadline
        self._room = asyncio.Semaphore(concurrency)
        self._naming = asyncio.Lock()
        self._client = httpx.AsyncClient(
            timeout=deadline / TRIES_IN_DEADLINE,
            limits=httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency),
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
        )

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, *, seeds: Sequence[int]
    ) -> list[Completion]:
        """Sample one completion a seed for the same messages, in the order of the seeds.

        Raises:
            PromptTooLong: the server says that the prompt does not fit the model's context.
            PromptRefused: the server kept the answer back (``content_filter``), or gave something else.
            EnvironmentFault: no whole answer within the deadline, or the server refused the request.
        """
        if self._client.is_closed:
            raise MagError(f"{self._url}: the connection to the server has been closed")
        tasks = [asyncio.ensure_future(self._one(messages, sampling, seed)) for seed in seeds]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _one(self, messages: Sequence[Message], sampling: Sampling, seed: int) -> Completion:
        model = await self._model_name()
        request = _request(model, messages, sampling, seed)
        async with self._room:
            reply = await self._send("POST", "/chat/completions", request, waits_for="a completion")
        return _completion(reply, self._url)

    async def _model_name(self) -> str:
        async with self._naming:
            if not self._model:
                listed = await self._send("GET", "/models", None, waits_for="its list of models")
                self._model = _first_model(listed, self._url)
        return self._model

    async def _send(self, method: str, path: str, body: dict[str, Any] | None, *, waits_for: str) -> Any:
        """Send until a whole reply comes; the JSON of it."""
        ends = time.monotonic() + self._deadline
        identity = uuid.uuid4().hex
        headers = {"X-Request-Id": identity, "Idempotency-Key": identity}
        pause, last = FIRST_PAUSE, "no reply yet"
        while (left := ends - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left):
                    return await self._try(method, path, body, headers)
            except TimeoutError:
                break
            except Passing as failure:
                last = str(failure)
                wait = max(failure.pause, pause * random.uniform(0.5, 1.0))
            await asyncio.sleep(min(wait, max(ends - time.monotonic(), 0.0)))
            pause = min(2 * pause, LONGEST_PAUSE)
        raise EnvironmentFault(
            f"{self._url}: waited {self._deadline:g} s for {waits_for} ({last}); is the server up and fast enough?"
        )

    async def _try(self, method: str, path: str, body: dict[str, Any] | None, headers: dict[str, str]) -> Any:
        try:
            reply = await self._client.request(method, self._url + path, json=body, headers=headers)
        except httpx.TimeoutException as error:
            raise Passing(f"silence: {type(error).__name__}") from error
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise Passing(f"{type(error).__name__}: {error}") from error
        if reply.status_code in PASSING_STATUS:
            raise Passing(f"status {reply.status_code}", _retry_after(reply))
        if reply.status_code in (400, 413) and TOO_LONG.search(reply.text):
            raise PromptTooLong(f"{self._url}: {_excerpt(reply.text)}")
        if reply.status_code == 400 and FILTERED in reply.text:
            raise PromptRefused(f"{self._url}: {_excerpt(reply.text)}")
        if reply.status_code != 200:
            hint = f" (did you mean {self._url}/v1 ?)" if reply.status_code == 404 and "/v1" not in self._url else ""
            raise EnvironmentFault(f"{self._url}: status {reply.status_code} for {path}: {_excerpt(reply.text)}{hint}")
        try:
            return reply.json()
        except ValueError as error:
            raise Passing(f"a reply that is not whole JSON: {error}") from error


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
    return request | ({"top_k": sampling.top_k} if sampling.top_k else {})


def _completion(reply: Any, url: str) -> Completion:
    """The one completion of a reply.

    Raises:
        PromptRefused: the server kept the answer back, or gave something else, such as a call of a tool.
        EnvironmentFault: the reply is none of the API, or the server broke the answer off.
    """
    try:
        choice = reply["choices"][0]
        message, finish = choice["message"], choice["finish_reason"]
        content, thoughts = message.get("content"), message.get("reasoning_content") or message.get("reasoning")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise EnvironmentFault(f"{url}: a reply without {error}: {_excerpt(reply)}") from error
    text = _whole(thoughts or None, content, finish)
    if finish in BROKEN_OFF:
        raise EnvironmentFault(f"{url}: the server broke an answer off (finish {finish!r}): {_excerpt(reply)}")
    if text is None or finish not in FINISHES:
        raise PromptRefused(f"{url}: no answer, but finish {finish!r}: {_excerpt(reply)}")
    return Completion(text, _tokens(reply, url), FINISHES[finish])


def _tokens(reply: Any, url: str) -> int:
    try:
        return int(reply["usage"]["completion_tokens"])
    except (KeyError, TypeError, ValueError) as error:
        raise EnvironmentFault(f"{url}: a reply without its number of tokens: {_excerpt(reply)}") from error


def _whole(thoughts: object, content: object, finish: object) -> str | None:
    """The text as the model wrote it, thoughts first; null where there is none.

    An answer that ended while the model was thinking has thoughts alone, or where it was cut nothing.
    """
    if not isinstance(content, str | None):
        return None
    if not content:
        return f"<think>{thoughts}" if isinstance(thoughts, str) else content if finish != "length" else ""
    return f"<think>{thoughts}</think>{content}" if isinstance(thoughts, str) else content


def _first_model(listed: Any, url: str) -> str:
    try:
        return str(listed["data"][0]["id"])
    except (KeyError, IndexError, TypeError) as error:
        raise EnvironmentFault(f"{url}: the server lists no model: {_excerpt(listed)}") from error


def _retry_after(reply: httpx.Response) -> float:
    """Seconds that the server asks to wait; 0 where it says nothing or names a date."""
    try:
        return max(float(reply.headers.get("Retry-After", 0)), 0.0)
    except ValueError:
        return 0.0


def _excerpt(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 200 else text[:200] + " ..."
