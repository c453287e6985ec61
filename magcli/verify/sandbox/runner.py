"""PID 1 of the sandbox: starts a fresh process of the program for each test and reports how it ended.

A standalone script: the interpreter runs it with ``-I -S -E``, without magcli. ``_socket`` is the C part of ``socket``;
the rest of that module, like ``signal``, imports ``enum`` and would double the start-up time.

The socket to the judge carries one packet per message. First the setup, answered by the open files of ``STREAMS`` if
the sandbox has names for them; then requests with open files (the program's stdin, stdout, stderr and report, and
perhaps a channel to another program), each answered by ``REPLY`` and an error message that is empty unless the runner
itself failed. If a program exceeds its wall time, the runner first sends ``LATE`` with a pidfd of the program, and the
judge answers how long the program was runnable but waited for a CPU, which only the judge can see. The runner exits
with all its processes when the socket closes.
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
"""CPU seconds, wall seconds without and with waiting for a CPU, bytes of address space, bytes per file, threads."""
REPLY = struct.Struct("=iiddQ")
"""Whether it exceeded a limit, wait status, CPU seconds, wall seconds, peak resident bytes."""
LATE, WAITED = b"late", struct.Struct("=d")
"""The question to the judge, sent with a descriptor of the program's process, and its answer in seconds."""
STREAMS = {"/dev/stdin": 0o444, "/dev/stdout": 0o666, "/dev/stderr": 0o666}
"""Files that are descriptors 0 to 2 in a sandbox without /proc, and their permissions."""

CONTROL, FIRST_FREE = 3, 4
SIGKILL = 9
SIGXFSZ = 25
SIGPIPE = 13
OPEN_FILES = 128
CPU_CLOCK = 2  # CPUCLOCK_SCHED, of a whole process
NOT_EXECUTABLE = (2, 8, 13, 22, 80)
"""ENOENT, ENOEXEC, EACCES, EINVAL, ELIBBAD: the program's own fault if its binary exists, since a source can forge
sections such as ``.interp`` (ENOENT then refers to the loader that it names)."""
LATE_INTERVAL = 0.05
"""Seconds between questions to the judge about a late program."""
CORES = len(os.sched_getaffinity(0))
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2
# System calls; their numbers are the same on all architectures.
LANDLOCK_CREATE = 444
LANDLOCK_ADD = 445
LANDLOCK_RESTRICT = 446
# By version: the rights that it handles, and the size of its attribute in bytes.
LANDLOCK_RIGHTS = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF, 5: 0xFFFF}
LANDLOCK_ATTRIBUTE = {1: 8, 2: 8, 3: 8, 4: 16, 5: 16}
O_PATH = 0o10000000

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> int:
    """The result of a C function; raises OSError if it failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def prctl(option: int, value: int, pointer: "Any" = None) -> None:
    """Set a property of this process; raises OSError if the kernel refuses."""
    check(libc.prctl(option, ctypes.c_ulong(value), pointer, None, None), f"prctl {option}")


def drop_privileges(uid: int) -> None:
    """Switch to an unprivileged user for good, if started as root; undumpable in any case."""
    if uid:
        # Groups first: once the user has changed, it may not change them.
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    prctl(PR_SET_DUMPABLE, 0)
    prctl(PR_SET_PDEATHSIG, SIGKILL)  # a change of user clears it
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def landlock(rules: "list[tuple[str, int]]") -> None:
    """Restrict file access to the paths of ``rules`` and below, with their rights."""
    # Without attributes the call returns the version of Landlock.
    newest = check(libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1), "landlock")
    version = min(newest, 6)
    handled = LANDLOCK_RIGHTS.get(version, 0xFFFF)
    # Rights to files, to TCP ports, and to sockets and signals outside, as far as the version knows them.
    attribute = struct.pack("=QQQ", handled, 3, 3)[: LANDLOCK_ATTRIBUTE.get(version, 24)]
    ruleset = check(libc.syscall(LANDLOCK_CREATE, attribute, ctypes.c_size_t(len(attribute)), 0), "landlock")
    for path, rights in rules:
        file = os.open(path, O_PATH)
        rule = struct.pack("=Qi", rights & handled, file)  # struct landlock_path_beneath_attr
        check(libc.syscall(LANDLOCK_ADD, ruleset, 1, rule, 0), f"landlock {path}")
        os.close(file)
    check(libc.syscall(LANDLOCK_RESTRICT, ruleset, 0), "landlock")
    os.close(ruleset)


def set_limit(kind: int, value: int) -> None:
    """Set a resource limit, capped at the current hard limit."""
    most = resource.getrlimit(kind)[1]  # -1 is none
    bounded = value if most == -1 or 0 <= value < most else most
    resource.setrlimit(kind, (bounded, bounded))


def set_limits(cpu: float, space: int, file: int, threads: int) -> None:
    """Set the kernel's resource limits on the process that becomes the program."""
    set_limit(resource.RLIMIT_CPU, int(1.25 * cpu) + 2)  # for a compiler's processes; ``wait`` ends a program before
    set_limit(resource.RLIMIT_AS, space)
    set_limit(resource.RLIMIT_STACK, resource.RLIM_INFINITY)  # the address space bounds recursion
    set_limit(resource.RLIMIT_FSIZE, file)
    set_limit(resource.RLIMIT_NOFILE, OPEN_FILES)
    for kind in (resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE):
        set_limit(kind, 0)
    if threads:
        set_limit(resource.RLIMIT_NPROC, threads + 1)  # the runner counts too


def prepare_filter(setup: "dict[str, Any]") -> None:
    """Lay out the seccomp filter once, so that each process only inserts its own PID."""
    if setup["filter"]:
        # struct sock_fprog: the number of steps, of 8 bytes each, and their address.
        code = setup["code"] = ctypes.create_string_buffer(setup["filter"], len(setup["filter"]))
        program = struct.pack("@HP", len(code) // 8, ctypes.addressof(code))
        setup["filter"] = ctypes.create_string_buffer(program, len(program))
    for number in (SIGPIPE, SIGXFSZ):
        libc.signal(number, None)  # Python ignores these, and programs would inherit that


def exec_program(setup: "dict[str, Any]", request: "tuple[Any, ...]", files: "list[int]", trouble: int) -> None:
    """Replace this process with the program; never returns. The filter comes last, as it forbids setting limits."""
    # A session and group of its own, so that the whole group can be killed.
    os.setsid()
    for descriptor, file in enumerate(files):
        os.dup2(file, descriptor)
    # ``trouble`` stays: it tells the runner why the program did not start, and closes when it does.
    os.closerange(len(files), trouble)
    os.closerange(trouble + 1, 1 << 16)
    prctl(PR_SET_PDEATHSIG, SIGKILL)
    cpu, _, _, space, file_size, threads = request
    set_limits(cpu, space, file_size, threads if setup["count_threads"] else 0)
    if setup["filter"]:
        for offset in setup["own_pid"]:
            struct.pack_into("=I", setup["code"], offset, os.getpid())
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, setup["filter"])
    if setup["warm"]:
        os.close(trouble)
        run_warm(setup["main"])
    try:
        os.execve(setup["argv"][0], setup["argv"], setup["env"])
    except OSError as error:
        command = setup["argv"][0]
        if error.errno not in NOT_EXECUTABLE or not command.startswith("./") or not os.path.exists(command):
            raise
        os.write(2, f"the program cannot be started: {error.strerror}\n".encode())
        os._exit(126)  # as a shell does


OWN_PACKAGES = ("magcli", "magcli.verify", "magcli.verify.code")
"""The packages of the modules that a warm script imports."""


def load_warm(path: str) -> "Any":
    """The function ``main`` of a script that is loaded once; its runs are forks of this process."""
    space = {"__name__": "warm", "__file__": path}
    # The modules beside it have the names that they have in magcli, which is not here.
    for name in OWN_PACKAGES:
        package = sys.modules[name] = type(sys)(name)
        package.__path__ = [os.path.dirname(path)]
    with open(path, "rb") as file:
        exec(compile(file.read(), path, "exec"), space)
    return space["main"]


def run_warm(main: "Any") -> None:
    """Run a loaded script as a program of its own, which ends as usual with an exception; never returns."""
    try:
        main()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


def wait(pid: int, control: socket, cpu: float, wall: float, longest: float) -> bool:
    """Wait until the program exits; false if it exceeded a limit first. Exits with the judge.

    CPU time is read from the process's precise clock: RLIMIT_CPU counts ticks and strikes a tenth too early on a busy
    machine. Time spent waiting for a CPU does not count, up to ``longest`` seconds in all.
    """
    process = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(process, select.POLLIN)
    poll.register(control.fileno(), select.POLLIN)
    start_time = time.monotonic()
    waited = 0.0
    within = True
    ready: list[int] = []
    while within and not ready:
        used = time.clock_gettime(~pid << 3 | CPU_CLOCK)  # the id of the CPU clock of another process
        passed = time.monotonic() - start_time
        late = passed > wall + waited
        if late:
            waited = ask_time_waiting(pid, process, control)
        within = used <= cpu and passed <= min(wall + waited, longest)
        # The CPU limit is not reached before this, even on all cores.
        soon = max(min(cpu - used, wall + waited - passed) / CORES, LATE_INTERVAL if late else 0.001)
        ready = [file for file, _ in poll.poll(soon * 1000)] if within else []
    os.close(process)
    if ready and process not in ready:
        exit_with_judge(pid)
    return within


def ask_time_waiting(pid: int, process: int, control: socket) -> float:
    """Ask the judge how long the program was runnable but had no CPU."""
    control.sendmsg([LATE], [(SOL_SOCKET, SCM_RIGHTS, struct.pack("=i", process))])
    answer = control.recv(WAITED.size)
    if not answer:
        exit_with_judge(pid)
    seconds: float = WAITED.unpack(answer)[0]
    return seconds


def exit_with_judge(pid: int) -> None:
    """Exit with all processes, since the judge has exited."""
    kill_all(pid)
    os._exit(0)


def kill_all(pid: int) -> None:
    """Kill the program and its remaining processes; PID 1 reaches everything in the sandbox, and nothing outside."""
    os.kill(pid, SIGKILL)
    # All but the caller, which as PID 1 is spared.
    try:
        os.kill(-1, SIGKILL) if os.getpid() == 1 else os.killpg(pid, SIGKILL)
    except ProcessLookupError:
        return


def reap() -> None:
    """Wait for all killed processes."""
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        return


def run_once(setup: "dict[str, Any]", control: socket, request: "tuple[Any, ...]", files: "list[int]") -> bytes:
    """Run the program once; returns the reply."""
    trouble, report = os.pipe()
    start_time = time.monotonic()
    pid = os.fork()
    if pid == 0:
        try:
            exec_program(setup, request, files, report)
        except BaseException as error:
            os.write(report, f"{type(error).__name__}: {error}".encode()[:1000])
        os._exit(125)
    os.close(report)
    for file in files:
        os.close(file)
    late = not wait(pid, control, *request[:3])
    # WNOWAIT leaves the state to be seen by ``wait4``, which also gives the usage.
    stopped = late and os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    kill_all(pid)
    _, status, usage = os.wait4(pid, 0)
    wall = time.monotonic() - start_time
    reap()
    text = os.read(trouble, 1000) or b"the program was stopped from outside" * stopped
    os.close(trouble)
    return REPLY.pack(late, status, usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss << 10) + text


def open_product(path: str) -> "list[int]":
    """The compiler's output file, open for reading; empty if there is none."""
    try:
        # Not a link to another file, and no pipe that would block.
        return [os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)] if path else []
    except OSError:
        return []


def create_streams() -> "list[int]":
    """Create the files of ``STREAMS``, open for reading and writing, and close ``/dev`` for further files."""
    # The modes as they are written.
    mask = os.umask(0)
    made = [os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode) for path, mode in STREAMS.items()]
    os.umask(mask)
    os.chmod("/dev", 0o555)
    return made


def send(control: socket, message: bytes, files: "list[int]") -> None:
    """Send a message with open files and close them."""
    ancillary = [(SOL_SOCKET, SCM_RIGHTS, struct.pack(f"={len(files)}i", *files))] if files else []
    control.sendmsg([message], ancillary)
    for file in files:
        os.close(file)


def main() -> None:
    """Set up, then serve requests until the socket closes."""
    os.dup2(int(sys.argv[1]), CONTROL)
    os.closerange(FIRST_FREE, 1 << 16)
    # No signal is blocked, whatever the caller's mask: 2 is SIG_SETMASK.
    libc.sigprocmask(2, ctypes.create_string_buffer(128), None)
    control = socket(fileno=CONTROL)
    setup = marshal.loads(control.recv(1 << 17))
    prepare_filter(setup)
    if setup["create_streams"]:
        send(control, b"ready", create_streams())
    os.chdir(setup["folder"])
    # It sets NO_NEW_PRIVS, without which the kernel refuses Landlock and seccomp to other users than root.
    drop_privileges(setup["uid"])
    if setup["landlock"]:
        landlock(setup["landlock"])
    if setup["warm"]:
        setup["main"] = load_warm(setup["warm"])
    while True:
        message, ancillary, _, _ = control.recvmsg(REQUEST.size, CMSG_SPACE(20), MSG_CMSG_CLOEXEC)
        if not message:
            return
        # Room for five files: stdin, stdout, stderr, report, and a channel.
        received = ancillary[0][2]
        files = list(struct.unpack(f"={len(received) // 4}i", received))
        reply = run_once(setup, control, REQUEST.unpack(message), files)
        send(control, reply, open_product(setup["product"]))


if __name__ == "__main__":
    main()
