"""Running out of memory, above all under a limit on the address space (``ulimit -v``), is one line and exit code 4.

Below some limit libraries crash while they are loaded, or end the process where no exception can be caught; such a
limit is refused before.
"""

import resource
import sys
from types import SimpleNamespace

from magcli.errors import EnvironmentFault

NEEDED = 640 << 20
"""Bytes of address space that every command needs: pyarrow and its threads."""
NEEDED_FOR_TORCH = 1536 << 20
"""Bytes that a command with PyTorch needs, without any weights."""
MESSAGES = ("failed to map segment", "annot allocate memory", "an't allocate memory", "an't start new thread")
"""Parts of the messages of other errors that mean the same as MemoryError."""


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


def memory_fault(error: BaseException) -> EnvironmentFault | None:
    """The fault to report for an error that means that memory ran out; None for any other."""
    if not isinstance(error, MemoryError) and not any(part in str(error) for part in MESSAGES):
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return EnvironmentFault("out of memory; use smaller sizes, or a machine with more memory")
    limited = f"the limit on this process's memory is {limit >> 20:,} MiB"
    return EnvironmentFault(f"out of memory; {limited}: raise it (ulimit -v), or use smaller sizes")
