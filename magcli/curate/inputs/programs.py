"""Programs, written by a model, that print an input of a problem for a seed; run in the sandbox.

A program is used when its inputs differ from each other. That they are valid is for the solutions to say. What becomes
of each program that was asked for is counted, so that the rates of a model are known.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from magcli.data.schema import ProgramFate
from magcli.errors import DataError
from magcli.generate.types import Completion
from magcli.verify.code import runs
from magcli.verify.code.calls import of_call
from magcli.verify.code.cases import Case, Feed
from magcli.verify.code.faults import Fault
from magcli.verify.code.judging import DEFAULT_LIMITS, extract
from magcli.verify.sandbox import Sandbox

SEEDS = 10
MAX_INPUT = 1 << 20
"""Bytes of an input."""


class Written(NamedTuple):
    """The different programs in a model's answers, and what became of the answers that have none."""

    programs: Sequence[str]
    fates: Mapping[ProgramFate, int]


def written(answers: Sequence[Completion]) -> Written:
    """The Python programs in a model's answers, after its thoughts."""
    programs: dict[str, None] = {}
    fates = Counter[ProgramFate]()
    for answer in answers:
        found = extract(answer.text.rpartition("</think>")[2])
        if found is None or found[0] != "python":
            fates["cut" if answer.finish == "length" else "no-program"] += 1
        elif found[1] in programs:
            fates["repeated"] += 1
        else:
            programs[found[1]] = None
    return Written(list(programs), fates)


class Printers:
    """Programs that are run when their inputs are wanted. From one thread.

    Args:
        written: The programs.
        cases: The given tests of the problem.
        box: Where they run.
    """

    def __init__(self, written: Written, cases: Mapping[int, Case], box: Sandbox) -> None:
        self._programs, self._cases, self._box = written.programs, cases, box
        self._fates, self._run = Counter(written.fates), 0

    def inputs(self) -> Iterator[str]:
        """The inputs that the programs print, one program after the other."""
        for program in self._programs:
            fate, inputs = printed(program, self._cases, self._box)
            self._fates[fate] += 1
            self._run += 1
            yield from inputs

    @property
    def fates(self) -> Mapping[str, int]:
        """How many programs met which fate so far."""
        return {str(fate): count for fate, count in self._fates.items()} | {"unused": len(self._programs) - self._run}


def printed(program: str, cases: Mapping[int, Case], box: Sandbox) -> tuple[ProgramFate, list[str]]:
    """What becomes of a program, and the different inputs that it prints and that are not among the given ones."""
    example = next(iter(cases.values()))
    end = "\n" if isinstance(example, Feed) else ""
    found = [text + end for text in dict.fromkeys(_outputs(program, box))]
    given = {case.stdin.decode(errors="replace") if isinstance(case, Feed) else case.source for case in cases.values()}
    if len(found) < 2:
        return ("constant" if found else "fails"), []
    inputs = [text for text in found if text not in given and _like(text, example)]
    return ("used" if inputs else "unfit"), inputs


def _outputs(program: str, box: Sandbox) -> Iterator[str]:
    with runs.started(program, "python", box, called=False) as started:
        if isinstance(started, Fault):
            return
        for seed in range(SEEDS):
            size = "large" if seed % 4 == 3 else "small"
            output = runs.run(started, Feed(f"{seed}\n{size}\n".encode(), b""), DEFAULT_LIMITS).output
            if isinstance(output, bytes) and len(output) <= MAX_INPUT and output.isascii() and output.strip():
                yield output.decode().strip()


def _like(text: str, example: Case) -> bool:
    """Whether a printed call calls what the example calls; an input may be anything."""
    if isinstance(example, Feed):
        return True
    try:
        return of_call(text, "None", frozenset([example.name])).name == example.name
    except DataError:
        return False
