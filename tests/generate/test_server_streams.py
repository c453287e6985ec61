"""Completions that a server streams as events, and servers that do not stream, or not well."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from scripted_server import Handler, ScriptedServer, ask, refusal, scripted_server

from magcli.errors import PromptRefused, PromptTooLong
from magcli.generate import replies, server
from magcli.generate.types import Completion

USAGE = {"choices": [], "usage": {"completion_tokens": 7}}
DONE = b"data: [DONE]\n\n"
PLAIN = json.dumps(
    {"choices": [{"message": {"content": "plain"}, "finish_reason": "stop"}], "usage": {"completion_tokens": 2}}
).encode()


@pytest.fixture
def streaming(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedServer]:
    monkeypatch.setattr(server, "MIN_BACKOFF", 0.01)
    with scripted_server() as running:
        yield running


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def delta(finish: Any = None, **parts: Any) -> bytes:
    """The event of a part of a message."""
    return event({"choices": [{"index": 0, "delta": parts, "finish_reason": finish}], "usage": None})


WHOLE = [delta(role="assistant", content=""), delta(content="1+2"), delta(content=" is 3"), delta("stop"), event(USAGE)]


def send_chunks(handler: Handler, chunks: list[bytes]) -> None:
    """Send a stream in HTTP chunks, to the end."""
    handler.begin(200, Content_Type="text/event-stream; charset=utf-8", Transfer_Encoding="chunked")
    for chunk in chunks:
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
    handler.wfile.write(b"0\r\n\r\n")


def send_until_closed(handler: Handler, chunks: list[bytes]) -> None:
    """Send a stream that ends where the connection ends."""
    handler.begin(200, Content_Type="text/event-stream", Connection="close")
    handler.close_connection = True
    handler.wfile.write(b"".join(chunks))


def test_parts_of_a_stream_are_put_together(streaming):
    streaming.answer = lambda handler: send_chunks(handler, [*WHOLE, DONE])
    assert ask(streaming) == [Completion("1+2 is 3", 7, "stop")]
    (body,) = streaming.bodies
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}


def test_a_connection_is_used_again_after_a_stream(streaming):
    streaming.answer = lambda handler: send_chunks(handler, [*WHOLE, DONE])
    assert len(ask(streaming, times=5)) == 5
    assert streaming.num_connections == 1


@pytest.mark.parametrize("size", [1, 2, 7, 100_000])
def test_events_may_be_cut_anywhere(streaming, size):
    comments = [b": waiting\n\n", b"event: message\r\nid: 5\r\n"]
    body = b"".join([*comments, event({"choices": []}), delta(content="dé \N{GRINNING FACE}").replace(b"\n", b"\r\n")])
    body += b'data: {"choices": [{"delta":\ndata:{"content": "!"}, "finish_reason": "length"}]}\n\n'  # of two lines
    body += json.dumps(USAGE).encode().join([b"data:", b"\n\n"]) + DONE
    chunks = [body[start : start + size] for start in range(0, len(body), size)]
    streaming.answer = lambda handler: send_chunks(handler, chunks)
    assert ask(streaming) == [Completion("dé \N{GRINNING FACE}!", 7, "length")]


def test_characters_in_utf8_may_be_cut(streaming):
    body = 'data: {"choices": [{"delta": {"content": "é\N{GRINNING FACE}"}, "finish_reason": "stop"}]}\n\n'.encode()
    cut = body.index("é".encode()) + 1
    streaming.answer = lambda handler: send_chunks(handler, [body[:cut], body[cut:], event(USAGE), DONE])
    assert ask(streaming) == [Completion("é\N{GRINNING FACE}", 7, "stop")]


def test_halves_of_a_character_in_two_events_are_joined(streaming):
    halves = [delta(content="\ud83d"), delta("stop", content="\ude00")]
    streaming.answer = lambda handler: send_chunks(handler, [*halves, event(USAGE), DONE])
    assert ask(streaming) == [Completion("\N{GRINNING FACE}", 7, "stop")]


def test_half_of_a_character_is_an_error(streaming):
    streaming.answer = lambda handler: send_chunks(handler, [delta("stop", content="\ud83d"), event(USAGE), DONE])
    assert "lone surrogate" in refusal(streaming)


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_streamed_thoughts_come_before_the_answer(streaming, key):
    parts = [delta(**{key: "ea"}), delta(**{key: "sy"}), delta(content="3"), delta("stop"), event(USAGE)]
    streaming.answer = lambda handler: send_chunks(handler, [*parts, DONE])
    assert [done.text for done in ask(streaming)] == ["<think>easy</think>3"]


def test_a_stream_without_the_last_event_is_whole_with_its_usage(streaming):
    streaming.answer = lambda handler: send_until_closed(handler, WHOLE)
    assert [done.text for done in ask(streaming)] == ["1+2 is 3"]


def test_a_server_that_keeps_the_connection_after_a_stream_is_not_waited_for(streaming, monkeypatch):
    monkeypatch.setattr(replies, "DRAIN_SECONDS", 0.05)

    def hold(handler: Handler) -> None:
        handler.begin(200, Content_Type="text/event-stream", Connection="close")
        handler.close_connection = True
        handler.wfile.write(b"".join([*WHOLE, DONE]))
        handler.rfile.read()  # until the client hangs up

    streaming.answer = hold
    assert [done.text for done in ask(streaming, deadline=3600.0)] == ["1+2 is 3"]


@pytest.mark.parametrize("num_sent", range(5))
def test_a_stream_that_ends_early_is_asked_for_again(streaming, num_sent):
    def end_early_once(handler: Handler) -> None:
        if streaming.num_requests == 1:
            send_until_closed(handler, WHOLE[:num_sent])
        else:
            send_chunks(handler, [*WHOLE, DONE])

    streaming.answer = end_early_once
    assert [done.text for done in ask(streaming)] == ["1+2 is 3"]
    assert streaming.num_requests == 2


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "property 'stream_options' is unsupported, did you mean 'stream'?"),
        (422, '{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}'),
        (501, "Streaming is not supported"),
    ],
)
def test_a_server_that_refuses_to_stream_is_asked_without(streaming, status, message):
    def refuse_streams(handler: Handler) -> None:
        if "stream" in streaming.bodies[-1]:
            handler.send(message.encode(), status=status)
        else:
            handler.send(PLAIN)

    streaming.answer = refuse_streams
    assert [done.text for done in ask(streaming, times=3)] == ["plain"] * 3
    assert ["stream" in body for body in streaming.bodies] == [True, False, False, False]
    assert "stream_options" not in streaming.bodies[-1]


def test_a_server_that_answers_in_one_piece_is_understood(streaming):
    streaming.answer = lambda handler: handler.send(PLAIN, Content_Type="application/json")
    assert ask(streaming) == [Completion("plain", 2, "stop")]
    assert streaming.num_requests == 1


def test_a_server_whose_streams_do_not_count_tokens_is_asked_without(streaming):
    def count_unless_streaming(handler: Handler) -> None:
        if "stream" in streaming.bodies[-1]:
            send_chunks(handler, [*WHOLE[:-1], DONE])
        else:
            handler.send(PLAIN)

    streaming.answer = count_unless_streaming
    assert [done.text for done in ask(streaming, times=2)] == ["plain"] * 2
    assert ["stream" in body for body in streaming.bodies] == [True, False, False]


def test_a_server_that_always_streams_must_count_tokens(streaming):
    streaming.answer = lambda handler: send_chunks(handler, [*WHOLE[:-1], DONE])
    assert "streams lack usage.completion_tokens" in refusal(streaming)
    assert streaming.num_requests == 2


def test_an_error_that_may_pass_in_a_stream_is_retried(streaming):
    def fail_once(handler: Handler) -> None:
        if streaming.num_requests == 1:
            failure = {"error": {"message": "engine restarts", "code": 503}}
            send_chunks(handler, [WHOLE[0], event(failure), DONE])
        else:
            send_chunks(handler, [*WHOLE, DONE])

    streaming.answer = fail_once
    assert [done.text for done in ask(streaming)] == ["1+2 is 3"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"error": {"message": "maximum context length is 512", "code": 400}}, PromptTooLong),
        ({"object": "error", "message": "maximum context length is 512", "code": 400}, PromptTooLong),
        ({"error": {"message": "content_filter", "code": 400}}, PromptRefused),
    ],
)
def test_an_error_in_a_stream_is_that_of_a_reply(streaming, error, kind):
    streaming.answer = lambda handler: send_chunks(handler, [WHOLE[0], event(error)])
    with pytest.raises(kind):
        ask(streaming)
    assert streaming.num_requests == 1


@pytest.mark.parametrize(
    "error", [{"error": "out of luck"}, {"error": {"code": "server_error"}}, {"error": {"code": 7}}]
)
def test_an_unknown_error_in_a_stream_is_not_retried_for_ever(streaming, error):
    streaming.answer = lambda handler: send_chunks(handler, [WHOLE[0], event(error)])
    assert "3 replies were broken, the last: the server ended the stream with an error" in refusal(streaming)
    assert streaming.num_requests == 3


@pytest.mark.parametrize(
    "value",
    [[], "text", 5, {"choices": "stop"}, {"choices": [None]}, {"choices": {"0": 1}}, {"choices": [{"delta": [1]}]}],
)
def test_an_event_of_another_shape_is_an_error(streaming, value):
    streaming.answer = lambda handler: send_chunks(handler, [event(value), *WHOLE, DONE])
    assert "unexpected event" in refusal(streaming)
    assert streaming.num_requests == 1


def test_hostile_values_in_a_stream_are_errors(streaming):
    streaming.answer = lambda handler: send_chunks(handler, [delta(["stop"], content="3"), event(USAGE), DONE])
    assert "finish_reason is ['stop']" in refusal(streaming)
    endless = {"choices": [], "usage": {"completion_tokens": float("inf")}}
    streaming.answer = lambda handler: send_chunks(handler, [delta("stop", content="3"), event(endless), DONE])
    assert "usage.completion_tokens is inf" in refusal(streaming)
    streaming.answer = lambda handler: send_chunks(handler, [b"data: " + b"[" * 200_000 + b"\n\n"])
    assert "nested too deeply" in refusal(streaming)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (delta(content="ha" * 30_000), "the completion is longer than"),
        (b"x" * 65_536, "a line of the stream is longer than"),
        (b"data: " + b"x" * 65_536 + b"\n", "an event of the stream is longer than"),
    ],
)
def test_an_endless_stream_is_read_up_to_the_limit(streaming, part, message):
    streaming.answer = lambda handler: handler.send_without_end(part, Content_Type="text/event-stream")
    assert message in refusal(streaming)
    assert streaming.num_requests == 1
    assert streaming.bytes_sent < replies.MAX_BYTES + 32 * 2**20  # the rest is what sockets hold


@pytest.mark.flaky(reruns=2)
def test_an_endless_stream_of_nothing_ends_with_the_deadline(streaming):
    streaming.answer = lambda handler: handler.send_without_end(b": alive\n\n" * 100, Content_Type="text/event-stream")
    started = time.monotonic()
    assert "waited 1 s for a completion" in refusal(streaming, deadline=1.0)
    assert time.monotonic() - started < 5


@pytest.mark.flaky(reruns=2)
def test_a_stream_that_goes_on_may_take_most_of_the_deadline(streaming):
    def slowly(handler: Handler) -> None:
        handler.begin(200, Content_Type="text/event-stream", Connection="close")
        handler.close_connection = True
        for part in WHOLE:
            handler.wfile.write(part)
            time.sleep(0.4)

    streaming.answer = slowly
    assert [done.text for done in ask(streaming, deadline=3.6)] == ["1+2 is 3"]  # a pause of 1.2 s would be too long
    assert streaming.num_requests == 1


def test_a_list_of_models_is_not_a_stream(streaming, monkeypatch):
    monkeypatch.setattr(Handler, "do_GET", lambda handler: send_chunks(handler, [*WHOLE[:-1], DONE]), raising=False)
    monkeypatch.setattr(ScriptedServer, "url", property(lambda own: f"http://127.0.0.1:{own.server_address[1]}/v1"))
    assert "not valid JSON" in refusal(streaming)
