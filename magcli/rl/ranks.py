"""The trainer over one or many ranks: rank 0 runs the loop and gives orders, the others follow.

A batch is planned once, on rank 0: advantages and weights of tokens over whole mini-batches, then micro-batches, as
many for each rank. So the number of ranks changes a gradient by rounding alone.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from magcli.errors import EnvironmentFault, MagError
from magcli.generate.types import Rollout
from magcli.model.load import save_model
from magcli.rl.orders import BeforeStep, Learn, Load, Open, Order, Publish, Save, Share
from magcli.rl.rollouts import Group
from magcli.rl.samples import Sample
from magcli.rl.update import MiniBatch, Objective, Tally, plan, update
from magcli.train import checkpoint
from magcli.train.distributed import Post, Ranks, close_ranks, first_line
from magcli.train.optim import set_lr
from magcli.train.shard import deal

IDLE = Sample((0,), Rollout(0, (0,), (), (), ((0, 0),), "stop", 0), 0.0, 0.0)
"""Without generated tokens: what a rank computes, to no effect, while others have a micro-batch more."""


OpenShare = Callable[[Ranks], Share]
"""Loads what a rank holds of the trainer."""


def follow(ranks: Ranks, open_share: OpenShare) -> None:
    """What every rank but 0 does: open its share and carry out orders, until rank 0 says to stop.

    Raises:
        EnvironmentFault: rank 0 or the launcher has died, or this rank could not carry out an order.
    """
    post = Post(ranks)
    share: Share | None = None
    while (order := post.receive()) is not None:
        try:
            if share is None:
                share = open_share(ranks)
            order.carry_out(share)
        except Exception as error:
            post.answer(error)
            if not isinstance(error, RuntimeError):
                raise
            what = type(order).__name__.lower()
            raise EnvironmentFault(f"rank {ranks.rank} could not {what}: {first_line(error)}") from error
        post.answer()
    post.close()
    close_ranks()


class Trainers:
    """All ranks of the trainer, as rank 0 uses them; a process by itself needs no others.

    Every method raises EnvironmentFault when a rank has died, hangs or failed; the message names it.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self._share: Share | None = None
        self._post = Post(ranks) if ranks.size > 1 else None
        self._one_order = threading.Lock()

    @property
    def share(self) -> Share:
        """What rank 0 holds."""
        if self._share is None:
            raise MagError("the ranks were asked for their shares before they had opened them")
        return self._share

    @property
    def lr(self) -> float:
        """The learning rate of the last update."""
        return float(self.share.optimizer.param_groups[0]["lr"])

    def open(self, open_share: OpenShare) -> None:
        """Have every rank load its share; the others do it by what ``follow`` was given."""

        def own() -> None:
            self._share = open_share(self.ranks)

        self._all([Open()] * self.ranks.size, own)

    def update(
        self,
        groups: Sequence[Group],
        objective: Objective,
        *,
        groups_per_step: int,
        rewards: Sequence[Sequence[float]],
        lr: float,
        version: int | None = None,
        before_step: BeforeStep | None = None,
    ) -> Tally:
        """``magcli.rl.update.update`` at a learning rate, by all ranks."""
        share, size, begun = self.share, self.ranks.size, time.monotonic()
        if size == 1:
            set_lr(share.optimizer, lr)
            return update(
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
        shares = shares_of(batches, size, objective.micro_tokens, _width(share.model))
        orders = [Learn(own, objective, lr, version, asks=before_step is not None) for own in shares]
        tally: Tally = self._order([replace(orders[0], before_step=before_step), *orders[1:]])
        tally.micro_batches = sum(samples[0] is not IDLE for own in shares for batch in own for samples in batch)
        tally.padding, tally.advantages = planned.padding, planned.advantages
        tally.seconds = time.monotonic() - begun
        return tally

    def weights(self) -> Mapping[str, Tensor]:
        """The weights by name, for the generators: those that train where they are whole, else a copy."""
        weights: Mapping[str, Tensor] = self._order([Publish()] * self.ranks.size)
        return weights

    def save(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Write a checkpoint: in Hugging Face layout by one process, in shards by several."""
        share = self.share
        if self.ranks.size == 1:
            checkpoint.save(
                folder, model=share.model, optimizer=share.optimizer, state=state, tokenizer=share.tokenizer
            )
        else:
            self._order([Save(folder, state)] + [Save(folder, {})] * (self.ranks.size - 1))

    def load(self, folder: Path) -> dict[str, Any]:
        """Go on from a checkpoint of any number of ranks; returns what was saved beside the weights.

        Raises:
            DataError: it is incomplete, damaged or of another model.
        """
        checkpoint.check(folder)
        state: dict[str, Any] = self._order([Load(folder)] * self.ranks.size)
        return state

    def save_model(self, folder: Path) -> None:
        """Write the model alone, in Hugging Face layout and float32."""
        save_model(self.share.model, self.share.tokenizer, folder, dtype=torch.float32, weights=self.weights())

    def stop(self) -> None:
        """Let the other ranks end; those that failed, or wait for one that did, end by themselves."""
        if self._post is None:
            return
        if self._post.in_step:
            with suppress(RuntimeError, EnvironmentFault):
                self._post.send([None] * self.ranks.size)
                close_ranks()
        self._post.close()

    def _order(self, orders: Sequence[Order]) -> Any:
        """Have every rank carry out its order; returns what rank 0's own gave."""
        return self._all(orders, lambda: orders[0].carry_out(self.share))

    def _all(self, orders: Sequence[Order], own: Callable[[], Any]) -> Any:
        """Give the others their orders while rank 0 does its own part; all are done when this returns."""
        if self._post is None:
            return own()
        with self._one_order:
            try:
                self._post.send(orders)
                result = own()
            except Exception as error:
                self._post.settle(error)
                raise
            self._post.settle()
        return result


def shares_of(batches: Sequence[MiniBatch], size: int, budget: int, hidden: int) -> list[list[MiniBatch]]:
    """The mini-batches of each rank: the samples of each mini-batch dealt anew, equally many micro-batches a rank."""
    shares: list[list[MiniBatch]] = [[] for _ in range(size)]
    for batch in batches:
        samples = [sample for micro_batch in batch for sample in micro_batch]
        dealt = deal([sample.length for sample in samples], budget=budget, size=size, hidden=hidden)
        for own, micro_batches in zip(shares, dealt, strict=True):
            own.append([[samples[index] for index in indices] or [IDLE] for indices in micro_batches])
    return shares


def _width(model: PreTrainedModel) -> int:
    return int(model.config.get_text_config().hidden_size)
