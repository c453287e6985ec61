"""Folders of tables, such as a downloaded repository of the hub: which files belong to which split.

The card (README.md) says it; without one, a file belongs to the split that its name or a folder above it names, as for
`datasets`.
"""

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from magcli.data.inside import named_in, refuse_outside
from magcli.data.manifest import SIDE_FILES
from magcli.errors import DataError, first_line

ALL = "train"
"""The split of files whose names mention none."""
WORDS = {
    "train": "train",
    "training": "train",
    "test": "test",
    "testing": "test",
    "eval": "test",
    "evaluation": "test",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
}
MAX_RECURSIVE = 4
"""Of ``**`` in a pattern of the card; each walks through all folders again."""


def splits_of(folder: Path, suffixes: tuple[str, ...]) -> dict[str, list[Path]]:
    """The files of each split, by ``split``, or by ``configuration:split`` if the card has several configurations.

    Raises:
        DataError: the card names files that do not exist, or a file is outside of the folder.
    """
    return _of_card(folder) or _of_names(folder, suffixes)


def _of_names(folder: Path, suffixes: tuple[str, ...]) -> dict[str, list[Path]]:
    splits: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        # Hidden files, caches, and what magcli writes beside a table.
        is_ignored = any(part.startswith((".", "__")) for part in parts) or path.name.endswith(SIDE_FILES)
        if path.is_file() and not is_ignored and path.name.lower().endswith(suffixes):
            splits.setdefault(_split_of(parts), []).append(refuse_outside(path, folder))
    return splits


def _split_of(parts: tuple[str, ...]) -> str:
    """The split that a file's name, or else the nearest folder, says."""
    # The file's own name first, then the folders from the inside out.
    for part in reversed(parts):
        for word in re.split(r"[^a-z]+", part.lower()):
            if word in WORDS:
                return WORDS[word]
    return ALL


def _of_card(folder: Path) -> dict[str, list[Path]]:
    configurations = _configurations(folder)
    splits: dict[str, list[Path]] = {}
    for configuration in configurations:
        # Configurations have splits of the same names.
        name = f"{configuration.get('config_name', 'default')}:" if len(configurations) > 1 else ""
        for split, pattern in _patterns(configuration.get("data_files")):
            splits.setdefault(f"{name}{split}", []).extend(_matching(folder, pattern))
    return splits


def _matching(folder: Path, pattern: Any) -> list[Path]:
    """The files of a folder that a pattern of its card stands for.

    Raises:
        DataError: there are none, it is not a pattern, or it leads out of the folder.
    """
    card = folder / "README.md"
    named_in(folder, pattern, card)
    # ``a/**/**`` is ``a/**``.
    parts = [part for part, _ in groupby(pattern.split("/")) if part != "."]
    try:
        if parts.count("**") > MAX_RECURSIVE:
            raise ValueError("too many **")
        files = [path for path in sorted(folder.glob("/".join(parts))) if path.is_file()]
    except (ValueError, RecursionError, OSError) as error:
        problem = f"{card} names {pattern[:200]!a}, which is not a pattern of files"
        raise DataError(f"{problem} ({first_line(error)}); correct it, or remove the card's configs") from None
    if not files:
        raise DataError(f"{card} names {pattern[:200]}, and there is no such file")
    return [refuse_outside(path, folder) for path in files]


def _configurations(folder: Path) -> list[dict[str, Any]]:
    """The configurations with data files of the card; none without a card, or if it cannot be read."""
    from magcli.data.card import read_card

    configurations = read_card(folder).get("configs")
    if not isinstance(configurations, list):
        return []
    return [entry for entry in configurations if isinstance(entry, dict) and entry.get("data_files")]


def _patterns(data_files: Any) -> Iterator[tuple[str, Any]]:
    """Split and pattern of each entry: a pattern, a list of them, or a list of ``split`` and ``path``."""
    for entry in data_files if isinstance(data_files, list) else [data_files]:
        if isinstance(entry, str):
            yield ALL, entry
        elif isinstance(entry, dict):
            paths = entry.get("path")
            for pattern in paths if isinstance(paths, list) else [paths]:
                yield str(entry.get("split", ALL)), pattern
