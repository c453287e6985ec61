"""The system calls that an untrusted program may make, as a seccomp filter.

Everything that is not listed fails with EPERM, above all: new processes, sockets, shared anonymous memory, memory
files, other processes' memory, limits and signals, mounts, namespaces, keys, tracing, io_uring and BPF. Threads are
allowed, and pairs of connected sockets, by which asyncio wakes itself and which only carry bytes. A filter cannot read
the flags of ``clone3``, so that fails with ENOSYS and glibc falls back to ``clone``.
"""

import platform
import struct
from collections.abc import Iterable
from functools import cache
from itertools import chain
from typing import Literal

from magcli.errors import EnvironmentFault

FilterKind = Literal["program", "compiler"]
"""What a filter is for."""

OWN_PID = 0x7E57C0DE
"""Placeholder for the process's own PID in a filter; greater than any PID."""

_ARCHES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Column in the tables below, and the kernel's constant of the architecture."""

# Each call with its numbers on x86_64 and aarch64.
_NUMBERS = """
read 0 63 write 1 64 readv 19 65 writev 20 66 pread64 17 67 pwrite64 18 68 preadv 295 69 pwritev 296 70
open 2 - openat 257 56 close 3 57 close_range 436 436 lseek 8 62 dup 32 23 dup2 33 - dup3 292 24 pipe 22 - pipe2 293 59
stat 4 - fstat 5 80 lstat 6 - newfstatat 262 79 statx 332 291 access 21 - faccessat 269 48 faccessat2 439 439
readlink 89 - readlinkat 267 78 getdents 78 - getdents64 217 61 getcwd 79 17 statfs 137 43 fstatfs 138 44
poll 7 - ppoll 271 73 select 23 - pselect6 270 72 epoll_create 213 - epoll_create1 291 20 epoll_ctl 233 21
epoll_wait 232 - epoll_pwait 281 22 eventfd2 290 19 fadvise64 221 223 ftruncate 77 46 fsync 74 82 fdatasync 75 83
sendfile 40 71 chdir 80 49 fchdir 81 50
mprotect 10 226 munmap 11 215 brk 12 214 mremap 25 216 madvise 28 233 msync 26 227 mincore 27 232 membarrier 324 283
rt_sigaction 13 134 rt_sigprocmask 14 135 rt_sigreturn 15 139 rt_sigpending 127 136 rt_sigtimedwait 128 137
rt_sigsuspend 130 133 sigaltstack 131 132 pause 34 - restart_syscall 219 128
nanosleep 35 101 clock_nanosleep 230 115 clock_gettime 228 113 clock_getres 229 114 gettimeofday 96 169 time 201 -
times 100 153 getrusage 98 165 getitimer 36 102 setitimer 38 103 alarm 37 -
getpid 39 172 getppid 110 173 gettid 186 178 getuid 102 174 geteuid 107 175 getgid 104 176 getegid 108 177
getresuid 118 148 getresgid 120 150 getgroups 115 158 getpgid 121 155 getpgrp 111 - getsid 124 156 uname 63 160
sysinfo 99 179 getrlimit 97 163 umask 95 166 arch_prctl 158 - futex 202 98 set_robust_list 273 99
rseq 334 293 set_tid_address 218 96 sched_yield 24 124 sched_getaffinity 204 123 sched_getparam 143 121
sched_getscheduler 145 120 sched_get_priority_max 146 125 sched_get_priority_min 147 126 getcpu 309 168
getrandom 318 278 execve 59 221 exit 60 93 exit_group 231 94 wait4 61 260 waitid 247 95
"""

_COMPILER_NUMBERS = """
fork 57 - vfork 58 - unlink 87 - unlinkat 263 35 rename 82 - renameat 264 38 renameat2 316 276 mkdir 83 - mkdirat 258 34
rmdir 84 - chmod 90 - fchmod 91 52 fchmodat 268 53 link 86 - linkat 265 37 symlink 88 - symlinkat 266 36 truncate 76 45
utimensat 280 88 utime 132 - utimes 235 - creat 85 - fallocate 285 47 copy_file_range 326 285
"""

_SPECIAL = """
mmap 9 222 clone 56 220 clone3 435 435 fcntl 72 25 ioctl 16 29 kill 62 129 tgkill 234 131 prctl 157 167
prlimit64 302 261 setrlimit 160 164 socketpair 53 199 sendto 44 206 recvfrom 45 207
"""
"""Calls that depend on their arguments."""

_SHARED_ANONYMOUS = 0x21  # MAP_SHARED | MAP_ANONYMOUS
_CLONE_THREAD = 0x10000
_CLONE_NAMESPACES = 0x7E020080  # all flags CLONE_NEW...
_FCNTL_COMMANDS = (0, 1, 2, 3, 4, 1030, 1032, 1034)  # F_DUPFD to F_SETFL, F_DUPFD_CLOEXEC, F_GETPIPE_SZ, F_GET_SEALS
_IOCTL_COMMANDS = (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # is it a terminal, how wide, FIO*
_SIGKILL_SIGSTOP = (9, 19)
_RLIMIT_CPU = 0
_AF_UNIX = 1
_SOCK_STREAM = (1, 0x801, 0x80001, 0x80801)  # also not blocking, closed on exec
_SEND, _RECEIVE = (0, 0x4000), (0, 0x40)  # MSG_NOSIGNAL, MSG_DONTWAIT
_PRCTL_COMMANDS = (15, 16, 0x53564D41)  # PR_SET_NAME, PR_GET_NAME, PR_SET_VMA

# Answers of a filter: the action, and in the lower half its error number.
_ALLOW = 0x7FFF0000
_EPERM = 0x00050001
_ENOSYS = 0x00050026
_KILL_PROCESS = 0x80000000
_X32 = 0x40000000
# Offsets in struct seccomp_data; the instruction pointer is between the last two, and arguments have 8 bytes each.
_NUMBER = 0
_ARCH = 4
_FIRST_ARGUMENT = 16

# Operations of classic BPF.
_LOAD_WORD = 0x20
_IF_EQUAL = 0x15
_IF_AT_LEAST = 0x35
_AND = 0x54
_RETURN = 0x06

_Code = list[tuple[int, int, int, int]]
"""A classic BPF program: (operation, jump if true, jump if false, constant)."""


# ---- pieces of filters ----

# A piece ends with a verdict, or goes on with what follows it. Jumps count the steps that are skipped.


def _load(offset: int) -> _Code:
    return [(_LOAD_WORD, 0, 0, offset)]


def _argument(index: int) -> _Code:
    """Load the lower half of an argument, all that the kernel reads of those that are checked here."""
    return _load(_FIRST_ARGUMENT + 8 * index)


def _answer(verdict: int) -> _Code:
    return [(_RETURN, 0, 0, verdict)]


def _when(value: int, then: _Code) -> _Code:
    """``then`` if the accumulator equals ``value``; otherwise continue after it."""
    return [(_IF_EQUAL, 0, len(then), value), *then]


def _among(index: int, values: Iterable[int]) -> _Code:
    """Allow if an argument is one of ``values``, else refuse."""
    chosen = chain.from_iterable(_when(value, _answer(_ALLOW)) for value in values)
    return [*_argument(index), *chosen, *_answer(_EPERM)]


def _masked(index: int, mask: int, refused: bool, value: int) -> _Code:
    """Refuse (or, unless ``refused``, only then allow) if the bits of ``mask`` in an argument equal ``value``."""
    hit, miss = (_EPERM, _ALLOW) if refused else (_ALLOW, _EPERM)
    return [*_argument(index), (_AND, 0, 0, mask), *_when(value, _answer(hit)), *_answer(miss)]


def _null(index: int) -> _Code:
    """Allow if an argument is a null pointer, else refuse."""
    # Both halves of the 64 bits must be 0.
    upper_half = _load(_FIRST_ARGUMENT + 8 * index + 4)
    allow_if_zero = [*upper_half, *_when(0, _answer(_ALLOW)), *_answer(_EPERM)]
    return [*_argument(index), *_when(0, allow_if_zero), *_answer(_EPERM)]


def _unless(index: int, values: Iterable[int]) -> _Code:
    """Refuse if an argument is one of ``values``; otherwise continue."""
    refusals = chain.from_iterable(_when(value, _answer(_EPERM)) for value in values)
    return [*_argument(index), *refusals]


def _judged(column: int, *, compiler: bool) -> _Code:
    """The calls that depend on their arguments.

    No program can end itself by SIGKILL, not even by a limit on its CPU time, or stop itself, so a program that was
    killed or stopped in this way was so from outside, which is not a verdict.
    """
    # A program may make threads only, a compiler processes too, and neither namespaces.
    namespaces = _CLONE_NAMESPACES if compiler else _CLONE_NAMESPACES | _CLONE_THREAD
    # An address to send to could be outside.
    without_address = chain.from_iterable(_when(flags, _null(4)) for flags in _SEND)
    rules = {
        "mmap": _masked(3, _SHARED_ANONYMOUS, True, _SHARED_ANONYMOUS),
        "clone": _masked(0, namespaces, False, 0 if compiler else _CLONE_THREAD),
        "clone3": _answer(_ENOSYS),
        "fcntl": _among(1, _FCNTL_COMMANDS),
        "ioctl": _among(1, _IOCTL_COMMANDS),
        "kill": [*_unless(1, _SIGKILL_SIGSTOP), *_among(0, [OWN_PID])],
        "tgkill": [*_unless(2, _SIGKILL_SIGSTOP), *_among(0, [OWN_PID])],
        "prctl": _among(0, _PRCTL_COMMANDS),
        "prlimit64": [*_unless(1, [_RLIMIT_CPU]), *_among(0, [0])],
        "setrlimit": [*_unless(0, [_RLIMIT_CPU]), *_answer(_ALLOW)],
        "socketpair": [*_argument(0), *_when(_AF_UNIX, _among(1, _SOCK_STREAM)), *_answer(_EPERM)],
        "sendto": [*_argument(3), *without_address, *_answer(_EPERM)],
        "recvfrom": _among(3, _RECEIVE),
    }
    code: _Code = []
    for name, number in _numbers(_SPECIAL, column).items():
        code += _when(number, rules[name])
    return code


def _numbers(table: str, column: int) -> dict[str, int]:
    """The numbers of calls by name; a dash stands for a call that the architecture lacks."""
    fields = table.split()
    numbers = zip(fields[::3], fields[1 + column :: 3], strict=True)
    return {name: int(number) for name, number in numbers if number != "-"}


@cache
def program_filter(kind: FilterKind = "program", machine: str = "") -> bytes:
    """The filter for this machine as the kernel takes it, an array of ``struct sock_filter``.

    A ``compiler`` may also start processes and change files. ``OWN_PID`` is the placeholder of the process's own PID:
    a program may signal itself and its threads only.

    Raises:
        EnvironmentFault: the processor is neither x86_64 nor aarch64.
    """
    machine = machine or platform.machine()
    if machine not in _ARCHES:
        raise EnvironmentFault(f"programs cannot be sandboxed on {machine}: the filter knows x86_64 and aarch64")
    column, arch = _ARCHES[machine]
    compiler = kind == "compiler"
    allowed = _numbers(_NUMBERS + _COMPILER_NUMBERS if compiler else _NUMBERS, column)
    # The architecture first: numbers of calls mean nothing without it.
    code = [*_load(_ARCH), (_IF_EQUAL, 1, 0, arch), *_answer(_KILL_PROCESS), *_load(_NUMBER)]
    # Numbers from here on are those of x32, the second ABI of x86_64.
    code += [(_IF_AT_LEAST, 0, 1, _X32), *_answer(_KILL_PROCESS)]
    for number in allowed.values():
        code += _when(number, _answer(_ALLOW))
    code += _judged(column, compiler=compiler) + _answer(_EPERM)
    return b"".join(struct.pack("=HBBI", *step) for step in code)  # struct sock_filter


@cache
def own_pid_offsets(code: bytes) -> list[int]:
    """Offsets of ``OWN_PID`` in a filter, in bytes."""
    # The constant of a step is the second half of its eight bytes.
    wanted = struct.pack("=I", OWN_PID)
    return [offset for offset in range(4, len(code), 8) if code[offset : offset + 4] == wanted]
