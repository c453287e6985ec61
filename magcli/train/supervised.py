"""Supervised fine-tuning: which examples each optimizer step takes, and the step itself, by one or many ranks.

The plan of a whole run is fixed before its first step by the seed alone, so a resumed run takes up where it was. The
loss is divided by the target tokens of all ranks, so their number changes a gradient by rounding alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from magcli.errors import MagError
from magcli.train.controller import RankState
from magcli.train.logprobs import token_logprobs
from magcli.train.optim import autocast, clip_and_step, set_lr
from magcli.train.packing import pack
from magcli.train.shard import ShardedModel, deal

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Example:
    """A conversation to learn: its tokens, which of them are targets, and how much it counts."""

    tokens: tuple[int, ...]
    mask: tuple[bool, ...]
    weight: float = 1.0


MicroBatch = Sequence[Example]

IDLE = Example((0,), (False,))
"""Without a target: what a rank computes, to no effect, while others have a micro-batch more."""


def plan(lengths: Sequence[int], *, epochs: int, step_tokens: int, seed: int) -> list[list[int]]:
    """The examples of every optimizer step: each epoch shuffled anew, cut into steps of about ``step_tokens`` tokens.

    A step ends with the example that reaches the budget; the last step of an epoch takes what is left.
    """
    steps: list[list[int]] = []
    for epoch in range(epochs):
        current: list[int] = []
        tokens = 0
        for index in np.random.default_rng([seed, epoch]).permutation(len(lengths)).tolist():
            current.append(index)
            tokens += lengths[index]
            if tokens >= step_tokens:
                steps.append(current)
                current, tokens = [], 0
        if current:
            steps.append(current)
    return steps


def dealt(examples: Sequence[Example], *, micro_tokens: int, size: int = 1, hidden: int = 1) -> list[list[MicroBatch]]:
    """The micro-batches of each of ``size`` ranks, of at most ``micro_tokens`` tokens and equally many."""
    shares = deal([len(example.tokens) for example in examples], budget=micro_tokens, size=size, hidden=hidden)
    return [[[examples[index] for index in indices] or [IDLE] for indices in own] for own in shares]


def num_targets(examples: Iterable[Example]) -> float:
    """How many target tokens there are, each as often as its example's weight."""
    return sum(sum(example.mask) * example.weight for example in examples)


def accumulate(
    sharded: ShardedModel, batches: Iterable[MicroBatch], *, total: float, bf16: bool, train: bool = True
) -> float:
    """This process's part of a step's loss, over packed micro-batches; gradients are added up.

    Every target token counts the same, whatever micro-batch it falls into (times its example's weight), since all are
    divided by ``total``, the target tokens of the step.
    """
    loss = 0.0
    for batch in batches:
        with torch.set_grad_enabled(train):
            part: Tensor = sharded(lambda model: _loss(model, batch, total, bf16=bf16))  # noqa: B023
        if train:
            part.backward()  # type: ignore[no-untyped-call]
        loss += part.item()
    return loss


def sft_loss(logprobs: Tensor, mask: Tensor, *, total: float, weight: Tensor | None = None) -> Tensor:
    """Cross-entropy of the targets of one micro-batch: its share of the mean over an optimizer step.

    ``logprobs`` and ``mask`` (bool) are ``[T]``; ``weight`` ``[T]`` scales tokens. ``total`` is the number of target
    tokens (the sum of their weights) of the whole step, all micro-batches together.
    """
    if total <= 0:
        raise MagError(f"an optimizer step needs target tokens, not {total}")
    scale = mask.float() if weight is None else mask * weight
    return -(logprobs * scale).sum() / total


def _loss(model: "PreTrainedModel", batch: MicroBatch, total: float, *, bf16: bool) -> Tensor:
    device = model.device
    packed = pack([example.tokens for example in batch]).to(device)
    mask = torch.tensor([on for example in batch for on in example.mask], device=device)
    weight = packed.spread([example.weight for example in batch])
    with autocast(device, bf16):
        return sft_loss(token_logprobs(model, packed, where=mask).values, mask, total=total, weight=weight)


@dataclass(frozen=True, slots=True)
class Step:
    """One optimizer step: this rank's micro-batches, and the ``total`` of target tokens on all ranks."""

    batches: Sequence[MicroBatch]
    total: float
    lr: float
    max_norm: float
    bf16: bool

    def run(self, state: RankState) -> tuple[float, float | None]:
        """Loss and gradient norm over all ranks; the norm is None where it was not finite and no step was made."""
        set_lr(state.optimizer, self.lr)
        loss = state.ranks.sum(accumulate(state.sharded, self.batches, total=self.total, bf16=self.bf16))
        return loss, clip_and_step(state.optimizer, state.model.parameters(), max_norm=self.max_norm)


@dataclass(frozen=True, slots=True)
class Measure:
    """The mean loss of target tokens, without training."""

    batches: Sequence[MicroBatch]
    total: float
    bf16: bool

    def run(self, state: RankState) -> float:
        """The loss over all ranks."""
        state.model.eval()
        loss = state.ranks.sum(accumulate(state.sharded, self.batches, total=self.total, bf16=self.bf16, train=False))
        state.model.train()
        return loss
