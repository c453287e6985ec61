"""How the tests and programs of a layout become those of a code problem."""

import ast
from collections.abc import Mapping
from typing import Any

from magcli.errors import DataError
from magcli.layouts.readers import as_text, final_answer, only
from magcli.layouts.tests import Called, Test, after_setup, is_installed, read_tests, setup_code
from magcli.layouts.types import Unreadable, json_or_none
from magcli.verify.code.suites import prelude

PROGRAM_KEYS = ("tests", "test_cases", "inputs", "functional")
"""Keys of a ground truth that is tests instead of an answer."""


def read_all(tests: Any, entry_point: Any = None, starter_code: Any = None, metadata: Any = None) -> list[Test] | None:
    """The tests in a value, see ``magcli.layouts.tests``; None without any.

    Args:
        tests: The tests, in any form.
        entry_point: What a script checks.
        starter_code: Tells whether a function is a method of ``Solution``.
        metadata: JSON that may have the name of the function as ``func_name``.

    Raises:
        Unreadable: one cannot be read.
    """
    if not tests:
        return None
    name = _mapping(metadata).get("func_name")
    function = name if isinstance(name, str) else ""
    called = Called(str(entry_point or ""), function, str(starter_code or ""))
    try:
        return list(read_tests(tests, called))
    except DataError as error:
        raise Unreadable("bad-tests", str(error)) from None


def read_after(tests: Any, setup: Any, imports: Any, *called: Any) -> list[Test] | None:
    """The tests in a value, after their set-up code and imports (MBPP); ``called`` as of ``read_all``.

    Raises:
        Unreadable: one cannot be read, or cannot have set-up code.
    """
    read = read_all(tests, *called)
    if read is None:
        return None
    try:
        return after_setup(read, setup_code(setup, imports))
    except DataError as error:
        raise Unreadable("bad-tests", str(error)) from None


def joined_tests(*values: Any) -> list[Test] | None:
    """All tests of several columns."""
    # The last two paths of such a place say what is called.
    *columns, metadata, starter = values
    tests: list[Test] = []
    for column in columns:
        tests += read_all(column, None, starter, metadata) or ()
    return tests or None


def tests_after(test: Any, entry_point: Any, code: Any, libraries: Any) -> list[Test] | None:
    """The tests of a problem that follow its code: they may use what that imports and assigns (BigCodeBench).

    Args:
        test: The tests, a script.
        entry_point: The function that they test.
        code: The code before the body of that function.
        libraries: What programs import, a list or its Python literal.

    Raises:
        Unreadable: the tests cannot be read, or programs need a package that is not installed for them.
    """
    missing = [name for name in _names(libraries) if not is_installed(name)]
    if missing:
        raise Unreadable("bad-tests", f"programs need {', '.join(missing)}, which is not installed for programs")
    if not isinstance(test, str) or not test.strip():
        return None
    return read_all(f"{prelude(str(code or ''), str(entry_point or ''), test)}{test}", entry_point)


def _names(libraries: Any) -> list[str]:
    """The names in a list, or in the literal of one."""
    value = literal(libraries) if isinstance(libraries, str) else libraries
    if not isinstance(value, list | tuple):
        return []
    return [name for name in value if isinstance(name, str)]


def official_tests(official: Any, examples: Any, checker: Any, interaction: Any, mode: Any) -> list[Test] | None:
    """The tests of a Codeforces problem, its examples if it has no others.

    Raises:
        Unreadable: it is interactive, reads files, or accepts several outputs.
    """
    if isinstance(interaction, str) and interaction.strip():
        raise Unreadable("interactive", "the program talks to another one")
    if mode == "file":
        raise Unreadable("bad-tests", "the program reads and writes files")
    if isinstance(checker, str) and checker.strip():
        raise Unreadable("no-checker", "several outputs are accepted; the data set's checker has another interface")
    return read_all(official or examples)


def solved_or_tested(solution: Any, test_cases: Any, starter_code: Any) -> dict[str, Any]:
    """The tests of a problem if it has some, else the answer at which its solution arrives (OpenThoughts)."""
    tests = read_all(test_cases, None, starter_code)
    # The solution of a problem with tests is a program, which has no final answer.
    return {"answer": None if tests else final_answer(solution), "tests": tests}


def programs(solutions: Any, language: Any = None) -> list[dict[str, Any]] | None:
    """Solutions: one program, several, or the JSON text of several; fences are removed where they are run."""
    # A program may begin with a bracket too, and is then no JSON.
    if isinstance(solutions, str) and solutions.lstrip().startswith("["):
        solutions = json_or_none(solutions) or solutions
    listed = solutions if isinstance(solutions, list) else [solutions]
    codes = [code for code in listed if isinstance(code, str) and code.strip()]
    name = language if isinstance(language, str) else None
    return [{"language": name, "code": code, "verdict": None} for code in codes] or None


def continued_function(body: Any, complete: Any, code: Any) -> list[dict[str, Any]] | None:
    """A solution that is the body of a function, after the code before it (BigCodeBench)."""
    return continued_program(body, complete or code)


def continued_program(completion: Any, prelude: Any) -> list[dict[str, Any]] | None:
    """A solution that continues the code before it (LeetCodeDataset)."""
    if not isinstance(completion, str) or not completion.strip():
        return None
    return programs(f"{prelude or ''}\n{completion}")


def continued_text(completion: Any, prompt: Any) -> Any:
    """A completion; one that is the indented rest of the function that the prompt begins, as a whole program."""
    if not isinstance(completion, str) or not isinstance(prompt, str) or "```" in completion:
        return completion
    not_empty = [line for line in completion.splitlines() if line.strip()]
    is_indented = bool(not_empty) and not_empty[0][0].isspace()
    if not is_indented:
        return completion
    # Not its spaces: the first line keeps its indentation.
    body = completion.strip("\n")
    return f"```python\n{prompt.rstrip()}\n{body}\n```"


def verified(info: Any) -> dict[str, Any]:
    """The answer or the tests of ``verification_info``: an object, its JSON, or a Python literal of it.

    Raises:
        Unreadable: it has neither.
    """
    if isinstance(info, Mapping) and info.get("ground_truth") is not None:
        return {"answer": only(info["ground_truth"]), "tests": None}
    if isinstance(info, str):
        return verified(_object(info))
    tests = read_all(dict(info)) if info else None
    if not tests:
        raise Unreadable("missing-answer", "verification_info has neither a ground truth nor test cases")
    return {"answer": None, "tests": tests}


def _object(text: str) -> Mapping[str, Any]:
    value = literal(text)
    if value is None:
        raise Unreadable("missing-answer", "verification_info is neither JSON nor a Python literal")
    return _mapping(value)


def literal(text: str) -> Any:
    """The value of JSON or of a Python literal; None if it is neither."""
    value = json_or_none(text)
    if value is not None:
        return value
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def ground_truth(truth: Any, ability: Any = None) -> dict[str, Any]:
    """The answer, or the tests of a code problem, of verl's ``ground_truth``.

    Raises:
        Unreadable: there are several answers, or the tests cannot be read.
    """
    may_be_json = isinstance(truth, str) and truth.lstrip()[:1] in ("{", "[")
    value = json_or_none(truth) if may_be_json else truth
    if _is_tests(value) or ability in ("code", "coding"):
        return {"answer": None, "tests": read_all(truth)}
    return {"answer": only(truth), "tests": None}


def rlvr_truth(truth: Any, data_set: Any = None) -> dict[str, Any]:
    """The answer, or the tests of a code problem, of RLVR's ``ground_truth``; ``data_set`` names what it is of.

    Raises:
        Unreadable: there are several answers, it is instructions to follow, or the tests cannot be read.
    """
    # A row may have several truths, one for each of its data sets.
    if isinstance(truth, list) and len(truth) == 1:
        truth = truth[0]
    data_sets = data_set if isinstance(data_set, list) else [data_set]
    # Instructions are the name and the arguments of a function that checks them.
    are_instructions = isinstance(truth, str) and truth.lstrip().startswith("{") and "func_name" in _mapping(truth)
    if are_instructions:
        raise Unreadable("missing-answer", "the ground truth is instructions to follow, which no verifier here checks")
    return ground_truth(truth, "code" if "code" in data_sets else None)


def unit_tests(metadata: Any) -> list[Test] | None:
    """The tests of NeMo Gym's ``verifier_metadata``; None if it has none."""
    fields = _mapping(metadata)
    tests = fields.get("unit_tests")
    return read_all(tests, None, fields.get("starter_code")) if tests else None


def _is_tests(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(value.get(key) is not None for key in PROGRAM_KEYS)
    if isinstance(value, list) and value:
        return all(_is_test(test) for test in value)
    return False


def _is_test(value: Any) -> bool:
    if isinstance(value, Mapping):
        return "output" in value or "assert" in value or "call" in value
    return isinstance(value, str) and value.lstrip().startswith("assert ")


def _mapping(data: Any) -> Mapping[str, Any]:
    value = json_or_none(data) if isinstance(data, str) else data
    return value if isinstance(value, Mapping) else {}


def struct_answer(answer: Any) -> str | None:
    """The ground truth of an answer that is an object, as verl's reward model stores it.

    Raises:
        Unreadable: the object has none.
    """
    if not isinstance(answer, Mapping):
        return as_text(answer)
    if "ground_truth" not in answer and "value" not in answer:
        raise Unreadable("missing-answer", "the answer is an object without ground_truth or value")
    return only(answer.get("ground_truth", answer.get("value")))
