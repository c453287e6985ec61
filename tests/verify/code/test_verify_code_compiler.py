"""The compiler in its sandbox: it reads files and can be made to run forever, so it is confined like programs."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from magcli.verify.code import compiler
from magcli.verify.code.judge import default_sandbox, judge
from magcli.verify.sandbox import Limits
from magcli.verify.types import Fault

SHORT = Limits(cpu=1.5, memory=1 << 30, output=16 << 20, processes=64)
SLACK = 10.0
"""Seconds to start and end in on a busy machine."""
NESTED = "".join(f"#define A{n} A{n - 1} A{n - 1} A{n - 1} A{n - 1} A{n - 1} A{n - 1}\n" for n in range(1, 30))
TREE = "template <int N, unsigned M> struct T { T<N - 1, 2 * M> a; T<N - 1, 2 * M + 1> b; };\n"


def build(source: str, tmp_path: Path, limits: Limits = SHORT) -> Fault | None:
    return compiler.build(source, default_sandbox(), tmp_path / "program", limits)


@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize(
    ("source", "reasons"),
    [
        (TREE + "template <unsigned M> struct T<0, M> { int x; };\nint main() { return sizeof(T<40, 1>); }", "time"),
        (NESTED + "#define A0 +1\nint main() { return 0 A29; }", "time memory"),
        (
            "constexpr int f() { int s = 0; while (true) ++s; return s; }\nstatic_assert(f());\nint main() {}",
            "time error",
        ),
        ("template <int N> struct F { int x = F<N + 1>().x; };\nint main() { return F<0>().x; }", "error"),
        ("#include __FILE__\nint main() {}", "error"),
        ("char big[1 << 28] = {1};\nint main() { return big[7]; }", "error"),
        ('__asm__(".space 0x40000000, 1");\nint main() {}', "error time memory"),
        ('__asm__(".rept 0x7fffffff\\nnop\\n.endr");\nint main() {}', "error time memory"),
        ("\n".join(f"int main{n}() {{ return undeclared{n}; }}" for n in range(20_000)), "error"),
        ("int main() { " + "(" * 100_000, "error time"),
        ("int main() { return " + "-" * 0 + "~" * 200_000 + "1; }", "error time memory none"),
    ],
)
def test_a_compilation_bomb_stays_within_its_limits(source: str, reasons: str, tmp_path: Path) -> None:
    begun = time.monotonic()
    fault = build(source, tmp_path)
    assert time.monotonic() - begun < SHORT.wall + SLACK
    kind = "none" if fault is None else "time" if fault.reason == "compile-timeout" else "error"
    assert kind in reasons.replace("memory", "error"), fault
    assert fault is None or len(fault.detail) < 300
    assert build("int main() {}", tmp_path) is None, "the next program compiles"


def test_the_compiler_reads_no_files_of_the_machine(tmp_path: Path) -> None:
    secret = tmp_path / "secret.h"
    secret.write_text("hidden treasure\n")
    secret.chmod(0o644)
    tmp_path.chmod(0o755)
    for source in (
        f'#include "{secret}"\nint main() {{}}',
        f'__asm__(".incbin \\"{secret}\\"");\nint main() {{}}',
        f"#include <{'../' * 20}{secret}>\nint main() {{}}",
        "#include </etc/passwd>\nint main() {}",
        '__asm__(".incbin \\"/etc/hostname\\"");\nint main() {}',
        '#include "/proc/self/environ"\nint main() {}',
    ):
        fault = build(source, tmp_path)
        assert fault is not None, source
        assert fault.reason == "compile-error"
        assert "treasure" not in fault.detail
        assert "root:" not in fault.detail


@pytest.mark.flaky(reruns=2)
@pytest.mark.parametrize("device", ["/dev/stdin", "/dev/fd/0", "/dev/zero", "/dev/urandom", "/dev/tty"])
def test_devices_do_not_block_the_compiler(device: str, tmp_path: Path) -> None:
    begun = time.monotonic()
    fault = build(f'#include "{device}"\nint main() {{}}', tmp_path)
    assert time.monotonic() - begun < SHORT.wall + SLACK
    assert fault is None or fault.reason in ("compile-error", "compile-timeout")
    if device != "/dev/stdin":
        assert fault is not None


def test_a_timeout_of_the_compiler_has_its_verdict(tmp_path: Path) -> None:
    fault = build(
        TREE + "template <unsigned M> struct T<0, M> { int x; };\nint main() { return sizeof(T<40, 1>); }", tmp_path
    )
    assert fault == Fault("compile-timeout", "the compiler took more than 1.5 s")


def test_the_precompiled_header_is_used(tmp_path: Path) -> None:
    assert_serves(compiler.precompiled(), tmp_path)


def assert_serves(header: Path, tmp_path: Path) -> None:
    (tmp_path / "bits").mkdir()
    (tmp_path / "bits" / "stdc++.h.gch").symlink_to(header)
    (tmp_path / "program.cpp").write_text("#include <bits/stdc++.h>\nint main() {}\n")
    command = [compiler.compiler(), *compiler.FLAGS, "-I.", "-H", "-fsyntax-only", "-Winvalid-pch", "program.cpp"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr.startswith("! ./bits/stdc++.h.gch"), done.stderr[:500]
    assert len(done.stderr.splitlines()) < 5, "no other header is read"


@pytest.mark.faults
def test_headers_precompiled_concurrently_are_complete(tmp_path: Path) -> None:
    script = "from magcli.verify.code import compiler; print(compiler.precompiled())"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    started = [
        subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    places = {process.communicate()[0].strip() for process in started}
    assert [process.returncode for process in started] == [0, 0]
    (place,) = map(Path, places)
    assert_serves(place, tmp_path)
    assert [file.name for file in (tmp_path / "magcli").iterdir()] == [place.name], "nothing else is left"


def test_without_a_compiler_a_program_gets_no_verdict() -> None:
    script = (
        "from magcli.verify.code.judge import judge\nfrom magcli.errors import EnvironmentFault\n"
        "try:\n    judge('int main() {}', 'cpp', [{'input': '', 'output': ''}])\n"
        "except EnvironmentFault as fault:\n    print(fault.exit_code, fault)\n"
    )
    environment = {**os.environ, "CXX": "g++-0"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("4 C++ programs cannot be judged: there is no g++-0"), done


def test_programs_may_include_any_standard_header() -> None:
    tests = [{"input": "", "output": "3"}]
    for first in (
        "#include <vector>\n#include <bits/stdc++.h>",
        "#define X 1\n#include <bits/stdc++.h>\n#include <bits/stdc++.h>",
    ):
        verdict = judge(first + "\nint main() { std::cout << 3; }", "cpp", tests)
        assert verdict.reason == "accepted", verdict


def test_the_standard_header_may_be_included_twice(tmp_path: Path) -> None:
    twice = "#include <bits/stdc++.h>\nint f();\n#include <bits/stdc++.h>\nint main() { std::cout << 1; }"
    assert build(twice, tmp_path, compiler.LIMITS) is None
