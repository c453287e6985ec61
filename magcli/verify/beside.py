"""Load a user's file as a module, whatever its name, with the modules beside it.

A file named ``json.py`` or ``torch.py`` must not stand for the module of that name, and neither must a helper beside
it. So its folder is not put on ``sys.path``, where any library that tries an optional import would see it: only
the files of that folder find their neighbours, and only where nothing else has the name.
"""

import ast
import hashlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, ModuleType

from magcli.errors import UsageError

_IMPORTERS = ("<frozen importlib", "<frozen zipimport")
"""Beginnings of the file names of Python's own frames that import."""


class Neighbours:
    """Finds the modules of users' folders for imports in the files of the same folder, after all other finders."""

    def __init__(self) -> None:
        self.folders: set[Path] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The top-level module of that name beside the file that imports it; None where no user's file does."""
        # The importing code is the first caller outside of the machinery of imports.
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and _imports(frame.f_code.co_filename):
            frame = frame.f_back
        # With a path it is a module of a package, which its package finds.
        if path is not None or frame is None:
            return None
        folder = self.folder_of(frame.f_code.co_filename)
        return None if folder is None else PathFinder.find_spec(name, [str(folder)])

    def folder_of(self, file: str) -> Path | None:
        """The user's folder that a file is in, the innermost if there are several."""
        around = [folder for folder in self.folders if Path(file).is_relative_to(folder)]
        return max(around, key=lambda folder: len(folder.parts), default=None)


_NEIGHBOURS = Neighbours()


def _imports(file: str) -> bool:
    return file.startswith(_IMPORTERS) or file == importlib.__file__


def load_file(path: Path) -> ModuleType:
    """The module of a file, loaded once.

    Raises:
        UsageError: it imports a module beside it, and one of that name has been loaded from another user's folder.
        Exception: whatever the file raises.
    """
    source = path.resolve()
    _NEIGHBOURS.folders.add(source.parent)
    # At the end: neighbours are found where nothing else has the name.
    if _NEIGHBOURS not in sys.meta_path:
        sys.meta_path.append(_NEIGHBOURS)
    name = _module_name(source)
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    spec = importlib.util.spec_from_file_location(name, source)
    assert spec is not None
    assert spec.loader is not None
    _check_neighbours(source)
    module = importlib.util.module_from_spec(spec)
    # Registered before it runs, as Python does, so that it may import itself.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    # A module that has run in part must not be taken for the whole at the next try.
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _module_name(source: Path) -> str:
    """The name of the file's module: its own if no other module has it, else a private one."""
    digest = hashlib.sha256(str(source).encode()).hexdigest()[:12]
    private = f"magcli_file_{digest}"
    if not source.stem.isidentifier():
        return private
    # Its own name, so that what it defines can be pickled and imported by its neighbours.
    loaded = sys.modules.get(source.stem)
    if loaded is not None:
        return source.stem if getattr(loaded, "__file__", None) == str(source) else private
    other = importlib.util.find_spec(source.stem)
    return source.stem if other is None or other.origin == str(source) else private


def _check_neighbours(source: Path) -> None:
    """Refuse to take a module of another user's folder for the one beside this file.

    Python keeps one module of each name, so that the file would get the other one without a word.
    """
    for name in _imported(source):
        loaded = getattr(sys.modules.get(name), "__file__", None)
        if loaded is None or _NEIGHBOURS.folder_of(loaded) is None:
            continue
        own = PathFinder.find_spec(name, [str(source.parent)])
        if own is not None and own.origin != loaded:
            raise UsageError(f"{source} imports {name}, of which there are two: {own.origin} and {loaded}; rename one")


def _imported(source: Path) -> set[str]:
    """The top-level modules that a file imports; none if it cannot be read, of which loading it will tell."""
    try:
        tree = ast.parse(source.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names
