"""Judges a program by a test's script, inside a sandbox of its own (recipe, section 2).

Runs inside, without magcli, as a fork of a runner that has loaded this script once and never runs a test itself. The
script of the test is ordinary Python: any assert, loop or helper. The names that the problem defines are proxies
(``magcli.verify.code.proxies``), comparisons those of ``magcli.verify.code.comparing``. So nothing of the program is in
this process.

The verdict is one word and a detail, on descriptor 3: ``passed``, ``failed``, ``raised`` (the program an exception),
``ended`` (the program its process), ``too-large`` (a value), ``broken`` (the test itself).
"""

import _signal  # type: ignore[import-not-found]
import ast
import gc
import json
import os
import string
import sys
from types import ModuleType

from magcli.verify.code.comparing import Approx, compare, ordered, rule, same_nodes, type_of
from magcli.verify.code.guarding import guard
from magcli.verify.code.handles import (
    PLAIN_ATTRIBUTES,
    Named,
    Nodes,
    evidence,
    is_instance,
    is_subclass,
    values_of_nodes,
)
from magcli.verify.code.proxies import STANDINS, Refused, read_value, refused, send, state, write_all
from magcli.verify.code.reaching import (
    Assertion,
    Lenient,
    Raises,
    absence,
    after,
    close,
    comparison,
    condition,
    cut,
    described,
    end,
    expected,
    fail,
    failure,
    filled,
    looped,
    reached,
    verdict_at_end,
    zipped,
)
from magcli.verify.code.rewriting import (
    exceptions_in,
    is_part_of,
    mentions,
    must_assert,
    names_in,
    names_of_program,
    rewritten,
)
from magcli.verify.code.script_library import MEMBERS, MODULES
from magcli.verify.code.writing import CLASSES, CannotSend, begin_request, written

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

REPORT = 3
MAX_DETAIL = 200


def library(names: "Iterable[str]") -> "dict[str, Any]":
    """Those of the names that a script may use without importing them."""
    pytest = sys.modules["pytest"] = ModuleType("pytest")
    vars(pytest).update(approx=Approx, raises=Raises, fail=fail)
    namespace: dict[str, Any] = {
        "approx": Approx,
        "pytest": pytest,
        "list_node": lambda values: Nodes("list", values),
        "tree_node": lambda values: Nodes("tree", values),
        "list_values": lambda nodes: values_of_nodes("list", nodes),
        "tree_values": lambda nodes: values_of_nodes("tree", nodes),
        "is_same_list": same_nodes("list"),
        "is_same_tree": same_nodes("tree"),
        "NoneType": type(None),
    }
    for name in names:
        if name in MODULES:
            namespace[name] = __import__(MODULES[name])
        elif name in MEMBERS:
            namespace[name] = getattr(__import__(MEMBERS[name]), name)
    # In place of Python's own, which mean nothing for NaN or for an object of the program.
    namespace.update(sorted=ordered(sorted), min=ordered(min), max=ordered(max))
    namespace.update(type=type_of, isinstance=is_instance, issubclass=is_subclass)
    return namespace


def judge(asked: "dict[str, Any]") -> str:
    """Run a test's script; the verdict's word and detail."""
    names = asked["names"]
    tree = ast.parse(asked["script"], "test.py")
    # The program's names replace those of libraries.
    space = {"__name__": "test", **library(set(names_in(tree))), **{name: Named(name) for name in names}, **WATCHED}
    # A name of the program where an exception is expected is a class, under which the program's is raised here.
    exceptions = exceptions_in(tree)
    for name in names:
        if any(mentions(kind, {name}) for kind in exceptions):
            space[name] = STANDINS[name] = type(name, (Exception,), {})
    prepare(tree, names)
    needs_assert = must_assert(tree)
    execute(tree, rewritten, names, space)
    if not state.calls:
        return "broken it calls nothing of the program"
    if needs_assert and not reached.asserted:
        return f"failed no assert is reached where the call returns {described(state.returned)}"
    return verdict_at_end()


def execute(
    tree: ast.Module,
    rewrite: "Callable[[ast.Module, list[str]], ast.Module]",
    own: "list[str]",
    space: "dict[str, Any]",
) -> None:
    """Rewrite a script and run it, which must execute nothing that is not written in it."""
    # Before they are rewritten: rewriting adds constants of its own.
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and type(node.value) is str}
    code = compile(rewrite(tree, own), "test.py", "exec")
    guard(code, frozenset(texts))
    exec(code, space)


def template(value: "Any") -> "Any":
    """A text of the program that is used as a template: it must not read attributes, which could be the test's."""
    if not isinstance(value, str):
        return value
    # Text after the last field has None for one.
    fields = [field or "" for _, field, _, _ in string.Formatter().parse(value)]
    if any("." in field for field in fields):
        raise refused("a template that reads attributes")
    return value


_WATCHING: "tuple[Callable[..., Any], ...]" = (
    compare, comparison, condition, absence, Assertion, Lenient, expected, cut, end, after, looped, filled, zipped,
    close, template,
)  # fmt: skip
WATCHED = {f"__{function.__name__.lower()}__": function for function in _WATCHING}
"""What a rewritten script calls, by the names that ``rewriting.calls_of`` gives them."""


def prepare(tree: ast.Module, names: "list[str]") -> None:
    """Note the script's classes, and whether it expects objects: it reads an attribute that no plain data has."""
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            needed = [line for line in imports if mentions(node, {part.asname or part.name for part in line.names})]
            # The source of a class, with the imports that it needs, for the program's sandbox.
            CLASSES[node.name] = "\n".join([ast.unparse(part) for part in (*needed, node)])
    of_program = names_of_program(tree, names)
    evidence.objects = any(
        isinstance(node, ast.Attribute)
        and node.attr not in PLAIN_ATTRIBUTES
        and not node.attr.startswith("__")
        and is_part_of(node.value, of_program)
        for node in ast.walk(tree)
    )


def verdict_of(error: BaseException) -> str:
    """The verdict where the script ended with an exception."""
    if error is state.raised:
        return "raised"
    if isinstance(error, AssertionError):
        return f"failed {failure()}"
    detail = f"{type(error).__name__}: {error}"[:MAX_DETAIL]
    if isinstance(error, CannotSend | ImportError) or not state.calls:
        return f"broken {detail}"
    return f"failed cannot be evaluated where the call returns {described(state.returned)}: {detail}"


def warm_up() -> None:
    """Do once what every test does, so that its forks find types and caches made; nothing of a test is run."""
    source = "assert f(1) == [1]"
    compile(rewritten(ast.parse(source), ["f"]), "test.py", "exec")
    library(["math"])
    read_value(b'{"tuple":[[1],{"dict":[]}]}')
    begin_request()
    written([1])
    json.loads(json.dumps({"script": source}))


sys.path.append(f"{os.path.dirname(os.path.dirname(__file__))}/packages")
warm_up()
gc.disable()
gc.collect()
gc.freeze()  # a fork then does not copy the pages of these objects


def report(judge: "Callable[[dict[str, Any]], str]", verdict_of: "Callable[[BaseException], str]") -> None:
    """Judge the test on stdin, and report on descriptor 3. A refusal is final, whatever the test does afterwards."""
    # Off while the runner is loaded, so that its forks share its pages.
    gc.enable()
    _signal.signal(_signal.SIGPIPE, _signal.SIG_IGN)  # a program may end at any time
    with open(0, "rb", closefd=False) as stdin:
        asked = json.load(stdin)
    rule.mode = asked["mode"]
    rule.tolerance = asked["tolerance"]
    try:
        try:
            said = judge(asked)
        except MemoryError:
            raise
        except BaseException as error:
            said = verdict_of(error)
        # What the test cannot send is its own fault, whatever it made of the exception; a refusal comes first.
        if state.unsendable:
            said = f"broken {state.unsendable}"
        said = state.final or said
        # The program raises its exception again and ends by it, with its own traceback.
        if said == "raised":
            send("!")
    except Refused:
        said = state.final
    write_all(REPORT, said.encode(errors="replace"))
    os._exit(0)  # without what the test registered with atexit


def main() -> None:
    """Judge a script."""
    report(judge, verdict_of)
