"""One problem asked twice: for a program in Python and for one in C++ (recipe, section 4).

A problem by stdin and stdout only has to say the language. One whose tests call a Python function gets a C++ signature,
with types from its annotations and the values of its tests, and a harness that makes the same calls. It stays as it is,
with the reason, where that makes no sense:

====================  =================================================================================
``asks-already``      the row has a language
``about-python``      the statement is about Python itself: comprehensions, decorators, a module of its
``helper-code``       the statement's code holds more than the function that is asked for
``types``             a value has no type in C++, such as a list of numbers and strings
``big-integers``      a value needs more than 64 bits
``non-ascii-text``    a string whose places are others in bytes
``arguments``         tests do not call with constants, or with a different number of them
``value``             tests look at something else than the value, such as its length, or at one of several
``any-order``         the value may come in any order
``names``             tests call several functions, or one whose name C++ takes
``bad-tests``         the tests cannot be read
====================  =================================================================================
"""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from magcli.curate.twins import cpp_types, python_functions
from magcli.curate.twins.cpp_harness import Signature, feed, harness
from magcli.curate.twins.python_functions import Function
from magcli.errors import DataError
from magcli.verify.code.calls import Call
from magcli.verify.code.cases import cases
from magcli.verify.code.constants import constant
from magcli.verify.code.outputs import comparison
from magcli.verify.code.programs import tests_of

Reason = (
    Literal["asks-already", "about-python", "helper-code", "arguments", "value", "any-order", "names", "bad-tests"]
    | cpp_types.Reason
)

_MARKS = (("python", "Python 3"), ("cpp", "C++20"))
PROGRAM = "Write a program in {language} that reads from standard input and writes to standard output."
MARKED = "Put it into one code block marked `{mark}`."
DEFAULT_TOLERANCE = 1e-6
"""Of floats that a Python test compares exactly: C++ may round in another order."""

_ABOUT = re.compile(
    r"\b(?:python\w*|comprehensions?|lambda|decorators?|generators?|kwargs|docstring|itertools|functools|heapq|numpy|"
    r"pandas|collections module|type hints?|global variable|class method|monkey|pep ?8|duck)\b|__\w+__|\bimport \w+",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"\bhttps?://\S+")
_ASKS_PYTHON = re.compile(
    r"\b(a |an |the |following )?python\s?3?\s+(?=(?:function|program|code|script|solution)\b)", re.I
)
_STUB = re.compile(r"(?:^[^\n]*:[ \t]*\n+)?```(?:python3?|py)?[ \t]*\n(.*?)```", re.DOTALL | re.MULTILINE)
_C_NAME = re.compile(r"[A-Za-z_]\w*")
_WORDS_TAKEN = (
    "abs acos asin atan atan2 auto bool break case catch cbrt ceil char clock close const continue cos default "
    "delete div do double else enum erf exp explicit extern false float floor fmod for friend gamma goto hypot if "
    "index inline int isalnum isalpha isdigit islower isspace isupper j0 j1 jn kill labs link log log10 log2 long "
    "main mutable namespace new not operator or pause pipe pow private protected public raise rand random read "
    "register remove rename return rint round select short signed sin sizeof sqrt static struct swab switch sync "
    "system tan template this throw time tolower toupper true try typedef typename union unlink unsigned using "
    "virtual void volatile wait while write xor y0 y1 yn"
)
_TAKEN = frozenset(_WORDS_TAKEN.split())
"""Words of C++, and functions of C that a function of the same name and types would collide with."""


class Unfit(Exception):
    """The problem cannot be asked for in C++."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


class Twins(NamedTuple):
    """What becomes of a problem's columns in Python and in C++."""

    python: Mapping[str, Any]
    cpp: Mapping[str, Any]


class _Test(NamedTuple):
    """A test: what is called, with which arguments, for which value, and how exact."""

    name: str
    arguments: Sequence[Any]
    keywords: Mapping[str, Any]
    value: Any
    tolerance: float | None


def twins(row: Mapping[str, Any]) -> Twins:
    """A code problem in both languages.

    Raises:
        Unfit: it stays as it is; says why.
    """
    if row.get("language"):
        raise Unfit("asks-already")
    try:
        found = cases(tests_of(row))
    except DataError:
        raise Unfit("bad-tests") from None
    calls = [case for case in found if isinstance(case, Call)]
    return _called(row, calls) if calls else _fed(row)


def _fed(row: Mapping[str, Any]) -> Twins:
    prompt = _neutral(str(row["prompt"]))
    _refuse_python(prompt)
    asks = {mark: _joined(prompt, PROGRAM.format(language=name), mark) for mark, name in _MARKS}
    return Twins({"prompt": asks["python"]}, {"prompt": asks["cpp"]})


def _called(row: Mapping[str, Any], calls: Sequence[Call]) -> Twins:
    tests = [_test(call) for call in calls]
    name, prompt = _name(tests), str(row["prompt"])
    function = _declared(row, name)
    statement = _statement(prompt, name)
    names = _parameters(tests, function)
    given = [_arguments(test, names) for test in tests]
    signature = _signature(name, names, given, [test.value for test in tests], function)
    compare = _compare(row, signature, tests)
    feeds = [feed(arguments, test.value, signature) for arguments, test in zip(given, tests, strict=True)]
    python = "Write this function in Python 3."
    if f"def {name.rpartition('::')[2]}(" not in prompt:
        line = function.line if function else python_functions.line(name, names)
        python = f"Write this Python 3 function:\n\n```python\n{line}\n```"
    null = " `None` is `std::nullopt`." if any(type.holds("optional") for type in _types(signature)) else ""
    cpp = f"Write it in C++20, with this signature and without a `main`.{null}\n\n```cpp\n{signature}\n```"
    return Twins(
        {"prompt": _joined(_neutral(prompt), python, "python")},
        {"prompt": _joined(statement, cpp, "cpp"), "tests": feeds, "compare": compare, "harness": harness(signature)},
    )


def _joined(statement: str, ask: str, mark: str) -> str:
    return f"{statement.rstrip()}\n\n{ask}\n\n{MARKED.format(mark=mark)}"


# ---- tests ----


def _test(call: Call) -> _Test:
    """A test taken apart; a function that is asked for the truth of its value returns a ``bool``."""
    node = ast.parse(call.source, mode="eval").body
    match node:
        case ast.Call(ast.Name("bool"), [inner], []) if isinstance(call.expected.value, bool):
            node = inner
    if call.expected.kind == "one-of":
        raise Unfit("value")
    match node:
        case ast.Call(ast.Name(name), arguments, keywords):
            pass
        case ast.Call(ast.Attribute(ast.Call(ast.Name("Solution"), [], []), method), arguments, keywords):
            name = f"Solution::{method}"
        case _:
            raise Unfit("value")
    if call.name != name.partition("::")[0]:
        raise Unfit("value")
    near = max(call.expected.absolute, call.expected.relative) if call.expected.kind == "near" else None
    try:
        named = {word.arg or "": constant(word.value) for word in keywords}
        return _Test(name, [constant(each) for each in arguments], named, call.expected.value, near)
    except ValueError:
        raise Unfit("arguments") from None


def _name(tests: Sequence[_Test]) -> str:
    """The function that all tests call."""
    names = {test.name for test in tests}
    own = tests[0].name.rpartition("::")[2]
    if len(names) > 1 or not _C_NAME.fullmatch(own) or own in _TAKEN or own.startswith("__"):
        raise Unfit("names")
    return tests[0].name


def _compare(row: Mapping[str, Any], signature: Signature, tests: Sequence[_Test]) -> str:
    """How tokens are compared: case counts, and of floats what the row or its tests allow."""
    given = str(row.get("compare") or "")
    if comparison(given or "tokens").mode == "unordered-lines":
        raise Unfit("any-order")
    if not signature.returns.holds("double"):
        return "tokens-case"
    if signature.returns.holds("string"):
        raise Unfit("types")
    tolerances = [test.tolerance for test in tests if test.tolerance]
    return given if given.startswith("floats") else f"floats:{min(tolerances, default=DEFAULT_TOLERANCE):g}"


# ---- signatures ----


def _signature(
    name: str,
    names: Sequence[str],
    given: Sequence[Sequence[Any]],
    values: Sequence[Any],
    function: Function | None,
) -> Signature:
    """The C++ function that takes the arguments of all tests and gives their values."""
    hints = dict(function.parameters) if function else {}
    try:
        types = [
            cpp_types.common(column, hints.get(each, cpp_types.UNKNOWN))
            for each, column in zip(names, zip(*given, strict=True), strict=True)
        ]
        returns = cpp_types.common(values, function.returns if function else cpp_types.UNKNOWN)
    except cpp_types.Inexpressible as error:
        raise Unfit(error.reason) from None
    return Signature(name, tuple(zip(map(_safe, names), types, strict=True)), returns)


def _arguments(test: _Test, names: Sequence[str]) -> list[Any]:
    """A test's arguments in the order of the parameters."""
    rest = names[len(test.arguments) :]
    if len(test.arguments) > len(names) or set(rest) != set(test.keywords):
        raise Unfit("arguments")
    return [*test.arguments, *(test.keywords[name] for name in rest)]


def _safe(name: str) -> str:
    return name + "_" if name in _TAKEN else name


def _types(signature: Signature) -> Iterable[cpp_types.Type]:
    return (signature.returns, *(type for _, type in signature.parameters))


def _parameters(tests: Sequence[_Test], function: Function | None) -> list[str]:
    """The names of the arguments that tests give: as declared, else letters."""
    count = len(tests[0].arguments) + len(tests[0].keywords)
    if function and len(function.parameters) >= count:
        return [name for name, _ in function.parameters[:count]]
    if any(test.keywords for test in tests) or count > 26:
        raise Unfit("arguments")
    return [chr(ord("a") + number) for number in range(count)]


def _declared(row: Mapping[str, Any], name: str) -> Function | None:
    """The function as the statement, or else a solution, declares it."""
    prompt = str(row["prompt"])
    codes = [prompt, *(found[1] for found in _STUB.finditer(prompt))]
    codes += [each["code"] for each in row.get("solutions") or () if isinstance(each, Mapping) and each.get("code")]
    return python_functions.declared(codes, name)


# ---- statements ----


def _neutral(prompt: str) -> str:
    """A statement that does not ask for Python: *Write a python function* is *Write a function*."""
    return _ASKS_PYTHON.sub(lambda found: found[1] or "", prompt)


def _statement(prompt: str, name: str) -> str:
    """What a call-style problem says, without Python's declaration of the function.

    Raises:
        Unfit: it is about Python, or its code is more than the declaration.
    """
    tree = python_functions.parsed(prompt)
    if tree and any(not isinstance(node, ast.Expr) for node in tree.body):
        text = _of_stub(tree, name)
    else:
        for found in _STUB.finditer(prompt):
            _of_stub(python_functions.parsed(found[1]), name)
        text = _STUB.sub("", prompt)
    text = _neutral(text).strip()
    if not text:
        raise Unfit("helper-code")
    _refuse_python(text)
    return text


def _of_stub(tree: ast.Module | None, name: str) -> str:
    text = python_functions.stub_text(tree, name) if tree else None
    if text is None:
        raise Unfit("helper-code")
    return text


def _refuse_python(text: str) -> None:
    """Raises Unfit for a text about Python; addresses do not count."""
    if _ABOUT.search(_ADDRESS.sub("", text)):
        raise Unfit("about-python")
