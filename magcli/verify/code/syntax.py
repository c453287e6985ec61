"""The source of tests as syntax trees."""

import ast
import json
from collections.abc import Mapping
from typing import Any

from magcli.errors import DataError

SUPPLIED = frozenset(("list_node", "list_values", "tree_node", "tree_values", "ListNode", "TreeNode"))
"""Names that the driver supplies for a ``Solution``."""


def parsed(source: str) -> ast.Module:
    """The syntax tree. Raises DataError if it is not Python."""
    try:
        return ast.parse(source.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise DataError(f"{quote(source)} cannot be read as Python: {error}") from error


def quote(source: str) -> str:
    """The source in quotes, truncated for a message."""
    return repr(source if len(source) <= 80 else source[:80] + "...")


def json_value(text: str) -> Any:
    """The value of an expected value that is JSON. Raises DataError if it is not."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"the expected value {quote(text)} is neither Python nor JSON") from error


def root_of(node: ast.expr) -> str:
    """The name at the root of a chain of calls, attributes and subscripts; empty if there is none."""
    match node:
        # list_values(f(1)) is the value of f.
        case ast.Call(ast.Name("list_values" | "tree_values"), [inner]):
            return root_of(inner)
        case ast.Call(inner) | ast.Attribute(inner) | ast.Subscript(inner):
            return root_of(inner)
        case ast.Name(name):
            return name
    return ""


class SubstituteNames(ast.NodeTransformer):
    """Substitutes expressions for names."""

    def __init__(self, subjects: Mapping[str, ast.expr]) -> None:
        self._subjects = subjects

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """The substituted expression, if any."""
        return self._subjects.get(node.id, node)
