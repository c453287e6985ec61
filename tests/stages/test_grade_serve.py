"""`magcli grade --serve`: the protocols of OpenRLHF and verl, tokens, bad requests, and the end by Ctrl-C."""

import importlib.util
import json
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest
from calling import call_stage

from magcli.errors import EnvironmentFault, UsageError
from magcli.stages.grade import TOKEN, address
from magcli.stages.grade.serve import Server, Verdicts
from magcli.verify import Grader, RewardRule

RIGHT, WRONG = "<think>Two and two.</think>It is \\boxed{4}.", "<think>Hm.</think>It is \\boxed{5}."
QUESTION = "What is 2 + 2?"
SLOW = """
import time

def reward(text, row):
    if "slow" in text:
        time.sleep(60)
    return 1.0
"""


@pytest.fixture(scope="module")
def verdicts():
    with Grader(workers=2) as grader:
        yield Verdicts(grader, RewardRule())


@contextmanager
def serving(answer, token=""):
    server = Server("127.0.0.1", 0, answer, token)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.url
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def openrlhf(*texts, labels=None, prompt=QUESTION):
    """A request as OpenRLHF's executor sends it: the prompt is in the query."""
    queries = [f"{prompt}{text}<|im_end|>" for text in texts]
    return {"query": queries, "prompts": [prompt] * len(texts), "labels": labels or ["4"] * len(texts)}


def test_openrlhf_gets_rewards_scores_and_logs(verdicts):
    with serving(verdicts.answer) as url:
        found = httpx.post(url, json=openrlhf(RIGHT, WRONG, "\\boxed{4}"), timeout=60).json()
    assert found["rewards"] == pytest.approx([1.0, 0.1, 0.0])
    assert found["scores"] == [1.0, 0.0, 0.0]
    assert found["extra_logs"]["correct_anywhere"] == [1.0, 0.0, 1.0]


def test_openrlhf_may_have_cut_or_changed_the_prompt(verdicts):
    chat = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n{RIGHT}<|im_end|>"
    body = {"query": [chat], "prompts": ["another"], "labels": ["4"]}
    assert verdicts.answer(body)["scores"] == [1.0]
    assert verdicts.answer({"query": chat, "prompts": "another", "labels": "4"})["scores"] == 1.0


def test_verl_gets_a_score_for_one_and_for_a_batch(verdicts):
    one = {"data_source": "gsm8k", "solution_str": RIGHT, "ground_truth": "4", "extra_info": {"question": QUESTION}}
    found = verdicts.answer(one)
    assert (found["score"], found["acc"], found["pred"], found["reason"]) == (1.0, 1.0, "4", "correct")
    batch = {"data_sources": ["a", "b"], "solution_strs": [RIGHT, WRONG], "ground_truths": ["4", "4"]}
    assert [each["acc"] for each in verdicts.answer(batch)] == [1.0, 0.0]


def test_the_example_for_verl_asks_the_server(verdicts, monkeypatch):
    path = Path(__file__).parents[2] / "examples" / "verl_reward.py"
    spec = importlib.util.spec_from_file_location("verl_reward", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setenv("MAGCLI_TOKEN", "secret")
    with serving(verdicts.answer, "secret") as url:
        module.URL = url
        assert module.compute_score("gsm8k", RIGHT, "4", {"question": QUESTION})["score"] == 1.0


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "is not JSON"),
        (b"[1]", "a JSON object with query, prompts and labels"),
        (json.dumps(openrlhf(RIGHT, labels=["4", "5"])).encode(), "have one length; these have 1, 1, 2"),
        (json.dumps(openrlhf(RIGHT, labels=[""])).encode(), "a label is empty"),
        (json.dumps({"query": [1], "prompts": [""], "labels": ["4"]}).encode(), "are lists of texts"),
        (json.dumps({"query": ["4"], "prompts": [""], "labels": ["4"]}).encode(), "begins with its prompt"),
        (json.dumps({"solution_str": 1, "ground_truth": "4"}).encode(), "solution_str is a text"),
        (json.dumps({"solution_str": "4", "ground_truth": ["4", "5"]}).encode(), "a label cannot be read"),
    ],
)
def test_a_bad_request_gets_one_line(verdicts, body, said):
    with serving(verdicts.answer) as url:
        response = httpx.post(url, content=body, headers={"Content-Type": "application/json"}, timeout=60)
        after = httpx.post(url, json=openrlhf(RIGHT), timeout=60)
    assert response.status_code == 400
    assert said in response.json()["error"]
    assert "\n" not in response.json()["error"]
    assert after.json()["scores"] == [1.0]


def test_other_requests_are_refused(verdicts):
    with serving(verdicts.answer) as url:
        assert httpx.post(url, content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
        assert httpx.post(url, json=openrlhf(RIGHT), headers={"Host": "example.org"}).status_code == 403
        assert httpx.get(url).status_code == 405
        assert httpx.get(url).json() == {"error": "POST a JSON object"}
        assert httpx.put(url, content=b"{}").json() == {"error": "Unsupported method ('PUT')"}
        connection = HTTPConnection(url.removeprefix("http://"), timeout=60)
        connection.request("POST", "/", headers={"Content-Type": "application/json", "Content-Length": str(1 << 40)})
        assert connection.getresponse().status == 413
        connection.close()


def test_a_token_is_asked_for(verdicts):
    with serving(verdicts.answer, "secret") as url:
        bearer = {"Authorization": "Bearer secret"}
        assert httpx.post(url, json=openrlhf(RIGHT)).status_code == 401
        assert httpx.post(url, json=openrlhf(RIGHT), headers={"Authorization": "Bearer other"}).status_code == 401
        assert httpx.post(url, json=openrlhf(RIGHT), headers={"Authorization": "Basic !"}).status_code == 401
        assert httpx.post(url, json=openrlhf(RIGHT), headers=bearer, timeout=60).status_code == 200
        with_password = url.replace("//", "//magcli:secret@")
        assert httpx.post(with_password, json=openrlhf(RIGHT), timeout=60).status_code == 200


def test_a_text_that_takes_too_long_costs_only_itself(tmp_path):
    source = tmp_path / "slow.py"
    source.write_text(SLOW)
    with Grader(workers=2, deadline=0.5, function=f"{source}:reward") as grader:
        found = Verdicts(grader, RewardRule()).answer(openrlhf(RIGHT, "slow", RIGHT))
    assert found["rewards"] == [1.0, 0.0, 1.0]
    assert found["extra_logs"]["ungraded"] == [0.0, 1.0, 0.0]


def test_an_open_server_needs_a_token(monkeypatch):
    monkeypatch.delenv(TOKEN, raising=False)
    with pytest.raises(UsageError, match="is open to other machines: set a token in MAGCLI_TOKEN"):
        call_stage("grade", serve="0.0.0.0:0")
    with pytest.raises(UsageError, match="no --penalty-end"):
        call_stage("grade", serve="0", penalty_end=8)
    for wrong in ("x", "127.0.0.1", "1:70000", "-1"):
        with pytest.raises(UsageError, match=r"is not \[HOST:\]PORT"):
            call_stage("grade", serve=wrong)
    assert address("8000") == ("127.0.0.1", 8000)
    assert address("[::1]:80") == ("::1", 80)


def test_an_address_in_use_is_one_line(verdicts):
    with serving(verdicts.answer) as url, pytest.raises(EnvironmentFault, match="cannot be bound: Address already"):
        Server("127.0.0.1", int(url.rpartition(":")[2]), verdicts.answer)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_with_a_fitting_line(number):
    command = [sys.executable, "-m", "magcli", "grade", "--serve", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        line = process.stderr.readline()
        url = re.search(r"http://127\.0\.0\.1:\d+", line)[0]
        assert httpx.post(url, json=openrlhf(RIGHT), timeout=60).json()["scores"] == [1.0]
        process.send_signal(number)
        rest = process.stderr.read()
        assert process.wait(60) == 128 + number
        assert rest == f"error: ended by {number.name}; rewards are no longer served\n"
        assert process.stdout.read() == ""
