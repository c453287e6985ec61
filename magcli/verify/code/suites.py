"""Test suites as scripts: classes of unittest, and functions, classes and fixtures of pytest.

A suite is a script whose tests are not called by it: a runner finds and calls them, which is
``magcli.verify.code.suite_referee`` inside the judge's sandbox. Here its source is only read: whether it is one, which
of its names are the program's, what it needs that cannot be carried over from the program's sandbox to the judge's, and
its tests one by one.

The judge uses it inside its sandbox, too.
"""

import ast
import builtins
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from magcli.verify.code.rewriting import RAISING, called_functions, mentions, name_of, names_in

PROGRAM_MODULES = frozenset((
    "__main__", "answer", "candidate", "main", "module", "my_module", "my_solution", "program", "solution",
    "solutions", "submission", "task", "your_module", "your_solution",
))  # fmt: skip
"""Modules as which tests import the program they test."""
PACKAGES = frozenset((
    "bs4", "cv2", "django", "faker", "flask", "hypothesis", "keras", "librosa", "lxml", "matplotlib", "networkx",
    "nltk", "numpy", "openpyxl", "pandas", "PIL", "psutil", "pytest", "requests", "scipy", "seaborn", "skimage",
    "sklearn", "sortedcontainers", "statsmodels", "sympy", "tensorflow", "textblob", "torch", "wordcloud", "yaml",
))  # fmt: skip
"""Frequent packages, which are not the program, even if nothing else is imported."""
SOLUTION = "solution"
"""The program as the package of the tests, in ``from . import f``."""
ALIASES = frozenset(("bs", "pd", "plt", "px", "sns", "sk", "sp", "tf", "mock", "patch", "Mock", "MagicMock"))
"""Names by which tests call packages; without an import they are no names of the program."""
MAX_SPLIT = 1 << 18
"""Characters of the tests of a suite, beyond which it stays one test."""

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


# ---- what a suite is ----


def is_suite(tree: ast.Module) -> bool:
    """Whether a runner must find the tests of a script, which itself calls none of them."""
    names = {test.name for test in test_functions(tree)} | {kind.name for kind in test_classes(tree)}
    return bool(names) and not names & called_at_top(tree)


def test_functions(tree: ast.Module | ast.ClassDef) -> list[FunctionNode]:
    """The test functions at the top level of a suite, or the test methods of a class."""
    return [node for node in tree.body if isinstance(node, FunctionNode) and node.name.startswith("test")]


def test_classes(tree: ast.Module) -> list[ast.ClassDef]:
    """The classes that have tests: those of unittest, and pytest's by their name."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    cases = _names_of_test_case(tree)
    # In the order of the source, as a class may derive from one before it.
    for node in classes:
        names_of_bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
        if names_of_bases & cases or any(map(is_test_case, node.bases)):
            cases.add(node.name)
    of_pytest = [node for node in classes if node.name.startswith("Test") and test_functions(node)]
    return [node for node in classes if node.name in cases or node in of_pytest]


def _names_of_test_case(tree: ast.Module) -> set[str]:
    """Other names under which a suite imports unittest's ``TestCase`` or one of its kinds."""
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "unittest"]
    aliases = [alias for node in imports for alias in node.names]
    return {alias.asname for alias in aliases if alias.asname and alias.name.endswith("TestCase")}


def is_test_case(base: ast.expr) -> bool:
    """Whether a base class is unittest's ``TestCase`` or one of its kinds."""
    match base:
        case ast.Attribute(_, name) | ast.Name(name):
            return name.endswith("TestCase")
    return False


def called_at_top(tree: ast.Module) -> set[str]:
    """The names that the script's own statements call, outside of ``if __name__ == "__main__"``."""
    called: set[str] = set()
    for statement in tree.body:
        if not isinstance(statement, FunctionNode | ast.ClassDef) and not _is_main_guard(statement):
            called |= called_functions(statement)
    return called


def _is_main_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and mentions(node.test, {"__name__"})


def excerpt(tree: ast.Module) -> str:
    """What a verdict calls a suite: its test, if it has only one."""
    names = [test.name for test in test_functions(tree)]
    for kind in test_classes(tree):
        names += [f"{kind.name}.{test.name}" for test in test_functions(kind)]
    return names[0] if len(names) == 1 else "the tests"


# ---- the program's names ----


def program_modules(tree: ast.Module, problem_names: Iterable[str], unknown: Sequence[str]) -> list[str]:
    """The modules as which a suite imports the program.

    Args:
        tree: The suite.
        problem_names: Names that the problem is known to define.
        unknown: Other names that the suite uses and nobody else defines.
    """
    imports = [(module, names) for module, names in _imports(tree) if not _is_elsewhere(module)]
    wanted = set(problem_names)
    sure = [module for module, names in imports if module in PROGRAM_MODULES or wanted.intersection(names)]
    # from . import f
    relative = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    sure += [node.module or SOLUTION for node in relative]
    if sure or unknown:
        return list(dict.fromkeys(sure))
    # If the suite imports one other module only, there is nothing else that it could test.
    others = dict.fromkeys(module for module, _ in imports if module not in PACKAGES)
    return list(others) if len(others) == 1 else []


def _imports(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """The modules that a suite imports, with the names that it takes from them."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module, names):
                yield module or SOLUTION, [alias.name for alias in names]
            case ast.Import(names):
                for alias in names:
                    yield alias.name, []


def imports_all(tree: ast.Module, modules: Sequence[str]) -> bool:
    """Whether a suite imports all names of one of the modules."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module, [ast.alias("*")]) if (module or SOLUTION) in modules:
                return True
    return False


def _is_elsewhere(module: str) -> bool:
    """Whether a module is Python's own; ``__main__`` is the program."""
    top = module.partition(".")[0]
    return top != "__main__" and (top in sys.stdlib_module_names or top == "pytest")


def imported_names(tree: ast.Module, modules: Sequence[str]) -> tuple[list[str], list[str]]:
    """The names of the program that a suite imports from these modules, and as what it calls them or the modules."""
    names: list[str] = []
    own: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module, aliases) if (module or SOLUTION) in modules:
                listed = [alias for alias in aliases if alias.name != "*"]
                names += [alias.name for alias in listed]
                own += [alias.asname or alias.name for alias in listed]
            case ast.Import(aliases):
                own += [alias.asname or alias.name for alias in aliases if alias.name in modules]
    # solution.f is a name of the program too.
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ast.Name(module), name) if module in own and module not in names:
                names.append(name)
    return list(dict.fromkeys(names)), list(dict.fromkeys(own))


# ---- what cannot be carried over ----

MOCKS = "mocks, which cannot replace anything in the program's sandbox"
FILES = "files, which the program's sandbox does not share"
OUTPUT = "what is printed, which stays in the program's sandbox"
WARNINGS = "warnings or logs, which stay in the program's sandbox"
PROCESSES = "processes or connections, which no sandbox has"
SURROUNDINGS = "the environment, which the program's sandbox does not share"
CLASSES = "a class of the program, of which the judge has objects only"
ASYNCHRONOUS = "asynchronous tests"
IDENTITY = "whether the program returned the same object, of which the judge has a copy"
EXITS = "an exit, which ends the program's process"
INSIDES = "what the program is made of, of which the judge has values only"

MODULES: Mapping[str, str] = {
    "unittest.mock": MOCKS, "mock": MOCKS, "pytest_mock": MOCKS,
    **dict.fromkeys(("tempfile", "shutil", "glob", "zipfile", "tarfile", "sqlite3", "pyfakefs"), FILES),
    **dict.fromkeys(("subprocess", "multiprocessing", "socket", "socketserver", "http.server"), PROCESSES),
    "asyncio": ASYNCHRONOUS,
}  # fmt: skip
"""Modules whose import says what a suite needs."""
FIXTURES: Mapping[str, str] = {
    **dict.fromkeys(("tmp_path", "tmpdir", "tmp_path_factory", "tmpdir_factory"), FILES),
    **dict.fromkeys(("capsys", "capfd", "capsysbinary", "capfdbinary"), OUTPUT),
    **dict.fromkeys(("caplog", "recwarn"), WARNINGS),
    **dict.fromkeys(("monkeypatch", "mocker"), MOCKS),
}
"""Fixtures of pytest that reach into the program's process."""
CALLS: Mapping[str, str] = {
    **dict.fromkeys(("assertWarns", "assertWarnsRegex", "assertLogs", "assertNoLogs"), WARNINGS),
    **dict.fromkeys(("warns", "deprecated_call", "catch_warnings"), WARNINGS),
    **dict.fromkeys(("read_text", "write_text", "read_bytes", "write_bytes", "mkdir", "touch", "unlink"), FILES),
    "open": FILES,
    **dict.fromkeys(("signature", "getsource", "getmembers", "getdoc", "iscoroutinefunction"), INSIDES),
}
"""Functions and methods by whose name a suite says what it needs."""
PURE_PATHS = ("join", "basename", "dirname", "split", "splitext", "normpath", "sep", "linesep", "path", "PathLike")
"""What a suite may use of ``os`` and ``os.path``."""
OF_SYS: Mapping[str, str] = {"argv": SURROUNDINGS, "modules": INSIDES}
"""What a suite may not use of ``sys``."""
ENDS = frozenset(("SystemExit", "KeyboardInterrupt"))
"""Exceptions that end a program's process."""
SKIPS = (
    "skip", "skipIf", "skipUnless", "skipif", "skipTest", "SkipTest", "expectedFailure", "xfail", "importorskip",
)  # fmt: skip
"""What may have a test not run."""


def unsupported(tree: ast.Module, own: Iterable[str]) -> str:
    """What a suite needs that the judge does not have, with its line; empty if there is nothing.

    Args:
        tree: The suite.
        own: The program's names in it.
    """
    names = frozenset(own)
    # A fixture of the suite's own may have the name of one of pytest's.
    fixtures = {node.name for node in ast.walk(tree) if isinstance(node, FunctionNode)}
    nodes = [node for node in ast.walk(tree) if hasattr(node, "lineno")]
    for node in sorted(nodes, key=lambda node: node.lineno):
        what = _needs(node, names, fixtures)
        if what:
            return f"they need {what} (line {node.lineno})"
    return ""


def _needs(node: ast.AST, own: frozenset[str], fixtures: set[str]) -> str:
    """What a node needs; empty if the judge has it."""
    match node:
        case ast.Import(aliases):
            return next((MODULES[alias.name] for alias in aliases if alias.name in MODULES), "")
        case ast.ImportFrom(module, aliases):
            # from unittest import mock
            named = (module or "", *(f"{module}.{alias.name}" for alias in aliases))
            return next((MODULES[name] for name in named if name in MODULES), "")
        case ast.AsyncFunctionDef() | ast.Await():
            return ASYNCHRONOUS
        case ast.FunctionDef():
            parameters = {argument.arg for argument in node.args.args} - fixtures
            return next((FIXTURES[name] for name in parameters if name in FIXTURES), "")
        case ast.Attribute(ast.Name("sys"), name) if name in OF_SYS:
            return OF_SYS[name]
        case ast.Attribute(ast.Name("unittest"), "mock"):
            return MOCKS
        case ast.Attribute(ast.Name("os"), name) | ast.Attribute(ast.Attribute(ast.Name("os"), "path"), name):
            return _needs_of_os(name)
        case ast.Attribute(ast.Name(name), attribute) if name in own and attribute.startswith("__"):
            return INSIDES
        # f.count = 0
        case ast.Assign(targets):
            attributes = [target for target in targets if isinstance(target, ast.Attribute)]
            return INSIDES if any(mentions(target.value, own) for target in attributes) else ""
        # Their class must exist where the judge is.
        case ast.ExceptHandler(ast.expr() as kind) | ast.ClassDef(bases=[kind]):
            return CLASSES if mentions(kind, own) else ""
        case ast.Compare(left, [ast.Is() | ast.IsNot()], [right]):
            return IDENTITY if _asks_identity(left, right, own) else ""
        case ast.Call(function, arguments):
            return _call_needs(name_of(function), arguments, node.keywords, own)
    return ""


def _needs_of_os(name: str) -> str:
    """What a name of ``os`` or ``os.path`` needs, of which ``environ`` and ``getenv`` are the environment."""
    if name in PURE_PATHS:
        return ""
    return SURROUNDINGS if "env" in name else FILES


def _call_needs(name: str, arguments: list[ast.expr], keywords: list[ast.keyword], own: frozenset[str]) -> str:
    """What a call of a function or method of that name needs."""
    if name in CALLS:
        return CALLS[name]
    if name in ("assertIs", "assertIsNot") and len(arguments) > 1:
        return IDENTITY if _asks_identity(arguments[0], arguments[1], own) else ""
    if name in ("setattr", "delattr") and arguments and mentions(arguments[0], own):
        return INSIDES
    if name in RAISING:
        # The exception is the first argument, or is given by name.
        by_name = [word.value for word in keywords if word.arg in ("expected_exception", "exception", "cls")]
        if any(mentions(kind, ENDS) for kind in (*arguments[:1], *by_name)):
            return EXITS
    return ""


def _asks_identity(left: ast.expr, right: ast.expr, own: frozenset[str]) -> bool:
    """Whether two values are compared by identity although neither is None, True, False, a type or an option."""
    singletons = [isinstance(side, ast.Constant) or _is_type(side) for side in (left, right)]
    return not any(singletons)


def _is_type(node: ast.expr) -> bool:
    """Whether an expression is a type or a constant of a library by its form: ``int``, ``Color.RED``, ``type(x)``."""
    match node:
        case ast.Call(ast.Name("type")):
            return True
        case ast.Name(name):
            return name in vars(builtins) or name[:1].isupper()
        case ast.Attribute(_, name):
            return name[:1].isupper()
    return False


# ---- the tests of a suite ----


def split(source: str) -> list[str]:
    """The tests of a suite as suites of one test each; the suite itself where its tests may depend on each other."""
    source = source.replace("\r\n", "\n")
    tree = ast.parse(source)
    classes = test_classes(tree)
    tests: list[ast.AST] = [*test_functions(tree)]
    class_of: dict[int, ast.ClassDef] = {}
    for kind in classes:
        for method in test_functions(kind):
            tests.append(method)
            class_of[id(method)] = kind
    if len(tests) < 2 or _is_shared(tree, classes):
        return [source]
    suites = []
    for test in tests:
        kept = (test, class_of.get(id(test)))
        dropped = [node for node in (*tests, *classes) if node not in kept]
        suites.append(_without(source, dropped))
    # What is outside of the tests is repeated in each of them.
    too_long = sum(map(len, suites)) > max(MAX_SPLIT, 4 * len(source))
    return [source] if too_long else suites


def _is_shared(tree: ast.Module, classes: Sequence[ast.ClassDef]) -> bool:
    """Whether something outlives a test, such as state of a class, or one of them may not run."""
    names = {kind.name for kind in classes}
    for node in ast.walk(tree):
        match node:
            case ast.Global() | ast.Nonlocal() | ast.keyword("scope"):
                return True
            case ast.FunctionDef(name) if name in ("setUpClass", "setUpModule", "setup_class", "setup_module"):
                return True
            case ast.Attribute(ast.Name(name), ctx=ast.Store()) if name == "cls" or name in names:
                return True
            case ast.Name(name, ast.Load()) if name in names:
                return True
            case ast.Attribute(_, "__class__"):
                return True
            case ast.Attribute(_, name) | ast.Name(name) if name in SKIPS:
                return True
    # What the module and the classes assign outside of tests.
    statements = [*tree.body]
    for kind in classes:
        statements += kind.body
    return any(isinstance(part, ast.Assign) and _is_changeable(part.value) for part in statements)


def _is_changeable(value: ast.expr) -> bool:
    """Whether a value that is assigned outside of tests is an object that a test may change."""
    if isinstance(value, ast.List) and not value.elts:
        return True
    return any(isinstance(part, ast.Call | ast.Dict | ast.ListComp | ast.DictComp) for part in ast.walk(value))


def _without(source: str, nodes: Sequence[ast.AST]) -> str:
    """The source without the lines of some functions and classes."""
    dropped: set[int] = set()
    for node in nodes:
        # The line of a function is that of ``def``, below its decorators.
        decorators = [part.lineno for part in getattr(node, "decorator_list", ())]
        first = min([node.lineno, *decorators])  # type: ignore[attr-defined]
        dropped.update(range(first, node.end_lineno + 1))  # type: ignore[attr-defined]
    lines = source.split("\n")
    return "\n".join(line for number, line in enumerate(lines, 1) if number not in dropped)


def prelude(code: str, entry_point: str, test: str) -> str:
    """What a suite may use of the code before the body of the function that it tests: imports and assignments."""
    try:
        # The code ends with the head of the function, which needs a body.
        tree = ast.parse(f"{code.rstrip()}\n    pass\n")
        used = set(names_in(ast.parse(test)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    kept: list[ast.stmt] = []
    # Backwards, so that what a statement uses is kept too.
    for node in reversed(tree.body):
        if isinstance(node, FunctionNode) and node.name == entry_point:
            continue
        if used & set(_binds(node)):
            kept.insert(0, node)
            used.update(names_in(node))
    return "".join(f"{ast.unparse(node)}\n" for node in kept)


def _binds(node: ast.stmt) -> list[str]:
    """The names that a statement binds."""
    if isinstance(node, FunctionNode | ast.ClassDef):
        return [node.name]
    parts = list(ast.walk(node))
    names = [part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)]
    aliases = [part for part in parts if isinstance(part, ast.alias)]
    return names + [alias.asname or alias.name.partition(".")[0] for alias in aliases]
