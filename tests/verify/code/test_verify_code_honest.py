"""What honest programs expect: named streams, packages, asyncio, the names of the site module."""

import os
import sys

import pytest

from magcli.errors import EnvironmentFault
from magcli.verify.code.judge import judge
from magcli.verify.sandbox import Limits, Sandbox, open_sandbox
from magcli.verify.sandbox.launch import _installed
from magcli.verify.types import Verdict

INPUT = "3 4\n"
LIMITS = Limits(cpu=2.0, memory=300 << 20)


@pytest.fixture(scope="module", params=["full", "restricted"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    try:
        return open_sandbox(request.param)
    except EnvironmentFault as fault:
        if request.param == "full":
            raise
        pytest.skip(str(fault))


def verdict(program: str, sandbox: Sandbox, output: str = "7", language: str = "python") -> Verdict:
    tests = [{"input": "1 6\n", "output": "7"}, {"input": INPUT, "output": output}] if output == "7" else []
    return judge(program, language, tests or [{"input": INPUT, "output": output}], LIMITS, sandbox=sandbox)


@pytest.mark.parametrize("path", ["/dev/stdin", "/proc/self/fd/0", "/dev/fd/0"])
def test_stdin_has_its_names(sandbox: Sandbox, path: str) -> None:
    for program in (
        f"print(sum(map(int, open({path!r}).read().split())))",
        f"import pathlib\nprint(sum(map(int, pathlib.Path({path!r}).read_text().split())))",
        f"import sys\nsys.stdin = open({path!r})\nprint(sum(map(int, input().split())))",
        f"import os\nprint(sum(map(int, os.read(os.open({path!r}, os.O_RDONLY), 99).split())))",
        f"import fileinput\nfor line in fileinput.input([{path!r}]): print(sum(map(int, line.split())))",
    ):
        assert verdict(program, sandbox).reason == "accepted", program


@pytest.mark.parametrize("path", ["/dev/stdout", "/proc/self/fd/1", "/dev/fd/1"])
def test_stdout_has_its_names_and_all_of_them_write(sandbox: Sandbox, path: str) -> None:
    add = "sum(map(int, input().split()))"
    for program, output in (
        (f"open({path!r}, 'w').write(str({add}))", "7"),
        (f"import pathlib\npathlib.Path({path!r}).write_text(str({add}))", "7"),
        (
            f"print('before')\nwith open({path!r}, 'w') as file: file.write('first\\n')\nprint('last')",
            "first before last",
        ),
        (f"print(1, flush=True)\nprint(2, file=open({path!r}, 'a'), flush=True)\nprint(3)", "1 2 3"),
    ):
        assert verdict(program, sandbox, output).reason == "accepted", program


@pytest.mark.parametrize(
    "body",
    [
        'std::ifstream in("/dev/stdin"); in >> a >> b; std::cout << a + b;',
        (
            'freopen("/dev/stdin", "r", stdin); freopen("/dev/stdout", "w", stdout); '
            'scanf("%d%d", &a, &b); printf("%d", a + b);'
        ),
        'std::ofstream out("/dev/stdout"); std::cin >> a >> b; out << a + b;',
        'FILE *in = fopen("/proc/self/fd/0", "r"); fscanf(in, "%d%d", &a, &b); printf("%d", a + b);',
        "std::random_device any; std::mt19937 draw(any()); draw(); std::cin >> a >> b; std::cout << a + b;",
        'std::random_device any("/dev/urandom"); any(); std::cin >> a >> b; std::cout << a + b;',
    ],
)
def test_cpp_finds_streams_and_random_numbers(sandbox: Sandbox, body: str) -> None:
    program = f"#include <bits/stdc++.h>\nint main() {{ int a, b; {body} }}\n"
    found = verdict(program, sandbox, language="cpp")
    assert found.reason == "accepted", found


@pytest.mark.parametrize(
    "body",
    [
        "await asyncio.sleep(0.01)",
        "await asyncio.gather(*(asyncio.sleep(0) for _ in range(9)))",
        "await asyncio.to_thread(len, 'abc')",
        "await asyncio.wait_for(asyncio.Event().wait(), 0.01)",
    ],
)
def test_asyncio_works(sandbox: Sandbox, body: str) -> None:
    program = (
        "import asyncio\nasync def main():\n    try:\n"
        f"        {body}\n    except asyncio.TimeoutError: pass\n    print(sum(map(int, input().split())))\n"
        "asyncio.run(main())"
    )
    found = verdict(program, sandbox)
    assert found.reason == "accepted", found


@pytest.mark.parametrize(
    ("program", "output"),
    [
        ("print(len(open(__file__).read()) > 10)", "True"),
        ("import os\nprint(os.path.basename(__file__), os.path.dirname(os.path.abspath(__file__)) == os.getcwd())",
         "program.py True"),
        ("help(abs)", "Help on built-in function abs in module builtins:\n\nabs(x, /)\n"
         "    Return the absolute value of the argument."),
        ("print(callable(help))", "True"),
        ("print(7)\nexit()", "7"),
        ("print(7)\nexit(code=0)", "7"),
        ("print(7)\nquit(0)", "7"),
    ],
)  # fmt: skip
def test_names_of_the_site_module_exist(sandbox: Sandbox, program: str, output: str) -> None:
    found = verdict(program, sandbox, output + "\n")
    assert found.reason == "accepted", found


def test_names_of_the_site_module_exist_for_functions() -> None:
    program = "print(__file__)\ndef f(x):\n    if x > 9: exit('too large')\n    return callable(help)"
    assert judge(program, "python", [{"assert": "assert f(1)"}]).reason == "accepted"
    found = judge(program, "python", [{"assert": "assert f(10)"}])
    assert (found.reason, found.detail) == ("runtime-error", "test 1: exit code 1: too large")


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("import os\nprint(os.popen('echo 7').read())", "os.popen"),
        ("import os as system\nsystem.fork()", "system.fork"),
        ("import subprocess\ndef run(): subprocess.run(['echo', '7'])\nrun()", "subprocess.run"),
        ("import subprocess\nsubprocess.Popen('echo 7', shell=True)", "subprocess.Popen"),
        ("import multiprocessing\nmultiprocessing.Process(target=print).start()", "multiprocessing."),
        ("import multiprocessing\nmultiprocessing.Pool(2).map(abs, [7])", "multiprocessing."),
        ("from concurrent.futures import ProcessPoolExecutor\nProcessPoolExecutor(2).submit(abs, 7)",
         "concurrent.futures.process.ProcessPoolExecutor"),
    ],
)  # fmt: skip
def test_processes_are_refused_by_name(sandbox: Sandbox, program: str, name: str) -> None:
    found = verdict(program, sandbox)
    assert found.reason == "runtime-error"
    assert found.detail.startswith(f"test 1: exit code 1: processes are not allowed: {name}"), found


def test_refused_operations_are_named_and_other_errors_are_not(sandbox: Sandbox) -> None:
    assert verdict("import socket\nsocket.socket()", sandbox).detail.endswith("not allowed: socket.socket")
    assert verdict("raise PermissionError(1, 'mine')", sandbox).detail.endswith("PermissionError: [Errno 1] mine")
    assert "FileNotFoundError" in verdict("open('/none')", sandbox).detail
    called = judge("import os\ndef f(x): return os.popen('ls').read()", "python", [{"assert": "assert f(1) == 1"}])
    assert called.detail == "test 1: exit code 1: processes are not allowed: os.popen"
    hidden = "class E(PermissionError):\n    errno = property(lambda self: 1 / 0)\ndef f(): raise E(1, '')\nf()"
    assert verdict(hidden, sandbox).reason == "runtime-error"


NUMPY = "import numpy as np\na = np.array(list(map(int, input().split())))\nprint((a @ np.ones((2, 2), int))[0])"
SORTED = "from sortedcontainers import SortedList\nprint(sum(SortedList(map(int, input().split()))))"


@pytest.mark.parametrize("program", [NUMPY, SORTED])
def test_packages_of_contest_judges_can_be_imported(sandbox: Sandbox, program: str) -> None:
    if sandbox.level != "full" and not _installed(sandbox.python):
        pytest.skip("the interpreter inside is of another version")
    found = verdict(program, sandbox)
    assert found.reason == "accepted", found


def test_packages_of_another_python_version_are_not_used() -> None:
    assert _installed("/usr/bin/python2.7") == {}
    assert {"numpy", "sortedcontainers"} <= _installed(os.path.realpath(sys.executable)).keys()


def test_other_installed_packages_cannot_be_imported(sandbox: Sandbox) -> None:
    for name in ("pyarrow", "sympy", "magcli", "pytest"):
        assert f"No module named '{name}'" in verdict(f"import {name}  # and numpy", sandbox).detail


def test_a_program_without_imports_has_no_packages_mounted() -> None:
    """So it does not pay for mounting them."""
    program = "import os\nprint(os.path.exists('/packages'))"
    assert verdict(program, open_sandbox("full"), "False").reason == "accepted"


def test_packages_cannot_be_changed() -> None:
    program = "import numpy\nopen(numpy.__file__, 'a')"
    detail = verdict(program, open_sandbox("full")).detail
    assert "Permission denied: '/packages/numpy" in detail or "Read-only file system: '/packages/numpy" in detail
