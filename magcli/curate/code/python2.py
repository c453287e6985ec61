"""Python 2 that reads as Python 3, carried over: contest archives hold much of it."""

import ast
import re
import warnings

PYTHON_2 = re.compile(r"\b(?:xrange|raw_input)\b")
"""What no Python 3 says."""

_CARRIED = """
xrange, raw_input = range, input
def quotient_of_python_2(one, other):
    return one // other if isinstance(one, int) and isinstance(other, int) else one / other
"""


def from_python_2(code: str) -> tuple[str, str]:
    """The language and the program: Python 3, where it reads as that."""
    tree = tree_of(code)
    if tree is None or "quotient_of_python_2" in code:
        return ("python", code) if tree else ("python2", code)
    future = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    if not any(name.name == "division" for node in future for name in node.names):
        tree = _Divisions().visit(tree)
    tree.body = [*future, *ast.parse(_CARRIED).body, *(node for node in tree.body if node not in future)]
    return "python", ast.unparse(ast.fix_missing_locations(tree)) + "\n"


class _Divisions(ast.NodeTransformer):
    """Puts Python 2's division in place of ``/``."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        return _quotient(node.left, node.right) if isinstance(node.op, ast.Div) else node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Div) or not isinstance(node.target, ast.Name):
            return node
        return ast.Assign([node.target], _quotient(ast.Name(node.target.id), node.value), lineno=node.lineno)


def _quotient(left: ast.expr, right: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("quotient_of_python_2"), [left, right], [])


def tree_of(source: str) -> ast.Module | None:
    """The syntax tree; None of what is no Python 3."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
