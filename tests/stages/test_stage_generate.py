import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from calling import call_stage, kill_and_resume, seconds_of

from magcli.data import table
from magcli.errors import DataError, EnvironmentFault, UsageError
from magcli.generate.types import sample_seed

ASK = {"samples": 3, "max_tokens": 24, "system": Path("none"), "slots": 8}


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(path):
    return [row for batch in table.read(str(path)).rows for row in batch.to_pylist()]


@pytest.fixture
def problems(tmp_path):
    rows = [{"id": f"p{i}", "prompt": f"{'abcdefgh'[i % 8]}?", "answer": "3", "level": i} for i in range(20)]
    return written(tmp_path / "problems.jsonl", rows)


def test_each_problem_gets_its_samples_next_to_its_columns(guesser, problems, tmp_path):
    call_stage("generate", problems, model=str(guesser), output=tmp_path / "out.arrow", seed=7, **ASK)
    rows = rows_of(tmp_path / "out.arrow")
    assert [(row["id"], row["sample"], row["level"]) for row in rows] == [
        (f"p{i}", sample, i) for i in range(20) for sample in range(3)
    ]
    for row in rows:
        assert row["completion"].startswith("<think>")
        assert row["seed"] == sample_seed(7, row["id"], row["sample"])
        assert row["finish"] in ("stop", "length")
        assert 0 < row["num_tokens"] <= 24
    assert len({row["completion"] for row in rows}) > 5


def test_the_prefill_of_the_chat_template_is_part_of_the_completion(opened_guesser, problems, tmp_path):
    call_stage("generate", problems, model=str(opened_guesser), output=tmp_path / "out.arrow", seed=7, **ASK)
    call_stage("grade", tmp_path / "out.arrow", output=tmp_path / "graded.arrow", language=False)
    rows = rows_of(tmp_path / "graded.arrow")
    assert all(row["completion"].count("<think>") == 1 and row["completion"].startswith("<think>") for row in rows)
    assert {row["reason"] for row in rows} >= {"correct", "wrong"}
    assert "no-think" not in {row["reason"] for row in rows}


def test_the_bytes_do_not_depend_on_the_other_sequences(guesser, problems, tmp_path):
    """Slots, order of arrival and interruptions do not move a bit in deterministic mode."""
    options = {**ASK, "samples": 24, "model": str(guesser), "deterministic": True}
    took = seconds_of("generate", problems, output=tmp_path / "whole.arrow", **options)
    kill_and_resume(2, 0.6 * took, "generate", problems, output=tmp_path / "broken.arrow", **options)
    assert (tmp_path / "broken.arrow").read_bytes() == (tmp_path / "whole.arrow").read_bytes()
    assert {path.name for path in tmp_path.iterdir() if "broken" in path.name} == {
        "broken.arrow",
        ".broken.arrow.run.json",
    }


def test_a_prompt_beyond_the_context_is_dropped_and_the_run_continues(guesser, tmp_path):
    data = written(tmp_path / "p.jsonl", [{"prompt": "x" * 600}, {"prompt": "a?"}, {"prompt": ""}])
    out, dropped = tmp_path / "out.jsonl", tmp_path / "dropped.jsonl"
    call_stage("generate", data, model=str(guesser), output=out, dropped=dropped, **ASK)
    found = {row["drop_reason"]: row for row in rows_of(dropped)}
    assert set(found) == {"prompt-too-long", "empty-prompt"}
    assert "does not fit the model's context of 512" in found["prompt-too-long"]["drop_detail"]
    assert found["prompt-too-long"]["prompt"] == "x" * 600
    assert [row["prompt"] for row in rows_of(out)] == ["a?"] * 3


class FilteringServer(BaseHTTPRequestHandler):
    """Keeps back every answer about d, and thinks about the others."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kept_back = body["messages"][-1]["content"] == "d?"
        message = {"content": None if kept_back else "\\boxed{3}", "reasoning_content": None if kept_back else "easy"}
        choice = {"message": message, "finish_reason": "content_filter" if kept_back else "stop"}
        data = json.dumps({"choices": [choice], "usage": {"completion_tokens": 9}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        """Stay quiet."""


def test_refused_completions_are_dropped_and_reasoning_is_kept(problems, tmp_path):
    server = ThreadingHTTPServer(("127.0.0.1", 0), FilteringServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/v1#m"
    call_stage("generate", problems, model=url, output=tmp_path / "out.arrow", dropped=tmp_path / "left.jsonl", **ASK)
    server.shutdown()
    server.server_close()
    assert {row["completion"] for row in rows_of(tmp_path / "out.arrow")} == {"<think>easy</think>\\boxed{3}"}
    left = [json.loads(line) for line in (tmp_path / "left.jsonl").read_text().splitlines()]
    assert [(row["id"], row["drop_reason"]) for row in left] == [
        ("p3", "refused"),
        ("p11", "refused"),
        ("p19", "refused"),
    ]


def test_the_history_has_digests_of_the_model_and_the_system_prompt(guesser, problems, tmp_path):
    prompt = tmp_path / "system.txt"
    for text in ("Be brief.", "Be long."):
        prompt.write_text(text)
        call_stage("generate", problems, model=str(guesser), output=tmp_path / "out.arrow", **ASK | {"system": prompt})
        source = table.read(str(tmp_path / "out.arrow"))
        config = source.chain[-1].config
        assert len(config["model_sha256"]) == 64
        (tmp_path / f"{text}.json").write_text(config["system_sha256"])
    assert (tmp_path / "Be brief..json").read_text() != (tmp_path / "Be long..json").read_text()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"model": ""}, UsageError, "--model is missing"),
        ({"model": "nowhere/at-all"}, EnvironmentFault, "no such folder, and not available from the hub"),
        ({"model": "./nowhere"}, EnvironmentFault, "model ./nowhere: no such folder$"),
        ({"samples": 0}, UsageError, "generate.samples: 0 is not positive"),
        ({"top_p": 0.0}, UsageError, r"generate.top_p: 0.0 is not in \(0, 1\]"),
        ({"deterministic": True, "dtype": "bf16"}, UsageError, "needs --dtype fp32"),
        ({"model": "http://x/v1", "deterministic": True}, UsageError, "--deterministic needs a local model"),
    ],
)
def test_invalid_options_are_refused_first(options, error, message, problems, tmp_path):
    with pytest.raises(error, match=message):
        call_stage("generate", problems, output=tmp_path / "out.arrow", **{"model": "m", **ASK} | options)
    assert not (tmp_path / "out.arrow").exists()


def test_a_table_without_prompts_is_refused(guesser, tmp_path):
    data = written(tmp_path / "p.jsonl", [{"riddle": "a"}])
    with pytest.raises(DataError, match=r"generate: .*lacks column prompt; it has: riddle"):
        call_stage("generate", data, model=str(guesser), output=tmp_path / "out.arrow")
