"""Folders of tables, such as a downloaded repository of the hub: which files belong to which split.

The card (README.md) says it; without one, a file belongs to the split that its name or a folder above it names, as for
`datasets`.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from magcli.data.manifest import SIDE_FILES
from magcli.errors import DataError

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
FRONT_MATTER = re.compile(r"\A---\s*\n(.*?)\n---", re.DOTALL)


def splits_of(folder: Path, suffixes: tuple[str, ...]) -> dict[str, list[Path]]:
    """The files of each split, by ``split``, or by ``configuration:split`` if the card has several configurations.

    Raises:
        DataError: the card names files that do not exist.
    """
    return _of_card(folder) or _of_names(folder, suffixes)


def _of_names(folder: Path, suffixes: tuple[str, ...]) -> dict[str, list[Path]]:
    splits: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        is_ignored = any(part.startswith((".", "__")) for part in parts) or path.name.endswith(SIDE_FILES)
        if path.is_file() and not is_ignored and path.name.lower().endswith(suffixes):
            splits.setdefault(_split_of(parts), []).append(path)
    return splits


def _split_of(parts: tuple[str, ...]) -> str:
    """The split that a file's name, or else the nearest folder, says."""
    for part in reversed(parts):
        for word in re.split(r"[^a-z]+", part.lower()):
            if word in WORDS:
                return WORDS[word]
    return ALL


def _of_card(folder: Path) -> dict[str, list[Path]]:
    configurations = _configurations(folder)
    splits: dict[str, list[Path]] = {}
    for configuration in configurations:
        name = f"{configuration.get('config_name', 'default')}:" if len(configurations) > 1 else ""
        for split, pattern in _patterns(configuration.get("data_files")):
            files = [path for path in sorted(folder.glob(pattern)) if path.is_file()]
            if not files:
                raise DataError(f"{folder / 'README.md'} names {pattern}, and there is no such file")
            splits.setdefault(f"{name}{split}", []).extend(files)
    return splits


def _configurations(folder: Path) -> list[dict[str, Any]]:
    """The configurations with data files of the card; none without a card, or if it cannot be read."""
    import yaml

    try:
        head = FRONT_MATTER.match((folder / "README.md").read_text(encoding="utf-8"))
        card = yaml.safe_load(head[1]) if head else None
    except (OSError, ValueError, yaml.YAMLError):
        return []
    configurations = card.get("configs") if isinstance(card, dict) else None
    if not isinstance(configurations, list):
        return []
    return [entry for entry in configurations if isinstance(entry, dict) and entry.get("data_files")]


def _patterns(data_files: Any) -> Iterator[tuple[str, str]]:
    """Split and pattern of each entry: a pattern, a list of them, or a list of ``split`` and ``path``."""
    for entry in data_files if isinstance(data_files, list) else [data_files]:
        if isinstance(entry, str):
            yield ALL, entry
        elif isinstance(entry, dict):
            paths = entry.get("path")
            for pattern in paths if isinstance(paths, list) else [paths]:
                yield str(entry.get("split", ALL)), str(pattern)
