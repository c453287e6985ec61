"""A worker of the pool: reads batches of jobs from a socket, grades them, and answers each at once.

Started through ``magcli.run.orphan`` with the arguments FD MEMORY WARM FUNCTION SANDBOX. FUNCTION is a custom reward,
or empty; if SANDBOX, an isolation of programs, is not empty, it is an environment, which is asked instead. With WARM 1
all libraries are loaded at once, with 0 each on first use, and the pool is notified. It imports little of magcli
besides errors and verify, limits its own memory, ignores SIGINT, and dies with its parent; what a custom reward starts
in it ends with it. A frame is 8 bytes of length and a pickle. An answer is the CPU time used so far and the reward; the
loading of a library is enclosed by ``LOADING`` and the CPU time with None.
"""

import os
import pickle
import resource
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

from magcli.errors import MagError
from magcli.run import family
from magcli.verify import custom, environment, language, loading
from magcli.verify.reward import describe_error, reward, ungraded, verify_pair
from magcli.verify.types import AnswerPair

HEADER = struct.Struct("<Q")
READY, LOADING = "ready", "loading"


def send(sock: socket.socket, message: object) -> None:
    """Send one frame."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    sock.sendall(HEADER.pack(len(body)) + body)


def receive(sock: socket.socket) -> Any:
    """The next frame. Raises EOFError if the other end is closed."""
    (size,) = HEADER.unpack(_read(sock, HEADER.size))
    return pickle.loads(_read(sock, size))


def _read(sock: socket.socket, size: int) -> bytes:
    body = bytearray()
    while len(body) < size:
        chunk = sock.recv(min(size - len(body), 1 << 20))
        if not chunk:
            raise EOFError
        body += chunk
    return bytes(body)


def grade(job: tuple[Any, ...], grader: Callable[..., Any] = reward) -> Any:
    """The reward of one job, the verdict on a pair of answers, or an environment's reply.

    A MagError is returned, any other exception is an infra-error.
    """
    try:
        if isinstance(job, AnswerPair):
            return verify_pair(job)
        return grader(*job)
    except MagError as error:
        return error
    except MemoryError:
        return ungraded("timeout", "out of memory")  # as an answer that cannot be graded in time: it counts as wrong
    except Exception as error:
        return ungraded("infra-error", describe_error(error))


def limit_memory(memory: int) -> None:
    """Limit the address space (bytes; 0 for no limit), at most to this process's own limit, and disable core dumps."""
    if memory:
        # A limit above the hard one is refused.
        most = resource.getrlimit(resource.RLIMIT_AS)[1]
        limit = memory if most == resource.RLIM_INFINITY else min(memory, most)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def load_grader(function: str, sandbox: str = "") -> Callable[..., Any]:
    """The recipe's reward, or a loaded custom one; with ``sandbox`` what asks an environment."""
    if not function:
        return reward
    if sandbox:
        return environment.asked(function, sandbox)
    return custom.grader_of(function)


def _end_copy(own_pid: int) -> None:
    """End a copy of the worker that a custom reward forked, and that returned from it: only the worker answers."""
    if os.getpid() != own_pid:
        os._exit(0)


def preload() -> None:
    """Load what the recipe's reward may need."""
    language.identify("The first call loads the model.")


def main(fd: int, memory: int, warm: bool, function: str, sandbox: str) -> None:
    """Serve until the parent closes its end."""
    limit_memory(memory)
    # Before any thread: it forks.
    if function:
        family.guard()
    own_pid = os.getpid()
    grader = load_grader(function, sandbox)
    _end_copy(own_pid)
    if warm and not function:
        preload()
    with socket.socket(fileno=fd) as sock:
        send(sock, READY)
        # The clock of a job stops meanwhile.
        loading.observe(lambda under_way: send(sock, LOADING if under_way else (time.process_time(), None)))
        try:
            while True:
                for job in receive(sock):
                    outcome = grade(job, grader)
                    _end_copy(own_pid)
                    send(sock, (time.process_time(), outcome))
        except (EOFError, ConnectionError):
            return


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "1", sys.argv[4], sys.argv[5])
