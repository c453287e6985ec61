"""Whatever a program returns, reports or prints, judging it gives a verdict without an exception."""

from collections.abc import Sequence
from math import inf, nan

from hypothesis import given
from hypothesis import strategies as st
from properties import adversarial, built

from magcli.verify.code.cases import Call, Expected
from magcli.verify.code.driver import NotPlain as NoText
from magcli.verify.code.driver import text_of
from magcli.verify.code.judge import default_sandbox
from magcli.verify.code.outputs import Plain, comparison, decode, shown
from magcli.verify.code.runs import _parse_report, check_output, fault_of
from magcli.verify.code.stdin_cases import StdinCase
from magcli.verify.sandbox.program import Limits, Outcome
from magcli.verify.types import Fault

LARGE = (10**400, -(10**400), 1 << 5000, 10**5000)
ATOMS = (
    *(None, True, False, 0, 1, -1, 2**53, 2**53 + 1, *LARGE, 0.0, -0.0, 0.1, 1.5, 1e308, 5e-324, nan, inf, -inf),
    *(1j, complex(nan, 1), complex(1, inf), "", "a", "1", "nan", "\ud800", "\0", "é" * 200, b"", b"a", b"\xff\0"),
)


def dictionary(parts: Sequence[Plain]) -> Plain:
    return {key: value for key, value in zip(parts, reversed(parts), strict=True) if _can_be_key(key)}


def _can_be_key(value: Plain) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


VALUES = built(ATOMS, [list, tuple, dictionary, lambda parts: frozenset(filter(_can_be_key, parts))])
KINDS = st.sampled_from(["equal", "one-of", "near"])
RULES = st.sampled_from(["tokens", "tokens-case", "lines", "floats", "floats:1e-4", "unordered-lines", "exact"])
TEXTS = built(
    [b"1", b"-0", b"1" * 400, b"1.5", b"1e999", b"NaN", b"null", b"true", b'"ff"', b'"\\ud800"', b"[]", b"{}", b"{"],
    [
        lambda parts: b"[" + b",".join(parts) + b"]",
        lambda parts: b'{"tuple":[' + b",".join(parts) + b"]}",
        lambda parts: b'{"set":[' + b",".join(parts) + b"]}",
        lambda parts: b'{"dict":[' + b",".join(parts) + b"]}",
        lambda parts: b'{"int":' + b"".join(parts) + b"}",
        lambda parts: b'{"float":' + b"".join(parts) + b"}",
        lambda parts: b'{"complex":[' + b",".join(parts) + b"]}",
        lambda parts: b'{"bytes":' + b"".join(parts) + b"}",
        lambda parts: b"".join(parts),
    ],
)


@adversarial
@given(VALUES, VALUES, KINDS, RULES)
def test_any_value_gets_a_verdict(expected: Plain, value: Plain, kind: str, rule: str) -> None:
    asked = Expected(kind, [expected] if kind == "one-of" else expected)  # type: ignore[arg-type]
    assert asked.matches(value, comparison(rule)) in (True, False)
    assert len(shown(value)) < 100
    try:
        text = text_of(value)
    except (NoText, ValueError, RecursionError):
        return
    assert asked.matches(decode(text.encode("ascii")), comparison(rule)) in (True, False)


@adversarial
@given(st.binary() | TEXTS, st.booleans(), VALUES, KINDS)
def test_any_report_gets_a_verdict(said: bytes, forged: bool, expected: Plain, kind: str) -> None:
    """Even if the program has found the token and impersonates the driver."""
    call = Call("f(1)", "f", Expected(kind, [expected] if kind == "one-of" else expected))  # type: ignore[arg-type]
    found = _parse_report(b"token value " + said if forged else said, "token", call)
    wrong = (
        found if isinstance(found, Fault) else check_output(found, call, comparison("tokens"), None, default_sandbox())
    )
    assert wrong is None or wrong.reason in ("wrong-answer", "runtime-error", "output-limit")


STATUSES = ("exited", "signalled", "cpu-limit", "wall-limit", "memory-limit", "output-limit", "lost")


@adversarial
@given(st.binary(), st.binary(), RULES, st.sampled_from(STATUSES), st.integers(0, 255))
def test_any_output_gets_a_verdict(expected: bytes, output: bytes, rule: str, status: str, code: int) -> None:
    outcome = Outcome(status, code, output, output, output)  # type: ignore[arg-type]
    wrong = fault_of(outcome, Limits())
    assert wrong is None or wrong.detail.isprintable()
    wrong = check_output(output, StdinCase(b"", expected), comparison(rule), None, default_sandbox())
    assert wrong is None or wrong.reason == "wrong-answer"
    assert check_output(expected, StdinCase(b"", expected), comparison(rule), None, default_sandbox()) is None
