"""Judging programs on tests: compile, run each test in the sandbox, compare outside it (recipe, section 2).

Python and C++20. A program reads stdin and writes stdout, which is compared by a named rule
(``magcli.verify.code.outputs``) or a checker; or it is called as a function (Python) by the test's script, which runs
in a sandbox of its own (``magcli.verify.code.script_runs``). Judging stops at the first failing test unless the
fraction passed is requested. Failures of the sandbox (``infra-error``) are retried and never count against the program.

On an idle core a test takes at most 3 times its CPU limit plus a second: 13 s by default, as in the recipe. A whole
judgement takes at most ``max_seconds``: 281 s for 20 such tests of a C++ program, including 21 s to compile. On a busy
machine a test may take up to 20 times its CPU limit; after ``max_seconds`` the judgement is abandoned
(``infra-error``).

A row has ``tests``: a list of mappings with ``input`` and ``output``, ``call`` and ``output``, or ``assert``, or the
same as JSON text. It may have ``language`` (required by the problem), ``time_limit`` (seconds of CPU time),
``memory_limit`` (MB), ``compare`` (a comparison; by default inferred from the tests), ``checker``, ``checker_language``
and ``entry_point`` (the requested function, if tests name several). A ``harness``, which calls the functions that a
program declares, is appended to programs of the row's language, C++ by default.
"""

import hashlib
import json
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

from magcli.errors import DataError
from magcli.verify.code import compiler
from magcli.verify.code.outputs import Comparison, comparison, infer_comparison
from magcli.verify.code.runs import CHECKER_LIMITS, Checker, check_output, run, start_program
from magcli.verify.code.script_runs import judge_script
from magcli.verify.code.scripts import Script, Test, names_of_problem, parse_scripts
from magcli.verify.code.stdin_cases import StdinCase, stdin_pairs
from magcli.verify.format import blocks
from magcli.verify.reward import RewardRule
from magcli.verify.sandbox import Choice, Limits, Program, Sandbox, open_sandbox
from magcli.verify.types import Fault, Verdict

_YEARS = (11, 14, 17, 20, 23)
# The name of ``main`` in its definition or in a call.
_MAIN = re.compile(r"\bmain(?=\s*\()")

LANGUAGES = {
    **dict.fromkeys(("python", "python3", "py", "py3", "pypy", "pypy3"), "python"),
    **dict.fromkeys(
        ("cpp", "c++", "cxx", "cc", *(f"{name}{year}" for name in ("cpp", "c++") for year in _YEARS)), "cpp"
    ),
}
"""Lower-case names of languages on Markdown blocks, and the language that they stand for."""

Sampled = TypeVar("Sampled")

DEFAULT_LIMITS = Limits(cpu=4.0, memory=300 << 20)
"""Limits of one test (recipe, section 2)."""

MAX_ATTEMPTS = 3
TESTS_OF_A_GROUP = 20


def extract(answer: str) -> tuple[str, str] | None:
    """(language, program) of the first closed code block with a language name; None without one.

    The language is ``python``, ``cpp``, or the name as written if it is neither.
    """
    for block in blocks(answer):
        if block.closed and block.language:
            return LANGUAGES.get(block.language.lower(), block.language), block.text
    return None


def sample_tests(
    tests: Sequence[Sampled], problem_id: str, group_seed: int, count: int = TESTS_OF_A_GROUP
) -> list[Sampled]:
    """A random sample of at most ``count`` tests, in order; the same for a problem and a seed on every machine."""
    if len(tests) <= count:
        return list(tests)

    # The tests of the smallest hashes: a random choice without a generator's state.
    def hash_of(index: int) -> bytes:
        return hashlib.sha256(f"{problem_id}\0{group_seed}\0{index}".encode(errors="surrogatepass")).digest()

    chosen = sorted(range(len(tests)), key=hash_of)[:count]
    return [tests[index] for index in sorted(chosen)]


@dataclass(frozen=True, slots=True)
class _Job:
    """A program, its sandbox, and everything that its verdict depends on."""

    program: str
    language: str
    tests: Sequence[Test]
    limits: Limits
    rule: Comparison
    checker: Checker | None
    partial: bool
    seconds: float
    deadline: float
    sandbox: Sandbox


def judge(
    program: str,
    language: str,
    tests: Sequence[Mapping[str, Any]],
    limits: Limits = DEFAULT_LIMITS,
    *,
    mode: str = "tokens",
    checker: Checker | None = None,
    partial: bool = False,
    problem_names: frozenset[str] | None = None,
    sandbox: Sandbox | None = None,
) -> Verdict:
    """The verdict on a program. Blocks; thread-safe.

    Args:
        program: Its source.
        language: A key of ``LANGUAGES``; anything else is ``no-code``.
        tests: Mappings with ``input`` and ``output``, ``call`` and ``output``, or ``assert``.
        limits: Of one test.
        mode: The comparison, see ``magcli.verify.code.outputs``. For calls ``floats`` sets the tolerance,
            ``unordered-lines`` allows any order in a list, ``exact`` requires equal types and all digits; otherwise
            values must be equal (``magcli.verify.code.outputs.same``).
        checker: Judges outputs instead of the comparison.
        partial: Run all tests; the score is the fraction passed.
        problem_names: Names that the problem defines, see ``magcli.verify.code.scripts``; derived from the tests if
            None.
        sandbox: Where programs run; ``default_sandbox`` if None.

    Raises:
        DataError: the tests, the mode or the checker cannot be used.
        EnvironmentFault: there is no sandbox, or for C++ no compiler, on this machine.
    """
    parsed_tests = parse_scripts(tests, problem_names)
    rule = comparison(mode)
    if checker:
        checker = _normalized_checker(checker, parsed_tests)
    canonical = LANGUAGES.get(language.lower())
    if canonical is None:
        return Verdict(0.0, "no-code", language, f"language {language!r} is not judged", 0, len(parsed_tests))
    if canonical != "python" and not isinstance(parsed_tests[0], StdinCase):
        return Verdict(0.0, "no-code", canonical, "the tests call a Python function", 0, len(parsed_tests))
    sandbox = sandbox or default_sandbox()
    seconds = max_seconds(limits, len(parsed_tests), canonical, checker)
    deadline = time.monotonic() + seconds
    job = _Job(program, canonical, parsed_tests, limits, rule, checker, partial, seconds, deadline, sandbox)
    # A failure of the machine says nothing about the program.
    for _ in range(MAX_ATTEMPTS):
        verdict = _run_tests(job)
        if verdict.reason != "infra-error" or time.monotonic() > deadline:
            break
    return verdict


def max_seconds(limits: Limits, tests: int, language: str, checker: Checker | None) -> float:
    """The maximum time of a judgement: all tests with their checkers, and the compilers."""
    compiled = [language, checker.language if checker else ""].count("cpp")
    # A checker that fails on the program's output runs again on the expected one.
    one = 3 * limits.cpu + 1 + (2 * CHECKER_LIMITS.wall if checker else 0.0)
    return tests * one + compiled * compiler.LIMITS.wall


def _normalized_checker(checker: Checker, tests: Sequence[Test]) -> Checker:
    """The checker with the canonical name of its language."""
    if not isinstance(tests[0], StdinCase):
        raise DataError("a checker judges outputs, but the tests call a function")
    canonical = LANGUAGES.get(checker.language.lower())
    if canonical is None:
        raise DataError(f"a checker in {checker.language!r} cannot be run; it must be Python or C++20")
    return checker._replace(language=canonical)


@cache
def default_sandbox() -> Sandbox:
    """The machine's sandbox, opened once per process. Raises EnvironmentFault if there is none."""
    return open_sandbox()


def _run_tests(job: _Job) -> Verdict:
    called = isinstance(job.tests[0], Script)
    # All tests of a problem are of one kind.
    with start_program(job.program, job.language, job.sandbox, called=called, serving=called) as program:
        if isinstance(program, Fault):
            return Verdict(0.0, program.reason, job.language, program.detail, 0, len(job.tests))
        return _judge_tests(job, program)


def _judge_tests(job: _Job, program: Program) -> Verdict:
    total = len(job.tests)
    passed = 0
    first: Fault | None = None
    for number, test in enumerate(job.tests, 1):
        if time.monotonic() > job.deadline:
            detail = f"test {number}: not started within {job.seconds:g} s, the machine is too busy"
            return Verdict(0.0, "infra-error", job.language, detail, passed, total)
        wrong = _judge_test(job, program, test)
        if wrong is None:
            passed += 1
            continue
        named = Fault(wrong.reason, f"test {number}: {wrong.detail}")
        if wrong.reason == "infra-error":
            return Verdict(0.0, wrong.reason, job.language, named.detail, passed, total)
        first = first or named
        if not job.partial or wrong.reason == "compile-error":
            break
    if first is None:
        return Verdict(1.0, "accepted", job.language, f"{total} tests", passed, total)
    score = passed / total if job.partial else 0.0
    return Verdict(score, first.reason, job.language, first.detail, passed, total)


def _judge_test(job: _Job, program: Program, test: Test) -> Fault | None:
    if isinstance(test, Script):
        return judge_script(program, test, job.limits, job.rule, job.sandbox)
    output = run(program, test, job.limits).output
    if isinstance(output, Fault):
        return output
    return check_output(output, test, job.rule, job.checker, job.sandbox)


MAX_CACHED = 10_000
"""Verdicts in the cache; the oldest are evicted."""


class Judge:
    """Judges programs with a cache of verdicts; thread-safe.

    Identical programs with equal tests and rules are judged once, also concurrently. Errors and ``infra-error`` are not
    cached.

    Args:
        sandbox: Where programs run; ``default_sandbox`` if None.
    """

    def __init__(self, sandbox: Sandbox | None = None) -> None:
        self._sandbox = sandbox
        self._verdicts: OrderedDict[bytes, Future[Verdict]] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(
        self,
        program: str,
        language: str,
        tests: Sequence[Mapping[str, Any]],
        limits: Limits = DEFAULT_LIMITS,
        *,
        problem_names: frozenset[str] | None = None,
        **options: Any,
    ) -> Verdict:
        """``magcli.verify.code.judge.judge`` with its options, once for identical arguments."""
        asked = list(map(dict, tests)), None if problem_names is None else sorted(problem_names)
        key = _digest(program, language, asked, repr(limits), options)
        # Others that ask for the same verdict meanwhile wait for the first one's.
        future, mine = self._claim(key)
        if not mine:
            return future.result()
        options |= {"problem_names": problem_names, "sandbox": self._sandbox}
        try:
            verdict = judge(program, language, tests, limits, **options)
        # Forgotten before the waiting threads get it, so that whoever asks next tries again.
        except BaseException as error:
            self._forget(key)
            future.set_exception(error)
            raise
        if verdict.reason == "infra-error":
            self._forget(key)
        future.set_result(verdict)
        return verdict

    def _claim(self, key: bytes) -> tuple["Future[Verdict]", bool]:
        """The future verdict, and whether the caller must compute it."""
        with self._lock:
            if cached := self._verdicts.get(key):
                return cached, False
            future: Future[Verdict] = Future()
            self._verdicts[key] = future
            while len(self._verdicts) > MAX_CACHED:
                self._verdicts.popitem(last=False)
            return future, True

    def _forget(self, key: bytes) -> None:
        with self._lock:
            self._verdicts.pop(key, None)


def _digest(*what: object) -> bytes:
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).digest()


class Programs:
    """Judges completions of code problems in one sandbox, opened on first use; thread-safe.

    Args:
        sandbox: The level of isolation, see ``magcli.verify.sandbox.open_sandbox``.
        accept_unsandboxed: With ``none``, accept that programs run with the user's rights.
    """

    def __init__(self, sandbox: Choice = "full", *, accept_unsandboxed: bool = False) -> None:
        self._choice, self._accept = sandbox, accept_unsandboxed
        self._lock = threading.Lock()
        self._judge: Judge | None = None

    def judge(self) -> Judge:
        """The judge. Raises EnvironmentFault if programs cannot be isolated on this machine."""
        with self._lock:
            if self._judge is None:
                self._judge = Judge(open_sandbox(self._choice, accept_unsandboxed=self._accept))
            return self._judge

    def verify(self, answer: str, row: Mapping[str, Any], rule: RewardRule) -> Verdict:
        """The verdict on the first program of an answer part; its ``answer`` is the program.

        A problem with invalid tests, limits or checker is ``bad-gold``. Raises EnvironmentFault if there is no sandbox
        or compiler.
        """
        block = extract(answer)
        if block is None:
            return Verdict(0.0, "no-code")
        language, program = block
        # A language that is not known here is no requirement.
        asked = LANGUAGES.get(str(row.get("language") or "").lower())
        if asked and asked != language:
            return Verdict(0.0, "wrong-answer", program, f"the problem asks for {asked}, not {language}")
        try:
            verdict = self._judged(program, language, row, rule)
        except DataError as error:
            return Verdict(0.0, "bad-gold", "", str(error))
        return replace(verdict, answer=program)

    def _judged(self, program: str, language: str, row: Mapping[str, Any], rule: RewardRule) -> Verdict:
        """The verdict on the sampled tests."""
        source, harness = row.get("checker"), str(row.get("harness") or "")
        asked = str(row.get("compare") or "")
        prompt = str(row.get("prompt") or "")
        tests = tests_of(row)
        mode = asked or infer_comparison(stdin_pairs(tests), prompt)
        language_of_harness = LANGUAGES.get(str(row.get("language") or "cpp").lower())
        if harness and language == language_of_harness:
            program = with_harness(program, harness, language)
        # The tests of a problem are the same for all its answers.
        identity = str(row.get("id") or prompt)
        checker = Checker(str(source), str(row.get("checker_language") or "python")) if source else None
        verdict = self.judge()(
            program,
            language,
            sample_tests(tests, identity, rule.test_seed, rule.num_tests),
            limits_of(row),
            mode=mode,
            problem_names=names_of_problem(tests, str(row.get("entry_point") or "")),
            checker=checker,
            partial=rule.partial,
        )
        # What the tests and the prompt imply rather than state is part of the detail.
        is_inferred = not asked and not source and ":" in mode
        if is_inferred and verdict.reason in ("accepted", "wrong-answer"):
            return replace(verdict, detail=f"{verdict.detail} (compared by {mode})")
        return verdict


def with_harness(program: str, harness: str, language: str = "cpp") -> str:
    """The program followed by its problem's harness; in C++ its own ``main`` is renamed."""
    if language == "cpp":
        program = _MAIN.sub("main_of_the_program", program)
    return f"{program}\n{harness}"


def tests_of(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tests of a code problem. Raises DataError if there are none, or they are not a list of mappings."""
    tests = row.get("tests")
    if isinstance(tests, str):
        try:
            tests = json.loads(tests)
        except ValueError as error:
            raise DataError(f"the tests are not valid JSON: {error}") from None
    if not tests:
        raise DataError("the problem has no tests")
    if not isinstance(tests, list) or not all(isinstance(test, Mapping) for test in tests):
        raise DataError("the tests must be a list of objects with input and output, call and output, or assert")
    return tests


def check_problem(row: Mapping[str, Any]) -> None:
    """Check all that a code problem is judged by, before any program is written.

    Raises:
        DataError: a test, the limits or the comparison cannot be used.
    """
    tests = tests_of(row)
    parse_scripts(tests, names_of_problem(tests, str(row.get("entry_point") or "")))
    limits_of(row)
    if row.get("compare"):
        comparison(str(row["compare"]))


def limits_of(row: Mapping[str, Any]) -> Limits:
    """The limits of one test: the row's, else the recipe's. Raises DataError if one is not a positive number."""
    cpu = _positive_number(row, "time_limit", DEFAULT_LIMITS.cpu)
    memory = _positive_number(row, "memory_limit", DEFAULT_LIMITS.memory / (1 << 20))
    return replace(DEFAULT_LIMITS, cpu=cpu, memory=int(memory * (1 << 20)))


def _positive_number(row: Mapping[str, Any], name: str, default: float) -> float:
    stated = row.get(name)
    try:
        value = default if stated is None else float(stated)
    except (TypeError, ValueError):
        value = 0.0  # refused below; NaN is, too
    if not 0 < value < float("inf"):
        raise DataError(f"{name} must be a positive number, got {stated!r}")
    return value
