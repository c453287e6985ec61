"""One update of the policy: a batch of groups, split into mini-batches of one optimizer step each.

Advantages and token weights are computed over a whole mini-batch before it is split, so the split into micro-batches
changes nothing (recipe, sections 1 and 3).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from transformers import PreTrainedModel

from magcli.generate.types import Rollout
from magcli.rl.group import AdvantageNorm, advantages
from magcli.rl.rollouts import Group
from magcli.train.logprobs import token_logprobs
from magcli.train.loss import ClipStats, TokenNorm, clip_summary, grpo_loss, token_weights
from magcli.train.optim import autocast, clip_and_step
from magcli.train.packing import greedy_collate, pack, padding_share


@dataclass(frozen=True, slots=True)
class Objective:
    """The choices of the objective (recipe, section 1) and how it is computed."""

    clip_low: float
    clip_high: float
    temperature: float
    advantage_norm: AdvantageNorm
    loss_norm: TokenNorm
    max_norm: float
    micro_tokens: int
    bf16: bool


@dataclass(slots=True)
class Tally:
    """What an update's micro-batches measured."""

    clips: list[ClipStats] = field(default_factory=list)
    entropies: list[Tensor] = field(default_factory=list)
    loss: float = 0.0
    norms: list[float] = field(default_factory=list)
    skipped: int = 0
    padding: list[float] = field(default_factory=list)
    micro_batches: int = 0
    seconds: float = 0.0
    advantages: dict[int, list[float]] = field(default_factory=dict)

    def metrics(self) -> dict[str, Any]:
        """The update's line of metrics, as far as training knows it."""
        return {
            "loss": self.loss,
            "grad_norm": sum(self.norms) / len(self.norms) if self.norms else None,
            "skipped_steps": self.skipped,
            "entropy": torch.cat(self.entropies).mean().item() if self.entropies else None,
            "padding_share_if_padded": sum(self.padding) / max(len(self.padding), 1),
            "micro_batches": self.micro_batches,
            **clip_summary(self.clips),
        }


def update(
    model: PreTrainedModel,
    optimizer: Optimizer,
    groups: Sequence[Group],
    objective: Objective,
    *,
    groups_per_step: int,
    rewards: Sequence[Sequence[float]],
) -> Tally:
    """Train on a batch of groups; ``rewards`` are the totals by group, as the objective shall see them."""
    tally, begun = Tally(), time.monotonic()
    for start in range(0, len(groups), groups_per_step):
        chosen = groups[start : start + groups_per_step]
        _mini_batch(model, chosen, rewards[start : start + groups_per_step], objective, tally)
        norm = clip_and_step(optimizer, model.parameters(), max_norm=objective.max_norm)
        if norm is None:
            tally.skipped += 1
        else:
            tally.norms.append(norm)
    tally.seconds = time.monotonic() - begun
    return tally


@dataclass(frozen=True, slots=True)
class Sample:
    """One rollout as the loss sees it: its advantage, and the weight of each of its tokens."""

    prompt: tuple[int, ...]
    rollout: Rollout
    advantage: float
    weight: float

    @property
    def length(self) -> int:
        """Tokens of prompt and completion."""
        return len(self.prompt) + len(self.rollout.tokens)


def _mini_batch(
    model: PreTrainedModel,
    groups: Sequence[Group],
    rewards: Sequence[Sequence[float]],
    objective: Objective,
    tally: Tally,
) -> None:
    """Accumulate the gradient of one mini-batch."""
    samples = _samples(groups, rewards, objective, tally)
    lengths = [sample.length for sample in samples]
    batches = greedy_collate(lengths, objective.micro_tokens)
    tally.padding.append(padding_share(lengths, batches))
    tally.micro_batches += len(batches)
    for indices in batches:
        loss = micro_batch_loss(model, [samples[index] for index in indices], objective, tally)
        loss.backward()  # type: ignore[no-untyped-call]
        tally.loss += loss.item()


def _samples(
    groups: Sequence[Group], rewards: Sequence[Sequence[float]], objective: Objective, tally: Tally
) -> list[Sample]:
    names = [group.number for group in groups for _ in group.rollouts]
    flat = [reward for group in rewards for reward in group]
    found = advantages(flat, names, norm=objective.advantage_norm)
    for name, advantage in zip(names, found, strict=True):
        tally.advantages.setdefault(name, []).append(advantage)
    rollouts = [(group.prompt, rollout) for group in groups for rollout in group.rollouts]
    weights = token_weights([len(rollout.tokens) for _, rollout in rollouts], names, norm=objective.loss_norm)
    return [
        Sample(prompt, rollout, advantage, weight)
        for (prompt, rollout), advantage, weight in zip(rollouts, found, weights.tolist(), strict=True)
    ]


def micro_batch_loss(model: PreTrainedModel, samples: Sequence[Sample], objective: Objective, tally: Tally) -> Tensor:
    """The share of some samples in the loss of their mini-batch; the ratio is against the sampler's log-probs."""
    device = model.device
    packed = pack([sample.prompt + sample.rollout.tokens for sample in samples]).to(device)
    generated = _generated(samples).to(device)
    old = torch.tensor([value for sample in samples for value in sample.rollout.logprobs], device=device)
    with autocast(device, objective.bf16):
        new = token_logprobs(model, packed, temperature=objective.temperature, where=generated)
    loss, clips = grpo_loss(
        new.values[generated],
        old,
        packed.spread([sample.advantage for sample in samples])[generated],
        packed.spread([sample.weight for sample in samples])[generated],
        clip_low=objective.clip_low,
        clip_high=objective.clip_high,
    )
    tally.clips.append(clips)
    tally.entropies.append(new.entropy[generated])
    return loss


def _generated(samples: Sequence[Sample]) -> Tensor:
    """Which tokens of the packed samples the policy made: bool ``[T]``."""
    parts = [(len(sample.prompt), len(sample.rollout.tokens)) for sample in samples]
    return torch.cat([torch.arange(prompt + made) >= prompt for prompt, made in parts])
