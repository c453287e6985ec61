"""A limit on memory, open files or processes is one line and exit code 4 wherever it is felt, or nobody notices it."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from magcli.errors import EnvironmentFault
from magcli.run.limits import NEEDED, NEEDED_FOR_TORCH, exhausted, exhausted_by, memory_fault

MODEL = Path(__file__).parents[2] / "examples" / "model"
ROW = {"id": "p1", "prompt": "?", "answer": "5", "completion": "<think>a</think>\\boxed{5}"}
COMMANDS = {
    "convert": "convert a.jsonl -o c.arrow",
    "grade": "grade a.jsonl --no-language -o c.arrow",
    "generate": f"generate a.jsonl --model {MODEL} --system none --max-tokens 4 -o c.arrow",
    "help": "--help",
}


def limited(folder: Path, limit: int, arguments: str) -> "subprocess.CompletedProcess[str]":
    """The command line under a limit on its address space in bytes."""
    (folder / "a.jsonl").write_text(json.dumps(ROW) + "\n")
    command = f"ulimit -v {limit >> 10}; {sys.executable} -m magcli {arguments}"
    return subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=240)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("mebibytes", [40, 100, 200, 300, 500])
def test_a_limit_that_is_too_low_for_any_command_is_refused(tmp_path: Path, command: str, mebibytes: int) -> None:
    done = limited(tmp_path, mebibytes << 20, COMMANDS[command])
    assert done.returncode == 4, done.stderr
    (line,) = done.stderr.splitlines()
    limits = f"{mebibytes} MiB, and magcli needs {NEEDED >> 20}"
    assert line == f"error: the limit on this process's memory is {limits}; raise it (ulimit -v)"
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize("command", COMMANDS)
def test_pytorch_needs_more(tmp_path: Path, command: str) -> None:
    done = limited(tmp_path, NEEDED, COMMANDS[command])
    assert done.returncode == (4 if command == "generate" else 0), done.stderr
    if command == "generate":
        assert done.stderr.splitlines() == [
            "error: the limit on this process's memory is 704 MiB, and PyTorch needs 1,536; raise it (ulimit -v)"
        ]
    assert limited(tmp_path, NEEDED_FOR_TORCH, COMMANDS[command]).returncode == 0


def test_verdicts_are_the_same_under_a_limit_below_that_of_the_workers(tmp_path: Path) -> None:
    limited(tmp_path, 1 << 30, "grade a.jsonl --no-language -o c.jsonl")
    assert json.loads((tmp_path / "c.jsonl").read_text())["reason"] == "correct"


def test_running_out_of_memory_in_the_middle_is_one_line(tmp_path: Path) -> None:
    line = json.dumps(ROW | {"prompt": "x" * (1 << 20)}) + "\n"
    (tmp_path / "big.jsonl").write_text(line * 350)
    done = limited(tmp_path, NEEDED, "convert big.jsonl --sort id -o c.arrow")  # which needs all rows at once
    assert done.returncode == 4, done.stderr[-2000:]
    assert len(done.stderr.splitlines()) == 1
    assert "memory" in done.stderr
    assert not (tmp_path / "c.arrow").exists()


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:128] DefaultCPUAllocator: can't allocate memory: you tried"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        OSError(12, "Cannot allocate memory"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_that_mean_out_of_memory_say_so(error: Exception) -> None:
    fault = memory_fault(error)
    assert isinstance(fault, EnvironmentFault)
    assert str(fault).startswith("out of memory; ")
    assert memory_fault(ValueError("another")) is None


@pytest.mark.parametrize("open_files", [6, 10, 12, 14])
def test_too_few_open_files_end_a_stage_instead_of_leaving_it_waiting(tmp_path: Path, open_files: int) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(ROW) + "\n")
    command = f"ulimit -n {open_files}; {sys.executable} -m magcli grade a.jsonl --no-language -o c.arrow"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=400)
    assert done.returncode == 4, done.stderr
    assert done.stderr.splitlines()[-1].endswith(
        "this process may have no more open files; raise the limit (ulimit -n), or use fewer --workers"
    )
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "c.arrow").exists()


PYTHON = "<think>a</think>\n```python\nprint(int(input()) * 2)\n```\n"
CPP = "<think>a</think>\n```cpp\n#include <iostream>\nint main() { int a; std::cin >> a; std::cout << a * 2; }\n```\n"
UNUSED_ID = 54321
"""The id of a user that has no processes; the kernel counts those of root, but does not limit them."""


def grade(folder: Path, limit: str, completion: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Grade one program under a limit, which is a command that runs another."""
    row = {"id": "p", "kind": "code", "prompt": "?", "tests": [{"input": "1\n", "output": "2\n"}]}
    (folder / "a.jsonl").write_text(json.dumps(row | {"completion": completion}) + "\n")
    words = [*limit.split(), sys.executable, "-m", "magcli", "grade", "a.jsonl", "--no-language", "-q", *options]
    environment = os.environ | {"HOME": str(folder), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        [*words, "-o", "c.jsonl"], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )


def ends_well(done: subprocess.CompletedProcess[str], folder: Path, what: str) -> bool:
    """Whether a program was accepted; if not, the stage has ended with one line that names what is exhausted."""
    output = folder / "c.jsonl"
    if done.returncode == 0:
        assert json.loads(output.read_text())["reason"] == "accepted", output.read_text()
        return True
    lines = [line for line in done.stderr.splitlines() if "jemalloc" not in line]  # pyarrow's allocator
    assert (done.returncode, len(lines)) == (4, 1), done.stderr
    assert what in lines[0]
    assert not output.exists()
    return False


@pytest.mark.flaky(reruns=2)  # a compiler has ten seconds
@pytest.mark.parametrize("language", ["python", "cpp"])
def test_too_few_open_files_end_a_stage_that_judges_programs(tmp_path: Path, language: str) -> None:
    completion = {"python": PYTHON, "cpp": CPP}[language]
    files = "this process may have no more open files; raise the limit (ulimit -n)"
    assert not ends_well(grade(tmp_path, "prlimit --nofile=10", completion), tmp_path, files)
    assert not ends_well(grade(tmp_path, "prlimit --nofile=17", completion), tmp_path, files)
    assert ends_well(grade(tmp_path, "prlimit --nofile=64", completion), tmp_path, files)


def limit_processes(number: int) -> str:
    """A command that lets a command have so many processes and threads; root's are those of an unused user."""
    limit = f"prlimit --nproc={number}"
    if os.getuid():
        return limit
    rights = "+dac_read_search,+dac_override"  # to reach an interpreter under /root
    user = f"setpriv --reuid={UNUSED_ID} --regid={UNUSED_ID} --clear-groups"
    return f"{user} --inh-caps={rights} --ambient-caps={rights} {limit}"


def can_limit_processes() -> bool:
    try:
        return subprocess.run([*limit_processes(1).split(), "true"], capture_output=True).returncode == 0
    except OSError:
        return False


PROCESSES = "no more processes or threads can be started; raise the limit (ulimit -u)"
needs_limit = pytest.mark.skipif(not can_limit_processes(), reason="processes cannot be limited here")


@needs_limit
def test_not_even_one_process_is_one_line(tmp_path: Path) -> None:
    assert not ends_well(grade(tmp_path, limit_processes(1), PYTHON), tmp_path, PROCESSES)


@needs_limit
@pytest.mark.skipif(os.getuid() != 0, reason="the processes of this user count too")
@pytest.mark.parametrize("language", ["python", "cpp"])
def test_too_few_processes_never_change_a_verdict(tmp_path: Path, language: str) -> None:
    """A compiler whose processes cannot be started is not an error of the program."""
    completion = {"python": PYTHON, "cpp": CPP}[language]
    ends = [
        ends_well(
            grade(tmp_path, limit_processes(number), completion, "--sandbox", "restricted", "--restart"),
            tmp_path,
            PROCESSES,
        )
        for number in (2, 9, 60)
    ]
    assert not ends[0]
    assert ends[-1]


def test_a_limit_on_processes_is_named() -> None:
    for error in (BlockingIOError(errno.EAGAIN, "unavailable"), RuntimeError("can't start new thread")):
        assert "no more processes or threads can be started; raise the limit (ulimit -u)" in str(exhausted(error))
    panic = type("PanicException", (BaseException,), {})
    text = 'ThreadPoolBuildError { Os { code: 11, message: "Resource temporarily unavailable" } }'
    assert "raise the limit (ulimit -u)" in str(exhausted(panic(text)))
    assert exhausted(panic("index out of bounds")) is None
    assert exhausted(OSError(errno.ENOSPC, "full")) is None
    assert exhausted(ValueError("x")) is None
    for words in (b"bwrap: Creating new namespace failed: Resource temporarily unavailable", b"x: Too many open files"):
        assert "raise the limit" in str(exhausted_by(words))
    assert exhausted_by(b"bwrap: No such file or directory") is None
