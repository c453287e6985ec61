"""The tests of a code problem: what goes into a program, and what must come out.

A test is a mapping with ``input`` and ``output`` (stdin and stdout), with ``call`` and ``output`` (an expression and
its value), or with ``assert`` (one statement, taken apart). All tests of a problem are of one kind.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from magcli.errors import DataError
from magcli.verify.code.calls import Call, of_assert, of_call
from magcli.verify.code.own import own_names


class Feed(NamedTuple):
    """A test by stdin and stdout."""

    stdin: bytes
    output: bytes


Case = Feed | Call

_COLUMNS = ("input", "output", "call", "assert")


def cases(tests: Sequence[Mapping[str, Any]], own: frozenset[str] | None = None) -> Sequence[Case]:
    """The tests, ready to run.

    Args:
        tests: They.
        own: The names that are the problem's own (``names_of``); what these tests tell of them where None.

    Raises:
        DataError: there are none, one cannot be used (it is named), or some are calls and some are not.
    """
    own = names_of(tests) if own is None else own
    found = [_case(number, test, own) for number, test in enumerate(tests, 1)]
    feeds = [case for case in found if isinstance(case, Feed)]
    calls = [case for case in found if isinstance(case, Call)]
    if not found:
        raise DataError("the problem has no tests")
    if feeds and calls:
        raise DataError("some tests of the problem call a function and some give it input; they must be of one kind")
    return feeds or calls


def names_of(tests: Sequence[Mapping[str, Any]], entry_point: str = "") -> frozenset[str]:
    """The names that are a problem's own, from all its tests and its entry point, where that is told."""
    sources = (test.get("assert") or test.get("call") for test in tests)
    return own_names((source for source in sources if source and isinstance(source, str)), entry_point)


def pairs(tests: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """The inputs and outputs of those tests that have both as text."""
    for test in tests:
        given, output = test.get("input") or "", test.get("output")
        if isinstance(given, str) and isinstance(output, str) and not test.get("call") and not test.get("assert"):
            yield given, output


def _case(number: int, test: Mapping[str, Any], own: frozenset[str]) -> Case:
    try:
        if wrong := [name for name in _COLUMNS if not isinstance(test.get(name), str | None)]:
            raise DataError(f"its {wrong[0]} is no text")
        if test.get("assert"):
            return of_assert(test["assert"], own)
        if test.get("call"):
            return of_call(test["call"], test.get("output") or "", own)
        if test.get("output") is None:
            raise DataError("it has no output")
        return Feed(_bytes(test.get("input") or ""), _bytes(test["output"]))
    except DataError as error:
        raise DataError(f"test {number} is a bad test: {error}") from error


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")
