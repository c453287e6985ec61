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
    packages = [*_files_of(package, roots, own)] if package else []
    unread = [(own, package), *packages]
    files = {initial for initial, _ in packages if initial != own}
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
    outermost = folder
    while (outermost / "__init__.py").is_file():  # a file that is named by its path may belong to a package
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
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = _absolute("." * node.level + (node.module or ""), package)
            yield module
            yield from (f"{module}.{alias.name}".lstrip(".") for alias in node.names)
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
    parents = package.split(".")
    above = parents[: len(parents) - level + 1]
    return ".".join([*above, relative] if relative else above).lstrip(".")


def _files_of(name: str, roots: Sequence[Path], own: Path) -> Iterator[tuple[Path, str]]:
    """The files that run when a name is imported, with the package of each: those of its packages, then its own."""
    parts = name.split(".")
    root = next((root for root in roots if _is_found_in(parts[0], root, own)), None)
    if root is None:
        return
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
    candidates = (base.with_name(base.name + suffix) for suffix in all_suffixes())
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _is_found_in(top: str, root: Path, own: Path) -> bool:
    """Whether Python finds a module or package of this name in this folder, and it is the user's own."""
    if not top or top == OURS or top in sys.stdlib_module_names:
        return False
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return False
    if spec is None:  # then ``magcli.verify.beside`` lets the user's files find their neighbours
        spec = PathFinder.find_spec(top, [str(root)])
    if spec is None:
        return False
    locations = [spec.origin] if spec.origin else [*(spec.submodule_search_locations or [])]
    return any(_is_own(Path(location).resolve(), root, own) for location in locations if location)


def _is_own(location: Path, root: Path, own: Path) -> bool:
    if not location.is_relative_to(root):
        return False
    parts = location.relative_to(root).parts
    if root.name in INSTALLED:  # the user's function is in an installed package, beside all others
        return parts[0] == own.relative_to(root).parts[0]
    return not any(part in INSTALLED for part in parts)
