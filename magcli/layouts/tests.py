"""The tests of code problems in the forms of public data sets, read into one form.

=================================================  =====================================================================
what is stored                                     where
=================================================  =====================================================================
``[{"input": .., "output": ..}]``                  magcli, codeforces, DeepCoder; ``{"stdin": ..}``, ``{"stdout": ..}``
``{"inputs": [..], "outputs": [..]}``              APPS, TACO, CodeContests (``input``, ``output``)
the same with ``fn_name``                          functions of APPS and TACO
``type`` or ``testtype``, ``fn_name``              PrimeIntellect's ``test_cases``, LiveCodeBench (name in ``metadata``)
``["assert f(1) == 2"]``, a script                 MBPP, HumanEval and LeetCodeDataset (``check``), pytest (KodCode),
                                                   unittest (BigCodeBench)
JSON text, a Python literal, a compressed pickle   of any of these (``magcli.layouts.pickled``)
=================================================  =====================================================================

A test in one form is a mapping as ``magcli.verify.code.cases`` describes. Of a function that returns one value, APPS
and TACO store the value or a list with it; such a test accepts both, as their own judges do.
"""

import ast
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from magcli.errors import DataError
from magcli.layouts.pickled import packed_json
from magcli.layouts.types import MAX_LITERAL, json_or_none
from magcli.verify.code import suites
from magcli.verify.code.cases import split_asserts
from magcli.verify.code.script_library import MEMBERS, MODULES
from magcli.verify.code.scripts import parse_script
from magcli.verify.code.syntax import SubstituteNames, parsed
from magcli.verify.sandbox.launch import PACKAGES

TEST_MARKS: Mapping[str, type] = {"origin": str, "catches": int}
"""What ``make-tests`` notes on a test, which stays with it."""
FUNCTION_KINDS = ("functional", "function_call", "function", "call_based")
"""Values of ``type`` or ``testtype`` of tests that call a function."""

Test = Mapping[str, Any]


@dataclass(frozen=True)
class Called:
    """What the tests of a problem call.

    ``entry_point`` is what a script checks. ``function`` is the name of the function that lists of arguments are passed
    to; it is a method of ``Solution`` if ``starter_code`` declares that class.
    """

    entry_point: str = ""
    function: str = ""
    starter_code: str = ""

    def call(self, arguments: Sequence[Any]) -> str:
        """The expression that passes these arguments.

        Raises:
            DataError: the name of the function is unknown.
        """
        if not self.function.isidentifier():
            raise DataError("the tests call a function whose name is not stated")
        owner = "Solution()." if "class Solution" in self.starter_code else ""
        return f"{owner}{self.function}({', '.join(map(repr, arguments))})"


NOTHING = Called()
PARTS = ("input", "output", "call", "assert")
"""What a test may have, each a text or None."""


def read_tests(value: Any, called: Called = NOTHING) -> Iterator[Test]:
    """The tests in a value of any of the forms above.

    Raises:
        DataError: a test cannot be read, or the value is none of these forms.
    """
    match value:
        case str():
            yield from _from_text(value, called)
        case {"functional": str(script)}:
            yield from read_tests(script, called)
        case {"test_cases": list() | str() as tests}:
            yield from read_tests(tests, called)
        case {"inputs": list(inputs), "outputs": list(outputs)} | {"input": list(inputs), "output": list(outputs)}:
            if len(inputs) != len(outputs):
                raise DataError(f"{len(inputs)} inputs but {len(outputs)} outputs")
            called = _named(value, called)
            for test_input, output in zip(inputs, outputs, strict=True):
                yield _pair(test_input, output, called)
        case list():
            for entry in value:
                yield _test(entry, called)
        case _:
            raise DataError(f"expected tests as a list or a script, got {type(value).__name__}")


def _from_text(text: str, called: Called) -> Iterator[Test]:
    """The tests in a JSON text, a Python literal, a compressed pickle or a script."""
    value = _value_of(text)
    if value is not None:
        yield from read_tests(value, called)
        return
    for source in _script_asserts(text, called.entry_point):
        yield _checked({"assert": source})


def _value_of(text: str) -> Any:
    """The value of a text that is data; None for a script.

    Raises:
        DataError: a Python literal is too large.
    """
    start = text.lstrip()[:1]
    if start in ("[", "{", '"'):
        value = json_or_none(text)
        return _literal(text) if value is None else value
    if text[:2] == "eJ":  # the start of every text that is compressed with zlib and in base64
        return packed_json(text)
    return None


def _literal(text: str) -> Any:
    if len(text) > MAX_LITERAL:
        raise DataError(f"tests as a Python literal of {len(text):,} characters are too large; store them as JSON")
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _test(entry: Any, called: Called) -> Test:
    """One test of a list: an assert, or a mapping."""
    if not isinstance(entry, Mapping):
        return _checked({"assert": entry})
    is_function = any(entry.get(key) in FUNCTION_KINDS for key in ("type", "testtype"))
    if is_function or entry.get("fn_name"):
        return _pair(entry.get("input"), entry.get("output"), _named(entry, called), is_function=True)
    test = {name: entry.get(name) for name in PARTS}
    # Some data sets have the streams of a program as an object.
    for name, stream in (("input", "stdin"), ("output", "stdout")):
        value = test[name]
        if isinstance(value, Mapping):
            test[name] = value.get(stream)
    # A mark of another type is another tool's column.
    marks = {name: entry[name] for name, kind in TEST_MARKS.items() if isinstance(entry.get(name), kind)}
    return {**_checked(test), **marks}


def _checked(test: dict[str, Any]) -> dict[str, Any]:
    for name, value in test.items():
        if not isinstance(value, str | None):
            raise DataError(f"the {name} of a test is not text")
    # All parts, as the rows of a table have the same fields.
    return {name: test.get(name) for name in PARTS}


def _named(tests: Mapping[str, Any], called: Called) -> Called:
    """What is called, with the name of the function that the tests themselves state."""
    name = tests.get("fn_name")
    metadata = tests.get("metadata")
    # LiveCodeBench names the function there.
    if not name and isinstance(metadata, Mapping):
        name = metadata.get("func_name")
    return replace(called, function=name) if isinstance(name, str) and name else called


def _pair(test_input: Any, output: Any, called: Called, *, is_function: bool = False) -> Test:
    """A test from its input and output; of a function, if its name is known, from the arguments and the value."""
    if not called.function and not is_function:
        return _checked({"input": _lines(test_input), "output": _lines(output)})
    call = called.call(_arguments(test_input))
    value = _json_value(output)
    # APPS and TACO store some values in a list of their own, which the test itself does not tell.
    may_be_wrapped = isinstance(value, list) and len(value) == 1 and not isinstance(output, str)
    if may_be_wrapped:
        return _checked({"assert": f"assert {call} in ({value!r}, {value[0]!r})"})
    return _checked({"output": repr(value), "call": call})


def _lines(value: Any) -> Any:
    """Text of stdin or stdout, which some problems of TACO have as a list of lines."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    return value


def _arguments(test_input: Any) -> list[Any]:
    """The arguments of a call: a list, or one JSON value a line."""
    if isinstance(test_input, list):
        return test_input
    if isinstance(test_input, str):
        return [_json_value(line) for line in test_input.splitlines() if line.strip()]
    raise DataError(f"the arguments of a test are {type(test_input).__name__}, not a list")


def _json_value(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


# ---- set-up code ----


def setup_code(code: Any, imports: Any = None) -> str:
    """What MBPP runs before the asserts of a problem: ``test_imports``, then ``test_setup_code``.

    Each is text or a list of lines, which may be JSON.

    Raises:
        DataError: one of them is something else.
    """
    lines: list[str] = []
    for value in (imports, code):
        stored = json_or_none(value) if isinstance(value, str) and value.lstrip().startswith("[") else value
        listed = stored if isinstance(stored, list) else [stored]
        if not all(isinstance(line, str | None) for line in listed):
            raise DataError(f"the set-up code of the tests is neither text nor a list of lines: {value!r:.60}")
        lines += [line for line in listed if line and line.strip()]
    return "\n".join(lines)


def after_setup(tests: Sequence[Test], setup: str) -> list[Test]:
    """The tests, each assert after the set-up code that it needs.

    Raises:
        DataError: the code is not Python, or it does more than import and a test is no assert.
    """
    statements = parsed(setup).body
    return [_after_setup(test, setup, statements) for test in tests]


def _after_setup(test: Test, setup: str, statements: Sequence[ast.stmt]) -> Test:
    source = test.get("assert")
    if not _is_needed(statements, source or test.get("call") or ""):
        return test
    if not source:
        raise DataError("the tests have set-up code, which runs before asserts only; write each test as an assert")
    return {**test, "assert": f"{setup}\n{source}"}


def _is_needed(statements: Sequence[ast.stmt], source: str) -> bool:
    """Whether a test needs set-up code: one that does more than import, or imports a name that the test uses."""
    needed: set[str] = set()
    for node in statements:
        match node:
            case ast.Import() | ast.ImportFrom():
                needed.update(_names_given(node))
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                pass
            case _:
                return True
    if not needed:
        return False
    used = {part.id for part in ast.walk(parsed(source)) if isinstance(part, ast.Name)}
    # A star may give any name.
    return "*" in needed or not needed.isdisjoint(used)


# ---- scripts ----


def _script_asserts(source: str, entry_point: str) -> list[str]:
    """The asserts of a script: at its top level, of ``check(candidate)``, or of pytest's functions ``test_*``.

    Tests of unittest, and those of pytest that are more than asserts, stay suites (``magcli.verify.code.suites``).
    """
    tree = parsed(source)
    if not suites.is_suite(tree):
        return split_asserts(source, entry_point)
    try:
        return list(_pytest_asserts(source))
    except DataError:
        # It stays a suite, if that can be used.
        parse_script(source, frozenset([entry_point] if entry_point else []))
    return suites.split(source)


def _pytest_asserts(source: str) -> Iterator[str]:
    """The asserts of pytest's functions; a name that is assigned before an assert stands for its expression.

    Raises:
        DataError: a function has other statements, or parameters such as fixtures, or it needs an import.
    """
    tree = parsed(source)
    # Only what the tests use is missed.
    used = {part.id for part in ast.walk(tree) if isinstance(part, ast.Name)}
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            missing = used.intersection(_names_lost(node))
            if missing:
                raise DataError(f"the test script imports {missing.pop()}")
            continue
        if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test"):
            raise DataError(f"the test script has {ast.unparse(node)[:60]!r} outside of its test functions")
        # Fixtures and parametrized tests need pytest.
        if node.args.args or node.decorator_list:
            raise DataError(f"{node.name} of the test script has parameters or decorators")
        yield from _function_asserts(node)


def _names_lost(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The names that an import gives to a script and that its asserts alone do not have."""
    module = (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
    # Any other module is the solution, whose names asserts have anyway.
    if module == "__future__" or not is_installed(module):
        return []
    return _names_given(node)


def _names_given(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The names that an import binds, without those that every script has for the same thing."""
    names: list[str] = []
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            bound = alias.asname or alias.name
            is_supplied = bound == alias.name and MEMBERS.get(bound) == node.module
        else:
            # ``import os.path`` binds ``os``.
            package, _, _ = alias.name.partition(".")
            bound = alias.asname or package
            is_supplied = MODULES.get(bound) == (alias.name if alias.asname else package)
        if not is_supplied:
            names.append(bound)
    return names


def is_installed(module: str) -> bool:
    """Whether programs may import a module."""
    package = module.partition(".")[0]
    return package in sys.stdlib_module_names or package in PACKAGES


def _methods_called(function: ast.FunctionDef) -> Counter[str]:
    """How often methods or other attributes of each name are used."""
    attributes = (node for node in ast.walk(function) if isinstance(node, ast.Attribute))
    return Counter(node.value.id for node in attributes if isinstance(node.value, ast.Name))


def _function_asserts(function: ast.FunctionDef) -> Iterator[str]:
    values: dict[str, ast.expr] = {}
    methods = _methods_called(function)
    for node in function.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                # Each use of the name becomes its expression, so an object would be made anew for every call.
                makes_object = any(isinstance(part, ast.Call) for part in ast.walk(value))
                if makes_object and methods[name] > 1:
                    raise DataError(f"{function.name} of the test script calls several methods of one object, {name}")
                # The expression may use names that were assigned before.
                values[name] = SubstituteNames(values).visit(value)
            # ``assert True`` tests nothing.
            case ast.Assert(test=test) if not isinstance(test, ast.Constant):
                yield ast.unparse(ast.Assert(SubstituteNames(values).visit(test)))
            case ast.Assert() | ast.Pass() | ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
                pass
            case _:
                raise DataError(f"{function.name} of the test script has {ast.unparse(node)[:60]!r}, not an assert")
