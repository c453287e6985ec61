"""Files and folders that appear complete or not at all, also after a power cut: write, fsync, rename, fsync the folder.

Everything that must survive a crash is written through this module, so that tests can disable single steps.
"""

import contextlib
import ctypes
import errno
import fcntl
import glob
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from magcli.errors import EnvironmentFault, UsageError

DISK_ERRORS = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR,
    errno.EEXIST, errno.ENOENT, errno.ENAMETOOLONG, errno.ELOOP, errno.EISDIR, errno.EINVAL,
}  # fmt: skip
HERE = -100
"""AT_FDCWD of Linux: paths are relative to the working directory."""
EXCHANGE = 2
"""RENAME_EXCHANGE of Linux: two paths swap what they name, in one step."""
HIDDEN_BYTES = 32
"""Length that the longest hidden name beside an output adds to its name, as in ``..NAME.manifest.json.PID.tmp``."""
OWNER_TIMEOUT = 1.0
"""Seconds to wait for the owner of a lock to write its name into it."""
OWNER = re.compile(r"process (\d+) on (\S+) since")
"""Beginning of what the owner of a lock writes into it: its process and its machine."""


def sync(file: BinaryIO) -> None:
    """Flush a file to the disk."""
    file.flush()
    os.fsync(file.fileno())


def preallocate(file: BinaryIO, size: int) -> None:
    """Allocate the disk space of a file, so that a full disk is an error before anything is written."""
    if size and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)


def start_sync(descriptor: int, start: int, size: int) -> None:
    """Start writing a range of a file to the disk in the background, so that ``sync`` has little left to do."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, start, size, os.POSIX_FADV_DONTNEED)


def sync_folder(folder: Path) -> None:
    """Make renames, creations and removals in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def rename(source: Path, target: Path) -> None:
    """Move a finished file or folder to its name, durably."""
    os.replace(source, target)
    sync_folder(target.parent)


def remove(path: Path) -> None:
    """Remove a file if it exists, durably."""
    if path.exists():
        path.unlink(missing_ok=True)
        sync_folder(path.parent)


def renew(output: Path) -> None:
    """Give a finished output, and its files if it is a folder, the current time, so that make takes it for made."""
    for path in (output, *output.glob("*")):
        with contextlib.suppress(OSError):  # such as a file of another user
            os.utime(path)


def exchange(first: Path, second: Path) -> bool:
    """Let two files or folders swap their names in one step; returns False where the system cannot do that."""
    try:
        swap = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:  # not Linux, or an old C library
        return False
    return bool(swap(HERE, os.fsencode(first), HERE, os.fsencode(second), EXCHANGE) == 0)


def opener(path: str, flags: int) -> int:
    """An opener for ``open`` that refuses symbolic links, whose targets are somebody else's files."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def temp_path(path: Path) -> Path:
    """The name of ``path`` while it is written; it contains the id of the writing process."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which appears when the block ends, or is removed if it raises.

    Raises:
        EnvironmentFault: the folder cannot be written or the disk is full.
    """
    temp = temp_path(path)
    remove_stale(path)
    try:
        # Exclusively, so that a link which somebody else put there is not followed.
        with disk_errors(path), open(temp, "xb+") as file:
            yield file
            sync(file)
        with disk_errors(path):
            rename(temp, path)
    finally:
        temp.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, which appears when the block ends and replaces an older one of that name.

    The two are exchanged in one step where the file system can, so that there is always one of that name.
    """
    temp = temp_path(path)
    old = path.with_name(f".{path.name}.{os.getpid()}.old.tmp")
    remove_stale(path, restore=True)
    try:
        with disk_errors(path):
            temp.mkdir(parents=True)
            yield temp
            _sync_tree(temp)
            _replace_folder(temp, path, old)
    finally:
        shutil.rmtree(temp, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _replace_folder(new: Path, path: Path, old: Path) -> None:
    """Give a finished folder its name; what had the name is afterwards under one of the two temporary names."""
    if path.exists():
        if exchange(new, path):
            sync_folder(path.parent)
            return
        # After a kill between these two steps ``remove_stale`` gives the older folder its name back.
        os.replace(path, old)
    rename(new, path)


def _sync_tree(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            sync_folder(path)
        else:
            with open(path, "rb+") as file:
                sync(file)
    sync_folder(folder)


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Report a full, read-only or failing disk and missing permissions as EnvironmentFault that names the output."""
    try:
        yield
    except OSError as error:
        # Errors about other files are not of this output, and go to whoever reads these.
        if error.errno not in DISK_ERRORS or (error.filename and not _concerns(Path(error.filename), path)):
            raise
        reason = error.strerror or str(error)
        if error.errno == errno.ELOOP and error.filename:
            reason = f"{error.filename} is a symbolic link, which is not followed; remove it"
        raise EnvironmentFault(f"cannot write {path}: {reason}; no partial file was left there") from error


def _concerns(path: Path, output: Path) -> bool:
    """Whether a path is the output, a folder above it, or one of its temporary names."""
    return output.is_relative_to(path) or f".{output.name}." in str(path)


def remove_stale(path: Path, *, restore: bool = False) -> None:
    """Remove the temporary files of dead processes for this output; one with our own id is from an earlier process.

    ``restore``: the output is a folder, and one that a process had set aside, and was killed before the new one had the
    name, gets its name back.
    """
    # The process that writes it, and whether it is what the new folder replaces.
    pattern = re.compile(re.escape(f".{path.name}.") + r"(\d+)(\.old)?\.tmp")
    for stale in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        match = pattern.fullmatch(stale.name)
        if match is None or _in_use(int(match[1])):
            continue
        is_folder = stale.is_dir() and not stale.is_symlink()
        if restore and is_folder and match[2] and not path.exists():
            rename(stale, path)
        elif is_folder:
            shutil.rmtree(stale, ignore_errors=True)
        else:
            stale.unlink(missing_ok=True)


def _in_use(pid: int) -> bool:
    """Whether another process, which is alive, writes the temporary files with its id."""
    return pid != os.getpid() and _alive(pid)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is alive, and of another user
        pass
    return True


def lock_path(path: Path) -> Path:
    """The lock file of an output; a process that is killed leaves it behind."""
    return path.with_name(f".{path.name}.lock")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock an output for this process; the kernel releases the lock if the process dies.

    Raises:
        UsageError: another process has the lock; the message names it.
        EnvironmentFault: the folder cannot be written, or the name is too long.
    """
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        check_length(path)
        lock = lock_path(path)
        handle = _acquire(lock, path)
    try:
        os.ftruncate(handle, 0)
        started = time.strftime("%Y-%m-%d %H:%M:%S")
        os.pwrite(handle, f"process {os.getpid()} on {os.uname().nodename} since {started}".encode(), 0)
        yield
    finally:
        # While it is locked: after that, the file may be the lock of the next process.
        lock.unlink(missing_ok=True)
        os.close(handle)


def is_locked(path: Path) -> bool:
    """Whether a process that is alive has the lock of an output.

    The kernel is asked only about a lock whose owner may be alive, because asking takes the lock for a moment, in which
    a process that starts could not have it.
    """
    try:
        handle = os.open(lock_path(path), os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:  # there is no lock, or it is not ours to read
        return False
    try:
        owner = OWNER.match(_entry(handle))
        if owner and not _may_be_alive(owner):
            return False
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: several may ask at once
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def check_length(path: Path) -> None:
    """Raise EnvironmentFault if a name in an existing folder leaves no room for those of the hidden files beside it."""
    if not path.parent.is_dir():
        return
    # In bytes, as file systems count.
    longest = os.pathconf(path.parent, "PC_NAME_MAX") - HIDDEN_BYTES
    if len(os.fsencode(path.name)) > longest:
        raise EnvironmentFault(f"cannot write {path}: File name too long; give one of at most {longest} bytes")


def _acquire(lock: Path, path: Path) -> int:
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _owner(handle)
            os.close(handle)
            raise UsageError(f"{path} is being written by {owner}; wait for it or choose another output") from None
        # A lock on a file that was removed after it was opened keeps nobody out.
        if _same_file(handle, lock):
            return handle
        os.close(handle)


def _owner(handle: int) -> str:
    """The owner of a lock, as written in it; the entry of a dead process is about to be overwritten."""
    deadline = time.monotonic() + OWNER_TIMEOUT
    while time.monotonic() < deadline:
        entry = _entry(handle)
        match = OWNER.match(entry)
        if match and _may_be_alive(match):
            return entry
        time.sleep(0.01)
    return "another process"


def _may_be_alive(owner: re.Match[str]) -> bool:
    """Whether the owner of a lock lives, as far as this machine can tell: of another one it cannot."""
    return owner[2] != os.uname().nodename or _alive(int(owner[1]))


def _entry(handle: int) -> str:
    """What the owner of a lock wrote into it."""
    return os.pread(handle, 200, 0).decode(errors="replace")


def _same_file(handle: int, path: Path) -> bool:
    """Whether the lock is still the file at that path; its last owner may have removed it meanwhile."""
    try:
        return os.fstat(handle).st_ino == os.stat(path).st_ino
    except FileNotFoundError:
        return False
