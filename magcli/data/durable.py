"""Files that appear whole or not at all, also after a power cut: written aside, fsynced, renamed, folder fsynced.

All writing that must survive goes through this module, so that tests can take one step away and see what breaks.
"""

import contextlib
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

DISK_FAULTS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EIO,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ENOTDIR,
    errno.EEXIST,
}
OWNER_PATIENCE = 1.0
"""Seconds in which the owner of a lock has surely written its name into it."""


def sync(file: BinaryIO) -> None:
    """Flush a file to the disk."""
    file.flush()
    os.fsync(file.fileno())


def reserve(file: BinaryIO, size: int) -> None:
    """Take the room that a file will need: a full disk is told at once, and what is written finds its place."""
    if size and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)


def begin_sync(descriptor: int, start: int, size: int) -> None:
    """Have the system begin to write some bytes of a file to the disk, so that ``sync`` finds little left to do."""
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
    """Put a finished file or folder in its place and make that last."""
    os.replace(source, target)
    sync_folder(target.parent)


def remove(path: Path) -> None:
    """Take a file away, if it is there, and make that last."""
    if path.exists():
        path.unlink(missing_ok=True)
        sync_folder(path.parent)


def aside(path: Path) -> Path:
    """The name under which ``path`` is written before it is whole; it names the process that owns it."""
    return path.with_name(f".{path.name}.{os.getpid()}.tmp")


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes its place when the block ends well and vanishes when it does not.

    Raises:
        EnvironmentFault: the folder cannot be written or the disk is full.
    """
    temp = aside(path)
    sweep(path)
    try:
        with disk_faults(path), open(temp, "wb+") as file:
            yield file
            sync(file)
        with disk_faults(path):
            rename(temp, path)
    finally:
        temp.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder to fill that takes its place when the block ends well; an older one of that name is replaced."""
    temp, old = aside(path), path.with_name(f".{path.name}.{os.getpid()}.old.tmp")
    sweep(path)
    try:
        with disk_faults(path):
            temp.mkdir(parents=True)
            yield temp
            _sync_tree(temp)
            if path.exists():
                os.replace(path, old)
            rename(temp, path)
    finally:
        shutil.rmtree(temp, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _sync_tree(folder: Path) -> None:
    for place in sorted(folder.rglob("*")):
        if place.is_dir():
            sync_folder(place)
        else:
            with open(place, "rb+") as file:
                sync(file)
    sync_folder(folder)


@contextlib.contextmanager
def disk_faults(path: Path) -> Iterator[None]:
    """Tell a full, read-only or failing disk, or a folder that may not be written, by the name of the output."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FAULTS or (error.filename and not _concerns(Path(error.filename), path)):
            raise
        reason = error.strerror or str(error)
        raise EnvironmentFault(f"cannot write {path}: {reason}; nothing was left half written there") from error


def _concerns(place: Path, path: Path) -> bool:
    """Whether a place is the output, a folder above it, or one of the names under which it is written."""
    return path.is_relative_to(place) or f".{path.name}." in str(place)


def sweep(path: Path) -> None:
    """Remove what a dead process left aside for this output; one with our own id is dead, it only had the same."""
    pattern = re.compile(re.escape(f".{path.name}.") + r"(\d+)(\.old)?\.tmp")
    for stale in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        found = pattern.fullmatch(stale.name)
        if found and (int(found[1]) == os.getpid() or not _alive(int(found[1]))):
            shutil.rmtree(stale, ignore_errors=True) if stale.is_dir() else stale.unlink(missing_ok=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextlib.contextmanager
def owned(path: Path) -> Iterator[None]:
    """Hold an output for one process; the kernel gives it back when the process dies, however it dies.

    Raises:
        UsageError: another process holds it; the message names that process.
    """
    with disk_faults(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = path.with_name(f".{path.name}.lock")
        handle = _locked(lock, path)
    try:
        os.ftruncate(handle, 0)
        started = time.strftime("%Y-%m-%d %H:%M:%S")
        os.pwrite(handle, f"process {os.getpid()} on {os.uname().nodename} since {started}".encode(), 0)
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(handle)


def _locked(lock: Path, path: Path) -> int:
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _owner(handle)
            os.close(handle)
            raise UsageError(f"{path} is being written by {owner}; wait for it or choose another output") from None
        if _same_file(handle, lock):
            return handle
        os.close(handle)


def _owner(handle: int) -> str:
    """Who holds a lock, as it wrote; what a dead process wrote, or nothing yet, is about to be overwritten."""
    deadline = time.monotonic() + OWNER_PATIENCE
    while time.monotonic() < deadline:
        told = os.pread(handle, 200, 0).decode(errors="replace")
        found = re.match(r"process (\d+) on (\S+) since", told)
        if found and (found[2] != os.uname().nodename or _alive(int(found[1]))):
            return told
        time.sleep(0.01)
    return "another process"


def _same_file(handle: int, path: Path) -> bool:
    """Whether the lock just taken is still the file of that name: its last owner may have removed it meanwhile."""
    try:
        return os.fstat(handle).st_ino == os.stat(path).st_ino
    except FileNotFoundError:
        return False
