"""Convert the tests of code suites to the columns that the judge runs.

=========== ==========================================================================================================
asserts     ``test_list``, after ``test_imports`` and ``test_setup_code`` (MBPP)
check       a script ``test`` that defines ``check(candidate)``, called with ``entry_point`` (HumanEval)
main        ``test`` or ``tests`` is a C++ ``main`` with asserts (HumanEval-X, MultiPL-E)
unittest    ``tests`` maps file names to unit tests, ``stub`` names the module that they import (Exercism)
hidden      ``public_test_cases`` and ``private_test_cases`` (LiveCodeBench)
samples     only the examples in the statement, column ``prompt`` (AtCoder and LeetCode)
tests       ``tests`` in magcli's format
=========== ==========================================================================================================

Pairs of input and output are judged outside the sandbox, calls, asserts, unit tests and scripts of Python in one of
their own (``magcli.verify.code.scripts``): each assert as a test, or the whole script if it has other statements, such
as loops. Scripts of ``main``, and those whose names do not tell what they test, run after the program in its process,
from the column ``harness``. The program passes if the last line of the script is reached, which a malicious program
could forge.
"""

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from magcli.errors import DataError, first_line
from magcli.layouts.names import SETUP
from magcli.layouts.pickled import packed_json
from magcli.layouts.tests import after_setup, setup_code
from magcli.verify.code.cases import split_asserts
from magcli.verify.code.scripts import names_of_problem, parse_scripts

Row = Mapping[str, Any]

# A text that no program prints by accident.
PASSED = "all tests passed: 5d41402abc4b"
# Exit codes of ICPC's output validators: 42 accepts, 43 rejects.
CHECKER = f"import sys\nsys.exit(42 if sys.stdin.read().rstrip().endswith({PASSED!r}) else 43)\n"
"""Accepts output that ends with ``PASSED``."""

# The end of ``main``.
_LAST_BRACE = re.compile(r"(?:return\s+0\s*;\s*)?\}\s*\Z")
_SAMPLE = re.compile(
    r"^\s*Sample Input \d+\s*\n(?P<input>.*?)^\s*Sample Output \d+\s*\n\s*(?P<output>.*?)(?=\n\s*\n|\Z)", re.M | re.S
)
_EXAMPLE = re.compile(
    r"^\s*Input:\s*(?P<input>.*?)\n\s*Output:\s*(?P<output>.*?)(?=\n\s*\n|\nExplanation|\Z)", re.M | re.S
)
_METHOD = re.compile(r"class Solution.*?def\s+(\w+)\s*\(", re.S)
_JSON_LITERALS = {"true": True, "false": False, "null": None}


def with_tests(form: str, row: Row) -> dict[str, Any]:
    """The columns of a code problem that the judge needs.

    Raises:
        DataError: the form is unknown, or the row's tests do not have it, or are damaged or nested too deeply.
    """
    if form not in _FORMS:
        raise DataError(f"unknown form of tests {form!r}; choose from {', '.join(_FORMS)}")
    try:
        return _FORMS[form](row)
    except KeyError as error:
        raise DataError(f"tests of the form {form!r} need a column {error}; there are {', '.join(row)}") from None
    except (ValueError, TypeError, AttributeError, SyntaxError, MemoryError, RecursionError) as error:
        raise DataError(f"tests of the form {form!r} cannot be read: {first_line(error)}") from None


def in_process_note(problems: Sequence[Row]) -> str:
    """A note on the number of problems whose asserts run in the program's process; empty if there are none."""
    count = sum(bool(problem.get("harness")) for problem in problems)
    return f"{count} of {len(problems)} problems run their asserts in the program's process" if count else ""


def _with_script(script: str, language: str = "python") -> dict[str, Any]:
    """The columns of a problem whose tests are a script that runs after the program."""
    checker = {"checker": CHECKER, "checker_language": "python"}
    return {**_columns(language, [{"input": "", "output": PASSED}]), "harness": script, **checker}


def _columns(language: str, tests: Sequence[Row], entry_point: str = "") -> dict[str, Any]:
    """The columns of a problem without a script."""
    empty = dict.fromkeys(("harness", "checker", "checker_language"), "")
    return {"language": language, "tests": json.dumps(tests), "entry_point": entry_point, **empty}


def _python(script: str) -> dict[str, Any]:
    return _with_script(f"{script}\nprint({PASSED!r})\n")


def _asserts(row: Row) -> dict[str, Any]:
    setup = setup_code(*map(row.get, SETUP))
    tests = [{"assert": source} for source in row["test_list"]]
    sources = [test["assert"] for test in after_setup(tests, setup)]
    # One script in the program's process is the last resort.
    return _judged(sources) or _python("\n".join([setup, *row["test_list"]]))


def _check(row: Row) -> dict[str, Any]:
    script = row["test"]
    name = row.get("entry_point") or ""
    # A script that only defines ``check`` is followed by a call of it.
    statements = [node.value for node in ast.parse(script).body if isinstance(node, ast.Expr)]
    calls_check = any(isinstance(value, ast.Call) for value in statements)
    whole = script if calls_check else f"{script}\ncheck({name})"
    asserts = _split_or_none(script, name)
    by_assert = _judged(asserts, name) if asserts else None
    return by_assert or _judged([whole], name) or _python(whole)


def _split_or_none(script: str, entry_point: str = "") -> list[str] | None:
    """The asserts of a script; None if it has other statements."""
    try:
        return split_asserts(script, entry_point)
    except DataError:
        return None


def _judged(sources: Sequence[str], entry_point: str = "") -> dict[str, Any] | None:
    """Scripts as tests that are judged outside the program's process; None if it is not known what one tests."""
    tests = [{"assert": source} for source in sources]
    try:
        parse_scripts(tests, names_of_problem(tests, entry_point))
    except DataError:
        return None
    return _columns("python", tests, entry_point)


def _main(row: Row) -> dict[str, Any]:
    """A ``main`` of C++ with asserts, which reports at its end that all passed."""
    # The closing brace of the program itself, with which some scripts begin.
    script = str(row.get("test") or row["tests"]).strip().removeprefix("}").strip()
    report = f'std::fputs("\\n{PASSED}\\n", stdout);\n}}\n'
    # A function, as a replacement text would have its backslashes interpreted.
    reporting = _LAST_BRACE.sub(lambda _: report, script)
    return _with_script(f"#undef NDEBUG\n#include <cassert>\n#include <cstdio>\n{reporting}", "cpp")


def _unittest(row: Row) -> dict[str, Any]:
    """Each file as a suite, of which the judge says whether it can be run outside the program's process."""
    modules = [name.removesuffix(".py") for name in row["stub"]]
    if len(modules) != 1:
        raise DataError(f"the exercise asks for {len(modules)} files; one can be graded")
    return _columns("python", [{"assert": source} for source in row["tests"].values()])


def _column(row: Row) -> dict[str, Any]:
    tests = row["tests"]
    return {"tests": tests if isinstance(tests, str) else json.dumps(tests), "language": row.get("language")}


def _samples(row: Row) -> dict[str, Any]:
    statement = row["prompt"]
    method = _METHOD.search(statement)
    tests = list(_calls(statement, method[1]) if method else _feeds(statement))
    if not tests:
        raise DataError("there is no example in the statement")
    return {"tests": json.dumps(tests), "language": "python"}


def _feeds(statement: str) -> Iterator[dict[str, str]]:
    for sample in _SAMPLE.finditer(statement):
        yield {"input": sample["input"].strip() + "\n", "output": sample["output"].strip() + "\n"}


def _calls(statement: str, method: str) -> Iterator[dict[str, str]]:
    for example in _EXAMPLE.finditer(statement):
        arguments = ", ".join(repr(_value(argument.value)) for argument in _arguments(example["input"]))
        output = _value(_expression(example["output"]))
        yield {"call": f"Solution().{method}({arguments})", "output": repr(output)}


def _arguments(text: str) -> list[ast.keyword]:
    # An input such as "nums = [1, 2], k = 3" has the syntax of keyword arguments.
    call = _expression(f"f({' '.join(text.split())})")
    if not isinstance(call, ast.Call) or call.args:
        raise DataError(f"the example's input {text[:60]!r} has no named arguments")
    return call.keywords


def _expression(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise DataError(f"the example {text.strip()[:60]!r} is not a value") from None


class _JsonLiterals(ast.NodeTransformer):
    """Replaces the literals of JSON by those of Python."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_JSON_LITERALS[node.id]) if node.id in _JSON_LITERALS else node


def _value(node: ast.expr) -> Any:
    """The value of a literal of Python or JSON."""
    try:
        return ast.literal_eval(_JsonLiterals().visit(node))
    except ValueError:
        raise DataError(f"{ast.unparse(node)[:60]!r} is not a plain value") from None


def _hidden(row: Row) -> dict[str, Any]:
    cases = [*_cases(row["public_test_cases"]), *_cases(row.get("private_test_cases") or "[]")]
    name = json.loads(row.get("metadata") or "{}").get("func_name")
    return {"tests": json.dumps([_case(case, name) for case in cases]), "language": "python"}


def _case(case: Row, name: str | None) -> dict[str, str]:
    if case.get("testtype") != "functional":
        return {"input": case["input"], "output": case["output"]}
    lines = [line for line in case["input"].splitlines() if line.strip()]
    # One JSON value a line.
    arguments = ", ".join(repr(json.loads(line)) for line in lines)
    return {"call": f"Solution().{name}({arguments})", "output": repr(json.loads(case["output"]))}


def _cases(text: str) -> list[Row]:
    """Test cases, as JSON or as LiveCodeBench packs them: pickled JSON text, compressed by zlib, in base64."""
    cases: list[Row] = packed_json(text)
    return cases


_FORMS: dict[str, Callable[[Row], dict[str, Any]]] = {
    "asserts": _asserts,
    "check": _check,
    "main": _main,
    "unittest": _unittest,
    "hidden": _hidden,
    "samples": _samples,
    "tests": _column,
}
