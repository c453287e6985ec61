"""Starting the runner with nothing around it: in bubblewrap (``full``), behind Landlock (``restricted``), or openly.

``full`` is bubblewrap with a root of its own: read-only ``/usr``, the interpreter's installation, a few devices and the
program's files; its own processes, network, users, names. There is no ``/proc``: ``/dev/stdin``, ``/dev/stdout``,
``/dev/stderr`` and what leads to them, such as ``/proc/self/fd/0``, are files of the sandbox's own, which a program has
as its stdin, stdout and stderr too. As root, bubblewrap mounts with root's rights, since an
interpreter under ``/root`` is out of reach for anyone else, and keeps only the right to change the user; the runner
becomes a user that nobody else is before it hears of a program (the kernel exempts root from the limit on threads).
Root without the right to mount changes the user first and mounts in a user namespace, as every other user does.

``restricted`` is for where namespaces are refused, such as Docker's default profile: the same runner and filter, the
files in a temporary folder, Landlock instead of mounts. ``/dev/stdin`` is what it is on this machine, a link to a file
in memory, which Landlock lets pass; where the machine has no ``/proc``, it does not work. What it lacks: a program can
see which files exist and how large they are; the folder of a build has no size limit; unless root starts it, threads
are bounded by memory only.
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

from magcli.verify.isolation import runner
from magcli.verify.isolation.seccomp import own_pid_places, program_filter

Level = Literal["full", "restricted", "none"]
Way = Literal["root", "dropped", "user"]
"""Who mounts: root, a user that root has become, or the user that runs magcli."""

BOX = "/box"
SEARCH = "/usr/bin:/bin"
ENVIRONMENT = {
    "PATH": SEARCH,
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""All that programs find in their environment, besides HOME and TMPDIR; a fixed hash seed keeps verdicts from flipping
on the order of a set."""

DEVICES = ("/dev/null", "/dev/urandom", "/dev/random")
"""Those that programs may use; a compiler has ``/dev/null`` alone."""

PATIENCE = 1.0
"""Seconds that a runner has to end by itself."""
PACKAGES = ("numpy", "sortedcontainers")
"""Packages that contest judges have, which programs that name them may import where they are installed."""
_LIBRARIES = ("bin", "sbin", "lib", "lib32", "lib64")
_READ, _READ_WRITE, _EVERYTHING = 0b1101, 0b110, 0xFFFF
"""Landlock's rights: run, read and list; read and write; all."""
_RUNNER = Path(runner.__file__)
_INSIDE = "/runner"


@dataclass(frozen=True, slots=True)
class Isolation:
    """How runners are started on this machine. ``python`` is the interpreter inside, ``prefix`` its installation;
    ``readable`` are more folders that programs may read."""

    level: Level
    python: str
    prefix: str
    way: Way = "user"
    bwrap: str = ""
    readable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Box:
    """What a program finds: its command and files. A compiler may write ``size`` bytes and is to make ``product``."""

    argv: tuple[str, ...]
    files: Mapping[str, bytes | Path]
    product: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class Runner:
    """A started runner: its process, the socket to it, where its own errors go, and what to undo at the end.

    ``named`` tells that it sends the files that stand for stdin, stdout and stderr inside.
    """

    process: subprocess.Popen[bytes]
    control: socket.socket
    errors: int
    undo: ExitStack
    named: bool

    def stop(self) -> None:
        """End it and everything in it, and wait for that.

        An idle runner ends by itself, so that its CPU time counts as ours; bubblewrap and it are one process group.
        """
        self.control.close()
        if not _ends(self.process.pid, PATIENCE):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.undo.close()


def _ends(pid: int, seconds: float) -> bool:
    """Whether a child ends in time."""
    process = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(process, select.POLLIN)
        return bool(poll.poll(seconds * 1000))
    finally:
        os.close(process)


def start(isolation: Isolation, box: Box) -> Runner:
    """Start a runner for one program; it waits for requests. It ends with the thread that started it.

    Raises:
        OSError: a file of the program cannot be read, or the process not be started.
    """
    with ExitStack() as undo, ExitStack() as lent:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        undo.callback(ours.close)
        lent.callback(theirs.close)
        errors = memory_file("errors", b"")
        undo.callback(os.close, errors)
        uid = 0 if isolation.way == "user" else unused_uid()
        command, folder = [isolation.python, "-I", "-S", "-E"], BOX
        passed = [theirs.fileno()]
        if isolation.level == "full":
            contents = _contents(isolation, box, lent)
            command = [*_wrapped(isolation, box, contents), *command, _INSIDE]
            passed += [file for file in contents.values() if isinstance(file, int)]
        else:
            folder = _folder(isolation, box, uid, undo)
            command += [str(_RUNNER)]
        owner = uid if isolation.way == "dropped" else None
        process = _spawn([*command, str(theirs.fileno())], owner, passed, errors)
        ours.send(_setup(isolation, box, folder, uid), socket.MSG_NOSIGNAL)
        return Runner(process, ours, errors, undo.pop_all(), _named(isolation, box))


def _named(isolation: Isolation, box: Box) -> bool:
    """Whether stdin, stdout and stderr need names of their own, since there is no ``/proc`` that has them."""
    return isolation.level == "full" and not box.size


def memory_file(name: str, content: bytes) -> int:
    """A file in memory with ``content``, read from its start; the caller closes it."""
    file = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(file, view) :]
        os.lseek(file, 0, os.SEEK_SET)
    except BaseException:
        os.close(file)
        raise
    return file


def unused_uid() -> int:
    """An unused user id, random for each program so that no two share anything; 0 where root has only itself.

    From 0x70000000 on, which no system gives to accounts or containers, or else from the upper half of what there is.
    """
    rows = [tuple(map(int, row.split())) for row in Path("/proc/self/uid_map").read_text().splitlines()]
    first, _, count = max(rows, key=lambda row: row[2])
    last = min(first + count - 2, 0x7FFD0000)
    return last - secrets.randbelow(min(count // 2, 0x0FFD0000)) if count > 1000 else 0


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


def _setup(isolation: Isolation, box: Box, folder: str, uid: int) -> bytes:
    """The runner's first message; see ``magcli.verify.isolation.runner``."""
    kind: Literal["program", "compiler"] = "compiler" if box.size else "program"
    inside = [folder + word.removeprefix(BOX) if f"{word}/".startswith(f"{BOX}/") else word for word in box.argv]
    code = b"" if isolation.level == "none" else program_filter(kind)
    found = inside[0] if "/" in inside[0] else shutil.which(inside[0], path=SEARCH)
    setup = {
        "argv": [found or inside[0], *inside[1:]],
        "env": ENVIRONMENT | {"HOME": folder, "TMPDIR": folder},
        "folder": folder,
        "uid": uid if isolation.way == "root" else 0,
        "filter": code,
        "own_pid": own_pid_places(code),
        "places": _places(isolation, box, folder, uid) if isolation.level == "restricted" else [],
        "count_threads": uid > 0 or isolation.level == "full",
        "named": _named(isolation, box),
        "product": f"{folder}/{box.product}" if box.product else "",
    }
    return marshal.dumps(setup, 2)


def _contents(isolation: Isolation, box: Box, lent: ExitStack) -> dict[str, int | Path]:
    """Files by their place inside: to be bound by path, or as open memory that bubblewrap copies.

    A user that root has become may not reach a path of root's, so there everything is copied.
    """
    files: dict[str, int | Path] = {}
    boxed = {f"{BOX}/{name}": content for name, content in box.files.items()}
    for place, content in {_INSIDE: _script(isolation.python), **boxed}.items():
        if isinstance(content, Path) and isolation.way != "dropped":
            files[place] = content.resolve(strict=True)
        else:
            files[place] = file = memory_file("file", content if isinstance(content, bytes) else content.read_bytes())
            lent.callback(os.close, file)
    return files


@cache
def _script(python: str) -> bytes:
    """The runner, compiled where the interpreter inside is our own, which saves a tenth of a sandbox's start."""
    source = _RUNNER.read_bytes()
    if python != os.path.realpath(sys.executable):
        return source
    return MAGIC_NUMBER + bytes(12) + marshal.dumps(compile(source, _INSIDE, "exec"))


def _wrapped(isolation: Isolation, box: Box, contents: Mapping[str, int | Path]) -> list[str]:
    """The command of bubblewrap up to the program."""
    command = [
        isolation.bwrap,
        "--unshare-ipc",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-uts",
        "--unshare-cgroup-try",
    ]
    command += ["--die-with-parent", "--as-pid-1", "--clearenv", "--hostname", "box"]
    if isolation.way == "root":
        command += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-user", "--uid", "65534", "--gid", "65534"]
    command += [*_system(isolation), *(_compilers_devices() if box.size else _devices())]
    command += ["--perms", "1777", "--size", str(box.size), "--tmpfs", BOX] if box.size else _folders([f"{BOX}/_"])
    for name, path in _packages(isolation, box).items():
        command += [*_folders([f"/packages/{name}/_"]), "--ro-bind", str(path), f"/packages/{name}"]
    command += _folders(contents)
    for place, content in contents.items():
        if isinstance(content, Path):
            command += ["--ro-bind", str(content), place]
        else:
            command += ["--perms", "0555", "--file", str(content), place]
    return [*command, "--remount-ro", "/", "--chdir", BOX, "--"]


def _system(isolation: Isolation) -> list[str]:
    """Mounts of what every program finds: libraries, compilers, interpreter."""
    command = ["--ro-bind", "/usr", "/usr"]
    for name in _LIBRARIES:
        path = Path("/", name)
        if path.is_symlink():
            command += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            command += ["--ro-bind", str(path), str(path)]
    for more in _beyond_usr(isolation):
        command += [*_folders([f"{more}/_"]), "--ro-bind", more, more]
    return command


def _packages(isolation: Isolation, box: Box) -> dict[str, Path]:
    """Folders of packages that a file of the program names, by the names that they have inside; most need none."""
    texts = [content for content in box.files.values() if isinstance(content, bytes)]
    return {
        name: path
        for name, path in _installed(isolation.python).items()
        if any(name.partition(".")[0].encode() in text for text in texts)
        and (isolation.way == "user" or (isolation.way == "root" and isolation.level == "full") or _open_to_all(path))
    }


@cache
def _installed(python: str) -> dict[str, Path]:
    """Folders of ``PACKAGES`` and of the libraries that come with them; none for an interpreter of another version."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if python != os.path.realpath(sys.executable) and Path(python).name != version:
        return {}
    specs = [spec for name in PACKAGES if (spec := find_spec(name)) and spec.submodule_search_locations]
    folders = [Path(place).resolve() for spec in specs for place in spec.submodule_search_locations or ()]
    libraries = [folder.with_name(f"{folder.name}.libs") for folder in folders]
    return {folder.name: folder for folder in (*folders, *libraries) if folder.is_dir()}


def _open_to_all(path: Path) -> bool:
    """Whether any user can reach a folder."""
    return all(folder.stat().st_mode & 0o1 for folder in (path, *path.parents))


def _compilers_devices() -> list[str]:
    return [*_folders(["/dev/null"]), "--dev-bind", "/dev/null", "/dev/null"]


def _devices() -> list[str]:
    """``/dev``, where the runner makes the files of ``STREAMS``, and links to these in place of all of ``/proc``.

    Nobody can list the folders of the links, as nobody could list ``/proc`` before.
    """
    command = ["--perms", "0755", "--tmpfs", "/dev"]
    for device in DEVICES:
        command += ["--dev-bind-try", device, device]
    for folder in ("/proc", "/proc/self", "/proc/self/fd"):
        command += ["--perms", "0111", "--dir", folder]
    for number, path in enumerate(runner.STREAMS):
        command += ["--symlink", path, f"/proc/self/fd/{number}"]
    return [*command, "--symlink", "/proc/self/fd", "/dev/fd"]


def _beyond_usr(isolation: Isolation) -> list[str]:
    places = dict.fromkeys(str(Path(place).resolve()) for place in (isolation.prefix, *isolation.readable))
    return [place for place in places if not Path(place).is_relative_to("/usr")]


def _folders(places: Mapping[str, object] | Sequence[str]) -> list[str]:
    """Make the folders that hold ``places``: those that bubblewrap makes by itself are closed to other users."""
    parents = dict.fromkeys(str(parent) for place in places for parent in reversed(Path(place).parents))
    return [word for parent in parents if parent != "/" for word in ("--perms", "0755", "--dir", parent)]


def _folder(isolation: Isolation, box: Box, uid: int, undo: ExitStack) -> str:
    """A temporary folder in place of ``/box``, for the levels without mounts."""
    base = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="magcli-", ignore_cleanup_errors=True)))
    folder = base / "box"
    folder.mkdir()
    for name, content in box.files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path) and not uid:
            place.symlink_to(content.resolve(strict=True))
        else:
            place.write_bytes(content if isinstance(content, bytes) else content.read_bytes())
            place.chmod(0o555)
    (base / "packages").mkdir()
    for name, path in _packages(isolation, box).items():
        (base / "packages" / name).symlink_to(path)
    if uid:
        base.chmod(0o711)
        (base / "packages").chmod(0o755)
        for place in (folder, *folder.rglob("*/")):
            place.chmod(0o755)
        os.chown(folder, uid if box.size else -1, -1)
    return str(folder)


def _places(isolation: Isolation, box: Box, folder: str, uid: int) -> list[tuple[str, int]]:
    """What Landlock leaves visible, with the rights there; files that were not copied for another user are linked."""
    libraries = [f"/{name}" for name in _LIBRARIES if Path("/", name).is_dir()]
    linked = [str(content.resolve()) for content in box.files.values() if isinstance(content, Path) and not uid]
    return [
        *((place, _READ) for place in ("/usr", *libraries, *_beyond_usr(isolation))),
        *((place, _READ & ~0b1000) for place in linked),
        *((str(path), _READ) for path in (Path(folder).with_name("packages"), *_packages(isolation, box).values())),
        *((device, _READ_WRITE) for device in (DEVICES[:1] if box.size else DEVICES) if Path(device).exists()),
        (folder, _EVERYTHING if box.size else _READ),
    ]
