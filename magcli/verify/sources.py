"""The files behind a user's own function: what its module imports from its own folder or package.

Imports are read from the source, also those inside of functions, so the files do not depend on what ran before. A name
that is computed while the program runs is not found, and neither are files of data.
"""

import ast
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder, all_suffixes
from pathlib import Path

from magcli.data.seal import hash_file

INSTALLED = ("site-packages", "dist-packages")
"""Folders of installed packages, which a user's folder may contain."""
OURS = "magcli"
"""Its files belong to its version."""
IMPORTERS = ("import_module", "__import__")
"""Functions that import the module that their first argument names."""


def import_digests(file: Path, package: str) -> dict[str, str]:
    """The SHA-256 of each file that a file imports from its own folder or package, by its path in there.

    Files that these import are among them, the file itself is not. ``package`` is the full name of its package, empty
    if it is imported by itself.
    """
    own = file.resolve()
    roots = _roots(own, package)
    # Importing a module runs the files of its packages first.
    packages = [*_files_of(package, roots, own)] if package else []
    unread = [(own, package), *packages]
    files = {initial for initial, _ in packages if initial != own}
    # Each file once, as files may import each other.
    while unread:
        path, package = unread.pop()
        for name in _imported_names(path, package):
            for imported, its_package in _files_of(name, roots, own):
                if imported not in files and imported != own:
                    files.add(imported)
                    unread.append((imported, its_package))
    return {path.relative_to(roots[-1]).as_posix(): hash_file(path) for path in sorted(files)}


def _roots(own: Path, package: str) -> list[Path]:
    """The folders in which modules of the user's are searched for, the innermost first."""
    folder = own.parent
    if package:
        return [folder.parents[package.count(".")]]
    # A file that is named by its path may belong to a package.
    outermost = folder
    while (outermost / "__init__.py").is_file():
        outermost = outermost.parent
    return [folder] if outermost == folder else [folder, outermost]


def _imported_names(path: Path, package: str) -> Iterator[str]:
    """The full names of what a file imports: modules, and what may be modules or values of them."""
    if path.suffix != ".py":
        return
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return  # it fails when it is imported
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            dots = "." * node.level
            module = _absolute(dots + (node.module or ""), package)
            yield module
            # What is imported from a package may be a module of it.
            for alias in node.names:
                yield f"{module}.{alias.name}".lstrip(".")
        elif isinstance(node, ast.Call) and (name := _literal_import(node)):
            yield _absolute(name, package)


def _literal_import(call: ast.Call) -> str:
    """The name of a module that a call imports, if it is written out."""
    match call:
        case ast.Call(ast.Name(function) | ast.Attribute(_, function), [ast.Constant(str(name)), *_]):
            return name if function in IMPORTERS else ""
    return ""


def _absolute(name: str, package: str) -> str:
    """The full name of a module that a file of this package imports; one dot is the package itself."""
    relative = name.lstrip(".")
    level = len(name) - len(relative)
    if level == 0:
        return name
    packages = package.split(".")
    # Each dot after the first goes one package up.
    names = packages[: len(packages) - level + 1]
    if relative:
        names.append(relative)
    return ".".join(names).lstrip(".")


def _files_of(name: str, roots: Sequence[Path], own: Path) -> Iterator[tuple[Path, str]]:
    """The files that run when a name is imported, with the package of each: those of its packages, then its own."""
    parts = name.split(".")
    # In the first folder that has it, as Python searches.
    searched = [root for root in roots if _is_found_in(parts[0], root, own)]
    if not searched:
        return
    root = searched[0]
    for number, part in enumerate(parts, 1):
        base = root.joinpath(*parts[:number])
        package = ".".join(parts[: number - 1])
        initial = _module_file(base / "__init__")
        if initial is not None:
            yield initial, f"{package}.{part}".lstrip(".")
            continue
        file = _module_file(base)
        if file is not None:
            yield file, package
            return  # what follows is a value of the module


def _module_file(base: Path) -> Path | None:
    """The file of a module, as source or compiled, by its path without a suffix."""
    for suffix in all_suffixes():
        file = base.with_name(base.name + suffix)
        if file.is_file():
            return file
    return None


def _is_found_in(top: str, root: Path, own: Path) -> bool:
    """Whether Python finds a module or package of this name in this folder, and it is the user's own."""
    if not top or top == OURS or top in sys.stdlib_module_names:
        return False
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return False
    # ``magcli.verify.beside`` lets the user's files import their neighbours, which are not on the path.
    if spec is None:
        spec = PathFinder.find_spec(top, [str(root)])
    if spec is None:
        return False
    # A package without __init__.py has folders instead of a file.
    locations = [spec.origin] if spec.origin else [*(spec.submodule_search_locations or [])]
    return any(_is_own(Path(location).resolve(), root, own) for location in locations if location)


def _is_own(location: Path, root: Path, own: Path) -> bool:
    """Whether a file or folder below the root is the user's, not an installed package."""
    if not location.is_relative_to(root):
        return False
    parts = location.relative_to(root).parts
    # The user's function may be in an installed package, which is beside all others.
    if root.name in INSTALLED:
        return parts[0] == own.relative_to(root).parts[0]
    return not any(part in INSTALLED for part in parts)
