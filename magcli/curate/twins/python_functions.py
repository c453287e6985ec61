"""Functions as Python code declares them: in a statement, in a stub that is to be completed, in a solution."""

import ast
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from magcli.curate.twins.cpp_types import Type, annotated


class Function(NamedTuple):
    """The line that declares it, its parameters with their types, and that of its value, as far as they are told."""

    line: str
    parameters: Sequence[tuple[str, Type]]
    returns: Type


def declared(codes: Iterable[str], name: str) -> Function | None:
    """The first declaration of a function; ``Solution::name`` is a method of that class.

    None where there is none, or only one with ``*args``, ``**kwargs`` or parameters that go by keyword alone.
    """
    for code in codes:
        if (tree := parsed(code)) and (found := find(tree, name)):
            return _function(found, name.rpartition("::")[0])
    return None


def parsed(code: str) -> ast.Module | None:
    """The syntax tree of code that may lack the body that is asked for; None where it is no Python."""
    for ending in ("", "\n        pass\n", "\n    pass\n", " pass\n"):
        try:
            return ast.parse(code.rstrip() + ending)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
    return None


def find(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """The node of a function of that name."""
    owner, _, own = name.rpartition("::")
    body: list[ast.stmt] = tree.body
    if owner:
        body = [part for node in body if isinstance(node, ast.ClassDef) and node.name == owner for part in node.body]
    return next((node for node in body if isinstance(node, ast.FunctionDef) and node.name == own), None)


def stub_text(tree: ast.Module, name: str) -> str | None:
    """What a stub's one function says of itself; None where the code holds more than that function, or not it."""
    found = find(tree, name)
    holder = ast.ClassDef if "::" in name else ast.FunctionDef
    more = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom | holder)]
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    if found is None or more or len(functions) > 1:
        return None
    return ast.get_docstring(found) or ""


def line(name: str, parameters: Sequence[str]) -> str:
    """How a function is declared of which no more is known."""
    owner, _, own = name.rpartition("::")
    return _in_class(f"def {own}({', '.join(['self', *parameters] if owner else parameters)}):", owner)


def _function(node: ast.FunctionDef, owner: str) -> Function | None:
    given = node.args
    if given.vararg or given.kwarg or given.kwonlyargs:
        return None
    parameters = [*given.posonlyargs, *given.args][1 if owner else 0 :]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    hints = [(each.arg, annotated(each.annotation)) for each in parameters]
    told = _in_class(f"def {node.name}({ast.unparse(given)}){returns}:", owner)
    return Function(told, hints, annotated(node.returns))


def _in_class(declaration: str, owner: str) -> str:
    return f"class {owner}:\n    {declaration}" if owner else declaration
