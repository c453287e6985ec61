"""Running out of memory, file descriptors or processes is one line and exit code 4.

Below some limit on the address space (``ulimit -v``) libraries crash while they are loaded, or end the process where no
exception can be caught; such a limit is refused before.
"""

import errno
import os
import resource
import sys
from types import SimpleNamespace

from magcli.console import Console
from magcli.errors import EnvironmentFault

NEEDED = 704 << 20
"""Bytes of address space that every command needs: pyarrow and its threads."""
NEEDED_FOR_TORCH = 1536 << 20
"""Bytes that a command with PyTorch needs, without any weights."""
EXHAUSTED = {
    errno.EMFILE: ("this process may have no more open files", "ulimit -n"),
    errno.ENFILE: ("this machine has no more room for open files", "sysctl fs.file-max"),
    errno.EAGAIN: ("no more processes or threads can be started", "ulimit -u"),
}
"""What an error number says about the machine, and what raises the limit."""
NO_THREAD = "can't start new thread"
SAYS = {os.strerror(number): number for number in EXHAUSTED} | {NO_THREAD: errno.EAGAIN}
"""The words with which another program reports these errors."""
MESSAGES = (
    "failed to map segment", "annot allocate memory", "an't allocate memory", "not enough memory", "CUDA out of memory",
)  # fmt: skip
"""Parts of the messages of other errors that mean the same as MemoryError."""


def refuse_low_limits() -> None:
    """End with one line and exit code 4 where a limit on memory is too low to load what every command needs."""
    try:
        check_limit()
    except EnvironmentFault as fault:
        Console(as_json="--json" in sys.argv).error(str(fault), code=fault.exit_code)
        sys.exit(fault.exit_code)


def check_limit() -> None:
    """Refuse a limit on the address space with which no command works; with a higher one PyTorch may be refused.

    Raises:
        EnvironmentFault: the limit is too low.
    """
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return
    _require(limit, NEEDED, "magcli")
    if limit < NEEDED_FOR_TORCH:
        # Refused when it is imported, as many commands do without it.
        sys.meta_path.insert(0, SimpleNamespace(find_spec=_refuse_torch))


def _refuse_torch(name: str, *_: object) -> None:
    """As a finder of modules: let the import system look elsewhere for any module but PyTorch."""
    if name == "torch":
        _require(resource.getrlimit(resource.RLIMIT_AS)[0], NEEDED_FOR_TORCH, "PyTorch")


def _require(limit: int, needed: int, what: str) -> None:
    if limit < needed:
        raise EnvironmentFault(
            f"the limit on this process's memory is {limit >> 20:,} MiB, and {what} needs {needed >> 20:,}; raise it "
            "(ulimit -v)"
        )


def exhausted(error: BaseException) -> EnvironmentFault | None:
    """The fault to report for an error that means that descriptors or processes ran out; None for any other."""
    number = error.errno if isinstance(error, OSError) else None
    # These have no errno, and only their text says so.
    is_without_thread = isinstance(error, RuntimeError) and NO_THREAD in _text(error)
    is_refused_in_rust = is_panic(error) and os.strerror(errno.EAGAIN) in _text(error)
    if is_without_thread or is_refused_in_rust:
        number = errno.EAGAIN
    if number not in EXHAUSTED:
        return None
    reason, limit = EXHAUSTED[number]
    return EnvironmentFault(f"{reason}; raise the limit ({limit}), or use fewer --workers")


def is_panic(error: BaseException) -> bool:
    """Whether a library in Rust, such as tokenizers, has given up; that is no subclass of Exception."""
    return type(error).__name__ == "PanicException"


def _text(error: BaseException) -> str:
    """The message of an exception; empty if its class cannot even say it."""
    try:
        return str(error)
    except Exception:
        return ""


def exhausted_by(words: bytes) -> EnvironmentFault | None:
    """``exhausted`` for what a program that could not start has written to its stderr."""
    text = words.decode(errors="replace")
    for reason, number in SAYS.items():
        if reason in text:
            return exhausted(OSError(number, reason))
    return None


def memory_fault(error: BaseException) -> EnvironmentFault | None:
    """The fault to report for an error that means that memory ran out; None for any other."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    text = _text(error)
    is_stack = NO_THREAD in text and limit != resource.RLIM_INFINITY  # a thread's stack takes address space
    is_memory = isinstance(error, MemoryError) or any(part in text for part in MESSAGES)
    if not is_memory and not is_stack:
        return None
    if limit == resource.RLIM_INFINITY:
        return EnvironmentFault("out of memory; use smaller sizes, or a machine with more memory")
    limited = f"the limit on this process's memory is {limit >> 20:,} MiB"
    return EnvironmentFault(f"out of memory; {limited}: raise it (ulimit -v), or use smaller sizes")
