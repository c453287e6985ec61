"""Programs that compute nothing, tried on the tests of a problem: tests that one of them passes are weak.

============  ==========================================================================================
``nothing``   it prints nothing, or returns None
``input``     it prints its input, or returns an argument
``constant``  it prints the output of the first of several tests, or returns one value, whatever it is given
``zero``      it prints 0 for each decimal, which a tolerance wider than the expected values allows
============  ==========================================================================================

Nothing is run: what these programs give is known.
"""

import ast
import re
from collections.abc import Sequence
from typing import Any, Literal

from magcli.verify.code.calls import Call, Expected
from magcli.verify.code.cases import Case, Feed
from magcli.verify.code.expressions import constant
from magcli.verify.code.outputs import Comparison, difference
from magcli.verify.code.plain import NotPlain

Trivial = Literal["nothing", "input", "constant", "zero"]

VALUES: tuple[Any, ...] = (True, False, 0, 1, -1, 0.0, "", (), [], {}, frozenset(), [[]], [0], [1])
"""What a function may return that returns always the same, besides the value that the first test expects."""

MAX_ARGUMENTS = 9

_DECIMAL = re.compile(rb"(?<!\S)[+-]?(?:\d+\.\d*|\.\d+|\d+(?:\.\d*)?[eE][+-]?\d+)(?!\S)")


def trivial(tests: Sequence[Case], rule: Comparison) -> Trivial | None:
    """The first of these programs that passes all tests; None where none does."""
    feeds = [test for test in tests if isinstance(test, Feed)]
    calls = [test for test in tests if isinstance(test, Call)]
    return _of_programs(feeds, rule) if feeds else _of_functions(calls, rule) if calls else None


def _of_programs(tests: Sequence[Feed], rule: Comparison) -> Trivial | None:
    first = tests[0].output if len(tests) > 1 else None
    outputs: dict[Trivial, Sequence[bytes | None]] = {
        "nothing": [b""] * len(tests),
        "input": [test.stdin for test in tests],
        "constant": [first] * len(tests),
        "zero": _zeros(tests),
    }
    for name, given in outputs.items():
        if all(
            output is not None and not difference(test.output, output, rule)
            for test, output in zip(tests, given, strict=True)
        ):
            return name
    return None


def _zeros(tests: Sequence[Feed]) -> Sequence[bytes | None]:
    """The outputs with 0 for each decimal; None where all are 0 as it is."""
    numbers = [float(found[0]) for test in tests for found in _DECIMAL.finditer(test.output)]
    return [_DECIMAL.sub(b"0.0", test.output) if any(numbers) else None for test in tests]


def _of_functions(tests: Sequence[Call], rule: Comparison) -> Trivial | None:
    if all(_passes(test, [None] * len(test.calls), rule) for test in tests):
        return "nothing"
    if any(all(_echoes(test, place, rule) for test in tests) for place in range(MAX_ARGUMENTS)):
        return "input"
    constants = [*VALUES, _first(tests[0].expected)] if len(tests) > 1 else []
    if any(all(_passes(test, [value] * len(test.calls), rule) for test in tests) for value in constants):
        return "constant"
    return None


def _first(expected: Expected) -> Any:
    """A value that is right."""
    return next(iter(expected.value), None) if expected.kind == "one-of" else expected.value  # type: ignore[arg-type]


def _echoes(test: Call, place: int, rule: Comparison) -> bool:
    """Whether a function passes that returns its argument at that place."""
    try:
        return _passes(test, [_argument(call, place) for call in test.calls], rule)
    except (ValueError, IndexError):
        return False


def _argument(call: str, place: int) -> Any:
    """The argument of the outermost call; raises ValueError or IndexError where there is none that is constant."""
    match ast.parse(call, mode="eval").body:
        case ast.Call(ast.Name("list_values" | "tree_values"), [inner]):
            return _argument(ast.unparse(inner), place)
        case ast.Call(_, given, named):
            argument = [*given, *(word.value for word in named)][place]
            if isinstance(argument, ast.Call) and argument.args and ast.unparse(argument.func).endswith("_node"):
                argument = argument.args[0]
            return constant(argument)
    raise ValueError("nothing is called")


def _passes(test: Call, values: Sequence[Any], rule: Comparison) -> bool:
    """Whether a function passes whose calls give these values."""
    try:
        return test.expected.met(test.seen(values[0] if len(values) == 1 else tuple(values)), rule)
    except (NotPlain, RecursionError):
        return False
