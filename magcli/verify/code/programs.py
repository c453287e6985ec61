"""Code problems: a completion's program, judged on the tests of its row.

A row has ``tests``: a list of mappings with ``input`` and ``output``, ``call`` and ``output``, or ``assert``, or the
same as JSON text. It may have ``language`` (what the problem asks for), ``time_limit`` (seconds of CPU time),
``memory_limit`` (MB), ``compare`` (the name of a comparison, see ``magcli.verify.code.outputs``; without it the one
that fits the tests), ``checker`` (a program that judges outputs), ``checker_language`` and ``entry_point`` (the name of
the function that is asked for, where tests name several). A ``harness`` is appended to a program of the row's language,
C++ where it names none: it calls the functions that the program declares.
"""

import json
import re
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from magcli.errors import DataError
from magcli.verify.code.cases import names_of, pairs
from magcli.verify.code.judge import DEFAULT_LIMITS, LANGUAGES, Judge, draw, extract
from magcli.verify.code.outputs import fitting
from magcli.verify.code.runs import Checker
from magcli.verify.reward import RewardRule
from magcli.verify.sandbox import Choice, Limits, open_sandbox
from magcli.verify.types import Verdict

_MAIN = re.compile(r"\bmain(?=\s*\()")


class Programs:
    """Judges programs in one sandbox, opened when the first one comes. Used from many threads.

    Args:
        sandbox: How well programs are isolated, see ``magcli.verify.sandbox.open_sandbox``.
        accept_unsandboxed: That with ``none`` a program may do to this machine all that its user can.
    """

    def __init__(self, sandbox: Choice = "full", *, accept_unsandboxed: bool = False) -> None:
        self._choice, self._accept = sandbox, accept_unsandboxed
        self._lock = threading.Lock()
        self._judge: Judge | None = None

    def judge(self) -> Judge:
        """The judge and its sandbox.

        Raises:
            EnvironmentFault: programs cannot be isolated on this machine.
        """
        with self._lock:
            if self._judge is None:
                self._judge = Judge(open_sandbox(self._choice, accept_unsandboxed=self._accept))
            return self._judge

    def verify(self, answer: str, row: Mapping[str, Any], rule: RewardRule) -> Verdict:
        """What becomes of the first program of an answer part; the verdict's ``answer`` is the program.

        A problem whose tests, limits or checker cannot be used is ``bad-gold``.

        Raises:
            EnvironmentFault: there is no sandbox, or no compiler, on this machine.
        """
        found = extract(answer)
        if found is None:
            return Verdict(0.0, "no-code")
        language, program = found
        asked = LANGUAGES.get(str(row.get("language") or "").lower())
        if asked and asked != language:
            return Verdict(0.0, "wrong-answer", program, f"the problem asks for {asked}, not {language}")
        try:
            verdict = self._judged(program, language, row, rule)
        except DataError as error:
            return Verdict(0.0, "bad-gold", "", str(error))
        return replace(verdict, answer=program)

    def _judged(self, program: str, language: str, row: Mapping[str, Any], rule: RewardRule) -> Verdict:
        """The verdict on the tests drawn for the group."""
        source, harness = row.get("checker"), str(row.get("harness") or "")
        tests = tests_of(row)
        ended = harness and language == LANGUAGES.get(str(row.get("language") or "cpp").lower())
        return self.judge()(
            with_harness(program, harness, language) if ended else program,
            language,
            draw(tests, str(row.get("id") or row.get("prompt") or ""), rule.test_seed, rule.num_tests),
            limits_of(row),
            mode=str(row.get("compare") or fitting(pairs(tests))),
            problem_names=names_of(tests, str(row.get("entry_point") or "")),
            checker=Checker(str(source), str(row.get("checker_language") or "python")) if source else None,
            partial=rule.partial,
        )


def with_harness(program: str, harness: str, language: str = "cpp") -> str:
    """A program that ends in the harness of its problem; a ``main`` of its own in C++ is not the one that runs."""
    return (_MAIN.sub("main_of_the_program", program) if language == "cpp" else program) + "\n" + harness


def tests_of(row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tests of a code problem.

    Raises:
        DataError: there are none, or they are no list of mappings.
    """
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


def limits_of(row: Mapping[str, Any]) -> Limits:
    """The limits of one test: the row's own, else those of the recipe.

    Raises:
        DataError: one is no positive number.
    """
    cpu = _positive(row, "time_limit", DEFAULT_LIMITS.cpu)
    memory = _positive(row, "memory_limit", DEFAULT_LIMITS.memory / (1 << 20))
    return replace(DEFAULT_LIMITS, cpu=cpu, memory=int(memory * (1 << 20)))


def _positive(row: Mapping[str, Any], name: str, default: float) -> float:
    given = row.get(name)
    try:
        value = default if given is None else float(given)
    except (TypeError, ValueError):
        value = 0.0
    if not 0 < value < float("inf"):
        raise DataError(f"{name} must be a positive number, got {given!r}")
    return value
