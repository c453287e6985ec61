"""Which scripts execute what a program returns: then no verdict on it means anything, since it could decide on itself.

What these rules miss, such as a function that is called in a roundabout way, ends the script in the judge's sandbox
(``magcli.verify.code.guarding``).
"""

import ast
from collections.abc import Mapping, Sequence

from magcli.verify.code.rewriting import mentions, names_of_program

_EXECUTORS = frozenset((
    "eval", "exec", "compile", "__import__", "getattr", "setattr", "delattr", "globals", "locals", "vars",
    "importlib.import_module", "marshal.loads", "os.system", "os.popen", "os.execv", "runpy.run_path",
    "runpy.run_module", "subprocess.run", "subprocess.check_output", "subprocess.Popen", "timeit.timeit",
    "timeit.repeat", "operator.attrgetter", "operator.methodcaller", "types.FunctionType", "types.CodeType",
))  # fmt: skip
"""Functions that execute a text, or get what it names."""


def executes_values(tree: ast.Module, names: Sequence[str]) -> bool:
    """Whether a script executes what the program returns, or chooses by it what it executes."""
    of_program = names_of_program(tree, names)
    # By its path in the script, such as ``o.system``, the executor that it is.
    aliases = _executors_of(tree)
    for node in ast.walk(tree):
        match node:
            # eval(f(1)); getattr(x, f(1))
            case ast.Call(function, args) if _path(function) in aliases:
                names_attribute = aliases[_path(function)] in ("getattr", "setattr", "delattr")
                text = args[1:2] if names_attribute else args[:1]
                if any(mentions(part, of_program) for part in text):
                    return True
            # map(eval, f(1))
            case ast.Call(function, args) if not mentions(function, {*names}):
                passes_executor = any(_path(part) in aliases for part in args)
                if passes_executor and any(mentions(part, of_program) for part in args):
                    return True
            # globals()[f(1)]
            case ast.Subscript(table, key) if mentions(key, of_program) and _is_namespace(table, aliases):
                return True
    return False


def _is_namespace(node: ast.expr, executors: Mapping[str, str]) -> bool:
    """Whether an expression is the names of a module, of an object or of the script."""
    match node:
        case ast.Call(function):
            return executors.get(_path(function)) in ("globals", "locals", "vars")
        case ast.Attribute(_, "__dict__" | "modules"):
            return True
    return False


def _executors_of(tree: ast.Module) -> dict[str, str]:
    """How a script calls the functions of ``_EXECUTORS``, and which they are."""
    paths = {name: name for name in _EXECUTORS}
    paths |= {f"builtins.{name}": name for name in _EXECUTORS if "." not in name}
    # Level by level, so that imports come before what a function assigns from them.
    for node in ast.walk(tree):
        match node:
            case ast.Import(aliases):
                paths |= _renamed(paths, aliases)
            case ast.ImportFrom(str(module), aliases):
                members = {alias.asname or alias.name: f"{module}.{alias.name}" for alias in aliases}
                paths |= {name: paths[path] for name, path in members.items() if path in paths}
            case ast.Assign([ast.Name(name)], value) if _path(value) in paths:
                paths[name] = paths[_path(value)]
    return paths


def _renamed(paths: Mapping[str, str], aliases: Sequence[ast.alias]) -> dict[str, str]:
    """The functions of the modules that an import renames: ``o.system`` for ``import os as o``."""
    module_of = {alias.asname: alias.name for alias in aliases if alias.asname}
    renamed: dict[str, str] = {}
    for name, module in module_of.items():
        for path, executor in paths.items():
            if path.startswith(f"{module}."):
                renamed[path.replace(module, name, 1)] = executor
    return renamed


def _path(node: ast.expr) -> str:
    """``os.system`` as it is written; empty for what is more than names."""
    match node:
        case ast.Name(name):
            return name
        case ast.Attribute(inner, name):
            before = _path(inner)
            return f"{before}.{name}" if before else ""
    return ""
