"""Real shell pipes, signals, locks and full disks."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from forking import magcli_for_scripts

from magcli.data import durable, table
from magcli.errors import EnvironmentFault, UsageError


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory):
    """Run a script of the shell in a folder, with ``magcli`` on the path."""
    folder = tmp_path_factory.mktemp("program")
    magcli_for_scripts(folder)
    path = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}

    def run(script: str, folder: Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(["bash", "-c", script], cwd=folder, env=path, capture_output=True, text=True, timeout=240)

    return run


def problems(place: Path, count: int) -> Path:
    place.write_text("".join(json.dumps({"id": str(i), "text": f"{i:x}" * 40}) + "\n" for i in range(count)))
    return place


def test_a_pipe_that_passes_every_format_gives_the_same_bytes(tmp_path: Path, shell) -> None:
    problems(tmp_path / "a.jsonl", 3000)
    done = shell(
        "magcli convert a.jsonl | magcli convert -o b.parquet && magcli convert b.parquet -o c.jsonl"
        " && magcli convert c.jsonl -o d && cat c.jsonl | magcli convert -o e.csv"
        " && magcli convert d e.csv -o f.jsonl",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "c.jsonl").read_bytes() == (tmp_path / "a.jsonl").read_bytes()
    assert (tmp_path / "f.jsonl").read_bytes() == 2 * (tmp_path / "a.jsonl").read_bytes()


def test_head_ends_a_pipe_without_an_error(tmp_path: Path, shell) -> None:
    problems(tmp_path / "a.jsonl", 20_000)
    done = shell("magcli convert a.jsonl | head -c1 >/dev/null; echo ${PIPESTATUS[0]}", tmp_path)
    assert done.stdout == "141\n"
    assert done.stderr == ""
    done = shell("magcli show a.jsonl --limit 0 | head -n1; echo ${PIPESTATUS[0]}", tmp_path)
    assert done.stdout.splitlines()[-1] == "141"
    assert done.stderr == ""


def test_a_command_that_fails_in_a_pipe_leaves_no_output(tmp_path: Path, shell) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n')
    done = shell("magcli convert a.jsonl --columns none | magcli convert -o b.arrow; echo ${PIPESTATUS[@]}", tmp_path)
    assert done.stdout == "3 3\n"
    assert "stdin is empty" in done.stderr
    assert not (tmp_path / "b.arrow").exists()


def test_a_named_pipe_is_a_table(tmp_path: Path, shell) -> None:
    problems(tmp_path / "a.jsonl", 10)
    program = f"{sys.executable} -m magcli"
    done = shell(f"{program} convert <({program} convert a.jsonl) <(cat a.jsonl) -o b.jsonl", tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "b.jsonl").read_bytes() == 2 * (tmp_path / "a.jsonl").read_bytes()


def test_a_table_that_an_option_names_may_be_a_pipe(tmp_path: Path, shell) -> None:
    """It is read twice: for its digest and for its rows."""
    rows = [{"prompt": f"Compute {i}+1.", "answer": str(i + 1)} for i in range(3)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    program = f"{sys.executable} -m magcli"
    against = f"--against <(head -n1 a.jsonl) --against <({program} convert a.jsonl --limit 2)"
    done = shell(f"{program} clean-math <(cat a.jsonl) {against} -o b.jsonl", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "dropped 2 (contaminated 2)" in done.stderr
    assert not [path.name for path in tmp_path.iterdir() if path.name.endswith(".tmp")]


# ---- two writers ----

HOLD = """
import sys
from pathlib import Path
from magcli.data import durable
from magcli.errors import EnvironmentFault, UsageError
try:
    with durable.locked(Path(sys.argv[1])):
        print("won", flush=True)
        sys.stdin.read()
except UsageError as error:
    print("lost", error, flush=True)
"""


def hold(output: Path) -> "subprocess.Popen[str]":
    """Lock an output until stdin is closed."""
    command = [sys.executable, "-c", HOLD, str(output)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_the_second_writer_fails_at_once_and_names_the_first(tmp_path: Path, magcli) -> None:
    problems(tmp_path / "a.jsonl", 3)
    with hold(tmp_path / "out.arrow") as first:
        try:
            assert first.stdout.readline() == "won\n"
            second = magcli("convert", tmp_path / "a.jsonl", "-o", tmp_path / "out.arrow")
            assert first.poll() is None
        finally:
            first.kill()
    assert second.returncode == 2, "the second does not wait for the first"
    assert f"process {first.pid} on {os.uname().nodename} since" in second.stderr


def test_one_of_several_writers_that_start_together_wins(tmp_path: Path) -> None:
    for start in range(4):
        writers = [hold(tmp_path / f"out-{start}") for _ in range(4)]
        lines = [writer.stdout.readline() for writer in writers]
        for writer in writers:
            writer.communicate(timeout=400)
        winner = [writer.pid for writer, text in zip(writers, lines, strict=True) if text.startswith("won")]
        assert len(winner) == 1, lines
        assert sum(f"process {winner[0]} " in text for text in lines) == 3
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_dead_processes_are_removed(tmp_path: Path) -> None:
    output = tmp_path / "out[1].arrow"
    with hold(output) as first:
        assert first.stdout.readline() == "won\n"
        first.kill()
    dead = tmp_path / f".{output.name}.{first.pid}.tmp"
    dead.write_text("half")
    (tmp_path / f".{output.name}.{first.pid}.old.tmp").mkdir()
    other = tmp_path / f".{output.name}.x.{first.pid}.tmp"
    other.write_text("of another output")
    with durable.locked(output), durable.atomic_file(output) as file:
        file.write(b"whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([output.name, other.name])


def test_a_lock_is_released_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="x"), durable.locked(tmp_path / "out"):
        raise ValueError("x")
    with durable.locked(tmp_path / "out"), pytest.raises(UsageError), durable.locked(tmp_path / "out"):
        pass
    assert list(tmp_path.iterdir()) == []


# ---- signals ----


def slow_generate(tmp_path: Path, model: Path) -> "subprocess.Popen[str]":
    rows = [{"id": f"p{i}", "prompt": f"{i}+1?", "answer": "1"} for i in range(2000)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "s.txt").write_text("Think.")
    options = ["--deterministic", "--max-tokens", "64", "--slots", "8", "--system", "s.txt", "-o", "out.arrow"]
    return subprocess.Popen(
        [sys.executable, "-m", "magcli", "generate", "p.jsonl", "--model", str(model), *options],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_stage_in_seconds_and_keeps_finished_rows(
    tmp_path: Path, tiny_model_dir: Path, number: signal.Signals
) -> None:
    process = slow_generate(tmp_path, tiny_model_dir)
    journal = tmp_path / ".out.arrow.journal"
    deadline = time.monotonic() + 90
    while (not journal.exists() or journal.stat().st_size < 5000) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    began = time.monotonic()
    _, errors = process.communicate(timeout=400)
    assert time.monotonic() - began < 5
    assert process.returncode == 128 + number
    assert "Traceback" not in errors
    assert f"ended by {number.name}" in errors.splitlines()[-1]
    assert journal.stat().st_size >= 5000
    assert sorted(path.name for path in tmp_path.iterdir()) == [journal.name, "p.jsonl", "s.txt"]
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


BEGUN = """
import signal
signal.signal(signal.SIGINT, signal.SIG_DFL)
print("begun", flush=True)
from magcli.__main__ import main
main()
"""
"""The command line, saying when its own first step, which is the default for SIGINT, has been done."""


def test_an_interrupt_at_any_instant_leaves_no_traceback(tmp_path: Path) -> None:
    problems(tmp_path / "a.jsonl", 20_000)
    seed = random.SystemRandom().randrange(10**6)
    print("seed", seed)
    draw = random.Random(seed)
    for round in range(8):
        number = signal.SIGINT if round % 2 else signal.SIGTERM
        process = subprocess.Popen(
            [sys.executable, "-c", BEGUN, "convert", "a.jsonl", "-o", "out.parquet", "--restart"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout.readline() == "begun\n"
        time.sleep(draw.uniform(0.0, 0.9))
        process.send_signal(number)
        _, errors = process.communicate(timeout=400)
        assert process.returncode in (0, 128 + number, -number)
        assert "Traceback" not in errors
        assert not [path.name for path in tmp_path.iterdir() if path.name.endswith((".tmp", ".lock"))] or errors == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_within_exec_does_not_change_the_exit_code(number: signal.Signals) -> None:
    program = f"""
import sys
from magcli.command import EndedBySignal, signals_passed_on
try:
    with signals_passed_on():
        exec("import signal; signal.raise_signal({int(number)})")
except EndedBySignal as ended:
    sys.exit(128 + ended.signal)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (128 + number, "")


# ---- full disks ----


@pytest.mark.parametrize("kind", [".arrow", ".feather", ".parquet", ".jsonl", ".csv", ""])
def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, magcli, kind: str) -> None:
    problems(tmp_path / "a.jsonl", 3000)
    before = sorted(tmp_path.iterdir())
    done = magcli("convert", tmp_path / "a.jsonl", "-o", tmp_path / f"out{kind}", largest=20_000)
    assert done.returncode == 4, done.stderr
    assert f"cannot write {tmp_path / 'out'}{kind}: File too large" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert sorted(tmp_path.iterdir()) == before
    assert magcli("convert", tmp_path / "a.jsonl", "-o", tmp_path / f"out{kind}").returncode == 0


def test_a_resumable_stage_resumes_after_a_full_disk(tmp_path: Path, magcli) -> None:
    rows = [{"prompt": "1+1?", "answer": "2", "completion": "x" * 50} for _ in range(1000)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    full = magcli("grade", tmp_path / "a.jsonl", "-o", tmp_path / "out.arrow", largest=30_000)
    assert full.returncode == 4, full.stderr
    assert "File too large" in full.stderr
    assert "Traceback" not in full.stderr
    assert not (tmp_path / "out.arrow").exists()
    assert (tmp_path / ".out.arrow.journal").stat().st_size > 10_000
    assert magcli("grade", tmp_path / "a.jsonl", "-o", tmp_path / "out.arrow").returncode == 0
    assert magcli("grade", tmp_path / "a.jsonl", "-o", tmp_path / "whole.arrow").returncode == 0
    assert (tmp_path / "out.arrow").read_bytes() == (tmp_path / "whole.arrow").read_bytes()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    "command", ["convert a.jsonl", "show a.jsonl", "show a.jsonl --stats", "report .", "convert a.jsonl --dry-run"]
)
def test_stdout_on_a_full_disk_is_an_error(tmp_path: Path, shell, magcli, command: str) -> None:
    problems(tmp_path / "a.jsonl", 3000)
    assert magcli("convert", "a.jsonl", "-o", "b.arrow", cwd=tmp_path).returncode == 0
    done = shell(f"magcli {command} > /dev/full", tmp_path)
    assert done.returncode == 4
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_output_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "out.arrow"
    with pytest.raises(EnvironmentFault, match=f"cannot write {place}"), durable.locked(place):
        pass


def test_a_stage_that_fails_keeps_the_older_output(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64())])
    for name in ("old.arrow", "old.jsonl", "old"):
        with table.write(str(tmp_path / name), schema, "{}") as sink:
            sink.finish(())
        with contextlib.suppress(ZeroDivisionError), table.write(str(tmp_path / name), schema, "{}") as sink:
            sink.write(pa.RecordBatch.from_pydict({"a": [1]}, schema=schema))
            raise ZeroDivisionError
        assert sum(batch.num_rows for batch in table.read(str(tmp_path / name)).rows) == 0
    hidden = {path.name for path in tmp_path.iterdir() if path.name.startswith(".")}
    assert hidden == {".old.jsonl.manifest.json"}, "no temporary file is left"


def test_a_model_behind_a_url_needs_no_torch(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "x"}\n')
    script = (
        "import contextlib, sys; from magcli.cli import app; from magcli.errors import EnvironmentFault\n"
        "with contextlib.suppress(EnvironmentFault):\n"
        "    app(sys.argv[1:], standalone_mode=False)\n"
        "print({'torch', 'transformers', 'sympy', 'datasets'} & set(sys.modules))"
    )
    command = ["generate", "p.jsonl", "--model", "http://127.0.0.1:9/v1", "--deadline", "1", "-o", "c.arrow"]
    done = subprocess.run([sys.executable, "-c", script, *command], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr
