"""The inputs that are tried for a code problem: mutations of its own, and what programs of a model print."""

from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest

from magcli.curate import call_inputs, input_programs, mutate
from magcli.curate.constraints import constraints
from magcli.curate.input_format import infer
from magcli.curate.input_values import describe
from magcli.curate.new_tests import Candidate
from magcli.curate.trials import Trial
from magcli.verify.calls import Call
from magcli.verify.cases import Feed
from magcli.verify.sandbox import Sandbox


def candidates(trial: Trial, prompt: str, programs: Sequence[str], box: Sandbox, seed: str) -> Iterator[Candidate]:
    """Mutations and printed inputs by turns; the same for a seed, and without end where there are enough."""
    printed = chain.from_iterable(input_programs.inputs_of(program, trial.tests, box) for program in programs)
    for mutation, made in zip_longest(mutations(trial, prompt, seed), printed):
        if mutation is not None:
            yield Candidate(mutation, "mutation")
        if made is not None:
            yield Candidate(made, "generator")


def mutations(trial: Trial, prompt: str, seed: str) -> Iterator[str]:
    """Mutations of the given inputs or calls; none where no format is found."""
    calls = [case.source for case in trial.tests.values() if isinstance(case, Call)]
    texts = [case.stdin.decode(errors="replace") for case in trial.tests.values() if isinstance(case, Feed)]
    stated = constraints(prompt)
    if calls:
        yield from call_inputs.mutations(calls, stated, seed)
    elif (format := infer(texts)) is not None:
        yield from mutate.mutations(describe(format, texts, stated), texts, seed)
