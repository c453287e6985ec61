"""Rewrites a test's script: each comparison becomes a call that knows which sides have values of the program.

Runs inside the judge's sandbox. Which names have such values is derived from the syntax: what is assigned from, looped
over, passed to or returned by an expression that mentions a name of the problem.
"""

import ast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def rewritten(tree: ast.Module, problem_names: "Iterable[str]") -> ast.Module:
    """The script with calls of ``__compare__``, ``__comparison__`` and ``__condition__``."""
    changed: ast.Module = Comparisons(names_of_program(tree, problem_names)).visit(tree)
    return ast.fix_missing_locations(changed)


def must_assert(tree: ast.Module) -> bool:
    """Whether one of the script's asserts must be reached: not if it expects an exception, which comes before."""
    nodes = list(ast.walk(tree))
    if any(isinstance(node, ast.Try | ast.With) for node in nodes):
        return False
    return any(isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant) for node in nodes)


class Comparisons(ast.NodeTransformer):
    """Replaces comparisons; ``of_program`` are the names that have values of the program."""

    def __init__(self, of_program: "set[str]") -> None:
        self._of_program, self._count = of_program, 0

    def visit_Assert(self, node: ast.Assert) -> ast.Assert:
        """The assert, whose test is marked as a single comparison or another condition."""
        is_comparison = isinstance(node.test, ast.Compare) and len(node.test.ops) == 1
        node.test = self.visit(node.test)
        mark = "__comparison__" if is_comparison else "__condition__"
        node.test = ast.Call(ast.Name(mark, ast.Load()), [node.test], [])
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Calls of ``__compare__``; of a chain, joined by ``and``, with each operand evaluated once."""
        self.generic_visit(node)
        left = node.left
        parts: list[ast.expr] = []
        for number, (sign, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
            following: ast.expr = right
            if number < len(node.ops) - 1:
                self._count += 1
                name = f"__compared_{self._count}"
                right = ast.NamedExpr(ast.Name(name, ast.Store()), right)
                following = ast.Name(name, ast.Load())
                if mentions(right, self._of_program):
                    self._of_program.add(name)
            flags = [ast.Constant(mentions(side, self._of_program)) for side in (left, right)]
            arguments = [ast.Constant(type(sign).__name__), left, right, *flags]
            parts.append(ast.Call(ast.Name("__compare__", ast.Load()), arguments, []))
            left = following
        return parts[0] if len(parts) == 1 else ast.BoolOp(ast.And(), parts)


def mentions(node: ast.AST, names: "set[str]") -> bool:
    """Whether one of the names occurs in a syntax tree."""
    return any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node))


def names_in(node: ast.AST) -> "list[str]":
    """The names in a syntax tree."""
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]


BINDING = (
    ast.Assign, ast.AugAssign, ast.AnnAssign, ast.NamedExpr, ast.For, ast.comprehension, ast.FunctionDef, ast.Call,
    ast.Expr,
)  # fmt: skip
"""The kinds of nodes that bind names, or pass values to functions that do."""


def names_of_program(tree: ast.Module, problem_names: "Iterable[str]") -> "set[str]":
    """The names of a script that may have values of the program."""
    reached, before = set(problem_names), -1
    binding = [node for node in ast.walk(tree) if isinstance(node, BINDING)]
    functions = {node.name: node for node in binding if isinstance(node, ast.FunctionDef)}
    while len(reached) > before:
        before = len(reached)
        for node in binding:
            reached.update(bound_to_program(node, reached, functions))
    return reached


def bound_to_program(node: ast.AST, names: "set[str]", functions: "dict[str, ast.FunctionDef]") -> "list[str]":
    """The names that a node binds to a value that mentions ``names``."""
    match node:
        case ast.Assign(targets, value) if mentions(value, names):
            return [name for target in targets for name in names_in(target)]
        case ast.AugAssign(target, _, value) | ast.NamedExpr(target, value) | ast.AnnAssign(target, _, value) if (
            value is not None and mentions(value, names)
        ):
            return names_in(target)
        case ast.For(target, value) | ast.comprehension(target, value) if mentions(value, names):
            return names_in(target)
        case ast.Expr(ast.Call(ast.Attribute(changed), args)) if any(mentions(part, names) for part in args):
            return names_in(changed)
        case ast.FunctionDef(name) if any(mentions(part, names) for part in node.body):
            return [name]
        case ast.Call(ast.Name(name), args, keywords) if name in functions:
            return parameters_of_program(functions[name].args, args, keywords, names)
        case ast.Call(ast.Lambda(signature), args, keywords):
            return parameters_of_program(signature, args, keywords, names)
    return []


def parameters_of_program(
    signature: ast.arguments, args: "list[ast.expr]", keywords: "list[ast.keyword]", names: "set[str]"
) -> "list[str]":
    """The parameters that get a value that mentions ``names``."""
    parameters = [parameter.arg for parameter in (*signature.posonlyargs, *signature.args)]
    by_position = [one for one, value in zip(parameters, args, strict=False) if mentions(value, names)]
    return by_position + [word.arg for word in keywords if word.arg and mentions(word.value, names)]
