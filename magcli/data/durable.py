"""Files that appear whole or not at all, also after a power cut: written aside, fsynced, renamed, folder fsynced.

All writing that must survive goes through this module, so that tests can take one step away and see what breaks.
"""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from magcli.errors import EnvironmentFault, UsageError


def sync(file: BinaryIO) -> None:
    """Flush a file to the disk."""
    file.flush()
    os.fsync(file.fileno())


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
        with open(temp, "wb+") as file:
            yield file
            sync(file)
        rename(temp, path)
    except OSError as error:
        raise _disk_fault(path, error) from error
    finally:
        temp.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A folder to fill that takes its place when the block ends well; an older one of that name is replaced."""
    temp, old = aside(path), path.with_name(f".{path.name}.{os.getpid()}.old.tmp")
    sweep(path)
    try:
        temp.mkdir(parents=True)
        yield temp
        for file in sorted(p for p in temp.rglob("*") if p.is_file()):
            with open(file, "rb+") as handle:
                sync(handle)
        sync_folder(temp)
        if path.exists():
            os.replace(path, old)
        rename(temp, path)
    except OSError as error:
        raise _disk_fault(path, error) from error
    finally:
        shutil.rmtree(temp, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _disk_fault(path: Path, error: OSError) -> Exception:
    if isinstance(error, BrokenPipeError):
        return error
    return EnvironmentFault(f"cannot write {path}: {error.strerror or error}; nothing was left half written there")


def sweep(path: Path) -> None:
    """Remove what a dead process left aside for this output."""
    for stale in path.parent.glob(f".{path.name}.*.tmp"):
        owner = stale.name.removeprefix(f".{path.name}.").split(".")[0]
        if owner.isdigit() and not _alive(int(owner)):
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
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}.lock")
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(handle, 200).decode(errors="replace").strip() or "another process"
            os.close(handle)
            raise UsageError(f"{path} is being written by {owner}; wait for it or choose another output") from None
        if _same_file(handle, lock):
            break
        os.close(handle)
    try:
        os.ftruncate(handle, 0)
        started = time.strftime("%Y-%m-%d %H:%M:%S")
        os.pwrite(handle, f"process {os.getpid()} on {os.uname().nodename} since {started}".encode(), 0)
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(handle)


def _same_file(handle: int, path: Path) -> bool:
    """Whether the lock just taken is still the file of that name: its last owner may have removed it meanwhile."""
    try:
        return os.fstat(handle).st_ino == os.stat(path).st_ino
    except FileNotFoundError:
        return False
