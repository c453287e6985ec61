"""Servers that send what no server should: each ends in one line with exit code 4, and nothing piles up."""

import json
import time
from collections.abc import Iterator

import pytest
from scripted_server import Handler, ScriptedServer, ask, refusal, scripted_server

from magcli.generate import replies
from magcli.generate.types import Completion


@pytest.fixture
def hostile() -> Iterator[ScriptedServer]:
    with scripted_server() as running:
        yield running


def reply(*, text: str = '"3"', finish: str = '"stop"', tokens: str = "5") -> bytes:
    """A chat completion of which some values are given as JSON."""
    choice = f'{{"message": {{"content": {text}}}, "finish_reason": {finish}}}'
    return f'{{"choices": [{choice}], "usage": {{"completion_tokens": {tokens}}}}}'.encode()


def test_a_good_reply_is_a_completion(hostile):
    hostile.answer = lambda handler: handler.send(reply())
    assert ask(hostile) == [Completion("3", 5, "stop")]


@pytest.mark.parametrize("finish", ['["stop"]', '{"stop": 1}', "7", "true"])
def test_a_finish_reason_that_is_no_text_is_an_error(hostile, finish):
    hostile.answer = lambda handler: handler.send(reply(finish=finish))
    assert "finish_reason is" in refusal(hostile)
    assert hostile.num_requests == 1


@pytest.mark.parametrize(
    "tokens", ["1e999", "-1", "1" + 21 * "0", "1e21", "NaN", "-Infinity", '"5"', "[5]", "2.5", "true"]
)
def test_a_count_that_is_no_number_of_tokens_is_an_error(hostile, tokens):
    hostile.answer = lambda handler: handler.send(reply(tokens=tokens))
    assert "which is no number of tokens" in refusal(hostile)
    assert hostile.num_requests == 1


@pytest.mark.parametrize("tokens", ["0", "5.0", "2147483647"])
def test_other_spellings_of_a_count_are_good(hostile, tokens):
    hostile.answer = lambda handler: handler.send(reply(tokens=tokens))
    assert ask(hostile)[0].num_tokens == float(tokens)


@pytest.mark.parametrize("deep", [b"[" * 1_000_000, b'{"a":' * 1_000_000, b"[" * 100_000 + b"]" * 100_000])
def test_deep_json_is_an_error(hostile, deep):
    hostile.answer = lambda handler: handler.send(deep)
    assert "nested too deeply" in refusal(hostile)


def test_json_of_some_depth_is_shown_shortened(hostile):
    hostile.answer = lambda handler: handler.send(b"[" * 500 + b"]" * 500)
    assert "unexpected reply" in refusal(hostile)


@pytest.mark.parametrize("text", [r'"3 \ud800"', r'"\udc00\ud83d"'])
def test_half_of_a_character_is_an_error(hostile, text):
    hostile.answer = lambda handler: handler.send(reply(text=text))
    assert "lone surrogate" in refusal(hostile)


def test_an_endless_body_is_read_up_to_the_limit(hostile):
    hostile.answer = lambda handler: handler.send_without_end(b" " * 65536)
    assert "longer than" in refusal(hostile)
    assert hostile.num_requests == 1
    assert hostile.bytes_sent < replies.MAX_BYTES + 32 * 2**20  # the rest is what sockets hold


def test_an_endless_error_is_read_up_to_the_limit(hostile):
    hostile.answer = lambda handler: handler.send_without_end(b"\x1b[31m no \n" * 6000, status=400)
    assert r"status 400 for /chat/completions: \x1b[31m no \x1b[31m no" in refusal(hostile)
    assert hostile.bytes_sent < replies.MAX_ERROR_BYTES + 32 * 2**20


@pytest.mark.flaky(reruns=2)
def test_a_body_that_trickles_ends_with_the_deadline(hostile):
    def trickle(handler: Handler) -> None:
        handler.begin(200, Connection="close")
        while True:
            handler.wfile.write(b" ")
            time.sleep(0.02)

    hostile.answer = trickle
    started = time.monotonic()
    assert "waited 1 s for a completion" in refusal(hostile, deadline=1.0)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("pause", ["nan", "-nan", "inf", "-5", "1e999", "soon", ""])
def test_a_time_to_wait_that_is_none_is_ignored(hostile, pause):
    def refuse_once(handler: Handler) -> None:
        if hostile.num_requests == 1:
            handler.send(b"{}", status=429, Retry_After=pause)
        else:
            handler.send(reply())

    hostile.answer = refuse_once
    assert ask(hostile)[0].text == "3"
    assert hostile.num_requests == 2


@pytest.mark.parametrize("body", [b"null", b"[]", b'"text"', b'{"choices": {}}', b'{"choices": [null]}'])
def test_a_reply_of_another_shape_is_an_error(hostile, body):
    hostile.answer = lambda handler: handler.send(body)
    assert "unexpected reply" in refusal(hostile)
    assert hostile.num_requests == 1


@pytest.mark.parametrize("name", ["[1]", "null", '""', r'"\ud800"', "{}"])
def test_a_listed_model_must_have_a_name(hostile, monkeypatch, name):
    listed = f'{{"data": [{{"id": {name}}}]}}'.encode()
    monkeypatch.setattr(Handler, "do_GET", lambda handler: handler.send(listed), raising=False)
    monkeypatch.setattr(
        ScriptedServer, "url", property(lambda server: f"http://127.0.0.1:{server.server_address[1]}/v1")
    )
    refusal(hostile)
    assert hostile.num_requests == 0


def test_halves_of_a_character_are_joined():
    text = json.loads(r'"\ud83d"') + json.loads(r'"\ude00"')
    assert replies.whole_characters(text) == "\N{GRINNING FACE}"
