"""kill -9 at any instant: the same command again resumes, recomputes nothing finished, ends in the same bytes."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import kills
import pytest


@pytest.fixture(scope="session")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 problems, some of them bad rows."""
    place = tmp_path_factory.mktemp("problems") / "problems.jsonl"
    rows = [{"id": f"p{i}", "prompt": f"{i}+1?", "answer": str(i + 1)} for i in range(400)]
    rows[7]["answer"], rows[40]["prompt"] = "", "\0"
    place.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (place.parent / "system.txt").write_text("Think.")
    return place


@pytest.fixture(scope="session")
def completions(problems: Path) -> Path:
    place = problems.with_name("completions.jsonl")
    texts = ["<think>so</think>\\boxed{%d}" % n for n in range(20)]  # noqa: UP031
    rows = [
        {"id": f"p{i}", "prompt": "1+1?", "answer": str(i % 7), "completion": texts[i % 20], "num_tokens": 9}
        for i in range(6000)
    ]
    place.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return place


def generating(problems: Path, model: Path):
    options = ["--model", model, "--deterministic", "--max-tokens", 48, "--samples", 2, "--slots", 8]
    system = ["--system", problems.with_name("system.txt")]
    return lambda place: [
        *("generate", problems, *options, *system),
        *("-o", place / "out.arrow", "--dropped", place / "dropped.jsonl"),
    ]


def filtering(problems: Path, model: Path):
    options = ["--model", model, "--deterministic", "--max-tokens", 24, "--samples", 2, "--slots", 8]
    system = ["--system", problems.with_name("system.txt")]
    return lambda place: [
        *("filter-math", problems, "--allow-empty", *options, *system),
        *("-o", place / "out.parquet", "--dropped", place / "dropped.arrow"),
    ]


def grading(completions: Path):
    return lambda place: ["grade", completions, "-o", place / "out.jsonl"]


def cleaning(problems: Path):
    """Rows that share ids, most of them dropped."""
    rows = []
    for number in range(20_000):
        prompt = f"Prove that {number} is a number." if number % 3 else f"What is {number}+1?"
        rows.append({"id": f"p{number % 500}", "prompt": prompt, "answer": str(number + 1)})
    place = problems.with_name("repeated.jsonl")
    place.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return lambda folder: ["clean-math", place, "-o", folder / "out.arrow", "--dropped", folder / "dropped.jsonl"]


def check(stories: list[kills.Story], least: int) -> None:
    assert sum(story.kills for story in stories) >= least
    print("units recorded after each kill:", [story.progress for story in stories])


@pytest.mark.faults
def test_generate_survives_five_kills(problems: Path, tiny_model_dir: Path, tmp_path: Path) -> None:
    command = generating(problems, tiny_model_dir)
    check(kills.survive(command, ["out.arrow", "dropped.jsonl"], tmp_path, kills=5, seed=kills.fresh_seed()), 5)


@pytest.mark.faults
def test_grade_survives_five_kills(completions: Path, tmp_path: Path) -> None:
    check(kills.survive(grading(completions), ["out.jsonl"], tmp_path, kills=5, seed=kills.fresh_seed()), 5)


@pytest.mark.faults
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("stage", ["generate", "filter-math", "clean-math", "grade"])
def test_a_stage_survives_fifty_kills(
    problems: Path, completions: Path, tiny_model_dir: Path, tmp_path: Path, stage: str
) -> None:
    command, outputs = {
        "generate": (generating(problems, tiny_model_dir), ["out.arrow", "dropped.jsonl"]),
        "filter-math": (filtering(problems, tiny_model_dir), ["out.parquet", "dropped.arrow"]),
        "clean-math": (cleaning(problems), ["out.arrow", "dropped.jsonl"]),
        "grade": (grading(completions), ["out.jsonl"]),
    }[stage]
    check(kills.survive(command, outputs, tmp_path, kills=50, seed=kills.fresh_seed()), 50)


# ---- what is computed, counted from outside ----


class Server(ThreadingHTTPServer):
    """An OpenAI-compatible server that answers slowly and counts what it is asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: Counter[int] = Counter()


class Handler(BaseHTTPRequestHandler):
    """Answers with the seed that it was asked with."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """The list of models."""
        self._reply({"data": [{"id": "echo"}]})

    def do_POST(self) -> None:
        """One completion, a little later."""
        seed = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["seed"]
        self.server.asked[seed] += 1
        threading.Event().wait(0.02)
        message = {"role": "assistant", "content": f"seed {seed}"}
        self._reply({"choices": [{"message": message, "finish_reason": "stop"}], "usage": {"completion_tokens": 3}})

    def _reply(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True


@pytest.fixture
def server() -> Iterator[Server]:
    serving = Server()
    thread = threading.Thread(target=serving.serve_forever, daemon=True)
    thread.start()
    yield serving
    serving.shutdown()
    serving.server_close()


def test_finished_requests_are_not_repeated(problems: Path, server: Server, tmp_path: Path) -> None:
    slots, most = 2, 3
    few = tmp_path / "few.jsonl"
    few.write_text("".join(problems.read_text().splitlines(keepends=True)[:100]))
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"

    def command(place: Path) -> list[object]:
        return ["generate", few, "--model", url, "--slots", slots, "-o", place / "out.arrow"]

    kills.run_whole(command(tmp_path / "count"))
    units = server.asked.total()
    server.asked.clear()
    stories = kills.survive(command, ["out.arrow"], tmp_path, kills=most, seed=kills.fresh_seed())
    rounds = 1 + len(stories)
    in_flight = 2 * slots
    assert rounds * units <= server.asked.total() <= rounds * units + in_flight * most
    assert set(server.asked.values()) <= set(range(rounds, rounds + most + 1))
