"""The seccomp filter: its tables agree with the kernel's headers, its rules with the intended ones."""

import platform
import re
import struct
from pathlib import Path

import pytest

from magcli.errors import EnvironmentFault
from magcli.verify.sandbox import seccomp

ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
X86 = {"read": 0, "mmap": 9, "clone": 56, "fork": 57, "vfork": 58, "execve": 59, "kill": 62, "prlimit64": 302}
X86 |= {"socket": 41, "clone3": 435, "ioctl": 16, "unlink": 87, "ptrace": 101, "unshare": 272, "memfd_create": 319}
X86 |= {"tgkill": 234, "setrlimit": 160, "timer_create": 222}


def verdict(code: bytes, number: int, *arguments: int, arch: int = ARCH["x86_64"]) -> int:
    """Run a filter as the kernel does, on one system call."""
    data = struct.pack("=IIQ6Q", number, arch, 0, *arguments, *[0] * (6 - len(arguments)))
    steps = list(struct.iter_unpack("=HBBI", code))
    at = accumulator = 0
    while True:
        operation, true, false, constant = steps[at]
        at += 1
        if operation == 0x20:
            accumulator = struct.unpack_from("=I", data, constant)[0]
        elif operation == 0x54:
            accumulator &= constant
        elif operation == 0x15:
            at += true if accumulator == constant else false
        elif operation == 0x35:
            at += true if accumulator >= constant else false
        else:
            assert operation == 0x06
            return int(constant)


@pytest.fixture(scope="module")
def program() -> bytes:
    return seccomp.program_filter("program", "x86_64")


@pytest.fixture(scope="module")
def compiler() -> bytes:
    return seccomp.program_filter("compiler", "x86_64")


@pytest.mark.parametrize("name", ["fork", "vfork", "socket", "unlink", "ptrace", "unshare", "memfd_create"])
def test_system_calls_that_are_not_listed_are_refused(program: bytes, name: str) -> None:
    assert verdict(program, X86[name]) == EPERM


@pytest.mark.parametrize("name", ["socket", "ptrace", "unshare", "memfd_create"])
def test_only_a_compiler_may_start_processes(compiler: bytes, name: str) -> None:
    assert verdict(compiler, X86[name]) == EPERM
    assert verdict(compiler, X86["fork"]) == verdict(compiler, X86["unlink"]) == ALLOW
    assert verdict(compiler, X86["clone"], 0x11) == verdict(compiler, X86["clone"], 0x4111) == ALLOW
    assert verdict(compiler, X86["clone"], 0x10000011) == verdict(compiler, X86["clone"], 0x20000) == EPERM


def test_threads_are_allowed_without_processes_and_namespaces(program: bytes) -> None:
    thread = 0x3D0F00
    assert verdict(program, X86["clone"], thread) == ALLOW
    assert verdict(program, X86["clone"], 0x11) == EPERM
    for namespace in (0x80, 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert verdict(program, X86["clone"], thread | namespace) == EPERM
    assert verdict(program, X86["clone3"], 0, 0) == ENOSYS


def test_memory_is_private(program: bytes) -> None:
    for flags, wanted in [(0x22, ALLOW), (0x02, ALLOW), (0x01, ALLOW), (0x21, EPERM), (0x23, EPERM), (0x8021, EPERM)]:
        assert verdict(program, X86["mmap"], 0, 4096, 3, flags) == wanted


def test_a_program_can_only_signal_and_limit_itself(program: bytes) -> None:
    own = program.replace(struct.pack("=I", seccomp.OWN_PID), struct.pack("=I", 77))
    for pid, wanted in [(77, ALLOW), (1, EPERM), (0, EPERM), (2**64 - 1, EPERM), (2**64 - 77, EPERM)]:
        assert verdict(own, X86["kill"], pid, 6) == wanted
    for pid, wanted in [(0, ALLOW), (1, EPERM), (77, EPERM)]:
        assert verdict(own, X86["prlimit64"], pid, 3) == wanted


def test_nobody_can_pretend_to_be_killed_from_outside(program: bytes) -> None:
    own = program.replace(struct.pack("=I", seccomp.OWN_PID), struct.pack("=I", 77))
    for number, wanted in [(6, ALLOW), (15, ALLOW), (9, EPERM), (19, EPERM)]:
        assert verdict(own, X86["kill"], 77, number) == wanted
        assert verdict(own, X86["tgkill"], 77, 77, number) == wanted
    for limit, wanted in [(0, EPERM), (3, ALLOW), (9, ALLOW)]:
        assert verdict(own, X86["prlimit64"], 0, limit) == wanted
        assert verdict(own, X86["setrlimit"], limit) == wanted
    assert verdict(own, X86["timer_create"]) == EPERM


def test_other_architectures_and_unknown_calls_are_refused(program: bytes) -> None:
    assert verdict(program, X86["read"], arch=0x40000003) == KILL, "32 bit"
    assert verdict(program, X86["read"], arch=ARCH["aarch64"]) == KILL
    assert verdict(program, 0x40000000 | X86["read"]) == KILL, "x32"
    assert verdict(program, X86["ioctl"], 0, 0x5412) == EPERM, "typing into a terminal"
    assert verdict(program, X86["ioctl"], 0, 0x5401) == ALLOW
    assert verdict(program, 10_000) == EPERM


def test_the_placeholder_for_the_process_id_does_not_occur_by_chance() -> None:
    for machine in ARCH:
        for kind in ("program", "compiler"):
            code = seccomp.program_filter(kind, machine)  # type: ignore[arg-type]
            assert code.count(struct.pack("=I", seccomp.OWN_PID)) == len(seccomp.own_pid_offsets(code)) == 2
            assert len(code) // 8 < 4096


def test_an_unknown_processor_is_named() -> None:
    with pytest.raises(EnvironmentFault, match="riscv64"):
        seccomp.program_filter("program", "riscv64")


def tables() -> list[tuple[str, int, int | None]]:
    words = (seccomp._SPECIAL + seccomp._NUMBERS + seccomp._COMPILER_NUMBERS).split()
    listed = zip(words[::3], words[1::3], words[2::3], strict=True)
    return [(name, int(x86), None if arm == "-" else int(arm)) for name, x86, arm in listed]


@pytest.mark.parametrize(
    ("column", "header"),
    [(1, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), (2, "/usr/include/asm-generic/unistd.h")],
    ids=["x86_64", "aarch64"],
)
def test_system_call_numbers_match_the_kernel_headers(column: int, header: str) -> None:
    if not Path(header).exists():
        pytest.skip(f"{header} is not installed on this {platform.machine()}")
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", Path(header).read_text())
    numbers = {name: int(number) for name, number in found}
    numbers |= {"newfstatat": numbers.get("fstatat", numbers.get("newfstatat", -1))}
    for row in tables():
        if row[column] is not None and row[0] in numbers:
            assert row[column] == numbers[row[0]], row[0]
    known = sum(row[0] in numbers for row in tables() if row[column] is not None)
    assert known > 90
