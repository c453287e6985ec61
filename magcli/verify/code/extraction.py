"""Splits a test of curation into the calls that the program evaluates and the condition on their values.

The names that the problem defines are derived from the tests, not from the program, which can define any name: those
that are neither builtins nor from a library. If a test has several, as in a helper called on the function's value, the
row's entry point or other tests must resolve them. Attributes of returned objects, and methods of objects that a test
creates from one of the problem's classes, are evaluated by the program too. Comprehensions over constants are unrolled.
"""

import ast
import builtins
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from itertools import chain
from typing import Any

from magcli.errors import DataError
from magcli.verify.code.expressions import bind_target, check, dotted, value_of
from magcli.verify.code.functions import FUNCTIONS, LIBRARY, MODULES, TYPES
from magcli.verify.code.methods import PLAIN_METHODS, truth
from magcli.verify.code.outputs import Other, Plain

MAX_UNROLLED = 1_000
"""Maximum number of elements of a comprehension that is unrolled."""

SUPPLIED = frozenset(("list_node", "list_values", "tree_node", "tree_values", "ListNode", "TreeNode"))
"""Names that the driver supplies for a ``Solution``."""


def find_problem_names(sources: Iterable[str], entry_point: str = "") -> frozenset[str]:
    """The names that a problem defines: its entry point, and those that are the only candidate in a test.

    Args:
        sources: All tests of the problem: asserts, or calls.
        entry_point: The name of the requested function, if known.
    """
    candidates = [names for source in sources if (names := _candidate_names(source))]
    alone = {names[0] for names in candidates if len(names) == 1}
    return frozenset(alone | {entry_point} if entry_point else alone)


@lru_cache(maxsize=4096)
def _candidate_names(source: str) -> tuple[str, ...]:
    try:
        tree = parsed(source).body[0]
        if isinstance(tree, ast.Assert):
            return tuple(_candidates(tree.test))
        return tuple(_candidates(tree.value)) if isinstance(tree, ast.Expr) else ()
    except (DataError, IndexError, RecursionError):
        return ()


def split_calls(node: ast.expr, problem_names: frozenset[str]) -> tuple[Sequence[ast.expr], ast.expr]:
    """The calls that the program evaluates, in order, and the expression over their values ``V0``, ``V1``, ..

    Raises ValueError if there is none, or the expression cannot be evaluated for any values.
    """
    take = _CallExtractor(problem_names)
    view: ast.expr = take.visit(_Unroller(problem_names).visit(deepcopy(node)))
    if not take.calls:
        raise ValueError("nothing is called")
    values = frozenset(f"V{number}" for number in range(len(take.calls)))
    bound = set(chain.from_iterable(map(_binds, ast.walk(view))))
    _refuse_unknown(view, values)
    check(view, values | bound)
    if loose := [name for call in take.calls for name in names_in(call) if name in bound]:
        raise ValueError(f"{loose[0]!r} is not known where the program is called")
    return take.calls, view


def names_in(node: ast.AST) -> list[str]:
    """The names in a syntax tree."""
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]


def resolve_names(node: ast.expr, problem_names: frozenset[str]) -> frozenset[str]:
    """The names in a test that the problem defines. Raises ValueError if that is ambiguous."""
    names = _candidates(node)
    if resolved := problem_names.intersection(names):
        return resolved
    match names:
        case []:
            raise ValueError("nothing is called")
        case [name]:
            return frozenset([name])
    raise ValueError(f"it is not known which of {', '.join(names)} the problem asks for")


def _candidates(node: ast.expr) -> list[str]:
    """Names that the problem may define: unknown ones, else called ones of a library, else called builtins."""
    bound = set(chain.from_iterable(map(_binds, ast.walk(node))))
    if unknown := [name for name in dict.fromkeys(names_in(node)) if name not in bound and name not in _KNOWN]:
        return unknown
    functions = [part.func for part in ast.walk(node) if isinstance(part, ast.Call)]
    called = [function.id for function in functions if isinstance(function, ast.Name)]
    library = [name for name in dict.fromkeys(called) if name in LIBRARY]
    return library or [name for name in dict.fromkeys(called) if name not in bound and name in FUNCTIONS]


_HELPERS = SUPPLIED | {"is_same_list", "is_same_tree"}
_KNOWN = frozenset((*vars(builtins), *FUNCTIONS, *TYPES, *MODULES, *LIBRARY, *_HELPERS))
"""Names that no program has to define, whether supported or not."""


def _binds(node: ast.AST) -> list[str]:
    """The names that a comprehension or lambda binds."""
    match node:
        case ast.comprehension(target):
            return [part.id for part in ast.walk(target) if isinstance(part, ast.Name)]
        case ast.Lambda(arguments):
            return [argument.arg for argument in ast.walk(arguments) if isinstance(argument, ast.arg)]
    return []


def _is_call(node: ast.expr, problem_names: frozenset[str]) -> bool:
    """Whether the program evaluates an expression: a call of its function, or an attribute of its object."""
    match node:
        case ast.Call(ast.Name("list_values" | "tree_values"), [inner], []):
            return _is_call(inner, problem_names)
        case ast.Call(ast.Name(name)) | ast.Attribute(ast.Name(name)) | ast.Call(ast.Attribute(ast.Name(name))):
            return name in problem_names
        case ast.Call(ast.Attribute(inner, method)):
            return _is_object(inner, problem_names) and _is_problem_method(inner, method)
        case ast.Attribute(inner, "real" | "imag" | "numerator" | "denominator") | ast.Subscript(inner):
            return _is_object(inner, problem_names)
        case ast.Attribute(_, name) if name.startswith("_"):
            return False
        case ast.Call(inner) | ast.Attribute(inner):
            return _is_call(inner, problem_names)
    return False


def _is_object(node: ast.expr, problem_names: frozenset[str]) -> bool:
    """Whether an expression is an object of one of the problem's classes, judged by its name: ``Stack().push(1)``.

    A method of a ``Solution`` returns a value.
    """
    match node:
        case ast.Call(ast.Name(name)):
            return name in problem_names and name[:1].isupper() and "_" not in name
        case ast.Call(ast.Attribute(inner, method)):
            return _is_object(inner, problem_names) and root_of(node) != "Solution" and method not in PLAIN_METHODS
    return False


def _is_problem_method(node: ast.expr, method: str) -> bool:
    """Whether a method of an object is the problem's own.

    Raises ValueError if it may be a method of plain data, which the program must not answer for.
    """
    if method in PLAIN_METHODS and root_of(node) != "Solution":
        raise ValueError(f"it is not known whether {method!r} is the problem's own")
    return not method.startswith("_")


class _CallExtractor(ast.NodeTransformer):
    """Replaces what the program evaluates by names of its values."""

    def __init__(self, problem_names: frozenset[str]) -> None:
        self._problem_names = problem_names
        self.calls: list[ast.expr] = []

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.expr) and _is_call(node, self._problem_names):
            self.calls.append(node)
            return ast.Name(f"V{len(self.calls) - 1}")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node.func.value = self.visit(node.func.value)
            node.args = list(map(self.visit, node.args))
            node.keywords = list(map(self.visit, node.keywords))
            return node
        return self.generic_visit(node)


def root_of(node: ast.expr) -> str:
    """The name at the root of a chain of calls, attributes and subscripts."""
    match node:
        case ast.Call(ast.Name("list_values" | "tree_values"), [inner]):
            return root_of(inner)
        case ast.Call(inner) | ast.Attribute(inner) | ast.Subscript(inner):
            return root_of(inner)
        case ast.Name(name):
            return name
    raise ValueError(f"{quote(ast.unparse(node))} is not just a call")


class _Unroller(ast.NodeTransformer):
    """Unrolls comprehensions over constants whose elements call the program."""

    def __init__(self, problem_names: frozenset[str]) -> None:
        self._problem_names = problem_names

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        return self._unrolled(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.expr:
        return self._unrolled(node)

    def visit_SetComp(self, node: ast.SetComp) -> ast.expr:
        written = self._unrolled(node)
        return ast.Set(written.elts) if isinstance(written, ast.List) and written.elts else written

    def _unrolled(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> ast.expr:
        expressions = (part for part in ast.walk(node.elt) if isinstance(part, ast.expr))
        calls = (part for part in expressions if _is_call(part, self._problem_names))
        bound = set(chain.from_iterable(map(_binds, node.generators)))
        if not any(bound.intersection(names_in(call)) for call in calls):
            return node
        elements = []
        for values in _loop_bindings(node.generators, {}):
            subjects = {name: ast.parse(repr(value), mode="eval").body for name, value in values.items()}
            elements.append(self.visit(SubstituteNames(subjects).visit(deepcopy(node.elt))))
            if len(elements) > MAX_UNROLLED:
                raise ValueError(f"a comprehension has more than {MAX_UNROLLED} elements")
        return ast.List(elements)


def _loop_bindings(generators: list[ast.comprehension], values: Mapping[str, Plain]) -> Iterator[Mapping[str, Plain]]:
    """The values of loop variables over constants, one mapping per iteration."""
    if not generators:
        yield values
        return
    first, *rest = generators
    iterable = value_of(first.iter, values)
    items: Any = (iterable.items or ()) if isinstance(iterable, Other) else iterable
    for item in items:
        inner = {**values, **bind_target(first.target, item)}
        if all(truth(value_of(condition, inner)) for condition in first.ifs):
            yield from _loop_bindings(rest, inner)


def _refuse_unknown(view: ast.expr, values: frozenset[str]) -> None:
    """Reject what cannot be evaluated for any values.

    Raises ValueError if a name is unknown, or the syntax is not supported.
    """
    bound = set(chain.from_iterable(map(_binds, ast.walk(view))))
    for node in ast.walk(view):
        match node:
            case ast.Name(name) if name not in values and name not in bound and name not in MODULES:
                if name not in FUNCTIONS and name not in TYPES:
                    raise ValueError(f"{name!r} is neither the problem's own nor known here")
            case ast.Call(ast.Attribute() as function):
                _refuse_unknown_method(function, values | bound)
            case ast.Await() | ast.Yield() | ast.YieldFrom() | ast.NamedExpr():
                raise ValueError(f"{type(node).__name__} is not supported")
            case ast.Attribute(_, name) if name.startswith("_") and name != "__name__":
                raise ValueError(f"{name!r} is not supported")


def _refuse_unknown_method(function: ast.Attribute, values: frozenset[str] | set[str]) -> None:
    name = dotted(function) or ""
    module = name.partition(".")[0]
    if name in FUNCTIONS and module not in values:
        return
    if module in MODULES and module not in values:
        raise ValueError(f"{name!r} is not supported")
    if function.attr not in PLAIN_METHODS:
        raise ValueError(f"{function.attr!r} is not supported")


class SubstituteNames(ast.NodeTransformer):
    """Substitutes expressions for names."""

    def __init__(self, subjects: Mapping[str, ast.expr]) -> None:
        self._subjects = subjects

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """The substituted expression, if any."""
        return self._subjects.get(node.id, node)


def parsed(source: str) -> ast.Module:
    """The syntax tree. Raises DataError if it is not Python."""
    try:
        return ast.parse(source.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise DataError(f"{quote(source)} cannot be read as Python: {error}") from error


def quote(source: str) -> str:
    """The source in quotes, truncated for a message."""
    return repr(source if len(source) <= 80 else source[:80] + "...")
