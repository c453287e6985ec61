"""Judges a program by a test's script, inside a sandbox of its own (recipe, section 2).

Runs inside, without magcli, as a fork of a runner that has loaded this script once and never runs a test itself. The
script of the test is ordinary Python: any assert, loop or helper. The names that the problem defines are proxies
(``magcli.verify.code.proxies``), comparisons those of ``magcli.verify.code.comparing``. So nothing of the program is in
this process.

The verdict is one word and a detail, on descriptor 3: ``passed``, ``failed``, ``raised`` (the program an exception),
``ended`` (the program its process), ``too-large`` (a value), ``broken`` (the test itself).
"""

import ast
import gc
import json
import os
import sys
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from magcli.verify.code.comparing import (
        Approx,
        Raises,
        compare,
        comparison,
        condition,
        ordered,
        rule,
        same_nodes,
        type_of,
    )
    from magcli.verify.code.proxies import (
        CannotSend,
        Named,
        Nodes,
        Refused,
        read_value,
        send,
        state,
        values_of_nodes,
        write_all,
        written,
    )
    from magcli.verify.code.rewriting import must_assert, rewritten
    from magcli.verify.code.script_library import MEMBERS, MODULES
    from magcli.verify.code.values import shown
else:
    from comparing import Approx, Raises, compare, comparison, condition, ordered, rule, same_nodes, type_of
    from proxies import (
        CannotSend,
        Named,
        Nodes,
        Refused,
        read_value,
        send,
        state,
        values_of_nodes,
        write_all,
        written,
    )
    from rewriting import must_assert, rewritten
    from script_library import MEMBERS, MODULES
    from values import shown

REPORT = 3
MAX_DETAIL = 200


def library(names: "Iterable[str]") -> "dict[str, Any]":
    """Those of the names that a script may use without importing them."""
    pytest = sys.modules["pytest"] = ModuleType("pytest")
    vars(pytest).update(approx=Approx, raises=Raises)
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
    namespace.update(sorted=ordered(sorted), min=ordered(min), max=ordered(max), type=type_of)
    return namespace


def judge(script: str, names: "list[str]") -> str:
    """Run a test's script; the verdict's word."""
    tree = ast.parse(script, "test.py")
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    space = {"__name__": "test", **library(used), **{name: Named(name) for name in names}}
    space |= {"__compare__": compare, "__comparison__": comparison, "__condition__": condition}
    needs_assert = must_assert(tree)
    exec(compile(rewritten(tree, names), "test.py", "exec"), space)
    if not state.calls:
        return "broken it calls nothing of the program"
    if needs_assert and not rule.asserted:
        return f"failed no assert is reached where the call returns {shown(state.returned)}"
    return "passed"


def verdict(script: str, names: "list[str]") -> str:
    """The verdict's word and detail. A refusal is final, whatever the script does afterwards."""
    try:
        said = judge(script, names)
    except MemoryError:
        raise
    except Refused as error:
        said = f"failed is {error}"
    except BaseException as error:
        said = verdict_of(error)
    return state.final or said


def verdict_of(error: BaseException) -> str:
    """The verdict where the script ended with an exception."""
    if error is state.raised:
        return "raised"
    if isinstance(error, AssertionError):
        return f"failed {rule.difference or f'is false for {shown(state.returned)}'}"
    detail = f"{type(error).__name__}: {error}"[:MAX_DETAIL]
    if isinstance(error, CannotSend | ImportError) or not state.calls:
        return f"broken {detail}"
    return f"failed cannot be evaluated where the call returns {shown(state.returned)}: {detail}"


def warm_up() -> None:
    """Do once what every test does, so that its forks find types and caches made; nothing of a test is run."""
    source = "assert f(1) == [1]"
    compile(rewritten(ast.parse(source), ["f"]), "test.py", "exec")
    library(["math"])
    read_value(b'{"tuple":[[1],{"dict":[]}]}')
    written([1])
    json.loads(json.dumps({"script": source}))


sys.path.append(f"{os.path.dirname(os.path.dirname(__file__))}/packages")
warm_up()
gc.disable()
gc.collect()
gc.freeze()  # a fork then does not copy the pages of these objects


def main() -> None:
    """Judge the test on stdin, and report on descriptor 3."""
    gc.enable()
    with open(0, "rb", closefd=False) as stdin:
        asked = json.load(stdin)
    rule.mode = asked["mode"]
    rule.tolerance = asked["tolerance"]
    try:
        said = verdict(asked["script"], asked["names"])
        if said == "raised":
            send("!")
    except Refused:
        said = state.final
    write_all(REPORT, said.encode(errors="replace"))
    os._exit(0)
