"""The inputs that are tried for a code problem: mutations of its own, and what programs of a model print."""

from collections.abc import Iterable, Iterator
from itertools import zip_longest

from magcli.curate.code.trials import Trial
from magcli.curate.inputs import calls, mutate
from magcli.curate.inputs.constraints import constraints
from magcli.curate.inputs.format import infer
from magcli.curate.inputs.new_tests import Candidate
from magcli.curate.inputs.values import describe
from magcli.verify.code.calls import Call
from magcli.verify.code.cases import Feed


def candidates(trial: Trial, prompt: str, printed: Iterable[str], seed: str) -> Iterator[Candidate]:
    """Mutations and printed inputs by turns; the same for a seed, and without end where there are enough."""
    for mutation, made in zip_longest(mutations(trial, prompt, seed), printed):
        if mutation is not None:
            yield Candidate(mutation, "mutation")
        if made is not None:
            yield Candidate(made, "generator")


def mutations(trial: Trial, prompt: str, seed: str) -> Iterator[str]:
    """Mutations of the given inputs or calls; none where no format is found."""
    given = [case.source for case in trial.tests.values() if isinstance(case, Call) and not case.is_condition]
    texts = [case.stdin.decode(errors="replace") for case in trial.tests.values() if isinstance(case, Feed)]
    stated = constraints(prompt)
    if given:
        yield from calls.mutations(given, stated, seed)
    elif (format := infer(texts)) is not None:
        yield from mutate.mutations(describe(format, texts, stated), texts, seed)
