"""Tests with stdin and stdout, and the columns that a test of any kind has."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from magcli.errors import DataError

_COLUMNS = ("input", "output", "call", "assert")


class StdinCase(NamedTuple):
    """A test with stdin and expected stdout."""

    stdin: bytes
    output: bytes


def stdin_pairs(tests: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """The inputs and outputs of the stdin tests that have both as text."""
    for test in tests:
        if test.get("call") or test.get("assert"):
            continue
        stdin, output = test.get("input") or "", test.get("output")
        if isinstance(stdin, str) and isinstance(output, str):
            yield stdin, output


def check_columns(test: Mapping[str, Any]) -> None:
    """Raise DataError if a column of a test is not text."""
    if wrong := [name for name in _COLUMNS if not isinstance(test.get(name), str | None)]:
        raise DataError(f"its {wrong[0]} is not a string")


def stdin_case(test: Mapping[str, Any]) -> StdinCase:
    """A test with stdin and stdout. Raises DataError if it has no output."""
    if test.get("output") is None:
        raise DataError("it has no output")
    return StdinCase(_bytes(test.get("input") or ""), _bytes(test["output"]))


def _bytes(text: str) -> bytes:
    # JSON can spell lone surrogates, which UTF-8 proper lacks.
    return text.encode(errors="surrogatepass")
