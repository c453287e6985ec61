"""The digests of a model's files, in a file beside them that ``sha256sum --check`` reads.

They are written with the model. Those of the weights are checked wherever all of the weights are read anyway: to
identify the model before it samples or trains, for the landscape's plane, and at export. Those of the settings
(configuration, tokenizer, chat template, code) are checked wherever the model is identified.
"""

import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from magcli.data.durable import atomic_file
from magcli.data.inside import refuse_links
from magcli.data.seal import hash_file
from magcli.errors import DataError
from magcli.model.settings import INDEX, code_paths, deciding_paths, setting_paths

SUMS = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64}) [ *](?:\./)?(.+)")
"""A line as ``sha256sum`` writes it: the digest and the name, with a star for binary mode."""


def write_sums(folder: Path) -> None:
    """Write the digests of a model's weights and settings."""
    # Sorted, so that equal models have equal files.
    paths = sorted([*weight_paths(folder), *_small_paths(folder)])
    lines = [f"{hash_file(path)}  {path.relative_to(folder).as_posix()}\n" for path in paths]
    with atomic_file(folder / SUMS) as file:
        file.write("".join(lines).encode())


def weight_digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file of weights by name.

    Raises:
        DataError: a file does not match its digest in the folder, or is missing.
    """
    digests = {path.name: hash_file(path) for path in weight_paths(folder)}
    for name, digest in _read_sums(folder / SUMS).items():
        # Weights are in the folder itself; other entries are settings.
        if "/" not in name and name.endswith(".safetensors") and digests.get(name) != digest:
            raise _damaged(folder / name)
    return digests


def setting_digests(folder: Path, *, weights: bool = True) -> dict[str, str]:
    """The SHA-256 of each file other than weights that decides what the model samples, by its path in the folder.

    ``weights``: also of the index of shards, which decides what is loaded.

    Raises:
        DataError: a file does not match its digest in the folder.
    """
    check_settings(folder)
    paths = deciding_paths(folder) + (_index_paths(folder) if weights else [])
    return {path.relative_to(folder).as_posix(): hash_file(path) for path in sorted(paths)}


def check_settings(folder: Path) -> None:
    """Check a model's settings against their digests; one that has none there is not checked.

    Raises:
        DataError: a file does not match its digest in the folder, or is a link that leads out of it.
    """
    refuse_links(folder)
    recorded = _read_sums(folder / SUMS)
    for path in _small_paths(folder):
        digest = recorded.get(path.relative_to(folder).as_posix())
        if digest is not None and hash_file(path) != digest:
            raise _damaged(path)


def check_weights(folders: Iterable[Path]) -> None:
    """Check the weights and settings of several models side by side, each once per process unless its files changed.

    Raises:
        DataError: a file does not match its digest in its folder, or is missing.
    """
    # Hashing releases the GIL, so threads suffice.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_check, folders))


def _check(folder: Path) -> None:
    files = [*weight_paths(folder), *_small_paths(folder), folder / SUMS]
    states = [path.stat() for path in files if path.exists()]
    # Inode, size and time change with the file, and so does the key of the cache.
    _check_once(folder, tuple((state.st_ino, state.st_size, state.st_mtime_ns) for state in states))


@lru_cache(maxsize=1024)
def _check_once(folder: Path, states: tuple[tuple[int, int, int], ...]) -> None:
    """Check a model in these states of its files."""
    if (folder / SUMS).is_file():
        check_settings(folder)
        weight_digests(folder)


def weight_paths(folder: Path) -> list[Path]:
    """The files of weights, in the order of their names."""
    return sorted(folder.glob("*.safetensors"))


def _small_paths(folder: Path) -> list[Path]:
    """The settings, the model's own code, and the index of shards."""
    return [*setting_paths(folder), *code_paths(folder), *_index_paths(folder)]


def _index_paths(folder: Path) -> list[Path]:
    return sorted(folder.glob(INDEX))


def _damaged(path: Path) -> DataError:
    return DataError(
        f"{path} is damaged: it does not match {SUMS}; copy the model again, or remove {SUMS} if the model was changed "
        "on purpose"
    )


def _read_sums(path: Path) -> dict[str, str]:
    """The recorded digests by file name; none if there is no such file.

    Raises:
        DataError: the file is damaged.
    """
    if not path.is_file():
        return {}
    recorded = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        # Strict, so that a file that was cut or edited by hand is noticed here.
        entry = _LINE.fullmatch(line)
        if entry is None:
            raise DataError(f"{path} is damaged; copy the model again, or remove it to use the model unchecked")
        recorded[entry[2]] = entry[1]
    return recorded
