"""Hostile programs in the sandbox: their attempts fail, and the sandbox still judges correctly afterwards.

All of them run one after the other in one sandbox each of ``full`` and ``restricted``.
"""

import errno
import os
import platform
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from magcli.errors import EnvironmentFault
from magcli.verify.sandbox import Limits, Outcome, Program, Sandbox, open_sandbox

SOURCE = Path(__file__).with_name("attacks.py").read_bytes()
DOORS = Path(__file__).with_name("doors.c")
LIMITS = Limits(cpu=1.0, memory=100 << 20, output=1 << 20, processes=8)


@pytest.fixture(scope="module", params=["full", "restricted"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    try:
        return open_sandbox(request.param)
    except EnvironmentFault as fault:
        if request.param == "full":
            raise
        pytest.skip(str(fault))


@pytest.fixture(scope="module")
def shared(sandbox: Sandbox) -> Iterator[Program]:
    with sandbox.program([sandbox.python, "-I", "-S", "-E", "attacks.py"], {"attacks.py": SOURCE}) as program:
        yield program


@pytest.fixture
def program(shared: Program) -> Iterator[Program]:
    """The program of all attacks; after each of them it must give a right answer."""
    yield shared
    assert attempt(shared, "answer") == "42"


def run(program: Program, name: str, argument: object = "", limits: Limits = LIMITS) -> Outcome:
    return program.run(f"{name}\n{argument}\n".encode(), limits)


def attempt(program: Program, name: str, argument: object = "") -> str:
    outcome = run(program, name, argument)
    assert (outcome.status, outcome.code) == ("exited", 0), outcome
    return outcome.stdout.decode().strip()


@pytest.mark.parametrize(
    "name",
    [
        *("fork", "subprocess_", "spawn", "multiprocessing_", "memory_file", "kill_parent", "killpg"),
        *("limit_runner", "nice", "slow_all", "pin", "schedule", "setuid", "chroot", "new_session", "unshare", "mount"),
        *("setns", "trace", "read_memory", "bpf", "io_uring", "userfault", "keys", "perf", "process_file", "watch"),
        *("lock", "type_into_terminal", "dump", "outlive_parent", "shared_segment", "semaphores", "message_queue"),
        *("stop_self", "kill_self", "kill_self_late", "kill_self_timed"),
        *("socketpair_datagram", "send_elsewhere", "send_out_of_band", "pass_descriptor", "listen"),
    ],
)
def test_calls_that_reach_outside_the_program_are_refused(program: Program, name: str) -> None:
    if platform.machine() != "x86_64" and name in ("bpf", "io_uring", "userfault", "keys", "perf"):
        pytest.skip("called by their numbers on x86_64")
    assert attempt(program, name) == "EPERM"


def test_a_pair_of_sockets_carries_bytes(program: Program) -> None:
    """asyncio needs it. Other uses of sockets are among the attempts above."""
    assert attempt(program, "socketpair") == "b'through'"


def test_a_shell_does_not_start(program: Program) -> None:
    assert attempt(program, "shell") == str(127 << 8)


@pytest.mark.parametrize("megabytes", [1, 500])
def test_memory_cannot_be_shared_past_the_limit(program: Program, megabytes: int) -> None:
    assert attempt(program, "shared_memory", megabytes) == "EPERM"


@pytest.mark.parametrize("kind", ["read", "list_"])
def test_files_of_the_machine_are_out_of_reach(program: Program, tmp_path: Path, kind: str) -> None:
    (tmp_path / "secret").write_text("EXPECTED")
    tmp_path.chmod(0o755)
    secret = tmp_path / "secret" if kind == "read" else tmp_path
    assert attempt(program, kind, secret) in ("ENOENT", "EACCES")


@pytest.mark.parametrize(
    "path",
    [
        *("/etc/passwd", "/etc/shadow", "/proc/self/environ", "/proc/1/environ", "/proc/self/maps", "/sys/kernel"),
        *("/dev/mem", "/dev/tty", "/dev/shm", "/home", "/root", "/var/log", "/../etc/passwd", "/usr/../etc/passwd"),
        *("/./etc//passwd", "/box/../etc/passwd", "/run"),
    ],
)
def test_files_of_the_system_are_out_of_reach(program: Program, path: str) -> None:
    kind = "list_" if Path(path).is_dir() else "read"
    found = attempt(program, kind, path)
    if path in program.isolation.prefix:
        assert found in ("EACCES", str([Path(program.isolation.prefix).relative_to(path).parts[0]]))
    else:
        assert found in ("ENOENT", "EACCES")


def test_a_process_outside_is_out_of_reach(program: Program) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as outside:
        for name in ("kill", "queue_signal", "kill_thread"):
            assert attempt(program, name, outside.pid) in ("EPERM", "ESRCH")
        assert attempt(program, "kill", -1) == "EPERM"
        assert outside.poll() is None
        outside.kill()


def test_no_connection_arrives(program: Program, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(tmp_path / "door"))
        local.listen()
        assert attempt(program, "connect", server.getsockname()[1]) == "EPERM"
        assert attempt(program, "connect_unix", tmp_path / "door") == "EPERM"
        for door in (server, local):
            door.settimeout(0.05)
            with pytest.raises(TimeoutError):
                door.accept()


@pytest.mark.parametrize(
    "folder", ["", "/tmp/", "/box/", "/dev/", "/dev/shm/", "/usr/", "/", "/var/tmp/", "/proc/", "/proc/self/fd/"]
)
def test_nothing_can_be_written(program: Program, folder: str) -> None:
    name = f"magcli-attack-{os.getpid()}"
    for kind in ("write", "mkdir", "symlink"):
        assert attempt(program, kind, folder + name) in ("EROFS", "EACCES", "ENOENT", "EPERM")
        assert not Path(folder or ".", name).exists()


def test_the_program_and_the_runner_cannot_be_changed(program: Program) -> None:
    for kind, path in [("write", "attacks.py"), ("write", "/runner"), ("remove", "attacks.py"), ("remove", "/runner")]:
        assert attempt(program, kind, path) in ("EROFS", "EACCES", "EPERM", "ENOENT")
    assert attempt(program, "rename_self") == "EPERM"
    assert attempt(program, "chmod_self") == "EPERM"


def test_a_program_sees_three_files_and_the_report(program: Program) -> None:
    assert attempt(program, "descriptors") == "[0, 1, 2, 3]"


def test_the_environment_has_a_few_fixed_names(program: Program) -> None:
    os.environ["MAGCLI_SECRET"] = "EXPECTED"
    names = attempt(program, "environment")
    assert "MAGCLI_SECRET" not in names
    fixed = ("HOME", "LANG", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PATH", "PYTHONDONTWRITEBYTECODE")
    assert names == str([*fixed, "PYTHONHASHSEED", "TMPDIR"])


def test_a_program_runs_as_nobody(program: Program) -> None:
    uid, gid, groups = eval(attempt(program, "own_number"))
    assert (uid != 0 and gid != 0) or os.geteuid() != 0
    assert groups in ([], [gid]) or os.geteuid() != 0


def test_inputs_of_other_tests_are_not_accessible(program: Program) -> None:
    secret = secrets.token_hex(16)
    assert attempt(program, "answer", secret) == "42"
    looked, found = eval(attempt(program, "collected", secret[:16]))
    assert looked
    assert found, "what it was told itself it finds"
    assert secret not in found


def test_stdin_cannot_be_changed(program: Program) -> None:
    assert attempt(program, "write_stdin") == "EBADF"
    assert attempt(program, "enlarge_stdin") in ("EINVAL", "EBADF", "EPERM")
    assert attempt(program, "map_stdin") == "EACCES"


def test_two_runs_share_nothing(program: Program) -> None:
    run(program, "flood")
    assert attempt(program, "read_stdout") == "b''"
    run(program, "flood_errors")
    run(program, "answer", "a long argument that the next stdin does not cover")
    assert attempt(program, "read_named", "x") == str([b"read_named\nx\n", b"", b""])


def test_the_names_of_streams_reveal_nothing(program: Program) -> None:
    for path in ("/proc", "/proc/self", "/proc/self/fd", "/proc/1/fd", "/dev/fd"):
        assert attempt(program, "list_", path) in ("ENOENT", "EACCES")
    for path in ("/proc/self/fd/3", "/dev/fd/3", "/proc/1/fd/0", "/proc/1/fd/3"):
        assert attempt(program, "read", path) in ("ENOENT", "EACCES", "b''")
    assert attempt(program, "remove_named_stdin") in ("EPERM", "EACCES")
    assert run(program, "run_output").stdout.endswith((b"EACCES\n", b"ETXTBSY\n"))
    if program.isolation.level == "full":
        assert attempt(program, "write_named_stdin") == "EACCES"


def test_threads_are_counted(program: Program) -> None:
    started = int(attempt(program, "threads"))
    assert started >= LIMITS.processes
    if program.isolation.level == "full" or os.geteuid() == 0:
        assert started == LIMITS.processes


@pytest.mark.parametrize("name", ["allocate", "hoard", "forget"])
def test_memory_is_limited_by_its_peak(program: Program, name: str) -> None:
    outcome = run(program, name, 150)
    assert outcome.status == "memory-limit"
    assert LIMITS.memory < outcome.memory <= LIMITS.memory + (1 << 30)


def test_memory_below_the_limit_is_allowed(program: Program) -> None:
    outcome = run(program, "allocate", 80)
    assert outcome.status == "exited"
    assert 80 << 20 < outcome.memory < LIMITS.memory


def test_an_allocation_beyond_all_bounds_is_refused(program: Program) -> None:
    assert attempt(program, "allocate", 1 << 12) == "MemoryError"


def test_limits_cannot_be_raised(program: Program) -> None:
    outcome = run(program, "raise_limits")
    assert b"ValueError" in outcome.stderr or outcome.stdout == b"EPERM\n", outcome


@pytest.mark.parametrize("name", ["spin", "spin_deaf", "spin_together", "forget_time"])
def test_cpu_time_is_limited_over_all_threads(program: Program, name: str) -> None:
    limits = Limits(cpu=0.4, processes=8)
    outcome = run(program, name, limits=limits)
    assert outcome.status == "cpu-limit"
    assert limits.cpu < outcome.cpu < limits.cpu + 0.3


def test_a_limit_on_the_stack_may_be_set(program: Program) -> None:
    assert attempt(program, "more_stack") == "None"


@pytest.mark.parametrize("name", ["sleep", "sleep_silently"])
def test_the_wall_clock_limit_ends_idle_programs(program: Program, name: str) -> None:
    outcome = run(program, name, limits=Limits(cpu=0.2))
    assert outcome.status == "wall-limit"
    assert 1.4 <= outcome.wall < 4


@pytest.mark.parametrize("name", ["flood", "flood_errors", "flood_report"])
def test_output_is_truncated(program: Program, name: str) -> None:
    outcome = run(program, name)
    assert outcome.status == "output-limit"
    assert max(len(outcome.stdout), len(outcome.stderr), len(outcome.report)) <= LIMITS.output
    assert len(outcome.stderr) <= 64 << 10
    assert outcome.cpu < 0.5


def test_a_sparse_file_is_refused(program: Program) -> None:
    assert run(program, "huge_stdout").status in ("exited", "signalled")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the other doors to the kernel are those of x86_64")
@pytest.mark.parametrize(
    ("attack", "ended"),
    [
        ("int80", ("signalled", signal.SIGSYS)),
        ("x32", ("signalled", signal.SIGSYS)),
        ("fork", ("exited", errno.EPERM)),
        ("vfork", ("exited", errno.EPERM)),
        ("clone3", ("exited", errno.ENOSYS)),
        ("namespace", ("exited", errno.EPERM)),
        ("shared", ("exited", errno.EPERM)),
        ("assert", ("signalled", signal.SIGABRT)),
    ],
)
def test_other_system_call_interfaces_are_refused(
    sandbox: Sandbox, doors: Path, attack: str, ended: tuple[str, int]
) -> None:
    with sandbox.program(["./doors", attack], {"doors": doors}) as program:
        outcome = program.run(b"", LIMITS)
    assert (outcome.status, outcome.code) == ended, outcome
    assert b"open" not in outcome.stdout


@pytest.fixture(scope="module")
def doors(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("doors") / "doors"
    limits = Limits(cpu=10, memory=1 << 30, output=16 << 20, processes=32)
    files = {"doors.c": DOORS.read_bytes()}
    outcome = sandbox.build(["gcc", "-O1", "doors.c", "-o", "doors"], files, "doors", limits=limits, into=made)
    assert outcome.status == "exited", outcome
    assert outcome.code == 0, outcome
    return made


@pytest.mark.parametrize(("name", "number"), [("abort", 6), ("crash", 11)])
def test_a_crash_reports_its_signal(program: Program, name: str, number: int) -> None:
    outcome = run(program, name)
    assert (outcome.status, outcome.code) == ("signalled", number)


def test_endless_recursion_ends(program: Program) -> None:
    assert run(program, "recurse", limits=Limits(cpu=0.5)).status in ("memory-limit", "signalled", "cpu-limit")


def test_a_program_has_no_children_to_wait_for(program: Program) -> None:
    assert attempt(program, "wait_for_nothing") == "ECHILD"


def test_concurrent_sandboxes_do_not_interfere(sandbox: Sandbox) -> None:
    """Four at a time, each with its maximum of threads, each counted separately."""
    found: list[str] = []

    def attack() -> None:
        argv = [sandbox.python, "-I", "-S", "-E", "attacks.py"]
        with sandbox.program(argv, {"attacks.py": SOURCE}) as program:
            found.extend([attempt(program, "threads"), attempt(program, "answer")])

    workers = [threading.Thread(target=attack) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(found) == sorted([str(LIMITS.processes), "42"] * 4) or sandbox.level == "restricted"
    assert found.count("42") == 4
