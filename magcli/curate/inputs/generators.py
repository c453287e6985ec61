"""Input generators: programs written by a model that print an input for a seed, run in the sandbox.

A program is used if its inputs differ from each other; the solutions decide whether these are valid. The outcome of
every requested program is counted. A problem without tests has no example of an input: the model then reads the form
in the statement.

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
from magcli.model.chat.thoughts import THINK, ThoughtForm
from magcli.verify.code import runs
from magcli.verify.code.cases import Call, Case, parse_call
from magcli.verify.code.judge import DEFAULT_LIMITS, extract
from magcli.verify.code.stdin_cases import StdinCase
from magcli.verify.sandbox import Sandbox
from magcli.verify.types import Fault

SEEDS = 10
"""Number of inputs asked from a program at a time."""
MAX_ROUNDS = 10
"""How many times all programs are asked."""
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
_CALL_UNSEEN = (
    _NEEDED
    + """Write the program that reads the seed and the word small or large from stdin, and prints one call of the \
function as one line of Python: `{name}(...)` with random arguments as the problem states them. The function itself is \
not wanted."""
)
_INPUT_UNSEEN = (
    _NEEDED
    + """Write the program that reads the seed and the word small or large from stdin, and prints one random input in \
the form that the problem states. A solution of the problem is not wanted."""
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


class InputForm(NamedTuple):
    """What the inputs of a problem look like.

    ``names`` are the functions that a call may use; empty for inputs from stdin. ``example`` is an input of a test,
    without which ``callee`` is the only hint. ``test_inputs`` are the inputs of all tests, which are not new.
    """

    names: frozenset[str]
    callee: str
    example: str | None
    test_inputs: frozenset[str]


def input_form(cases: Mapping[int, Case], entry_point: str = "") -> InputForm:
    """The form of the inputs of tests; without tests, calls of the entry point, or stdin if there is none."""
    if not cases:
        names = frozenset([entry_name(entry_point)]) if entry_point else frozenset[str]()
        return InputForm(names, entry_point, None, frozenset())
    first = next(iter(cases.values()))
    example = input_text(first).rstrip()
    test_inputs = frozenset(input_text(case) for case in cases.values())
    if isinstance(first, StdinCase):
        return InputForm(frozenset(), "", example, test_inputs)
    callee = ast.unparse(first.node.func)
    return InputForm(frozenset([first.name]), callee, example, test_inputs)


def entry_name(entry_point: str) -> str:
    """The name that a program must define: ``Solution`` for ``Solution().f``."""
    return entry_point.partition("(")[0].partition(".")[0]


def input_text(case: Case) -> str:
    """The call of a test, or its stdin."""
    return case.source if isinstance(case, Call) else case.stdin.decode(errors="replace")


class GeneratorPrograms(NamedTuple):
    """The distinct programs in a model's answers, and the outcomes of answers without one."""

    programs: Sequence[str]
    outcomes: Mapping[str, int]


def extract_programs(answers: Sequence[Completion], thoughts: ThoughtForm = THINK) -> GeneratorPrograms:
    """The Python programs in a model's answers, ignoring its thoughts, which are in this form."""
    programs: dict[str, None] = {}
    outcomes = Counter[str]()
    for answer in answers:
        extracted = extract(thoughts.answer(answer.text))
        if extracted is None or extracted[0] != "python":
            outcomes["cut" if answer.finish == "length" else "no-program"] += 1
            continue
        _, program = extracted
        if program in programs:
            outcomes["repeated"] += 1
        else:
            programs[program] = None
    return GeneratorPrograms(list(programs), outcomes)


class ProgramInputs:
    """Runs programs lazily to get their inputs. Not thread-safe.

    Args:
        written: The programs.
        form: What the inputs look like.
        box: The sandbox.
    """

    def __init__(self, written: GeneratorPrograms, form: InputForm, box: Sandbox) -> None:
        self._programs = written.programs
        self._form = form
        self._box = box
        self._outcomes = Counter(written.outcomes)
        self._num_run = 0

    def inputs(self) -> Iterator[str]:
        """The inputs printed by the programs, one program after the other, then those for more seeds."""
        used = []
        for program in self._programs:
            outcome, inputs = run_generator(program, self._form, self._box)
            self._outcomes[outcome] += 1
            self._num_run += 1
            if outcome == "used":
                used.append(program)
            yield from inputs
        # In rounds, so that every program contributes before any is asked again.
        for number in range(1, MAX_ROUNDS):
            for program in used:
                _, inputs = run_generator(program, self._form, self._box, first_seed=number * SEEDS)
                yield from inputs

    @property
    def outcomes(self) -> Mapping[str, int]:
        """Number of programs by outcome so far."""
        return {**self._outcomes, "unused": len(self._programs) - self._num_run}


def run_generator(program: str, form: InputForm, box: Sandbox, first_seed: int = 0) -> tuple[ProgramOutcome, list[str]]:
    """The outcome of a program for ``SEEDS`` seeds, and the distinct new inputs that it prints."""
    end = "" if form.names else "\n"
    printed = [text + end for text in dict.fromkeys(_outputs(program, box, first_seed))]
    # A program that ignores its seed is no generator.
    if len(printed) < 2:
        return ("constant" if printed else "fails"), []
    inputs = [text for text in printed if text not in form.test_inputs and _fits(text, form)]
    return ("used" if inputs else "unfit"), inputs


def _outputs(program: str, box: Sandbox, first_seed: int) -> Iterator[str]:
    with runs.start_program(program, "python", box, called=False) as started:
        if isinstance(started, Fault):
            return
        for seed in range(first_seed, first_seed + SEEDS):
            size = "large" if seed % 4 == 3 else "small"
            # The expected output is never compared.
            case = StdinCase(f"{seed}\n{size}\n".encode(), b"")
            output = runs.run(started, case, DEFAULT_LIMITS).output
            if not isinstance(output, bytes) or len(output) > MAX_INPUT or not output.isascii():
                continue
            text = output.decode().strip()
            if text:
                yield text


def _fits(text: str, form: InputForm) -> bool:
    """Whether a printed call calls the function; an input from stdin may be anything."""
    if not form.names:
        return True
    try:
        return parse_call(text, "None", form.names).name in form.names
    except DataError:
        return False


def messages(prompt: str, form: InputForm) -> Sequence[Message]:
    """The chat that requests a generator for inputs of the problem."""
    system = files("magcli.curate.inputs").joinpath("generators.txt").read_text(encoding="utf-8").strip()
    example, answer = _EXAMPLE_CALL if form.names else _EXAMPLE_INPUT
    if form.example is None:
        template = _CALL_UNSEEN if form.names else _INPUT_UNSEEN
    else:
        template = _CALL if form.names else _INPUT
    request = template.format(problem=prompt, example=form.example, name=form.callee)
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": example},
        {"role": "assistant", "content": answer},
        {"role": "user", "content": request},
    ]
