"""Exercism's exercises, as Aider Polyglot has them: rows from a clone of the repository, and several files as one.

An exercise is a folder with ``.docs`` (introduction, instructions) and ``.meta/config.json``, which names the files to
be written, those of the tests and a solution. Its row has ``slug``, ``introduction``, ``instructions``,
``instructions_append``, and the mappings ``stub``, ``tests`` and ``example`` of file names to texts.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from magcli.errors import DataError

CONFIG = ".meta/config.json"
_DOCS = {
    "introduction": "introduction.md",
    "instructions": "instructions.md",
    "instructions_append": "instructions.append.md",
}
_FILES = {"stub": "solution", "tests": "test", "example": "example"}
_OWN_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"[^"/]+"[^\n]*\n', re.M)
_HEADERS = (".h", ".hpp")


def rows(folder: Path) -> list[dict[str, Any]]:
    """The exercises in the folders of a folder, by name; none where it has no exercises.

    Raises:
        DataError: an exercise cannot be read.
    """
    return [_row(config.parents[1]) for config in sorted(folder.glob(f"*/{CONFIG}"))]


def _row(folder: Path) -> dict[str, Any]:
    try:
        files = json.loads((folder / CONFIG).read_text(encoding="utf-8"))["files"]
        docs = {column: _text(folder / ".docs" / name) for column, name in _DOCS.items()}
        texts = {column: _files(folder, files.get(name, [])) for column, name in _FILES.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"the exercise {folder} cannot be read: {error}") from None
    return {"slug": folder.name, **docs, **texts}


def _text(path: Path) -> str:
    """A text, empty where there is no such file."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _files(folder: Path, names: Iterable[str]) -> dict[str, str]:
    return {name: (folder / name).read_text(encoding="utf-8") for name in names}


def one_text(files: Mapping[str, str]) -> str:
    """Files as one: C++ headers come first, and nothing includes another file of the exercise."""
    ordered = sorted(files, key=lambda name: not name.endswith(_HEADERS))
    return "\n".join(without_own_includes(files[name]) if _is_cpp(name) else files[name] for name in ordered)


def without_own_includes(source: str) -> str:
    """C++ without the includes of files beside it, whose lines stay empty: all stands in one file."""
    return _OWN_INCLUDE.sub("\n", source)


def _is_cpp(name: str) -> bool:
    return name.endswith((*_HEADERS, ".cpp"))
