"""Programs, written by a model, that print an input of a problem for a seed; run in the sandbox.

A program is used when its inputs differ from each other. That they are valid is for the solutions to say.
"""

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files

from magcli.errors import DataError
from magcli.verify.code import runs
from magcli.verify.code.calls import of_call
from magcli.verify.code.cases import Case, Feed
from magcli.verify.code.faults import Fault
from magcli.verify.code.judging import DEFAULT_LIMITS, extract
from magcli.verify.sandbox import Sandbox

SEEDS = 10
MAX_INPUT = 1 << 20
"""Bytes of an input."""


def messages(prompt: str, case: Case) -> list[dict[str, str]]:
    """The chat that asks for a program."""
    example = case.stdin.decode(errors="replace") if isinstance(case, Feed) else case.source
    kind = "input" if isinstance(case, Feed) else "input, a call of the function as one line of Python"
    asked = f"{prompt}\n\nAn example of an {kind}:\n```\n{example.rstrip()}\n```"
    told = files("magcli.curate.inputs").joinpath("generators.txt").read_text(encoding="utf-8").strip()
    return [{"role": "system", "content": told}, {"role": "user", "content": asked}]


def programs_of(answers: Sequence[str]) -> list[str]:
    """The Python programs in a model's answers, equal ones once."""
    found = (extract(answer.rpartition("</think>")[2]) for answer in answers)
    return list(dict.fromkeys(each[1] for each in found if each and each[0] == "python"))


def inputs_of(program: str, cases: Mapping[int, Case], box: Sandbox) -> Iterator[str]:
    """The different inputs that a program prints; none where it prints the same for all seeds."""
    example = next(iter(cases.values()))
    end = "\n" if isinstance(example, Feed) else ""
    found = [text + end for text in dict.fromkeys(_printed(program, box))]
    given = {case.stdin.decode(errors="replace") if isinstance(case, Feed) else case.source for case in cases.values()}
    if len(found) > 1:
        yield from (text for text in found if text not in given and _like(text, example))


def _printed(program: str, box: Sandbox) -> Iterator[str]:
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
        return of_call(text, "None").name == example.name
    except DataError:
        return False
