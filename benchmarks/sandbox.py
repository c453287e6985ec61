"""The judge beside plain subprocesses of the same interpreter or binary, and compiling with the precompiled header.

Each side works in a process of its own, on one thread and one core. Its seconds are the CPU time of itself and of
everything it started, which other work on the machine changes little: it is made the reaper of orphans, so that no
process of a sandbox goes uncounted. What is done once a process (finding out how to isolate, making the header) is left
out. The plain side runs the same program on the same tests with ``subprocess.run``, without limits or isolation, and
compares as the judge does.
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

from benchmarks.pairs import Result, Side, compare, report
from magcli.verify.code import compiler
from magcli.verify.code.judge import default_sandbox, judge
from magcli.verify.code.outputs import comparison, difference

PROGRAMS = 10
TESTS = [{"input": f"{number} 1\n", "output": f"{number + 1}\n"} for number in range(20)]
PYTHON = "a, b = map(int, input().split())\nprint(a + b)\n"
CPP = '#include <cstdio>\nint main() { int a, b; scanf("%d %d", &a, &b); printf("%d\\n", a + b); }\n'
SMALL = "#include <bits/stdc++.h>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b << std::endl; }\n"
COMPILED = 2
PR_SET_CHILD_SUBREAPER = 36


def python_tests() -> Result:
    """Trivial Python programs of 20 tests, each in a sandbox of its own."""
    return _race("code-python-tests", "judged-python", "plain-python", PROGRAMS * len(TESTS))


def cpp_tests() -> Result:
    """The tests of a trivial C++ program, compiled beforehand; a sandbox for each 20 of them."""
    return _race("code-cpp-tests", "judged-cpp", "plain-cpp", PROGRAMS * len(TESTS))


def header() -> Result:
    """A small C++ program, compiled in the sandbox with the precompiled header and with the plain one."""
    return _race("code-pch", "with-header", "without-header", COMPILED)


def _race(name: str, ours: str, theirs: str, runs: int) -> Result:
    costs: dict[str, list[float]] = {ours: [], theirs: []}
    sides: list[Side] = [partial(_in_process, work, costs[work]) for work in costs]
    result = compare(name, *sides, amount=runs, unit="runs")
    mine, peer = (1000 * median(costs[work]) / runs for work in costs)
    print(f"  {name}: {mine:.1f} CPU-ms a run beside {peer:.1f}, {mine - peer:+.1f}", flush=True)
    return result


def _in_process(work: str, costs: list[float]) -> float:
    core = min(os.sched_getaffinity(0))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.sandbox", work],
        check=True,
        capture_output=True,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )
    costs.append(float(done.stdout))
    return costs[-1]


def _measured(work: Callable[[], object]) -> float:
    """CPU seconds of the second call."""
    work()
    _reap()
    begun = _cpu()
    work()
    _reap()
    return _cpu() - begun


def _reap() -> None:
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


def _cpu() -> float:
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
        _plain([default_sandbox().python, "-I", "-S", "-E", str(program)])


def _judged_cpp(folder: Path) -> None:
    for _ in range(PROGRAMS):
        with default_sandbox().program(["./program"], {"program": _binary(folder)}) as program:
            for test in TESTS:
                _compare(test, program.run(test["input"].encode()).stdout)


def _plain_cpp(folder: Path) -> None:
    for _ in range(PROGRAMS):
        _plain([str(_binary(folder))])


def _binary(folder: Path) -> Path:
    made = folder / "program"
    if not made.exists():
        assert compiler.build(CPP, default_sandbox(), made) is None
    return made


def _plain(command: list[str]) -> None:
    for test in TESTS:
        done = subprocess.run(command, input=test["input"].encode(), capture_output=True, check=True)
        _compare(test, done.stdout)


def _compare(test: dict[str, str], output: bytes) -> None:
    assert difference(test["output"].encode(), output, comparison("tokens")) is None


def _with_header(folder: Path) -> None:
    for _ in range(COMPILED):
        assert compiler.build(SMALL, default_sandbox(), folder / "program") is None


def _without_header(folder: Path) -> None:
    first = "#include <cstdio>\n"  # another include before it, and the compiler leaves the precompiled one alone
    for _ in range(COMPILED):
        assert compiler.build(first + SMALL, default_sandbox(), folder / "program") is None


WORK: dict[str, Callable[[Path], None]] = {
    "judged-python": _judged_python,
    "plain-python": _plain_python,
    "judged-cpp": _judged_cpp,
    "plain-cpp": _plain_cpp,
    "with-header": _with_header,
    "without-header": _without_header,
}


def _side(name: str) -> None:
    """The process of one side."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with TemporaryDirectory() as made:
        print(_measured(partial(WORK[name], Path(made))))


if __name__ == "__main__":
    if len(sys.argv) == 2:
        _side(sys.argv[1])
    else:
        report(python_tests, cpp_tests, header)
