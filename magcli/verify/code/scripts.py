"""The tests of a code problem as its judge runs them: stdin and stdout, or a script in Python.

A test with ``assert`` is a script: one assert, or any statements, such as loops, helper functions and ``check(f)``. A
test with ``call`` and ``output`` is the script ``assert CALL == OUTPUT``. A script runs in a sandbox of its own, where
the names that the problem defines stand for the program (``magcli.verify.code.referee``); nothing of it is evaluated
here. Which names the problem defines is derived from the tests, not from the program, which can define any name: those
that the script neither binds nor has from Python and its libraries. If a test has several, as with a helper called on
the function's value, the row's entry point or other tests must resolve them.
"""

import ast
import builtins
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from magcli.errors import DataError
from magcli.verify.code import suites
from magcli.verify.code.executors import executes_values
from magcli.verify.code.outputs import shortened
from magcli.verify.code.rewriting import (
    called_functions,
    exceptions_in,
    mentions,
    names_class,
    names_in,
    names_of_program,
)
from magcli.verify.code.script_library import MEMBERS, MODULES, OWN
from magcli.verify.code.stdin_cases import StdinCase, check_columns, stdin_case
from magcli.verify.code.syntax import SUPPLIED, json_value, parsed, quote, root_of

_KNOWN = frozenset((*vars(builtins), *MODULES, *MEMBERS, *OWN, *SUPPLIED))
"""Names that no program has to define."""
_HELPERS = ("list_node", "list_values", "tree_node", "tree_values")
_CLASSES = ("ListNode", "TreeNode")
"""Classes that the driver supplies for a ``Solution``."""
_OF_UNITTEST = ("assert", "fail")


class Suite(NamedTuple):
    """The modules as which a suite imports the program, and what it calls them and the program's names."""

    modules: tuple[str, ...]
    own: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """A test that is a script.

    Args:
        text: Its source.
        names: Those that the problem defines; the first is the one that the program must define.
        excerpt: What the verdict's detail calls its subject.
        suite: How it gets the program, if a runner must find its tests.
    """

    text: str
    names: tuple[str, ...]
    excerpt: str
    suite: "Suite | None" = None

    @property
    def supplied(self) -> tuple[str, ...]:
        """The names of LeetCode that the program must have."""
        return _HELPERS if any(name in self.text for name in (*_HELPERS, *_CLASSES, "is_same_")) else ()


Test = StdinCase | Script
Parsed = TypeVar("Parsed")


def parse_scripts(tests: Sequence[Mapping[str, Any]], problem_names: frozenset[str] | None = None) -> Sequence[Test]:
    """Parse tests as the judge runs them, see ``parse_all``."""
    return parse_all(tests, problem_names, parse_script, _equality)


def parse_all(
    tests: Sequence[Mapping[str, Any]],
    problem_names: frozenset[str] | None,
    parse_assert: Callable[[str, frozenset[str]], Parsed],
    parse_call: Callable[[str, str, frozenset[str]], Parsed],
) -> Sequence[StdinCase | Parsed]:
    """Parse tests; ``problem_names`` are derived from them by ``names_of_problem`` if None.

    Raises DataError if there are none, one is invalid (the message has its number), or only some are calls.
    """
    # The name that one test leaves open another one may resolve, so all tests are read first.
    names = names_of_problem(tests) if problem_names is None else problem_names
    parsed: list[StdinCase | Parsed] = []
    for number, test in enumerate(tests, 1):
        try:
            check_columns(test)
            if test.get("assert"):
                parsed.append(parse_assert(test["assert"], names))
            elif test.get("call"):
                parsed.append(parse_call(test["call"], test.get("output") or "", names))
            else:
                parsed.append(stdin_case(test))
        except DataError as error:
            raise DataError(f"test {number} is a bad test: {error}") from error
    if not parsed:
        raise DataError("the problem has no tests")
    if len({isinstance(test, StdinCase) for test in parsed}) > 1:
        raise DataError("some tests of the problem call a function and others use stdin; all must be of one kind")
    return parsed


def names_of_problem(tests: Sequence[Mapping[str, Any]], entry_point: str = "") -> frozenset[str]:
    """The names that a problem defines: its entry point, and those that are the only candidate in a test."""
    names = {entry_point} if entry_point else set()
    for test in tests:
        source = test.get("assert") or test.get("call")
        if not source or not isinstance(source, str):
            continue
        candidates = _candidates_of(source)
        if len(candidates) == 1:
            names.add(candidates[0])
    return frozenset(names)


@lru_cache(maxsize=4096)
def _candidates_of(source: str) -> tuple[str, ...]:
    try:
        tree = parsed(source)
        # Without known names: they are what is to be derived.
        if suites.is_suite(tree):
            names, _ = _names_of_suite(tree, frozenset())
        else:
            names = _candidates(tree)
    except (ValueError, RecursionError):
        return ()
    return tuple(names)


@lru_cache(maxsize=4096)
def parse_script(source: str, problem_names: frozenset[str]) -> Script:
    """A test given as a script.

    Raises DataError if it is not Python, asserts nothing, or it is not known what it calls.
    """
    try:
        tree = parsed(source)
        if suites.is_suite(tree):
            return _suite(source, tree, problem_names)
        names = resolve_names(tree, problem_names)
        _check_statements(tree, names)
        return Script(source, tuple(names), _excerpt(tree, names))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{quote(source)} cannot be used: {error}") from error


def is_suite(source: Any) -> bool:
    """Whether the source of a test is a suite."""
    try:
        return isinstance(source, str) and "test" in source and suites.is_suite(parsed(source))
    except DataError:
        return False


def _suite(source: str, tree: ast.Module, problem_names: frozenset[str]) -> Script:
    """A test given as a suite. Raises DataError if it cannot be used."""
    try:
        names, suite = _names_of_suite(tree, problem_names)
    except ValueError as error:
        raise DataError(f"the unit tests cannot be used: {error}") from error
    wrong = suites.unsupported(tree, suite.own)
    if not any(map(_asserts, ast.walk(tree))):
        wrong = "they assert nothing"
    if not names:
        wrong = "it is not known which function they test: they neither import one nor call an unknown one"
    if executes_values(tree, suite.own):
        wrong = "they execute what the program returns, which could then decide on itself"
    if wrong:
        raise DataError(f"the unit tests cannot be used: {wrong}")
    return Script(source, tuple(names), suites.excerpt(tree), suite)


def _names_of_suite(tree: ast.Module, problem_names: frozenset[str]) -> tuple[list[str], Suite]:
    """The names that the problem defines, the requested ones first, and how a suite gets the program.

    Raises ValueError if it uses an unknown name although it is known what it tests.
    """
    bound = _bound(tree)
    free = [name for name in _names_in_order(tree) if name not in bound]
    unknown = [name for name in free if name not in _KNOWN]
    modules = suites.program_modules(tree, problem_names, unknown)
    imported, aliases = suites.imported_names(tree, modules)
    asked = [name for name in free if name in problem_names]
    # What nobody defines is the program's, too, unless that is known otherwise: then the suite is incomplete.
    others = [name for name in unknown if name not in asked]
    # A star may bring in any unknown name.
    is_certain = bool(asked or imported) and not suites.imports_all(tree, modules)
    for name in others:
        if is_certain or name in suites.ALIASES:
            raise ValueError(f"{name!r} is neither the problem's own nor known here")
    names = dict.fromkeys((*asked, *imported, *others))
    own = dict.fromkeys((*asked, *others, *aliases))
    return list(names), Suite(tuple(modules), tuple(own))


def _equality(call: str, output: str, problem_names: frozenset[str]) -> Script:
    """The script of a test given as a call and its value, as Python or JSON text."""
    return parse_script(f"assert {call.strip()} == ({_expected(output, problem_names)})", problem_names)


def _expected(output: str, problem_names: frozenset[str]) -> str:
    """The expected value as an expression of Python. Raises DataError if it has none."""
    try:
        node = ast.parse(output.strip(), mode="eval").body
        defined = _KNOWN - problem_names
        # Only names that are no call of the program: it must not judge itself.
        if defined.issuperset(names_in(node)):
            return ast.unparse(node)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    # JSON, whose true and null are unknown names in Python
    return repr(json_value(output))


# ---- names ----


def resolve_names(tree: ast.Module, problem_names: frozenset[str]) -> list[str]:
    """The names that the problem defines, in the order in which the script calls them.

    Raises ValueError if there is none, they are ambiguous, or the script uses another unknown name.
    """
    candidates = _candidates(tree)
    if not candidates:
        raise ValueError("nothing is called")
    names = [name for name in candidates if name in problem_names] or _asked_for(tree, candidates)
    # Several are not ambiguous if it is the problem that defines them.
    if len(names) > 1 and not problem_names.intersection(names):
        raise ValueError(f"it is not known which of {', '.join(names)} the problem asks for")
    others = [name for name in candidates if name not in names and name not in _KNOWN]
    elsewhere = _names_outside_arguments(tree, names)
    helpers = _called_with_values(tree, names)
    for name in others:
        # An unknown class is the program's, unless it is called with values of the program.
        must_be_known = not names_class(name) or name in helpers
        if name in elsewhere and must_be_known:
            raise ValueError(f"{name!r} is neither the problem's own nor known here")
    return names + others


def _asked_for(tree: ast.Module, candidates: list[str]) -> list[str]:
    """The candidates that the problem may ask for: functions rather than classes, and no exceptions."""
    exceptions = {name for kind in exceptions_in(tree) for name in names_in(kind)}
    asked = [name for name in candidates if name not in exceptions] or candidates
    functions = [name for name in asked if not names_class(name)]
    # In ``is_right(f(2))`` either name could be a helper of the test.
    helpers = _called_with_values(tree, functions).intersection(candidates)
    return functions if len(functions) == 1 and not helpers else asked


def _called_with_values(tree: ast.Module, names: Sequence[str]) -> set[str]:
    """The functions and classes that are called with values of the problem's functions, such as ``is_right(f(2))``."""
    functions = [name for name in names if not names_class(name)]
    of_program = names_of_program(tree, functions)
    called: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Call(_, args, keywords):
                if any(mentions(argument, of_program) for argument in (*args, *keywords)):
                    called.add(root_of(node))
    return called - {*names}


def _names_outside_arguments(tree: ast.Module, names: Sequence[str]) -> set[str]:
    """The names that a script reads elsewhere than in arguments of the problem's functions.

    Within them a name that nobody knows is the program's, such as a class of which the function takes an object.
    """
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and root_of(node) in names:
            for argument in (*node.args, *node.keywords):
                inside.update(map(id, ast.walk(argument)))
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in inside}


def _candidates(tree: ast.Module) -> list[str]:
    """Names that the problem may define: unknown ones, else called ones of a library, else called builtins."""
    bound = _bound(tree)
    used = [name for name in _names_in_order(tree) if name not in bound]
    unknown = [name for name in used if name not in _KNOWN]
    if unknown:
        return unknown
    # Some problems ask for a function that Python has, such as ``reduce`` or ``sum``.
    called = called_functions(tree)
    called_in_order = [name for name in used if name in called]
    of_library = [name for name in called_in_order if name in MEMBERS]
    return of_library or [name for name in called_in_order if name in vars(builtins)]


def _names_in_order(tree: ast.AST) -> list[str]:
    """The names that are read, once each, by their first place in the source."""
    read = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    read.sort(key=lambda node: (node.lineno, node.col_offset))
    return list(dict.fromkeys(node.id for node in read))


def _bound(tree: ast.AST) -> set[str]:
    """The names that a script itself binds."""
    bound: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(name, ast.Store()) | ast.arg(name) | ast.ExceptHandler(name=str(name)):
                bound.add(name)
            case ast.FunctionDef(name) | ast.ClassDef(name) | ast.AsyncFunctionDef(name) | ast.alias(_, str(name)):
                bound.add(name)
            # ``import os.path`` binds ``os``.
            case ast.alias(name, None):
                bound.add(name.partition(".")[0])
    return bound


# ---- statements ----


def _check_statements(tree: ast.Module, names: Sequence[str]) -> None:
    """Raise ValueError if a script asserts nothing, compares the program with itself, or needs a class of it."""
    if not any(map(_asserts, ast.walk(tree))):
        raise ValueError("it asserts nothing")
    if executes_values(tree, names):
        raise ValueError("it executes what the program returns, which could then decide on itself")
    functions = [name for name in names if not names_class(name)]
    for node in ast.walk(tree):
        match node:
            case ast.Compare(one, [ast.Eq() | ast.Is()], [other]) if mentions(one, functions):
                if ast.dump(one) == ast.dump(other):
                    raise ValueError("the function is compared with itself")
            case ast.ClassDef(bases=bases) if any(mentions(base, names) for base in bases):
                raise ValueError("it needs a class of the program, of which the judge has objects only")


def _asserts(node: ast.AST) -> bool:
    """Whether a node can fail the test: an assert of more than a constant, ``raise``, or an assertion of a library."""
    match node:
        case ast.Assert(test):
            return not isinstance(test, ast.Constant) or not test.value  # "assert False" fails where it is reached
        case ast.Raise():
            return True
        case ast.Call(ast.Attribute(attr=name)):
            return name.startswith(_OF_UNITTEST) or name == "raises"
    return False


def _excerpt(tree: ast.Module, names: Sequence[str]) -> str:
    """The tested expression of a single assert, the first line of any other script."""
    match tree.body:
        case [ast.Assert(ast.Compare(one, [ast.Eq() | ast.Is()], [other]))]:
            # Of "f(1) == 2" the verdict names f(1).
            own = [side for side in (one, other) if mentions(side, names)]
            text = ast.unparse(own[0] if len(own) == 1 else tree.body[0].test)  # type: ignore[attr-defined]
        case [ast.Assert(test)]:
            text = ast.unparse(test)
        case _:
            text = "the script"
    return shortened(text)
