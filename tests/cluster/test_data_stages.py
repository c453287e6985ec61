"""Data stages on a local Ray: the bytes of one process, also when a process dies meanwhile."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from calling import call_stage, others_slow, start_stage
from scripted_server import scripted_server

from magcli.data import table
from magcli.errors import UsageError

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
ASK = {"samples": 4, "max_tokens": 24, "system": Path("none"), "deterministic": True}


def rows_of(path):
    return [row for batch in table.read(str(path)).rows for row in batch.to_pylist()]


def by_id(rows):
    return sorted(rows, key=lambda row: (row["id"], row.get("drop_reason") or ""))


@pytest.fixture
def problems(tmp_path):
    """Twenty problems, one without an answer, and a line that no one can read."""
    rows = [{"id": f"p{i}", "prompt": f"{'abcdefgh'[i % 8]}?", "answer": "1234"[i % 4]} for i in range(20)]
    rows[4]["answer"] = ""
    lines = [json.dumps(row) for row in rows]
    lines[3:3] = ["{"]
    (tmp_path / "problems.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path / "problems.jsonl"


def test_filter_math_in_shards_makes_the_bytes_of_one_process(guesser, problems, tmp_path, magcli):
    options = {**ASK, "model": str(guesser), "keep": "0.1..0.9"}
    whole, gone = tmp_path / "whole.arrow", tmp_path / "gone.jsonl"
    call_stage("filter-math", problems, output=whole, dropped=gone, **options)
    kept, dropped = tmp_path / "kept.arrow", tmp_path / "dropped.jsonl"
    flags = ["--samples", 4, "--max-tokens", 24, "--system", "none", "--deterministic", "--keep", "0.1..0.9"]
    done = magcli(
        "filter-math",
        problems,
        "--model",
        guesser,
        *flags,
        "--cluster",
        "local",
        "-o",
        kept,
        "--dropped",
        dropped,
        "--json",
    )
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in [*done.stdout.decode().splitlines(), *done.stderr.splitlines()]]
    (end,) = [event for event in events if event["event"] == "done"]
    assert (end["rows_in"], end["dropped"]["broken-json"], end["dropped"]["missing-answer"]) == (21, 1, 1)
    assert kept.read_bytes() == whole.read_bytes()
    assert table.read(str(kept)).chain == table.read(str(whole)).chain
    assert by_id(rows_of(dropped)) == by_id(rows_of(gone))
    assert not [path for path in tmp_path.iterdir() if path.name.endswith((".shards", ".journal", ".lock"))]


def descendants(process):
    """The processes that descend from one, with their command lines."""
    children, lines = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                lines[int(entry.name)] = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    reached, unvisited = {}, [process]
    while unvisited:
        for child in children.get(unvisited.pop(), []):
            reached[child] = lines[child]
            unvisited.append(child)
    return reached


@pytest.mark.parametrize(
    "victim", others_slow(["ray::_work_on_shard", "ray::ServiceActor"], kept=["ray::ServiceActor"])
)
def test_a_killed_process_changes_no_byte(guesser, problems, tmp_path, victim):
    options = {**ASK, "samples": 32, "model": str(guesser), "keep": "0.1..0.9"}
    whole, kept = tmp_path / "whole.arrow", tmp_path / "kept.arrow"
    call_stage("filter-math", problems, output=whole, **options)
    process = start_stage("filter-math", problems, output=kept, cluster="local", **options)
    killed = killed_once(process, victim, tmp_path / ".kept.arrow.shards")
    process.join(240)
    assert killed, "no such process was running while shards were"
    assert process.exitcode == 0
    assert kept.read_bytes() == whole.read_bytes()


def test_a_killed_command_resumes(guesser, problems, tmp_path):
    options = {**ASK, "samples": 32, "model": str(guesser), "keep": "0.1..0.9"}
    whole, kept = tmp_path / "whole.arrow", tmp_path / "kept.arrow"
    call_stage("filter-math", problems, output=whole, **options)
    process = start_stage("filter-math", problems, output=kept, cluster="local", **options)
    journals = tmp_path / ".kept.arrow.shards"
    while process.is_alive() and not list(journals.glob(".kept-*.journal")):
        time.sleep(0.01)
    process.kill()
    process.join()
    assert not kept.exists()
    assert journals.exists(), "what the shards had finished is gone"
    call_stage("filter-math", problems, output=kept, cluster="local", **options)
    assert kept.read_bytes() == whole.read_bytes()
    assert not journals.exists()


def killed_once(process, victim, folder):
    """Kill a process of this name once a shard has begun its journal; returns whether there was one."""
    while process.is_alive():
        if list(folder.glob(".kept-*.journal")):
            for child, line in descendants(process.pid).items():
                if line.startswith(victim):
                    os.kill(child, signal.SIGKILL)
                    return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize(
    ("stage", "name", "options"),
    [("grade", "completions", {"language": False}), ("filter-code", "programs", {"sandbox": "auto"})],
)
def test_stages_without_a_model(tmp_path, stage, name, options):
    data = EXAMPLES / f"{name}.jsonl"
    whole, kept = tmp_path / "whole.arrow", tmp_path / "kept.arrow"
    call_stage(stage, data, output=whole, **options)
    call_stage(stage, data, output=kept, cluster="local", **options)
    assert kept.read_bytes() == whole.read_bytes()


def test_shards_ask_a_server_by_themselves(problems, tmp_path):
    choice = {"message": {"role": "assistant", "content": "<think>a</think>\\boxed{1}"}, "finish_reason": "stop"}
    body = json.dumps({"choices": [choice], "usage": {"completion_tokens": 5}}).encode()
    whole, kept = tmp_path / "whole.arrow", tmp_path / "kept.arrow"
    with scripted_server() as server:
        server.answer = lambda handler: handler.send(body)
        options = {"model": server.url, "samples": 2, "max_tokens": 16, "system": Path("none"), "keep": "0..1"}
        call_stage("filter-math", problems, output=whole, **options)
        asked = server.num_requests
        call_stage("filter-math", problems, output=kept, cluster="local", **options)
    assert asked > 0
    assert server.num_requests == 2 * asked
    assert kept.read_bytes() == whole.read_bytes()


def test_an_error_in_a_shard_is_that_of_the_stage(tmp_path, problems):
    from magcli.errors import EnvironmentFault

    with pytest.raises(EnvironmentFault, match="no-such-model"):
        call_stage(
            "generate", problems, output=tmp_path / "out.arrow", cluster="local", model=str(tmp_path / "no-such-model")
        )


@pytest.mark.parametrize(("inputs", "output", "message"), [(["-"], "out.arrow", "stdin"), ([], "-", "--output")])
def test_streams_are_refused(tmp_path, problems, inputs, output, message):
    given = inputs or [problems]
    target = output if output == "-" else tmp_path / output
    with pytest.raises(UsageError, match=message):
        call_stage("grade", *given, output=target, cluster="local")
