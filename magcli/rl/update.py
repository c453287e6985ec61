"""One update of the policy by one or many ranks at the same time, each on its share of the model and of the batch.

A batch is planned once, on rank 0: advantages and weights of tokens over whole mini-batches, then micro-batches, as
many for each rank. So the number of ranks changes a gradient by rounding alone.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from magcli.generate.types import Rollout
from magcli.rl.objective import MiniBatch, Objective, Tally, accumulate, plan, with_proximal
from magcli.rl.rollouts import Group
from magcli.rl.samples import Sample
from magcli.train.controller import RankController, RankState
from magcli.train.distributed import Ranks
from magcli.train.loss import ClipStats, mismatch_summary
from magcli.train.optim import clip_and_step, set_lr
from magcli.train.shard import deal, width

IDLE = Sample((0,), Rollout(0, (0,), (), (), ((0, 0),), "stop", 0), 0.0, 0.0)
"""Zero-weight padding micro-batch for idle ranks: it has no generated tokens."""

MEASURED = ("clips", "entropies", "mismatches", "importance", "divergences")
"""What micro-batches add to a tally, wherever they are computed."""

BeforeStep = Callable[[Mapping[str, float]], None]


def update(
    controller: RankController,
    groups: Sequence[Group],
    objective: Objective,
    *,
    groups_per_step: int,
    rewards: Sequence[Sequence[float]],
    lr: float,
    version: int | None = None,
    before_step: BeforeStep | None = None,
) -> Tally:
    """Train on a batch of groups; ``rewards`` are the totals by group, as the objective shall see them.

    ``version`` is that of the weights at the start, as rollouts name it; the mismatch between engine and trainer is
    measured on the sequences that it made, in the first mini-batch's own forward pass. ``before_step`` gets the result
    before any weight changes and may raise.

    Raises:
        EnvironmentFault: a rank has died, hangs or failed; the message names it.
    """
    size, begun, tally = controller.ranks.size, time.monotonic(), Tally()
    batches = plan(groups, rewards, objective, groups_per_step, tally)
    hidden = width(controller.state.model)
    shares = [batches] if size == 1 else shares_of(batches, size, objective.micro_tokens, hidden)
    commands = [Learn(own, objective, lr, version, asks=before_step is not None) for own in shares]
    measured: Tally = controller.run([replace(commands[0], before_step=before_step), *commands[1:]])
    micro_batches = sum(samples[0] is not IDLE for own in shares for batch in own for samples in batch)
    return replace(
        measured,
        micro_batches=micro_batches,
        padding=tally.padding,
        advantages=tally.advantages,
        seconds=time.monotonic() - begun,
    )


def shares_of(batches: Sequence[MiniBatch], size: int, budget: int, hidden: int) -> list[list[MiniBatch]]:
    """The mini-batches of each rank: the samples of each mini-batch dealt anew, equally many micro-batches a rank."""
    shares: list[list[MiniBatch]] = [[] for _ in range(size)]
    for batch in batches:
        samples = [sample for micro_batch in batch for sample in micro_batch]
        dealt = deal([sample.length for sample in samples], budget=budget, size=size, hidden=hidden)
        for own, micro_batches in zip(shares, dealt, strict=True):
            own.append([[samples[index] for index in indices] or [IDLE] for indices in micro_batches])
    return shares


@dataclass(frozen=True, slots=True)
class Learn:
    """One rank's part of an update: its micro-batches of each mini-batch. Rank 0 returns what all ranks measured.

    ``asks``: rank 0 has a say before the first optimizer step, by ``before_step``.
    """

    batches: Sequence[MiniBatch]
    objective: Objective
    lr: float
    version: int | None
    asks: bool
    before_step: BeforeStep | None = None

    def run(self, state: RankState) -> Tally:
        """Raises what ``before_step`` raises, on rank 0; no weight has changed then on any rank."""
        tally = Tally(weights=self.version)
        set_lr(state.optimizer, self.lr)
        first, *later = self.batches
        if self.objective.is_cap:
            later = [[with_proximal(state.sharded, samples, self.objective) for samples in batch] for batch in later]
        for batch in (first, *later):
            loss = state.ranks.sum(accumulate(state.sharded, batch, self.objective, tally, state.reference))
            if self.asks and batch is first and not _allowed(state.ranks, tally, self.before_step):
                return tally
            _step(state, loss, self.objective, tally)
        return _gathered(state.ranks, tally)


def _step(state: RankState, loss: float, objective: Objective, tally: Tally) -> None:
    """Make the optimizer step, on all ranks or on none: loss and norm are those of all ranks."""
    norm = clip_and_step(state.optimizer, state.model.parameters(), max_norm=objective.max_norm, loss=loss)
    if norm is None:
        tally.skipped += 1
        return
    tally.losses.append(loss)
    tally.norms.append(norm)
    tally.weights = None


def _allowed(ranks: Ranks, tally: Tally, before_step: BeforeStep | None) -> bool:
    """Whether rank 0 lets the first step be made, told to all; there it raises what ``before_step`` raised."""
    parts = [part for parts in ranks.gather(_on_cpu(tally.mismatches)) for part in parts]
    refusal: Exception | None = None
    if before_step is not None:
        try:
            before_step(mismatch_summary(parts))
        except Exception as error:
            refusal = error
    allowed: bool = ranks.broadcast(refusal is None)
    if refusal is not None:
        raise refusal
    return allowed


def _gathered(ranks: Ranks, tally: Tally) -> Tally:
    """The tally, with what all ranks measured on rank 0 and nothing of it on the others."""
    told = ranks.gather([_on_cpu(getattr(tally, name)) for name in MEASURED])
    for name, *parts in zip(MEASURED, *told, strict=True):
        setattr(tally, name, [part for own in parts for part in own])
    return tally


def _on_cpu(parts: Sequence[Any]) -> list[Any]:
    return [ClipStats(*_on_cpu(part)) if isinstance(part, ClipStats) else part.cpu() for part in parts]
