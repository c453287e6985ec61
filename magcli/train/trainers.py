"""A trainer over one or many ranks: rank 0 runs the loop and gives orders, the others follow."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from magcli.errors import EnvironmentFault, MagError
from magcli.model.load import save_model
from magcli.train import checkpoint
from magcli.train.distributed import Post, Ranks, close_ranks, first_line
from magcli.train.orders import Load, Open, Order, Publish, Save, Share

OpenShare = Callable[[Ranks, bool], Share]
"""Loads what a rank holds of the trainer, for matrix products in bf16 or not."""


def follow(ranks: Ranks, open_share: OpenShare) -> None:
    """What every rank but 0 does: open its share and carry out orders, until rank 0 says to stop.

    Raises:
        EnvironmentFault: rank 0 or the launcher has died, or this rank could not carry out an order.
    """
    post = Post(ranks)
    share: Share | None = None
    while (order := post.receive()) is not None:
        try:
            if isinstance(order, Open):
                share = open_share(ranks, order.bf16)
            assert share is not None, "an order came before the share was opened"
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

    def open(self, open_share: OpenShare, *, bf16: bool = False) -> None:
        """Have every rank load its share; the others do it by what ``follow`` was given."""

        def own() -> None:
            self._share = open_share(self.ranks, bf16)

        self._all([Open(bf16)] * self.ranks.size, own)

    def weights(self) -> Mapping[str, Tensor]:
        """The weights by name, for the generators: those that train where they are whole, else a copy."""
        weights: Mapping[str, Tensor] = self.order([Publish()] * self.ranks.size)
        return weights

    def save(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Write a checkpoint: in Hugging Face layout by one process, in shards by several."""
        share = self.share
        if self.ranks.size == 1:
            checkpoint.save(
                folder, model=share.model, optimizer=share.optimizer, state=state, tokenizer=share.tokenizer
            )
        else:
            self.order([Save(folder, state)] + [Save(folder, {})] * (self.ranks.size - 1))

    def load(self, folder: Path) -> dict[str, Any]:
        """Go on from a checkpoint of any number of ranks; returns what was saved beside the weights.

        Raises:
            DataError: it is incomplete, damaged or of another model.
        """
        checkpoint.check(folder)
        state: dict[str, Any] = self.order([Load(folder)] * self.ranks.size)
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

    def order(self, orders: Sequence[Order]) -> Any:
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
