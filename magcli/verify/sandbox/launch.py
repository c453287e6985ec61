"""Starting the runner in isolation: in bubblewrap (``full``), under Landlock (``restricted``), or without any.

``full`` is bubblewrap with its own root filesystem (read-only ``/usr``, the interpreter's installation, a few devices,
the program's files) and its own PID, network, user and UTS namespaces. There is no ``/proc``: ``/dev/stdin``,
``/dev/stdout``, ``/dev/stderr`` and paths to them, such as ``/proc/self/fd/0``, are files inside the sandbox that are
also the program's descriptors 0 to 2. As root, bubblewrap mounts with root's rights, since nobody else can reach an
interpreter under ``/root``, and keeps only the capability to change the user; the runner switches to an unused user
before it receives a program (the kernel exempts root from the limit on threads). If root may not mount, magcli
switches to the unused user first and mounts in a user namespace, as it does for every other user.

``restricted`` is for machines that refuse namespaces, such as Docker's default profile: the same runner and seccomp
filter, the files in a temporary folder, Landlock instead of mounts. ``/dev/stdin`` links to a memory file, which
Landlock does not restrict; this needs ``/proc``. Weaker than ``full``: a program can see which files exist and their
sizes; the folder of a build has no size limit; unless root starts it, only memory bounds the number of threads.
"""

from __future__ import annotations

import marshal
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from importlib.util import MAGIC_NUMBER, find_spec
from pathlib import Path
from typing import Literal

from magcli.verify.sandbox import runner
from magcli.verify.sandbox.seccomp import FilterKind, own_pid_offsets, program_filter

Level = Literal["full", "restricted", "none"]
MountUser = Literal["root", "dropped", "user"]
"""Who mounts: root, an unused user that root switches to, or the user that runs magcli."""

BOX = "/box"
SEARCH_PATH = "/usr/bin:/bin"
ENVIRONMENT = {
    "PATH": SEARCH_PATH, "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
}  # fmt: skip
"""The environment of programs, besides HOME and TMPDIR; a fixed hash seed makes verdicts independent of set order."""

DEVICES = ("/dev/null", "/dev/urandom", "/dev/random")
"""Devices that programs may use; a compiler has only ``/dev/null``."""

STOP_TIMEOUT = 1.0
"""Seconds that a runner has to exit by itself."""
PACKAGES = ("numpy", "sortedcontainers")
"""Packages available on contest judges, mounted for programs that mention them if installed."""
_LIBRARIES = ("bin", "sbin", "lib", "lib32", "lib64")
# Bits of Landlock: 0 execute, 1 write and 2 read a file, 3 list a folder; the others create, remove and the like.
_READ = 0b1101
_READ_WRITE = 0b110
_EVERYTHING = 0xFFFF
"""Landlock access rights: execute, read and list; read and write; all."""
_RUNNER = Path(runner.__file__)
_INSIDE = "/runner"
_NULL_DEVICE = ("--perms", "0755", "--dir", "/dev", "--dev-bind", "/dev/null", "/dev/null")


@dataclass(frozen=True, slots=True)
class Isolation:
    """How runners are started on this machine. ``python`` is the interpreter inside, ``prefix`` its installation;
    ``readable`` are additional folders that programs may read."""

    level: Level
    python: str
    prefix: str
    mount_as: MountUser = "user"
    bwrap: str = ""
    readable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProgramSpec:
    """A program's command and files. A compiler may write ``size`` bytes and must create ``product``.

    ``warm`` names a script of magcli among the files that the runner loads once; instead of the command each run is a
    fork of the runner that calls the script's ``main``.
    """

    argv: tuple[str, ...]
    files: Mapping[str, bytes | Path]
    product: str = ""
    size: int = 0
    warm: str = ""


@dataclass(frozen=True, slots=True)
class Runner:
    """A started runner: its process, the socket to it, the file of its own stderr, and cleanup callbacks.

    ``sends_streams``: it first sends the files that are ``/dev/stdin``, ``/dev/stdout`` and ``/dev/stderr`` inside.
    """

    process: subprocess.Popen[bytes]
    control: socket.socket
    errors: int
    cleanup: ExitStack
    sends_streams: bool

    def stop(self) -> None:
        """Terminate it and all its processes, and wait for them.

        An idle runner exits by itself, so that its CPU time counts as ours; it shares a process group with bubblewrap.
        """
        # The runner exits when its end of the socket is closed.
        self.control.close()
        if self.process.poll() is None and not _exits_within(self.process.pid, STOP_TIMEOUT):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.cleanup.close()


def _exits_within(pid: int, seconds: float) -> bool:
    """Whether a child exits in time."""
    process = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(process, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(process)


def start(isolation: Isolation, spec: ProgramSpec) -> Runner:
    """Start a runner for one program, which waits for requests. It dies with the thread that started it.

    Raises OSError if a file of the program cannot be read, or the process cannot be started.
    """
    # ``cleanup`` is what the runner's end closes, ``opened`` what only the new process needs.
    with ExitStack() as cleanup, ExitStack() as opened:
        # Of packets: a message arrives whole, with its open files.
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        cleanup.callback(ours.close)
        opened.callback(theirs.close)
        errors = memory_file("errors", b"")
        cleanup.callback(os.close, errors)
        uid = 0 if isolation.mount_as == "user" else unused_uid()
        command, folder = [isolation.python, "-I", "-S", "-E"], BOX
        passed = [theirs.fileno()]
        if isolation.level == "full":
            contents = _contents(isolation, spec, opened)
            command = [*_bwrap_command(isolation, spec, contents), *command, _INSIDE]
            passed += [file for file in contents.values() if isinstance(file, int)]
        else:
            folder = _temporary_folder(isolation, spec, uid, cleanup)
            command += [str(_RUNNER)]
        # As root, the runner itself changes the user, after bubblewrap has mounted.
        owner = uid if isolation.mount_as == "dropped" else None
        process = _spawn([*command, str(theirs.fileno())], owner, passed, errors)
        # It waits in the socket until the runner reads it.
        ours.send(_runner_setup(isolation, spec, folder, uid), socket.MSG_NOSIGNAL)
        return Runner(process, ours, errors, cleanup.pop_all(), _needs_streams(isolation, spec))


def _needs_streams(isolation: Isolation, spec: ProgramSpec) -> bool:
    """Whether the runner must create ``/dev/stdin``, ``/dev/stdout`` and ``/dev/stderr``, as there is no ``/proc``."""
    return isolation.level == "full" and not spec.size


def memory_file(name: str, content: bytes) -> int:
    """A memory file with ``content``, positioned at its start; the caller closes it."""
    file = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        write_all(file, content)
    except BaseException:
        os.close(file)
        raise
    return file


def write_all(file: int, content: bytes) -> None:
    """Write the content of an empty file, whose position stays at its start."""
    # ``pwrite`` leaves the position alone, and may write only a part.
    view, at = memoryview(content), 0
    while at < len(view):
        at += os.pwrite(file, view[at:], at)


def unused_uid() -> int:
    """A random unused user id for each program, so that no two share anything; 0 if only root's id is mapped.

    From 0x70000000, above ids of accounts and containers, or else from the upper half of the mapped range.
    """
    # First id inside, first id outside, number of ids.
    rows = [tuple(map(int, row.split())) for row in Path("/proc/self/uid_map").read_text().splitlines()]
    first, _, count = max(rows, key=lambda row: row[2])
    if count <= 1000:
        return 0
    last = min(first + count - 2, 0x7FFD0000)
    return last - secrets.randbelow(min(count // 2, 0x0FFD0000))


def _spawn(command: Sequence[str], owner: int | None, passed: Sequence[int], errors: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        pass_fds=passed,
        env={},
        start_new_session=True,
        user=owner,
        group=owner,
        extra_groups=None if owner is None else [],
    )


def _runner_setup(isolation: Isolation, spec: ProgramSpec, folder: str, uid: int) -> bytes:
    """The runner's first message; see ``magcli.verify.sandbox.runner``."""
    kind: FilterKind = "compiler" if spec.size else "program"
    # Without mounts /box is a temporary folder, whatever words name it.
    inside = [folder + word.removeprefix(BOX) if f"{word}/".startswith(f"{BOX}/") else word for word in spec.argv]
    code = b"" if isolation.level == "none" else program_filter(kind)
    executable = inside[0] if "/" in inside[0] else shutil.which(inside[0], path=SEARCH_PATH)
    setup = {
        "argv": [executable or inside[0], *inside[1:]],
        "env": ENVIRONMENT | {"HOME": folder, "TMPDIR": folder},
        "folder": folder,
        "uid": uid if isolation.mount_as == "root" else 0,
        "filter": code,
        "own_pid": own_pid_offsets(code),
        "landlock": _landlock_rules(isolation, spec, folder, uid) if isolation.level == "restricted" else [],
        "count_threads": uid > 0 or isolation.level == "full",
        "create_streams": _needs_streams(isolation, spec),
        "product": f"{folder}/{spec.product}" if spec.product else "",
        "warm": f"{folder}/{spec.warm}" if spec.warm else "",
    }
    return marshal.dumps(setup, 2)


def _contents(isolation: Isolation, spec: ProgramSpec, opened: ExitStack) -> dict[str, int | Path]:
    """Files by their path inside: bind-mounted from a path, or copied by bubblewrap from an open memory file.

    A user that root switched to may be unable to reach the paths, so then everything is copied.
    """
    script = script_for(isolation.python, _RUNNER, _INSIDE)
    contents: dict[str, bytes | Path] = {_INSIDE: script}
    for name, content in spec.files.items():
        contents[f"{BOX}/{name}"] = content
    files: dict[str, int | Path] = {}
    for path, content in contents.items():
        if isinstance(content, Path) and isolation.mount_as != "dropped":
            files[path] = content.resolve(strict=True)
        else:
            copied = content if isinstance(content, bytes) else content.read_bytes()
            file = memory_file("file", copied)
            opened.callback(os.close, file)
            files[path] = file
    return files


@cache
def script_for(python: str, path: Path, name: str) -> bytes:
    """A script, compiled if the interpreter inside is magcli's, as compiling takes a tenth of the start-up time."""
    source = path.read_bytes()
    if python != os.path.realpath(sys.executable):
        return source
    # As a .pyc file, which Python runs in place of a script: flags, time and size, here 0, are not checked then.
    return MAGIC_NUMBER + bytes(12) + marshal.dumps(compile(source, name, "exec", dont_inherit=True))


def _bwrap_command(isolation: Isolation, spec: ProgramSpec, contents: Mapping[str, int | Path]) -> list[str]:
    """The command of bubblewrap up to the program."""
    command = [isolation.bwrap, *(f"--unshare-{namespace}" for namespace in ("ipc", "pid", "net", "uts", "cgroup-try"))]
    command += ["--die-with-parent", "--as-pid-1", "--clearenv", "--hostname", "box"]
    if isolation.mount_as == "root":
        # The runner needs both to change the user, and loses them with it.
        command += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-user", "--uid", "65534", "--gid", "65534"]
    command += [*_system_mounts(isolation), *(_NULL_DEVICE if spec.size else _devices())]
    if spec.size:
        command += ["--perms", "1777", "--size", str(spec.size), "--tmpfs", BOX]
    else:
        # _mkdirs makes the parents of what it gets.
        command += _mkdirs([f"{BOX}/_"])
    for name, folder in _packages(isolation, spec).items():
        command += [*_mkdirs([f"/packages/{name}/_"]), "--ro-bind", str(folder), f"/packages/{name}"]
    command += _mkdirs(contents)
    for path, content in contents.items():
        if isinstance(content, Path):
            command += ["--ro-bind", str(content), path]
        else:
            command += ["--perms", "0555", "--file", str(content), path]
    # Last, as everything before it makes files and folders in the root.
    return [*command, "--remount-ro", "/", "--chdir", BOX, "--"]


def _system_mounts(isolation: Isolation) -> list[str]:
    """Mounts for every program: libraries, compilers, interpreter."""
    command = ["--ro-bind", "/usr", "/usr"]
    for name in _LIBRARIES:
        path = Path("/", name)
        # Where /usr is merged, /bin and /lib are links into it.
        if path.is_symlink():
            command += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            command += ["--ro-bind", str(path), str(path)]
    for more in _outside_usr(isolation):
        command += [*_mkdirs([f"{more}/_"]), "--ro-bind", more, more]
    return command


def _packages(isolation: Isolation, spec: ProgramSpec) -> dict[str, Path]:
    """Folders of the packages that a file of the program mentions, by their names inside; most need none."""
    texts = [content for content in spec.files.values() if isinstance(content, bytes)]
    packages = {}
    for name, path in _installed(isolation.python).items():
        module = name.partition(".")[0].encode()  # numpy, of numpy.libs
        if any(module in text for text in texts) and _is_reachable(path, isolation):
            packages[name] = path
    return packages


def _is_reachable(folder: Path, isolation: Isolation) -> bool:
    """Whether a folder can be read for programs; where an unused user reads it, it must be open to all."""
    if isolation.mount_as == "user" or (isolation.mount_as == "root" and isolation.level == "full"):
        return True
    return all(path.stat().st_mode & 0o1 for path in (folder, *folder.parents))


@cache
def _installed(python: str) -> dict[str, Path]:
    """Folders of ``PACKAGES`` and their bundled libraries; empty for an interpreter of another version."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    # Compiled packages fit one version of Python only.
    if python != os.path.realpath(sys.executable) and Path(python).name != version:
        return {}
    folders: list[Path] = []
    for name in PACKAGES:
        spec = find_spec(name)
        if spec and spec.submodule_search_locations:
            folders += [Path(path).resolve() for path in spec.submodule_search_locations]
    # Wheels have their shared libraries in a folder of this name beside them.
    libraries = [folder.with_name(f"{folder.name}.libs") for folder in folders]
    return {folder.name: folder for folder in (*folders, *libraries) if folder.is_dir()}


def _devices() -> list[str]:
    """``/dev``, where the runner creates the files of ``STREAMS``, and a ``/proc`` with nothing but links to these.

    The folders of the links cannot be listed.
    """
    command = ["--perms", "0755", "--tmpfs", "/dev"]
    for device in DEVICES:
        command += ["--dev-bind-try", device, device]
    for folder in ("/proc", "/proc/self", "/proc/self/fd"):
        command += ["--perms", "0111", "--dir", folder]
    for number, path in enumerate(runner.STREAMS):
        command += ["--symlink", path, f"/proc/self/fd/{number}"]
    return [*command, "--symlink", "/proc/self/fd", "/dev/fd"]


def _outside_usr(isolation: Isolation) -> list[str]:
    paths = dict.fromkeys(str(Path(path).resolve()) for path in (isolation.prefix, *isolation.readable))
    return [path for path in paths if not Path(path).is_relative_to("/usr")]


def _mkdirs(paths: Mapping[str, object] | Sequence[str]) -> list[str]:
    """Create the parent folders of ``paths``: other users cannot enter those that bubblewrap creates by itself."""
    parents: dict[str, None] = {}
    for path in paths:
        # The outermost first.
        parents |= dict.fromkeys(map(str, reversed(Path(path).parents)))
    command: list[str] = []
    for parent in parents:
        if parent != "/":
            command += ["--perms", "0755", "--dir", parent]
    return command


def _temporary_folder(isolation: Isolation, spec: ProgramSpec, uid: int, cleanup: ExitStack) -> str:
    """A temporary folder instead of ``/box``, for the levels without mounts."""
    # The program's folder, and beside it the packages, as in ``full``.
    base = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="magcli-", ignore_cleanup_errors=True)))
    folder = base / "box"
    folder.mkdir()
    for name, content in spec.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path) and not uid:
            path.symlink_to(content.resolve(strict=True))
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.read_bytes())
            path.chmod(0o555)
    (base / "packages").mkdir()
    for name, path in _packages(isolation, spec).items():
        (base / "packages" / name).symlink_to(path)
    # The unused user enters the folders, and owns the one in which a compiler writes.
    if uid:
        base.chmod(0o711)
        (base / "packages").chmod(0o755)
        for path in (folder, *folder.rglob("*/")):
            path.chmod(0o755)
        os.chown(folder, uid if spec.size else -1, -1)
    return str(folder)


def _landlock_rules(isolation: Isolation, spec: ProgramSpec, folder: str, uid: int) -> list[tuple[str, int]]:
    """The paths that Landlock leaves accessible and their rights; files that were not copied are linked."""
    system = ["/usr", *_outside_usr(isolation)]
    system += [f"/{name}" for name in _LIBRARIES if Path("/", name).is_dir()]
    # The folder of links to packages, and the packages themselves.
    packages = [str(Path(folder).with_name("packages"))]
    packages += map(str, _packages(isolation, spec).values())
    rules = [(path, _READ) for path in (*system, *packages)]
    for content in spec.files.values():
        if isinstance(content, Path) and not uid:
            # Landlock refuses the right to list a folder, 0b1000, for a file.
            rules.append((str(content.resolve()), _READ & ~0b1000))
    for device in DEVICES[:1] if spec.size else DEVICES:
        if Path(device).exists():
            rules.append((device, _READ_WRITE))
    rules.append((folder, _EVERYTHING if spec.size else _READ))
    return rules
