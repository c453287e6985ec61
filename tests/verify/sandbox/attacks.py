"""What hostile programs try, run inside the sandbox by ``test_verify_attacks``: the first line of stdin names the
attempt, the second holds its argument. What it got is printed; a refusal ends it with the name of the error."""

import ctypes
import errno
import mmap
import os
import resource
import sys
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p


def call(name, *arguments):
    """The name of a C function's error, or its result."""
    result = getattr(libc, name)(*arguments)
    return errno.errorcode.get(ctypes.get_errno(), "?") if result == -1 else f"got {result}"


def system_call(number, *arguments):
    return call("syscall", number, *(ctypes.c_long(argument) for argument in arguments))


def answer(_):
    return 42


def fork(_):
    return os.fork()


def subprocess_(_):
    import subprocess

    return subprocess.run(["/usr/bin/true"]).returncode


def spawn(_):
    return os.posix_spawn("/usr/bin/true", ["true"], {})


def multiprocessing_(_):
    import multiprocessing

    worker = multiprocessing.get_context("fork").Process(target=print)
    worker.start()
    return "started"


def shell(_):
    return os.system("echo out")


def threads(_):
    """As many threads as allowed."""
    stop = threading.Event()
    try:
        while True:
            threading.Thread(target=stop.wait, daemon=True).start()
    except RuntimeError:
        return threading.active_count()
    finally:
        stop.set()


def connect(port):
    import socket

    return socket.create_connection(("127.0.0.1", int(port)), 1)


def connect_unix(path):
    import _socket

    return _socket.socket(_socket.AF_UNIX).connect(path)


def socketpair(_):
    import _socket

    one, other = _socket.socketpair()
    one.send(b"through")
    return other.recv(100)


def socketpair_datagram(_):
    """Datagrams could be sent to any address."""
    import _socket

    return _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_DGRAM)


def send_elsewhere(path):
    import _socket

    return _socket.socketpair()[0].sendto(b"x", path)


def send_out_of_band(_):
    import _socket

    return _socket.socketpair()[0].send(b"x", _socket.MSG_OOB)


def pass_descriptor(_):
    import _socket

    rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, b"\0\0\0\0")
    return _socket.socketpair()[0].sendmsg([b"x"], [rights])


def listen(_):
    import _socket

    return _socket.socketpair()[0].listen()


def read(path):
    with open(path, "rb") as file:
        return file.read(4)


def list_(path):
    return os.listdir(path)


def write(path):
    with open(path, "w") as file:
        return file.write("attacked")


def remove(path):
    return os.remove(path)


def rename_self(_):
    return os.rename(__file__, "other.py")


def chmod_self(_):
    return os.chmod(__file__, 0o777)


def mkdir(path):
    return os.mkdir(path)


def symlink(path):
    return os.symlink("/etc/passwd", path)


def memory_file(_):
    return os.memfd_create("hidden")


def message_queue(_):
    return call("mq_open", b"/q", os.O_CREAT | os.O_RDWR, 0o600, None)


def shared_segment(_):
    return call("shmget", 0, 1 << 20, 0o1600)


def semaphores(_):
    return call("semget", 0, 1, 0o1600)


def shared_memory(megabytes):
    """Shared anonymous memory, which the limit on data does not count."""
    size = int(megabytes) << 20
    block = mmap.mmap(-1, size)
    for place in range(0, size, 4096):
        block[place] = 1
    return "touched"


def kill(pid):
    return os.kill(int(pid), 9)


def kill_parent(_):
    return os.kill(os.getppid() or 1, 9)


def kill_thread(pid):
    return call("syscall", 200, ctypes.c_long(int(pid)), ctypes.c_long(9))


def queue_signal(pid):
    return call("sigqueue", int(pid), 9, None)


def killpg(_):
    return os.killpg(0, 9)


def limit_runner(_):
    """Lower the runner's own limit on CPU time, which the kernel enforces even on process 1."""
    return resource.prlimit(os.getppid() or 1, resource.RLIMIT_CPU, (0, 0))


def raise_limits(_):
    return resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def nice(_):
    return os.nice(-10)


def slow_all(_):
    return os.setpriority(os.PRIO_USER, os.getuid(), 19)


def pin(_):
    return os.sched_setaffinity(os.getppid() or 1, {0})


def schedule(_):
    return os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def setuid(_):
    return os.setuid(0)


def chroot(_):
    return os.chroot("/usr")


def new_session(_):
    return os.setsid()


def unshare(_):
    return call("unshare", 0x10000000)


def mount(_):
    return call("mount", b"none", b"/box", b"tmpfs", 0, None)


def setns(_):
    return call("setns", 0, 0)


def trace(_):
    return call("ptrace", 16, os.getppid() or 1, None, None)


def read_memory(_):
    return call("process_vm_readv", os.getppid() or 1, None, 0, None, 0, 0)


def bpf(_):
    return system_call(321, 0, 0, 0)


def io_uring(_):
    return system_call(425, 1, 0)


def userfault(_):
    return system_call(323, 0)


def keys(_):
    return system_call(250, 0, 0)


def perf(_):
    return system_call(298, 0, 0, -1, -1, 0)


def process_file(_):
    return os.pidfd_open(os.getppid() or 1)


def watch(_):
    return call("inotify_init")


def lock(_):
    import fcntl

    with open("/usr/bin/env", "rb") as file:
        return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def type_into_terminal(_):
    import fcntl

    return fcntl.ioctl(0, 0x5412, b"x")


def dump(_):
    return call("prctl", 4, 1, 0, 0, 0)


def outlive_parent(_):
    return call("prctl", 1, 0, 0, 0, 0)


def descriptors(_):
    found = []
    for number in range(4096):
        try:
            os.fstat(number)
            found.append(number)
        except OSError:
            pass
    return found


def environment(_):
    return sorted(os.environ)


def arguments(_):
    return sys.argv, sys.orig_argv


def own_number(_):
    return os.getuid(), os.getgid(), os.getgroups()


def write_stdin(_):
    return os.write(0, b"x")


def write_named_stdin(_):
    with open("/dev/stdin", "w") as file:
        return file.write("x")


def remove_named_stdin(_):
    return os.remove("/dev/stdin")


def run_output(_):
    """Write a program to stdout and start it."""
    with open("/usr/bin/true", "rb") as file:
        os.write(1, file.read())
    os.execv("/dev/stdout", ["true"])


def read_named(_):
    """What another test may have left in the named files."""
    return [open(f"/dev/{name}", "rb").read() for name in ("stdin", "stdout", "stderr")]


def enlarge_stdin(_):
    return os.truncate(0, 1 << 30)


def map_stdin(_):
    return mmap.mmap(0, 1, mmap.MAP_SHARED, mmap.PROT_WRITE)


def huge_stdout(_):
    return os.ftruncate(1, 1 << 40)


def read_stdout(_):
    """What another test may have left in this one's files."""
    return os.pread(1, 100, 0) + os.pread(2, 100, 0) + os.pread(3, 100, 0)


def collected(beginning):
    """Search for inputs of other tests through the garbage collector and the frames of callers."""
    import gc

    frame, texts = sys._getframe().f_back, []
    while frame:
        texts += map(repr, frame.f_locals.values())
        frame = frame.f_back
    texts += [repr(thing) for thing in gc.get_objects() if type(thing) in (dict, list, tuple)]
    text = "".join(texts)
    return len(text) > 10000, [
        text[place : place + 32] for place in range(len(text)) if text.startswith(beginning, place)
    ]


def allocate(megabytes):
    return len(bytearray(b"x") * (int(megabytes) << 20))


def hoard(_):
    kept = []
    while True:
        kept.append(bytearray(b"x") * (1 << 20))


def forget(_):
    """Use much memory, then exec a small program, which a measurement at the end would miss."""
    block = bytearray(b"x") * (400 << 20)
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-E", "-c", f"print({len(block)})"])


def forget_time(_):
    while time.process_time() < 0.3:
        pass
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-E", "-c", "while True: pass"])


def spin(_):
    while True:
        pass


def spin_deaf(_):
    """Ignore every signal that can be ignored, as those of a limit."""
    import signal

    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            continue
    spin(None)


def spin_together(_):
    """Seven threads outside the interpreter's lock."""
    import hashlib

    block = bytes(1 << 24)
    workers = [
        threading.Thread(target=lambda: [hashlib.sha256(block) for _ in range(10**6)], daemon=True) for _ in range(6)
    ]
    for worker in workers:
        worker.start()
    workers[0].join()


def sleep(_):
    time.sleep(1000)


def sleep_silently(_):
    """Close stdout first, which a judge may wait for."""
    os.close(1)
    os.close(2)
    time.sleep(1000)


def stop_self(_):
    return os.kill(os.getpid(), 19)


def kill_self(_):
    return os.kill(os.getpid(), 9)


def kill_self_late(_):
    """A program's own limit on CPU time ends in SIGKILL, as if from outside."""
    return resource.prlimit(0, resource.RLIMIT_CPU, (0, 1))


def kill_self_timed(_):
    return call("timer_create", 0, ctypes.create_string_buffer(64), ctypes.create_string_buffer(8))


def more_stack(_):
    """The first statement of many contest programs."""
    return resource.setrlimit(resource.RLIMIT_STACK, (1 << 28, resource.RLIM_INFINITY))


def flood(_):
    while True:
        os.write(1, b"x" * (1 << 16))


def flood_errors(_):
    while True:
        os.write(2, b"x" * (1 << 16))


def flood_report(_):
    while True:
        os.write(3, b"x" * (1 << 16))


def recurse(_):
    sys.setrecursionlimit(1 << 30)

    def deeper(n):
        return deeper(n + 1) + 1

    return deeper(0)


def abort(_):
    os.abort()


def crash(_):
    ctypes.string_at(1)


def wait_for_nothing(_):
    return os.wait()


if __name__ == "__main__":
    name, argument = sys.stdin.readline().strip(), sys.stdin.readline().strip()
    try:
        result = globals()[name](argument)
    except OSError as error:
        result = errno.errorcode.get(error.errno, "?")
    except MemoryError:
        result = "MemoryError"
    print(result)
