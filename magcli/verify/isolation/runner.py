"""Runs inside the sandbox, as its process 1: starts a program again for each test and says what became of it.

A script of its own: the interpreter runs it with ``-I -S -E`` and nothing of magcli is there. ``_socket`` is the part
of ``socket`` in C; the rest of it, as of ``signal``, imports ``enum`` and would double the time to start.

The socket to the judge carries one packet a message. First the set-up, which is answered by the open files of
``STREAMS`` where they have names inside; then requests with four open files (the program's stdin, stdout, stderr and
report), each answered by ``REPLY`` and a text that is empty unless the runner itself failed. Before that, a program
that is late is shown to the judge (``LATE``), who sees what cannot be seen from inside: for how long the program was
ready to run and had to wait for a processor. Everything under way ends when the socket closes.
"""

import ctypes
import marshal
import os
import resource
import select
import struct
import sys
import time
from _socket import CMSG_SPACE, MSG_CMSG_CLOEXEC, SCM_RIGHTS, SOL_SOCKET, socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REQUEST = struct.Struct("=dddQQQ")
"""CPU seconds, wall seconds without and with those of waiting, bytes of address space, bytes of one file, threads."""
REPLY = struct.Struct("=iiddQ")
"""Whether it was ended for a limit, wait status, CPU seconds, wall seconds, peak resident bytes."""
LATE, WAITED = b"late", struct.Struct("=d")
"""What the judge is asked, with a descriptor of the program's process; its answer, in seconds."""
STREAMS = {"/dev/stdin": 0o444, "/dev/stdout": 0o666, "/dev/stderr": 0o666}
"""Files that stand for descriptors 0 to 2 where a sandbox has no /proc, and what a program may do with them."""

CONTROL, FIRST_FREE = 3, 4
SIGKILL, SIGXFSZ, SIGPIPE = 9, 25, 13
OPEN_FILES = 128
CPU_CLOCK = 2
NOT_EXECUTABLE = (2, 8, 13, 22, 80)
"""ENOENT, ENOEXEC, EACCES, EINVAL, ELIBBAD: the program's own fault where its binary is there, since a source can forge
sections such as ``.interp`` (ENOENT then means the loader that it names)."""
AGAIN = 0.05
"""Seconds after which a program that is still late is shown to the judge again."""
CORES = len(os.sched_getaffinity(0))
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
SECCOMP_MODE_FILTER = 2
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
LANDLOCK_RIGHTS = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF}
LANDLOCK_ATTRIBUTE = {1: 8, 2: 8, 3: 8, 4: 16, 5: 16}
O_PATH = 0o10000000

libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> int:
    """The result of a C function.

    Raises:
        OSError: it failed.
    """
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def prctl(option: int, value: int, pointer: "Any" = None) -> None:
    """Set a property of this process.

    Raises:
        OSError: the kernel refuses.
    """
    checked(libc.prctl(option, ctypes.c_ulong(value), pointer, None, None), f"prctl {option}")


def drop(uid: int) -> None:
    """Become nobody in particular for good, where started as root; unreadable to others in any case."""
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    prctl(PR_SET_DUMPABLE, 0)
    prctl(PR_SET_PDEATHSIG, SIGKILL)  # a change of user clears it
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def landlock(places: "list[tuple[str, int]]") -> None:
    """Forget every file but those beneath ``places``, each with the rights that it is given there."""
    version = min(checked(libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1), "landlock"), 6)
    handled = LANDLOCK_RIGHTS.get(version, 0xFFFF)
    attribute = struct.pack("=QQQ", handled, 3, 3)[: LANDLOCK_ATTRIBUTE.get(version, 24)]
    rules = checked(libc.syscall(LANDLOCK_CREATE, attribute, ctypes.c_size_t(len(attribute)), 0), "landlock")
    for path, rights in places:
        place = os.open(path, O_PATH)
        rule = struct.pack("=Qi", rights & handled, place)
        checked(libc.syscall(LANDLOCK_ADD, rules, 1, rule, 0), f"landlock {path}")
        os.close(place)
    checked(libc.syscall(LANDLOCK_RESTRICT, rules, 0), "landlock")
    os.close(rules)


def lower(kind: int, soft: int, hard: int) -> None:
    """Set a limit, or keep the hard one that is there already where that is lower."""
    most = resource.getrlimit(kind)[1]
    bounded = [value if most == -1 or 0 <= value < most else most for value in (soft, hard)]
    resource.setrlimit(kind, (bounded[0], bounded[1]))


def limit(cpu: float, space: int, file: int, threads: int) -> None:
    """Set the kernel's own limits on the process that becomes the program."""
    seconds = int(1.25 * cpu) + 2
    lower(resource.RLIMIT_CPU, seconds, seconds)  # for a compiler's processes; ``wait`` ends a program before
    lower(resource.RLIMIT_AS, space, space)
    lower(resource.RLIMIT_STACK, resource.RLIM_INFINITY, resource.RLIM_INFINITY)  # the address space bounds recursion
    lower(resource.RLIMIT_FSIZE, file, file)
    lower(resource.RLIMIT_NOFILE, OPEN_FILES, OPEN_FILES)
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE):
        lower(kind, 0, 0)
    if threads:
        lower(resource.RLIMIT_NPROC, threads + 1, threads + 1)  # the runner counts too


def prepare(setup: "dict[str, Any]") -> None:
    """Lay out the filter once, so that a program only puts its own number into it."""
    if setup["filter"]:
        code = setup["code"] = ctypes.create_string_buffer(setup["filter"], len(setup["filter"]))
        program = struct.pack("@HP", len(code) // 8, ctypes.addressof(code))
        setup["filter"] = ctypes.create_string_buffer(program, len(program))
    for number in (SIGPIPE, SIGXFSZ):
        libc.signal(number, None)  # Python ignores these, and programs would inherit that


def become(setup: "dict[str, Any]", request: "tuple[Any, ...]", files: "list[int]", trouble: int) -> None:
    """Turn this process into the program; returns never. The filter comes last, for the limits it forbids."""
    os.setsid()
    for place, file in enumerate(files):
        os.dup2(file, place)
    os.closerange(FIRST_FREE, trouble)
    os.closerange(trouble + 1, 1 << 16)
    prctl(PR_SET_PDEATHSIG, SIGKILL)
    cpu, _, _, space, file_size, threads = request
    limit(cpu, space, file_size, threads if setup["count_threads"] else 0)
    if setup["filter"]:
        for place in setup["own_pid"]:
            struct.pack_into("=I", setup["code"], place, os.getpid())
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, setup["filter"])
    try:
        os.execve(setup["argv"][0], setup["argv"], setup["env"])
    except OSError as error:
        command = setup["argv"][0]
        if error.errno not in NOT_EXECUTABLE or not command.startswith("./") or not os.path.exists(command):
            raise
        os.write(2, f"the program cannot be started: {error.strerror}\n".encode())
        os._exit(126)


def wait(pid: int, control: socket, cpu: float, wall: float, longest: float) -> bool:
    """Wait until the program has ended; false when it went over a limit first. Exits when the judge is gone.

    CPU time is read from the process's exact clock: the kernel's own limit counts ticks, and on a busy machine it
    strikes a tenth too early. Time in which others kept the program from a processor does not count up to ``longest``.
    """
    process = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(process, select.POLLIN)
    poll.register(control.fileno(), select.POLLIN)
    begun, waited, within = time.monotonic(), 0.0, True
    ready: list[int] = []
    while within and not ready:
        used, passed = time.clock_gettime(~pid << 3 | CPU_CLOCK), time.monotonic() - begun
        if late := passed > wall + waited:
            waited = kept_waiting(pid, process, control)
        within = used <= cpu and passed <= min(wall + waited, longest)
        soon = max(min(cpu - used, wall + waited - passed) / CORES, AGAIN if late else 0.001)
        ready = [file for file, _ in poll.poll(soon * 1000)] if within else []
    os.close(process)
    if ready and process not in ready:
        gone(pid)
    return within


def kept_waiting(pid: int, process: int, control: socket) -> float:
    """How long a program was kept from a processor, by the judge."""
    control.sendmsg([LATE], [(SOL_SOCKET, SCM_RIGHTS, struct.pack("=i", process))])
    answer = control.recv(WAITED.size)
    if not answer:
        gone(pid)
    seconds: float = WAITED.unpack(answer)[0]
    return seconds


def gone(pid: int) -> None:
    """End it all, since the judge is gone."""
    sweep(pid)
    os._exit(0)


def sweep(pid: int) -> None:
    """Kill a program and whatever it has left. Process 1 reaches everything in the sandbox, and nothing outside."""
    os.kill(pid, SIGKILL)
    try:
        os.kill(-1, SIGKILL) if os.getpid() == 1 else os.killpg(pid, SIGKILL)
    except ProcessLookupError:
        return


def reap() -> None:
    """Wait until nothing that was killed is left."""
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        return


def run(setup: "dict[str, Any]", control: socket, request: "tuple[Any, ...]", files: "list[int]") -> bytes:
    """One run of the program; the reply."""
    trouble, report = os.pipe()
    begun = time.monotonic()
    pid = os.fork()
    if pid == 0:
        try:
            become(setup, request, files, report)
        except BaseException as error:
            os.write(report, f"{type(error).__name__}: {error}".encode()[:1000])
        os._exit(125)
    os.close(report)
    for file in files:
        os.close(file)
    late = not wait(pid, control, *request[:3])
    stopped = late and os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    sweep(pid)
    _, status, usage = os.wait4(pid, 0)
    wall = time.monotonic() - begun
    reap()
    text = os.read(trouble, 1000) or b"it was stopped from outside" * stopped
    os.close(trouble)
    return REPLY.pack(late, status, usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss << 10) + text


def product(path: str) -> "list[int]":
    """What a compiler has made, open to read; empty when it made nothing."""
    try:
        return [os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)] if path else []
    except OSError:
        return []


def named() -> "list[int]":
    """The files of ``STREAMS``, made where nothing else can be made afterwards, open to read and write."""
    mask = os.umask(0)
    made = [os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode) for path, mode in STREAMS.items()]
    os.umask(mask)
    os.chmod("/dev", 0o555)
    return made


def hand_over(control: socket, message: bytes, files: "list[int]") -> None:
    """Send a message with open files, and close them here."""
    control.sendmsg([message], [(SOL_SOCKET, SCM_RIGHTS, struct.pack(f"={len(files)}i", *files))] if files else [])
    for file in files:
        os.close(file)


def main() -> None:
    """Set up, then answer requests until the socket closes."""
    os.dup2(int(sys.argv[1]), CONTROL)
    os.closerange(FIRST_FREE, 1 << 16)
    libc.sigprocmask(2, ctypes.create_string_buffer(128), None)
    control = socket(fileno=CONTROL)
    setup = marshal.loads(control.recv(1 << 17))
    prepare(setup)
    if setup["named"]:
        hand_over(control, b"named", named())
    os.chdir(setup["folder"])
    drop(setup["uid"])
    if setup["places"]:
        landlock(setup["places"])
    while True:
        message, ancillary, _, _ = control.recvmsg(REQUEST.size, CMSG_SPACE(16), MSG_CMSG_CLOEXEC)
        if not message:
            return
        files = list(struct.unpack("=4i", ancillary[0][2]))
        reply = run(setup, control, REQUEST.unpack(message), files)
        hand_over(control, reply, product(setup["product"]))


if __name__ == "__main__":
    main()
