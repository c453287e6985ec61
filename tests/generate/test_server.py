"""The HTTP client against a real server on 127.0.0.1 with scripted failures."""

import asyncio
import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from magcli.errors import EnvironmentFault, MagError, PromptRefused, PromptTooLong
from magcli.generate import server
from magcli.generate.server import ServerGenerator
from magcli.generate.types import Completion, Sampling
from magcli.model.chat.prompts import ChatTemplate
from magcli.model.chat.thoughts import BRACKETS, CHANNELS
from magcli.model.model import Model

MESSAGES = [{"role": "user", "content": "What is 1+2?"}]
SAMPLING = Sampling(max_tokens=30, temperature=0.7)


class FaultyServer(ThreadingHTTPServer):
    """Answers with a hash of the request. ``faults[n]`` is the failure of the n-th request with the same id."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.faults: list[str] = []
        self.tries: Counter[str] = Counter()
        self.bodies: list[dict] = []
        self.headers: list[dict[str, str]] = []
        self.under_way = self.most_under_way = 0
        self.lock, self.ended = threading.Lock(), threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request, client_address) -> None:
        """Ignore clients that disconnect."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyServer

    def log_message(self, *_) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        served = self.path.startswith("/v1/")
        self.reply(200 if served else 404, {"data": [{"id": "tiny"}]} if served else {"detail": "Not Found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.bodies.append(body)
            self.server.headers.append(dict(self.headers))
            self.server.under_way += 1
            self.server.most_under_way = max(self.server.most_under_way, self.server.under_way)
            attempt = self.server.tries[self.headers["X-Request-Id"]]
            self.server.tries[self.headers["X-Request-Id"]] += 1
        try:
            fault = self.server.faults[attempt] if attempt < len(self.server.faults) else "none"
            getattr(self, f"fault_{fault}")(answer(body))
        finally:
            with self.server.lock:
                self.server.under_way -= 1

    def reply(self, status: int, body: dict, headers: tuple[tuple[str, str], ...] = ()) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in (("Content-Length", str(len(data))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def fault_none(self, body: dict) -> None:
        self.reply(200, body)

    def fault_slow(self, body: dict) -> None:
        time.sleep(0.05)
        self.reply(200, body)

    def fault_error(self, body: dict) -> None:
        self.reply(503, {"error": "busy"})

    def fault_limit(self, body: dict) -> None:
        self.reply(429, {"error": "slow down"}, (("Retry-After", "0.3"),))

    def fault_goodbye(self, body: dict) -> None:
        """Answer and close the connection, as a server that ends."""
        self.reply(200, body, (("Connection", "close"),))

    def fault_late(self, body: dict) -> None:
        time.sleep(1.5)
        self.reply(200, body)

    def fault_closed(self, body: dict) -> None:
        self.reply(429, {"error": "come back tomorrow"}, (("Retry-After", "86400"),))

    def fault_too_long(self, body: dict) -> None:
        self.reply(400, {"error": {"message": "This model's maximum context length is 512 tokens."}})

    def fault_refuse(self, body: dict) -> None:
        self.reply(400, {"error": "max_tokens is too large"})

    def fault_cut(self, body: dict) -> None:
        """Announce the full length and close in the middle."""
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[: len(data) // 2])
        self.close_connection = True

    def fault_half(self, body: dict) -> None:
        """Half of a JSON text as a complete reply."""
        data = json.dumps(body).encode()[:-20]
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def fault_unpacked(self, body: dict) -> None:
        """A reply with a false Content-Encoding."""
        self.reply(200, body, (("Content-Encoding", "gzip"),))

    def fault_drop(self, body: dict) -> None:
        """Close without a reply."""
        self.close_connection = True

    def fault_stall(self, body: dict) -> None:
        """Begin the text of a reply and stall until the server ends."""
        self.send_response(200)
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.wfile.write(b"{")
        self.server.ended.wait()
        self.close_connection = True

    def fault_shapeless(self, body: dict) -> None:
        self.reply(200, {"choices": []})

    def fault_filtered_prompt(self, body: dict) -> None:
        self.reply(400, {"error": {"code": "content_filter", "message": "The response was filtered."}})

    def fault_filtered(self, body: dict) -> None:
        body["choices"][0] |= {"message": {"content": None}, "finish_reason": "content_filter"}
        self.reply(200, {"choices": body["choices"]})

    def fault_thoughts(self, body: dict) -> None:
        body["choices"][0]["message"] = {"content": "\n\n3", "reasoning_content": "easy"}
        self.reply(200, body)

    def fault_unknown_key(self, body: dict) -> None:
        if "skip_special_tokens" in self.server.bodies[-1]:
            self.reply(400, {"error": "unrecognized argument: skip_special_tokens"})
        else:
            self.fault_thoughts(body)

    def fault_renamed_thoughts(self, body: dict) -> None:
        body["choices"][0]["message"] = {"content": "\n\n3", "reasoning": "easy", "reasoning_content": None}
        self.reply(200, body)

    def fault_cut_in_thoughts(self, body: dict) -> None:
        body["choices"][0] = {"message": {"content": None, "reasoning_content": "ea"}, "finish_reason": "length"}
        self.reply(200, body)

    def fault_cut_in_thoughts_otherwise(self, body: dict) -> None:
        body["choices"][0] = {"message": {"content": "", "reasoning": "ea"}, "finish_reason": "length"}
        self.reply(200, body)

    def fault_never_answered(self, body: dict) -> None:
        body["choices"][0] = {"message": {"reasoning_content": "easy"}, "finish_reason": "stop"}
        self.reply(200, body)

    def fault_eos(self, body: dict) -> None:
        body["choices"][0] = {"message": {"content": "3"}, "finish_reason": "eos"}
        self.reply(200, body)

    def fault_uncounted(self, body: dict) -> None:
        self.reply(200, {"choices": body["choices"]})

    def fault_cut_at_once(self, body: dict) -> None:
        body["choices"][0] = {"message": {"content": None}, "finish_reason": "length"}
        self.reply(200, body)

    def fault_tools(self, body: dict) -> None:
        body["choices"][0] = {"message": {"content": None, "tool_calls": []}, "finish_reason": "tool_calls"}
        self.reply(200, body)

    def fault_aborted(self, body: dict) -> None:
        body["choices"][0]["finish_reason"] = "abort"
        self.reply(200, body)


def answer(body: dict) -> dict:
    text = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"choices": [choice], "usage": {"completion_tokens": len(text)}}


@contextmanager
def served(port: int) -> Iterator[FaultyServer]:
    with FaultyServer(port) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.ended.set()
        running.shutdown()
        thread.join()


@pytest.fixture
def faulty() -> Iterator[FaultyServer]:
    with served(0) as running:
        yield running


def ask(faulty: FaultyServer, seeds: range = range(3), thoughts: str = "", **options) -> list[Completion]:
    model = Model.open(faulty.url, ChatTemplate(thoughts=thoughts))

    async def scenario() -> list[Completion]:
        generator = ServerGenerator(model, **({"deadline": 60.0} | options))
        try:
            return await generator.complete(MESSAGES, SAMPLING, seeds=seeds)
        finally:
            await generator.close()

    return asyncio.run(scenario())


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MIN_BACKOFF", 0.01)


@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize(
    "faults",
    [["cut"], ["half"], ["unpacked"], ["drop"], ["error"] * 4, ["limit"], ["stall"], ["drop", "cut", "error", "half"]],
    ids="-".join,
)
def test_transient_failures_do_not_change_the_result(faulty, short_pauses, faults):
    expected = ask(faulty)
    faulty.tries.clear()
    faulty.faults = faults
    assert ask(faulty, deadline=6.0 if "stall" in faults else 60.0) == expected
    assert list(faulty.tries.values()) == [len(faults) + 1] * 3


def test_samples_have_their_seeds_and_keep_their_order(faulty):
    expected = [answer(body)["choices"][0]["message"]["content"] for body in map(request, range(20))]
    assert [completion.text for completion in ask(faulty, range(20))] == expected


def request(seed: int) -> dict:
    return {
        "model": "tiny",
        "messages": MESSAGES,
        "max_tokens": 30,
        "temperature": 0.7,
        "top_p": 1.0,
        "seed": seed,
        "n": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_retry_is_the_same_request(faulty, short_pauses):
    faulty.faults = ["error", "cut"]
    ask(faulty, range(1))
    assert len({json.dumps(body, sort_keys=True) for body in faulty.bodies}) == 1
    assert len({headers["Idempotency-Key"] for headers in faulty.headers}) == 1
    assert len(faulty.bodies) == 3


def test_retry_after_is_respected(faulty, short_pauses):
    faulty.faults = ["limit"]
    start = time.monotonic()
    ask(faulty, range(1))
    assert time.monotonic() - start >= 0.3


def test_concurrent_requests_are_limited(faulty):
    faulty.faults = ["slow"]
    ask(faulty, range(30), concurrency=4)
    assert 1 < faulty.most_under_way <= 4


@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize(
    ("fault", "reason"), [("error", "status 503"), ("drop", "disconnected"), ("stall", "no more of the reply")]
)
def test_the_deadline_error_names_the_server_and_the_request(faulty, short_pauses, fault, reason):
    faulty.faults = [fault] * 1000
    start = time.monotonic()
    with pytest.raises(EnvironmentFault, match=rf"{faulty.url}: waited 0.6 s for a completion .*{reason}"):
        ask(faulty, deadline=0.6)
    assert time.monotonic() - start < 2


@pytest.mark.flaky(reruns=2)
def test_no_server_is_an_error_within_the_deadline(short_pauses):
    async def scenario() -> None:
        generator = ServerGenerator(Model.open("http://127.0.0.1:9/v1"), deadline=0.3)
        with pytest.raises(EnvironmentFault, match=r"list of models.*Connect"):
            await generator.complete(MESSAGES, SAMPLING, seeds=[1])
        await generator.close()

    asyncio.run(scenario())


def test_a_server_that_never_was_there_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(server, "START_SECONDS", 0.5)

    async def scenario() -> None:
        generator = ServerGenerator(Model.open("http://127.0.0.1:9/v1"), deadline=3600.0)
        with pytest.raises(EnvironmentFault, match=r"no connection in 0.5 s \(ConnectError.*start the server"):
            await generator.complete(MESSAGES, SAMPLING, seeds=[1])
        await generator.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("url", ["http://127.0.0.1:abc/v1", "http:///v1", "http://[::1/v1"])
def test_a_url_that_is_none_is_an_error_at_once(url):
    async def scenario() -> None:
        generator = ServerGenerator(Model.open(url), deadline=3600.0)
        with pytest.raises(EnvironmentFault, match="not the URL of a server"):
            await generator.complete(MESSAGES, SAMPLING, seeds=[1])
        await generator.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("key", ["sk-secret\n", "sk-secr\u00e9t", "sk-\0secret"])
def test_an_api_key_that_cannot_be_sent_is_an_error_that_does_not_show_it(key):
    with pytest.raises(EnvironmentFault, match="OPENAI_API_KEY has characters") as refused:
        ServerGenerator(Model.open("http://127.0.0.1:9/v1"), api_key=key)
    assert "sec" not in str(refused.value)


def test_a_server_that_restarts_is_waited_for(short_pauses, monkeypatch):
    monkeypatch.setattr(server, "START_SECONDS", 0.0)  # so it would not be waited for if it had never been there

    async def scenario() -> tuple[list[Completion], list[Completion]]:
        with served(0) as first:
            first.faults = ["goodbye"]
            port = first.server_address[1]
            generator = ServerGenerator(Model.open(first.url), deadline=60.0)
            before = await generator.complete(MESSAGES, SAMPLING, seeds=[2])
        waiting = asyncio.create_task(generator.complete(MESSAGES, SAMPLING, seeds=[2]))
        await asyncio.wait({waiting}, timeout=0.3)
        assert not waiting.done()
        with served(port):
            after = await waiting
        await generator.close()
        return before, after

    before, after = asyncio.run(scenario())
    assert before == after


def test_a_reply_may_take_most_of_the_deadline(faulty):
    faulty.faults = ["late"]
    ask(faulty, range(1), deadline=3.0)
    assert list(faulty.tries.values()) == [1]


def test_replies_that_stay_broken_are_not_asked_for_again(faulty, short_pauses):
    faulty.faults = ["half"] * 1000
    with pytest.raises(EnvironmentFault, match="3 replies were broken, the last: the reply is not valid JSON"):
        ask(faulty, range(1), deadline=3600.0)
    assert len(faulty.bodies) == 3


def test_a_server_that_asks_to_wait_beyond_the_deadline_is_an_error_at_once(faulty, short_pauses):
    faulty.faults = ["closed"] * 1000
    with pytest.raises(EnvironmentFault, match=r"status 429: the server asks to wait 86400 s, longer than"):
        ask(faulty, range(1), deadline=3600.0)
    assert len(faulty.bodies) == 1


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("refuse", "status 400.*too large"),
        ("shapeless", "unexpected reply"),
        ("uncounted", "lacks usage.completion_tokens"),
    ],
)
def test_permanent_failures_are_errors_at_once(faulty, fault, message):
    faulty.faults = [fault] * 1000
    with pytest.raises(EnvironmentFault, match=message):
        ask(faulty, range(1))
    assert len(faulty.bodies) == 1


def test_a_url_without_v1_gets_a_hint(faulty):
    async def scenario() -> None:
        generator = ServerGenerator(Model.open(faulty.url.removesuffix("/v1")))
        with pytest.raises(EnvironmentFault, match=r"status 404 for /models.*did you mean http\S+/v1"):
            await generator.complete(MESSAGES, SAMPLING, seeds=[1])
        await generator.close()

    asyncio.run(scenario())


def test_a_prompt_that_does_not_fit_has_its_own_error(faulty):
    faulty.faults = ["too_long"] * 1000
    with pytest.raises(PromptTooLong, match="maximum context length is 512"):
        ask(faulty, range(1))


@pytest.mark.parametrize(
    ("reply", "text", "finish"),
    [
        ("thoughts", "<think>easy</think>\n\n3", "stop"),
        ("renamed_thoughts", "<think>easy</think>\n\n3", "stop"),
        ("cut_in_thoughts", "<think>ea", "length"),
        ("cut_in_thoughts_otherwise", "<think>ea", "length"),
        ("cut_at_once", "", "length"),
        ("never_answered", "<think>easy", "stop"),
        ("eos", "3", "stop"),
    ],
)
def test_separate_reasoning_is_part_of_the_text(faulty, reply, text, finish):
    faulty.faults = [reply] * 10
    assert [(done.text, done.finish) for done in ask(faulty, range(2))] == [(text, finish)] * 2


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ("filtered", "content_filter"),
        ("filtered_prompt", "content_filter"),
        ("tools", "finish 'tool_calls'"),
    ],
)
def test_a_filtered_completion_is_a_refused_prompt(faulty, reply, message):
    faulty.faults = [reply] * 1000
    with pytest.raises(PromptRefused, match=message) as refused:
        ask(faulty, range(1))
    assert refused.value.reason == "refused"


def test_one_failure_cancels_the_other_requests(faulty):
    faulty.faults = ["refuse"] * 1000
    with pytest.raises(EnvironmentFault):
        ask(faulty, range(50), concurrency=2)
    assert len(faulty.bodies) < 50


def test_a_closed_client_refuses(faulty):
    async def scenario() -> None:
        generator = ServerGenerator(Model.open(faulty.url))
        await generator.close()
        with pytest.raises(MagError, match="closed"):
            await generator.complete(MESSAGES, SAMPLING, seeds=[1])

    asyncio.run(scenario())


@pytest.mark.parametrize("form", [BRACKETS, CHANNELS], ids=str)
def test_thoughts_are_put_back_in_the_models_form(faulty, form):
    faulty.faults = ["thoughts"] * 10
    (done,) = ask(faulty, range(1), thoughts=form.name)
    assert done.text == f"{form.opening}easy{form.ending}\n\n3"
    assert faulty.bodies[-1] == request(0) | {"skip_special_tokens": False}


def test_a_server_that_does_not_know_special_tokens_is_asked_without(faulty):
    faulty.faults = ["unknown_key"] * 10
    done = ask(faulty, range(3), thoughts=BRACKETS.name, concurrency=1)
    assert [each.text for each in done] == ["[THINK]easy[/THINK]\n\n3"] * 3
    assert "skip_special_tokens" not in faulty.bodies[-1]
