"""Port a code problem to C++, so that it can be posed in both languages (recipe, section 4).

A problem with stdin and stdout only needs to name the language. One whose tests call a Python function gets a C++
signature, with types from annotations and the values in the tests, and a harness that makes the same calls. Problems
that cannot be ported stay unchanged, with the reason:

====================  =================================================================================
``asks-already``      the row already names a language
``about-python``      the statement is about Python itself: comprehensions, decorators, its modules
``helper-code``       the code in the statement contains more than the requested function
``types``             a value has no C++ type, such as a list of numbers and strings
``big-integers``      a value needs more than 64 bits
``non-ascii-text``    a string whose indices differ in bytes
``arguments``         tests do not pass constants, or not always the same number of them
``value``             tests check something other than the value, such as its length, or accept several
``any-order``         items may come in any order
``names``             tests call several functions, or one whose name is reserved in C++
``bad-tests``         the tests cannot be parsed
====================  =================================================================================
"""

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from magcli.curate.cpp_ports.calls import STUB, declaration, parsed, stub_text, tests_of_function
from magcli.curate.cpp_ports.cpp import Signature, UnsupportedSignature, harness, stdin_test
from magcli.errors import DataError
from magcli.verify.code.cases import Call, parse_tests
from magcli.verify.code.judge import tests_of
from magcli.verify.code.outputs import comparison
from magcli.verify.code.scripts import parse_scripts

_MARKS = (("python", "Python 3"), ("cpp", "C++20"))
PROGRAM = "Write a program in {language} that reads from standard input and writes to standard output."
MARKED = "Put it into one code block marked `{mark}`."
DEFAULT_TOLERANCE = 1e-6
"""For floats that a Python test compares exactly: C++ may round in a different order."""

_PYTHON = (
    r"python\w*|kwargs|docstring|itertools|functools|heapq|numpy|collections module|type hints?|pep ?8|"
    r"(?:monkey[- ]?patch|duck[- ]typ)\w*"
)
_ABOUT_PROGRAM = re.compile(rf"\b(?:{_PYTHON})\b|__\w+__", re.IGNORECASE)
_ABOUT_FUNCTION = re.compile(
    rf"\b(?:{_PYTHON}|comprehensions?|lambda|decorators?|generators?|pandas|global variable|class method)\b|__\w+__"
    r"|\bimport \w+",
    re.IGNORECASE,
)
"""The stories of contest problems with stdin mention pandas, generators and decorators in other senses."""
# A link may name Python without the problem being about it.
_URL = re.compile(r"\bhttps?://\S+")
# The article stays: "a Python function" becomes "a function".
_ASKS_PYTHON = re.compile(
    r"\b(a |an |the |following )?python\s?3?\s+(?=(?:function|program|code|script|solution)\b)", re.I
)


class LanguagePair(NamedTuple):
    """The changed columns of a problem in Python and in C++."""

    python: Mapping[str, Any]
    cpp: Mapping[str, Any]


def language_pair(row: Mapping[str, Any]) -> LanguagePair:
    """A code problem in both languages.

    Raises:
        UnsupportedSignature: it cannot be ported.
    """
    if row.get("language"):
        raise UnsupportedSignature("asks-already")
    try:
        cases = parse_tests(tests_of(row))
    except DataError:
        raise UnsupportedSignature("value" if _are_scripts(row) else "bad-tests") from None
    calls = [case for case in cases if isinstance(case, Call)]
    return _with_calls(row, calls) if calls else _with_stdin(row)


def _are_scripts(row: Mapping[str, Any]) -> bool:
    """Whether the judge can run the tests, although they are more than calls and their values."""
    try:
        return bool(parse_scripts(tests_of(row)))
    except DataError:
        return False


def _with_stdin(row: Mapping[str, Any]) -> LanguagePair:
    prompt = _neutral(str(row["prompt"]))
    _check_neutral(_ABOUT_PROGRAM, prompt)
    asks = {mark: _joined(prompt, PROGRAM.format(language=name), mark) for mark, name in _MARKS}
    return LanguagePair({"prompt": asks["python"]}, {"prompt": asks["cpp"]})


def _with_calls(row: Mapping[str, Any], calls: Sequence[Call]) -> LanguagePair:
    # A program is compared with one output.
    if any(call.expected.kind == "one-of" for call in calls):
        raise UnsupportedSignature("value")
    prompt = str(row["prompt"])
    solutions = row.get("solutions")
    codes = []
    for solution in solutions if isinstance(solutions, list) else ():
        code = solution.get("code") if isinstance(solution, Mapping) else None
        if isinstance(code, str) and code:
            codes.append(code)
    tests = tests_of_function(calls, prompt, codes)
    statement = _statement(prompt, tests.name)
    signature = tests.signature()
    compare = _compare(row, signature, calls)
    feeds = [
        stdin_test(arguments, value, signature) for arguments, value in zip(tests.arguments, tests.values, strict=True)
    ]
    python = "Write this function in Python 3."
    # A prompt that does not declare the function gets its declaration.
    own_name = tests.name.rpartition("::")[2]
    if f"def {own_name}(" not in prompt:
        line = tests.function.line if tests.function else declaration(tests.name, tests.names)
        python = f"Write this Python 3 function:\n\n```python\n{line}\n```"
    types = (signature.returns, *(type for _, type in signature.parameters))
    null = " `None` is `std::nullopt`." if any(type.contains("optional") for type in types) else ""
    cpp = f"Write it in C++20, with this signature and without a `main`.{null}\n\n```cpp\n{signature}\n```"
    return LanguagePair(
        {"prompt": _joined(_neutral(prompt), python, "python")},
        {"prompt": _joined(statement, cpp, "cpp"), "tests": feeds, "compare": compare, "harness": harness(signature)},
    )


def _joined(statement: str, ask: str, mark: str) -> str:
    return f"{statement.rstrip()}\n\n{ask}\n\n{MARKED.format(mark=mark)}"


def _compare(row: Mapping[str, Any], signature: Signature, calls: Sequence[Call]) -> str:
    """The comparison of tokens: case-sensitive, and for floats the tolerance of the row or its tests."""
    requested = str(row.get("compare") or "")
    if comparison(requested or "tokens").mode == "unordered-lines":
        raise UnsupportedSignature("any-order")
    if not signature.returns.contains("double"):
        return "tokens-case"
    # A comparison with a tolerance ignores the case of text.
    if signature.returns.contains("string"):
        raise UnsupportedSignature("types")
    if requested.startswith("floats"):
        return requested
    near = [call.expected for call in calls if call.expected.kind == "near"]
    # A tolerance of 0 is an exact comparison, which floats of two languages cannot pass.
    tolerances = filter(None, (max(expected.absolute, expected.relative) for expected in near))
    return f"floats:{min(tolerances, default=DEFAULT_TOLERANCE):g}"


# ---- statements ----


def _neutral(prompt: str) -> str:
    """The statement without asking for Python: *Write a python function* becomes *Write a function*."""
    return _ASKS_PYTHON.sub(lambda match: match[1] or "", prompt)


def _statement(prompt: str, name: str) -> str:
    """The statement without the Python declaration of the function.

    Raises:
        UnsupportedSignature: it is about Python, or its code contains more than the declaration.
    """
    tree = parsed(prompt)
    # A prompt that is Python itself, as HumanEval's: its text is the docstring.
    if tree and any(not isinstance(node, ast.Expr) for node in tree.body):
        text = _stub_text(tree, name)
    else:
        for match in STUB.finditer(prompt):
            _stub_text(parsed(match[1]), name)  # refuses a stub with other code
        text = STUB.sub("", prompt)
    text = _neutral(text).strip()
    if not text:
        raise UnsupportedSignature("helper-code")
    _check_neutral(_ABOUT_FUNCTION, text)
    return text


def _stub_text(tree: ast.Module | None, name: str) -> str:
    text = stub_text(tree, name) if tree else None
    if text is None:
        raise UnsupportedSignature("helper-code")
    return text


def _check_neutral(pattern: re.Pattern[str], text: str) -> None:
    """Raise UnsupportedSignature for a text about Python, ignoring URLs."""
    if pattern.search(_URL.sub("", text)):
        raise UnsupportedSignature("about-python")
