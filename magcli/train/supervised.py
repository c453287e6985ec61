"""Supervised fine-tuning: which examples each optimizer step takes, and the step itself.

The plan of a whole run is fixed before its first step by the seed alone, so a resumed run takes up where it was.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.optim import Optimizer

from magcli.train.logprobs import token_logprobs
from magcli.train.loss import sft_loss
from magcli.train.optim import autocast, clip_and_step
from magcli.train.packing import greedy_collate, pack

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Example:
    """A conversation to learn: its tokens, which of them are targets, and how much it counts."""

    tokens: tuple[int, ...]
    mask: tuple[bool, ...]
    weight: float = 1.0


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


def accumulate(
    model: "PreTrainedModel", examples: Sequence[Example], *, micro_tokens: int, bf16: bool, train: bool = True
) -> float:
    """Loss of a step over packed micro-batches of at most ``micro_tokens`` tokens; gradients are added up.

    Every target token counts the same, whatever micro-batch it falls into (times its example's weight).
    """
    total = sum(sum(example.mask) * example.weight for example in examples)
    device = model.device
    loss = 0.0
    for indices in greedy_collate([len(example.tokens) for example in examples], micro_tokens):
        chosen = [examples[index] for index in indices]
        packed = pack([example.tokens for example in chosen]).to(device)
        mask = torch.tensor([on for example in chosen for on in example.mask], device=device)
        weight = packed.spread([example.weight for example in chosen])
        with autocast(device, bf16), torch.set_grad_enabled(train):
            logprobs = token_logprobs(model, packed, where=mask).values
            part = sft_loss(logprobs, mask, total=total, weight=weight)
        if train:
            part.backward()  # type: ignore[no-untyped-call]
        loss += part.item()
    return loss


def step(
    model: "PreTrainedModel",
    optimizer: Optimizer,
    examples: Sequence[Example],
    *,
    micro_tokens: int,
    max_norm: float,
    bf16: bool,
) -> tuple[float, float | None]:
    """One optimizer step; returns loss and gradient norm, which is None when it was not finite and no step was made."""
    loss = accumulate(model, examples, micro_tokens=micro_tokens, bf16=bf16)
    return loss, clip_and_step(optimizer, model.parameters(), max_norm=max_norm)


def held_out_loss(model: "PreTrainedModel", examples: Sequence[Example], *, micro_tokens: int, bf16: bool) -> float:
    """Mean loss of target tokens without training."""
    return accumulate(model, examples, micro_tokens=micro_tokens, bf16=bf16, train=False)
