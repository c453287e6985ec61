"""Input generators: programs written by a model that print an input for a seed, run in the sandbox.

A program is used if its inputs differ from each other; the solutions decide whether these are valid. The outcome of
every requested program is counted.

The prompt is one-shot: without an example a small model solves the problem instead of writing a generator.
"""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import NamedTuple

from magcli.data.schema import ProgramOutcome
from magcli.errors import DataError
from magcli.generate.types import Completion, Message
from magcli.model.thoughts import THINK, ThoughtForm
from magcli.verify.code import runs
from magcli.verify.code.cases import Call, Case, StdinCase, parse_call
from magcli.verify.code.judge import DEFAULT_LIMITS, extract
from magcli.verify.sandbox import Sandbox
from magcli.verify.types import Fault

SEEDS = 10
MAX_INPUT = 1 << 20
"""Maximum size of an input in bytes."""
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
_EXAMPLE_CALL = (
    _CALL.format(
        problem="Write a function to count how often a value stands in a list.",
        example="count_value([4, 2, 4], 4)",
        name="count_value",
    ),
    _BEGINS + 'print(f"count_value({values}, {value})")\n```',
)
_EXAMPLE_INPUT = (
    _INPUT.format(
        problem="The first line holds n and x, the second n integers from -9 to 9. Print how many of them equal x.",
        example="3 4\n4 2 4",
    ),
    _BEGINS + "print(length, value)\nprint(*values)\n```",
)


class GeneratorPrograms(NamedTuple):
    """The distinct programs in a model's answers, and the outcomes of answers without one."""

    programs: Sequence[str]
    outcomes: Mapping[str, int]


def extract_programs(answers: Sequence[Completion], thoughts: ThoughtForm = THINK) -> GeneratorPrograms:
    """The Python programs in a model's answers, ignoring its thoughts, which are in this form."""
    programs: dict[str, None] = {}
    outcomes = Counter[str]()
    for answer in answers:
        found = extract(thoughts.answer(answer.text))
        if found is None or found[0] != "python":
            outcomes["cut" if answer.finish == "length" else "no-program"] += 1
        elif found[1] in programs:
            outcomes["repeated"] += 1
        else:
            programs[found[1]] = None
    return GeneratorPrograms(list(programs), outcomes)


class ProgramInputs:
    """Runs programs lazily to get their inputs. Not thread-safe.

    Args:
        written: The programs.
        cases: The given tests of the problem.
        box: The sandbox.
    """

    def __init__(self, written: GeneratorPrograms, cases: Mapping[int, Case], box: Sandbox) -> None:
        self._programs, self._cases, self._box = written.programs, cases, box
        self._outcomes, self._run = Counter(written.outcomes), 0

    def inputs(self) -> Iterator[str]:
        """The inputs printed by the programs, one program after the other."""
        for program in self._programs:
            outcome, inputs = run_generator(program, self._cases, self._box)
            self._outcomes[outcome] += 1
            self._run += 1
            yield from inputs

    @property
    def outcomes(self) -> Mapping[str, int]:
        """Number of programs by outcome so far."""
        return {**self._outcomes, "unused": len(self._programs) - self._run}


def run_generator(program: str, cases: Mapping[int, Case], box: Sandbox) -> tuple[ProgramOutcome, list[str]]:
    """The outcome of a program, and the distinct new inputs that it prints."""
    example = next(iter(cases.values()))
    end = "\n" if isinstance(example, StdinCase) else ""
    found = [text + end for text in dict.fromkeys(_outputs(program, box))]
    given = {
        case.stdin.decode(errors="replace") if isinstance(case, StdinCase) else case.source for case in cases.values()
    }
    if len(found) < 2:
        return ("constant" if found else "fails"), []
    inputs = [text for text in found if text not in given and _like(text, example)]
    return ("used" if inputs else "unfit"), inputs


def _outputs(program: str, box: Sandbox) -> Iterator[str]:
    with runs.start_program(program, "python", box, called=False) as started:
        if isinstance(started, Fault):
            return
        for seed in range(SEEDS):
            size = "large" if seed % 4 == 3 else "small"
            output = runs.run(started, StdinCase(f"{seed}\n{size}\n".encode(), b""), DEFAULT_LIMITS).output
            if isinstance(output, bytes) and len(output) <= MAX_INPUT and output.isascii() and output.strip():
                yield output.decode().strip()


def _like(text: str, example: Case) -> bool:
    """Whether a printed call calls the same function as the example; an input may be anything."""
    if isinstance(example, StdinCase):
        return True
    try:
        return parse_call(text, "None", frozenset([example.name])).name == example.name
    except DataError:
        return False


def messages(prompt: str, case: Case) -> Sequence[Message]:
    """The chat that requests a generator for inputs like those of the problem."""
    system = files("magcli.curate.inputs").joinpath("generators.txt").read_text(encoding="utf-8").strip()
    if isinstance(case, StdinCase):
        example, answer = _EXAMPLE_INPUT
        request = _INPUT.format(problem=prompt, example=case.stdin.decode(errors="replace").rstrip())
    else:
        example, answer = _EXAMPLE_CALL
        request = _CALL.format(problem=prompt, example=case.source.rstrip(), name=_callee(case))
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": example},
        {"role": "assistant", "content": answer},
        {"role": "user", "content": request},
    ]


def _callee(case: Call) -> str:
    """The called function as written: ``f``, or ``Solution().f`` if the program defines a class."""
    for node in ast.walk(ast.parse(case.source.strip(), mode="eval")):
        if isinstance(node, ast.Call) and _root(node.func) == case.name:
            return ast.unparse(node.func)
    return case.name


def _root(called: ast.expr) -> str:
    """The name at the root of an expression such as ``Solution().f``; empty if there is none."""
    while isinstance(called, ast.Attribute | ast.Call):
        called = called.value if isinstance(called, ast.Attribute) else called.func
    return called.id if isinstance(called, ast.Name) else ""
