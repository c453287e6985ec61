"""Updates by one or many ranks.

A batch is planned once, on rank 0: advantages and weights of tokens over whole mini-batches, then micro-batches, as
many for each rank. So the number of ranks changes a gradient by rounding alone.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

from magcli.generate.types import Rollout
from magcli.rl.orders import BeforeStep, Learn
from magcli.rl.rollouts import Group
from magcli.rl.samples import Sample
from magcli.rl.update import MiniBatch, Objective, Tally, plan
from magcli.rl.update import update as update_alone
from magcli.train.optim import set_lr
from magcli.train.shard import deal, width
from magcli.train.trainers import Trainers

IDLE = Sample((0,), Rollout(0, (0,), (), (), ((0, 0),), "stop", 0), 0.0, 0.0)
"""Without generated tokens: what a rank computes, to no effect, while others have a micro-batch more."""


def update(
    trainers: Trainers,
    groups: Sequence[Group],
    objective: Objective,
    *,
    groups_per_step: int,
    rewards: Sequence[Sequence[float]],
    lr: float,
    version: int | None = None,
    before_step: BeforeStep | None = None,
) -> Tally:
    """``magcli.rl.update.update`` at a learning rate, by all ranks.

    Raises:
        EnvironmentFault: a rank has died, hangs or failed; the message names it.
    """
    share, size, begun = trainers.share, trainers.ranks.size, time.monotonic()
    if size == 1:
        set_lr(share.optimizer, lr)
        return update_alone(
            share.model,
            share.optimizer,
            groups,
            objective,
            groups_per_step=groups_per_step,
            rewards=rewards,
            version=version,
            reference=share.reference,
            before_step=before_step,
        )
    planned = Tally()
    batches = plan(groups, rewards, objective, groups_per_step, planned)
    shares = shares_of(batches, size, objective.micro_tokens, width(share.model))
    orders = [Learn(own, objective, lr, version, asks=before_step is not None) for own in shares]
    tally: Tally = trainers.order([replace(orders[0], before_step=before_step), *orders[1:]])
    tally.micro_batches = sum(samples[0] is not IDLE for own in shares for batch in own for samples in batch)
    tally.padding, tally.advantages = planned.padding, planned.advantages
    tally.seconds = time.monotonic() - begun
    return tally


def shares_of(batches: Sequence[MiniBatch], size: int, budget: int, hidden: int) -> list[list[MiniBatch]]:
    """The mini-batches of each rank: the samples of each mini-batch dealt anew, equally many micro-batches a rank."""
    shares: list[list[MiniBatch]] = [[] for _ in range(size)]
    for batch in batches:
        samples = [sample for micro_batch in batch for sample in micro_batch]
        dealt = deal([sample.length for sample in samples], budget=budget, size=size, hidden=hidden)
        for own, micro_batches in zip(shares, dealt, strict=True):
            own.append([[samples[index] for index in indices] or [IDLE] for indices in micro_batches])
    return shares
