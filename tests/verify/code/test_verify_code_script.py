"""A test's script runs in the judge's own sandbox; the program is reached only by its plain values."""

import pytest
from forgeries import LIAR, LIARS, PRELUDES, STYLES

from magcli.verify.code.compiler import sources
from magcli.verify.code.judge import default_sandbox
from magcli.verify.code.outputs import Comparison
from magcli.verify.code.script import judge_program, run_script, serving_command
from magcli.verify.sandbox import Limits, Outcome

SHORT = Limits(cpu=1.0)


def judged(program: str, *scripts: str, name: str = "f") -> list[tuple[str, Outcome, Outcome]]:
    """The verdict of each script, and how program and judge ended."""
    sandbox = default_sandbox()
    judge = judge_program(sandbox)
    with sandbox.program(serving_command(sandbox), sources(program, called=True)) as started:
        return [run_script(started, judge, script, [name], [], SHORT, Comparison()) for script in scripts]


def words(program: str, *scripts: str, name: str = "f") -> list[str]:
    """The first word of each verdict; ``crashed`` if the program did not end with code 0."""
    found = []
    for said, ran, _ in judged(program, *scripts, name=name):
        crashed = said == "passed" and (ran.status, ran.code) != ("exited", 0)
        found.append("crashed" if crashed else said.partition(" ")[0])
    return found


@pytest.mark.parametrize("test", STYLES)
def test_a_correct_program_passes(test: str) -> None:
    assert words(f"def f(n):\n    {STYLES[test]}", test) == ["passed"]


FORGERIES = [
    *(f"{LIAR}\ndef f(n): return {liar}" for liar in LIARS),
    *(f"{prelude}\ndef f(n): return 123456" for prelude in PRELUDES),
    *(f"{LIAR}\n{prelude}\ndef f(n): return Liar()" for prelude in PRELUDES),
]


@pytest.mark.parametrize("program", FORGERIES, ids=range(len(FORGERIES)))
def test_no_forgery_passes(program: str) -> None:
    assert "passed" not in words(program, *STYLES)


@pytest.mark.parametrize(
    ("program", "script", "word"),
    [
        ("def f(n): return n * n", "for i in range(5):\n    assert f(i) == i * i", "passed"),
        ("def f(n): return n * 2", "for i in range(5):\n    assert f(i) == i * i", "failed"),
        ("def f(n): return [n, n]", "def ok(v, n):\n    return v == [n, n]\nassert ok(f(3), 3)", "passed"),
        (
            "class E:\n    def __eq__(self, other): return True\ndef f(n): return E()",
            "def ok(v, n):\n    return v == [n, n]\nassert ok(f(3), 3)",
            "failed",
        ),
        ("def f(n): raise ValueError", "try:\n    f(1)\n    assert False\nexcept ValueError:\n    pass", "passed"),
        ("def f(n): return 1", "try:\n    f(1)\n    assert False\nexcept ValueError:\n    pass", "failed"),
        ("import os\ndef f(n): os._exit(0)", "try:\n    f(1)\n    assert False\nexcept Exception:\n    pass", "ended"),
        ("import os\ndef f(n): os._exit(0)", "try:\n    f(1)\nexcept:\n    pass", "ended"),
        (
            "def f(n): return iter(range(2_000_000))",
            "try:\n    f(1)\n    assert False\nexcept ValueError:\n    pass",
            "failed",
        ),
        ("def f(n): raise KeyError", "assert f(1) == 1", "raised"),
        ("def f(n): raise StopIteration", "assert all(map(f, [1, 2]))", "raised"),
        ("def f(n): exit(0)", "assert f(1) == 1", "ended"),
        ("def f(x): x.sort()", "x = [3, 1, 2]\nf(x)\nassert x == [1, 2, 3]", "passed"),
        ("def f(g, x): return [g(v) for v in x]", "assert f(lambda v: v + 1, [1, 2]) == [2, 3]", "passed"),
        ("def f(n): return n", "assert is_right(f(2))", "broken"),
        ("def f(n): return n", "assert 1 == 1", "broken"),
    ],
)
def test_a_script_is_ordinary_python(program: str, script: str, word: str) -> None:
    assert words(program, script) == [word]


def test_values_are_exact_in_both_directions() -> None:
    script = """
from decimal import Decimal
from fractions import Fraction
values = [-0.0, float("nan"), float("-inf"), 2**200, 1j, b"a", "\\ud800", True, 1.0]
values += [{1, (2,)}, frozenset([1]), {"a": None}]
for value in [*values, Fraction(1, 3), Decimal("1.10"), [[]], ((),)]:
    returned = f(value)
    assert type(returned) is type(value)
    assert repr(returned) == repr(value)
"""
    assert words("def f(x): return x", script) == ["passed"]


def test_objects_of_the_program_are_handles() -> None:
    program = """
class Stack:
    def __init__(self): self.x = []
    def push(self, value): self.x.append(value); return self
    def pop(self): return self.x.pop()
"""
    script = "s = Stack()\ns.push(1).push(2)\nassert s.pop() == 2 and s.x == [1]"
    assert words(program, script, name="Stack") == ["passed"]
    assert words(program, "assert Stack() == Stack()", name="Stack") == ["failed"]


@pytest.mark.parametrize(
    ("program", "script"),
    [
        ("from decimal import Decimal\ndef f(n): return [Decimal('1E4999')] * 150000", "[int(v) for v in f(3)] == [6]"),
        (
            "from fractions import Fraction\ndef f(n): return [Fraction(1, 2**1000 + 2*i + 1) for i in range(4000)]",
            "sum(f(3)) == 6",
        ),
    ],
)
def test_what_a_value_costs_is_limited_in_the_judge(program: str, script: str) -> None:
    ((said, _, judging),) = judged(program, f"assert {script}")
    assert (said, judging.status) == ("", "cpu-limit")
