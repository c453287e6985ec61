"""The probe: after each update a few sequences of its batch are scored by trainer and engines at equal weights.

Sampled tokens cannot show that the newest weights are in use: when they train, the trainer's weights are newer. A probe
needs no samples, so it is possible after each update, with every placement and engine.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from magcli.generate.types import Rollout, Sampler, Scores
from magcli.rl.metrics import mismatch_fault, mismatch_summary
from magcli.rl.trainer import Trainer
from magcli.rl.types import Group, StageSettings

Executor = Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]]
"""Runs work of the trainer, in this thread or in another."""

Result = TypeVar("Result")

PROBE_TOKENS = 512
"""Tokens of a full probe, enough for a verdict (``Limits.mismatch_tokens``)."""

PROBE_EVERY = 10
"""The first update has a full probe, and every tenth after it."""

PROBE_SHARE = 32
"""Other probes have one token for so many trained tokens, to take about one percent of an update's time at most,"""

MIN_PROBE_TOKENS = 64
"""but not fewer tokens than this."""

SEQUENCE_TOKENS = 256
"""The length to which sequences are cut: a long one takes as much of an engine's memory as many short ones."""

ProbeSequence = tuple[tuple[int, ...], tuple[int, ...]]
"""A context, and the tokens after it that are scored."""


def probe_tokens(update: int, groups: Sequence[Group]) -> int:
    """The number of tokens to score after an update on these groups."""
    if update % PROBE_EVERY == 1:
        return PROBE_TOKENS
    trained = sum(group.num_tokens for group in groups)
    # About one percent of the update's work, within bounds.
    return min(PROBE_TOKENS, max(MIN_PROBE_TOKENS, trained // PROBE_SHARE))


def probe_sequences(groups: Sequence[Group], tokens: int) -> list[ProbeSequence]:
    """The beginnings of completions with ``tokens`` tokens in all, or of all completions: the first of each group, then
    the second, and so on.
    """
    chosen: list[ProbeSequence] = []
    most = max((len(group.rollouts) for group in groups), default=0)
    for index in range(most):
        for group in groups:
            if tokens <= 0:
                return chosen
            if index < len(group.rollouts):
                context, scored = _cut(group.prompt, _first_turn(group.rollouts[index]))
                chosen.append((context, scored[:tokens]))
                # The whole length: what was cut off is not scored.
                tokens -= len(scored)
    return chosen


def _first_turn(rollout: Rollout) -> tuple[int, ...]:
    """The tokens of a rollout before the first that an environment wrote, which no policy would expect."""
    if not rollout.given:
        return rollout.tokens
    start, _ = rollout.given[0]
    return rollout.tokens[:start]


def _cut(prompt: tuple[int, ...], completion: tuple[int, ...]) -> ProbeSequence:
    """A context and the tokens after it: the prompt and the completion, unless the prompt is too long."""
    sequence = (*prompt, *completion)[:SEQUENCE_TOKENS]
    # What a long prompt has beyond the middle is scored like a completion.
    context = min(len(prompt), SEQUENCE_TOKENS // 2)
    return sequence[:context], sequence[context:]


async def probe(
    trainer: Trainer, engine: Sampler, groups: Sequence[Group], settings: StageSettings, run: Executor, tokens: int = 0
) -> Mapping[str, float]:
    """The mismatch of trainer and engines at equal weights (``mismatch_summary``), of the engine where it is largest.

    Both score the same tokens, at temperature 1: so many, or by default as many as ``probe_tokens`` says.
    """
    sequences = probe_sequences(groups, tokens or probe_tokens(trainer.done, groups))
    nothing_compared = mismatch_summary([])
    if not sequences:
        return nothing_compared
    summaries = [nothing_compared]
    for scores in await engine.score(sequences):
        scored = scored_groups(sequences, scores, trainer.done)
        summaries.append(await run(partial(trainer.probe_mismatch, scored, settings)))
    return max(summaries, key=_severity)


def _severity(summary: Mapping[str, float]) -> tuple[bool, float]:
    # Without tokens there is no quantile; any other summary is larger.
    return mismatch_fault(summary) is not None, summary.get("mismatch_p99", -1.0)


def scored_groups(sequences: Sequence[ProbeSequence], scores: Scores, version: int) -> list[Group]:
    """The sequences as groups of one completion each, with the log-probs of an engine with this version."""
    groups = []
    for number, ((context, tokens), logprobs) in enumerate(zip(sequences, scores, strict=True)):
        # The version of the weights from the first token on; a mismatch is measured on such tokens only.
        versions = ((0, version),)
        rollout = Rollout(0, context, tokens, tuple(logprobs), versions, finish="length", seed=0)
        groups.append(Group(number, {}, context, (rollout,), texts=("",), rewards=(), dropped=None))
    return groups


async def inline(work: Callable[[], Result]) -> Result:
    """Run in this thread."""
    return work()
