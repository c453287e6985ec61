"""Runs of a program: inputs, outputs, measurements, and failures of the sandbox."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from magcli.verify.sandbox import Sandbox, open_sandbox
from magcli.verify.sandbox.program import Limits, Outcome, Program, time_waiting

DEFAULT = Limits()


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    return open_sandbox("full")


@pytest.fixture
def python(sandbox: Sandbox) -> Iterator[Program]:
    """A program that executes the first line of stdin."""
    source = b"import os, sys, time\nexec(sys.stdin.buffer.readline())\n"
    with sandbox.program([sandbox.python, "-I", "-S", "-E", "main.py"], {"main.py": source}) as program:
        yield program


def do(program: Program, statement: str, stdin: bytes = b"", limits: Limits = DEFAULT) -> Outcome:
    return program.run(statement.encode() + b"\n" + stdin, limits)


def test_output_and_exit_status_are_separate(python: Program) -> None:
    outcome = do(python, "print(1); print(2, file=sys.stderr); os.write(3, b'three'); sys.exit(4)")
    assert (outcome.status, outcome.code) == ("exited", 4)
    assert (outcome.stdout, outcome.stderr, outcome.report) == (b"1\n", b"2\n", b"three")
    assert 0 < outcome.cpu < 4
    assert 1 << 20 < outcome.memory < 100 << 20


def test_bytes_pass_unchanged(python: Program) -> None:
    content = bytes(range(256)) + b"\r\n\0 trailing  \n\n"
    assert do(python, "sys.stdout.buffer.write(sys.stdin.buffer.read())", content).stdout == content


@pytest.mark.parametrize(
    "statement",
    [
        "print(input() * 2)",
        "print(sys.stdin.read() * 2)",
        "print(open(0).read() * 2)",
        "print(os.read(0, 99).decode() * 2)",
        "print(sys.stdin.buffer.read().decode() * 2)",
        "sys.stdin.buffer.read(); sys.stdin.seek(0); print(sys.stdin.read() * 2)",
    ],
)
def test_stdin_can_be_read_in_any_way(sandbox: Sandbox, statement: str) -> None:
    source = f"import os, sys\n{statement}\n".encode()
    with sandbox.program([sandbox.python, "-I", "-S", "-E", "main.py"], {"main.py": source}) as program:
        assert program.run(b"21").stdout == b"2121\n"


def test_a_large_input_may_be_left_unread(python: Program) -> None:
    content = b"x" * (100 << 20)
    assert do(python, "pass", content).status == "exited"
    counted = do(python, "print(sum(len(part) for part in iter(lambda: os.read(0, 1 << 20), b'')) > 99 << 20)", content)
    assert counted.stdout == b"True\n"


def test_a_million_small_writes_are_one_output(python: Program) -> None:
    outcome = do(python, "[os.write(1, b'x') for _ in range(10**6)]")
    assert outcome.stdout == b"x" * 10**6
    assert outcome.cpu < 4


def test_an_answer_before_a_crash_is_not_a_success(python: Program) -> None:
    outcome = do(python, "print(42, flush=True); os.abort()")
    assert (outcome.status, outcome.code, outcome.stdout) == ("signalled", signal.SIGABRT, b"42\n")


def test_a_program_without_output_exits_normally(python: Program) -> None:
    outcome = do(python, "sys.exit(0)")
    assert (outcome.status, outcome.code, outcome.stdout) == ("exited", 0, b"")


def test_output_up_to_the_limit_is_kept_and_one_byte_more_is_not(python: Program) -> None:
    limits = Limits(output=1000)
    assert do(python, "os.write(1, b'x' * 1000)", limits=limits).status == "exited"
    over = do(python, "os.write(1, b'x' * 1001)", limits=limits)
    assert (over.status, over.stdout) == ("output-limit", b"x" * 1000)


def test_stderr_is_truncated_without_a_fault(python: Program) -> None:
    outcome = do(python, "os.write(2, b'x' * (1 << 20))")
    assert (outcome.status, len(outcome.stderr)) == ("exited", 64 << 10)


def test_a_fraction_of_a_second_is_a_limit(python: Program) -> None:
    outcome = do(python, "[0 for _ in iter(int, 1)]", limits=Limits(cpu=0.3))
    assert outcome.status == "cpu-limit"
    assert 0.3 < outcome.cpu < 0.5


def test_time_below_the_limit_is_allowed(python: Program) -> None:
    """Just below: RLIMIT_CPU counts ticks and would strike too early on a busy machine."""
    statement = "[0 for _ in iter(lambda: time.process_time() < 0.45, False)]"
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        outcome = do(python, statement, limits=Limits(cpu=0.5))
        busy.kill()
    assert outcome.status == "exited", outcome


def test_untouched_memory_is_free(python: Program) -> None:
    statement = "import mmap; mmap.mmap(-1, 900 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)"
    outcome = do(python, statement)
    assert outcome.status == "exited", outcome
    assert outcome.memory < 50 << 20


def test_a_thread_with_a_large_stack_starts(python: Program) -> None:
    """Contest programs give their recursion half a gibibyte and touch little of it."""
    statement = "import threading; threading.stack_size(512 << 20); threading.Thread(target=print, args=[7]).start()"
    assert do(python, statement).stdout == b"7\n"


def test_memory_of_the_caller_does_not_count(python: Program) -> None:
    ballast = bytearray(b"x") * (400 << 20)
    assert do(python, "pass", limits=Limits(memory=50 << 20)).status == "exited"
    assert len(ballast) == 400 << 20


def test_files_are_mounted_at_names_with_folders(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"mounted")
    (tmp_path / "data").chmod(0o644)
    files: dict[str, bytes | Path] = {"a/b/data": tmp_path / "data", "main.py": b"print(open('a/b/data').read())"}
    with sandbox.program([sandbox.python, "-I", "-S", "-E", "/box/main.py"], files) as program:
        assert program.run(b"").stdout == b"mounted\n"


def test_a_missing_file_or_command_is_lost_with_a_message(sandbox: Sandbox, tmp_path: Path) -> None:
    with sandbox.program(["./none"], {}) as program:
        outcome = program.run(b"")
        assert outcome.status == "lost"
        assert b"FileNotFoundError" in outcome.stderr
    with sandbox.program(["/usr/bin/true"], {"data": tmp_path / "none"}) as program:
        outcome = program.run(b"")
        assert outcome.status == "lost"
        assert b"none" in outcome.stderr


def test_a_killed_sandbox_is_lost_and_the_next_run_has_a_new_one(python: Program) -> None:
    assert do(python, "print(1)").stdout == b"1\n"
    killer = threading.Timer(0.5, lambda: os.killpg(_group(python), signal.SIGKILL))
    killer.start()
    assert do(python, "time.sleep(9)").status == "lost"
    killer.join()
    assert do(python, "print(2)").stdout == b"2\n"


@pytest.mark.faults
def test_a_stopped_sandbox_is_lost_and_the_next_run_has_a_new_one(python: Program) -> None:
    assert do(python, "print(1)").stdout == b"1\n"
    os.killpg(_group(python), signal.SIGSTOP)
    assert do(python, "print(1)", limits=Limits(cpu=0.1)).status == "lost"
    assert do(python, "print(2)").stdout == b"2\n"


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel does not count waiting")
def test_waiting_for_a_cpu_is_distinguished_from_sleeping() -> None:
    core = {min(os.sched_getaffinity(0))}
    spins = "import os, sys\nos.sched_setaffinity(0, map(int, sys.argv[1:]))\nwhile True: pass"
    busy = [subprocess.Popen([sys.executable, "-c", spins, *map(str, core)]) for _ in range(3)]
    asleep = subprocess.Popen(["sleep", "600"])
    parent = subprocess.Popen(["sh", "-c", f"{sys.executable} -c '{spins}' {min(core)} & wait"], start_new_session=True)
    try:
        _until(lambda: all(_waited(process.pid) > 0.5 for process in (*busy, parent)))
        before = _waited(asleep.pid)
        _until(lambda: all(_waited(process.pid) > 1.0 for process in (*busy, parent)))
        assert _waited(asleep.pid) == before
    finally:
        for process in (*busy, asleep):
            process.kill()
        os.killpg(parent.pid, signal.SIGKILL)
        for process in (*busy, asleep, parent):
            process.wait()


@pytest.mark.flaky(reruns=2)
def test_a_run_waiting_for_a_cpu_gets_more_time_and_a_sleeping_one_does_not(python: Program) -> None:
    limits = Limits(cpu=0.6)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(6)]
    try:
        with_others = do(python, "[0 for _ in iter(lambda: time.process_time() < 0.5, False)]", limits=limits)
    finally:
        os.sched_setaffinity(0, cores)
        for process in busy:
            process.kill()
            process.wait()
    assert with_others.status == "exited", with_others
    doze = "exec('while True:\\n for _ in range(200000): pass\\n time.sleep(0.09)')"
    alone = do(python, doze, limits=limits)
    assert alone.status == "wall-limit"
    assert limits.wall < alone.wall < limits.max_wall / 2, (
        "about 3 times its limit and a second, twice on a busy machine"
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_program_that_others_kill_or_stop_is_lost(sandbox: Sandbox, number: int) -> None:
    mark = f"magcli-mark-{os.getpid()}-{number}"
    source = {"main.py": b"import time\nif input(): time.sleep(1000)\nprint(42)"}
    with sandbox.program([sandbox.python, "-I", "-S", "-E", "main.py", mark], source) as program:

        def attack() -> None:
            _until(lambda: len(_commands(mark)) > 0)
            os.kill(int(_commands(mark)[0]), number)

        attacker = threading.Thread(target=attack)
        attacker.start()
        assert program.run(b"sleep\n", Limits(cpu=1.0)).status == "lost"
        attacker.join()
        assert program.run(b"\n").stdout == b"42\n"


def test_no_process_is_left_when_the_caller_is_killed(tmp_path: Path) -> None:
    mark = f"magcli-left-{os.getpid()}"
    script = textwrap.dedent(f"""
        from magcli.verify.sandbox import open_sandbox
        sandbox = open_sandbox("full")
        source = b"import time\\nprint(1)\\ntime.sleep(1000)"
        with sandbox.program([sandbox.python, "-I", "-S", "-E", "main.py", "{mark}"], {{"main.py": source}}) as program:
            print("started", flush=True)
            program.run(b"")
    """)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=tmp_path) as caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == b"started\n"
        _until(lambda: bool(_commands(mark)))
        caller.kill()
    _until(lambda: not _commands(mark))


def test_descriptors_and_processes_are_released(sandbox: Sandbox) -> None:
    def count() -> tuple[int, int]:
        children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
        return len(os.listdir("/proc/self/fd")), len(children.read_text().split()) if children.exists() else 0

    before = count()
    for _ in range(5):
        with sandbox.program(["/usr/bin/true"], {"file": b"x"}) as program:
            assert [program.run(b"").code for _ in range(3)] == [0, 0, 0]
        with sandbox.program(["./none"], {}) as program:
            assert program.run(b"").status == "lost"
    assert count() == before


def _waited(pid: int) -> float:
    process = os.pidfd_open(pid)
    try:
        return time_waiting(process)
    finally:
        os.close(process)


def _group(program: Program) -> int:
    assert program._runner is not None
    return program._runner.process.pid


def _commands(mark: str) -> list[str]:
    """Processes whose arguments contain ``mark``, except the shell of a test."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                arguments = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark.encode() in arguments:
                found.append(folder.name)
    return found


def _until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)
