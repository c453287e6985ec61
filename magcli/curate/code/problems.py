"""Normalise code problems of many formats: their tests, and their solutions with labels.

=========== ============================================================================================================
tests       ``tests`` in any form that ``magcli.layouts.tests`` reads; ``test_list`` (asserts); ``test`` (a script),
            of a row with neither; ``public_tests``, ``private_tests`` and ``generated_tests`` (CodeContests);
            asserts run after ``test_setup_code`` and ``test_imports`` (MBPP)
solutions   ``solutions``: mappings with ``language``, ``code`` and ``verdict``, or programs, or ``{"language": [..],
            "solution": [..]}``; ``incorrect_solutions``; ``submissions`` (ICPC); ``code``; ``canonical_solution``, a
            body that continues the prompt; ``reference_python``; ``python_file`` and ``cpp_file`` (several classes
            ``Solution``); ``samples`` of a model, which continue the prompt
comparison  ``compare``, else the flags of an ICPC output validator, else inferred from the tests
limits      ``time_limit`` (seconds, or CodeContests' mapping), ``memory_limit`` (MB)
=========== ============================================================================================================

A solution without a verdict is right, a sample of a model unknown. A solution in a Markdown block is the block's
content, in its language. Python 2 code that parses as Python 3 is converted: ``xrange`` and ``raw_input`` are defined,
and division of integers is integral. Everything is a pure function of a row.
"""

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from magcli.errors import DataError
from magcli.layouts.names import SETUP, SOLUTIONS, STATEMENT, TESTS
from magcli.layouts.tests import Called, after_setup, read_tests, setup_code
from magcli.layouts.types import json_or_none
from magcli.verify.code.judge import LANGUAGES
from magcli.verify.code.outputs import infer_comparison
from magcli.verify.code.scripts import names_of_problem
from magcli.verify.code.stdin_cases import stdin_pairs
from magcli.verify.format import blocks

Label = Literal["right", "wrong", "unknown"]
Reason = Literal["interactive", "no-checker", "bad-tests", "no-solutions", "few-tests"]
_LABELS: dict[str, Label] = {
    **dict.fromkeys(("accepted", "right", "correct", "ok", "ac", "true"), "right"),
    **dict.fromkeys(
        ("wrong", "wrong_answer", "incorrect", "rejected", "time_limit_exceeded", "run_time_error", "wa", "false"),
        "wrong",
    ),
}  # fmt: skip
_COLUMN_LABELS: dict[str, Label] = {"incorrect_solutions": "wrong", "samples": "unknown"}
"""Labels of solutions without a verdict, by column; ``right`` in all others."""
_LANGUAGE_NUMBERS = {0: "unknown", 1: "python2", 2: "cpp", 3: "python", 4: "java"}
"""Languages of CodeContests."""
# As in the validator_flags of ICPC's problem packages: float_tolerance 1e-6
_TOLERANCE = re.compile(r"\bfloat_(?:absolute_|relative_)?tolerance\s+([\d.eE+-]+)")
# A body is indented, also after comments; a program is not.
_FUNCTION_BODY = re.compile(r"(?:#.*\n)*\s")
_INDENTATION = re.compile(r"^([ \t]+)[^\s#]", re.MULTILINE)
_CLASS_NAME = re.compile(r"Solution\d*")
# A class ends with ``};`` in the first column.
_CPP_CLASS = re.compile(r"^class Solution\d*\b.*?^};", re.DOTALL | re.MULTILINE)
_CLASS_WORD = re.compile(r"\bSolution\d*\b")
PYTHON_2 = re.compile(r"\b(?:xrange|raw_input)\b")
"""Names that only Python 2 has."""
_PYTHON_2_NAMES = """
xrange, raw_input = range, input
def quotient_of_python_2(one, other):
    return one // other if isinstance(one, int) and isinstance(other, int) else one / other
"""


class Solution(NamedTuple):
    """A program and its label. The language is ``python``, ``cpp``, or another name that is not run."""

    language: str
    code: str
    verdict: Label


class CodeProblem(NamedTuple):
    """A normalised problem; tests are as in ``magcli.verify.code.cases``, with their ``TEST_MARKS`` if known.

    ``functions`` are the names called by the tests that the solutions must define.
    """

    tests: Sequence[Mapping[str, Any]]
    solutions: Sequence[Solution]
    compare: str
    functions: frozenset[str]
    time_limit: float | None
    memory_limit: float | None


class Unusable(NamedTuple):
    """Why a problem cannot be run."""

    reason: Reason
    detail: str = ""


def code_problem(row: Mapping[str, Any], compare: str = "tokens") -> CodeProblem | Unusable:
    """Normalise a row.

    Args:
        row: A problem in any of the formats above.
        compare: The default comparison; ``tokens`` is refined by the tests.
    """
    validation = str(row.get("validation") or "")
    if "interactive" in validation:
        return Unusable("interactive")
    if (row.get("custom_output_validator") or "custom" in validation) and not row.get("checker"):
        return Unusable("no-checker", "several outputs are accepted, but the checker is missing")
    try:
        tests = _tests(row)
    except DataError as error:
        return Unusable("bad-tests", str(error))
    solutions = [solution for solution in _solutions(row) if solution.code.strip()]
    limits = _seconds(row.get("time_limit")), _megabytes(row)
    functions = names_of_problem(tests, str(row.get("entry_point") or ""))
    return CodeProblem(tests, solutions, _comparison(row, compare, tests), functions, *limits)


def _comparison(row: Mapping[str, Any], default: str, tests: Sequence[Mapping[str, Any]]) -> str:
    """The row's comparison, else that of its validator flags, else one inferred from the tests, or the default."""
    if row.get("compare"):
        return str(row["compare"])
    flags = f"{row.get('validator_flags') or ''} {row.get('problem_yaml') or ''}"
    if match := _TOLERANCE.search(flags):
        return f"floats:{match[1]}"
    # In YAML what follows # is a comment.
    if re.search(r"^[^#]*\bcase_sensitive\b", flags, re.M):
        return "tokens-case"
    if default != "tokens":
        return default
    return infer_comparison(stdin_pairs(tests), _statement(row))


def _statement(row: Mapping[str, Any]) -> str:
    """The problem's text, as far as the row has it; ``input`` and ``output`` sections are part of it."""
    texts = (row.get(name) for name in STATEMENT)
    return "\n\n".join(text for text in texts if isinstance(text, str))


def _seconds(limit: Any) -> float | None:
    if isinstance(limit, Mapping):
        seconds = _number(limit.get("seconds")) or 0
        # A protobuf duration; both parts 0 if there is no limit.
        nanoseconds = _number(limit.get("nanos")) or 0
        return seconds + nanoseconds / 1e9 or None
    return _number(limit)


def _megabytes(row: Mapping[str, Any]) -> float | None:
    in_bytes = _number(row.get("memory_limit_bytes"))
    if in_bytes is not None:
        return in_bytes / (1 << 20)
    return _number(row.get("memory_limit"))


def _number(value: Any) -> float | None:
    """A limit as a number; None if it is missing or 0."""
    try:
        return float(value) or None
    except (TypeError, ValueError):
        return None


def _tests(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """All tests of a row, after their set-up code.

    Raises:
        DataError: a test cannot be parsed, or cannot have set-up code.
    """
    called = Called(str(row.get("entry_point") or ""), starter_code=str(row.get("starter_code") or ""))
    tests: list[Mapping[str, Any]] = []
    # Beside asserts, a script is the same tests and more of them, written for its own harness (MBPP+).
    has_asserts = bool(row.get("tests") or row.get("test_list"))
    for column in TESTS:
        if row.get(column) and not (column == "test" and has_asserts):
            tests += read_tests(row[column], called)
    return after_setup(tests, setup_code(*map(row.get, SETUP)))


def _solutions(row: Mapping[str, Any]) -> Iterator[Solution]:
    language = str(row.get("language") or "python")
    prompt = str(row.get("prompt") or "")
    for column in SOLUTIONS:
        value = row.get(column)
        if not value:
            continue
        label = _COLUMN_LABELS.get(column, "right")
        match column:
            # Completions of a model continue its prompt.
            case "samples":
                samples = value if isinstance(value, list) else [value]
                entries = [{"code": prompt + sample} for sample in samples if isinstance(sample, str)]
            # Columns of another type hold no program.
            case "canonical_solution" | "python_file" | "cpp_file" if not isinstance(value, str):
                entries = []
            case "canonical_solution":
                entries = [{"code": _body(prompt, value) if _FUNCTION_BODY.match(value) else value}]
            case "python_file":
                entries = [{"code": program, "language": "python"} for program in split_python_classes(value)]
            case "cpp_file":
                entries = [{"code": program, "language": "cpp"} for program in split_cpp_classes(value)]
            case _:
                entries = [dict(entry) for entry in _listed(value)]
        yield from (_solution(entry, language, label) for entry in entries)


def _body(prompt: str, body: str) -> str:
    """A function from its head and body; if that does not parse, their indentation is aligned."""
    _, _, last_line = prompt.rstrip().rpartition("\n")
    indent = last_line[: len(last_line) - len(last_line.lstrip())]
    aligned_body = textwrap.indent(textwrap.dedent(body), indent)
    # Or else the head is indented as the body is.
    body_indent = _INDENTATION.search(body)
    aligned_head = re.sub(rf"^{indent}", body_indent[1] if body_indent else indent, prompt, flags=re.MULTILINE)
    for attempt in (prompt + body, prompt + aligned_body, aligned_head + body):
        if tree_of(attempt) is not None:
            return attempt
    return prompt + body


def _listed(column: Any) -> Iterator[Mapping[str, Any]]:
    # A program may begin with a bracket too: then it is no JSON.
    value = json_or_none(column) if isinstance(column, str) and column[:1] in "[{" else column
    match value:
        case {"language": list(languages), "solution": list(programs)}:
            for language, code in zip(languages, programs, strict=False):
                # zip stops at the shorter list: a language without a program says nothing.
                name = _LANGUAGE_NUMBERS.get(language, language) if isinstance(language, int) else language
                yield {"language": name, "code": code}
        case list():
            for entry in value:
                yield entry if isinstance(entry, Mapping) else {"code": entry}
        case _:
            yield {"code": column}


def _solution(entry: Mapping[str, Any], language: str, label: Label) -> Solution:
    """A solution with its own language and verdict, or else those of its column."""
    source = entry.get("code") or entry.get("source")
    code, fenced = _without_fence(source if isinstance(source, str) else "")
    language = str(entry.get("language") or fenced or language).lower()
    # A verdict may be the number 0.
    verdict = entry.get("verdict")
    if verdict is not None and verdict != "":
        label = _LABELS.get(str(verdict).lower(), "unknown")
    runs_as = LANGUAGES.get(language, language)
    looks_like_python_2 = runs_as == "python" and PYTHON_2.search(code)
    if language in ("python2", "py2") or looks_like_python_2:
        return Solution(*from_python_2(code), label)
    return Solution(runs_as, code, label)


def _without_fence(source: str) -> tuple[str, str]:
    """The code and the language of the Markdown block that a source begins with; other sources unchanged."""
    if not source.lstrip().startswith("```"):
        return source, ""
    block = next(blocks(source), None)
    return (block.text, block.language) if block else (source, "")


def split_python_classes(source: str) -> list[str]:
    """One program per class ``Solution``, ``Solution2``, ... of a file, each renamed to ``Solution``."""
    tree = tree_of(source)
    if tree is None:
        return []
    lines = source.splitlines(keepends=True)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and _CLASS_NAME.fullmatch(node.name)]
    programs = []
    for chosen in classes:
        # Everything outside of the other classes stays, such as imports and helpers.
        left_out: set[int] = set()
        for other in classes:
            if other is not chosen:
                left_out.update(range(other.lineno, (other.end_lineno or other.lineno) + 1))
        kept = [line for number, line in enumerate(lines, 1) if number not in left_out]
        programs.append(re.sub(rf"\b{chosen.name}\b", "Solution", "".join(kept)))
    return programs


def split_cpp_classes(source: str) -> list[str]:
    """As ``split_python_classes``, for C++; a file without classes is one program."""
    classes = [match[0] for match in _CPP_CLASS.finditer(source)]
    if not classes:
        return [source]
    # Includes and types around the classes stay with each.
    around = _CPP_CLASS.sub("", source)
    return [f"{around}\n{_CLASS_WORD.sub('Solution', chosen)}" for chosen in classes]


def from_python_2(code: str) -> tuple[str, str]:
    """The language and the program, converted if it parses as Python 3."""
    tree = tree_of(code)
    if tree is None:
        return "python2", code
    is_converted = "quotient_of_python_2" in code
    if is_converted:
        return "python", code
    # Imports from __future__ must stay in front.
    future = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    features = [name.name for node in future for name in node.names]
    if "division" not in features:
        tree = _DivisionRewriter().visit(tree)
    rest = [node for node in tree.body if node not in future]
    tree.body = [*future, *ast.parse(_PYTHON_2_NAMES).body, *rest]
    return "python", ast.unparse(ast.fix_missing_locations(tree)) + "\n"


class _DivisionRewriter(ast.NodeTransformer):
    """Replaces ``/`` by the division of Python 2."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        return _quotient(node.left, node.right) if isinstance(node.op, ast.Div) else node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        self.generic_visit(node)
        # a[f()] /= 2 would call f twice if it were written out.
        if not isinstance(node.op, ast.Div) or not isinstance(node.target, ast.Name):
            return node
        return ast.Assign([node.target], _quotient(ast.Name(node.target.id), node.value), lineno=node.lineno)


def _quotient(left: ast.expr, right: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("quotient_of_python_2"), [left, right], [])


def tree_of(source: str) -> ast.Module | None:
    """The syntax tree; None if it is not valid Python 3."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
