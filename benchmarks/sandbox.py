"""Code rewards in the sandbox against plain subprocesses, and compilation with and without the precompiled header.

Each side runs in a process on one core, and its seconds are the CPU time of that process and all its descendants, which
depends little on other load; the process is a subreaper, so that orphaned processes of a sandbox count too. Work that
is done once per process (probing the isolation, making the header) is not measured. The plain side runs the same
program on the same tests by ``subprocess.run`` without limits or isolation, and compares outputs as the judge does.
"""

import ctypes
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.pairs import Result, Side, compare
from magcli.verify.code import compiler
from magcli.verify.code.judge import default_sandbox, judge
from magcli.verify.code.outputs import comparison, difference

PROGRAMS = 10
TESTS = [{"input": f"{number} 1\n", "output": f"{number + 1}\n"} for number in range(20)]
PYTHON = "a, b = map(int, input().split())\nprint(a + b)\n"
CPP = '#include <cstdio>\nint main() { int a, b; scanf("%d %d", &a, &b); printf("%d\\n", a + b); }\n'
IOSTREAM = "#include <bits/stdc++.h>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b << std::endl; }\n"
COMPILATIONS = 2
PR_SET_CHILD_SUBREAPER = 36


def python_tests() -> Result:
    """Trivial Python programs with 20 tests, one sandbox per program."""
    return _compare_cpu("code-python-tests", "judged-python", "plain-python", PROGRAMS * len(TESTS))


def cpp_tests() -> Result:
    """A trivial, already compiled C++ program with 20 tests, one sandbox per run of the tests."""
    return _compare_cpu("code-cpp-tests", "judged-cpp", "plain-cpp", PROGRAMS * len(TESTS))


def precompiled_header() -> Result:
    """A small C++ program, compiled in the sandbox with the precompiled header and without it."""
    return _compare_cpu("code-pch", "with-header", "without-header", COMPILATIONS)


def _compare_cpu(name: str, ours: str, theirs: str, runs: int) -> Result:
    seconds: dict[str, list[float]] = {ours: [], theirs: []}
    sides: list[Side] = [partial(_in_process, work, seconds[work]) for work in seconds]
    result = compare(name, *sides, amount=runs, unit="runs")
    mine, peer = (1000 * median(seconds[work]) / runs for work in seconds)
    print(f"  {name}: magcli {mine:.1f} CPU-ms per run, peer {peer:.1f}, difference {mine - peer:+.1f}", flush=True)
    return result


def _in_process(work: str, seconds: list[float]) -> float:
    core = min(os.sched_getaffinity(0))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.sandbox", work],
        check=True,
        capture_output=True,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    seconds.append(float(done.stdout))
    return seconds[-1]


def _cpu_seconds(work: Callable[[], object]) -> float:
    """CPU seconds of the second call, descendants included."""
    work()
    _reap()
    started = _cpu_time()
    work()
    _reap()
    return _cpu_time() - started


def _reap() -> None:
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


def _cpu_time() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _judged_python(folder: Path) -> None:
    for _ in range(PROGRAMS):
        verdict = judge(PYTHON, "python", TESTS)
        assert verdict.reason == "accepted", verdict


def _plain_python(folder: Path) -> None:
    program = folder / "program.py"
    program.write_text(PYTHON)
    for _ in range(PROGRAMS):
        _run_tests([default_sandbox().python, "-I", "-S", "-E", str(program)])


def _judged_cpp(folder: Path) -> None:
    for _ in range(PROGRAMS):
        with default_sandbox().program(["./program"], {"program": _binary(folder)}) as program:
            for test in TESTS:
                _check(test, program.run(test["input"].encode()).stdout)


def _plain_cpp(folder: Path) -> None:
    for _ in range(PROGRAMS):
        _run_tests([str(_binary(folder))])


def _binary(folder: Path) -> Path:
    program = folder / "program"
    if not program.exists():
        assert compiler.build(CPP, default_sandbox(), program) is None
    return program


def _run_tests(command: list[str]) -> None:
    for test in TESTS:
        done = subprocess.run(command, input=test["input"].encode(), capture_output=True, check=True)
        _check(test, done.stdout)


def _check(test: dict[str, str], output: bytes) -> None:
    assert difference(test["output"].encode(), output, comparison("tokens")) is None


def _with_header(folder: Path) -> None:
    for _ in range(COMPILATIONS):
        assert compiler.build(IOSTREAM, default_sandbox(), folder / "program") is None


def _without_header(folder: Path) -> None:
    first = "#include <cstdio>\n"  # an include before it keeps the compiler from using the precompiled header
    for _ in range(COMPILATIONS):
        assert compiler.build(first + IOSTREAM, default_sandbox(), folder / "program") is None


WORK: dict[str, Callable[[Path], None]] = {
    "judged-python": _judged_python,
    "plain-python": _plain_python,
    "judged-cpp": _judged_cpp,
    "plain-cpp": _plain_cpp,
    "with-header": _with_header,
    "without-header": _without_header,
}


def main(name: str) -> None:
    """Measure one side and print its CPU seconds."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with TemporaryDirectory() as folder:
        print(_cpu_seconds(partial(WORK[name], Path(folder))))


if __name__ == "__main__":
    main(sys.argv[1])
