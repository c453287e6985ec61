"""Files that a downloaded folder names must be in it: what others wrote must not choose which files are read.

A name with ``..``, an absolute one, and a symbolic link that leads out of the folder are refused. The links of the hub
client's cache, from ``snapshots`` to ``blobs``, are followed.
"""

import os
from pathlib import Path, PurePosixPath

from magcli.errors import DataError

BLOBS = "blobs"
CACHED = ("models--", "datasets--", "spaces--")
"""How the folders of repositories in the hub client's cache start."""
ADVICE = "put the file into the folder if you trust it"


def named_in(folder: Path, name: object, source: Path | str) -> Path:
    """The file that ``source``, a file of a folder, names as being in it.

    Raises:
        DataError: it is no name, or leads out of the folder.
    """
    if not isinstance(name, str) or not name or "\0" in name:
        raise DataError(f"{source} names {str(name)[:100]!r}, which is not a file name")
    # Names in such folders are written as on POSIX, whatever this system is.
    parts = PurePosixPath(name)
    if parts.is_absolute() or ".." in parts.parts or Path(name).is_absolute():
        raise DataError(f"{source} names {name[:200]!a}, which is outside of {folder}; {ADVICE}")
    return refuse_outside(folder / name, folder)


def refuse_outside(path: Path, folder: Path) -> Path:
    """The path of a file in a folder; links in the folder's own path are the user's.

    Raises:
        DataError: it is, or is behind, a link that leads out of the folder.
    """
    root, target = os.path.realpath(folder), os.path.realpath(path)
    is_inside = os.path.commonpath([root, target]) == root
    if not is_inside and not _is_cached(Path(target)):
        raise DataError(f"{path} is a link to {target}, which is outside of {folder}; {ADVICE}")
    return path


def refuse_links(folder: Path) -> None:
    """Check the files of a folder, and those of the folders in it.

    Raises:
        DataError: one is a link that leads out of the folder.
    """
    for entry in _entries(folder):
        if entry.is_symlink():
            refuse_outside(Path(entry.path), folder)
        elif entry.is_dir():
            for inner in _entries(Path(entry.path)):
                if inner.is_symlink():
                    refuse_outside(Path(inner.path), folder)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _is_cached(target: Path) -> bool:
    """Whether a file is a blob of the hub client's cache."""
    return target.parent.name == BLOBS and target.parent.parent.name.startswith(CACHED)
