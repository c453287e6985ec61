"""A program that tries to get out, run in a sandbox before anything else is."""

from __future__ import annotations

from magcli.verify.isolation.launch import Box, Isolation
from magcli.verify.isolation.program import Limits, Program

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


def escape(isolation: Isolation) -> str:
    """What is wrong with an isolation: why a program does not run in it, or how it gets out. Empty when all is well."""
    fault, leaks = attempt(isolation)
    if leaks and isolation.level != "none":
        return f"a test program could {leaks}"
    return fault


def attempt(isolation: Isolation) -> tuple[str, str]:
    """Why the program did not run, and all that it could do; both empty where a sandbox holds."""
    argv = (isolation.python, "-I", "-S", "-E", "canary.py")
    with Program(isolation, Box(argv, {"canary.py": _ATTEMPTS})) as program:
        outcome = program.run(b"21\n", LIMITS)
    answer, _, leaks = outcome.stdout.decode(errors="replace").strip().partition(",")
    if answer == "42":
        return "", leaks
    said = outcome.stderr.decode(errors="replace").strip().splitlines() or [f"{outcome.status} {outcome.code}"]
    return f"a test program did not run: {said[-1]}", leaks
