"""Write the toy code task of this recipe: small Python functions, asked for as a chain of steps.

``traces.jsonl`` is the cold start, solutions in two styles: a statement for each step, or one expression without
parentheses, which is correct only if Python's precedence happens to agree. Grading drops wrong ones.
``problems.jsonl`` is for RL and ``held_out.jsonl`` for evaluation. No problem is in two files; each has 24 tests that
call the function.

Usage: python make_code.py FOLDER
"""

import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

SEED = 20250710
NUM_TESTS = 24

TRACES = {2: 160, 3: 700, 4: 700}
PROBLEMS = {2: 60, 3: 190, 4: 190}
HELD_OUT = {2: 40, 3: 80, 4: 80}
"""Problems by the number of steps in the chain."""
ONE_LINE_SHARE = 0.8
SLIPS = 30

Row = dict[str, object]


class Step(NamedTuple):
    """One operation: its name in the prompt, and its expression with ``{}`` for the operand."""

    words: str
    expression: str


class Kind(NamedTuple):
    """An argument type: its name, the available steps, and a random argument."""

    argument: str
    steps: tuple[Step, ...]
    draw: Callable[[random.Random], object]


class Task(NamedTuple):
    """A problem: its prompt, its solution in either style, and a random argument."""

    prompt: str
    program: str
    one_line: str
    draw: Callable[[random.Random], object]
    source: str


def number(rng: random.Random) -> object:
    return rng.randint(-20, 40)


def text(rng: random.Random) -> object:
    return "".join(rng.choice("abcdeABCDE") for _ in range(rng.randint(0, 7)))


ON_NUMBERS = tuple(
    step
    for n in range(2, 10)
    for step in (
        Step(f"add {n}", f"{{}}+{n}"),
        Step(f"minus {n}", f"{{}}-{n}"),
        Step(f"times {n}", f"{{}}*{n}"),
    )
)
ON_TEXT = (
    Step("reverse", "{}[::-1]"),
    *(Step(f"append {n}", f"{{}}+'{n}'") for n in range(10)),
    *(Step(f"repeat {n}", f"{{}}*{n}") for n in (2, 3)),
    *(Step(f"drop {n}", f"{{}}[{n}:]") for n in (1, 2, 3)),
    *(Step(f"keep {n}", f"{{}}[:{n}]") for n in (2, 3, 4)),
)
KINDS = {
    "number": Kind("x", ON_NUMBERS, number),
    "text": Kind("s", ON_TEXT, text),
}


def function(argument: str, lines: list[str]) -> str:
    return "\n    ".join([f"def f({argument}):", *lines])


def chain(name: str, steps: list[Step]) -> Task:
    """A function that applies the steps in order."""
    kind, one_line = KINDS[name], KINDS[name].argument
    for step in steps:
        one_line = step.expression.format(one_line)
    done = [step.expression.format(kind.argument) for step in steps]
    return Task(
        f"Write f({kind.argument}): {', '.join(step.words for step in steps)}.",
        function(kind.argument, [*(f"{kind.argument}={each}" for each in done[:-1]), f"return {done[-1]}"]),
        function(kind.argument, [f"return {one_line}"]),
        kind.draw,
        f"{name}-{len(steps)}",
    )


class Tasks:
    """Samples distinct tasks, unique over all files."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.seen: set[str] = set()

    def new(self, make: Callable[[], Task]) -> Task:
        while (task := make()).prompt in self.seen:
            pass
        self.seen.add(task.prompt)
        return task

    def chains(self, count_by_steps: dict[int, int]) -> Iterator[Task]:
        """Chains of alternating kinds, without repeated steps."""
        for length, count in count_by_steps.items():
            for index in range(count):
                name = list(KINDS)[index % len(KINDS)]
                yield self.new(lambda name=name, length=length: chain(name, self.rng.sample(KINDS[name].steps, length)))


def tests(task: Task, rng: random.Random) -> list[Row]:
    """Calls and the expected values."""
    space: dict[str, Callable[[object], object]] = {}
    exec(task.program, space)  # type: ignore[arg-type]
    given = (task.draw(rng) for _ in range(NUM_TESTS))
    return [{"call": f"f({value!r})", "output": repr(space["f"](value))} for value in given]


def problem(task: Task, rng: random.Random) -> Row:
    return {
        "kind": "code",
        "language": "python",
        "prompt": task.prompt,
        "tests": tests(task, rng),
        "source": task.source,
    }


def completion(thoughts: str, program: str) -> str:
    return f"<think>{thoughts}</think>```python\n{program}\n```"


def traces(tasks: Tasks) -> Iterator[Row]:
    """Solutions in both styles, some of them with an error."""
    rng = tasks.rng
    drawn = list(tasks.chains(TRACES))
    slips = set(rng.sample(range(len(drawn)), SLIPS))
    for index, task in enumerate(drawn):
        one_line = rng.random() < ONE_LINE_SHARE
        thoughts, program = ("in one line", task.one_line) if one_line else ("step by step", task.program)
        if index in slips:
            program += rng.choice("123")
        row = problem(task, rng) | {"source": "one-line" if one_line else "steps"}
        yield row | {"completion": completion(thoughts, program)}


def problems(tasks: Tasks, count_by_steps: dict[int, int]) -> Iterator[Row]:
    for task in list(tasks.chains(count_by_steps)):
        yield problem(task, tasks.rng)


def write(path: Path, rows: list[Row], prefix: str, rng: random.Random) -> None:
    rng.shuffle(rows)
    lines = (json.dumps({"id": f"{prefix}-{number:04d}"} | row) for number, row in enumerate(rows))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(SEED)
    tasks = Tasks(rng)
    write(folder / "held_out.jsonl", list(problems(tasks, HELD_OUT)), "held-out-code", rng)
    write(folder / "problems.jsonl", list(problems(tasks, PROBLEMS)), "code", rng)
    write(folder / "traces.jsonl", list(traces(tasks)), "code-trace", rng)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
