"""Compiling C++20 in the sandbox, with a precompiled header of the standard library (recipe, section 2).

The precompiled ``bits/stdc++.h`` is specific to one compiler and its flags and kept in the user's cache folder
(``XDG_CACHE_HOME``, else ``~/.cache``), written atomically, so several processes may create it at once. It speeds up
programs whose first include is ``bits/stdc++.h``.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
from functools import cache
from pathlib import Path

from magcli.errors import EnvironmentFault
from magcli.run.limits import exhausted_by
from magcli.verify.sandbox import Limits, Outcome, Sandbox, printable
from magcli.verify.sandbox.launch import script_for
from magcli.verify.types import Fault

FLAGS = ("-std=c++20", "-O2", "-DONLINE_JUDGE", "-w", "-fmax-errors=3", "-fdiagnostics-color=never")
LIMITS = Limits(cpu=10.0, memory=2 << 30, output=64 << 20, processes=64)
"""Limits of a compiler: 10 s as in the recipe, and its own memory limit, since template-heavy programs need more than
300 MB.

The kernel ends each of its processes a little after 10 s, and the wall clock all of them after ``LIMITS.wall`` of 21 s
plus the time that they waited for a CPU.
"""

HEADER = "bits/stdc++.h"
# What g++ says when the kernel has killed one of its processes for its CPU time.
_KILLED = re.compile(rb"(?:CPU time limit|Killed).*terminated program|CPU time limit exceeded")
# A line that names an error, of the compiler or of the linker.
_ERROR = re.compile(rb"^.*\b(?:error|undefined reference)\b.*$", re.MULTILINE)
_TEMPORARY = re.compile(rb"(?:/[^\s:]*/)?\bcc[A-Za-z0-9]{6}(?=\.(?:s|o|ii|res|ltrans))")
"""The names of the compiler's temporary files, which differ in every run."""
_lock = threading.Lock()


def build(source: str, sandbox: Sandbox, into: Path, limits: Limits = LIMITS) -> Fault | None:
    """Compile a program to the file ``into``; returns why it failed, or None.

    Raises EnvironmentFault if there is no compiler, or no descriptor or process left for it.
    """
    argv = [compiler(), *FLAGS, "-Ipch", "program.cpp", "-o", "program"]
    files: dict[str, bytes | Path] = {
        "program.cpp": source.encode(errors="replace"),
        f"pch/{HEADER}.gch": precompiled(),
        f"pch/{HEADER}": f"#include_next <{HEADER}>\n".encode(),  # what a second include of it finds
    }
    outcome = sandbox.build(argv, files, "program", limits=limits, into=into)
    # What the compiler says when it gets no descriptor or process, which is no fault of the program.
    if exhausted_by(outcome.stderr):  # or the program forges these words
        _check_startable(argv, files, sandbox)
        outcome = sandbox.build(argv, files, "program", limits=limits, into=into)
    return _fault(outcome, limits)


def _check_startable(argv: list[str], files: dict[str, bytes | Path], sandbox: Sandbox) -> None:
    """Raise EnvironmentFault if the compiler has no descriptor or process left for the shortest program either."""
    shortest = {**files, "program.cpp": b"int main() {}"}
    with tempfile.TemporaryDirectory(prefix="magcli-") as folder:
        outcome = sandbox.build(argv, shortest, "program", limits=LIMITS, into=Path(folder, "program"))
    if fault := exhausted_by(outcome.stderr):
        raise EnvironmentFault(f"the compiler cannot be started: {fault}")


def _fault(outcome: Outcome, limits: Limits) -> Fault | None:
    """Why there is no binary; None if there is one."""
    if outcome.status == "exited" and outcome.code == 0 and outcome.cpu <= limits.cpu:
        return None
    if outcome.status == "lost":
        return Fault("infra-error", "the compiler's sandbox was lost")
    reached_limit = outcome.status in ("cpu-limit", "wall-limit") or outcome.cpu > limits.cpu
    # g++ reports that a process which it started was killed.
    if reached_limit or _KILLED.search(outcome.stderr):
        return Fault("compile-timeout", f"the compiler took more than {limits.cpu:g} s")
    if outcome.status == "memory-limit":
        return Fault("compile-error", f"the compiler took more than {limits.memory >> 20} MiB")
    return Fault("compile-error", _first_error(outcome.stderr))


def _first_error(stderr: bytes) -> str:
    error = _ERROR.search(stderr)
    line = error[0] if error else stderr.strip().partition(b"\n")[0]
    return printable(_TEMPORARY.sub(b"temporary", line))


def compiler() -> str:
    """The path of g++, or of the compiler in the environment variable ``CXX``, such as ``g++-13``.

    Raises EnvironmentFault if it is not installed.
    """
    name = os.environ.get("CXX") or "g++"
    # What is elsewhere is not mounted in the sandbox.
    path = shutil.which(name, path="/usr/local/bin:/usr/bin:/bin")
    if path is None:
        raise EnvironmentFault(
            f"C++ programs cannot be judged: there is no {name} in /usr/bin; install it (Debian: apt install g++), or "
            "leave problems out whose answers are in C++"
        )
    return path


def precompiled() -> Path:
    """The precompiled header, created on first use; about 5 s and 120 MB.

    Raises EnvironmentFault if the compiler is missing or cannot compile the header.
    """
    # One thread makes it; other processes may, too, each complete.
    with _lock:
        made = _cache_folder() / f"stdc++-{_identity(compiler())}.gch"
        if not made.exists():
            _precompile(made)
        return made


@cache
def _identity(compiler: str) -> str:
    """A digest of the compiler and the flags, to which the header is specific."""
    version = subprocess.run([compiler, "-v"], capture_output=True, check=True).stderr
    status = os.stat(compiler)
    identity = repr((version, status.st_size, status.st_mtime_ns, FLAGS))
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


@cache
def _cache_folder() -> Path:
    """The user's cache folder, or a temporary one of this process if that is not writable."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "magcli"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        return Path(_private_folder().name)


@cache
def _private_folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="magcli-")


def _precompile(made: Path) -> None:
    """Create the header beside its path and move it there complete, as other processes may look for it."""
    with tempfile.TemporaryDirectory(prefix=".pch-", dir=made.parent) as folder:
        source, product = Path(folder, "all.h"), Path(folder, "all.gch")
        source.write_text(f"#include <{HEADER}>\n")
        command = [compiler(), *FLAGS, "-x", "c++-header", str(source), "-o", str(product)]
        done = subprocess.run(command, capture_output=True)
        if done.returncode:
            raise EnvironmentFault(f"{compiler()} cannot compile <{HEADER}>: {_first_error(done.stderr)}")
        product.chmod(0o644)  # the user of a sandbox reads it
        product.replace(made)


_OPTIONS = ("-I", "-S", "-E", "-X", "utf8")


def command(sandbox: Sandbox, script: str = "session.py") -> list[str]:
    """The command that starts a program (``session.py``) or calls its functions (``driver.py``)."""
    return [sandbox.python, *_OPTIONS, script]


def sources(program: str, *, called: bool = False, python: str = "") -> dict[str, bytes | Path]:
    """The files that a program needs: itself and the scripts that start or call it.

    ``python`` is the interpreter inside, if known: the script that calls is then compiled for it.
    """
    starters = ("session.py", "leetcode.py", "objects.py") if called else ("session.py",)
    files: dict[str, bytes | Path] = {"program.py": program.encode(errors="surrogatepass")}
    files |= {name: script_source(name) for name in starters}
    if called:
        files["driver.py"] = script_for(python, Path(__file__).with_name("driver.py"), "driver.py")
    return files


@cache
def script_source(name: str) -> bytes:
    """The source of a module of this package, for a sandbox."""
    return Path(__file__).with_name(name).read_bytes()
