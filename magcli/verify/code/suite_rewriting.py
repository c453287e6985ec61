"""Rewrites a test suite before it runs: assertions are noted, and those that compare know what is of the program.

Runs inside the judge's sandbox. ``assert`` statements are rewritten as those of other scripts
(``magcli.verify.code.rewriting``). Of a call such as ``self.assertEqual(a, b)`` the method is replaced by
``__checked__(self.assertEqual, "assertEqual", of_program, of_program)``, which returns what is called instead.
"""

import ast

from magcli.verify.code.rewriting import called_functions, mentions, names_of_program, rewritten
from magcli.verify.code.suites import SOLUTION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

OWNERS = ("self", "cls")


def rewritten_suite(tree: ast.Module, own: "Iterable[str]") -> ast.Module:
    """The suite, with comparisons and assertions that know which values are of the program; ``own`` are its names."""
    # By ``self.x = f(1)`` self would be of the program, and with it all that tests assert.
    reached = names_of_program(tree, own)
    attributes = attributes_of_program(tree, reached - set(OWNERS))
    noted = Assertions(reached - set(OWNERS), attributes).visit(tree)
    return rewritten(noted, own)


def attributes_of_program(tree: ast.Module, reached: "set[str]") -> "set[str]":
    """The names of attributes to which a test assigns what mentions the program, such as ``self.result``."""
    attributes: set[str] = set()
    before = -1
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
    # Until a round adds none: an attribute may be assigned from another one.
    while len(attributes) > before:
        before = len(attributes)
        for node in assigned:
            if is_of_program(node.value, reached, attributes):
                attributes.update(target.attr for target in node.targets if isinstance(target, ast.Attribute))
    return attributes


def is_of_program(node: ast.AST, names: "set[str]", attributes: "set[str]") -> bool:
    """Whether an expression mentions a name or an attribute that may have a value of the program."""
    if mentions(node, names):
        return True
    return any(isinstance(part, ast.Attribute) and part.attr in attributes for part in ast.walk(node))


class Assertions(ast.NodeTransformer):
    """Replaces the functions of assertions, and relative imports."""

    def __init__(self, names: "set[str]", attributes: "set[str]") -> None:
        self._names, self._attributes = names, attributes

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        """The import, which is never relative: the program is a module, and the suite is in no package."""
        return ast.ImportFrom(node.module or SOLUTION, node.names, 0)

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """The call, whose function is ``__assertion__(...)`` if it asserts something."""
        self.generic_visit(node)
        # Its first two arguments are what assertions compare.
        if name := assertion_name(node.func):
            flags = [ast.Constant(is_of_program(side, self._names, self._attributes)) for side in node.args[:2]]
            node.func = ast.Call(ast.Name("__checked__", ast.Load()), [node.func, ast.Constant(name), *flags], [])
        return node


def assertion_name(function: ast.expr) -> str:
    """The name of an assertion of unittest, pytest or numpy; empty for any other function."""
    match function:
        case ast.Name(name) | ast.Attribute(_, name) if name.startswith(("assert", "fail")) or name == "raises":
            return name
    return ""


def asserting_functions(tree: ast.Module) -> "set[str]":
    """The names of the functions and methods that assert something, themselves or by functions that they call."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    asserting = {node.name for node in functions if any(map(asserts, ast.walk(node)))}
    # Each round adds the callers of those of the round before.
    before = 0
    while len(asserting) > before:
        before = len(asserting)
        asserting.update(node.name for node in functions if called_names(node) & asserting)
    return asserting


def asserts(node: ast.AST) -> bool:
    """Whether a node is an assertion of more than a constant."""
    match node:
        case ast.Assert(test):
            return not isinstance(test, ast.Constant)
        case ast.Call(function):
            return bool(assertion_name(function)) and assertion_name(function) != "fail"
    return False


def called_names(function: ast.FunctionDef) -> "set[str]":
    """The names of the functions and methods that a function calls."""
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    methods = {call.attr for call in calls if isinstance(call, ast.Attribute)}
    return called_functions(function) | methods
