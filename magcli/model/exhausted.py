"""Memory that ran out, on a GPU or a CPU, as one line that says which options to change."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

from magcli.errors import EnvironmentFault, first_line
from magcli.run.limits import memory_fault

TRAINING = "lower --micro-tokens, or use --activation-checkpointing yes"
SAMPLING = "lower --slots (of rl --n-async) or --max-tokens"
LOADING = "take a smaller model, or free the memory that other processes use"


@contextmanager
def explained(work: str, advice: str) -> Iterator[None]:
    """Turn an allocation that failed during some ``work`` into a fault with advice; other errors pass.

    Raises:
        EnvironmentFault: memory ran out.
    """
    try:
        yield
    # torch raises RuntimeError, numpy and Python MemoryError.
    except (RuntimeError, MemoryError) as error:
        fault = memory_fault(error)
        if fault is None:
            raise
        if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
            raise fault from error  # it names the limit, which is the first thing to change
        reason = first_line(error)
        raise EnvironmentFault(f"out of memory while {work}: {advice}; the same command resumes ({reason})") from error
