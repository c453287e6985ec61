"""A judge that remembers: identical programs of a group are judged once."""

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from magcli.verify.code.checker import Checker
from magcli.verify.code.judging import DEFAULT_LIMITS, judge
from magcli.verify.sandbox import Limits, Sandbox
from magcli.verify.types import Verdict

REMEMBERED = 10_000
"""Verdicts that are kept; the oldest go first."""


class Judge:
    """Judges programs, from as many threads at once as call it; each drives a sandbox of its own.

    A program that was judged on the same tests under the same rules has its verdict already; one that is being judged
    is waited for. Errors and ``infra-error`` are not remembered.

    Args:
        sandbox: Where programs run; the machine's default where None.
    """

    def __init__(self, sandbox: Sandbox | None = None) -> None:
        self._sandbox = sandbox
        self._known: OrderedDict[bytes, Future[Verdict]] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(
        self,
        program: str,
        language: str,
        tests: Sequence[Mapping[str, Any]],
        limits: Limits = DEFAULT_LIMITS,
        *,
        mode: str = "tokens",
        checker: Checker | None = None,
        partial: bool = False,
        own: frozenset[str] | None = None,
    ) -> Verdict:
        """``magcli.verify.code.judging.judge``, once for identical arguments."""
        asked = list(map(dict, tests)), None if own is None else sorted(own)
        key = _digest(program, language, asked, repr(limits), mode, checker, partial)
        future, mine = self._claim(key)
        if not mine:
            return future.result()
        try:
            verdict = judge(
                program,
                language,
                tests,
                limits,
                mode=mode,
                checker=checker,
                partial=partial,
                own=own,
                sandbox=self._sandbox,
            )
        except BaseException as error:
            self._forget(key)
            future.set_exception(error)
            raise
        if verdict.reason == "infra-error":
            self._forget(key)
        future.set_result(verdict)
        return verdict

    def _claim(self, key: bytes) -> tuple["Future[Verdict]", bool]:
        """The verdict to come, and whether the caller is the one to find it."""
        with self._lock:
            if known := self._known.get(key):
                return known, False
            future: Future[Verdict] = Future()
            self._known[key] = future
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
            return future, True

    def _forget(self, key: bytes) -> None:
        with self._lock:
            self._known.pop(key, None)


def _digest(*what: object) -> bytes:
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).digest()
