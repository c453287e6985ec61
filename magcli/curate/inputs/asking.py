"""The chat that asks a model for a program that prints inputs: one that was asked before, its answer, then the problem.

A small model that is only told to write such a program solves the problem instead; shown one, and asked for a line of a
given form, it prints inputs.
"""

import ast
from collections.abc import Sequence
from importlib.resources import files

from magcli.generate.types import Message
from magcli.verify.code.calls import Call
from magcli.verify.code.cases import Case, Feed

_NEEDED = """Random test inputs are needed for this problem:

<problem>
{problem}
</problem>

"""
_CALL = (
    _NEEDED
    + """One of its inputs, a call of the function as one line of Python:
```
{example}
```

Write the program that reads the seed and the word small or large from stdin, and prints one line `{name}(...)` with \
random arguments. The function itself is not wanted."""
)
_INPUT = (
    _NEEDED
    + """One of its inputs:
```
{example}
```

Write the program that reads the seed and the word small or large from stdin, and prints one random input of the same \
form. A solution of the problem is not wanted."""
)
_BEGINS = """```python
import random

seed = int(input())
size = input()
random.seed(seed)
length = random.randint(1000, 50000) if size == "large" else random.randint(1, 6)
values = [random.randint(-9, 9) for _ in range(length)]
if seed % 3 == 0:
    values.sort()
value = random.choice(values) if seed % 2 else random.randint(-9, 9)
"""
_SHOWN_CALL = (
    _CALL.format(
        problem="Write a function to count how often a value stands in a list.",
        example="count_value([4, 2, 4], 4)",
        name="count_value",
    ),
    _BEGINS + 'print(f"count_value({values}, {value})")\n```',
)
_SHOWN_INPUT = (
    _INPUT.format(
        problem="The first line holds n and x, the second n integers from -9 to 9. Print how many of them equal x.",
        example="3 4\n4 2 4",
    ),
    _BEGINS + "print(length, value)\nprint(*values)\n```",
)


def messages(prompt: str, case: Case) -> Sequence[Message]:
    """The chat that asks for a program whose inputs look like one of the problem's."""
    told = files("magcli.curate.inputs").joinpath("generators.txt").read_text(encoding="utf-8").strip()
    if isinstance(case, Feed):
        shown, answer = _SHOWN_INPUT
        asked = _INPUT.format(problem=prompt, example=case.stdin.decode(errors="replace").rstrip())
    else:
        shown, answer = _SHOWN_CALL
        asked = _CALL.format(problem=prompt, example=case.source.rstrip(), name=_called(case))
    return [
        {"role": "system", "content": told},
        {"role": "user", "content": shown},
        {"role": "assistant", "content": answer},
        {"role": "user", "content": asked},
    ]


def _called(case: Call) -> str:
    """What a call calls, as it is written: ``f``, or ``Solution().f`` where the program defines a class."""
    for node in ast.walk(ast.parse(case.source.strip(), mode="eval")):
        if isinstance(node, ast.Call) and _root(node.func) == case.name:
            return ast.unparse(node.func)
    return case.name


def _root(called: ast.expr) -> str:
    """The name that an expression such as ``Solution().f`` begins with; empty if it begins with none."""
    while isinstance(called, ast.Attribute | ast.Call):
        called = called.value if isinstance(called, ast.Attribute) else called.func
    return called.id if isinstance(called, ast.Name) else ""
